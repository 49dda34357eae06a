/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks that each send to another one of them, wait for that, and only then receive: had their messages been long, all
 * would have waited for ever. Each tells in shared memory which message it had sent before it received which; whoever
 * receives last sees all the others, sequentially consistent, and finds itself at the end of the chain.
 *
 *   box of the source -> dest: `crossed` = message `position` of this box had been sent, and waited for, before the source
 *   began the call that received message `taken` of rank `from`
 *
 * So only what was surely so is found; what was told of is forgotten with the next one. */
#include "engine/mailbox.h"

enum { POSITION_BITS = 29, RANK_BITS = 6, OFTEN = 256, RARELY = 1024 };
static const uint64_t position_mask = (UINT64_C(1) << POSITION_BITS) - 1;

static uint64_t pack(uint64_t position, int from, uint64_t taken)
{
	return (position & position_mask) << (POSITION_BITS + RANK_BITS) |
	       (uint64_t)from << POSITION_BITS | (taken & position_mask);
}

static uint64_t waited_sends(const struct engine *engine)
{
	return atomic_load_explicit(&engine->waited_sends, memory_order_relaxed);
}

void engine_mailbox_note_sent(struct engine *engine, int dest, bool blocks)
{
	struct engine_mailbox *mailbox = engine->mailbox;
	struct mailbox_crossing *crossing = &mailbox->crossing;
	uint64_t position = mailbox->peers[dest].out.next - 1; /* just posted */
	if (blocks) {
		crossing->to = dest;
		crossing->position = position;
		crossing->beside = false;
	} else {
		/* One was waited for twice: then nothing is sure any more. */
		crossing->unsure |= waited_sends(engine) > crossing->begun;
		crossing->begun++;
		crossing->begun_to = dest;
		crossing->begun_position = position;
	}
}

/* Handles of short sends are one, so it cannot be told which was waited for; but it can when all were. */
static void note_waited(struct engine *engine)
{
	struct mailbox_crossing *crossing = &engine->mailbox->crossing;
	if (crossing->begun == crossing->seen || crossing->unsure ||
	    waited_sends(engine) != crossing->begun)
		return;
	crossing->seen = crossing->begun;
	crossing->to = crossing->begun_to;
	crossing->position = crossing->begun_position;
	crossing->beside = true;
}

/* A look costs a cache line of each rank: at first always, and then now and then; each rank of a ring at the same. */
static bool has_turn(struct mailbox_crossing *crossing)
{
	uint32_t count = crossing->count++;
	return count < OFTEN || count % RARELY == 0;
}

uint64_t engine_mailbox_crossed(struct engine *engine, const struct mail_message *message)
{
	const struct transport_team *team = engine->team;
	struct mailbox_crossing *crossing = &engine->mailbox->crossing;
	note_waited(engine);
	int to = crossing->to, from = message->source, dest = team->rank;
	uint64_t taken = message->position & position_mask, ring = 0;
	crossing->to = -1;
	/* Of two ranks and calls that block the envelopes tell: engine_mailbox_is_unsafe. */
	if (to < 0 || engine->mailbox->mixed || (to == from && !crossing->beside) ||
	    !has_turn(crossing))
		return 0;
	atomic_store(&engine->mailbox->peers[to].to->crossed, pack(crossing->position, from, taken));
	for (int i = 0; i < team->size && from < team->size; i++) {
		ring |= UINT64_C(1) << from;
		if (from == team->rank)
			return dest == to && taken == (crossing->position & position_mask) ? ring
											   : 0;
		uint64_t told = atomic_load(&transport_mail(team, dest, from)->crossed);
		if (told >> (POSITION_BITS + RANK_BITS) != taken)
			return 0;
		dest = from;
		from = (int)(told >> POSITION_BITS & (PLAN_SIZE_MAX - 1));
		taken = told & position_mask;
	}
	return 0;
}
