/* SPDX-License-Identifier: BSD-3-Clause
 * Meetings that fail because of the ranks: each error reaches every rank that came, in time, and
 * its text names the rank, what was expected and found, and the remedy. */
#include <fcntl.h>
#include <sys/resource.h>

#include "base/ranks.h"
#include "rendezvous/rendezvous_fixture.h"
#include "rendezvous/server.h"

static const int sizes[] = {2, 8, RANKS_WORLD_MAX};
enum { CASES = 2 * sizeof sizes / sizeof sizes[0] };

/* The i-th combination of kind and size. */
static struct fixture fixture_case(int i)
{
	struct rendezvous_place place = fixture_place(i % 2, sizes[i / 2]);
	return fixture_new(&place, false);
}

static void run_failing(struct fixture *fixture, ls_status status, uint64_t limit_ms,
			const char *const *words)
{
	fixture_start(fixture);
	fixture_wait(fixture);
	fixture_check_failed(fixture, status, limit_ms, words);
	fixture_free(fixture);
}

static void test_wrong_world_size(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct fixture fixture = fixture_case(i);
		int wrong = fixture.size == 2 ? 3 : 2;
		char found[32], expected[32];
		snprintf(found, sizeof found, "was started for %d ranks", wrong);
		snprintf(expected, sizeof expected, "for %d: give", fixture.size);
		fixture.ranks[1].place.world_size = wrong;
		run_failing(
			&fixture, LS_WRONG_WORLD_SIZE, FIXTURE_QUICK_MS,
			FIXTURE_WORDS("rank 1 (pid", found, "rank 0 (pid", expected, "WORLD_SIZE"));
	}
}

static void test_duplicate_rank(void **state)
{
	(void)state;
	for (int i = 2; i < CASES; i++) {
		struct fixture fixture = fixture_case(i);
		char expected[32];
		snprintf(expected, sizeof expected, "RANK, 0 to %d", fixture.size - 1);
		fixture.ranks[fixture.size - 1].place.rank = 1;
		run_failing(&fixture, LS_DUPLICATE_RANK, FIXTURE_QUICK_MS,
			    FIXTURE_WORDS("two processes", "rank 1 of", "pid", expected));
	}
}

/* The second one finds the address taken, asks who is there, and all learn what is wrong. */
static void test_duplicate_rank_0(void **state)
{
	(void)state;
	for (int i = 2; i < CASES; i++) {
		struct fixture fixture = fixture_case(i);
		fixture.ranks[2].place.rank = 0;
		fixture.ranks[2].place.serve = true;
		run_failing(&fixture, LS_DUPLICATE_RANK, FIXTURE_QUICK_MS,
			    FIXTURE_WORDS("two processes", "rank 0 of", "give each its own RANK"));
	}
}

/* The ranks meet without rank 1. The deadline decides who is missing, and on a busy machine a rank
 * that did start may come after it: then another meeting gets twice the time. */
static struct fixture meet_without_rank_1(int i, const char *missing)
{
	for (uint64_t limit_ms = FIXTURE_COME_MS;; limit_ms *= 2) {
		struct fixture fixture = fixture_case(i);
		fixture.ranks[1].absent = true;
		for (int rank = 0; rank < fixture.size; rank++)
			fixture.ranks[rank].limit_ms = limit_ms;
		fixture_start(&fixture);
		fixture_wait(&fixture);
		/* Compared from the start of the text: "201 of 512" contains "1 of 512". */
		bool only_rank_1 = !strncmp(fixture.ranks[0].text, missing, strlen(missing));
		if (limit_ms >= FIXTURE_QUICK_MS || only_rank_1)
			return fixture;
		fixture_free(&fixture);
	}
}

static void test_rank_missing(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char missing[48];
		snprintf(missing, sizeof missing, "1 of %d ranks did not come", sizes[i / 2]);
		struct fixture fixture = meet_without_rank_1(i, missing);
		fixture_check_failed(
			&fixture, LS_RANK_MISSING, FIXTURE_LONG_MS,
			fixture.size == 2
				? FIXTURE_WORDS("1 of 2", "rank 1", "LOCKSTEP_OPEN_TIMEOUT_MS")
				: FIXTURE_WORDS(missing, ": rank 1", "here: 0, 2-",
						"LOCKSTEP_OPEN_TIMEOUT_MS"));
		fixture_free(&fixture);
	}
}

static void test_ranks_missing_are_listed(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 8);
	struct fixture fixture = fixture_new(&place, false);
	fixture.ranks[1].absent = fixture.ranks[3].absent = fixture.ranks[4].absent = true;
	fixture.ranks[5].absent = true;
	fixture.ranks[0].limit_ms = FIXTURE_COME_MS;
	run_failing(&fixture, LS_RANK_MISSING, FIXTURE_QUICK_MS,
		    FIXTURE_WORDS("4 of 8 ranks", ": ranks 1, 3-5 (here: 0, 2, 6, 7)"));
}

/* The most impatient rank ends the meeting, for all. */
static void test_least_deadline_counts(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(false, 4);
	struct fixture fixture = fixture_new(&place, false);
	fixture.ranks[2].limit_ms = FIXTURE_COME_MS;
	fixture.ranks[3].absent = true;
	run_failing(&fixture, LS_RANK_MISSING, FIXTURE_QUICK_MS, FIXTURE_WORDS("rank 3"));
}

/* A process that says hello, waits until it was heard, and ends. */
static pid_t fork_short_life(const struct rendezvous_place *place, int rank)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	struct wire_head welcome;
	struct wire_hello hello = fixture_hello(place, rank);
	int fd = fixture_connect(place);
	bool heard = fd >= 0 && rendezvous_send(fd, &hello, sizeof hello, -1) > 0 &&
		     fixture_read(fd, &welcome, sizeof welcome) == sizeof welcome;
	_exit(heard ? 0 : 1);
}

static void test_rank_ends_before_all_came(void **state)
{
	(void)state;
	for (int i = 2; i < 4; i++) {
		struct fixture fixture = fixture_case(i);
		fixture.ranks[2].absent = fixture.ranks[3].absent = true;
		pid_t pid = fork_short_life(&fixture.ranks[2].place, 2);
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank 2 (pid %d) ended before all ranks had come", pid);
		run_failing(&fixture, LS_RANK_MISSING, FIXTURE_QUICK_MS,
			    FIXTURE_WORDS(expected, "see what it printed"));
		assert_int_equal(fixture_reap(pid), 0);
	}
}

/* Rank 0 as a process that is struck by `signal` once rank 1 has been heard. */
static pid_t fork_server(const struct rendezvous_place *place, int signal)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	struct rendezvous_self self = {.me = {.pid = getpid(), .uid = geteuid()}, .trace_fd = -1};
	struct rendezvous_server *server;
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	self.me.pid = getpid();
	if (rendezvous_server_start(place, &self, clock_deadline_ns(FIXTURE_QUICK_MS), text, &server))
		_exit(1);
	while (rendezvous_server_pid(server, 1) == 0 && rendezvous_server_step(server) == LS_OK) {
		int count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX);
		if (wait_fds(NULL, fds, count, -1, clock_deadline_ns(100)) == LS_SYSTEM)
			_exit(2);
	}
	raise(signal);
	_exit(3);
}

static void test_server_is_killed(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_new(&place, false);
		fixture.ranks[0].absent = fixture.ranks[2].absent = true;
		pid_t pid = fork_server(&fixture.ranks[0].place, SIGKILL);
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank 0 (pid %d), ended before all ranks had come", pid);
		run_failing(&fixture, LS_NO_MASTER, FIXTURE_QUICK_MS,
			    FIXTURE_WORDS("holds the rendezvous", expected));
		assert_true(WIFSIGNALED(fixture_reap(pid)));
	}
}

static void test_server_is_stopped(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(false, 3);
	struct fixture fixture = fixture_new(&place, false);
	fixture.ranks[0].absent = fixture.ranks[2].absent = true;
	fixture.ranks[1].limit_ms = FIXTURE_COME_MS;
	pid_t pid = fork_server(&fixture.ranks[0].place, SIGSTOP);
	fixture_start(&fixture);
	fixture_wait(&fixture);
	fixture_check_failed(&fixture, LS_NO_MASTER, FIXTURE_QUICK_MS,
			     FIXTURE_WORDS("rank 0 (pid", "answered at first", "stopped"));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(fixture_reap(pid)));
	fixture_free(&fixture);
}

/* The launcher saw a process end that never came; latecomers hear of it as well. */
static void test_launcher_fails_the_meeting(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = 3};
	struct rendezvous_server *server;
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	uint64_t deadline_ns = clock_deadline_ns(FIXTURE_LONG_MS);

	assert_int_equal(rendezvous_server_open(&place, deadline_ns, &server), LS_OK);
	place = *rendezvous_server_place(server);
	struct wire_hello hello = fixture_hello(&place, 0), late = fixture_hello(&place, 1);
	int fd = fixture_say(&place, &hello, sizeof hello);
	assert_int_equal(rendezvous_server_step(server), LS_OK);
	assert_int_equal(rendezvous_server_pid(server, 0), getpid());
	assert_int_equal(rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX), 2);
	int early = fixture_say(&place, &late, sizeof late);
	rendezvous_server_fail(server, LS_PEER_DIED, "rank 2 (pid 7) ended with exit code 3");
	rendezvous_server_fail(server, LS_SYSTEM, "only the first cause counts");
	assert_int_equal(rendezvous_server_step(server), LS_PEER_DIED);
	assert_string_equal(rendezvous_server_text(server), "rank 2 (pid 7) ended with exit code 3");
	struct wire_head welcome;
	assert_int_equal(fixture_read(fd, &welcome, sizeof welcome), sizeof welcome);
	fixture_check_answer(fd, LS_PEER_DIED,
			     FIXTURE_WORDS("rank 2 (pid 7) ended with exit code 3"));
	fixture_check_answer(early, LS_PEER_DIED, FIXTURE_WORDS("rank 2 (pid 7)"));
	assert_int_equal(rendezvous_server_told(server), 2);
	fd = fixture_say(&place, &late, sizeof late);
	assert_int_equal(rendezvous_server_step(server), LS_PEER_DIED);
	fixture_check_answer(fd, LS_PEER_DIED, FIXTURE_WORDS("rank 2 (pid 7)"));
	assert_int_equal(rendezvous_server_told(server), 3);
	assert_int_equal(rendezvous_server_deadline_ns(server), CLOCK_NEVER);
	assert_int_equal(rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX), 1);
	rendezvous_server_close(server);
}

/* All have come, but one does not take its table, which is longer than its socket holds: the server
 * does not wait for it longer than for a rank. */
static void test_table_is_not_taken(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = RANKS_WORLD_MAX};
	struct rendezvous_server *server;
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	int ranks[RANKS_WORLD_MAX], least = 1;
	uint64_t began_ns = clock_now_ns();

	assert_int_equal(
		rendezvous_server_open(&place, clock_deadline_ns(FIXTURE_MANY_COME_MS), &server),
		LS_OK);
	place = *rendezvous_server_place(server);
	for (int i = 0; i < RANKS_WORLD_MAX; i++) {
		struct wire_hello hello = fixture_hello(&place, i);
		ranks[i] = fixture_say(&place, &hello, sizeof hello);
		if (i == 1)
			assert_int_equal(setsockopt(server->ranks[0].fd, SOL_SOCKET, SO_SNDBUF,
						    &least, sizeof least),
					 0);
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	}
	assert_int_equal(server->state, SERVER_TELLING);
	while (!rendezvous_server_complete(server)) {
		int count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX);
		uint64_t until_ns = rendezvous_server_deadline_ns(server);
		assert_true(until_ns < clock_deadline_ns(FIXTURE_QUICK_MS));
		assert_int_not_equal(wait_fds(NULL, fds, count, -1, until_ns), LS_SYSTEM);
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	}
	assert_true(clock_now_ns() - began_ns >= (uint64_t)FIXTURE_MANY_COME_MS * 1000000);
	assert_int_equal(rendezvous_server_deadline_ns(server), CLOCK_NEVER);
	rendezvous_server_close(server);
	for (int i = 0; i < RANKS_WORLD_MAX; i++)
		rendezvous_close_fd(&ranks[i]);
}

/* As many processes came as there are ranks: all have got the answer, and rank 0 need not stay. */
static void test_all_know(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = 2};
	struct rendezvous_server *server;
	uint64_t deadline_ns = clock_deadline_ns(FIXTURE_LONG_MS);

	assert_int_equal(rendezvous_server_open(&place, deadline_ns, &server), LS_OK);
	place = *rendezvous_server_place(server);
	struct wire_hello hello = fixture_hello(&place, 1);
	int first = fixture_say(&place, &hello, sizeof hello);
	int second = fixture_say(&place, &hello, sizeof hello);
	assert_int_equal(rendezvous_server_step(server), LS_DUPLICATE_RANK);
	assert_int_equal(rendezvous_server_told(server), 2);
	fixture_check_answer(second, LS_DUPLICATE_RANK, FIXTURE_WORDS("rank 1 of 2"));
	rendezvous_close_fd(&first);
	rendezvous_server_close(server);
}

/* Lets this process open `count` more descriptors. Returns the limit before. */
static struct rlimit limit_descriptors(int count)
{
	struct rlimit before;
	int fds[8];

	assert_true(count <= 8);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < count; i++) {
		fds[i] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
		assert_true(fds[i] >= 0);
	}
	struct rlimit limit = {.rlim_cur = (rlim_t)fds[count - 1] + 1, .rlim_max = before.rlim_max};
	for (int i = 0; i < count; i++)
		rendezvous_close_fd(&fds[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return before;
}

/* The server may accept `free` connections: with free == world_size all meet; otherwise all ranks
 * get the reason, also those that could not be accepted. */
static void check_exhausted(bool tcp, int world_size, int free)
{
	struct rendezvous_place place = fixture_place(tcp, world_size);
	struct rendezvous_server *server;
	struct wire_head head;
	int ranks[8];
	bool fits = free == world_size + tcp; /* TCP: and one to ask whose connection it is */

	assert_int_equal(
		rendezvous_server_open(&place, clock_deadline_ns(FIXTURE_LONG_MS), &server), LS_OK);
	place = *rendezvous_server_place(server);
	for (int i = 0; i < world_size; i++) {
		struct wire_hello hello = fixture_hello(&place, i);
		ranks[i] = fixture_say(&place, &hello, sizeof hello);
	}
	struct rlimit before = limit_descriptors(free);
	ls_status status = rendezvous_server_step(server);
	if (!fits)
		status = rendezvous_server_step(server);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(status, fits ? LS_OK : LS_OUT_OF_MEMORY);
	for (int i = 0; i < world_size; i++) {
		/* Those that the server accepted at once were welcomed. */
		if (i < free - tcp)
			assert_int_equal(fixture_read(ranks[i], &head, sizeof head), sizeof head);
		if (!fits)
			fixture_check_answer(ranks[i], LS_OUT_OF_MEMORY,
					     FIXTURE_WORDS("cannot accept", "ulimit -n"));
	}
	rendezvous_server_close(server);
	for (int i = 0; fits && i < world_size; i++)
		rendezvous_close_fd(&ranks[i]);
}

static void test_descriptors_run_out(void **state)
{
	(void)state;
	for (int free = 1; free <= 4; free++)
		check_exhausted(false, 4, free);
	for (int free = 1; free <= 5; free++)
		check_exhausted(true, 4, free);
}

static void on_signal(int signal)
{
	(void)signal;
}

/* Waits until the rank has been welcomed by rank 0, which its wait slot shows to anybody. */
static void await_welcomed(struct fixture_rank *rank)
{
	struct wait_slot_body body;
	uint64_t until_ns = clock_deadline_ns(FIXTURE_QUICK_MS);

	do {
		assert_true(clock_now_ns() < until_ns);
		fixture_look(rank, &body);
	} while (body.state != WAIT_FDS || body.edges[0].peer != 0);
}

/* Signals until one has ended the wait: one that comes between two waits is not noticed. */
static void interrupt(struct fixture_rank *rank)
{
	while (!atomic_load(&rank->done)) {
		assert_int_equal(pthread_kill(rank->thread, SIGUSR1), 0);
		assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(2)), LS_TIMED_OUT);
	}
}

static void test_interrupted(void **state)
{
	(void)state;
	struct sigaction action = {.sa_handler = on_signal};
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	for (int who = 0; who < 2; who++) {
		struct rendezvous_place place = fixture_place(who, 4);
		struct fixture fixture = fixture_new(&place, false);
		fixture.ranks[3].absent = true;
		fixture_start(&fixture);
		await_welcomed(&fixture.ranks[1]);
		await_welcomed(&fixture.ranks[2]);
		interrupt(&fixture.ranks[who]);
		fixture_wait(&fixture);
		fixture_check_rank(&fixture.ranks[who], LS_INTERRUPTED,
				   FIXTURE_WORDS("a signal ended"));
		fixture.ranks[who].absent = true;
		char expected[80];
		snprintf(expected, sizeof expected,
			 "rank %d (pid %d) ended before all ranks had come", who, getpid());
		fixture_check_failed(&fixture, LS_RANK_MISSING, FIXTURE_QUICK_MS,
				     FIXTURE_WORDS(expected));
		fixture_free(&fixture);
	}
}

/* Plays failure_run_ends_find: only the rank at `context` has ended. */
static bool find_end(void *context, int rank, char *how, size_t bytes)
{
	if (rank != *(int *)context)
		return false;
	snprintf(how, bytes, "rank %d exited with 0", rank);
	return true;
}

static void test_launcher_tells_of_an_end(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		int gone = i % 2;
		struct rendezvous_ends ends = {find_end, &gone};
		struct rendezvous_place place = fixture_place(i / 2, 4);
		struct fixture fixture = fixture_new(&place, false);
		fixture.ranks[gone].absent = true;
		for (int rank = 0; rank < 4; rank++)
			fixture.ranks[rank].self.ends = &ends;
		run_failing(&fixture, gone ? LS_RANK_MISSING : LS_NO_MASTER, FIXTURE_QUICK_MS,
			    gone ? FIXTURE_WORDS("rank 1 exited with 0 before it came", "4 ranks")
				 : FIXTURE_WORDS("rank 0 exited with 0, and nobody listens at",
						 "4 ranks cannot meet"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_world_size),
		cmocka_unit_test(test_duplicate_rank),
		cmocka_unit_test(test_duplicate_rank_0),
		cmocka_unit_test(test_rank_missing),
		cmocka_unit_test(test_ranks_missing_are_listed),
		cmocka_unit_test(test_least_deadline_counts),
		cmocka_unit_test(test_rank_ends_before_all_came),
		cmocka_unit_test(test_server_is_killed),
		cmocka_unit_test(test_server_is_stopped),
		cmocka_unit_test(test_launcher_fails_the_meeting),
		cmocka_unit_test(test_table_is_not_taken),
		cmocka_unit_test(test_all_know),
		cmocka_unit_test(test_descriptors_run_out),
		cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_launcher_tells_of_an_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
