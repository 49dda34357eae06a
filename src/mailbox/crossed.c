/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks that each send to another one of them, wait for that send, and only then receive: with long
 * messages all would have waited forever. Each rank publishes in shared memory which message it had
 * sent before it received which. The rank that receives last sees what all others published,
 * sequentially consistent, and finds itself at the end of the chain.
 *
 *   ring from source to dest: `crossed` = the `run` messages of this ring up to `position` had
 *   been sent, each waited for, before the source began the call that received message `taken` of
 *   rank `from`
 *
 * So that rank finds only what certainly happened, provided that one thread of each of these ranks
 * made all the calls. The next publication overwrites the last.
 *
 * A rank that has begun a nonblocking receive from any source publishes nothing any more: until the
 * rank waits for that receive, it might have taken what a later receive has received, if another
 * message had not come first. */
#include "base/ranks.h"
#include "mailbox/mailbox_private.h"

enum { POSITION_BITS = 25, RANK_BITS = 10, RUN_MAX = 15, OFTEN = 256, RARELY = 1024 };
static const uint64_t position_mask = (UINT64_C(1) << POSITION_BITS) - 1;
_Static_assert(1 << RANK_BITS >= RANKS_WORLD_MAX &&
		       RUN_MAX < 1 << (64 - 2 * POSITION_BITS - RANK_BITS),
	       "a number for each member, and room for the run");

/* The content of the word `crossed`; run is 0 if nothing was published. */
struct crossed {
	uint64_t position, run, taken;
	int from;
};

static uint64_t pack(const struct crossed *published)
{
	return published->run << (2 * POSITION_BITS + RANK_BITS) |
	       (published->position & position_mask) << (POSITION_BITS + RANK_BITS) |
	       (uint64_t)published->from << POSITION_BITS | (published->taken & position_mask);
}

static struct crossed unpack(uint64_t word)
{
	return (struct crossed){.run = word >> (2 * POSITION_BITS + RANK_BITS),
				.position = word >> (POSITION_BITS + RANK_BITS) & position_mask,
				.from = (int)(word >> POSITION_BITS & ((1 << RANK_BITS) - 1)),
				.taken = word & position_mask};
}

static bool has_sent(const struct crossed *published, uint64_t position)
{
	return ((published->position - position) & position_mask) < published->run;
}

static uint64_t waited_sends(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->waited_sends, memory_order_relaxed);
}

void mailbox_note_sent(struct mailbox *mailbox, int dest, enum mailbox_sending how)
{
	struct mailbox_crossing *crossing = &mailbox->crossing;
	struct mailbox_peer *peer = &mailbox->peers[dest];
	uint64_t position = peer->out.next - 1; /* just posted */
	if (how != MAILBOX_WAITED) {
		peer->waited_from = 0;
	} else {
		peer->waited_from = peer->waited_from ? peer->waited_from : position;
		uint64_t run = position - peer->waited_from + 1;
		crossing->to = dest;
		crossing->position = position;
		crossing->run = run < RUN_MAX ? (uint32_t)run : RUN_MAX;
	}
	if (how == MAILBOX_HANDLE) {
		/* The thread has waited for a handle twice: the count proves nothing any more. */
		crossing->waits_unknown |= waited_sends(mailbox) > crossing->begun;
		crossing->begun++;
		crossing->begun_to = dest;
		crossing->begun_position = position;
	}
}

/* All short sends share one handle, so nobody knows for which of them the thread has waited. But
 * the count shows when the thread has waited for all. */
static void note_waited(struct mailbox *mailbox) LOCK_REQUIRES(mail)
{
	struct mailbox_crossing *crossing = &mailbox->crossing;
	if (crossing->begun == crossing->waited_up_to || crossing->waits_unknown ||
	    waited_sends(mailbox) != crossing->begun)
		return;
	crossing->waited_up_to = crossing->begun;
	crossing->to = crossing->begun_to;
	crossing->position = crossing->begun_position;
	crossing->run = 1;
}

/* A check reads a cache line of each rank. So only the first receives are checked, and later one in
 * RARELY; the ranks of a ring check the same ones. */
static bool count_and_choose(struct mailbox_crossing *crossing)
{
	uint32_t count = crossing->count++;
	return count < OFTEN || count % RARELY == 0;
}

bool mailbox_crossed(struct mailbox *mailbox, const struct mail_message *message)
{
	const struct transport_team *team = mailbox->team;
	struct mailbox_crossing *crossing = &mailbox->crossing;
	note_waited(mailbox);
	int to = crossing->to, dest = team->rank;
	struct crossed mine = {.position = crossing->position & position_mask,
			       .run = crossing->run,
			       .from = message->source,
			       .taken = message->position & position_mask};
	struct crossed published = mine;
	struct ranks *ring = &crossing->ring;
	crossing->to = -1;
	if (to < 0 || mailbox->several_threads || crossing->left_any_open ||
	    !count_and_choose(crossing))
		return false;
	*ring = (struct ranks){{0}};
	atomic_store(&mailbox->peers[to].to->crossed, pack(&mine));
	for (int i = 0; i < team->size && published.from < team->size; i++) {
		int from = published.from;
		if (!transport_is_here(team, dest) && from != team->rank)
			return false; /* this host does not know what other ranks send to dest */
		ranks_add(ring, from);
		if (from == team->rank)
			return dest == to && has_sent(&mine, published.taken);
		struct crossed next =
			unpack(atomic_load(&transport_mail(team, dest, from)->crossed));
		if (!has_sent(&next, published.taken))
			return false;
		dest = from;
		published = next;
	}
	return false;
}

struct ranks mailbox_crossed_ranks(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	struct ranks ring = mailbox->crossing.ring;
	lock_mail_release(&mailbox->lock);
	return ring;
}
