/* SPDX-License-Identifier: BSD-3-Clause
 * One pass of progress over all sends and receives that outlive their call. Finds the words that
 * the thread that makes progress has to wait for. */
#include <stdlib.h>

#include "base/clock.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

enum { SOON_NS = 1000000 };

void p2p_words_init(struct world_words *words)
{
	words->words = words->few;
	words->max = WAIT_EDGE_MAX;
}

void p2p_words_fini(struct world_words *words)
{
	if (words->words != words->few)
		free(words->words);
	p2p_words_init(words);
}

bool p2p_words_grow(struct world_words *words, int count)
{
	struct wait_word *more = malloc(2 * (size_t)count * sizeof *more);
	if (!more)
		return false;
	p2p_words_fini(words);
	words->words = more;
	words->max = 2 * count;
	return true;
}

void p2p_words_of(const ls_group *group, struct wait_word *words, int count)
{
	for (int i = 0; i < count; i++)
		words[i].peers = group->peers;
}

int p2p_pass_own(const struct p2p_pass *pass, const ls_group *group, struct mailbox_awaited *own)
{
	const struct ls_request *head = pass->head;
	bool has_head = head && head->group == group && !progress_op_is_complete(head);
	int count = 0;
	for (int i = 0; i < pass->count; i++) {
		const struct ls_request *op = pass->ops[i];
		if (!op || !progress_op_is_p2p(op) || progress_op_is_complete(op))
			continue;
		bool behind = has_head && progress_waits_for_sends(op);
		if (op->group != group && !behind)
			continue;
		own[count++] =
			(struct mailbox_awaited){.op = &op->base,
						 .before = behind ? &head->base : NULL,
						 .alternative = op->is_batch ? (uint32_t)i + 1 : 0};
	}
	return count;
}

/* Returns an operation that needs a member in `gone`; NULL: none. Looks only at operations with a
 * callback or on a stream, because a thread may wait for these outside Lockstep. For all others the
 * thread that waits finds out by itself; until then the operation may be cancelled. */
struct ls_request *p2p_needing(ls_group *group, const struct ranks *gone, int *peer, bool *again)
{
	struct world_p2p *p2p = &group->world->p2p;
	struct ls_request *needing = NULL;
	bool self_only;
	*again = false;
	for (struct ls_request *op = p2p->urgent_count ? p2p->first : NULL; op && !needing;
	     op = op->next) {
		if (op->group != group || !p2p_wakes(op) || !atomic_load(&op->begun))
			continue;
		if (progress_op_is_lost(op, gone, peer, &self_only))
			needing = op;
		*again |= self_only;
	}
	if (*again && p2p->self_only_until_ns == CLOCK_NEVER)
		p2p->self_only_until_ns = clock_now_ns() + group->waiter.look_ns;
	return needing;
}

static void fail_needing(ls_group *group)
{
	int peer = -1;
	bool again;
	struct ranks room;
	const struct ranks *gone = world_gone(group, &room);
	struct world_p2p *p2p = &group->world->p2p;
	if (!gone)
		return;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *needing = p2p_needing(group, gone, &peer, &again);
	if (needing)
		progress_op_ref(needing); /* another thread may cancel and free it */
	lock_rank_release(&p2p->lock);
	if (!needing) {
		for (int w = 0; w < RANKS_WORLD_WORDS; w++)
			atomic_store(&group->trace_entry->spared[w], again ? 0 : gone->words[w]);
		return;
	}
	if (!progress_op_is_complete(needing)) {
		ls_status status = progress_op_fail_gone(needing, gone, peer);
		(void)status; /* all operations of the group end with this status */
	}
	progress_op_unref(needing);
}

static void pass_group(struct p2p_pass *pass, ls_group *group)
{
	struct mailbox_awaited own[P2P_ANY_MAX];
	if (p2p_pending(group) == 0)
		return;
	int count = p2p_pass_own(pass, group, own), words = 0;
	uint32_t busy = mailbox_busy(group->mailbox);
	int room = pass->word_count < pass->word_max ? pass->word_max - pass->word_count : 0;
	pass->more |= mailbox_progress(group->mailbox, own, count,
				       room ? pass->words + pass->word_count : NULL, room, &words);
	p2p_words_of(group, pass->words + pass->word_count, words < room ? words : room);
	pass->word_count += words;
	p2p_collect(group);
	if (failure_status(group) == LS_OK)
		fail_needing(group);
	if (failure_status(group) != LS_OK)
		p2p_end_all(group, false);
	/* The words of operations whose device is still busy were not tested. */
	pass->more |= mailbox_busy(group->mailbox) > busy;
}

/* Whether the operation's caller is about to begin it, and so still writes to it. */
static bool is_being_begun(const struct ls_request *op)
{
	return op->claimed && !atomic_load_explicit(&op->begun, memory_order_acquire);
}

/* Whether the operation has failed, so that its time limit counts no more. */
static bool has_failed(const struct ls_request *op)
{
	return atomic_load(&op->base.p2p.state) == OP_P2P_DEVICE_BUSY ||
	       atomic_load(&op->base.p2p.lingers);
}

/* An operation whose time limit has passed, with a reference; NULL: none. */
static struct ls_request *find_late(struct world *world)
{
	struct world_p2p *p2p = &world->p2p;
	struct ls_request *late = NULL;
	uint64_t now = clock_now_ns(), next = CLOCK_NEVER;
	lock_rank_acquire(&p2p->lock);
	p2p->self_only_until_ns = CLOCK_NEVER; /* a group passed after this sets it */
	if (p2p->first && p2p->next_deadline_ns <= now) {
		for (struct ls_request *op = p2p->first; op; op = op->next) {
			uint64_t deadline_ns = has_failed(op) ? CLOCK_NEVER : op->deadline_ns;
			if (deadline_ns <= now && is_being_begun(op))
				deadline_ns = now + SOON_NS;
			if (deadline_ns <= now && !late)
				late = op;
			else if (deadline_ns < next)
				next = deadline_ns;
		}
		p2p->next_deadline_ns = next;
	}
	if (late)
		progress_op_ref(late); /* another thread may end it meanwhile */
	lock_rank_release(&p2p->lock);
	return late;
}

/* Fails the group of an operation that is late and still in progress. */
static void fail_late(struct p2p_pass *pass, struct ls_request *late)
{
	if (!progress_op_is_complete(late)) {
		ls_status status = progress_op_fail(late, LS_TIMED_OUT, -1, NULL);
		(void)status; /* as in fail_needing */
		p2p_end_all(late->group, false);
		pass->more = true; /* what the pass found of this group is void */
	}
	progress_op_unref(late);
}

void p2p_progress_pass(struct world *world, struct p2p_pass *pass)
{
	pass->word_count = 0;
	pass->more = false;
	pass->rechecks = atomic_load_explicit(&world->p2p.rechecks, memory_order_acquire);
	struct ls_request *late = find_late(world);
	for (ls_group *group = atomic_load(&world->p2p.groups); group; group = group->next_p2p)
		pass_group(pass, group);
	/* Only now, because what has arrived before the limit counts. */
	if (late)
		fail_late(pass, late);
	if (world->p2p.serial)
		pass->more |= p2p_begin_next(world);
	p2p_note_lingering(world);
}

bool p2p_pass(struct world *world)
{
	struct p2p_pass pass = {.ops = NULL};
	p2p_progress_pass(world, &pass);
	return pass.more;
}

struct ls_request *p2p_head(struct world_p2p *p2p)
{
	if (!p2p->serial)
		return NULL;
	lock_rank_acquire(&p2p->lock);
	struct ls_request *head = progress_first_ordered(p2p);
	if (head && !atomic_load_explicit(&head->begun, memory_order_acquire))
		head = NULL;
	if (head)
		progress_op_ref(head);
	lock_rank_release(&p2p->lock);
	return head;
}
