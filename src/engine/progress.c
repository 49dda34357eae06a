/* SPDX-License-Identifier: BSD-3-Clause
 * Makes progress on all detached sends and receives of a group, in whichever thread calls; and ends
 * them when they are cancelled, or when the group fails. */
#include "engine/p2p_words.h"

/* ---- what has arrived, and what there is room for ---- */

/* Peers for which there was room. */
struct woken {
	bool any;
	uint64_t words[RANKS_WORLD_WORDS]; /* ranks_bit */
};

static void note_woken(struct woken *woken, int q)
{
	woken->any = true;
	woken->words[q / 64] |= ranks_bit(q);
}

/* Adds those who are to be woken. */
static void move(struct mailbox *mailbox, struct woken *woken) LOCK_REQUIRES(mail)
{
	for (int q = 0; q < mailbox->team->size; q++) {
		const struct mailbox_peer *peer = &mailbox->peers[q];
		if (peer->posted_count || mailbox->posted.any_source)
			engine_mailbox_arrive(mailbox, q);
		if (peer->queue && engine_mailbox_flush_peer(mailbox, q))
			note_woken(woken, q);
	}
}

static void wake(struct mailbox *mailbox, const struct woken *woken)
{
	for (int w = 0; w < RANKS_WORLD_WORDS && woken->any; w++)
		for (uint64_t left = woken->words[w]; left; left &= left - 1)
			transport_request_progress(mailbox->team, 64 * w + __builtin_ctzll(left));
}

/* ---- operations that have an RTS slot ---- */

/* Advances one operation; true if it is complete. */
static bool advance_one(struct mailbox *mailbox, struct engine_op *op, struct engine_words *list,
			bool *more)
{
	struct wait_word words[2];
	op->words = words;
	enum engine_progress progress = engine_p2p_copy_pieces(mailbox, op);
	bool is_complete = progress != ENGINE_BLOCKED && progress != ENGINE_MORE;
	*more |= progress == ENGINE_MORE;
	for (int i = 0; i < op->word_count && !is_complete; i++)
		engine_words_add(list, op, &words[i]);
	op->words = NULL; /* they are this call's own */
	op->word_count = 0;
	return is_complete;
}

static void put_back(struct mailbox *mailbox, struct engine_op *kept) LOCK_REQUIRES(mail)
{
	struct engine_op **at = &kept;
	while (*at) {
		struct engine_op *op = *at;
		if (op->p2p.cancelled) {
			*at = op->p2p.next;
			engine_mailbox_end_cancelled(mailbox, op);
		} else {
			at = &op->p2p.next;
		}
	}
	*at = mailbox->active; /* operations that were added meanwhile */
	mailbox->active = kept;
}

bool engine_p2p_progress(struct mailbox *mailbox, const struct engine_awaited *own, int own_count,
			 struct wait_word *words, int max, int *count)
{
	struct engine_words list = {.words = words, .max = max, .own = own, .own_count = own_count};
	struct engine_op *kept = NULL, **last = &kept, *complete = NULL, **complete_last = &complete;
	bool more = false;
	lock_mail_acquire(&mailbox->lock);
	struct woken woken = {.any = false};
	move(mailbox, &woken);
	struct engine_op *op = mailbox->active;
	mailbox->active = NULL;
	lock_mail_release(&mailbox->lock);
	wake(mailbox, &woken);
	while (op) {
		struct engine_op *next = op->p2p.next;
		bool is_complete = advance_one(mailbox, op, &list, &more);
		struct engine_op ***at = is_complete ? &complete_last : &last;
		op->p2p.next = NULL;
		**at = op;
		*at = &op->p2p.next;
		op = next;
	}
	lock_mail_acquire(&mailbox->lock);
	/* Operations that were added meanwhile: no thread has looked at their words. */
	more |= mailbox->active != NULL;
	put_back(mailbox, kept);
	while (complete) {
		struct engine_op *next = complete->p2p.next;
		/* Its word is not in the list. */
		more |= engine_mailbox_is_delivered_next(complete);
		if (complete->status != LS_OK && complete->p2p.rts)
			engine_mailbox_add_complete(mailbox, complete);
		else
			engine_mailbox_complete(mailbox, complete);
		complete = next;
	}
	engine_words_add_others(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	*count = list.count;
	return more;
}

/* ---- for diagnosis ---- */

static void add_all(struct mailbox *mailbox, struct engine_words *list) LOCK_REQUIRES(mail)
{
	struct wait_word word;
	for (struct engine_op *op = mailbox->active; op; op = op->p2p.next) {
		engine_p2p_word(mailbox, op, &word);
		engine_words_add(list, op, &word);
	}
	engine_words_add_others(mailbox, list);
}

int engine_p2p_words(struct mailbox *mailbox, const struct engine_awaited *own, int own_count,
		     struct wait_word *words, int max)
{
	struct engine_words list = {.words = words,
				    .max = max,
				    .own = own,
				    .own_count = own_count,
				    .only_own = own_count > 0};
	lock_mail_acquire(&mailbox->lock);
	add_all(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	return list.count;
}

bool engine_p2p_is_ready(struct mailbox *mailbox)
{
	struct engine_words list = {.asks = true};
	lock_mail_acquire(&mailbox->lock);
	add_all(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	return list.found || engine_p2p_has_work(mailbox);
}

/* Since the probe has looked, another thread may have moved its message to the unexpected ones. */
static bool is_unexpected(const struct mailbox *mailbox, int source, int tag) LOCK_REQUIRES(mail)
{
	for (int q = 0; q < mailbox->team->size; q++)
		if ((source == MATCH_ANY || source == q) &&
		    engine_mailbox_find_unexpected(&mailbox->peers[q], tag) >= 0)
			return true;
	return false;
}

/* For an unmatched receive or probe. */
static enum engine_need need_of_source(struct mailbox *mailbox, int source, int tag,
				       const struct ranks *gone) LOCK_REQUIRES(mail)
{
	int size = mailbox->team->size, here = 0;
	struct wait_word word;
	if (is_unexpected(mailbox, source, tag))
		return ENGINE_NEEDS_NOBODY;
	if (source != MATCH_ANY) {
		engine_mailbox_source_word(mailbox, source, &word);
		return ranks_among(gone, source) && !engine_word_is_there(&word)
			       ? ENGINE_NEEDS_GONE
			       : ENGINE_NEEDS_NOBODY;
	}
	for (int q = 0; q < size; q++)
		here += !ranks_among(gone, q) && q != mailbox->team->rank;
	if (size == 1 || here > 0)
		return ENGINE_NEEDS_NOBODY;
	for (int q = 0; q < size; q++) {
		engine_mailbox_source_word(mailbox, q, &word);
		if (engine_word_is_there(&word))
			return ENGINE_NEEDS_NOBODY;
	}
	return ENGINE_NEEDS_SELF;
}

/* Whether the peer of the operation has done its part. The operation may advance meanwhile, so this
 * reads only fields of its RTS slot that no longer change. */
static bool is_served(struct mailbox *mailbox, const struct engine_op *op,
		      enum engine_p2p_stage stage) LOCK_REQUIRES(mail)
{
	const struct engine_p2p *p2p = &op->p2p;
	const struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	const struct mail_rts *rts = &peer->from->rts[p2p->index % MAIL_RTS];
	struct wait_word word;
	switch (stage) {
	case ENGINE_P2P_QUEUED:
		engine_mailbox_room_word(mailbox, op->call.peer, &word);
		return engine_word_is_there(&word);
	case ENGINE_P2P_SENT:
		rts = p2p->rts;
		if (!rts || p2p->cancelled)
			return true;
		transport_wait_word(mailbox->team, op->call.peer, &rts->done,
				    transport_mail_word(p2p->generation, 0), op->call.peer, &word);
		return engine_word_is_there(&word);
	case ENGINE_P2P_MATCHED:
		/* Otherwise there is something to copy. */
		return !transport_mail_unstaged(rts, p2p->generation, p2p->pieces);
	case ENGINE_P2P_DRAINING:
		transport_wait_word(
			mailbox->team, mailbox->team->rank, &rts->source_copied,
			transport_mail_word(p2p->generation, p2p->pieces - p2p->pieces_copied),
			op->call.peer, &word);
		return p2p->pieces_copied == p2p->pieces || engine_word_is_there(&word);
	default: /* it has not begun, or is complete */
		return true;
	}
}

enum engine_need engine_p2p_need(struct mailbox *mailbox, const struct engine_op *op,
				 const struct ranks *gone, int *peer)
{
	enum engine_need need = ENGINE_NEEDS_NOBODY;
	lock_mail_acquire(&mailbox->lock);
	enum engine_p2p_stage stage =
		op->call.kind == TRACE_PROBE ? ENGINE_P2P_POSTED : engine_p2p_stage_of(op);
	*peer = op->call.peer;
	if (stage == ENGINE_P2P_POSTED)
		need = need_of_source(mailbox, *peer, op->call.tag, gone);
	else if (ranks_among(gone, *peer) && !is_served(mailbox, op, stage))
		need = ENGINE_NEEDS_GONE;
	lock_mail_release(&mailbox->lock);
	return need;
}

const _Atomic uint64_t *engine_p2p_self_word(struct mailbox *mailbox)
{
	struct wait_word word;
	lock_mail_acquire(&mailbox->lock);
	engine_mailbox_source_word(mailbox, mailbox->team->rank, &word);
	lock_mail_release(&mailbox->lock);
	return word.word;
}

bool engine_p2p_has_work(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	bool work = mailbox->complete != NULL;
	for (struct engine_op *op = mailbox->active; op && !work; op = op->p2p.next)
		work = engine_p2p_stage_of(op) == ENGINE_P2P_MATCHED && !engine_p2p_unstaged(op);
	lock_mail_release(&mailbox->lock);
	return work;
}

/* ---- left behind ---- */

static bool is_detached(const struct match_entry *entry)
{
	return engine_mailbox_const_op_of(entry)->p2p.detached;
}

static struct engine_op *take_active(struct mailbox *mailbox, bool device_busy) LOCK_REQUIRES(mail)
{
	struct engine_op **at = &mailbox->active;
	while (*at && !device_busy && engine_p2p_stage_of(*at) == ENGINE_P2P_DEVICE_BUSY)
		at = &(*at)->p2p.next;
	struct engine_op *op = *at;
	if (op)
		*at = op->p2p.next;
	if (op && engine_p2p_stage_of(op) == ENGINE_P2P_DEVICE_BUSY)
		atomic_fetch_sub_explicit(&mailbox->device_busy, 1, memory_order_relaxed);
	return op;
}

/* Any detached operation that is not complete, removed from its list. */
static struct engine_op *find_left(struct mailbox *mailbox, bool device_busy) LOCK_REQUIRES(mail)
{
	struct engine_op *op = take_active(mailbox, device_busy);
	if (op)
		return op;
	for (int q = 0; q < mailbox->team->size; q++)
		for (op = mailbox->peers[q].queue; op; op = op->p2p.next)
			if (op->p2p.detached) {
				engine_mailbox_unqueue(&mailbox->peers[q], op);
				return op;
			}
	struct match_entry *entry = engine_match_first(&mailbox->posted, is_detached);
	if (entry)
		engine_mailbox_forget(mailbox, engine_mailbox_op_of(entry));
	return entry ? engine_mailbox_op_of(entry) : NULL;
}

void engine_p2p_await_device(struct mailbox *mailbox, struct engine_op *op)
{
	lock_mail_acquire(&mailbox->lock);
	op->p2p.rts = NULL; /* no peer knows of it any more */
	if (op->status == LS_OK)
		op->status = LS_ABORTED;
	atomic_fetch_add_explicit(&mailbox->pending, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&mailbox->device_busy, 1, memory_order_relaxed);
	engine_mailbox_activate(mailbox, op, ENGINE_P2P_DEVICE_BUSY);
	lock_mail_release(&mailbox->lock);
}

uint32_t engine_p2p_device_busy(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->device_busy, memory_order_relaxed);
}

struct engine_op *engine_p2p_remove(struct mailbox *mailbox, bool device_busy)
{
	lock_mail_acquire(&mailbox->lock);
	struct engine_op *op = find_left(mailbox, device_busy);
	if (op) {
		atomic_fetch_sub_explicit(&mailbox->pending, 1, memory_order_relaxed);
		/* No peer knows of an operation without an RTS slot. */
		if (!op->p2p.rts)
			engine_p2p_set_stage(op, ENGINE_P2P_COMPLETE);
	}
	lock_mail_release(&mailbox->lock);
	return op;
}

enum engine_progress engine_p2p_probe(struct mailbox *mailbox, int source, int tag,
				      struct mail_message *out, struct wait_word *words, int *count)
{
	return engine_mailbox_peek(mailbox, source, tag, out, words, count) ? ENGINE_DONE
									    : ENGINE_BLOCKED;
}
