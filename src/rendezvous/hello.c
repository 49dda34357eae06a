/* SPDX-License-Identifier: BSD-3-Clause
 * What a hello leads to: the server admits the rank, fails the meeting for all, or refuses this
 * connection alone. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/ranks.h"
#include "rendezvous/server.h"

enum {
	EARLY_MS = 2000, /* that a rank of the same start may be earlier than rank 0 */
	SETTLE_MS = 200,
	SETTLE_EARLY_MS = 1000, /* if a rank is early */
};

static void say_version(const struct rendezvous_server *server, const struct wire_head *other,
			char *text)
{
	struct wire_head mine;

	rendezvous_head_fill(&mine, WIRE_WELCOME, sizeof mine, server->holder, getpid());
	rendezvous_text_add(text, "rank %d (pid %d) runs Lockstep %s (protocol %u%s), but ",
			    other->rank, other->pid, other->version, other->protocol,
			    other->byte_order == WIRE_BYTE_ORDER ? "" : ", another byte order");
	rendezvous_text_holder(text, server->holder, getpid());
	rendezvous_text_add(text, " at %s runs %s (protocol %u): start all with the same library",
			    server->where, mine.version, mine.protocol);
}

/* Two jobs at one port look like one whose ranks come twice, and so do a job and a rank that is
 * left over from an earlier start. */
static void say_ports(const struct rendezvous_server *server, char *text)
{
	if (server->place.tcp)
		rendezvous_text_add(text, ". If they are of two jobs, give each job a MASTER_PORT of "
					  "its own");
}

/* Whether a rank began to look for this server long before it listened. */
static bool is_early(const struct rendezvous_server *server, uint64_t since_ns)
{
	return since_ns != 0 && server->began_ns > since_ns &&
	       server->began_ns - since_ns >= (uint64_t)EARLY_MS * 1000000;
}

static void say_early(const struct rendezvous_server *server, int pid, uint64_t since_ns, char *text)
{
	if (is_early(server, since_ns))
		rendezvous_text_add(text,
				    ". Pid %d had looked for rank 0 for %.1f s when this one began: "
				    "if it is left over from an earlier start, end it",
				    pid, (double)(server->began_ns - since_ns) * 1e-9);
}

/* Nothing that a rank knows of a job by hand tells it from another one with equal settings. But
 * then a rank comes twice. So once all are there the server waits a moment for that. */
static void settle(struct rendezvous_server *server, uint64_t since_ns)
{
	uint64_t until_ns =
		clock_deadline_ns(is_early(server, since_ns) ? SETTLE_EARLY_MS : SETTLE_MS);
	if (server->place.by_hand && until_ns > server->settled_ns)
		server->settled_ns = until_ns;
}

/* Since when the rank has looked for this server; 0: not known. */
static uint64_t since_ns_of(const struct wire_hello *hello)
{
	uint64_t now_ns = clock_now_ns();
	return hello->waited_ms < now_ns / 1000000 ? now_ns - hello->waited_ms * 1000000 : 0;
}

static const struct auth_session *session_of(const struct server_connection *connection)
{
	return connection->challenged ? &connection->session : NULL;
}

static void admit_connection(struct rendezvous_server *server, struct server_connection *connection,
			     const struct wire_hello *hello)
{
	bool remote = connection->remote;
	struct server_rank *member = &server->ranks[hello->head.rank];
	struct rendezvous_rank *rank = &server->table.ranks[hello->head.rank];
	struct wire_head welcome;

	member->said_hello = true;
	member->fd = connection->fd;
	member->trace_fd = connection->trace_fd;
	member->remote = remote;
	member->session = connection->session;
	member->pid_space = hello->pid_space;
	member->since_ns = since_ns_of(hello);
	settle(server, member->since_ns);
	connection->fd = connection->trace_fd = -1;
	rendezvous_connection_end(connection);
	rank->host_key = hello->host_key;
	memcpy(rank->ip, hello->ip, sizeof rank->ip);
	rank->pid = hello->head.pid;
	rank->uid = hello->uid;
	memcpy(rank->host, hello->host, sizeof rank->host);
	memcpy(rank->address, hello->address, sizeof rank->address);

	uint64_t limit_ns = clock_deadline_ns(hello->remaining_ms);
	if (limit_ns < server->deadline_ns)
		server->deadline_ns = limit_ns;

	rendezvous_head_fill(&welcome, WIRE_WELCOME, sizeof welcome, server->holder, getpid());
	/* If this fails the connection is broken, which the next look at the ranks finds. */
	(void)rendezvous_send(member->fd, &welcome, sizeof welcome, -1);
}

static bool is_other_space(uint32_t one, uint32_t other)
{
	return one != 0 && other != 0 && one != other;
}

/* Each rank watches the others of its host by their process ids, which mean something else in
 * another namespace. Returns whether a process of another namespace is on the host of the new rank,
 * and the rank and pid of that process. */
static bool find_other_space(const struct rendezvous_server *server, bool remote,
			     const struct wire_hello *hello, int *rank, int *pid)
{
	*rank = server->holder;
	*pid = getpid();
	if (!remote)
		return hello->head.pid == 0 || is_other_space(fork_pid_space(), hello->pid_space);
	struct rendezvous_rank here = {.host_key = hello->host_key};
	memcpy(here.ip, hello->ip, sizeof here.ip);
	for (int i = 0; i < server->place.world_size; i++) {
		const struct server_rank *member = &server->ranks[i];
		const struct rendezvous_rank *there = &server->table.ranks[i];
		*rank = i;
		*pid = there->pid;
		if (member->said_hello && member->remote && rendezvous_share_host(there, &here) &&
		    is_other_space(member->pid_space, hello->pid_space))
			return true;
	}
	return false;
}

static void judge_hello(struct rendezvous_server *server, struct server_connection *connection,
			const struct wire_hello *hello)
{
	char *text = server->text;
	int rank = hello->head.rank, pid = hello->head.pid;
	int other, other_pid;

	if (hello->world_size != server->place.world_size) {
		rendezvous_text_add(text, "rank %d (pid %d) was started for %d rank%s, but ", rank,
				    pid, hello->world_size, hello->world_size == 1 ? "" : "s");
		rendezvous_text_holder(text, server->holder, getpid());
		rendezvous_text_add(text, " at %s for %d: give all processes the same WORLD_SIZE",
				    server->where, server->place.world_size);
		rendezvous_fail(server, LS_WRONG_WORLD_SIZE);
	} else if (find_other_space(server, connection->remote, hello, &other, &other_pid)) {
		rendezvous_text_add(text, "rank %d and ", rank);
		rendezvous_text_holder(text, other, other_pid);
		rendezvous_text_add(text,
				    " at %s are in different PID namespaces, where neither sees "
				    "whether the other lives: start all ranks, and lockstep run if "
				    "there is one, in the same (without unshare --pid; all in one "
				    "container, or each with --pid=host)",
				    server->where);
		rendezvous_fail(server, LS_UNSUPPORTED);
	} else if (server->ranks[rank].said_hello) {
		rendezvous_text_add(text,
				    "two processes at %s say that they are rank %d of %d, pid %d and "
				    "pid %d: give each its own RANK, 0 to %d",
				    server->where, rank, hello->world_size,
				    server->table.ranks[rank].pid, pid, hello->world_size - 1);
		say_ports(server, text);
		say_early(server, server->table.ranks[rank].pid, server->ranks[rank].since_ns, text);
		say_early(server, pid, since_ns_of(hello), text);
		rendezvous_fail(server, LS_DUPLICATE_RANK);
	} else {
		admit_connection(server, connection, hello);
		return;
	}
	server->told++;
	rendezvous_tell_answer(server, connection->fd, session_of(connection), server->status, text);
	rendezvous_connection_end(connection);
}

/* The meeting is over: a process that comes now gets the result, and affects no other rank. */
static void tell_latecomer(struct rendezvous_server *server, struct server_connection *connection,
			   int rank)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	if (server->state == SERVER_FAILED) {
		server->told++;
		rendezvous_tell_answer(server, connection->fd, session_of(connection),
				       server->status, server->text);
	} else {
		rendezvous_text_add(text, "rank %d came to %s after all %d ranks had met", rank,
				    server->where, server->place.world_size);
		if (rank >= 0 && rank < server->place.world_size)
			rendezvous_text_add(text, " (rank %d is pid %d)", rank,
					    server->table.ranks[rank].pid);
		rendezvous_text_add(text, ": a rank can join a job only once");
		say_ports(server, text);
		rendezvous_tell_answer(server, connection->fd, session_of(connection),
				       LS_DUPLICATE_RANK, text);
	}
	rendezvous_connection_end(connection);
}

static void refuse_other_user(struct rendezvous_server *server,
			      struct server_connection *connection, uint32_t uid)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	rendezvous_text_add(text,
			    "the rendezvous at %s belongs to user %u, and this process runs as user "
			    "%u: choose another port or name for this job",
			    server->where, (unsigned)geteuid(), uid);
	rendezvous_tell_answer(server, connection->fd, NULL, LS_UNTRUSTED_PEER, text);
	server->other_users++;
	rendezvous_connection_end(connection);
}

/* Whether the server may hear the connection; if not, ends the connection, and the meeting goes on.
 * *uid: what the hello says, replaced by what the kernel says. *pid: what the kernel says; 0:
 * nothing. */
static bool is_of_this_user(struct rendezvous_server *server, struct server_connection *connection,
			    uint32_t *uid, int *pid, enum rendezvous_peer *peer)
{
	struct ucred credentials;

	if (connection->remote) { /* of another host's users only the secret tells */
		*peer = RENDEZVOUS_PEER_HIDDEN;
		*pid = 0;
		return true;
	}
	*peer = rendezvous_find_peer(connection->fd, server->place.tcp, &credentials);
	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX && *peer == RENDEZVOUS_PEER_EXHAUSTED; i++) {
		rendezvous_exhausted(server, connection, errno);
		*peer = rendezvous_find_peer(connection->fd, server->place.tcp, &credentials);
	}
	/* All that the rank will get is the reason. */
	if (*peer == RENDEZVOUS_PEER_EXHAUSTED && server->state == SERVER_FAILED)
		*peer = RENDEZVOUS_PEER_HIDDEN;
	*pid = credentials.pid;
	if (*peer == RENDEZVOUS_PEER_GONE || *peer == RENDEZVOUS_PEER_EXHAUSTED) {
		server->incomplete++;
		rendezvous_connection_end(connection);
		return false;
	}
	if (*peer == RENDEZVOUS_PEER_KNOWN)
		*uid = credentials.uid;
	if (*uid == geteuid())
		return true;
	refuse_other_user(server, connection, *uid);
	return false;
}

/* A server without a secret gives a process of another host no other answer. */
static void refuse_remote(struct rendezvous_server *server, struct server_connection *connection,
			  int rank)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	rendezvous_text_add(text, "rank %d comes from another host, and ", rank);
	rendezvous_text_holder(text, server->holder, getpid());
	rendezvous_text_add(text,
			    " at %s has no secret, without which it lets no other host in: give all "
			    "ranks LOCKSTEP_SECRET_FILE, a file with the same 32 random bytes on "
			    "every host, or LOCKSTEP_TRUST_NETWORK=1",
			    server->where);
	rendezvous_tell_answer(server, connection->fd, NULL, LS_UNTRUSTED_PEER, text);
	server->unasked++;
	rendezvous_connection_end(connection);
}

/* Whether the hello is of this server's job, as far as that can be known. If not, refuses this
 * connection alone: the ranks of this job may still come. */
static bool is_of_this_job(struct rendezvous_server *server, struct server_connection *connection,
			   const struct wire_hello *hello)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	struct auth_tag secret;
	bool same_launch = hello->launch == server->place.launch;

	rendezvous_secret_tag(&server->place, &secret);
	/* A hello from another host carries no secret that could be compared: its proof decides. */
	if (same_launch &&
	    (connection->remote || memcmp(&secret, &hello->secret, sizeof secret) == 0))
		return true;
	rendezvous_text_holder(text, server->holder, getpid());
	rendezvous_text_add(text, " at %s and rank %d (pid %d) ", server->where, hello->head.rank,
			    hello->head.pid);
	rendezvous_text_add(
		text, same_launch ? "do not have the same secret, so they are of two jobs: give "
				    "each job a MASTER_PORT of its own, and all ranks of one job "
				    "the same LOCKSTEP_SECRET_FILE, or none"
				  : "were started by two launchers, so they are of two jobs: give "
				    "each job a MASTER_PORT of its own");
	rendezvous_tell_answer(server, connection->fd, session_of(connection), LS_UNTRUSTED_PEER,
			       text);
	server->other_jobs++;
	rendezvous_connection_end(connection);
	return false;
}

static void challenge_connection(struct rendezvous_server *server,
				 struct server_connection *connection,
				 const struct wire_hello *hello)
{
	struct wire_challenge out;

	if (!server->place.has_token) {
		refuse_remote(server, connection, hello->head.rank);
		return;
	}
	memset(&out, 0, sizeof out);
	rendezvous_head_fill(&out.head, WIRE_CHALLENGE, sizeof out, server->holder, getpid());
	if (!auth_nonce(out.nonce)) {
		server->incomplete++;
		rendezvous_connection_end(connection);
		return;
	}
	connection->hello = *hello;
	connection->challenged = true;
	connection->got = 0;
	auth_session_begin(&server->place.token, hello, sizeof *hello, &out,
			   offsetof(struct wire_challenge, tag), &connection->session);
	auth_sign(&connection->session, AUTH_SERVER, 0, "", 0, &out.tag);
	/* The challenge fits into the empty buffer of the socket; if not, the connection is
	 * broken. */
	(void)rendezvous_send(connection->fd, &out, sizeof out, -1);
}

void rendezvous_handle_proof(struct rendezvous_server *server, struct server_connection *connection,
			     const struct wire_proof *proof)
{
	struct wire_hello hello = connection->hello;

	if (!auth_verify(&connection->session, AUTH_CLIENT, 0, "", 0, &proof->tag)) {
		server->unproved++;
		rendezvous_connection_end(connection);
	} else if (!is_of_this_job(server, connection, &hello)) {
		return;
	} else if (server->state != SERVER_MEETING) {
		tell_latecomer(server, connection, hello.head.rank);
	} else {
		judge_hello(server, connection, &hello);
	}
}

void rendezvous_handle_hello(struct rendezvous_server *server, struct server_connection *connection,
			     struct wire_hello *hello)
{
	enum rendezvous_peer peer;
	int pid;

	if (connection->remote) {
		challenge_connection(server, connection, hello);
		return;
	}
	if (!is_of_this_user(server, connection, &hello->uid, &pid, &peer) ||
	    !is_of_this_job(server, connection, hello))
		return;
	if (!server->place.tcp)
		hello->head.pid = pid; /* 0: a process that this one cannot see */
	if (server->state != SERVER_MEETING)
		tell_latecomer(server, connection, hello->head.rank);
	else
		judge_hello(server, connection, hello);
}

void rendezvous_handle_other_version(struct rendezvous_server *server,
				     struct server_connection *connection,
				     const struct wire_head *head)
{
	uint32_t uid = geteuid(); /* a head says nothing of users */
	enum rendezvous_peer peer;
	int pid;

	if (!is_of_this_user(server, connection, &uid, &pid, &peer))
		return;
	if (peer == RENDEZVOUS_PEER_HIDDEN &&
	    (connection->remote || server->state == SERVER_MEETING)) {
		/* Any process may have sent this head, so it does not fail the meeting for
		 * others. */
		char text[RENDEZVOUS_TEXT_BYTES] = "";
		say_version(server, head, text);
		rendezvous_tell_answer(server, connection->fd, NULL, LS_WRONG_VERSION, text);
		server->other_versions++;
		rendezvous_connection_end(connection);
		return;
	}
	if (server->state == SERVER_MEETING) {
		say_version(server, head, server->text);
		rendezvous_fail(server, LS_WRONG_VERSION);
	}
	tell_latecomer(server, connection, head->rank);
}
