/* SPDX-License-Identifier: BSD-3-Clause
 * Who drives the sends and receives that run beside the caller, and the agent, which does so when nobody else
 * does and a peer waits for it. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/messages.h"
#include "points.h"
#include "registry.h"

static struct wait_bell *bell_of(struct group_world *world)
{
	return &world->transport.segment->bell;
}

static _Atomic uint32_t *unpublished_of(struct group_world *world)
{
	return &world->trace.board->unpublished;
}

/* ---- the right to drive ---- */

/* What the agent might do is no longer what the watch has shown, if it has. */
static void hide(struct group_world *world) LOCK_REQUIRES(group)
{
	struct group_points *points = &world->points;
	if (!points->shown)
		return;
	atomic_fetch_add(unpublished_of(world), 1);
	points->shown = false;
}

static void disarm(struct group_world *world) LOCK_REQUIRES(group)
{
	struct group_points *points = &world->points;
	if (!points->armed)
		return;
	hide(world);
	points->armed = false;
	wait_disarm(bell_of(world));
	atomic_fetch_sub(unpublished_of(world), 1);
}

static void arm(struct group_world *world) LOCK_REQUIRES(group)
{
	struct group_points *points = &world->points;
	if (!points->armed)
		atomic_fetch_add(unpublished_of(world), 1);
	points->armed = true;
	points->eager = points->eager_count > 0;
	hide(world);
	wait_arm(bell_of(world), points->eager);
}

static bool take(struct group_points *points, bool asked)
{
	struct group_world *world =
		(struct group_world *)(void *)((char *)points - offsetof(struct group_world, points));
	lock_group_acquire(&points->lock);
	bool mine = !points->driven && (asked || !atomic_load(&points->wanted));
	if (mine) {
		points->driven = true;
		if (asked)
			atomic_fetch_sub(&points->wanted, 1);
		disarm(world);
	}
	lock_group_release(&points->lock);
	return mine;
}

bool group_points_take(struct group_points *points)
{
	return take(points, false);
}

bool group_points_take_over(struct group_points *points)
{
	return take(points, true);
}

bool group_points_is_driven(struct group_points *points)
{
	lock_group_acquire(&points->lock);
	bool driven = points->driven || atomic_load(&points->wanted);
	lock_group_release(&points->lock);
	return driven;
}

/* Whether something could go on now. Under the list's lock, and nobody drives: no group leaves the list meanwhile. */
static bool is_ready(struct group_world *world) LOCK_REQUIRES(group)
{
	if (group_points_can_begin(&world->points))
		return true;
	for (ls_group *group = atomic_load(&world->points.groups); group;
	     group = group->next_points) {
		if (engine_point_pending(&group->engine) == 0)
			continue;
		if (engine_point_is_ready(&group->engine) || group_cause_status(group) != LS_OK)
			return true;
		/* Who leaves looks whether the agent is armed, and calls it. */
		uint64_t gone = group_gone_members(group);
		int peer;
		bool again;
		if (gone && group_points_needing(group, gone, &peer, &again))
			return true;
	}
	return false;
}

/* Says so and looks once more, as wait_arm wants it. */
static bool arm_and_look(struct group_world *world)
{
	struct group_points *points = &world->points;
	lock_group_acquire(&points->lock);
	bool arms = !points->driven && points->agent_count > 0;
	if (arms)
		arm(world);
	bool ready = arms && is_ready(world);
	lock_group_release(&points->lock);
	return ready;
}

/* A thread that waits for the one that drives may have to take over, or he to look again. */
static void call_resting(struct group_world *world)
{
	if (atomic_load(&world->points.resting) == 0)
		return;
	atomic_fetch_add(&group_points_area(world)->points, 1);
	wait_ring(bell_of(world));
}

void group_points_call_driver(struct group_world *world)
{
	/* Sequentially consistent, as there: he sees this, or is seen to rest. */
	atomic_fetch_add(&world->points.news, 1);
	call_resting(world);
}

/* When it has to look by itself. */
static uint64_t next_look_ns(const struct group_points *points) LOCK_REQUIRES(group)
{
	return points->lone_until_ns < points->next_deadline_ns ? points->lone_until_ns
								: points->next_deadline_ns;
}

/* Whether it would sleep past what nobody else looks at. */
static bool agent_is_late(const struct group_points *points) LOCK_REQUIRES(group)
{
	return atomic_load(&points->there) && !points->driven &&
	       next_look_ns(points) < points->agent_until_ns;
}

void group_points_leave(struct group_world *world, bool more)
{
	struct group_points *points = &world->points;
	for (;;) {
		lock_group_acquire(&points->lock);
		points->driven = false;
		bool calls = more && points->agent_count > 0;
		if (calls)
			arm(world);
		bool late = agent_is_late(points);
		lock_group_release(&points->lock);
		call_resting(world);
		if (calls || late)
			wait_call_thread(bell_of(world));
		if (calls || !arm_and_look(world) || !group_points_take(points))
			return;
		more = group_points_sweep(world);
	}
}

void group_points_arm(struct group_world *world, bool has_work)
{
	struct group_points *points = &world->points;
	lock_group_acquire(&points->lock);
	/* An agent that is armed, or has been called since, looks at everything. */
	bool armed = points->armed && !has_work && points->eager == (points->eager_count > 0);
	if (armed)
		hide(world);
	bool driven = points->driven, late = agent_is_late(points);
	lock_group_release(&points->lock);
	if (driven)
		group_points_call_driver(world);
	if (late)
		wait_call_thread(bell_of(world));
	if (armed)
		return;
	if ((arm_and_look(world) || has_work) && group_points_take(&world->points))
		group_points_leave(world, group_points_sweep(world));
}

/* ---- the agent ---- */

static void drive(struct group_world *world)
{
	struct group_points *points = &world->points;
	/* It is on no board: see points.h. Before it is no longer armed, so that there is no moment in between. */
	atomic_fetch_add(unpublished_of(world), 1);
	if (group_points_take(points)) {
		while (group_points_sweep(world) && !atomic_load(&points->stop) &&
		       !atomic_load(&points->wanted))
			;
		group_points_leave(world, false);
	}
	atomic_fetch_sub(unpublished_of(world), 1);
}

/* Until when it may sleep. Who drives sees to deadlines, and calls the agent when he leaves some to it. What is left
 * of an earlier sleep is slept, as most operations are over long before their deadlines. */
static uint64_t choose_sleep(struct group_points *points)
{
	uint64_t now = clock_now_ns();
	lock_group_acquire(&points->lock);
	uint64_t until = points->driven ? CLOCK_NEVER : next_look_ns(points);
	if (points->agent_until_ns > now && points->agent_until_ns < until)
		until = points->agent_until_ns;
	points->agent_until_ns = until;
	lock_group_release(&points->lock);
	return until;
}

static void *agent_main(void *argument)
{
	struct group_world *world = argument;
	struct group_points *points = &world->points;
	struct wait_bell *bell = bell_of(world);
	message_set_rank(world->rank);
	atomic_store(&world->trace.board->agent_tid, trace_thread_id());
	for (;;) {
		uint32_t seen = atomic_load(&bell->summons);
		if (atomic_load(&points->stop))
			return NULL;
		drive(world);
		wait_summons(bell, seen, choose_sleep(points));
	}
}

ls_status group_points_start_agent(struct group_world *world)
{
	struct group_points *points = &world->points;
	sigset_t all, old;
	int error = 0;
	if (atomic_load_explicit(&points->there, memory_order_acquire))
		return LS_OK;
	lock_group_acquire(&points->lock);
	if (!atomic_load(&points->there)) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		error = pthread_create(&points->agent, NULL, agent_main, world);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		atomic_store(&points->there, error == 0);
	}
	lock_group_release(&points->lock);
	if (!error)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_GROUP_PROGRESS, strerror(error));
	return LS_OUT_OF_MEMORY;
}

void group_points_init(struct group_world *world)
{
	struct group_points *points = &world->points;
	lock_group_init(&points->lock);
	lock_group_acquire(&points->lock);
	points->next_deadline_ns = points->agent_until_ns = points->lone_until_ns = CLOCK_NEVER;
	group_words_init(&points->to_show);
	lock_group_release(&points->lock);
	group_words_init(&points->driving);
	points->serial = world->settings.p2p == SETTING_P2P_SERIAL;
}

void group_points_fini(struct group_world *world)
{
	struct group_points *points = &world->points;
	if (atomic_exchange(&points->there, false)) {
		atomic_store(&points->stop, true);
		wait_call_thread(bell_of(world));
		wait_join(points->agent);
	}
	lock_group_acquire(&points->lock);
	group_words_fini(&points->to_show);
	lock_group_release(&points->lock);
	group_words_fini(&points->driving);
	lock_group_fini(&points->lock);
}

/* ---- what the watch shows for it ---- */

/* Which words these are. */
static uint64_t hash_words(const struct wait_word *words, int count)
{
	uint64_t hash = (uint64_t)count;
	for (int i = 0; i < count; i++) {
		const struct wait_edge *edge = &words[i].edge;
		hash = (hash ^ edge->offset) * UINT64_C(0x100000001b3);
		hash = (hash ^ edge->value) * UINT64_C(0x100000001b3);
		hash = (hash ^ (uint64_t)(uint32_t)edge->owner) * UINT64_C(0x100000001b3);
	}
	return hash;
}

static void show(struct group_world *world, const struct wait_word *words, int count)
	LOCK_REQUIRES(group)
{
	struct group_points *points = &world->points;
	struct wait_call call = {.words = words, .count = count, .any = true};
	uint64_t hash = hash_words(words, count);
	/* A proof wants to see the same wait twice, so what stands there is not written again. */
	if (points->shown && points->shown_hash == hash)
		return;
	wait_show(&world->waiter, &call);
	points->on_board = true;
	points->shown_hash = hash;
	if (!points->shown)
		atomic_fetch_sub(unpublished_of(world), 1);
	points->shown = true;
}

/* Who drives and sleeps learns of the peers that he waits for himself, and of the failure of the group that he waits in.
 * If others are gone since the last look, or another group has failed, somebody's callback may need them, or what he
 * waits for behind it: he looks for that, too. */
static void tell_gone(struct group_world *world)
{
	struct group_points *points = &world->points;
	struct ls_group *groups[TRANSPORT_AREAS];
	uint64_t gone = 0;
	int count = group_hold_all(world, groups);
	for (int i = 0; i < count; i++) {
		gone += (uint64_t)__builtin_popcountll(group_gone_members(groups[i])) +
			(group_cause_status(groups[i]) != LS_OK);
		group_release(groups[i]);
	}
	if (gone > points->gone_told)
		group_points_call_driver(world);
	points->gone_told = gone;
}

/* What all of them wait for. False: there is no memory for so many. */
static bool find_words(struct group_points *points, struct wait_call *call, bool *has_work)
	LOCK_REQUIRES(group)
{
	struct group_words *room = &points->to_show;
	do {
		call->count = 0;
		for (ls_group *group = atomic_load(&points->groups); group;
		     group = group->next_points) {
			int left = room->max > call->count ? room->max - call->count : 0;
			call->count +=
				engine_point_words(&group->engine, NULL, 0,
						   left ? room->words + call->count : NULL, left);
			*has_work |= engine_point_has_work(&group->engine);
		}
	} while (call->count > room->max && group_words_grow(room, call->count));
	call->words = room->words;
	return call->count <= room->max;
}

void group_points_show(struct group_world *world)
{
	struct group_points *points = &world->points;
	struct wait_call call = {.any = true};
	bool has_work = false;
	tell_gone(world);
	lock_group_acquire(&points->lock);
	bool fits = points->armed && !points->driven && find_words(points, &call, &has_work);
	/* What holds up nobody is left lying until somebody wants it; but somebody who may go on at any time stands
	 * in the way of every proof. */
	bool ready = fits && (has_work || wait_satisfied(&call));
	if (fits && !ready) {
		show(world, call.words, call.count);
	} else {
		hide(world);
		if (points->on_board)
			wait_thread_leave(&world->waiter);
		points->on_board = false;
	}
	lock_group_release(&points->lock);
	if (ready)
		wait_call_thread(bell_of(world));
}
