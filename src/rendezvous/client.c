/* SPDX-License-Identifier: BSD-3-Clause
 * A rank that does not serve: dials until a server listens, says hello, and reads the answer. Any
 * program may listen at the address, so every byte goes through the parser and every wait has a
 * limit. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/open_limit.h"
#include "rendezvous/meet.h"

enum { PAUSE_FIRST_MS = 5, PAUSE_LAST_MS = 100 };

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* LS_OK: connected. LS_NO_MASTER: nobody listens yet. Any other status decides. */
static ls_status dial_server(struct rendezvous_client *client)
{
	int error = rendezvous_dial(client->place, &client->fd);

	if (error == EINPROGRESS) {
		ls_status status = rendezvous_client_wait(client, POLLOUT);
		if (status != LS_OK && status != LS_TIMED_OUT)
			return status;
		error = status == LS_TIMED_OUT ? ETIMEDOUT
					       : rendezvous_dialled(client->place, client->fd);
	}
	/* EAGAIN: a Unix socket listens, and its queue is full. */
	client->mute = error == EAGAIN;
	/* The host may still be starting. This host itself is silent only when the queue of the
	 * server is full. */
	bool silent = error == ETIMEDOUT && !rendezvous_place_is_loopback(client->place);
	client->unreachable = silent || error == EHOSTUNREACH || error == EHOSTDOWN ? error : 0;
	if (client->unreachable != 0)
		return LS_NO_MASTER;
	if (error == 0 || error == EAGAIN || error == ECONNREFUSED || error == ECONNRESET ||
	    error == ETIMEDOUT || error == EADDRNOTAVAIL)
		return error == 0 ? LS_OK : LS_NO_MASTER;

	rendezvous_client_where(client, "cannot connect to the rendezvous address ", ": ");
	rendezvous_text_add(client->text, "%s", OPEN_LIMIT_TEXT(error));
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS
		       ? LS_OUT_OF_MEMORY
		       : LS_SYSTEM;
}

/* Any user may have taken an abstract name or a port; the kernel says which user. For a port the
 * kernel does so only after the other side has accepted and before it has closed; otherwise the
 * answer's own claim counts. */
static ls_status check_owner(struct rendezvous_client *client)
{
	bool tcp = client->place->tcp;
	struct ucred credentials;

	if (client->checked || client->remote || (tcp && client->got == 0))
		return LS_OK;
	client->checked = true;
	enum rendezvous_peer peer = rendezvous_find_peer(client->fd, tcp, &credentials);
	if (peer == RENDEZVOUS_PEER_KNOWN ? credentials.uid == geteuid() : tcp)
		return LS_OK;
	rendezvous_client_where(client, "", "");
	rendezvous_text_add(client->text,
			    " belongs to a process of user %u, and this is user %u: choose another %s "
			    "for this job",
			    credentials.uid, (unsigned)geteuid(), tcp ? "port" : "name");
	return LS_UNTRUSTED_PEER;
}

static ls_status say_no_secret(struct rendezvous_client *client)
{
	rendezvous_client_where(client, "", "");
	rendezvous_text_add(client->text,
			    " is on another host than rank %d, which has no secret to show there: "
			    "give all ranks LOCKSTEP_SECRET_FILE, a file with the same 32 random "
			    "bytes on every host (head -c 32 /dev/urandom > FILE; chmod 600 FILE), "
			    "or LOCKSTEP_TRUST_NETWORK=1",
			    client->place->rank);
	return LS_UNTRUSTED_PEER;
}

static ls_status send_hello(struct rendezvous_client *client)
{
	struct rendezvous_self self = *client->self;
	struct wire_hello *hello = &client->hello;
	uint64_t now_ns = clock_now_ns(), remaining_ms = 0;

	if (client->remote && !client->place->has_token)
		return say_no_secret(client);
	if (client->place->tcp)
		rendezvous_own_ip(client->fd, self.me.ip);
	if (client->deadline_ns == CLOCK_NEVER)
		remaining_ms = UINT64_MAX;
	else if (client->deadline_ns > now_ns)
		remaining_ms = (client->deadline_ns - now_ns) / 1000000;
	rendezvous_hello_fill(hello, client->place, &self, remaining_ms,
			      (now_ns - client->began_ns) / 1000000);
	if (client->remote)
		memset(&hello->secret, 0, sizeof hello->secret);
	if (client->remote && !auth_nonce(hello->nonce)) {
		rendezvous_text_add(client->text, "no random numbers from the system: %m");
		return LS_SYSTEM;
	}
	return rendezvous_client_send(client, hello, sizeof *hello,
				      hello->flags & WIRE_FLAG_TRACE ? client->self->trace_fd : -1);
}

/* ---- what answers ---- */

static ls_status say_stranger(struct rendezvous_client *client)
{
	char start[25];

	rendezvous_copy_printable(start, sizeof start, client->in, client->got);
	rendezvous_client_where(client, "what answers at ", " is not Lockstep");
	rendezvous_text_add(client->text, ": it says \"%s\"%s. Choose another address%s", start,
			    strncmp(start, "HTTP/", 5) == 0 ? ", so it is a web server" : "",
			    client->place->tcp ? " (MASTER_PORT) for this job" : " for this job");
	return LS_UNTRUSTED_PEER;
}

static ls_status say_version(struct rendezvous_client *client, const struct wire_head *other)
{
	struct wire_head mine;

	rendezvous_head_fill(&mine, WIRE_HELLO, sizeof mine, client->place->rank,
			     client->self->me.pid);
	rendezvous_text_add(client->text, "rank %d (pid %d) runs Lockstep %s (protocol %u), but ",
			    mine.rank, mine.pid, mine.version, mine.protocol);
	rendezvous_text_holder(client->text, other->rank, other->pid);
	rendezvous_client_where(client, " at ", "");
	rendezvous_text_add(client->text,
			    " runs %s (protocol %u%s): start all with the same library",
			    other->version, other->protocol,
			    other->byte_order == WIRE_BYTE_ORDER ? "" : ", another byte order");
	return LS_WRONG_VERSION;
}

static ls_status say_unproved(struct rendezvous_client *client)
{
	rendezvous_client_where(client, "what answers at ", "");
	rendezvous_text_add(client->text,
			    " (rank %d, pid %d) does not know the secret of rank %d: give all ranks "
			    "the same LOCKSTEP_SECRET_FILE, or all LOCKSTEP_TRUST_NETWORK=1",
			    client->holder_rank, client->holder_pid, client->place->rank);
	return LS_UNTRUSTED_PEER;
}

/* One end of the connection finds both ends on one host, and the other end finds them on two. */
static ls_status say_forwarded(struct rendezvous_client *client)
{
	rendezvous_text_add(client->text, "rank %d sees ", client->place->rank);
	rendezvous_client_where(client, "", "");
	rendezvous_text_add(client->text, " on %s host, and ",
			    client->remote ? "another" : "its own");
	rendezvous_text_holder(client->text, client->holder_rank, client->holder_pid);
	rendezvous_text_add(client->text,
			    " there sees rank %d on %s: something between them forwards connections "
			    "(a proxy, a tunnel, a published port). Give all ranks the address of "
			    "rank 0's host itself",
			    client->place->rank, client->remote ? "its own" : "another one");
	return LS_UNTRUSTED_PEER;
}

/* Checks the server's proof that it knows the secret, and then sends this rank's. */
static ls_status answer_challenge(struct rendezvous_client *client)
{
	struct wire_challenge challenge;
	struct wire_proof proof;

	memcpy(&challenge, client->in, sizeof challenge);
	auth_session_begin(&client->place->token, &client->hello, sizeof client->hello, &challenge,
			   offsetof(struct wire_challenge, tag), &client->session);
	if (!auth_verify(&client->session, AUTH_SERVER, 0, "", 0, &challenge.tag))
		return say_unproved(client);
	client->checked = true;
	memset(&proof, 0, sizeof proof);
	rendezvous_head_fill(&proof.head, WIRE_PROOF, sizeof proof, client->place->rank,
			     client->self->me.pid);
	auth_sign(&client->session, AUTH_CLIENT, 0, "", 0, &proof.tag);
	return rendezvous_client_send(client, &proof, sizeof proof, -1);
}

/* Whether an answer comes from a server that knows the secret. Before the proofs an answer can only
 * be a refusal, which anybody may send, and which harms nobody. */
static bool is_signed(const struct rendezvous_client *client, const struct wire_answer *answer)
{
	struct wire_answer *unsigned_answer;
	bool good;

	if (!client->remote || (!client->checked && answer->status != LS_OK))
		return true;
	if (!client->checked)
		return false;
	unsigned_answer = malloc(sizeof *unsigned_answer); /* too large for a small stack */
	if (!unsigned_answer)
		return false;
	*unsigned_answer = *answer;
	memset(&unsigned_answer->tag, 0, sizeof unsigned_answer->tag);
	good = auth_verify(&client->session, AUTH_SERVER, 1, unsigned_answer, answer->head.bytes,
			   &answer->tag);
	free(unsigned_answer);
	return good;
}

static ls_status take_answer(struct rendezvous_client *client, const struct wire_answer *answer,
			     struct rendezvous_table *out)
{
	const struct rendezvous_place *place = client->place;

	if (!is_signed(client, answer))
		return say_unproved(client);
	if (answer->status != LS_OK) {
		rendezvous_text_add(client->text, "%s", answer->text);
		return (ls_status)answer->status;
	}
	if (answer->size != place->world_size ||
	    strcmp(answer->ranks[place->rank].address, client->self->me.address) != 0) {
		rendezvous_client_where(client, "the table of ranks that came from ",
					" is not of this job: choose another address for it");
		return LS_UNTRUSTED_PEER;
	}
	out->job = answer->job;
	out->size = answer->size;
	memcpy(out->ranks, answer->ranks, (size_t)answer->size * sizeof out->ranks[0]);
	/* Rank 0 serves no longer once all have their table, unless a second round follows; a
	 * launcher stays. */
	client->kept = answer->head.rank == WIRE_LAUNCHER || rendezvous_has_hosts(out);
	return LS_OK;
}

static void take_off_input(struct rendezvous_client *client, size_t bytes)
{
	client->got -= bytes;
	memmove(client->in, client->in + bytes, client->got);
}

/* True once *status decides. Takes a challenge and a welcome off the input, if they have come. */
static bool judge_reply(struct rendezvous_client *client, struct rendezvous_table *out,
			ls_status *status)
{
	struct wire_answer *reply = &client->reply;

	for (;;) {
		enum wire_check check = rendezvous_reply_parse(client->in, client->got, reply);
		if (check == WIRE_MORE)
			return false;
		if (check == WIRE_NONSENSE) {
			*status = say_stranger(client);
			return true;
		}
		if (check == WIRE_OTHER) {
			*status = say_version(client, &reply->head);
			return true;
		}
		client->holder_rank = reply->head.rank;
		client->holder_pid = reply->head.pid;
		if (reply->head.kind == WIRE_ANSWER) {
			client->welcomed = true;
			*status = take_answer(client, reply, out);
			take_off_input(client, reply->head.bytes);
			return true;
		}
		bool challenges = reply->head.kind == WIRE_CHALLENGE;
		bool proves = client->remote && !client->checked;
		if (client->welcomed || challenges != proves) {
			bool again = client->welcomed || (client->remote && client->checked);
			*status = again ? say_stranger(client) : say_forwarded(client);
			return true;
		}
		if (challenges) {
			*status = answer_challenge(client);
			if (*status != LS_OK)
				return true;
		}
		client->welcomed = !challenges;
		take_off_input(client, reply->head.bytes);
	}
}

static ls_status say_vanished(struct rendezvous_client *client)
{
	rendezvous_client_where(client, "the process that holds the rendezvous ", ", ");
	rendezvous_text_holder(client->text, client->holder_rank, client->holder_pid);
	rendezvous_text_add(client->text, ", ended before all ranks had come: see what it printed");
	return LS_NO_MASTER;
}

/* True once *status decides. False: the connection ended before the server said a word, so try
 * again. */
static bool await_answer(struct rendezvous_client *client, struct rendezvous_table *out,
			 ls_status *status)
{
	for (;;) {
		bool ended;
		*status = rendezvous_client_receive(client, &ended);
		if (*status != LS_OK)
			return true;
		if (ended && !client->welcomed)
			return false;
		if (ended) {
			*status = say_vanished(client);
			return true;
		}
		*status = check_owner(client);
		if (*status != LS_OK || judge_reply(client, out, status))
			return true;
	}
}

static bool try_once(struct rendezvous_client *client, struct rendezvous_table *out,
		     ls_status *status)
{
	client->got = 0;
	client->checked = false;
	*status = dial_server(client);
	if (*status != LS_OK)
		return *status != LS_NO_MASTER;
	client->mute = true; /* until the server has said a word */
	client->remote = false;
	if (client->place->tcp && !rendezvous_find_remote(client->fd, &client->remote))
		return false;
	*status = check_owner(client);
	if (*status == LS_OK)
		*status = send_hello(client);
	if (*status == LS_TIMED_OUT)
		*status = rendezvous_client_give_up(client);
	if (*status != LS_OK)
		return true;
	return await_answer(client, out, status);
}

/* Whether rank 0, which is to serve, has ended and so will never listen. */
static bool is_in_vain(struct rendezvous_client *client)
{
	const struct rendezvous_ends *ends = client->self->ends;
	char how[RENDEZVOUS_HOW_BYTES];

	if (!ends || client->mute || !ends->find(ends->context, 0, how, sizeof how))
		return false;
	rendezvous_text_add(client->text, "%s, and nobody listens", how);
	rendezvous_client_where(client, " at ", ", so the ");
	rendezvous_text_add(client->text, "%d ranks cannot meet", client->place->world_size);
	return true;
}

ls_status rendezvous_client_meet(struct rendezvous_client *client, struct rendezvous_table *out)
{
	uint64_t pause_ms = PAUSE_FIRST_MS;
	ls_status status = LS_OK;

	client->fd = -1;
	client->kept = false;
	client->began_ns = clock_now_ns();
	for (;;) {
		bool decided = try_once(client, out, &status);
		if (!client->kept)
			rendezvous_close_fd(&client->fd);
		if (decided)
			return status;
		if (is_in_vain(client))
			return LS_NO_MASTER;
		if (client->once || clock_now_ns() >= client->silence_ns)
			return rendezvous_client_give_up(client);
		status = wait_fds(client->waiter, NULL, 0, -1,
				  earlier(clock_deadline_ns(pause_ms), client->silence_ns));
		if (status != LS_TIMED_OUT)
			return rendezvous_client_interrupted(client, status);
		pause_ms = earlier(pause_ms * 2, PAUSE_LAST_MS);
	}
}
