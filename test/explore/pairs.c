/* SPDX-License-Identifier: BSD-3-Clause
 * Threads of two ranks that exchange messages in pairs. Each pair has a tag of its own and needs no
 * other pair, so all end. Each thread has its own way to send and to receive. In some programs rank
 * 1 has one thread for all its pairs, one after the other; so those of rank 0 wait for each other.
 * That thread begins with the main thread of rank 0, which may come when all others have waited for
 * long: they then wait in a circle, except for the main thread. */
#include <stdio.h>
#include <string.h>

#include "scheduler.h"
#include "subjects.h"

enum {
	RANKS = 2,
	PAIRS_MAX = 4,
	ROUNDS_MAX = 6,
	COUNT_MAX = 3000, /* elements; a message of the last length is long */
	LATE_US = 30000,
	LATE_TIMES = 4,
};

enum way { BLOCKS, WAITS, POLLS, CALLS_BACK, PROBES, WAYS };
/* What a thread calls first. From then on the library knows the thread. */
enum first { NOTHING, SENDS, LOOKS, MEETS, FIRSTS };

struct side {
	enum way send, receive;
	int rank, pair;
	int called; /* how many callbacks have come */
	int32_t out[COUNT_MAX], in[COUNT_MAX];
};

static struct {
	int pairs, rounds, ended;
	bool in_a_row;    /* rank 1 has one thread */
	bool in_series;   /* LOCKSTEP_P2P=serial, and rank 1 sends first */
	uint64_t late_us; /* of the main thread of rank 0 */
	bool joins;       /* before that, it waits for another thread of its rank */
	int joined;       /* the other thread has come */
	/* the thread of pair 1 of rank 0 computes after this call, while all others wait for it */
	enum first pauses;
	uint64_t count;
	ls_group *worlds[RANKS];
	struct side sides[RANKS][PAIRS_MAX];
} drawn;

static uint64_t next(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

/* All threads wait for each other, and none polls, while the main thread is away. */
static void come_late(uint64_t *seed)
{
	drawn.late_us = LATE_US * next(seed, LATE_TIMES);
	drawn.joins = drawn.pairs > 2 && next(seed, 2);
	drawn.count = COUNT_MAX;
	for (int i = 0; i < RANKS * drawn.pairs; i++) {
		struct side *side = &drawn.sides[i / drawn.pairs][i % drawn.pairs];
		side->send = side->send == POLLS ? WAITS : side->send;
		side->receive = side->receive == POLLS ? WAITS : side->receive;
	}
}

/* The first thread of rank 0 has a callback, or probes. The other threads receive its message for
 * it while they wait, and continue to wait. */
static void take_in_for_another(bool probes)
{
	drawn.count = 1;
	drawn.rounds = ROUNDS_MAX;
	drawn.sides[0][0].receive = probes ? PROBES : CALLS_BACK;
	for (int i = 1; i < drawn.pairs; i++)
		drawn.sides[0][i].receive = probes ? PROBES : BLOCKS;
}

static void pause_behind(enum first first)
{
	drawn.pauses = first;
	drawn.late_us = LATE_US * LATE_TIMES;
	drawn.count = 1;
	for (int i = 0; i < drawn.pairs; i++) {
		drawn.sides[0][i].receive = BLOCKS;
		drawn.sides[0][i].send = drawn.sides[0][i].send == POLLS ? WAITS : BLOCKS;
		drawn.sides[1][i].receive = BLOCKS;
	}
}

/* Long sends of rank 0, one at a time, because each answers rank 1. Rank 0 has posted the receives
 * of its other pairs before; they must not delay any send. */
static void answer_in_series(uint64_t *seed)
{
	drawn.in_series = drawn.in_a_row = true;
	drawn.count = COUNT_MAX;
	for (int i = 0; i < drawn.pairs; i++) {
		drawn.sides[0][i].receive = next(seed, 3) ? WAITS : CALLS_BACK;
		drawn.sides[0][i].send = next(seed, 2) ? WAITS : CALLS_BACK;
	}
}

static void draw(uint64_t seed, struct subject_plan *plan)
{
	static const uint64_t counts[] = {1, 2, 100, COUNT_MAX};
	plan->ranks = RANKS;
	plan->is_well = true;
	drawn.pairs = 2 + (int)next(&seed, PAIRS_MAX - 1);
	drawn.rounds = 1 + (int)next(&seed, ROUNDS_MAX);
	drawn.count = counts[next(&seed, 4)];
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < drawn.pairs; i++)
			drawn.sides[r][i] = (struct side){.rank = r,
							  .pair = i,
							  .send = (enum way)next(&seed, PROBES),
							  .receive = (enum way)next(&seed, WAYS)};
	drawn.in_a_row = next(&seed, 3) == 0;
	if (drawn.in_a_row && next(&seed, 2))
		come_late(&seed);
	else if (drawn.in_a_row && next(&seed, 2))
		take_in_for_another(next(&seed, 3) == 0);
	else if (drawn.in_a_row)
		pause_behind((enum first)next(&seed, FIRSTS));
	else if (next(&seed, 16) == 0)
		answer_in_series(&seed);
	snprintf(plan->settings, sizeof plan->settings, "LOCKSTEP_P2P=%s",
		 drawn.in_series ? "serial" : "auto");
}

static void must(ls_status status, const char *what)
{
	if (status != LS_OK)
		scheduler_fail("%s is %s", what, ls_status_name(status));
}

static void called(void *data, ls_status status)
{
	struct side *side = data;
	must(status, "a callback's operation");
	scheduler_store(&side->called, side->called + 1);
}

static struct ls_call_options options_of(struct side *side, enum way way)
{
	struct ls_call_options options = {
		.size = sizeof options, .tag = 1 + side->pair, .label = "pairs"};
	if (way == CALLS_BACK) {
		options.callback = called;
		options.callback_data = side;
	}
	return options;
}

/* Until it is complete. */
static void finish(struct side *side, enum way way, ls_request *op, int calls)
{
	switch (way) {
	case WAITS:
		must(ls_wait(op, 0), "ls_wait");
		break;
	case POLLS: {
		ls_status status;
		while ((status = ls_test(op)) == LS_PENDING)
			scheduler_yield();
		must(status, "ls_test");
		break;
	}
	case CALLS_BACK:
		scheduler_await(&side->called, calls + 1, UINT64_MAX);
		break;
	default:
		break;
	}
	ls_request_free(op);
}

static void send(struct side *side)
{
	struct ls_call_options options = options_of(side, side->send);
	ls_group *world = drawn.worlds[side->rank];
	ls_request *op = NULL;
	int calls = side->called, peer = 1 - side->rank;
	if (side->send == BLOCKS)
		must(ls_send(world, side->out, drawn.count, LS_INT32, peer, &options), "ls_send");
	else
		must(ls_isend(world, side->out, drawn.count, LS_INT32, peer, &options, &op),
		     "ls_isend");
	finish(side, side->send, op, calls);
}

static void receive(struct side *side)
{
	struct ls_call_options options = options_of(side, side->receive);
	struct ls_message message = {.size = sizeof message};
	ls_group *world = drawn.worlds[side->rank];
	ls_request *op = NULL;
	int calls = side->called, peer = 1 - side->rank;
	if (side->receive == PROBES) {
		must(ls_probe(world, peer, &options, &message), "ls_probe");
		if (message.count != drawn.count)
			scheduler_fail("a probe says %d elements", (int)message.count);
	}
	if (side->receive == BLOCKS || side->receive == PROBES)
		must(ls_recv(world, side->in, drawn.count, LS_INT32, peer, &options), "ls_recv");
	else
		must(ls_irecv(world, side->in, drawn.count, LS_INT32, peer, &options, &op),
		     "ls_irecv");
	finish(side, side->receive, op, calls);
}

static int32_t value(const struct side *side, int rank, int round)
{
	return 100 * round + 10 * side->pair + rank;
}

/* Computes, outside the library. */
static void compute(uint64_t us)
{
	static const int never;
	scheduler_await(&never, 1, scheduler_now_ns() + 1000 * us);
}

/* Finds no message: those of the other threads have other tags. */
static void look(int rank)
{
	struct ls_call_options options = {.size = sizeof options, .tag = 1 + PAIRS_MAX};
	struct ls_message message = {.size = sizeof message};
	if (ls_iprobe(drawn.worlds[rank], 1 - rank, &options, &message) != LS_PENDING)
		scheduler_fail("a probe finds what nobody has sent");
}

/* A blocking collective, or one of several buffers. */
static void meet(ls_group *world)
{
	int32_t in[2] = {1, 2}, out[2];
	struct ls_buffers both[] = {{&in[0], &out[0], 1}, {&in[1], &out[1], 1}};
	if (drawn.pairs > 2)
		must(ls_allreduce_many(world, both, 2, LS_INT32, LS_SUM, NULL), "ls_allreduce_many");
	else
		must(ls_barrier(world, NULL), "ls_barrier");
}

static void side_main(void *data)
{
	struct side *side = data;
	int count = (int)drawn.count;
	bool pauses = side->rank == 0 && side->pair == 1 && drawn.pauses;
	if (side->pair == 1 && drawn.pauses == MEETS)
		meet(drawn.worlds[side->rank]);
	if (pauses && drawn.pauses == LOOKS)
		look(side->rank);
	if (pauses && drawn.pauses != SENDS)
		compute(drawn.late_us);
	for (int round = 0; round < 2 * drawn.rounds; round++) {
		if ((round + drawn.in_series) % RANKS == side->rank) {
			for (int i = 0; i < count; i++)
				side->out[i] = value(side, side->rank, round);
			send(side);
			if (pauses && round == 0 && drawn.pauses == SENDS)
				compute(drawn.late_us);
		} else {
			receive(side);
			for (int i = 0; i < count; i++)
				if (side->in[i] != value(side, 1 - side->rank, round))
					scheduler_fail("rank %d has got %d in round %d of pair %d",
						       side->rank, (int)side->in[i], round,
						       side->pair);
		}
		scheduler_progress();
	}
}

/* The last thread of rank 0, for which its main thread waits. So the library has to know this
 * thread before it sleeps. */
static void joined_main(void *data)
{
	look(0);
	compute(LATE_US);
	scheduler_store(&drawn.joined, 1);
	side_main(data);
}

static void run_all_at_once(int rank)
{
	static const char *const names[PAIRS_MAX] = {"pair 0", "pair 1", "pair 2", "pair 3"};
	int threads[PAIRS_MAX];
	bool joins = rank == 0 && drawn.joins;
	for (int i = 1; i < drawn.pairs; i++)
		threads[i] = scheduler_spawn(rank, names[i],
					     joins && i == drawn.pairs - 1 ? joined_main : side_main,
					     &drawn.sides[rank][i]);
	if (joins)
		scheduler_await(&drawn.joined, 1, UINT64_MAX);
	if (rank == 0 && !drawn.pauses)
		compute(drawn.late_us);
	side_main(&drawn.sides[rank][0]);
	for (int i = 1; i < drawn.pairs; i++)
		scheduler_join(threads[i]);
}

static void run(int rank, ls_group *world)
{
	drawn.worlds[rank] = world;
	if (rank == 1 && drawn.in_a_row)
		for (int i = 0; i < drawn.pairs; i++)
			side_main(&drawn.sides[rank][(i + (drawn.pauses != NOTHING)) % drawn.pairs]);
	else
		run_all_at_once(rank);
	ls_group_close(world);
	drawn.ended++;
}

static void judge(void)
{
	if (drawn.ended != RANKS)
		scheduler_fail("only %d ranks have ended", drawn.ended);
	if (scheduler_said()[0])
		scheduler_fail("the library printed a message about a program without an error");
}

static void show(FILE *file)
{
	static const char *const ways[] = {"blocks", "waits", "polls", "calls back", "probes"};
	fprintf(file, "%d pairs, %d rounds, %d elements\n", drawn.pairs, drawn.rounds,
		(int)drawn.count);
	if (drawn.in_series)
		fprintf(file, "LOCKSTEP_P2P=serial; rank 1 has one thread, and sends first\n");
	else if (drawn.in_a_row)
		fprintf(file, "rank 1 has one thread; the %s thread of rank 0 is %d us late%s\n",
			drawn.pauses ? "second" : "main", (int)drawn.late_us,
			drawn.joins ? ", and waits for its last one before" : "");
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < drawn.pairs; i++)
			fprintf(file, "rank %d, pair %d: send %s, receive %s\n", r, i,
				ways[drawn.sides[r][i].send], ways[drawn.sides[r][i].receive]);
}

const struct subject subject_pairs = {
	.name = "pairs", .weight = 1, .draw = draw, .run = run, .judge = judge, .show = show};
