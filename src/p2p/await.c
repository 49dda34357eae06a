/* SPDX-License-Identifier: BSD-3-Clause
 * Waiting for sends and receives that outlive their call: one waiting thread makes progress on
 * all of them, and the others wait for it. */
#include <stdlib.h>

#include "base/clock.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p_private.h"

static bool is_any_complete(ls_request *const *ops, int count)
{
	for (int i = 0; i < count; i++)
		if (ops[i] && progress_op_is_complete(ops[i]))
			return true;
	return false;
}

static const struct ls_request *first_of(ls_request *const *ops, int count)
{
	const struct ls_request *first = NULL;
	for (int i = 0; i < count && !first; i++)
		first = ops[i];
	return progress_representative(first);
}

static uint64_t deadline_of(struct world_p2p *p2p, uint64_t until_ns)
{
	lock_rank_acquire(&p2p->lock);
	uint64_t next = p2p->next_deadline_ns;
	lock_rank_release(&p2p->lock);
	return next < until_ns ? next : until_ns;
}

struct ls_request *p2p_first_collective(ls_request *const *ops, int count)
{
	struct ls_request *first = NULL;
	for (int i = 0; i < count; i++)
		if (ops[i] && !progress_op_is_p2p(ops[i]) &&
		    (!first || ops[i]->base.seq < first->base.seq))
			first = ops[i];
	return first;
}

/* If there are collectives among the operations: words[0] waits for the one that completes first,
 * which the progress thread runs. Returns the number of words. */
static int lane_word(ls_request *const *ops, int count, struct wait_word *words)
{
	const struct ls_request *earliest = p2p_first_collective(ops, count);
	if (!earliest)
		return 0;
	const struct ls_group *group = earliest->group;
	transport_wait_word(&group->team, group->rank,
			    &transport_area_of(&group->team, group->rank)->completed_seq,
			    earliest->base.seq, group->rank, &words[0]);
	words[0].edge.peer = -1; /* another thread of this rank */
	words[0].edge.record = (uint32_t)earliest->base.record;
	return 1;
}

/* The words that a wait publishes, be it of the thread that makes progress or of a thread that
 * waits for it: the words of one operation, and those of others. */
struct shown {
	ls_group *group; /* whose cause ends the wait */
	uint64_t record;
	bool has_own_limit, partial, busy;
	uint64_t since_ns; /* as of struct progress_pause */
	struct wait_word *words;
	int count, max; /* max: words of the thread's own operations */
};

/* first: the first of the operations that the thread waits for. */
static struct shown shown_of(const struct ls_request *op, const struct ls_request *first,
			     const struct progress_pause *pause, struct wait_word *words, int count)
{
	return (struct shown){.group = op->group,
			      .record = op->base.record,
			      .has_own_limit = progress_pause_has_own_limit(pause, first) ||
					       op->has_own_limit,
			      .since_ns = pause->since_ns,
			      .words = words,
			      .count = count};
}

/* until_ns may be earlier than the time limit of the wait, because something has to be checked by
 * then. */
static ls_status wait_once(const struct shown *shown, uint64_t until_ns, int *peer)
{
	struct world *world = shown->group->world;
	struct waiter *waiter = shown->busy ? &shown->group->quiet : &shown->group->waiter;
	uint64_t deadline_ns = deadline_of(&world->p2p, until_ns);
	struct wait_call call = {
		.words = shown->words,
		.count = shown->count,
		.any = true,
		.has_own_limit = shown->has_own_limit,
		.partial = shown->partial,
		/* As in progress/run.c: until the group of the late operation has failed. */
		.remains_shown = deadline_ns < until_ns && !shown->partial,
		.deadline_ns = deadline_ns,
		.since_ns = shown->since_ns,
		.group = shown->group->id,
		.record = shown->record,
	};
	if (wait_briefly(waiter, &call))
		return LS_OK;
	uint64_t start = clock_ticks();
	ls_status status = wait_words(waiter, &call, peer);
	trace_waited(&world->trace, clock_ticks() - start);
	return status;
}

/* ---- without members that are gone ---- */

static bool has_own(const struct wait_word *words, int count)
{
	for (int i = 0; i < count; i++)
		if (words[i].edge.record != WAIT_RECORD_OTHERS)
			return true;
	return false;
}

/* Whether the words mislead a diagnosis, in a wait that shows an operation of this group: it
 * assumes that a rank that has left the group does nothing more, but that rank may act in another
 * group. */
static bool would_mislead(const ls_group *group, const struct wait_word *words, int count)
{
	for (int i = 0; i < count; i++) {
		const struct wait_word *word = &words[i];
		if (word->peers != group->peers && word->edge.peer >= 0 &&
		    word->edge.record != WAIT_RECORD_OTHERS &&
		    world_rank_in(group, word->edge.peer) >= 0)
			return true;
	}
	return false;
}

/* Marks the words of members that are gone as OTHERS, so that the wait does not end for these
 * members: nothing that is awaited can come from them; with `self` it may come from this rank's
 * other threads. `gone` must have been read before need_of was asked. */
static void leave_out(ls_group *group, const struct ranks *gone, bool self, struct wait_word *words,
		      int count)
{
	if (!gone)
		return;
	const _Atomic uint64_t *mine = self ? mailbox_self_word(group->mailbox) : NULL;
	uint64_t ruled_out = 0;
	for (int i = 0; i < count; i++) {
		struct wait_edge *edge = &words[i].edge;
		if (words[i].peers != group->peers)
			continue;
		int q = edge->peer < 0 ? -1 : world_rank_in(group, edge->peer);
		if (words[i].word == mine) {
			edge->record = 0;
		} else if (ranks_have(gone, q)) {
			ruled_out |= edge->alternative ? UINT64_C(1) << (edge->alternative - 1) : 0;
			edge->record = WAIT_RECORD_OTHERS;
		}
	}
	/* All words of an alternative belong to one group, except those of the head. */
	for (int i = 0; i < count; i++)
		if (words[i].edge.alternative && ruled_out >> (words[i].edge.alternative - 1) & 1)
			words[i].edge.record = WAIT_RECORD_OTHERS;
}

/* ---- making progress ---- */

/* Waits for the words of the thread's operations, or until it has to check again, because another
 * thread has begun or completed an operation meanwhile. */
static ls_status wait_or_recheck(struct world *world, struct p2p_pass *pass,
				 const struct progress_pause *pause, uint64_t soon_ns, int *peer)
{
	struct world_p2p *p2p = &world->p2p;
	struct wait_call call = {.words = pass->words, .count = pass->word_count, .any = true};
	const struct ls_request *first = first_of(pass->ops, pass->count);
	ls_status status = LS_OK;
	*peer = -1;
	if (wait_briefly(&first->group->waiter, &call))
		return LS_OK;
	atomic_fetch_add(&p2p->followers, 1);
	struct wait_word *word = &pass->words[pass->word_count];
	p2p_wakeups_word(world, p2p_wakeups(world), word);
	/* A thread that does not show what it waits for is not blocked for sure. */
	word->edge.record = has_own(pass->words, pass->word_count) ? WAIT_RECORD_OTHERS : 0;
	int count = pass->word_count + 1;
	count += lane_word(pass->ops, pass->count, &pass->words[count]);
	struct shown shown =
		shown_of(progress_shown_for(first, pass->head), first, pause, pass->words, count);
	shown.busy = mailbox_busy(shown.group->mailbox) > 0;
	/* The device may wait for an operation of another group, which fails unnoticed here; and
	 * nobody wakes this thread when a peer stops using a buffer. */
	if ((shown.busy || atomic_load(&p2p->lingering) > 0) && soon_ns == CLOCK_NEVER)
		soon_ns = clock_deadline_ns(PROGRESS_SLICE_MS);
	shown.partial = pass->partial || would_mislead(shown.group, pass->words, pass->word_count);
	if (atomic_load(&p2p->rechecks) == pass->rechecks && !is_any_complete(pass->ops, pass->count))
		status = wait_once(&shown, pause->at_ns < soon_ns ? pause->at_ns : soon_ns, peer);
	atomic_fetch_sub(&p2p->followers, 1);
	return status;
}

/* Call after a pass that has left nothing to do at once: waits once. LS_OK: another pass and
 * another wait follow. *waited: how this wait ended. */
static ls_status wait_after_pass(struct world *world, struct p2p_pass *pass,
				 const struct progress_pause *pause,
				 struct progress_self_only *self_only, ls_status *waited)
{
	/* All operations are of one group; the ordered send that represents some may be of
	 * another. */
	ls_group *group = first_of(pass->ops, pass->count)->group;
	ls_group *other = pass->head && pass->head->group != group ? pass->head->group : NULL;
	uint64_t soon = CLOCK_NEVER;
	int peer;
	struct ranks room, room_of_other;
	if (progress_says_gone(*waited)) {
		world_gone_now(group, &room);
		if (other)
			world_gone_now(other, &room);
	}
	*waited = LS_OK;
	const struct ranks *gone = world_gone(group, &room);
	const struct ranks *gone_of_other = other ? world_gone(other, &room_of_other) : NULL;
	if (p2p_fail_without(pass->ops, pass->count, pass->head, self_only))
		return LS_OK;
	pass->partial = pass->word_count > pass->word_max;
	if (pass->partial) {
		if (p2p_words_grow(&world->p2p.to_await, pass->word_count + P2P_EXTRA_WORDS))
			return LS_OK;
		soon = clock_deadline_ns(1); /* the next pass looks at the words left out */
		pass->word_count = pass->word_max;
	}
	leave_out(group, gone, self_only->slice_ns != 0, pass->words, pass->word_count);
	if (other)
		leave_out(other, gone_of_other, false, pass->words, pass->word_count);
	*waited = wait_or_recheck(world, pass, pause, progress_self_only_until(self_only, soon),
				  &peer);
	return *waited == LS_INTERRUPTED ? LS_INTERRUPTED : LS_OK;
}

/* LS_OK when one of the operations is complete, or a thread that closes a group wants to take
 * over. *late: the thread's slot may still show a wait that has timed out. */
static ls_status make_progress(struct world *world, ls_request *const *ops, int count,
			       const struct progress_pause *pause,
			       struct progress_self_only *self_only, bool *more, bool *late)
{
	struct p2p_pass pass = {.ops = ops, .count = count};
	ls_status waited = LS_OK;
	for (;;) {
		ls_status status = LS_OK;
		pass.head = p2p_head(&world->p2p);
		pass.words = world->p2p.to_await.words;
		pass.word_max = world->p2p.to_await.max - P2P_EXTRA_WORDS;
		p2p_progress_pass(world, &pass);
		if (*late)
			wait_hide(&first_of(ops, count)->group->waiter);
		*late = false;
		*more = pass.more;
		bool complete = is_any_complete(ops, count);
		bool waits = !complete && (!pass.more || clock_now_ns() >= pause->at_ns);
		if (waits)
			status = wait_after_pass(world, &pass, pause, self_only, &waited);
		*late = waits && waited == LS_TIMED_OUT;
		if (pass.head)
			progress_op_unref(pass.head);
		if (complete || status != LS_OK || atomic_load(&world->p2p.wanted))
			return status;
		if (!waits)
			continue;
		if (clock_now_ns() >= pause->at_ns && !is_any_complete(ops, count))
			return LS_PENDING;
	}
}

/* ---- threads that wait for the thread that makes progress ---- */

/* The words of the `own` operations, so that a diagnosis sees them. None if one of them has arrived
 * already: then the thread that makes progress is about to continue. */
static int own_words(ls_group *group, const struct mailbox_awaited *own, int own_count,
		     struct wait_word *words, int max)
{
	struct wait_call call = {.words = words, .any = true};
	if (own_count > 0)
		call.count = mailbox_list_words(group->mailbox, own, own_count, words, max);
	if (wait_satisfied(&call) || call.count > max)
		return 0;
	p2p_words_of(group, words, call.count);
	return call.count;
}

/* Shows the words of the head, whose group may be another than that of the operations. The head's
 * group stays valid while the head is in the list, and then because it is held. False: there is no
 * head. */
static bool look_at_head(struct world_p2p *p2p, const struct ls_request *first,
			 const struct progress_pause *pause, struct shown *shown)
{
	lock_rank_acquire(&p2p->lock);
	const struct ls_request *head = progress_first_ordered(p2p);
	bool begun = head && atomic_load_explicit(&head->begun, memory_order_acquire);
	if (begun) {
		const struct mailbox_awaited own = {.op = &head->base};
		ls_group *group = head->group;
		int max = shown->max;
		*shown = shown_of(head, first, pause, shown->words,
				  own_words(group, &own, 1, shown->words, shown->max));
		shown->max = max;
		atomic_fetch_add(&group->holders, 1);
	}
	lock_rank_release(&p2p->lock);
	return begun;
}

/* Shows the words of the operations themselves, of which the first waits for no earlier send. */
static void look_at_own(ls_request *const *ops, int count, const struct ranks *gone,
			const struct progress_self_only *self_only, struct shown *shown)
{
	struct mailbox_awaited own[P2P_ANY_MAX];
	struct p2p_pass pass = {.ops = ops, .count = count};
	ls_group *group = shown->group;
	shown->count =
		own_words(group, own, p2p_pass_own(&pass, group, own), shown->words, shown->max);
	/* Words of ordered sends that wait for earlier ones are missing. */
	for (int i = 0; i < count; i++)
		shown->partial |=
			ops[i] && progress_waits_for_sends(progress_representative(ops[i]));
	leave_out(group, gone, self_only->slice_ns != 0, shown->words, shown->count);
}

/* Fails operations that can never complete because members have gone. The thread that makes
 * progress does the same for the head of the list. */
static void fail_followed(ls_request *const *ops, int count, struct progress_self_only *self_only)
{
	if (!is_any_complete(ops, count))
		p2p_fail_without(ops, count, NULL, self_only); /* the next wait returns it */
}

/* Call when the group of the operations has failed, so that its waits end at once. Waits until
 * another thread has ended one of the operations, or no thread makes progress. */
static void await_end(struct world *world, ls_request *const *ops, int count)
{
	struct wait_word word;
	struct wait_call call = {
		.words = &word, .count = 1, .deadline_ns = clock_deadline_ns(PROGRESS_SLICE_MS)};
	atomic_fetch_add(&world->p2p.followers, 1);
	p2p_wakeups_word(world, p2p_wakeups(world), &word);
	if (!is_any_complete(ops, count) && p2p_is_progressing(&world->p2p)) {
		int peer;
		ls_status status = wait_words(&first_of(ops, count)->group->quiet, &call, &peer);
		(void)status; /* the caller checks again in any case */
	}
	atomic_fetch_sub(&world->p2p.followers, 1);
}

/* Memory for the words of a thread that waits in a job of more than RANKS_HOST_MAX ranks; NULL:
 * there is none. The thread leaves it for the next one: a repeated wait allocates nothing. */
static struct wait_word *take_words(struct world_p2p *p2p, int max)
{
	struct wait_word *words = atomic_exchange(&p2p->follower_words, NULL);
	return words ? words : malloc((size_t)(max + P2P_EXTRA_WORDS) * sizeof *words);
}

static void leave_words(struct world_p2p *p2p, struct wait_word *words)
{
	free(atomic_exchange(&p2p->follower_words, words));
}

/* Waits until a word is stored, one of the operations is complete, or no thread makes progress. The
 * words have room for two more. */
static ls_status rest_as_follower(struct world *world, ls_request *const *ops, int count,
				  struct shown *shown, uint64_t until_ns, int *peer)
{
	struct wait_word *words = shown->words;
	atomic_fetch_add(&world->p2p.followers, 1);
	uint64_t seen = p2p_wakeups(world);
	ls_status status = LS_OK;
	/* A thread that stops making progress from here on sees that this one waits. */
	if (!is_any_complete(ops, count) && p2p_is_progressing(&world->p2p)) {
		struct wait_word *word = &words[shown->count];
		/* That thread listens to messages, and wakes this one. */
		for (int i = 0; i < shown->count; i++)
			words[i].topic = 0;
		p2p_wakeups_word(world, seen, word);
		word->edge.record = has_own(words, shown->count) ? WAIT_RECORD_OTHERS : 0;
		shown->count++;
		shown->count += lane_word(ops, count, &words[shown->count]);
		status = wait_once(shown, until_ns, peer);
	}
	atomic_fetch_sub(&world->p2p.followers, 1);
	return status;
}

/* Waits while another thread makes progress. */
static ls_status await_progress(struct world *world, ls_request *const *ops, int count,
				const struct progress_pause *pause,
				struct progress_self_only *self_only)
{
	struct wait_word few[P2P_FEW_WORDS + P2P_EXTRA_WORDS];
	/* Without memory for all words the thread shows none, if there are more than a few. */
	int max = P2P_ANY_MAX + P2P_WORDS_OF_A_PEER * world->size;
	struct wait_word *many = max > P2P_FEW_WORDS ? take_words(&world->p2p, max) : NULL;
	struct wait_word *words = many ? many : few;
	const struct ls_request *first = first_of(ops, count);
	struct shown shown = shown_of(first, first, pause, words, 0);
	int peer;
	shown.max = many ? max : P2P_FEW_WORDS;
	struct ranks room;
	const struct ranks *gone = world_gone(first->group, &room);
	fail_followed(ops, count, self_only);
	bool waits_for_sends = progress_waits_for_sends(first);
	bool has_head = waits_for_sends && look_at_head(&world->p2p, first, pause, &shown);
	if (!waits_for_sends)
		look_at_own(ops, count, gone, self_only, &shown);
	/* Without words to show, an operation is about to continue, and then has other words. */
	uint64_t soon = shown.count ? CLOCK_NEVER : clock_deadline_ns(PROGRESS_SLICE_MS);
	soon = progress_self_only_until(self_only, soon);
	uint64_t until_ns = pause->at_ns < soon ? pause->at_ns : soon;
	ls_status status = rest_as_follower(world, ops, count, &shown, until_ns, &peer);
	bool failed = failure_status(shown.group) != LS_OK;
	if (has_head)
		world_release(shown.group);
	/* The thread that makes progress checks only its own operations, perhaps of another
	 * group. */
	if (progress_says_gone(status) || self_only->slice_ns) {
		world_gone_now(first->group, &room);
		fail_followed(ops, count, self_only);
	}
	if (status != LS_OK && status != LS_INTERRUPTED)
		p2p_recheck(world);
	if (failed)
		await_end(world, ops, count);
	if (many)
		leave_words(&world->p2p, many);
	return status;
}

/* *late: as in make_progress. */
static ls_status await_any(struct ls_request *const *ops, int count,
			   const struct progress_pause *pause, bool *late)
{
	struct world *world = first_of(ops, count)->group->world;
	struct progress_self_only self_only = {0};
	while (!is_any_complete(ops, count)) {
		ls_status status;
		bool more = false;
		if (p2p_take(&world->p2p)) {
			status = make_progress(world, ops, count, pause, &self_only, &more, late);
			p2p_release(world, more);
		} else {
			status = await_progress(world, ops, count, pause, &self_only);
			*late |= status == LS_TIMED_OUT;
		}
		if (status == LS_INTERRUPTED && world->resumes && pause->at_ns == CLOCK_NEVER)
			continue;
		if (status == LS_INTERRUPTED || status == LS_PENDING)
			return status;
		if (clock_now_ns() >= pause->at_ns && !is_any_complete(ops, count))
			return LS_PENDING;
	}
	return LS_OK;
}

ls_status p2p_await(struct ls_request *const *ops, int count, const struct progress_pause *pause)
{
	bool late = false;
	ls_status status = await_any(ops, count, pause, &late);
	if (late)
		wait_hide(&first_of(ops, count)->group->waiter);
	return status;
}

/* ---- ls_test ---- */

void p2p_poll(const struct ls_request *op)
{
	struct world *world = op->group->world;
	if (!p2p_take(&world->p2p)) {
		/* The group may have failed in a call of this thread, of which the thread that
		 * makes progress does not know. */
		if (!progress_op_is_complete(op) &&
		    (p2p_poll_gone(op) || failure_status(op->group) != LS_OK))
			p2p_recheck(world);
		return;
	}
	bool more = p2p_pass(world);
	struct ls_request *head = progress_op_is_complete(op) ? NULL : p2p_head(&world->p2p);
	bool behind = head && progress_waits_for_sends(op);
	if (!progress_op_is_complete(op) && (p2p_poll_gone(op) || (behind && p2p_poll_gone(head))))
		more = p2p_pass(world);
	if (head)
		progress_op_unref(head);
	p2p_release(world, more);
}
