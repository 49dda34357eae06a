/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives after their group has failed: when one ends, no rank touches its buffers any more. */
#include "engine/engine_private.h"
#include "op/stream.h"
#include "hosts/hosts.h"

/* Counts peers that have entered this collective and not finished it. */
static int still_inside(struct engine *engine, struct op *op, const struct ranks *gone)
{
	const struct transport_team *team = engine->team;
	op->word_count = 0;
	for (int q = 0; q < team->size; q++) {
		/* Only ranks of this host touch windows. */
		if (q == team->rank || ranks_among(gone, q) || !transport_is_here(team, q))
			continue;
		const _Atomic uint64_t *signal = &transport_entry(team, q, op->seq)->signal;
		const _Atomic uint64_t *finished = &transport_area_of(team, q)->finished;
		if (!transport_signal_reached(atomic_load_explicit(signal, memory_order_seq_cst),
					      transport_signal(op->seq, 0)))
			continue;
		if (atomic_load_explicit(finished, memory_order_acquire) < op->seq)
			transport_wait_word(team, q, finished, op->seq, q,
					    &op->words[op->word_count++]);
	}
	return op->word_count;
}

/* Whether the link to other hosts touches none of this operation's buffers any more. With `force`
 * this rank cuts the peers for which the link touches some. Then it waits only for the thread that
 * makes progress on the link. */
static bool link_is_off_buffers(struct engine *engine, struct op *op, bool force)
{
	struct transport_team *team = engine->team;
	op->word_count = 0;
	hosts_withdraw(team);
	for (int q = 0; q < team->size; q++) {
		struct wait_word *word = &op->words[op->word_count];
		bool fetches = op->fetching && op->fetching_from == q;
		if (transport_is_here(team, q))
			continue;
		if (force && (fetches || !transport_channel_quiet(team, q, word)))
			hosts_cut(team->transport, team->members[q].world);
		if (!transport_channel_quiet(team, q, word))
			op->word_count++;
	}
	ls_status status = op->status;
	int culprit = op->culprit;
	if (op->fetching && engine_step_fetch(engine, op) == OP_FAILED) {
		op->status = status; /* of the first failure */
		op->culprit = culprit;
	}
	return op->word_count == 0;
}

enum op_progress engine_abandon_host(struct engine *engine, struct op *op, const struct ranks *gone,
				     bool force)
{
	if (op->state == OP_STATE_COMPLETE || op->state == OP_STATE_AWAIT_ALL)
		return OP_DONE;
	op->any_suffices = false;
	if (engine->ops) {
		enum op_progress progress = engine_ops_abandon(engine, op, force);
		if (progress != OP_DONE)
			return progress;
	}
	struct transport_team *team = engine->team;
	if (team->host_count > 1 && !link_is_off_buffers(engine, op, force))
		return OP_BLOCKED;
	bool shown = engine_window_is_shown(op);
	if (op->state != OP_STATE_ENTER) {
		wait_store(&transport_area_of(team, team->rank)->finished, op->seq);
		transport_notify_all(team);
		if (shown && still_inside(engine, op, gone) > 0 && !force)
			return OP_BLOCKED;
	}
	bool lost = op->state != OP_STATE_ENTER && shown && op->word_count > 0;
	bool safe = !lost || engine_window_revoke(engine, op);
	engine_window_release(engine, op, lost);
	op->state = OP_STATE_COMPLETE;
	return safe ? OP_DONE : OP_FAILED;
}
