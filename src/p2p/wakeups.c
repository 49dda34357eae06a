/* SPDX-License-Identifier: BSD-3-Clause
 * How threads of a rank that make progress on its sends and receives, or wait for the one that
 * does, wake each other: by a word that counts wake-ups. */
#include "base/clock.h"
#include "world/registry.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

/* The area of the world group has the word, for threads of all groups. */
static struct transport_area *area_of(const struct world *world)
{
	return transport_area_at(world->transport.segment, world->size, 0);
}

uint64_t p2p_wakeups(const struct world *world)
{
	return atomic_load(&area_of(world)->p2p_wakeups);
}

void p2p_wakeups_word(const struct world *world, uint64_t seen, struct wait_word *out)
{
	const struct transport_area *area = area_of(world);
	const char *start = (const char *)world->transport.segment;
	*out = (struct wait_word){
		.word = &area->p2p_wakeups,
		.edge = {.value = seen + 1,
			 .offset = (uint64_t)((const char *)&area->p2p_wakeups - start),
			 .owner = world->rank,
			 .peer = -1, /* another thread of this rank */
			 .segment = WAIT_SEGMENT_MAPPED}};
}

void p2p_wake_all(struct world *world)
{
	atomic_fetch_add(&area_of(world)->p2p_wakeups, 1);
	wait_wake(world->waiter.bell);
}

void p2p_wake_followers(struct world *world)
{
	if (atomic_load(&world->p2p.followers) > 0)
		p2p_wake_all(world);
}

void p2p_recheck(struct world *world)
{
	/* Sequentially consistent, like the other side: either the thread that makes progress sees
	 * this store, or this thread sees that one in `followers`. */
	atomic_fetch_add(&world->p2p.rechecks, 1);
	p2p_wake_followers(world);
}

bool p2p_sleeps_too_long(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	uint64_t until_ns = p2p_next_check_ns(p2p);
	if (!atomic_load(&world->progress.there) || p2p->progressing ||
	    until_ns >= p2p->asleep_until_ns)
		return false;
	p2p->asleep_until_ns = until_ns;
	return true;
}

void p2p_note_lingering(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	if (!atomic_load(&p2p->lingering) && atomic_load(&p2p->lingering_until_ns) == CLOCK_NEVER)
		return;
	lock_rank_acquire(&p2p->lock);
	bool lingers = atomic_load(&p2p->lingering) > 0;
	atomic_store(&p2p->lingering_until_ns,
		     lingers ? clock_deadline_ns(PROGRESS_SLICE_MS) : CLOCK_NEVER);
	bool late = p2p_sleeps_too_long(world);
	lock_rank_release(&p2p->lock);
	if (late)
		wait_wake_progress(world_bell(world));
}
