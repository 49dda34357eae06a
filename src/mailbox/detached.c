/* SPDX-License-Identifier: BSD-3-Clause
 * Makes progress on all detached sends and receives of a group, in whichever thread calls; and ends
 * them when they are cancelled, or when the group fails. */
#include "mailbox/word_list.h"

/* ---- what has arrived, and what there is room for ---- */

/* Peers to wake, because this rank has posted sends to them. */
struct woken {
	bool any;
	uint64_t words[RANKS_WORLD_WORDS]; /* ranks_bit */
};

static void note_woken(struct woken *woken, int q)
{
	woken->any = true;
	woken->words[q / 64] |= ranks_bit(q);
}

/* Matches what has arrived, and posts queued sends. Adds the peers that are to be woken. */
static void match_and_post(struct mailbox *mailbox, struct woken *woken) LOCK_REQUIRES(mail)
{
	for (int q = 0; q < mailbox->team->size; q++) {
		struct mailbox_peer *peer = &mailbox->peers[q];
		peer->in_turn = 0;
		if (peer->posted_count || mailbox->posted.any_source)
			mailbox_arrive(mailbox, q);
		if (peer->queue && mailbox_flush_peer(mailbox, q))
			note_woken(woken, q);
	}
}

static void wake_peers(struct mailbox *mailbox, const struct woken *woken)
{
	for (int w = 0; w < RANKS_WORLD_WORDS && woken->any; w++)
		for (uint64_t left = woken->words[w]; left; left &= left - 1)
			transport_request_progress(mailbox->team, 64 * w + __builtin_ctzll(left));
}

/* ---- operations that have an RTS slot ---- */

/* Advances one operation; true if it is complete. */
static bool advance_one(struct mailbox *mailbox, struct op *op, struct mailbox_words *list,
			bool *more)
{
	struct wait_word words[2];
	op->words = words;
	enum op_progress progress = mailbox_copy_pieces(mailbox, op);
	bool is_complete = progress != OP_BLOCKED && progress != OP_MORE;
	*more |= progress == OP_MORE;
	for (int i = 0; i < op->word_count && !is_complete; i++)
		mailbox_words_add(list, op, &words[i]);
	op->words = NULL; /* the words are this call's own */
	op->word_count = 0;
	return is_complete;
}

static void put_back(struct mailbox *mailbox, struct op *kept) LOCK_REQUIRES(mail)
{
	struct op **at = &kept;
	while (*at) {
		struct op *op = *at;
		if (op->p2p.cancelled) {
			*at = op->p2p.next;
			mailbox_end_cancelled(mailbox, op);
		} else {
			at = &op->p2p.next;
		}
	}
	*at = mailbox->active; /* operations that were added meanwhile */
	mailbox->active = kept;
}

bool mailbox_progress(struct mailbox *mailbox, const struct mailbox_awaited *own, int own_count,
		      struct wait_word *words, int max, int *count)
{
	struct mailbox_words list = {.words = words, .max = max, .own = own, .own_count = own_count};
	struct op *kept = NULL, **last = &kept, *complete = NULL, **complete_last = &complete;
	bool more = false;
	lock_mail_acquire(&mailbox->lock);
	struct woken woken = {.any = false};
	match_and_post(mailbox, &woken);
	struct op *op = mailbox->active;
	mailbox->active = NULL;
	lock_mail_release(&mailbox->lock);
	wake_peers(mailbox, &woken);
	while (op) {
		struct op *next = op->p2p.next;
		bool is_complete = advance_one(mailbox, op, &list, &more);
		struct op ***at = is_complete ? &complete_last : &last;
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
		struct op *next = complete->p2p.next;
		/* The word of the stream is not in the list. */
		more |= mailbox_needs_delivery(complete);
		if (complete->status != LS_OK && complete->p2p.rts) {
			complete->p2p.ends_failed = true;
			mailbox_add_complete(mailbox, complete);
		} else {
			mailbox_complete(mailbox, complete);
		}
		complete = next;
	}
	mailbox_words_add_others(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	*count = list.count;
	return more;
}

/* ---- for diagnosis ---- */

static void list_all_words(struct mailbox *mailbox, struct mailbox_words *list) LOCK_REQUIRES(mail)
{
	struct wait_word word;
	for (struct op *op = mailbox->active; op; op = op->p2p.next) {
		mailbox_rts_word(mailbox, op, &word);
		mailbox_words_add(list, op, &word);
	}
	mailbox_words_add_others(mailbox, list);
}

int mailbox_list_words(struct mailbox *mailbox, const struct mailbox_awaited *own, int own_count,
		       struct wait_word *words, int max)
{
	struct mailbox_words list = {.words = words,
				     .max = max,
				     .own = own,
				     .own_count = own_count,
				     .only_own = own_count > 0};
	lock_mail_acquire(&mailbox->lock);
	list_all_words(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	return list.count;
}

bool mailbox_is_ready(struct mailbox *mailbox)
{
	struct mailbox_words list = {.asks = true};
	lock_mail_acquire(&mailbox->lock);
	list_all_words(mailbox, &list);
	lock_mail_release(&mailbox->lock);
	return list.found || mailbox_has_work(mailbox);
}

/* Whether such a message has arrived: since the probe has looked, another thread may have moved the
 * message to the unexpected ones. */
static bool is_unexpected(const struct mailbox *mailbox, int source, int tag) LOCK_REQUIRES(mail)
{
	for (int q = 0; q < mailbox->team->size; q++)
		if ((source == MATCH_ANY || source == q) &&
		    mailbox_find_unexpected(&mailbox->peers[q], tag) >= 0)
			return true;
	return false;
}

/* What an unmatched receive or probe needs. */
static enum mailbox_need need_of_source(struct mailbox *mailbox, int source, int tag,
					const struct ranks *gone) LOCK_REQUIRES(mail)
{
	int size = mailbox->team->size, here = 0;
	struct wait_word word;
	if (is_unexpected(mailbox, source, tag))
		return MAILBOX_NEEDS_NOBODY;
	if (source != MATCH_ANY) {
		mailbox_source_word(mailbox, source, &word);
		return ranks_among(gone, source) && !mailbox_word_has_come(&word)
			       ? MAILBOX_NEEDS_GONE
			       : MAILBOX_NEEDS_NOBODY;
	}
	for (int q = 0; q < size; q++)
		here += !ranks_among(gone, q) && q != mailbox->team->rank;
	if (size == 1 || here > 0)
		return MAILBOX_NEEDS_NOBODY;
	for (int q = 0; q < size; q++) {
		mailbox_source_word(mailbox, q, &word);
		if (mailbox_word_has_come(&word))
			return MAILBOX_NEEDS_NOBODY;
	}
	return MAILBOX_NEEDS_SELF;
}

/* Whether the peer of the operation has done its part. The operation may advance meanwhile, so this
 * reads only fields of its RTS slot that no longer change. */
static bool is_served(struct mailbox *mailbox, const struct op *op, enum op_p2p_state state)
	LOCK_REQUIRES(mail)
{
	const struct op_p2p *p2p = &op->p2p;
	const struct mailbox_peer *peer = &mailbox->peers[op->call.peer];
	const struct mail_rts *rts = &peer->from->rts[p2p->index % MAIL_RTS];
	struct wait_word word;
	switch (state) {
	case OP_P2P_QUEUED:
		mailbox_room_word(mailbox, op->call.peer, &word);
		return mailbox_word_has_come(&word);
	case OP_P2P_SENT:
		rts = p2p->rts;
		if (!rts || p2p->cancelled)
			return true;
		mailbox_wait_word(mailbox, op->call.peer, &rts->done,
				  transport_mail_word(p2p->generation, 0), op->call.peer, &word);
		return mailbox_word_has_come(&word);
	case OP_P2P_MATCHED:
		/* Otherwise there is something to copy. */
		return !transport_mail_unstaged(rts, p2p->generation, p2p->pieces);
	case OP_P2P_SENDER_COPIES:
		mailbox_wait_word(
			mailbox, mailbox->team->rank, &rts->source_copied,
			transport_mail_word(p2p->generation, p2p->pieces - p2p->pieces_copied),
			op->call.peer, &word);
		return p2p->pieces_copied == p2p->pieces || mailbox_word_has_come(&word);
	default: /* it has not begun, or is complete */
		return true;
	}
}

enum mailbox_need mailbox_needs(struct mailbox *mailbox, const struct op *op,
				const struct ranks *gone, int *peer)
{
	enum mailbox_need need = MAILBOX_NEEDS_NOBODY;
	lock_mail_acquire(&mailbox->lock);
	enum op_p2p_state state =
		op->call.kind == TRACE_PROBE ? OP_P2P_POSTED : mailbox_state_of(op);
	*peer = op->call.peer;
	if (state == OP_P2P_POSTED)
		need = need_of_source(mailbox, *peer, op->call.tag, gone);
	else if (ranks_among(gone, *peer) && !is_served(mailbox, op, state))
		need = MAILBOX_NEEDS_GONE;
	lock_mail_release(&mailbox->lock);
	return need;
}

const _Atomic uint64_t *mailbox_self_word(struct mailbox *mailbox)
{
	struct wait_word word;
	lock_mail_acquire(&mailbox->lock);
	mailbox_source_word(mailbox, mailbox->team->rank, &word);
	lock_mail_release(&mailbox->lock);
	return word.word;
}

bool mailbox_has_work(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	bool work = mailbox->complete != NULL;
	for (struct op *op = mailbox->active; op && !work; op = op->p2p.next)
		work = mailbox_state_of(op) == OP_P2P_MATCHED && !mailbox_unstaged(op);
	lock_mail_release(&mailbox->lock);
	return work;
}

/* ---- left behind ---- */

static bool is_detached(const struct match_entry *entry)
{
	return mailbox_const_op_of(entry)->p2p.detached;
}

static struct op *take_active(struct mailbox *mailbox, bool device_busy) LOCK_REQUIRES(mail)
{
	struct op **at = &mailbox->active;
	while (*at && !device_busy && mailbox_state_of(*at) == OP_P2P_DEVICE_BUSY)
		at = &(*at)->p2p.next;
	struct op *op = *at;
	if (op)
		*at = op->p2p.next;
	if (op && mailbox_state_of(op) == OP_P2P_DEVICE_BUSY)
		atomic_fetch_sub_explicit(&mailbox->busy, 1, memory_order_relaxed);
	return op;
}

/* Any detached operation that is not complete, removed from its list. */
static struct op *find_left(struct mailbox *mailbox, bool device_busy) LOCK_REQUIRES(mail)
{
	struct op *op = take_active(mailbox, device_busy);
	if (op)
		return op;
	for (int q = 0; q < mailbox->team->size; q++)
		for (op = mailbox->peers[q].queue; op; op = op->p2p.next)
			if (op->p2p.detached) {
				mailbox_unqueue(&mailbox->peers[q], op);
				return op;
			}
	struct match_entry *entry = mailbox_match_first(&mailbox->posted, is_detached);
	if (entry)
		mailbox_unpost(mailbox, mailbox_op_of(entry));
	return entry ? mailbox_op_of(entry) : NULL;
}

void mailbox_await_device(struct mailbox *mailbox, struct op *op)
{
	lock_mail_acquire(&mailbox->lock);
	op->p2p.rts = NULL; /* no peer knows of it any more */
	if (op->status == LS_OK)
		op->status = LS_ABORTED;
	mailbox_tally(&mailbox->pending, 1);
	atomic_fetch_add_explicit(&mailbox->busy, 1, memory_order_relaxed);
	mailbox_activate(mailbox, op, OP_P2P_DEVICE_BUSY);
	lock_mail_release(&mailbox->lock);
}

void mailbox_linger(struct mailbox *mailbox, struct op *op)
{
	lock_mail_acquire(&mailbox->lock);
	atomic_store_explicit(&op->p2p.lingers, true, memory_order_relaxed);
	mailbox_tally(&mailbox->pending, 1);
	atomic_fetch_add_explicit(&mailbox->busy, 1, memory_order_relaxed);
	op->p2p.next = mailbox->lingering;
	mailbox->lingering = op;
	lock_mail_release(&mailbox->lock);
}

struct op *mailbox_take_lingering(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	struct op *first = mailbox->lingering;
	mailbox->lingering = NULL;
	for (struct op *op = first; op; op = op->p2p.next) {
		atomic_store_explicit(&op->p2p.lingers, false, memory_order_relaxed);
		mailbox_tally(&mailbox->pending, -1);
		atomic_fetch_sub_explicit(&mailbox->busy, 1, memory_order_relaxed);
	}
	lock_mail_release(&mailbox->lock);
	return first;
}

bool mailbox_is_lingering(struct mailbox *mailbox)
{
	lock_mail_acquire(&mailbox->lock);
	bool lingers = mailbox->lingering != NULL;
	lock_mail_release(&mailbox->lock);
	return lingers;
}

uint32_t mailbox_busy(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->busy, memory_order_relaxed);
}

struct op *mailbox_remove(struct mailbox *mailbox, bool device_busy)
{
	lock_mail_acquire(&mailbox->lock);
	struct op *op = find_left(mailbox, device_busy);
	if (op) {
		mailbox_tally(&mailbox->pending, -1);
		op->p2p.ends_failed = true;
		/* No peer knows of an operation without an RTS slot. */
		if (!op->p2p.rts)
			mailbox_set_state(op, OP_P2P_COMPLETE);
	}
	lock_mail_release(&mailbox->lock);
	return op;
}
