/* SPDX-License-Identifier: BSD-3-Clause
 * The proof of a deadlock on live memory: no store and no new wait between the looks goes
 * unseen. */
#include "diagnose/collect_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* A cycle as long as no word is there. Then each rank in turn is "stopped" between its peer's store
 * and its own wake-up: its slot still says that it waits, but its word is there. */
static void the_proof(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_verdict verdict;
	publish_ring(fixture);
	collect(fixture, 0);
	diagnose_judge(fixture->snapshot, NULL, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
	assert_int_equal(test_bits(verdict.culprits), 7);
	for (int r = 0; r < SIZE; r++) {
		atomic_store(&fixture->segments[r][r], 5);
		for (int stopped = 0; stopped < SIZE; stopped++) {
			fixture->sources[stopped].process = DIAGNOSE_PROCESS_STOPPED;
			collect(fixture, 0);
			diagnose_judge(fixture->snapshot, NULL, &verdict);
			assert_int_not_equal(verdict.cause, DIAGNOSE_DEADLOCK);
			fixture->sources[stopped].process = DIAGNOSE_PROCESS_SLEEPING;
		}
		atomic_store(&fixture->segments[r][r], 0);
	}
	/* One more thread that called Lockstep once and could store a word. */
	struct wait_slot_body outside = {.state = WAIT_OUTSIDE};
	publish(fixture, 1, 1, &outside);
	collect(fixture, 0);
	diagnose_judge(fixture->snapshot, NULL, &verdict);
	assert_int_not_equal(verdict.cause, DIAGNOSE_DEADLOCK);
}

/* A word of the cycle has its writer on another host. This host has a copy, which may be older than
 * the writer's value, so the cycle is not proved. */
static void a_mirror(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_verdict verdict;
	publish_ring(fixture);
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + 1) % SIZE);
		body.edges[0].segment = WAIT_SEGMENT_MIRROR;
		publish(fixture, r, 0, &body);
		collect(fixture, 0);
		diagnose_judge(fixture->snapshot, NULL, &verdict);
		assert_int_not_equal(verdict.cause, DIAGNOSE_DEADLOCK);
		body.edges[0].segment = WAIT_SEGMENT_MAPPED;
		publish(fixture, r, 0, &body);
		collect(fixture, 0);
		diagnose_judge(fixture->snapshot, NULL, &verdict);
		assert_int_equal(verdict.cause, DIAGNOSE_DEADLOCK);
	}
}

struct restless {
	struct collect_fixture *fixture;
	_Atomic bool stop;
};

/* Begins a new wait, which looks like the last one, again and again. */
static void *waits_again_and_again(void *argument)
{
	struct restless *restless = argument;
	struct wait_slot_body body = wait_for(1, 2);
	while (!atomic_load(&restless->stop)) {
		publish(restless->fixture, 1, 0, &body);
		uint64_t until = clock_now_ns() + 20000;
		while (clock_now_ns() < until)
			; /* long enough for a whole copy */
	}
	return NULL;
}

/* The second look must see that a wait is another one, even if it looks the same. */
static void a_new_wait_between_the_looks(void **state)
{
	struct collect_fixture *fixture = *state;
	struct restless restless = {.fixture = fixture};
	pthread_t thread;
	bool seen = false;
	publish_ring(fixture);
	assert_int_equal(pthread_create(&thread, NULL, waits_again_and_again, &restless), 0);
	uint64_t deadline = clock_deadline_ns(20000);
	while (!seen && clock_now_ns() < deadline) {
		struct diagnose_rank *rank = collect(fixture, 1);
		assert_int_equal(rank->thread_count, 1);
		seen = rank->threads[0].wait.state == WAIT_WORDS && !rank->threads[0].stable;
	}
	atomic_store(&restless.stop, true);
	pthread_join(thread, NULL);
	assert_true(seen);
}

/* A second thread enters and leaves, again and again. */
static void *comes_and_goes(void *argument)
{
	struct restless *restless = argument;
	_Atomic uint32_t *taken = &restless->fixture->traces[1].wait_table->slots[9].taken;
	while (!atomic_load(&restless->stop)) {
		uint64_t until = clock_now_ns() + 20000;
		atomic_store(taken, !atomic_load(taken));
		while (clock_now_ns() < until)
			;
	}
	return NULL;
}

/* A thread that the first look did not find may store anything. */
static void a_new_thread_between_the_looks(void **state)
{
	struct collect_fixture *fixture = *state;
	struct restless restless = {.fixture = fixture};
	pthread_t thread;
	bool seen = false;
	publish_ring(fixture);
	assert_int_equal(pthread_create(&thread, NULL, comes_and_goes, &restless), 0);
	uint64_t deadline = clock_deadline_ns(20000);
	while (!seen && clock_now_ns() < deadline) {
		struct diagnose_rank *rank = collect(fixture, 1);
		seen = rank->thread_count == 1 && rank->incomplete;
	}
	atomic_store(&restless.stop, true);
	pthread_join(thread, NULL);
	assert_true(seen);
}

/* A token goes round three threads that wait as wait.c does; whenever somebody looks, there is no
 * cycle, although at every moment all slots but one say "waits". */
struct player {
	struct collect_fixture *fixture;
	int rank;
	_Atomic bool *stop;
};

static void *plays(void *argument)
{
	struct player *player = argument;
	struct collect_fixture *fixture = player->fixture;
	int r = player->rank, next = (r + 1) % SIZE;
	struct wait_slot_body body = wait_for(r, (r + SIZE - 1) % SIZE);
	for (uint64_t turn = 1; !atomic_load(player->stop); turn++) {
		body.edges[0].value = turn;
		publish(fixture, r, 0, &body);
		while (atomic_load(&fixture->segments[r][r]) < turn && !atomic_load(player->stop))
			sched_yield();
		/* The next one's word; the last rank's token begins a new turn. */
		atomic_store(&fixture->segments[next][next], next ? turn : turn + 1);
	}
	return NULL;
}

static void a_token_is_no_deadlock(void **state)
{
	struct collect_fixture *fixture = *state;
	struct player players[SIZE];
	pthread_t threads[SIZE];
	_Atomic bool stop = false;
	atomic_store(&fixture->segments[0][0], 1);
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + SIZE - 1) % SIZE);
		body.edges[0].value = 0; /* before it begins: a wait that is over */
		publish(fixture, r, 0, &body);
		players[r] = (struct player){fixture, r, &stop};
		assert_int_equal(pthread_create(&threads[r], NULL, plays, &players[r]), 0);
	}
	uint64_t deadline = clock_deadline_ns(300);
	int blocked = 0;
	while (clock_now_ns() < deadline) {
		struct diagnose_verdict verdict;
		collect(fixture, 0);
		diagnose_judge(fixture->snapshot, NULL, &verdict);
		assert_int_equal(verdict.cause, DIAGNOSE_HEALTHY);
		for (int r = 0; r < SIZE; r++)
			blocked += test_bits(diagnose_rank_needs(fixture->snapshot, r)) != 0;
	}
	atomic_store(&stop, true);
	for (int r = 0; r < SIZE; r++)
		pthread_join(threads[r], NULL);
	assert_true(blocked > 0); /* there was something to mistake */
}

enum { MANY = 3 * WAIT_EDGE_MAX };

/* Rank 0 waits for any of MANY words; `peers` make them true by turns, and the last one's value is
 * `last`. */
static void publish_many(struct collect_fixture *fixture, int peers, uint64_t last)
{
	struct wait_table *wait_table = fixture->traces[0].wait_table;
	struct wait_slot_body body = wait_for(0, 1);
	body.state = WAIT_ANY_WORD;
	body.edge_count = WAIT_EDGE_MAX;
	body.further = MANY - WAIT_EDGE_MAX;
	body.pages = 1 << 5 | 1 << 9;
	for (int i = 0; i < MANY; i++) {
		struct wait_edge edge = body.edges[0];
		edge.peer = 1 + i % peers;
		edge.value = i == MANY - 1 ? last : 5;
		edge.record = i % 2 ? WAIT_RECORD_OTHERS : 0;
		if (i < WAIT_EDGE_MAX)
			body.edges[i] = edge;
		else
			wait_table->pages[i < 2 * WAIT_EDGE_MAX ? 5 : 9][i % WAIT_EDGE_MAX] = edge;
	}
	publish(fixture, 0, 0, &body);
}

static void more_words_than_a_slot_has(void **state)
{
	struct collect_fixture *fixture = *state;
	const struct diagnose_thread *thread = &fixture->snapshot->ranks[0].threads[0];
	publish_many(fixture, 1, 5);
	collect(fixture, 0);
	assert_true(thread->stable);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)), 2);
	publish_many(fixture, 2, 5);
	collect(fixture, 0);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)),
			 2); /* the others' is another one */
	/* Of the words of other operations, all count, also the last one. */
	assert_int_equal(test_bits(thread->others), 1 << 2);
	assert_false(thread->others_unclear);
	publish_many(fixture, 1, 5);
	fixture->traces[0].wait_table->pages[9][WAIT_EDGE_MAX - 1].peer = 2;
	collect(fixture, 0);
	assert_int_equal(test_bits(thread->others), 1 << 1 | 1 << 2);
	fixture->traces[0].wait_table->pages[9][WAIT_EDGE_MAX - 1].peer = -1; /* its own threads */
	collect(fixture, 0);
	assert_int_equal(test_bits(thread->others), 1 << 1);
	assert_false(thread->others_unclear);
	fixture->traces[0].wait_table->pages[9][WAIT_EDGE_MAX - 1].owner = 1;
	collect(fixture, 0);
	assert_true(thread->others_unclear);
	/* The very last one is there. */
	publish_many(fixture, 1, 0);
	collect(fixture, 0);
	assert_true(thread->stable);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)), 0);
	/* One that is not shown may be. */
	publish_many(fixture, 1, 5);
	struct wait_slot_body body = fixture->traces[0].wait_table->slots[0].body;
	body.further++;
	publish(fixture, 0, 0, &body);
	collect(fixture, 0);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)), 0);
	/* More of them than a sum of them has room for. */
	publish_many(fixture, 1, 5);
	for (uint16_t i = 0; i < WAIT_EDGE_MAX; i++) {
		fixture->traces[0].wait_table->pages[9][i].record = 0;
		fixture->traces[0].wait_table->pages[9][i].alternative = 1 + i;
	}
	collect(fixture, 0);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)), 0);
	/* Of one alternative some may be left out: there is room for two of it, beside two alone,
	 * one of others, and 59 more. */
	publish_many(fixture, 2, 5);
	struct wait_edge(*pages)[WAIT_EDGE_MAX] = fixture->traces[0].wait_table->pages;
	pages[5][0].alternative = 60;
	pages[5][0].peer = pages[5][2].peer = 2;
	for (uint16_t i = 0; i < WAIT_EDGE_MAX; i++) {
		pages[9][i].record = 0;
		pages[9][i].peer = i < 60 ? 1 : 0;
		pages[9][i].alternative = i < 60 ? 1 + i : 60;
	}
	collect(fixture, 0);
	assert_int_equal(thread->wait.edge_count, WAIT_EDGE_MAX);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)),
			 1 << 1 | 1 << 2);
	pages[9][WAIT_EDGE_MAX - 1].value = 0; /* it is there */
	collect(fixture, 0);
	assert_int_equal(test_bits(diagnose_thread_needs(fixture->snapshot, thread)), 0);
}

/* ---- threads that no wait table shows ---- */

static void *sleep_for_good(void *argument)
{
	for (;;)
		pause();
	return argument;
}

/* Rank 0 as a process of its own, whose main thread waits; the other one has made no call, and
 * sleeps. */
static pid_t begin_process(struct collect_fixture *fixture)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		pthread_t thread;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, sleep_for_good, NULL) == 0)
			pthread_join(thread, NULL);
		_exit(0);
	}
	publish_ring(fixture);
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + 1) % SIZE);
		body.tid = (uint32_t)(r == 0 ? child : getpid());
		publish(fixture, r, 0, &body);
		fixture->sources[r].pid = r == 0 ? child : (1 << 30) + r;
	}
	fixture->traces[0].header->pid = child;
	return child;
}

/* Frozen threads look asleep, whatever they were about. */
static void one_that_is_frozen(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
#ifdef __SANITIZE_THREAD__
	skip(); /* its own thread, which no wait table shows, wakes now and then */
#endif
	pid_t child = begin_process(fixture);
	uint64_t deadline = clock_deadline_ns(20000);
	bool proved = false;
	/* once it has both threads, and they sleep */
	while (!proved && clock_now_ns() < deadline) {
		bool has_both = diagnose_look_threads(&fixture->sources[0]).hash != 0;
		collect(fixture, 0);
		proved = has_both && test_cycle(fixture->snapshot, hops) > 0;
	}
	fixture->sources[0].process = DIAGNOSE_PROCESS_STOPPED;
	collect(fixture, 0);
	int hop_count = test_cycle(fixture->snapshot, hops);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(proved);
	assert_int_equal(hop_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(more_words_than_a_slot_has, set_up, tear_down),
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(the_proof),
		TEST(a_mirror),
		TEST(a_new_wait_between_the_looks),
		TEST(a_new_thread_between_the_looks),
		TEST(a_token_is_no_deadlock),
		TEST(one_that_is_frozen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
