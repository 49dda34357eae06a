/* SPDX-License-Identifier: BSD-3-Clause
 * Several waits of one thread: each in the wait table by itself, one sleep for all of them. */
#include <sched.h>

#include "base/clock.h"
#include "base/wait_private.h"
#include "base/wait_slot.h"

void wait_item_show(struct wait_item *item)
{
	struct wait_slot_body body;
	const struct wait_word *further = wait_fill_body(&item->call, item->call.since_ns, &body);
	body.tid = item->tid;
	wait_slot_publish_item(item, &body, further);
	atomic_store(&item->shown, true);
}

void wait_item_hide(struct wait_item *item)
{
	wait_slot_clear_item(item);
	atomic_store(&item->shown, false);
}

static bool has_ended(const struct wait_set *set, uint64_t now_ns)
{
	ls_status status;
	int peer;
	if (atomic_load(&set->bell->requests) != set->seen || now_ns >= set->until_ns)
		return true;
	for (int i = 0; i < set->count; i++) {
		const struct wait_item *item = set->items[i];
		if (!atomic_load(&item->shown) || now_ns >= item->call.deadline_ns ||
		    wait_is_over(item->waiter, &item->call, &status, &peer))
			return true;
	}
	return false;
}

static bool is_one_satisfied(const struct wait_set *set)
{
	for (int i = 0; i < set->count; i++)
		if (wait_satisfied(&set->items[i]->call))
			return true;
	return false;
}

/* True if that was enough. */
static bool spin_for_set(const struct wait_set *set)
{
	uint64_t since_ns = 0;
	bool gives_way = set->yield;
	const struct wait_pump *pump = set->items[0]->waiter->pump;
	for (unsigned i = 1; !is_one_satisfied(set); i++) {
		/* See spin_for_words in wait.c. */
		if (gives_way || i % WAIT_SPIN_BATCH == 0 || set->spin_ns == 0) {
			uint64_t now = clock_now_ns();
			since_ns = since_ns ? since_ns : now;
			if (has_ended(set, now) || now - since_ns >= set->spin_ns)
				break;
			gives_way = set->yield || now - since_ns >= WAIT_SPIN_ALONE_NS;
		}
		wait_pump_advance(pump);
		if (gives_way)
			sched_yield();
		else
			wait_relax();
	}
	return has_ended(set, clock_now_ns());
}

static bool is_one_counted(const struct wait_set *set)
{
	for (int i = 0; i < set->count; i++)
		if (atomic_load(&set->items[i]->counted))
			return true;
	return false;
}

/* Returns the earliest time limit; *look_ns: when the watch is to look next. */
static uint64_t next_of_set(const struct wait_set *set, uint64_t now_ns, uint64_t *look_ns)
{
	uint64_t until_ns = set->until_ns;
	*look_ns = CLOCK_NEVER;
	for (int i = 0; i < set->count; i++) {
		const struct wait_item *item = set->items[i];
		uint64_t next = wait_next_look(item->waiter, &item->call, now_ns);
		*look_ns = next < *look_ns ? next : *look_ns;
		if (item->call.deadline_ns < until_ns)
			until_ns = item->call.deadline_ns;
	}
	return until_ns;
}

static void count_asleep(const struct wait_set *set, uint32_t change)
{
	for (int i = 0; i < set->count; i++)
		if (set->items[i]->waiter->asleep)
			atomic_fetch_add(set->items[i]->waiter->asleep, change);
}

/* Sleeps as sleep_until_over does at the doorbell, with the same steps. `listens` lets
 * wait_wake_progress wake this thread, too. */
static void sleep_for_set(const struct wait_set *set)
{
	struct wait_bell *bell = set->bell;
	struct wait_sleeper sleeper;
	uint64_t look_ns, until_ns = next_of_set(set, clock_now_ns(), &look_ns);
	bool sleeps = true, interrupted; /* no signal comes here */
	wait_pump_hand_over(set->items[0]->waiter->pump);
	count_asleep(set, 1);
	atomic_store(&bell->listens, WAIT_LISTENS_WAKEUPS);
	wait_bell_enter(&sleeper, bell); /* 1 */
	while (sleeps) {
		uint64_t now = clock_now_ns();
		for (int i = 0; i < set->count; i++)
			wait_bell_add(&sleeper, &set->items[i]->call, now);
		wait_bell_listen(&sleeper); /* 2 */
		if (has_ended(set, now))    /* 3 */
			break;
		if (now >= look_ns) {
			wait_wake_watch(set->items[0]->waiter);
			if (is_one_counted(set)) /* there may be a slot for that item by now */
				break;
			look_ns = wait_after(now, set->items[0]->waiter->look_ns);
		}
		sleeps = wait_bell_sleep(&sleeper, look_ns < until_ns ? look_ns : until_ns,
					 &interrupted); /* 4 */
	}
	wait_bell_leave(&sleeper);
	atomic_store(&bell->listens, WAIT_LISTENS_NOT);
	count_asleep(set, -1u);
}

static void sleep_for_requests(const struct wait_set *set)
{
	struct wait_bell *bell = set->bell;
	const struct wait_futex requests = {&bell->requests, set->seen};
	enum wait_slept slept = WAIT_SLEPT;
	atomic_store(&bell->listens, WAIT_LISTENS_REQUESTS);
	while (slept != WAIT_SLEEP_REFUSED && !has_ended(set, clock_now_ns()))
		slept = wait_sleep_while(&requests, 1, set->until_ns);
	atomic_store(&bell->listens, WAIT_LISTENS_NOT);
}

void wait_for_set(const struct wait_set *set)
{
	lock_assert_none();
	if (set->count == 0)
		sleep_for_requests(set);
	else if (!spin_for_set(set))
		sleep_for_set(set);
}
