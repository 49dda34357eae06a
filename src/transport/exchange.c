/* SPDX-License-Identifier: BSD-3-Clause
 * How the ranks of a host map each other's memory: a star through the root (root.c), to which every
 * other rank, a client, connects. The protocol is in handshake.h. Afterwards no connection is left;
 * the ranks notice deaths by other means. */
#include "transport/handshake.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/stopped.h"

/* False if the name does not fit. */
static bool fill_address(const char *name, struct sockaddr_un *out, socklen_t *bytes)
{
	size_t length = strlen(name);
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (length == 0 || length > sizeof out->sun_path - 1)
		return false;
	memcpy(out->sun_path + 1, name, length); /* the leading NUL makes it abstract */
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	return true;
}

/* ---- listening ---- */

/* -1 on failure, with errno, and *step names the call. */
static int listen_at(const char *name, const char **step)
{
	struct sockaddr_un address;
	socklen_t bytes;
	*step = "bind";
	if (!fill_address(name, &address, &bytes)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*step = "socket";
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	*step = "bind";
	int rc = bind(fd, (const struct sockaddr *)&address, bytes);
	if (rc == 0) {
		*step = "listen";
		rc = listen(fd, SOMAXCONN);
	}
	if (rc != 0) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

ls_status transport_listen(char *address, size_t bytes, int *listen_fd)
{
	uint64_t name[2];
	const char *step = "getrandom";
	*listen_fd = -1;
	int length = -1;
	if (getrandom(name, sizeof name, 0) == (ssize_t)sizeof name) {
		length = snprintf(address, bytes, "lockstep-%016llx%016llx",
				  (unsigned long long)name[0], (unsigned long long)name[1]);
		step = "name";
		errno = ENAMETOOLONG;
	}
	if (length >= 0 && (size_t)length < bytes)
		*listen_fd = listen_at(address, &step);
	if (*listen_fd >= 0)
		return LS_OK;
	int error = errno;
	if (bytes > 0)
		address[0] = '\0';
	MESSAGE_SAY(MESSAGE_TRANSPORT_LISTEN, step, OPEN_LIMIT_TEXT(error));
	return transport_errno_status(error);
}

/* ---- the client ---- */

struct client {
	struct transport *transport;
	const struct transport_exchange *exchange;
	struct transport_handshake_ranks ranks; /* by place */
	int root;                               /* its world rank */
	int fd;                                 /* to the root */
	int pidfd;   /* ready once the root's process has ended, -1: not watched */
	int mapped;  /* places [0, mapped) are mapped */
	int culprit; /* the rank that FAIL names if this rank fails */
	struct stopped_looks looks;
	bool root_knows; /* the root needs no FAIL: it sent one itself, or is gone */
};

/* -1 on failure, with errno. */
static int try_connect(const char *name)
{
	struct sockaddr_un address;
	socklen_t bytes;
	if (!fill_address(name, &address, &bytes)) {
		errno = EINVAL;
		return -1;
	}
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, bytes) != 0) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

static ls_status say_late(const struct client *client)
{
	char rank[16];
	snprintf(rank, sizeof rank, "%d", client->root);
	MESSAGE_SAY(MESSAGE_TRANSPORT_MISSING, rank);
	return LS_RANK_MISSING;
}

static ls_status say_limit(const struct client *client)
{
	MESSAGE_SAY(MESSAGE_TRANSPORT_LIMIT, client->transport->rank,
		    (unsigned long long)open_limit_get(), client->ranks.count,
		    (client->ranks.count + HANDSHAKE_CHUNK) * TRANSPORT_FDS);
	return LS_OUT_OF_MEMORY;
}

static ls_status client_connect(struct client *client)
{
	const struct transport_exchange *exchange = client->exchange;
	while ((client->fd = try_connect(exchange->address)) < 0) {
		if (errno != EAGAIN && errno != EINTR) {
			int error = errno, root = client->root;
			if (error == EMFILE)
				return say_limit(client);
			if (error != ECONNREFUSED) {
				MESSAGE_SAY(MESSAGE_TRANSPORT_SYSTEM, root, "connect",
					    strerror(error));
				return transport_errno_status(error);
			}
			/* It listened when the ranks met. */
			MESSAGE_SAY(MESSAGE_TRANSPORT_LOST, root,
				    exchange->pids ? exchange->pids[root] : 0);
			return LS_NO_MASTER;
		}
		/* The queue of connections is full, and there is nothing to poll for. */
		if (clock_now_ns() >= exchange->deadline_ns)
			return say_late(client);
		ls_status status = wait_fds(exchange->waiter, NULL, 0, client->root,
					    clock_deadline_ns(HANDSHAKE_RETRY_MS));
		if (status != LS_TIMED_OUT && status != LS_OK)
			return status;
	}
	int pid;
	unsigned uid;
	if (!transport_handshake_same_user(client->fd, &pid, &uid)) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_IMPOSTOR, pid, uid, client->root,
			    "it runs as another user");
		transport_close_fds(&client->fd, 1);
		return LS_UNTRUSTED_PEER;
	}
	return LS_OK;
}

/* The root may be gone while its last message is still to be read, so the end of the root is no
 * failure here. */
static ls_status client_send(struct client *client, const struct transport_handshake *wire,
			     const int *fds, int fd_count)
{
	ls_status status = transport_handshake_send(client->fd, wire, fds, fd_count, client->root,
						    client->exchange, client->exchange->deadline_ns);
	if (status == LS_TIMED_OUT)
		return say_late(client);
	return status == LS_PEER_DIED ? LS_OK : status;
}

static ls_status client_hello(struct client *client)
{
	int fds[TRANSPORT_FDS];
	fds[TRANSPORT_FD_SEGMENT] = client->transport->segment_fd;
	fds[TRANSPORT_FD_ARENA] = client->exchange->arena_fd;
	fds[TRANSPORT_FD_TRACE] = client->exchange->trace_fd;
	struct transport_handshake wire = transport_handshake_of(client->transport, HANDSHAKE_HELLO);
	return client_send(client, &wire, fds, TRANSPORT_FDS);
}

static ls_status say_impostor(const struct client *client, const char *why)
{
	int pid;
	unsigned uid;
	transport_handshake_same_user(client->fd, &pid, &uid);
	MESSAGE_SAY(MESSAGE_TRANSPORT_IMPOSTOR, pid, uid, client->root, why);
	return LS_UNTRUSTED_PEER;
}

/* Takes over the descriptors. */
static ls_status client_table(struct client *client, const struct transport_handshake *wire,
			      int *fds, int fd_count)
{
	struct transport *transport = client->transport;
	int left = client->ranks.count - client->mapped;
	int count = left < HANDSHAKE_CHUNK ? left : HANDSHAKE_CHUNK;
	if (count == 0 || wire->first != client->mapped || wire->count != count ||
	    fd_count != count * TRANSPORT_FDS) {
		transport_close_fds(fds, fd_count);
		return say_impostor(client, "its table of ranks is nonsense");
	}
	ls_status status = LS_OK;
	for (int i = 0; i < count; i++) {
		int rank = client->ranks.rank[client->mapped + i];
		int *here = fds + i * TRANSPORT_FDS;
		if (rank == transport->rank || status != LS_OK) {
			transport_close_fds(here, TRANSPORT_FDS);
			continue;
		}
		status = transport_peer_open(transport, rank, here);
		/* Without memory nothing can be mapped here, whatever that rank has sent. */
		if (status != LS_OK && status != LS_OUT_OF_MEMORY)
			client->culprit = rank;
	}
	if (status != LS_OK)
		return status;
	struct transport_handshake answer = transport_handshake_of(transport, HANDSHAKE_MAPPED);
	answer.first = client->mapped;
	answer.count = count;
	client->mapped += count;
	return client_send(client, &answer, NULL, 0);
}

static ls_status client_failed(struct client *client, const struct transport_handshake *wire)
{
	bool known = wire->rank >= 0 && wire->rank < client->transport->size;
	bool valid = transport_is_status(wire->status) && wire->status != LS_OK;
	ls_status status = valid ? (ls_status)wire->status : LS_INTERNAL;
	client->root_knows = true;
	MESSAGE_SAY(MESSAGE_TRANSPORT_FAILED, known ? wire->rank : client->root,
		    ls_status_text(status));
	return status;
}

static ls_status say_lost(struct client *client)
{
	int pid;
	unsigned uid;
	transport_handshake_same_user(client->fd, &pid, &uid);
	MESSAGE_SAY(MESSAGE_TRANSPORT_LOST, client->root, pid);
	client->root_knows = true;
	return LS_PEER_DIED;
}

/* Handles one message of the root; *done: it was GO. */
static ls_status client_step(struct client *client, bool *done)
{
	struct transport_handshake wire;
	int fds[HANDSHAKE_FDS_MAX];
	int count;
	struct pollfd polls[] = {{.fd = client->fd, .events = POLLIN},
				 {.fd = client->pidfd, .events = POLLIN}};
	uint64_t limit_ns = client->exchange->deadline_ns;
	uint64_t grace_ns = HANDSHAKE_GRACE_MS * UINT64_C(1000000);
	limit_ns = limit_ns < CLOCK_NEVER - grace_ns ? limit_ns + grace_ns : CLOCK_NEVER;
	uint64_t until_ns = stopped_until(&client->looks, limit_ns);
	ls_status status = wait_fds(client->exchange->waiter, polls, 2, client->root, until_ns);
	/* One report is enough. */
	if (stopped_is_due(&client->looks) && client->ranks.rank[1] == client->transport->rank &&
	    client->exchange->pids)
		stopped_look(&client->looks, client->root, client->exchange->pids[client->root]);
	if (status == LS_TIMED_OUT)
		return until_ns < limit_ns ? LS_OK : say_late(client);
	if (status != LS_OK)
		return status;
	if (!polls[0].revents)
		/* a process that the root has forked keeps the root's sockets open */
		return say_lost(client);
	switch (transport_handshake_receive(client->fd, client->transport->job, &wire, fds,
					    HANDSHAKE_FDS_MAX, &count)) {
	case HANDSHAKE_AGAIN:
		return LS_OK;
	case HANDSHAKE_MESSAGE:
		break;
	case HANDSHAKE_EXHAUSTED:
		return say_limit(client);
	case HANDSHAKE_END:
		return say_lost(client);
	case HANDSHAKE_NONSENSE:
	default:
		return say_impostor(client, "what it says is not of this version and job");
	}
	if (wire.kind == HANDSHAKE_TABLE)
		return client_table(client, &wire, fds, count);
	transport_close_fds(fds, count);
	if (wire.kind == HANDSHAKE_FAIL)
		return client_failed(client, &wire);
	*done = wire.kind == HANDSHAKE_GO && client->mapped == client->ranks.count;
	return *done ? LS_OK : say_impostor(client, "it sent a message out of turn");
}

static ls_status client_run(struct transport *transport, const struct transport_exchange *exchange)
{
	struct client client = {
		.transport = transport,
		.exchange = exchange,
		.ranks = transport_handshake_ranks(transport, exchange),
		.fd = -1,
		.culprit = transport->rank,
	};
	bool done = false, ended;
	client.root = client.ranks.rank[0];
	ls_status status = LS_OK;
	if (!transport_handshake_watch(exchange, client.root, &client.pidfd, &ended))
		status = say_limit(&client);
	if (status == LS_OK)
		status = client_connect(&client);
	if (status == LS_OK)
		status = client_hello(&client);
	if (status == LS_OK)
		status = transport_peer_open_own(transport, exchange->arena_fd, exchange->trace_fd);
	while (status == LS_OK && !done)
		status = client_step(&client, &done);
	if (status != LS_OK && client.fd >= 0 && !client.root_knows) {
		struct transport_handshake wire = transport_handshake_of(transport, HANDSHAKE_FAIL);
		wire.rank = client.culprit;
		wire.status = status;
		transport_handshake_try_send(client.fd, &wire);
	}
	transport_close_fds(&client.fd, 1);
	transport_close_fds(&client.pidfd, 1);
	return status;
}

void transport_decline(const struct transport_exchange *exchange, uint64_t job, int rank, int size,
		       ls_status status)
{
	struct transport transport = {
		.job = job, .rank = rank, .size = size, .pid = getpid(), .segment_fd = -1};
	struct transport_handshake_ranks ranks = transport_handshake_ranks(&transport, exchange);
	if (ranks.count == 1)
		return;
	if (rank == ranks.rank[0]) {
		transport_root_decline(&transport, exchange, status);
		return;
	}
	struct transport_handshake wire = transport_handshake_of(&transport, HANDSHAKE_FAIL);
	wire.status = status;
	int fd = try_connect(exchange->address); /* without a root nobody waits */
	if (fd >= 0)
		transport_handshake_try_send(fd, &wire);
	transport_close_fds(&fd, 1);
}

ls_status transport_connect(struct transport *transport, const struct transport_exchange *exchange)
{
	ls_status status;
	if (!exchange->no_cma)
		transport_allow_tracer(exchange->launcher);
	struct transport_handshake_ranks ranks = transport_handshake_ranks(transport, exchange);
	if (ranks.count == 1)
		status = transport_peer_open_own(transport, exchange->arena_fd, exchange->trace_fd);
	else if (transport->rank == ranks.rank[0])
		status = transport_root_run(transport, exchange);
	else
		status = client_run(transport, exchange);
	if (status == LS_OK)
		transport_probe(transport, !exchange->no_cma);
	return status;
}
