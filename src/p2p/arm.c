/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread makes progress on the sends and receives that outlive their call; and how the
 * doorbell is armed, so that a peer can wake the progress thread when no other thread does. */
#include <stdlib.h>

#include "base/clock.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

/* ---- the right to make progress ---- */

/* Removes the words that the watch has published for the progress thread: they no longer hold. */
static void hide_words(struct world *world) LOCK_REQUIRES(rank)
{
	struct world_p2p *p2p = &world->p2p;
	if (!p2p->shown)
		return;
	atomic_fetch_add(world_unpublished(world), 1);
	p2p->shown = false;
}

static void disarm_bell(struct world *world) LOCK_REQUIRES(rank)
{
	struct world_p2p *p2p = &world->p2p;
	if (!p2p->armed)
		return;
	hide_words(world);
	p2p->armed = false;
	wait_disarm(world_bell(world));
	atomic_fetch_sub(world_unpublished(world), 1);
}

static void arm_bell(struct world *world) LOCK_REQUIRES(rank)
{
	struct world_p2p *p2p = &world->p2p;
	if (!p2p->armed)
		atomic_fetch_add(world_unpublished(world), 1);
	p2p->armed = true;
	p2p->urgent = p2p->urgent_count > 0;
	hide_words(world);
	wait_arm(world_bell(world), p2p->urgent);
}

static bool take_right(struct world_p2p *p2p, bool asked)
{
	struct world *world = (struct world *)(void *)((char *)p2p - offsetof(struct world, p2p));
	lock_rank_acquire(&p2p->lock);
	bool mine = !p2p->progressing && (asked || !atomic_load(&p2p->wanted));
	if (mine) {
		p2p->progressing = true;
		if (asked)
			atomic_fetch_sub(&p2p->wanted, 1);
		disarm_bell(world);
	}
	lock_rank_release(&p2p->lock);
	return mine;
}

bool p2p_take(struct world_p2p *p2p)
{
	return take_right(p2p, false);
}

bool p2p_take_over(struct world_p2p *p2p)
{
	return take_right(p2p, true);
}

bool p2p_is_progressing(struct world_p2p *p2p)
{
	lock_rank_acquire(&p2p->lock);
	bool progressing = p2p->progressing || atomic_load(&p2p->wanted);
	lock_rank_release(&p2p->lock);
	return progressing;
}

/* Whether progress is possible on some operation now. Under the list's lock, while no thread makes
 * progress, so no group leaves the list meanwhile. */
static bool is_ready(struct world *world) LOCK_REQUIRES(rank)
{
	if (p2p_can_begin(&world->p2p))
		return true;
	for (ls_group *group = atomic_load(&world->p2p.groups); group; group = group->next_p2p) {
		if (mailbox_pending(group->mailbox) == 0)
			continue;
		bool ends = failure_status(group) != LS_OK &&
			    mailbox_pending(group->mailbox) > mailbox_busy(group->mailbox);
		if (mailbox_is_ready(group->mailbox) || ends)
			return true;
		/* A member that leaves notifies this rank if the doorbell is armed. */
		struct ranks room;
		const struct ranks *gone = world_gone(group, &room);
		int peer;
		bool again;
		if (gone && p2p_needing(group, gone, &peer, &again))
			return true;
	}
	return false;
}

/* Arms the doorbell if necessary, and then looks for work once more, as wait_arm requires. */
static bool arm_and_check(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	lock_rank_acquire(&p2p->lock);
	bool arms = !p2p->progressing && p2p->progress_count > 0;
	if (arms)
		arm_bell(world);
	bool ready = arms && is_ready(world);
	lock_rank_release(&p2p->lock);
	return ready;
}

void p2p_release(struct world *world, bool more)
{
	struct world_p2p *p2p = &world->p2p;
	for (;;) {
		lock_rank_acquire(&p2p->lock);
		p2p->progressing = false;
		bool wakes = more && p2p->progress_count > 0;
		if (wakes)
			arm_bell(world);
		bool late = p2p_sleeps_too_long(world);
		lock_rank_release(&p2p->lock);
		p2p_wake_followers(world);
		if (wakes || late)
			wait_wake_progress(world_bell(world));
		if (wakes || !arm_and_check(world) || !p2p_take(p2p))
			return;
		more = p2p_pass(world);
	}
}

struct p2p_arming p2p_look_armed(struct world *world, bool has_work)
{
	struct world_p2p *p2p = &world->p2p;
	/* If the doorbell is armed, the progress thread looks at everything, also if it has been
	 * woken since. */
	bool armed = p2p->armed && !has_work && p2p->urgent == (p2p->urgent_count > 0);
	if (armed)
		hide_words(world);
	return (struct p2p_arming){.armed = armed,
				   .progressing = p2p->progressing,
				   .late = p2p_sleeps_too_long(world),
				   .has_work = has_work};
}

void p2p_arm_after(struct world *world, const struct p2p_arming *found)
{
	if (found->progressing)
		p2p_recheck(world);
	if (found->late)
		wait_wake_progress(world_bell(world));
	if (found->armed)
		return;
	if ((arm_and_check(world) || found->has_work) && p2p_take(&world->p2p))
		p2p_release(world, p2p_pass(world));
}

void p2p_arm(struct world *world, bool has_work)
{
	struct world_p2p *p2p = &world->p2p;
	lock_rank_acquire(&p2p->lock);
	struct p2p_arming found = p2p_look_armed(world, has_work);
	lock_rank_release(&p2p->lock);
	p2p_arm_after(world, &found);
}

/* ---- for the progress thread ---- */

void p2p_attend(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	if (!p2p_take(p2p))
		return;
	while (p2p_pass(world) && !atomic_load(&world->progress.stop) && !atomic_load(&p2p->wanted))
		;
	p2p_release(world, false);
}

/* Another thread that makes progress checks deadlines, and wakes the progress thread when it stops
 * and leaves some to that thread. An earlier, shorter sleep is kept, because most operations
 * complete long before their deadlines. */
uint64_t p2p_sleep_until(struct world_p2p *p2p)
{
	uint64_t now = clock_now_ns();
	lock_rank_acquire(&p2p->lock);
	uint64_t until = p2p->progressing ? CLOCK_NEVER : p2p_next_check_ns(p2p);
	if (p2p->asleep_until_ns > now && p2p->asleep_until_ns < until)
		until = p2p->asleep_until_ns;
	p2p->asleep_until_ns = until;
	lock_rank_release(&p2p->lock);
	return until;
}

void p2p_init(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	lock_rank_init(&p2p->lock);
	lock_rank_acquire(&p2p->lock);
	p2p->next_deadline_ns = p2p->asleep_until_ns = CLOCK_NEVER;
	p2p->self_only_until_ns = CLOCK_NEVER;
	atomic_store(&p2p->lingering_until_ns, CLOCK_NEVER);
	p2p_words_init(&p2p->to_show);
	lock_rank_release(&p2p->lock);
	p2p_words_init(&p2p->to_await);
	p2p->serial = world->settings.p2p == SETTING_P2P_SERIAL;
}

void p2p_fini(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	lock_rank_acquire(&p2p->lock);
	p2p_words_fini(&p2p->to_show);
	lock_rank_release(&p2p->lock);
	p2p_words_fini(&p2p->to_await);
	free(atomic_load(&p2p->follower_words));
	lock_rank_fini(&p2p->lock);
}

/* ---- what the watch shows for the progress thread ---- */

/* Identifies a set of words. */
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

static void show_words(struct world *world, const struct wait_word *words, int count)
	LOCK_REQUIRES(rank)
{
	struct world_p2p *p2p = &world->p2p;
	struct wait_call call = {.words = words, .count = count, .any = true};
	uint64_t hash = hash_words(words, count);
	/* A proof must see the same wait twice, so unchanged words are not written again. */
	if (p2p->shown && p2p->shown_hash == hash)
		return;
	wait_show(&world->waiter, &call);
	p2p->in_wait_table = true;
	p2p->shown_hash = hash;
	if (!p2p->shown)
		atomic_fetch_sub(world_unpublished(world), 1);
	p2p->shown = true;
}

/* The thread that makes progress learns in its sleep when a peer of its own operations goes, and
 * when its own group fails. If other members have gone since the last look, or another group has
 * failed, an operation with a callback, or one behind its own, may need them. So this makes it look
 * for these, too. */
static void tell_gone(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	struct ls_group *groups[TRANSPORT_AREAS];
	uint64_t events = 0;
	int count = world_hold_all(world, groups);
	for (int i = 0; i < count; i++) {
		struct ranks room;
		const struct ranks *gone = world_gone(groups[i], &room);
		events += (uint64_t)(gone ? ranks_count(gone) : 0) +
			  (failure_status(groups[i]) != LS_OK);
		world_release(groups[i]);
	}
	if (events > p2p->gone_at_look)
		p2p_recheck(world);
	p2p->gone_at_look = events;
}

/* Finds the words that all operations wait for. False: no memory for this many. */
static bool find_words(struct world_p2p *p2p, struct wait_call *call, bool *has_work)
	LOCK_REQUIRES(rank)
{
	struct world_words *room = &p2p->to_show;
	do {
		call->count = 0;
		for (ls_group *group = atomic_load(&p2p->groups); group; group = group->next_p2p) {
			int left = room->max > call->count ? room->max - call->count : 0;
			call->count +=
				mailbox_list_words(group->mailbox, NULL, 0,
						   left ? room->words + call->count : NULL, left);
			*has_work |= mailbox_has_work(group->mailbox);
		}
	} while (call->count > room->max && p2p_words_grow(room, call->count));
	call->words = room->words;
	return call->count <= room->max;
}

void p2p_show(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	struct wait_call call = {.any = true};
	bool has_work = false;
	tell_gone(world);
	lock_rank_acquire(&p2p->lock);
	bool fits = p2p->armed && !p2p->progressing && find_words(p2p, &call, &has_work);
	/* A message that holds up no peer may wait until a thread wants it, because a thread that
	 * may act at any time prevents every proof. */
	bool ready = fits && (has_work || wait_satisfied(&call));
	if (fits && !ready) {
		show_words(world, call.words, call.count);
	} else {
		hide_words(world);
		if (p2p->in_wait_table)
			wait_thread_leave(&world->waiter);
		p2p->in_wait_table = false;
	}
	lock_rank_release(&p2p->lock);
	if (ready)
		wait_wake_progress(world_bell(world));
}
