/* SPDX-License-Identifier: BSD-3-Clause
 * Chooses which thread runs. The thread that has the turn (turns.h) hands over at points, and when
 * it blocks. */
#include "scheduler_private.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coverage.h"
#include "parked.h"

enum {
	POINTS_MAX = 10000000,
	POINTS_SETUP = 500000000,
	/* A thread that passes this many without a sleep, while others are ready, polls in a
	 * loop. */
	SPIN_POINTS = 150,
	CHANGES_MAX = 6, /* PCT's depth minus one */
};
static const uint64_t begin_ns = UINT64_C(1000000000000);
/* How long, in time and in points, no operation may complete. A proof needs two looks at all ranks,
 * of up to 70,000 points each, by one watch while the other watches look, too; and earlier looks
 * may have come too early. */
static const uint64_t patience_ns = UINT64_C(1500000000), patience_points = 2000000;

struct scheduler scheduler;
_Thread_local struct thread *scheduler_self;

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*main)(void *),
			  void *argument);

/* ---- chance ---- */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t scheduler_random(void)
{
	uint64_t z = scheduler.random += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t below(uint64_t limit)
{
	return scheduler_random() % limit;
}

void scheduler_begin(enum scheduler_policy policy, uint64_t seed)
{
	scheduler.policy = policy;
	scheduler.random = seed;
	scheduler.points = 0;
	scheduler.points_max = policy == SCHEDULER_IN_TURN ? POINTS_SETUP : POINTS_MAX;
	scheduler.progress_ns = scheduler.now_ns;
	scheduler.idle_ns = SCHEDULER_NEVER;
	scheduler.said_bytes = 0;
	scheduler.said[0] = 0;
	scheduler.switch_odds = 1u << (1 + below(6));
	scheduler.tick_ns = UINT64_C(20) << below(9);
	scheduler.patience_ns = patience_ns + scheduler.tick_ns * patience_points;
	/* The length of a program is not known; one of these lengths is near it. */
	uint64_t length = UINT64_C(500) << below(6);
	scheduler.change_count = policy == SCHEDULER_PRIORITY ? (int)below(CHANGES_MAX + 1) : 0;
	for (int i = 0; i < scheduler.change_count; i++)
		scheduler.changes[i] = 1 + below(length);
	scheduler.lowest = 0;
	scheduler.changed = true;
	for (int i = 0; i < scheduler.count; i++) {
		scheduler.threads[i].priority = 1 + (int64_t)below(1000000);
		scheduler.threads[i].in_a_row = 0;
	}
}

/* ---- turns ---- */

void scheduler_stop(enum scheduler_end end)
{
	static struct turn nobody; /* never returned */
	scheduler.end = end;
	scheduler.current = NULL;
	for (;;)
		turn_pass(&nobody, &scheduler.home);
}

void scheduler_fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(scheduler.failure, sizeof scheduler.failure, format, arguments);
	va_end(arguments);
	scheduler_stop(SCHEDULER_CRASHED);
}

/* ---- time ---- */

void scheduler_make_ready(struct thread *thread)
{
	thread->state = THREAD_READY;
	scheduler.changed = true;
}

static void find_next_deadline(void)
{
	scheduler.next_deadline_ns = SCHEDULER_NEVER;
	for (int i = 0; i < scheduler.count; i++) {
		const struct thread *thread = &scheduler.threads[i];
		if (thread->state == THREAD_BLOCKED &&
		    thread->deadline_ns < scheduler.next_deadline_ns)
			scheduler.next_deadline_ns = thread->deadline_ns;
	}
}

static void wake_late(void)
{
	if (scheduler.now_ns < scheduler.next_deadline_ns)
		return;
	for (int i = 0; i < scheduler.count; i++) {
		struct thread *thread = &scheduler.threads[i];
		if (thread->state == THREAD_BLOCKED && thread->deadline_ns <= scheduler.now_ns)
			scheduler_make_ready(thread);
	}
	find_next_deadline();
}

static bool is_stuck(void)
{
	return scheduler.policy != SCHEDULER_IN_TURN &&
	       scheduler.now_ns - scheduler.progress_ns > scheduler.patience_ns;
}

/* No thread is ready: continues at the next deadline. */
static void jump(void)
{
	find_next_deadline();
	if (scheduler.next_deadline_ns == SCHEDULER_NEVER || is_stuck())
		scheduler_stop(SCHEDULER_HANG);
	if (scheduler.now_ns < scheduler.next_deadline_ns &&
	    scheduler.next_deadline_ns - scheduler.now_ns > scheduler.idle_ns)
		scheduler_stop(SCHEDULER_HANG);
	if (scheduler.now_ns < scheduler.next_deadline_ns)
		scheduler.now_ns = scheduler.next_deadline_ns;
	wake_late();
}

void scheduler_patience(uint64_t ns)
{
	scheduler.patience_ns = ns;
}

void scheduler_idle(uint64_t ns)
{
	scheduler.idle_ns = ns;
}

void scheduler_slow_time(uint64_t ns)
{
	if (scheduler.tick_ns > ns)
		scheduler.tick_ns = ns;
}

void scheduler_progress(void)
{
	scheduler.progress_ns = scheduler.now_ns;
}

/* ---- which thread is next ---- */

static int list_ready(struct thread **out)
{
	int count = 0;
	if (scheduler.fds_changed)
		files_look();
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].state == THREAD_READY)
			out[count++] = &scheduler.threads[i];
	return count;
}

struct thread *scheduler_choose(struct thread *self)
{
	/* static, because only one thread is here at a time */
	static struct thread *ready[SCHEDULER_THREADS];
	int count;
	while ((count = list_ready(ready)) == 0) {
		scheduler.fds_changed = true; /* the system may have made descriptors ready */
		if ((count = list_ready(ready)) > 0)
			break;
		jump();
	}
	struct thread *best = ready[0];
	scheduler.changed = false;
	switch (scheduler.policy) {
	case SCHEDULER_IN_TURN:
		if (self && self->state == THREAD_READY)
			return self;
		for (int i = count - 1; i >= 0; i--)
			if (ready[i]->number > scheduler.current->number)
				best = ready[i];
		return best;
	case SCHEDULER_WALK:
		return ready[below((uint64_t)count)];
	case SCHEDULER_PRIORITY:
		for (int i = 1; i < count; i++)
			if (ready[i]->priority > best->priority)
				best = ready[i];
		return best;
	}
	return best;
}

void scheduler_hand_over(struct thread *self, struct thread *to)
{
	if (to == self)
		return;
	if (scheduler.traced)
		describe_switch(to);
	scheduler.current = to;
	turn_pass(self->turn, to->turn); /* a killed thread is not chosen again */
}

static void cover(const void *place)
{
	extern const unsigned char __executable_start[], etext[];
	uintptr_t at = (uintptr_t)place - (uintptr_t)__executable_start;
	if (scheduler.coverage && at < (uintptr_t)etext - (uintptr_t)__executable_start)
		coverage_set(scheduler.coverage, at);
}

static void count_kills(struct thread *self)
{
	uint64_t *left = self->rank >= 0 ? &scheduler.kill_in[self->rank] : NULL;
	if (left && *left && --*left == 0)
		scheduler_kill(self->rank, scheduler.kill_signal[self->rank]);
}

static void pass(struct thread *self, const void *place, const char *what)
{
	self->point = place;
	self->doing = what;
	cover(place);
	if (scheduler.traced)
		describe_pass(self);
	scheduler.now_ns += scheduler.tick_ns;
	wake_late();
	if (++scheduler.points > scheduler.points_max)
		scheduler_stop(SCHEDULER_ENDLESS);
	if (is_stuck())
		scheduler_stop(SCHEDULER_HANG);
	count_kills(self);
}

/* For now the thread comes behind all others. */
static void lower(struct thread *self)
{
	self->in_a_row = 0;
	self->priority = --scheduler.lowest;
	scheduler.changed = true;
}

static bool gives_way(struct thread *self)
{
	switch (scheduler.policy) {
	case SCHEDULER_WALK:
		return (scheduler_random() & (scheduler.switch_odds - 1)) == 0;
	case SCHEDULER_PRIORITY:
		for (int i = 0; i < scheduler.change_count; i++)
			if (scheduler.changes[i] == scheduler.points)
				lower(self);
		if (++self->in_a_row > SPIN_POINTS)
			lower(self);
		return scheduler.changed || scheduler.fds_changed;
	default:
		return false;
	}
}

void scheduler_point(const void *place, const char *what)
{
	struct thread *self = scheduler_self;
	if (!self)
		return;
	pass(self, place, what);
	if (gives_way(self))
		scheduler_hand_over(self, scheduler_choose(self));
}

void scheduler_relax(const void *place, const char *what)
{
	struct thread *self = scheduler_self;
	if (!self)
		return;
	pass(self, place, what);
	lower(self);
	struct thread *next = scheduler_choose(NULL);
	/* In a random walk nothing is learned from one more turn of a loop. */
	for (int i = 0; i < 3 && next == self; i++)
		next = scheduler_choose(NULL);
	scheduler_hand_over(self, next);
}

void scheduler_yield(void)
{
	scheduler_relax(__builtin_return_address(0), "yields");
}

/* ---- blocking ---- */

bool scheduler_block(enum thread_wait wait, struct thread_key key, uint64_t deadline_ns,
		     const char *what)
{
	struct thread *self = scheduler_self;
	self->wait = wait;
	self->key = key;
	self->deadline_ns = deadline_ns;
	self->doing = what;
	self->woken = false;
	self->in_a_row = 0;
	self->sleeps++;
	self->state = THREAD_BLOCKED;
	if (deadline_ns < scheduler.next_deadline_ns)
		scheduler.next_deadline_ns = deadline_ns;
	wake_late();
	scheduler_hand_over(self, scheduler_choose(self));
	self->wait = WAITS_NOT;
	self->deadline_ns = SCHEDULER_NEVER;
	return self->woken;
}

int scheduler_wake(enum thread_wait wait, struct thread_key key, int max)
{
	int count = 0;
	for (int i = 0; i < scheduler.count && count < max; i++) {
		struct thread *thread = &scheduler.threads[i];
		if (thread->state != THREAD_BLOCKED || thread->wait != wait ||
		    !thread_waits_on(thread, key))
			continue;
		thread->woken = true;
		scheduler_make_ready(thread);
		count++;
	}
	return count;
}

bool scheduler_await(const int *word, int value, uint64_t until_ns)
{
	struct thread *self = scheduler_self;
	while (*word < value && scheduler.now_ns < until_ns) {
		self->word = word;
		self->word_value = value;
		scheduler_block(WAITS_WORD, (struct thread_key){.at = (uintptr_t)word}, until_ns,
				"waits for the harness");
	}
	return *word >= value;
}

void scheduler_store(int *word, int value)
{
	*word = value;
	scheduler_wake(WAITS_WORD, (struct thread_key){.at = (uintptr_t)word}, INT_MAX);
}

/* ---- threads ---- */

struct turn *scheduler_thread_body(void)
{
	struct thread *self = scheduler.current;
	scheduler_self = self;
	self->result = self->main(self->argument);
	calls_destroy_specific();
	self->state = THREAD_DONE;
	scheduler_wake(WAITS_THREAD, (struct thread_key){.at = (uint64_t)self->number}, INT_MAX);
	scheduler_self = NULL;
	struct thread *next = scheduler_choose(NULL);
	if (scheduler.traced)
		describe_switch(next);
	scheduler.current = next;
	return next->turn;
}

static void *thread_main(void *argument)
{
	struct thread *self = argument;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all,
			/* of the kernel thread, which sleeps while another one runs this thread */
			NULL);
	turn_await(self->turn);
	turn_leave(self->turn, scheduler_thread_body());
	return self->result;
}

int scheduler_start(struct thread *thread, const pthread_attr_t *attributes)
{
	thread->parked = scheduler.woken ? NULL : parked_take();
	thread->turn = &thread->own_turn;
	if (!thread->parked)
		return __real_pthread_create(&thread->id, attributes, thread_main, thread);
	thread->turn = &thread->parked->turn;
	thread->id = thread->parked->id;
	return 0;
}

struct thread *scheduler_add(int rank, const char *name, void *(*main)(void *), void *argument)
{
	if (scheduler.count == SCHEDULER_THREADS)
		scheduler_fail("more than %d threads", SCHEDULER_THREADS);
	struct thread *thread = &scheduler.threads[scheduler.count];
	*thread = (struct thread){.number = scheduler.count,
				  .rank = rank,
				  .name = name,
				  .main = main,
				  .argument = argument,
				  .deadline_ns = SCHEDULER_NEVER,
				  .priority = 1 + (int64_t)below(1000000)};
	scheduler_make_ready(thread);
	scheduler.count++;
	return thread;
}

struct spawned {
	scheduler_main *main;
	void *data;
};

static void *spawned_main(void *argument)
{
	struct spawned spawned = *(struct spawned *)argument;
	free(argument);
	spawned.main(spawned.data);
	return NULL;
}

int scheduler_spawn(int rank, const char *name, scheduler_main *main, void *data)
{
	struct spawned *spawned = malloc(sizeof *spawned);
	if (!spawned)
		abort();
	*spawned = (struct spawned){main, data};
	struct thread *thread = scheduler_add(rank, name, spawned_main, spawned);
	if (scheduler_start(thread, NULL))
		abort();
	return thread->number;
}

bool scheduler_join(int number)
{
	struct thread *thread = &scheduler.threads[number];
	while (thread->state != THREAD_DONE && thread->state != THREAD_KILLED)
		scheduler_block(WAITS_THREAD, (struct thread_key){.at = (uint64_t)number},
				SCHEDULER_NEVER, "waits for a thread");
	return thread->state == THREAD_DONE;
}

static void harness_main(void *argument)
{
	struct spawned *spawned = argument;
	spawned->main(spawned->data);
	scheduler_stop(SCHEDULER_DONE);
}

enum scheduler_end scheduler_run(scheduler_main *main, void *data)
{
	static struct spawned spawned;
	spawned = (struct spawned){main, data};
	scheduler.now_ns = begin_ns;
	scheduler.next_deadline_ns = SCHEDULER_NEVER;
	turn_begin(&scheduler.home, scheduler.woken);
	scheduler_begin(SCHEDULER_IN_TURN, 1);
	scheduler_spawn(SCHEDULER_NOBODY, "harness", harness_main, &spawned);
	scheduler.current = &scheduler.threads[0];
	turn_pass(&scheduler.home, scheduler.current->turn);
	return scheduler.end;
}

uint64_t scheduler_now_ns(void)
{
	return scheduler.now_ns;
}

uint64_t scheduler_points(void)
{
	return scheduler.points;
}

const char *scheduler_said(void)
{
	return scheduler.said;
}
