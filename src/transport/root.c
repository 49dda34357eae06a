/* SPDX-License-Identifier: BSD-3-Clause
 * The root's part in connecting the ranks of a host: it gathers all descriptors, sends them to
 * every rank, and lets the ranks continue only when all have mapped all. A connection belongs to no
 * rank until a proper hello admits it as its rank. Connections without a rank disturb nobody and
 * are closed at the end. The root sends every rank the error that it finds. */
#include "transport/acceptor.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/ranks.h"
#include "base/stopped.h"

enum {
	ACCEPTS_A_TURN = 64,
	/* the root gives up this much earlier, so that its answer comes in time */
	ANSWER_MS = 250,
	FAREWELL_MS = 1000, /* how long the answer is sent to ranks that have not come yet */
	POLLS_MAX = 2 * RANKS_HOST_MAX + ACCEPTOR_MAX,
};

/* A client. */
struct member {
	int fd; /* -1: it has not said hello yet */
	int pid;
	int pidfd;              /* ready once its process has ended, -1: not watched */
	int fds[TRANSPORT_FDS]; /* its own; of the root as a rank: borrowed */
	int sent, mapped;       /* chunks of the table: mapped <= sent <= mapped + 1 */
	bool is_told;           /* the client knows that it all failed; the connection is closed */
	bool ended;             /* its process ended before it got the error */
};

struct root {
	struct transport *transport;
	const struct transport_exchange *exchange;
	struct transport_handshake_ranks ranks; /* by place; this rank has place 0 */
	uint64_t deadline_ns;
	int chunks;    /* in the whole table */
	int admitted;  /* clients with a rank */
	int under_way; /* chunks sent and not mapped yet, over all clients */
	int culprit;   /* the world rank to name when the root fails */
	struct stopped_looks looks;
	bool failed;                        /* the root has printed the reason */
	bool short_of_fds;                  /* some rank is not watched for want of a descriptor */
	struct transport_acceptor acceptor; /* connections without a rank */
	struct member members[RANKS_HOST_MAX]; /* by place */
};

/* ---- which ranks are missing ---- */

/* Whether the others wait for the rank at this place. */
static bool is_awaited(const struct root *root, int place)
{
	const struct member *member = &root->members[place];
	return !member->is_told && !member->ended &&
	       (member->fd < 0 || member->mapped < member->sent);
}

/* The world rank of the first rank that the others wait for; -1: none. */
static int first_awaited(const struct root *root)
{
	for (int place = 1; place < root->ranks.count; place++) {
		int rank = root->ranks.rank[place];
		if (is_awaited(root, place) && !(root->failed && rank == root->culprit))
			return rank;
	}
	return -1;
}

static ls_status say_missing(struct root *root)
{
	char list[6 * RANKS_HOST_MAX] = "";
	size_t used = 0;
	for (int place = 1; place < root->ranks.count; place++) {
		if (!is_awaited(root, place))
			continue;
		int length = snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "",
				      root->ranks.rank[place]);
		if (length > 0 && (size_t)length < sizeof list - used)
			used += (size_t)length;
	}
	MESSAGE_SAY(MESSAGE_TRANSPORT_MISSING, list);
	root->culprit = first_awaited(root);
	return LS_RANK_MISSING;
}

static ls_status say_limit(struct root *root)
{
	int size = root->ranks.count;
	if (root->failed)
		return LS_OUT_OF_MEMORY;
	root->culprit = root->transport->rank;
	MESSAGE_SAY(MESSAGE_TRANSPORT_LIMIT, root->culprit, (unsigned long long)open_limit_get(),
		    size, (size + HANDSHAKE_CHUNK) * TRANSPORT_FDS);
	return LS_OUT_OF_MEMORY;
}

static ls_status say_lost(struct root *root, int place)
{
	root->culprit = root->ranks.rank[place];
	MESSAGE_SAY(MESSAGE_TRANSPORT_LOST, root->culprit, root->members[place].pid);
	return LS_PEER_DIED;
}

/* ---- connections ---- */

static ls_status accept_connections(struct root *root)
{
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int error = transport_acceptor_accept(&root->acceptor);
		if (error == EAGAIN || error == EWOULDBLOCK)
			return LS_OK;
		if (error == EMFILE || error == ENFILE)
			return say_limit(root);
		if (error != 0) {
			MESSAGE_SAY(MESSAGE_TRANSPORT_LISTEN, "accept4", strerror(error));
			return transport_errno_status(error);
		}
	}
	return LS_OK;
}

/* Whether a rank that is missing introduces itself, or says that it cannot take part. */
static bool is_proper(const struct root *root, const struct transport_handshake *wire, int fd_count)
{
	int place = transport_handshake_place(&root->ranks, wire->rank);
	bool comes = wire->kind == HANDSHAKE_HELLO && fd_count == TRANSPORT_FDS;
	bool declines = wire->kind == HANDSHAKE_FAIL && fd_count == 0;
	return (comes || declines) && wire->size == root->transport->size && place > 0 &&
	       root->members[place].fd < 0 && !root->members[place].is_told;
}

/* The status of a rank that fails. */
static ls_status hear_failure(struct root *root, int culprit, const struct transport_handshake *wire)
{
	bool valid = transport_is_status(wire->status) && wire->status != LS_OK;
	ls_status status = valid ? (ls_status)wire->status : LS_INTERNAL;
	root->culprit = culprit;
	MESSAGE_SAY(MESSAGE_TRANSPORT_FAILED, culprit, ls_status_text(status));
	return status;
}

/* Gives the connection its place, or turns it away. */
static ls_status hear_connection(struct root *root, int index)
{
	struct transport_handshake wire;
	int fds[TRANSPORT_FDS];
	int count;
	int fd = root->acceptor.fds[index];
	switch (transport_handshake_receive(fd, root->transport->job, &wire, fds, TRANSPORT_FDS,
					    &count)) {
	case HANDSHAKE_AGAIN:
		return LS_OK;
	case HANDSHAKE_EXHAUSTED:
		return say_limit(root);
	case HANDSHAKE_MESSAGE:
		if (is_proper(root, &wire, count))
			break;
		transport_close_fds(fds, count);
		/* fall through */
	case HANDSHAKE_END:
	case HANDSHAKE_NONSENSE:
	default:
		transport_acceptor_refuse(&root->acceptor, index,
					  "it did not introduce itself as a rank that is missing");
		return LS_OK;
	}
	int place = transport_handshake_place(&root->ranks, wire.rank);
	struct member *member = &root->members[place];
	transport_acceptor_forget(&root->acceptor, index);
	if (wire.kind == HANDSHAKE_FAIL) {
		close(fd);
		member->is_told = true;
		return root->failed ? LS_OK : hear_failure(root, wire.rank, &wire);
	}
	member->fd = fd;
	member->pid = wire.pid;
	memcpy(member->fds, fds, sizeof fds);
	root->admitted++;
	return LS_OK;
}

/* ---- clients ---- */

static ls_status hear_client(struct root *root, int place)
{
	struct member *member = &root->members[place];
	struct transport_handshake wire;
	int count;
	enum transport_handshake_result result = transport_handshake_receive(
		member->fd, root->transport->job, &wire, NULL, 0, &count);
	if (result == HANDSHAKE_AGAIN)
		return LS_OK;
	if (result == HANDSHAKE_END)
		return say_lost(root, place);
	if (result == HANDSHAKE_MESSAGE && wire.kind == HANDSHAKE_MAPPED &&
	    member->mapped < member->sent && wire.first == member->mapped * HANDSHAKE_CHUNK) {
		member->mapped++;
		root->under_way--;
		return LS_OK;
	}
	if (result == HANDSHAKE_MESSAGE && wire.kind == HANDSHAKE_FAIL) {
		bool known = wire.rank >= 0 && wire.rank < root->transport->size;
		return hear_failure(root, known ? wire.rank : root->ranks.rank[place], &wire);
	}
	root->culprit = root->ranks.rank[place];
	MESSAGE_SAY(MESSAGE_TRANSPORT_IMPOSTOR, member->pid, (unsigned)geteuid(), root->culprit,
		    "its message is out of turn, or of another version or job");
	return LS_UNTRUSTED_PEER;
}

/* Call once all that the rank has sent was read: a rank that has ended sends nothing more. */
static ls_status hear_end(struct root *root, int place)
{
	struct member *member = &root->members[place];
	transport_close_fds(&member->pidfd, 1);
	member->ended = true;
	return root->failed ? LS_OK : say_lost(root, place);
}

static bool any_ready(const struct pollfd *polls, int count)
{
	for (int i = 0; i < count; i++)
		if (polls[i].revents)
			return true;
	return false;
}

static void look_for_stopped(struct root *root)
{
	if (!stopped_is_due(&root->looks))
		return;
	for (int place = 1; place < root->ranks.count; place++)
		if (is_awaited(root, place))
			stopped_look(&root->looks, root->ranks.rank[place],
				     root->members[place].pid);
}

/* Waits until something can be received, and receives it; returns LS_OK also if nothing comes for a
 * while. LS_TIMED_OUT: no message has named a missing rank yet. */
static ls_status hear_any(struct root *root, bool accepts)
{
	int size = root->ranks.count;
	struct pollfd polls[POLLS_MAX] = {
		{.fd = accepts ? root->exchange->listen_fd : -1, .events = POLLIN}};
	int connections = accepts ? root->acceptor.count : 0;
	struct pollfd *ends = polls + size + connections;
	ends[0].fd = -1;
	for (int place = 1; place < size; place++) {
		polls[place] = (struct pollfd){.fd = root->members[place].fd, .events = POLLIN};
		ends[place] = (struct pollfd){.fd = root->members[place].pidfd, .events = POLLIN};
	}
	for (int i = 0; i < connections; i++)
		polls[size + i] = (struct pollfd){.fd = root->acceptor.fds[i], .events = POLLIN};
	uint64_t until_ns = stopped_until(&root->looks, root->deadline_ns);
	ls_status status = wait_fds(root->exchange->waiter, polls, 2 * size + connections,
				    first_awaited(root), until_ns);
	look_for_stopped(root);
	if (status == LS_TIMED_OUT && until_ns < root->deadline_ns)
		return LS_OK;
	bool silent = !any_ready(polls, size + connections);
	for (int place = 1; status == LS_OK && place < size; place++)
		if (polls[place].revents)
			status = hear_client(root, place);
	for (int i = 0; status == LS_OK && i < connections; i++)
		if (polls[size + i].revents)
			status = hear_connection(root, i - (connections - root->acceptor.count));
	if (status == LS_OK && polls[0].revents)
		status = accept_connections(root);
	for (int place = 1; silent && status == LS_OK && place < size; place++)
		if (ends[place].revents)
			status = hear_end(root, place);
	return status;
}

static ls_status send_to(struct root *root, int place, const struct transport_handshake *wire,
			 const int *fds, int count)
{
	ls_status status = transport_handshake_send(root->members[place].fd, wire, fds, count,
						    root->ranks.rank[place], root->exchange,
						    root->deadline_ns);
	/* The client may have said why it closed; if not, hear_client says that the client is
	 * lost. */
	return status == LS_PEER_DIED ? LS_OK : status;
}

static ls_status send_chunk(struct root *root, int place)
{
	struct member *member = &root->members[place];
	int fds[HANDSHAKE_FDS_MAX];
	struct transport_handshake wire = transport_handshake_of(root->transport, HANDSHAKE_TABLE);
	int left = root->ranks.count - member->sent * HANDSHAKE_CHUNK;
	wire.first = member->sent * HANDSHAKE_CHUNK;
	wire.count = left < HANDSHAKE_CHUNK ? left : HANDSHAKE_CHUNK;
	for (int i = 0; i < wire.count; i++)
		memcpy(fds + i * TRANSPORT_FDS, root->members[wire.first + i].fds,
		       sizeof root->members[0].fds);
	member->sent++;
	root->under_way++;
	return send_to(root, place, &wire, fds, wire.count * TRANSPORT_FDS);
}

/* ---- the three acts ---- */

static ls_status gather_clients(struct root *root)
{
	ls_status status = LS_OK;
	if (root->short_of_fds)
		return say_limit(root);
	for (int place = 1; place < root->ranks.count; place++)
		if (root->members[place].ended)
			return say_lost(root, place);
	while (status == LS_OK && root->admitted < root->ranks.count - 1)
		status = hear_any(root, true);
	return status;
}

static ls_status deal_table(struct root *root)
{
	for (;;) {
		bool complete = true;
		for (int place = 1; place < root->ranks.count; place++) {
			struct member *member = &root->members[place];
			complete = complete && member->mapped == root->chunks;
			if (member->sent > member->mapped || member->sent == root->chunks ||
			    root->under_way >= HANDSHAKE_WINDOW)
				continue;
			ls_status status = send_chunk(root, place);
			if (status != LS_OK)
				return status;
		}
		if (complete)
			return LS_OK;
		ls_status status = hear_any(root, false);
		if (status != LS_OK)
			return status;
	}
}

static ls_status map_and_go(struct root *root)
{
	ls_status status = transport_peer_open_own(root->transport, root->exchange->arena_fd,
						   root->exchange->trace_fd);
	for (int place = 1; status == LS_OK && place < root->ranks.count; place++) {
		int rank = root->ranks.rank[place];
		status = transport_peer_open(root->transport, rank, root->members[place].fds);
		/* Of a lack of memory here the root is the culprit, as `culprit` says at first. */
		if (status != LS_OK && status != LS_OUT_OF_MEMORY)
			root->culprit = rank;
	}
	if (status != LS_OK)
		return status;
	/* From here on nothing can fail for one rank alone: the group notices a rank that has died
	 * since like any other death. */
	struct transport_handshake wire = transport_handshake_of(root->transport, HANDSHAKE_GO);
	for (int place = 1; place < root->ranks.count; place++)
		transport_handshake_try_send(root->members[place].fd, &wire);
	return LS_OK;
}

/* Sends the answer to all ranks that have come, and for a while to late ones, so that all ranks
 * return the same. Does not wait for the rank at fault, which may never come. */
static void say_farewell(struct root *root, ls_status status)
{
	struct transport_handshake wire = transport_handshake_of(root->transport, HANDSHAKE_FAIL);
	uint64_t until = clock_deadline_ns(FAREWELL_MS);
	wire.rank = root->culprit;
	wire.status = status;
	root->failed = true;
	/* Frees descriptors for the ranks that come now, which must learn of the failure. */
	for (int place = 1; place < root->ranks.count && status == LS_OUT_OF_MEMORY; place++) {
		transport_close_fds(root->members[place].fds, TRANSPORT_FDS);
		transport_close_fds(&root->members[place].pidfd, 1);
	}
	root->deadline_ns =
		until < root->exchange->deadline_ns ? until : root->exchange->deadline_ns;
	do {
		for (int place = 1; place < root->ranks.count; place++) {
			struct member *member = &root->members[place];
			if (member->fd < 0)
				continue;
			transport_handshake_try_send(member->fd, &wire);
			transport_close_fds(&member->fd, 1);
			member->is_told = true;
		}
	} while (status != LS_INTERRUPTED && first_awaited(root) >= 0 &&
		 hear_any(root, true) == LS_OK);
	for (int i = 0; i < root->acceptor.count; i++)
		transport_handshake_try_send(root->acceptor.fds[i], &wire);
}

static uint64_t verdict_deadline(uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();
	if (deadline_ns == CLOCK_NEVER || deadline_ns <= now)
		return deadline_ns;
	uint64_t some = (deadline_ns - now) / 8;
	uint64_t most = ANSWER_MS * UINT64_C(1000000);
	return deadline_ns - (some < most ? some : most);
}

static void root_init(struct root *root, struct transport *transport,
		      const struct transport_exchange *exchange)
{
	*root = (struct root){
		.transport = transport,
		.exchange = exchange,
		.deadline_ns = verdict_deadline(exchange->deadline_ns),
		.ranks = transport_handshake_ranks(transport, exchange),
		.culprit = transport->rank,
	};
	root->acceptor = (struct transport_acceptor){.exchange = exchange, .ranks = &root->ranks};
	root->chunks = (root->ranks.count + HANDSHAKE_CHUNK - 1) / HANDSHAKE_CHUNK;
	for (int place = 0; place < RANKS_HOST_MAX; place++)
		root->members[place] = (struct member){.fd = -1, .pidfd = -1, .fds = {-1, -1, -1}};
	for (int place = 1; place < root->ranks.count; place++) {
		struct member *member = &root->members[place];
		int rank = root->ranks.rank[place];
		member->pid = exchange->pids ? exchange->pids[rank] : 0;
		root->short_of_fds |=
			!transport_handshake_watch(exchange, rank, &member->pidfd, &member->ended);
	}
	root->members[0].fds[TRANSPORT_FD_SEGMENT] = transport->segment_fd;
	root->members[0].fds[TRANSPORT_FD_ARENA] = exchange->arena_fd;
	root->members[0].fds[TRANSPORT_FD_TRACE] = exchange->trace_fd;
}

static void root_fini(struct root *root)
{
	for (int place = 1; place < root->ranks.count; place++) {
		transport_close_fds(root->members[place].fds, TRANSPORT_FDS);
		transport_close_fds(&root->members[place].fd, 1);
		transport_close_fds(&root->members[place].pidfd, 1);
	}
	transport_close_fds(root->acceptor.fds, root->acceptor.count);
}

void transport_root_decline(struct transport *transport, const struct transport_exchange *exchange,
			    ls_status status)
{
	struct root root;
	root_init(&root, transport, exchange);
	say_farewell(&root, status);
	root_fini(&root);
}

ls_status transport_root_run(struct transport *transport, const struct transport_exchange *exchange)
{
	struct root root;
	root_init(&root, transport, exchange);
	ls_status status = gather_clients(&root);
	if (status == LS_OK)
		status = deal_table(&root);
	if (status == LS_OK)
		status = map_and_go(&root);
	if (status == LS_TIMED_OUT)
		status = say_missing(&root);
	if (status != LS_OK)
		say_farewell(&root, status);
	root_fini(&root);
	return status;
}
