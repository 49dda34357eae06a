/* SPDX-License-Identifier: BSD-3-Clause
 * Rank 0's part in connecting the ranks: it gathers all descriptors, deals them out to everybody,
 * and lets go only when all have mapped all. Whoever connects is a guest until a proper hello gives
 * him a seat; guests disturb nobody and are shown out at the end. What the hub finds wrong it tells
 * everybody. */
#include "wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"

enum {
	GUESTS_MAX = 64, /* who has been silent longest makes room for the next */
	ACCEPTS_A_TURN = 64,
	VERDICT_MS = 250, /* the hub gives up this much earlier, so that its verdict comes in time */
	FAREWELL_MS = 1000, /* how long the verdict waits for those who have not come yet */
	POLLS_MAX = 2 * TRANSPORT_SIZE_MAX + GUESTS_MAX,
};

/* A leaf. */
struct seat {
	int fd; /* -1: it has not said hello yet */
	int pid;
	int pidfd;              /* ready once its process has ended, -1: not watched */
	int fds[TRANSPORT_FDS]; /* its own; of the hub's own seat: borrowed */
	int sent, mapped;       /* chunks of the table: mapped <= sent <= mapped + 1 */
	bool told;              /* that it failed; the connection is closed */
	bool ended;             /* its process, before it was told */
};

struct hub {
	struct transport *transport;
	const struct transport_exchange *exchange;
	uint64_t deadline_ns;
	int chunks;    /* in the whole table */
	int seated;    /* leaves with a seat */
	int under_way; /* chunks sent and not mapped yet, over all leaves */
	int blamed;    /* whom to name when it fails */
	bool warned;   /* of strangers */
	bool failed;   /* the reason was said */
	int guest_count;
	int guests[GUESTS_MAX]; /* in the order of their coming */
	struct seat seats[TRANSPORT_SIZE_MAX];
};

/* ---- who is missing ---- */

/* Whether the others wait for this rank. */
static bool is_awaited(const struct hub *hub, int rank)
{
	const struct seat *seat = &hub->seats[rank];
	return !seat->told && !seat->ended && (seat->fd < 0 || seat->mapped < seat->sent);
}

static int first_awaited(const struct hub *hub)
{
	for (int rank = 1; rank < hub->transport->size; rank++)
		if (is_awaited(hub, rank) && !(hub->failed && rank == hub->blamed))
			return rank;
	return -1;
}

static ls_status say_missing(struct hub *hub)
{
	char list[4 * TRANSPORT_SIZE_MAX] = "";
	size_t used = 0;
	for (int rank = 1; rank < hub->transport->size; rank++) {
		if (!is_awaited(hub, rank))
			continue;
		int length =
			snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", rank);
		if (length > 0 && (size_t)length < sizeof(list) - used)
			used += (size_t)length;
	}
	MESSAGE_SAY(MESSAGE_LINK_MISSING, list);
	hub->blamed = first_awaited(hub);
	return LS_RANK_MISSING;
}

static ls_status say_limit(struct hub *hub)
{
	int size = hub->transport->size;
	if (hub->failed)
		return LS_OUT_OF_MEMORY;
	hub->blamed = 0;
	MESSAGE_SAY(MESSAGE_LINK_LIMIT, first_awaited(hub), size,
		    (size + WIRE_CHUNK) * TRANSPORT_FDS);
	return LS_OUT_OF_MEMORY;
}

static ls_status say_lost(struct hub *hub, int rank)
{
	MESSAGE_SAY(MESSAGE_LINK_LOST, rank, hub->seats[rank].pid);
	hub->blamed = rank;
	return LS_PEER_DIED;
}

/* ---- guests ---- */

static void turn_away(struct hub *hub, int fd, const char *why)
{
	int pid;
	unsigned uid;
	transport_wire_same_user(fd, &pid, &uid);
	if (!hub->warned)
		MESSAGE_SAY(MESSAGE_LINK_UNTRUSTED, pid, uid, why);
	hub->warned = true;
	close(fd);
}

static void forget_guest(struct hub *hub, int index)
{
	hub->guest_count--;
	memmove(&hub->guests[index], &hub->guests[index + 1],
		(size_t)(hub->guest_count - index) * sizeof(hub->guests[0]));
}

static ls_status accept_guests(struct hub *hub)
{
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int fd = accept4(hub->exchange->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return LS_OK;
		if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
			continue;
		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			return say_limit(hub);
		if (fd < 0) {
			int error = errno;
			MESSAGE_SAY(MESSAGE_LINK_LISTEN, "accept4", strerror(error));
			return transport_errno_status(error);
		}
		int pid;
		unsigned uid;
		if (!transport_wire_same_user(fd, &pid, &uid)) {
			turn_away(hub, fd, "it runs as another user");
			continue;
		}
		if (hub->guest_count == GUESTS_MAX) {
			turn_away(hub, hub->guests[0], "it said nothing");
			forget_guest(hub, 0);
		}
		hub->guests[hub->guest_count++] = fd;
	}
	return LS_OK;
}

static bool is_due(const struct hub *hub, const struct transport_wire *wire, int fd_count)
{
	int size = hub->transport->size;
	return wire->kind == WIRE_HELLO && wire->size == size && wire->rank > 0 &&
	       wire->rank < size && hub->seats[wire->rank].fd < 0 && !hub->seats[wire->rank].told &&
	       fd_count == TRANSPORT_FDS;
}

/* Seats the guest or turns him away. */
static ls_status hear_guest(struct hub *hub, int index)
{
	struct transport_wire wire;
	int fds[TRANSPORT_FDS];
	int count;
	int fd = hub->guests[index];
	switch (transport_wire_receive(fd, hub->transport->job, &wire, fds, TRANSPORT_FDS, &count)) {
	case WIRE_AGAIN:
		return LS_OK;
	case WIRE_EXHAUSTED:
		return say_limit(hub);
	case WIRE_MESSAGE:
		if (is_due(hub, &wire, count))
			break;
		transport_close_fds(fds, count);
		/* fall through */
	case WIRE_END:
	case WIRE_NONSENSE:
	default:
		turn_away(hub, fd, "it did not introduce itself as a rank that is missing");
		forget_guest(hub, index);
		return LS_OK;
	}
	struct seat *seat = &hub->seats[wire.rank];
	seat->fd = fd;
	seat->pid = wire.pid;
	memcpy(seat->fds, fds, sizeof(fds));
	hub->seated++;
	forget_guest(hub, index);
	return LS_OK;
}

/* ---- leaves ---- */

static ls_status hear_leaf(struct hub *hub, int rank)
{
	struct seat *seat = &hub->seats[rank];
	struct transport_wire wire;
	int count;
	enum transport_wire_result result =
		transport_wire_receive(seat->fd, hub->transport->job, &wire, NULL, 0, &count);
	if (result == WIRE_AGAIN)
		return LS_OK;
	if (result == WIRE_END)
		return say_lost(hub, rank);
	if (result == WIRE_MESSAGE && wire.kind == WIRE_MAPPED && seat->mapped < seat->sent &&
	    wire.first == seat->mapped * WIRE_CHUNK) {
		seat->mapped++;
		hub->under_way--;
		return LS_OK;
	}
	if (result == WIRE_MESSAGE && wire.kind == WIRE_FAIL) {
		bool known = wire.rank >= 0 && wire.rank < hub->transport->size;
		bool valid = transport_is_status(wire.status) && wire.status != LS_OK;
		ls_status status = valid ? (ls_status)wire.status : LS_INTERNAL;
		hub->blamed = known ? wire.rank : rank;
		MESSAGE_SAY(MESSAGE_LINK_FAILED, hub->blamed, ls_status_text(status));
		return status;
	}
	MESSAGE_SAY(MESSAGE_LINK_IMPOSTOR, seat->pid, (unsigned)geteuid(), rank,
		    "its message is out of turn, or of another version or job");
	hub->blamed = rank;
	return LS_UNTRUSTED_PEER;
}

/* A rank that has ended will say nothing more, and all that it said has been heard. */
static ls_status hear_end(struct hub *hub, int rank)
{
	struct seat *seat = &hub->seats[rank];
	transport_close_fds(&seat->pidfd, 1);
	seat->ended = true;
	return hub->failed ? LS_OK : say_lost(hub, rank);
}

static bool any_ready(const struct pollfd *polls, int count)
{
	for (int i = 0; i < count; i++)
		if (polls[i].revents)
			return true;
	return false;
}

/* Waits until something can be received, and receives it. LS_TIMED_OUT: nobody was named yet. */
static ls_status hear(struct hub *hub, bool open_door)
{
	int size = hub->transport->size;
	struct pollfd polls[POLLS_MAX] = {
		{.fd = open_door ? hub->exchange->listen_fd : -1, .events = POLLIN}};
	int guests = open_door ? hub->guest_count : 0;
	struct pollfd *ends = polls + size + guests;
	ends[0].fd = -1;
	for (int rank = 1; rank < size; rank++) {
		polls[rank] = (struct pollfd){.fd = hub->seats[rank].fd, .events = POLLIN};
		ends[rank] = (struct pollfd){.fd = hub->seats[rank].pidfd, .events = POLLIN};
	}
	for (int i = 0; i < guests; i++)
		polls[size + i] = (struct pollfd){.fd = hub->guests[i], .events = POLLIN};
	ls_status status = wait_fds(hub->exchange->waiter, polls, 2 * size + guests,
				    first_awaited(hub), hub->deadline_ns);
	bool silent = !any_ready(polls, size + guests);
	for (int rank = 1; status == LS_OK && rank < size; rank++)
		if (polls[rank].revents)
			status = hear_leaf(hub, rank);
	for (int i = 0; status == LS_OK && i < guests; i++)
		if (polls[size + i].revents)
			status = hear_guest(hub, i - (guests - hub->guest_count));
	if (status == LS_OK && polls[0].revents)
		status = accept_guests(hub);
	for (int rank = 1; silent && status == LS_OK && rank < size; rank++)
		if (ends[rank].revents)
			status = hear_end(hub, rank);
	return status;
}

static ls_status send_to(struct hub *hub, int rank, const struct transport_wire *wire,
			 const int *fds, int count)
{
	ls_status status = transport_wire_send(hub->seats[rank].fd, wire, fds, count, rank,
					       hub->exchange, hub->deadline_ns);
	/* It may have said why it closed; if not, hear_leaf says that it is lost. */
	return status == LS_PEER_DIED ? LS_OK : status;
}

static ls_status send_chunk(struct hub *hub, int rank)
{
	struct seat *seat = &hub->seats[rank];
	int fds[WIRE_FDS_MAX];
	struct transport_wire wire = transport_wire_of(hub->transport, WIRE_TABLE);
	int left = hub->transport->size - seat->sent * WIRE_CHUNK;
	wire.first = seat->sent * WIRE_CHUNK;
	wire.count = left < WIRE_CHUNK ? left : WIRE_CHUNK;
	for (int i = 0; i < wire.count; i++)
		memcpy(fds + i * TRANSPORT_FDS, hub->seats[wire.first + i].fds,
		       sizeof(hub->seats[0].fds));
	seat->sent++;
	hub->under_way++;
	return send_to(hub, rank, &wire, fds, wire.count * TRANSPORT_FDS);
}

/* ---- the three acts ---- */

static ls_status gather(struct hub *hub)
{
	ls_status status = LS_OK;
	for (int rank = 1; rank < hub->transport->size; rank++)
		if (hub->seats[rank].ended)
			return say_lost(hub, rank);
	while (status == LS_OK && hub->seated < hub->transport->size - 1)
		status = hear(hub, true);
	return status;
}

static ls_status deal(struct hub *hub)
{
	for (;;) {
		bool complete = true;
		for (int rank = 1; rank < hub->transport->size; rank++) {
			struct seat *seat = &hub->seats[rank];
			complete = complete && seat->mapped == hub->chunks;
			if (seat->sent > seat->mapped || seat->sent == hub->chunks ||
			    hub->under_way >= WIRE_WINDOW)
				continue;
			ls_status status = send_chunk(hub, rank);
			if (status != LS_OK)
				return status;
		}
		if (complete)
			return LS_OK;
		ls_status status = hear(hub, false);
		if (status != LS_OK)
			return status;
	}
}

static ls_status map_and_go(struct hub *hub)
{
	ls_status status = transport_link_open_own(hub->transport, hub->exchange->arena_fd,
						   hub->exchange->trace_fd);
	for (int rank = 1; status == LS_OK && rank < hub->transport->size; rank++) {
		hub->blamed = rank;
		status = transport_link_open(hub->transport, rank, hub->seats[rank].fds);
	}
	if (status != LS_OK)
		return status;
	/* From here on nothing can fail for one rank alone: one that has died since is found by the
	 * group like any other death. */
	struct transport_wire wire = transport_wire_of(hub->transport, WIRE_GO);
	for (int rank = 1; rank < hub->transport->size; rank++)
		transport_wire_try_send(hub->seats[rank].fd, &wire);
	return LS_OK;
}

/* Tells the verdict to all who are here, and for a while to those who come later, so that all ranks
 * return the same. The one to blame is not waited for: it may never come. */
static void say_farewell(struct hub *hub, ls_status status)
{
	struct transport_wire wire = transport_wire_of(hub->transport, WIRE_FAIL);
	uint64_t until = clock_deadline_ns(FAREWELL_MS);
	wire.rank = hub->blamed;
	wire.status = status;
	hub->failed = true;
	hub->deadline_ns = until < hub->exchange->deadline_ns ? until : hub->exchange->deadline_ns;
	do {
		for (int rank = 1; rank < hub->transport->size; rank++) {
			struct seat *seat = &hub->seats[rank];
			if (seat->fd < 0)
				continue;
			transport_wire_try_send(seat->fd, &wire);
			transport_close_fds(&seat->fd, 1);
			seat->told = true;
		}
	} while (status != LS_INTERRUPTED && first_awaited(hub) >= 0 && hear(hub, true) == LS_OK);
	for (int i = 0; i < hub->guest_count; i++)
		transport_wire_try_send(hub->guests[i], &wire);
}

static uint64_t earlier(uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();
	if (deadline_ns == CLOCK_NEVER || deadline_ns <= now)
		return deadline_ns;
	uint64_t some = (deadline_ns - now) / 8;
	uint64_t most = VERDICT_MS * UINT64_C(1000000);
	return deadline_ns - (some < most ? some : most);
}

ls_status transport_hub_run(struct transport *transport, const struct transport_exchange *exchange)
{
	struct hub hub = {
		.transport = transport,
		.exchange = exchange,
		.deadline_ns = earlier(exchange->deadline_ns),
		.chunks = (transport->size + WIRE_CHUNK - 1) / WIRE_CHUNK,
	};
	for (int rank = 0; rank < TRANSPORT_SIZE_MAX; rank++)
		hub.seats[rank] = (struct seat){.fd = -1, .pidfd = -1, .fds = {-1, -1, -1}};
	for (int rank = 1; rank < transport->size; rank++) {
		struct seat *seat = &hub.seats[rank];
		seat->pid = exchange->pids ? exchange->pids[rank] : 0;
		seat->pidfd = transport_wire_watch(exchange, rank, &seat->ended);
	}
	hub.seats[0].fds[TRANSPORT_FD_SEGMENT] = transport->segment_fd;
	hub.seats[0].fds[TRANSPORT_FD_ARENA] = exchange->arena_fd;
	hub.seats[0].fds[TRANSPORT_FD_TRACE] = exchange->trace_fd;
	ls_status status = gather(&hub);
	if (status == LS_OK)
		status = deal(&hub);
	if (status == LS_OK)
		status = map_and_go(&hub);
	if (status == LS_TIMED_OUT)
		status = say_missing(&hub);
	if (status != LS_OK)
		say_farewell(&hub, status);
	for (int rank = 1; rank < transport->size; rank++) {
		transport_close_fds(hub.seats[rank].fds, TRANSPORT_FDS);
		transport_close_fds(&hub.seats[rank].fd, 1);
		transport_close_fds(&hub.seats[rank].pidfd, 1);
	}
	transport_close_fds(hub.guests, hub.guest_count);
	return status;
}
