/* SPDX-License-Identifier: BSD-3-Clause
 * Measures what the copies of staged payloads take, for the choice of stores and of the way in
 * which a message travels (op/tuner.h). */
#include "mailbox/mailbox_private.h"

/* Shorter payloads are staged with plain stores, some of them under the mailbox's lock. */
static bool is_measured(const struct op *op)
{
	return op->call.send.bytes >= UINT64_C(1) << OP_TUNER_MIN_LOG2;
}

bool mailbox_begin_stores(struct mailbox *mailbox, struct op *op)
{
	struct op_tuner_use *use = &op->p2p.stores;
	uint64_t bytes = op->call.send.bytes;
	if (!is_measured(op) || !mailbox->peers[op->call.peer].is_here)
		return false;
	lock_mail_acquire(&mailbox->lock);
	bool nontemporal = op_tuner_begin(
		&mailbox->tuner, op->p2p.staged_all ? OP_CHOICE_STAGE : OP_CHOICE_STAGE_PIECES,
		PLAN_STORES_AUTO, bytes, bytes, use);
	lock_mail_release(&mailbox->lock);
	return nontemporal;
}

/* If the payload was staged whole, the stores count only if the receiver alone has copied it. */
void mailbox_end_stores(struct mailbox *mailbox, const struct op *op)
{
	const struct op_p2p *p2p = &op->p2p;
	uint64_t theirs = p2p->pieces - p2p->pieces_copied;
	bool counts = p2p->stores.at && (p2p->staged_all ? !p2p->pieces_copied : theirs > 0);
	if (!counts && !p2p->transfer.at)
		return;
	/* The copies of a blocking send overlap. A nonblocking send may be one of many, which wait
	 * for each other: only its own copies count. */
	bool overlaps = p2p->transfer.choice == OP_CHOICE_SEND_BLOCKING && !p2p->staged_all;
	uint64_t copied = atomic_load_explicit(&p2p->rts->ticks, memory_order_relaxed);
	uint64_t elapsed = atomic_load_explicit(&p2p->rts->elapsed, memory_order_relaxed);
	uint64_t staging = p2p->staged_all ? p2p->ticks : p2p->staging_ticks;
	uint64_t alone = p2p->staged_all || p2p->staged_late ? staging : 0;
	lock_mail_acquire(&mailbox->lock);
	if (counts)
		op_tuner_record(&p2p->stores, staging + copied * p2p->pieces / theirs);
	if (p2p->transfer.at)
		op_tuner_record(&p2p->transfer, overlaps ? elapsed : copied + alone);
	lock_mail_release(&mailbox->lock);
}
