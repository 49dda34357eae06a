/* SPDX-License-Identifier: BSD-3-Clause
 * An operation cannot continue: the reason becomes the cause of its group, unless the group has
 * one. */
#include "base/ranks.h"
#include "engine/end.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"

/* Adds what the operation itself has found, if it failed for that reason: other counts, or the
 * message that a receive has matched, which is known even if its sender's record is gone. For any
 * other reason another thread may be advancing the operation, and write these fields. */
static void add_found(const struct ls_request *op, struct diagnose_hint *hint)
{
	const struct mail_envelope *envelope = &op->base.p2p.message.envelope;
	if (hint->status != LS_MISMATCH && hint->status != LS_TRUNCATED)
		return;
	op_count_difference(&op->base, &hint->sent, &hint->expected);
	if (op->base.call.kind != TRACE_RECV || hint->status != op->base.status)
		return;
	hint->sent = envelope->count;
	hint->expected = op->base.call.count;
	hint->matched = (struct diagnose_matched){.known = true,
						  .tag = envelope->tag,
						  .sent_dtype = envelope->dtype,
						  .expected_dtype = (uint32_t)op->base.call.dtype,
						  .record = envelope->record};
}

/* A member on another host that has left may have called other collectives than this rank. Then
 * that mismatch is the cause. Its end arrived only after this rank had entered. */
static void add_difference(const struct ls_request *op, struct diagnose_hint *hint)
{
	const struct ls_group *group = op->group;
	struct engine_difference found;
	int q = world_rank_in(group, hint->peer);
	if (hint->status != LS_PEER_LEFT || !op_is_collective(op->base.call.kind) || q < 0 ||
	    transport_is_here(&group->team, q) || !engine_end_arrived(&group->engine, q, &found) ||
	    found.status != LS_MISMATCH)
		return;
	hint->status = found.status;
	hint->seq = found.seq;
	hint->record = 0;
}

ls_status progress_op_fail(const struct ls_request *op, ls_status reason, int world_peer,
			   const struct ranks *needs)
{
	struct diagnose_hint hint = {.status = reason,
				     .rank = op->group->world->rank,
				     .peer = world_peer,
				     .group = op->group->id,
				     .seq = op->base.seq,
				     .record = op->base.record,
				     .needs = needs ? *needs : (struct ranks){{0}}};
	progress_thread_replace(op->group->world);
	add_found(op, &hint);
	add_difference(op, &hint);
	ls_status cause = failure_raise(op->group, &hint, op_is_collective(op->base.call.kind));
	/* There is no cause if the words of this group are another's by now. The operation has
	 * failed all the same. */
	if (cause != LS_OK)
		return cause;
	return ls_status_scope(reason) == LS_SCOPE_GROUP ? reason : LS_ABORTED;
}

ls_status progress_op_fail_gone(const struct ls_request *op, const struct ranks *gone, int member)
{
	const ls_group *group = op->group;
	ls_status reason = LS_PEER_LEFT;
	int whom = member;
	struct ranks blamed = member >= 0 ? ranks_of(member) : *gone;
	/* If several are gone, one that died is blamed before one that left. */
	RANKS_EACH (q, &blamed) {
		bool died = !wait_peer_has_left(&group->peers[world_rank_of(group, q)]);
		if (whom < 0 || (died && reason == LS_PEER_LEFT))
			whom = q;
		reason = died ? LS_PEER_DIED : reason;
	}
	return progress_op_fail(op, reason, world_rank_of(group, whom), NULL);
}
