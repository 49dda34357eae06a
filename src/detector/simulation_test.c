/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts and their network in one process: a seed draws loss, delay, late agents and one fault. What
 * the agents say is compared with what has happened. simulation_test [SEEDS [FIRST]]: 10,000, or
 * 500 under a sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "detector/detector.h"

enum {
	HOSTS = 6, /* most often; some seeds have MANY */
	MANY = 12,
	TICK_MS = 10,
	TICKS = 900,
	DELAY_TICKS = 16, /* no message takes as long */
	ROOM = 4096,      /* messages under way in one tick */
	LATE = 16,   /* ticks; above it nobody is heard all the time, so little can be proved */
	QUEUE = 300, /* that wait for a host which does not look */
};

enum fault { NO_FAULT, DEATH, FREEZE, PARTITION, ONE_WAY, LINK, FAULTS };

struct message {
	struct detector_beat beat;
	int to;
};

struct bucket {
	int count;
	struct message messages[ROOM];
};

struct queue {
	int count;
	struct detector_beat beats[QUEUE];
};

struct told {
	int silent_tick[MANY], heard_tick[MANY]; /* -1: not told */
	int link_tick[MANY][MANY], mended_tick[MANY][MANY];
	int others;
	bool froze[MANY]; /* as the end of its silence said */
};

static struct world {
	uint64_t random, seed;
	int hosts, now; /* tick */
	enum fault fault;
	int begin, end;                    /* ticks of the fault; end TICKS: forever */
	int resume;                        /* from then on the fault is there again; TICKS: never */
	int a, b;                          /* of the fault: hosts */
	unsigned side;                     /* of a partition */
	bool drops;                        /* what comes for a host that is asleep */
	unsigned loss, delay, twice, late; /* percent, ticks, percent, ticks at most */
	int start[MANY], pause_begin[MANY], pause_end[MANY], wakes[MANY];
	struct detector agents[MANY];
	struct queue queues[MANY];
	struct told told[MANY];
	struct bucket wire[DELAY_TICKS];
} world;

static unsigned draw(unsigned below)
{
	world.random += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t mixed = world.random;
	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return below ? (unsigned)((mixed ^ mixed >> 31) % below) : 0;
}

static uint64_t now_ns(void)
{
	return UINT64_C(1000000000000) + detector_ms((uint64_t)world.now * TICK_MS);
}

/* ---- what happens ---- */

static bool during_fault(void)
{
	return (world.now >= world.begin && world.now < world.end) || world.now >= world.resume;
}

static bool is_dead(int host)
{
	return world.fault == DEATH && host == world.a && world.now >= world.begin;
}

static bool is_asleep(int host)
{
	return (world.fault == FREEZE && host == world.a && during_fault()) || is_dead(host) ||
	       world.now < world.start[host] ||
	       (world.now >= world.pause_begin[host] && world.now < world.pause_end[host]);
}

static bool is_cut(int from, int to)
{
	if (!during_fault())
		return false;
	bool there = from == world.a && to == world.b, back = from == world.b && to == world.a;
	return (world.fault == PARTITION && ((world.side >> from ^ world.side >> to) & 1)) ||
	       (world.fault == ONE_WAY && there) || (world.fault == LINK && (there || back));
}

static void post(int from, int to, const struct detector_beat *beat)
{
	int copies = draw(100) < world.loss ? 0 : 1 + (draw(100) < world.twice);
	if (is_cut(from, to))
		return;
	for (int i = 0; i < copies; i++) {
		int at = (world.now + 1 + (int)draw(world.delay + 1)) % DELAY_TICKS;
		struct bucket *bucket = &world.wire[at];
		assert_true(bucket->count < ROOM);
		bucket->messages[bucket->count++] = (struct message){*beat, to};
	}
}

static void deliver(void)
{
	struct bucket *bucket = &world.wire[world.now % DELAY_TICKS];
	for (int i = 0; i < bucket->count; i++) {
		int to = bucket->messages[i].to;
		struct queue *queue = &world.queues[to];
		if (queue->count < QUEUE && !(world.drops && is_asleep(to)))
			queue->beats[queue->count++] = bucket->messages[i].beat;
	}
	bucket->count = 0;
}

static void note_heard(struct told *told, const struct detector_verdict *verdict)
{
	told->heard_tick[verdict->from] = world.now;
	told->froze[verdict->from] =
		2 * verdict->unheard_beats < verdict->unheard_ms / DETECTOR_BEAT_MS;
}

static void note(struct told *told, const struct detector_verdict *verdict)
{
	int from = verdict->from, to = verdict->to;
	switch (verdict->kind) {
	case DETECTOR_SILENT:
		told->others += told->silent_tick[from] >= 0 && told->heard_tick[from] < 0;
		told->silent_tick[from] = world.now;
		told->heard_tick[from] = -1;
		return;
	case DETECTOR_LINK:
		told->others += told->link_tick[from][to] >= 0 && told->mended_tick[from][to] < 0;
		told->link_tick[from][to] = world.now;
		told->mended_tick[from][to] = -1;
		return;
	case DETECTOR_HEARD:
		if (to < 0)
			note_heard(told, verdict);
		else
			told->mended_tick[from][to] = world.now;
		return;
	default:
		told->others++;
	}
}

static void run_agent(int host)
{
	struct detector *agent = &world.agents[host];
	struct queue *queue = &world.queues[host];
	struct detector_verdict verdict;
	struct detector_beat beat;
	if (is_asleep(host) || world.now < world.wakes[host] ||
	    (queue->count == 0 && detector_deadline_ns(agent) > now_ns()))
		return;
	for (int i = 0; i < queue->count; i++)
		(void)detector_receive(agent, &queue->beats[i], sizeof queue->beats[i], now_ns());
	queue->count = 0;
	if (detector_step(agent, now_ns(), &beat))
		for (int to = 0; to < world.hosts; to++)
			if (to != host)
				post(host, to, &beat);
	while (detector_next(agent, &verdict))
		note(&world.told[host], &verdict);
	world.wakes[host] = world.now + 1 + (int)draw(world.late + 1);
}

/* ---- what must be said ---- */

static void expect(bool good, int me, const char *what)
{
	if (!good)
		fail_msg("seed %llu, fault %d of hosts %d and %d of %d, ticks %d to %d: host %d: %s",
			 (unsigned long long)world.seed, world.fault, world.a, world.b, world.hosts,
			 world.begin, world.end, me, what);
}
#define EXPECT(what) expect(what, me, #what)

enum { MUST_MS = 1500, MAY_MS = 700, AGAIN_MS = 2600, BACK_MS = 1500, PROOF_MS = 2000 };

static int ticks(int ms)
{
	return ms / TICK_MS;
}

/* Whether some host that runs was late around the fault: a proof then needs new evidence, and a
 * short fault may look longer. */
static bool is_loose(void)
{
	int end = world.resume < TICKS ? TICKS : world.end;
	/* A few lost beats in a row are a gap. */
	if ((int)world.late > ticks(DETECTOR_BEAT_MS) || (world.late > 0 && world.loss > 0))
		return true;
	for (int h = 0; h < world.hosts; h++)
		if (world.pause_begin[h] < end + ticks(PROOF_MS) &&
		    world.pause_end[h] > world.begin - ticks(PROOF_MS))
			return true;
	return false;
}

/* The verdict came in time, if the fault lasted; not too early; and it was taken back after its
 * end. `late`: ticks that this host's own lateness adds. */
static void check_told(int me, int tick, int again_tick, int late, bool must)
{
	int lasted = world.end - world.begin;
	if (is_loose())
		late += 2 * ticks(PROOF_MS); /* both may have been */
	if ((int)world.late > LATE)
		late += ticks(DETECTOR_OPEN_MS);
	if (world.resume < TICKS) { /* there may have been a verdict on either part, or both */
		if (TICKS - world.resume >= ticks(MUST_MS) + late && must)
			EXPECT(tick >= 0);
		return;
	}
	if (lasted >= ticks(MUST_MS) + late && must)
		EXPECT(tick >= 0 && tick <= world.begin + ticks(MUST_MS) + late);
	if (lasted <= ticks(MAY_MS) && !is_loose())
		EXPECT(tick < 0);
	if (tick >= 0 && !is_loose())
		EXPECT(tick >= world.begin + ticks(MAY_MS));
	if (tick >= 0 && world.end + ticks(AGAIN_MS) + 3 * late < TICKS)
		EXPECT(again_tick >= world.end);
	if (world.end == TICKS)
		EXPECT(again_tick < 0);
}

/* Whether host `me` must say that `host` is silent. */
static bool sees_silence(int me, int host)
{
	switch (world.fault) {
	case DEATH:
	case FREEZE:
		return host == world.a;
	case PARTITION:
		return (world.side >> me ^ world.side >> host) & 1;
	case ONE_WAY:
		return world.hosts == 2 && host == world.a && me == world.b;
	case LINK:
		return world.hosts == 2 && host != me;
	default:
		return false;
	}
}

/* Whether host `me` knows that packets from `from` do not arrive at `to`. */
static bool sees_link(int me, int from, int to)
{
	bool there = from == world.a && to == world.b, back = from == world.b && to == world.a;
	if (world.fault == ONE_WAY)
		return there && (world.hosts > 2 || me == from);
	/* Its ends do not hear each other, so each knows of one direction. */
	return world.fault == LINK && world.hosts > 2 &&
	       ((there && me != world.a) || (back && me != world.b));
}

/* Which hosts the agent counts as unheard at the end, whatever it has reported. */
static void check_unheard(int me, int host, int late)
{
	bool is_cut = sees_silence(me, host) || sees_link(me, host, me) || sees_link(me, me, host);
	bool lasts = world.end == TICKS || world.resume < TICKS;
	int begin = world.resume < TICKS ? world.resume : world.begin;
	struct detector_verdict verdict;
	bool is_unheard = detector_is_unheard(&world.agents[me], host, &verdict);
	if (is_loose())
		late += 2 * ticks(PROOF_MS);
	if ((int)world.late > LATE)
		late += ticks(DETECTOR_OPEN_MS);
	if (!is_cut)
		EXPECT(!is_unheard || is_loose());
	else if (lasts && TICKS - begin >= ticks(MUST_MS) + late && (int)world.late <= LATE)
		EXPECT(is_unheard);
	else if (!lasts && TICKS - world.end >= ticks(BACK_MS) + 3 * late)
		EXPECT(!is_unheard);
}

static void check(int me)
{
	const struct told *told = &world.told[me];
	int late = 3 * (int)world.late + world.pause_end[me] - world.pause_begin[me];
	if (is_dead(me) || (world.fault == FREEZE && me == world.a)) {
		for (int h = 0; h < world.hosts; h++)
			EXPECT(told->silent_tick[h] < 0);
		return;
	}
	EXPECT(told->others == 0);
	for (int from = 0; from < world.hosts; from++) {
		if (from != me)
			check_unheard(me, from, late);
		if (sees_silence(me, from)) {
			check_told(me, told->silent_tick[from], told->heard_tick[from], late, true);
			if (told->heard_tick[from] >= 0 && !world.late && !is_loose())
				EXPECT(told->froze[from] == (world.fault == FREEZE));
		} else if (!(is_loose() && sees_link(me, from, me))) /* else the witness was late */
			EXPECT(told->silent_tick[from] < 0);
		for (int to = 0; to < world.hosts; to++)
			if (sees_link(me, from, to))
				check_told(me, told->link_tick[from][to],
					   told->mended_tick[from][to], late,
					   (int)world.late <= LATE);
			else
				EXPECT(told->link_tick[from][to] < 0);
	}
}

/* ---- drawing ---- */

static void draw_fault(void)
{
	world.fault = (enum fault)draw(FAULTS);
	world.begin = 250 + (int)draw(100);
	/* From too short to be seen, through what may be seen, to forever. */
	world.end = draw(3) == 0 ? TICKS : world.begin + 10 + (int)draw(300);
	if (world.fault == DEATH)
		world.end = TICKS;
	world.a = (int)draw((unsigned)world.hosts);
	world.b = (world.a + 1 + (int)draw((unsigned)world.hosts - 1)) % world.hosts;
	do
		world.side = draw(1U << world.hosts);
	while (world.side == 0 || world.side == (1U << world.hosts) - 1);
}

static void draw_resume(void)
{
	world.resume = TICKS;
	if (world.seed % 4 == 3 && world.fault != NO_FAULT && world.end < TICKS)
		world.resume = world.end + 20 + (int)draw(150);
}

static void draw_world(uint64_t seed)
{
	memset(&world, 0, offsetof(struct world, agents));
	world.random = world.seed = seed;
	world.hosts = seed % 50 == 0 ? MANY : 2 + (int)draw(HOSTS - 1);
	draw_fault();
	world.loss = draw(2) ? draw(6) : 0;
	world.delay = draw(DELAY_TICKS / 2);
	world.twice = draw(6);
	world.late = draw(3) == 0 ? draw(LATE) : 0;
	if (draw(10) == 0) /* short of processors */
		world.late = draw(50);
	world.drops = draw(2);
	for (int i = 0; i < DELAY_TICKS; i++)
		world.wire[i].count = 0;
	for (int h = 0; h < world.hosts; h++) {
		world.start[h] = (int)draw(60);
		if (draw(4) == 0) {
			world.pause_begin[h] = 70 + (int)draw(TICKS);
			world.pause_end[h] = world.pause_begin[h] + (int)draw(45);
		}
		world.queues[h].count = 0;
		memset(&world.told[h], -1, sizeof world.told[h]);
		world.told[h].others = 0;
	}
	draw_resume();
}

static void simulate(uint64_t seed, const struct auth_session *session)
{
	draw_world(seed);
	for (world.now = 0; world.now < TICKS; world.now++) {
		deliver();
		for (int h = 0; h < world.hosts; h++) {
			if (world.now == world.start[h])
				detector_init(&world.agents[h],
					      &(struct detector_options){.host = h,
									 .hosts = world.hosts,
									 .agent = h,
									 .job = seed,
									 .generation = 1,
									 .session = session},
					      now_ns());
			run_agent(h);
		}
	}
	for (int h = 0; h < world.hosts; h++)
		check(h);
}

/* Sanitizers take ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 500
#elif defined(__has_feature)
#define SEEDS (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 500 : 10000)
#else
#define SEEDS 10000
#endif
static uint64_t seeds = SEEDS, first_seed = 1;

static void test_seeds(void **state)
{
	struct auth_token token;
	struct auth_session session;
	(void)state;
	assert_int_equal(auth_token_open(&token), LS_OK);
	detector_session(&token, 7, &session);
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
		simulate(seed, seed % 100 == 0 ? &session : NULL);
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};
	seeds = count > 1 ? strtoull(words[1], NULL, 10) : seeds;
	first_seed = count > 2 ? strtoull(words[2], NULL, 10) : first_seed;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
