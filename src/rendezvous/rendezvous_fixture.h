/* SPDX-License-Identifier: BSD-3-Clause
 * For this room's tests: ranks as threads, each with a waiter of its own; places that do not
 * collide with those of other tests; and raw connections, to say what no Lockstep would say. */
#ifndef RENDEZVOUS_RENDEZVOUS_FIXTURE_H
#define RENDEZVOUS_RENDEZVOUS_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/seqlock.h"
#include "rendezvous/meet.h"

enum {
	FIXTURE_LONG_MS = 90000, /* what fails at once must not take as long */
	FIXTURE_QUICK_MS = 45000,
	FIXTURE_SHORT_MS = 300, /* for what ends at its deadline */
	FIXTURE_COME_MS = 1000, /* the same, where all must have come before, on a busy machine */
/* The same, for RANKS_WORLD_MAX ranks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	FIXTURE_MANY_COME_MS = 12000,
#else
	FIXTURE_MANY_COME_MS = 4000,
#endif
};

/* One rank. The first four are for the test to change before fixture_start. */
struct fixture_rank {
	struct rendezvous_place place;
	struct rendezvous_self self;
	uint64_t limit_ms;
	bool absent;
	void (*second)(struct fixture_rank *); /* what it does once it has met; NULL: it leaves */

	pthread_t thread;
	struct wait_table wait_table;
	struct wait_bell bell;
	struct waiter waiter;
	_Atomic bool done;
	ls_status status;
	struct rendezvous_table table;
	struct rendezvous_meeting *meeting;
	int control;
	uint64_t took_ms;
	char text[RENDEZVOUS_TEXT_BYTES];
};

struct fixture {
	int size;
	struct fixture_rank *ranks;
};

static inline uint64_t fixture_random(void)
{
	uint64_t number = 0;
	assert_int_equal(getrandom(&number, sizeof number, 0), sizeof number);
	return number;
}

/* True if the port is this process's own from now on: no other test process draws it, as the name
 * that stands for it is held until the process ends; and no socket is left at it, not even a closed
 * connection's, which would keep a socket without SO_REUSEADDR out for a minute. */
static inline bool fixture_claim_port(uint16_t port)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "lockstep-test-port-%d",
			      port);
	int claim = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(claim >= 0 && fd >= 0);
	bool mine = bind(claim, (struct sockaddr *)&name,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0 &&
		    bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
	close(fd);
	if (!mine)
		close(claim);
	return mine;
}

/* A place nobody uses: for TCP a port outside the range that connections are given by the
 * system. */
static inline struct rendezvous_place fixture_place(bool tcp, int world_size)
{
	struct rendezvous_place place = {.tcp = tcp, .world_size = world_size}, bound;
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	for (int tries = 0; tries < 1000; tries++) {
		int fd;
		place.port = tcp ? (uint16_t)(10000 + fixture_random() % 20000) : 0;
		if (tcp && !fixture_claim_port(place.port))
			continue;
		if (rendezvous_listen(&place, &bound, &fd, text) == LS_OK) {
			rendezvous_close_fd(&fd);
			return bound;
		}
	}
	fail_msg("no free place: %s", text);
	return place;
}

static inline struct fixture fixture_new(const struct rendezvous_place *place, bool launcher)
{
	struct fixture fixture = {.size = place->world_size};

	fixture.ranks = calloc((size_t)fixture.size, sizeof *fixture.ranks);
	assert_non_null(fixture.ranks);
	for (int i = 0; i < fixture.size; i++) {
		struct fixture_rank *rank = &fixture.ranks[i];
		rank->place = *place;
		rank->place.rank = i;
		rank->place.serve = i == 0 && !launcher;
		rank->limit_ms = FIXTURE_LONG_MS;
		rank->control = -2;
		rank->self.trace_fd = -1;
		rank->self.me.pid = getpid();
		rank->self.me.uid = geteuid();
		snprintf(rank->self.me.host, sizeof rank->self.me.host, "host");
		snprintf(rank->self.me.address, sizeof rank->self.me.address, "address-%d", i);
		rank->waiter = (struct waiter){
			.wait_table = &rank->wait_table, .bell = &rank->bell, .look_fd = -1};
	}
	return fixture;
}

static inline void *fixture_thread(void *argument)
{
	struct fixture_rank *rank = argument;
	uint64_t began_ns = clock_now_ns();

	if (wait_open(&rank->waiter) != LS_OK)
		abort();
	rank->status = rendezvous_meet(&rank->place, &rank->self, &rank->waiter,
				       clock_deadline_ns(rank->limit_ms), &rank->table,
				       &rank->meeting, rank->text);
	if (rank->status == LS_OK && rank->second)
		rank->second(rank);
	rendezvous_leave(rank->meeting, &rank->control);
	wait_close(&rank->waiter);
	rank->took_ms = (clock_now_ns() - began_ns) / 1000000;
	atomic_store(&rank->done, true);
	return NULL;
}

static inline void fixture_start_rank(struct fixture_rank *rank)
{
	assert_int_equal(pthread_create(&rank->thread, NULL, fixture_thread, rank), 0);
}

static inline void fixture_start(struct fixture *fixture)
{
	for (int i = 0; i < fixture->size; i++)
		if (!fixture->ranks[i].absent)
			fixture_start_rank(&fixture->ranks[i]);
}

static inline void fixture_wait(struct fixture *fixture)
{
	for (int i = 0; i < fixture->size; i++)
		if (!fixture->ranks[i].absent)
			wait_join(fixture->ranks[i].thread);
}

static inline void fixture_free(struct fixture *fixture)
{
	for (int i = 0; i < fixture->size; i++)
		if (fixture->ranks[i].control >= 0)
			rendezvous_close_fd(&fixture->ranks[i].control);
	free(fixture->ranks);
}

/* One rank failed as it should, and its text has all the words, which end with NULL. */
static inline void fixture_check_rank(const struct fixture_rank *rank, ls_status status,
				      const char *const *words)
{
	if (rank->status != status)
		fail_msg("rank %d: %s instead of %s: %s", rank->place.rank,
			 ls_status_name(rank->status), ls_status_name(status), rank->text);
	for (; *words; words++)
		if (!strstr(rank->text, *words))
			fail_msg("rank %d: no \"%s\" in: %s", rank->place.rank, *words, rank->text);
	assert_int_equal(rank->control, -1);
	assert_int_equal(rank->table.size, 0);
	assert_in_range(strlen(rank->text), 1, RENDEZVOUS_TEXT_BYTES - 2);
}

#define FIXTURE_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* All ranks that came failed with the same error, within the limit. */
static inline void fixture_check_failed(const struct fixture *fixture, ls_status status,
					uint64_t limit_ms, const char *const *words)
{
	for (int i = 0; i < fixture->size; i++) {
		if (fixture->ranks[i].absent)
			continue;
		fixture_check_rank(&fixture->ranks[i], status, words);
		assert_in_range(fixture->ranks[i].took_ms, 0, limit_ms);
	}
}

/* All met: one job, one table, each rank where it says it is. */
static inline void fixture_check_met(const struct fixture *fixture, bool launcher)
{
	const struct fixture_rank *first = &fixture->ranks[0];

	for (int i = 0; i < fixture->size; i++) {
		const struct fixture_rank *rank = &fixture->ranks[i];
		if (rank->status != LS_OK)
			fail_msg("rank %d: %s", i, rank->text);
		assert_int_equal(rank->table.size, fixture->size);
		assert_true(rank->table.job != 0);
		assert_memory_equal(&rank->table, &first->table, sizeof rank->table);
		assert_memory_equal(&rank->table.ranks[i], &rank->self.me, sizeof rank->self.me);
		bool holds = i == 0 && rank->place.tcp && fixture->size > 1;
		if (launcher || holds)
			assert_true(rank->control >= 0);
		else
			assert_int_equal(rank->control, -1);
		assert_string_equal(rank->text, "");
	}
}

/* A look at what the rank's only thread waits for, as any other process could take it. */
static inline void fixture_look(struct fixture_rank *rank, struct wait_slot_body *out)
{
	struct wait_slot *slot = &rank->wait_table.slots[0];
	uint32_t seen;

	assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(1)), LS_TIMED_OUT);
	if (!seqlock_read(&slot->epoch, out, &slot->body, sizeof *out, &seen))
		out->state = WAIT_UNUSED;
}

/* ---- raw connections ---- */

/* Waits for `events`; false when nothing happened in FIXTURE_QUICK_MS. */
static inline bool fixture_ready(int fd, short events)
{
	struct pollfd fds = {.fd = fd, .events = events};
	uint64_t until_ns = clock_deadline_ns(FIXTURE_QUICK_MS);
	ls_status status;

	do
		status = wait_fds(NULL, &fds, 1, -1, until_ns);
	while (status == LS_INTERRUPTED);
	return status == LS_OK;
}

/* Connects, and tries again until somebody listens. -1: nobody did. */
static inline int fixture_connect(const struct rendezvous_place *place)
{
	uint64_t until_ns = clock_deadline_ns(FIXTURE_QUICK_MS);

	while (clock_now_ns() < until_ns) {
		int fd, error = rendezvous_dial(place, &fd);
		if (error == EINPROGRESS && fixture_ready(fd, POLLOUT))
			error = rendezvous_dialled(place, fd);
		if (error == 0)
			return fd;
		rendezvous_close_fd(&fd);
		if (wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)) == LS_SYSTEM)
			break;
	}
	return -1;
}

/* Reads `bytes`, or less if the connection ends before. */
static inline size_t fixture_read(int fd, void *to, size_t bytes)
{
	size_t done = 0;

	while (done < bytes && fixture_ready(fd, POLLIN)) {
		int none = -1;
		ssize_t got = rendezvous_receive(fd, (char *)to + done, bytes - done, &none);
		rendezvous_close_fd(&none);
		if (got <= 0 && !(got < 0 && (errno == EAGAIN || errno == EINTR)))
			break;
		done += got > 0 ? (size_t)got : 0;
	}
	return done;
}

/* Steps the server as a launcher's event loop would, until it is complete or has failed. */
static inline ls_status fixture_run_server(struct rendezvous_server *server)
{
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	ls_status status;

	for (;;) {
		status = rendezvous_server_step(server);
		if (status != LS_OK || rendezvous_server_complete(server))
			return status;
		int count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX);
		uint64_t until_ns = rendezvous_server_deadline_ns(server);
		assert_true(until_ns < clock_deadline_ns(FIXTURE_LONG_MS + FIXTURE_QUICK_MS));
		ls_status waited = wait_fds(NULL, fds, count, -1, until_ns);
		assert_true(waited == LS_OK || waited == LS_TIMED_OUT);
	}
}

/* Takes one connection; -1: nobody came. */
static inline int fixture_accept(int listen_fd)
{
	if (!fixture_ready(listen_fd, POLLIN))
		return -1;
	return accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* A hello as rank `rank` of place->world_size would say it. */
static inline struct wire_hello fixture_hello(const struct rendezvous_place *place, int rank)
{
	struct rendezvous_place mine = *place;
	struct rendezvous_self self = {.me = {.pid = getpid(), .uid = geteuid()}, .trace_fd = -1};
	struct wire_hello hello;

	mine.rank = rank;
	rendezvous_hello_fill(&hello, &mine, &self, FIXTURE_LONG_MS, 0);
	return hello;
}

/* Says `bytes` at the place; the connection. */
static inline int fixture_say(const struct rendezvous_place *place, const void *from, size_t bytes)
{
	int fd = fixture_connect(place);

	assert_true(fd >= 0);
	assert_int_equal(rendezvous_send(fd, from, bytes, -1), bytes);
	return fd;
}

/* The answer that comes over the connection has this status and these words; ends the
 * connection. */
static inline void fixture_check_answer(int fd, ls_status status, const char *const *words)
{
	struct wire_answer answer = {0};
	unsigned char in[WIRE_ANSWER_BYTES(0)];

	assert_int_equal(fixture_read(fd, in, sizeof in), sizeof in);
	assert_int_equal(rendezvous_reply_parse(in, sizeof in, &answer), WIRE_WHOLE);
	assert_int_equal(answer.head.kind, WIRE_ANSWER);
	assert_int_equal(answer.status, status);
	for (; *words; words++)
		if (!strstr(answer.text, *words))
			fail_msg("no \"%s\" in: %s", *words, answer.text);
	rendezvous_close_fd(&fd);
}

/* Waits for a child that must end by itself or by a signal that was sent; its wait status. */
static inline int fixture_reap(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), status = -1;

	assert_true(fd >= 0);
	assert_true(fixture_ready(fd, POLLIN));
	assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
	rendezvous_close_fd(&fd);
	return status;
}

#endif
