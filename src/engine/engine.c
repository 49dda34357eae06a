/* SPDX-License-Identifier: BSD-3-Clause
 * Life of an operation in the engine of the processor: choose the plan, enter, run the steps,
 * leave; or abandon it after a failure so that nobody touches the caller's buffers any more. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/prefetch.h"
#include "engine/engine_ops.h"
#include "engine/engine_private.h"
#include "engine/inline.h"
#include "memory/memory.h"
#include "op/device.h"
#include "op/stream.h"
#include "hosts/hosts.h"

static const enum plan_algorithm wanted_of[] = {
	[SETTING_ALGORITHM_AUTO] = PLAN_NONE,         [SETTING_ALGORITHM_DIRECT] = PLAN_DIRECT,
	[SETTING_ALGORITHM_PULL] = PLAN_PULL,         [SETTING_ALGORITHM_RING] = PLAN_RING,
	[SETTING_ALGORITHM_DOUBLING] = PLAN_DOUBLING, [SETTING_ALGORITHM_TREE] = PLAN_TREE,
	[SETTING_ALGORITHM_PAIRWISE] = PLAN_PAIRWISE,
};

ls_status engine_init(struct engine *engine, struct transport_team *team, struct trace *trace,
		      struct memory *memory, const struct settings *settings)
{
	*engine = (struct engine){.team = team,
				  .trace = trace,
				  .memory = memory,
				  .wanted = wanted_of[settings->algorithm],
				  .completes_together = settings->blocking != 0,
				  .cma = (enum setting_cma)settings->cma,
				  .fragment_bytes = ENGINE_FRAGMENT_BYTES};
	engine->steps_max = plan_steps_max(&(struct plan_params){.size = team->transport->size});
	engine->steps = calloc(ENGINE_PLANS * engine->steps_max, sizeof *engine->steps);
	engine->bounce = aligned_alloc(64, ENGINE_BOUNCE_BYTES);
	if (!engine->steps || !engine->bounce) {
		MESSAGE_SAY(MESSAGE_ENGINE_MEMORY, engine->steps_max);
		engine_fini(engine);
		return LS_OUT_OF_MEMORY;
	}
	return LS_OK;
}

static void copy_table(struct plan_table *to, const struct plan_table *from)
{
	memcpy(to, from, offsetof(struct plan_table, lines));
	memcpy(to->lines, from->lines, (size_t)from->total * sizeof to->lines[0]);
}

void engine_begin(struct engine *engine, const _Atomic uint64_t *cause,
		  const struct plan_table *table)
{
	const struct transport_team *team = engine->team;
	if (engine->ops)
		engine_use(engine, NULL, NULL);
	engine->cause = cause;
	engine->history = engine->entered_by_all = 0;
	engine->payload_next = 0;
	memset(engine->payload_seqs, 0, sizeof engine->payload_seqs);
	engine->members = transport_team_ranks(team);
	if (engine->rank == team->rank && engine->size == team->size &&
	    memcmp(engine->hosts, team->hosts, (size_t)team->size * sizeof team->hosts[0]) == 0)
		return; /* plans and memos are valid for these members, too */
	engine->rank = team->rank;
	engine->size = team->size;
	memcpy(engine->hosts, team->hosts, sizeof engine->hosts);
	engine->topology =
		(struct plan_topology){.host_count = team->host_count, .hosts = engine->hosts};
	copy_table(&engine->table, table);
	plan_table_narrow(&engine->table, team->size);
	memset(engine->memos, 0, sizeof engine->memos);
	for (int i = 0; i < ENGINE_PLANS; i++)
		engine->plans[i].valid = false;
}

void engine_fini(struct engine *engine)
{
	free(engine->steps);
	free(engine->bounce);
	*engine = (struct engine){0};
}

static bool same_params(const struct plan_params *a, const struct plan_params *b)
{
	return a->collective == b->collective && a->algorithm == b->algorithm &&
	       a->root == b->root && a->in_place == b->in_place;
}

static void forget_memos(struct engine *engine, const struct engine_plan *plan)
{
	for (int kind = 0; kind < TRACE_KIND_COUNT; kind++)
		if (engine->memos[kind].plan == plan)
			engine->memos[kind].plan = NULL;
}

/* The plan for these parameters, from the small table or built into it. NULL: there is none. */
static const struct engine_plan *plan_for(struct engine *engine, const struct plan_params *params)
{
	uint32_t key = (uint32_t)params->collective | (uint32_t)params->algorithm << 4 |
		       (uint32_t)params->root << 8 | (uint32_t)params->in_place << 16;
	/* Fibonacci hashing. */
	uint32_t slot = key * UINT32_C(0x9e3779b1) >> (32 - ENGINE_PLAN_BITS);
	struct engine_plan *entry = &engine->plans[slot];
	if (entry->valid && same_params(&entry->params, params))
		return entry;
	forget_memos(engine, entry);
	entry->valid = plan_build(params, engine->steps + slot * engine->steps_max, &entry->plan);
	if (!entry->valid)
		return NULL;
	entry->params = *params;
	const struct plan *plan = &entry->plan;
	entry->needs_staging = plan->needs_scratch ||
			       plan->reach[PLAN_INPUT] != PLAN_REACH_PRIVATE ||
			       plan->reach[PLAN_OUTPUT] != PLAN_REACH_PRIVATE;
	entry->may_switch_to_pull =
		plan->collective == COLL_ALLREDUCE && plan->algorithm == PLAN_DIRECT;
	entry->always_in_rounds = plan->algorithm == PLAN_RAILS;
	entry->reads_windows = plan->collective != COLL_BARRIER &&
			       (plan->algorithm == PLAN_DIRECT || plan->algorithm == PLAN_PULL ||
				plan->algorithm == PLAN_RAILS);
	entry->begins_with_input = entry->always_in_rounds && params->in_place &&
				   plan->own < plan->blocks &&
				   plan->steps[0].kind != PLAN_STEP_AWAIT;
	entry->last_await_guards =
		entry->reads_windows && plan->step_count > 0 &&
		plan->steps[plan->step_count - 1].kind == PLAN_STEP_AWAIT &&
		(plan->reach[PLAN_OUTPUT] != PLAN_REACH_MAPPED || plan->algorithm == PLAN_RAILS);
	/* The algorithm follows from the rest unless ranks were given different settings. */
	entry->signature = (uint64_t)params->algorithm << 24 | (uint64_t)params->root << 32;
	return entry;
}

static void record_plan(struct engine *engine, const struct op *op)
{
	trace_plan(engine->trace, op->record, op->plan->plan.algorithm,
		   (uint16_t)op->plan->plan.step_count);
}

/* Packs the arguments that must be the same on all ranks, except the count; mixes in the lists of
 * counts. Those of an all-to-allv are compared pair by pair. */
static uint64_t signature_of(const struct op *op)
{
	uint64_t signature = op->plan->signature | (uint64_t)op->call.kind |
			     (uint64_t)op->call.dtype << 8 | (uint64_t)op->call.reduce << 16;
	return op->call.counts && !op->call.recv_counts ? engine_mix(signature, op->call.shape)
							: signature;
}

static uintptr_t distance_of(const struct op_call *call)
{
	return call->send.address && call->recv.address
		       ? (uintptr_t)call->recv.address - (uintptr_t)call->send.address
		       : 0;
}

static bool recall_memo(struct engine *engine, struct op *op)
{
	const struct op_call *call = &op->call;
	const struct engine_memo *memo = &engine->memos[call->kind];
	if (!memo->plan || call->counts || call->count != memo->count ||
	    call->dtype != memo->dtype || call->reduce != memo->reduce || call->peer != memo->peer ||
	    distance_of(call) != memo->distance || (call->send.address != NULL) != memo->has_send ||
	    (call->recv.address != NULL) != memo->has_recv)
		return false;
	op->plan = memo->plan;
	op->choice = memo->choice;
	op->element_bytes = memo->element_bytes;
	op->signature = memo->signature;
	op->starts = op->recv_starts = NULL;
	return true;
}

static void remember_memo(struct engine *engine, const struct op *op)
{
	const struct op_call *call = &op->call;
	if (call->counts)
		return;
	engine->memos[call->kind] = (struct engine_memo){
		.dtype = call->dtype,
		.reduce = call->reduce,
		.peer = call->peer,
		.count = call->count,
		.distance = distance_of(call),
		.has_send = call->send.address != NULL,
		.has_recv = call->recv.address != NULL,
		.plan = op->plan,
		.choice = op->choice,
		.element_bytes = op->element_bytes,
		.signature = op->signature,
	};
	engine_inline_learn(engine, op, &engine->memos[call->kind].inline_plan);
}

/* Finds the plan, and fills the fields that it needs. False, with op->status: there is no plan. */
static bool prepare_plan(struct engine *engine, struct op *op, struct op_workspace *workspace)
{
	if (recall_memo(engine, op))
		return true;
	struct plan_params params;
	engine_buffers_set(engine, op, workspace, &params);
	op->plan = plan_for(engine, &params);
	if (!op->plan) {
		op->status = LS_INTERNAL;
		return false;
	}
	op->signature = signature_of(op);
	remember_memo(engine, op);
	return !op->call.recv_counts ||
	       engine_step_expects(op, params.rank, op->call.counts[params.rank]);
}

static void submit_host(void *self, struct op *op, struct op_workspace *workspace)
{
	struct engine *engine = self;
	op_reset(op, workspace);
	op->step = 0;
	op->fetching = NULL;
	op->plan = NULL;
	op->output_block = op->scratch_block = NULL;
	op->input_window = op->output_window = TRANSPORT_WINDOW_NONE;
	op->output_offset = 0;
	op->has_untaken = false;
	memset(op->checked, 0, sizeof workspace->checked);
	memset(op->untaken, 0, sizeof workspace->untaken);
	bool prepared = prepare_plan(engine, op, workspace);
	if (!op->plan)
		return;
	engine_fragment_none(op);
	if (op->plan->always_in_rounds)
		engine_fragment_begin(engine, op, 0);
	record_plan(engine, op);
	if (!prepared)
		return;
	op->input = op->call.send.address;
	op->output = op->call.recv.address;
	if (engine->ops)
		engine_ops_submit(engine, op);
	else if (op->plan->needs_staging || engine_is_scaled(op))
		engine_window_stage(engine, op);
}

/* Whether all peers have entered collective `seq`; if not, op->words are the words to wait for. */
static bool all_have_entered(struct engine *engine, struct op *op, uint64_t seq)
{
	const struct transport_team *team = engine->team;
	uint64_t value = transport_signal(seq, 0);
	op->word_count = 0;
	for (int q = 0; q < team->size; q++) {
		if (q == team->rank)
			continue;
		const _Atomic uint64_t *signal = &transport_entry(team, q, seq)->signal;
		if (!transport_signal_reached(atomic_load_explicit(signal, memory_order_acquire),
					      value))
			transport_wait_word(team, q, signal, value, q, &op->words[op->word_count++]);
	}
	if (op->word_count > 0)
		return false;
	engine->entered_by_all = seq;
	return true;
}

static enum op_progress check_room(struct engine *engine, struct op *op)
{
	uint64_t last = engine_room_awaits(engine, op->seq, engine_window_payload(op));
	return last == 0 || all_have_entered(engine, op, last) ? OP_DONE : OP_BLOCKED;
}

static void publish_entry(struct engine *engine, struct op *op)
{
	struct transport_team *team = engine->team;
	struct transport_entry *entry = transport_entry(team, team->rank, op->seq);
	/* Atomically, because a diagnosis may read these two meanwhile: transport_read_entered. */
	__atomic_store_n(&entry->signature, op->signature, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->count, engine_common_count(op), __ATOMIC_RELEASE);
	entry->history = op->history = engine->history;
	engine_window_publish(engine, op);
	wait_store(&entry->signal, transport_signal(op->seq, 0));
	transport_notify_all(team);
	if (entry->input_window == TRANSPORT_WINDOW_INLINE)
		engine_payload_prefetch(engine, op->call.send.bytes);
	engine->history =
		engine_mix(engine_mix(engine->history, op->signature), engine_common_count(op));
}

/* Whether peers have taken this operation's long messages. Stops at a peer on another host
 * (any_suffices): the words are those of its channel then. */
static enum op_progress check_taken(struct engine *engine, struct op *op)
{
	op->word_count = 0;
	for (int w = 0; w < RANKS_WORLD_WORDS && op->has_untaken; w++)
		for (uint64_t left = op->untaken[w]; left && !op->any_suffices; left &= left - 1)
			if (engine_step_taken(engine, op, 64 * w + __builtin_ctzll(left)) ==
			    OP_FAILED)
				return OP_FAILED;
	return op->word_count ? OP_BLOCKED : OP_DONE;
}

/* Adapts the plan to the entries of the awaited peers: fragments, or PULL in place of DIRECT. If
 * all were awaited, all ranks see the same; otherwise only ranks whose windows I read matter. */
static bool adapt_plan(struct engine *engine, struct op *op, const struct plan_step *awaited)
{
	struct plan_params params = op->plan->params;
	if (op->rounds == 1 && !op->call.counts &&
	    engine_window_shows_fragments(engine, op, awaited->peer))
		engine_fragment_begin(engine, op, op->step - 1); /* earlier steps are done */
	if (!op->plan->may_switch_to_pull || !engine_window_shows_address(engine, op))
		return true;
	params.algorithm = PLAN_PULL;
	op->plan = plan_for(engine, &params);
	if (!op->plan)
		return false;
	record_plan(engine, op);
	return true;
}

/* `finished` is stored last: a peer that sees it knows that the result is in the caller's buffer,
 * and that nothing of the operation is left to do here. */
static void leave_collective(struct engine *engine, struct op *op)
{
	struct transport_team *team = engine->team;
	if (op->input_block || op->output_block || op->scratch_block) {
		engine_window_deliver(op);
		engine_window_release(engine, op, false);
	}
	prefetch_for_store(transport_entry(team, team->rank, op->seq + 1));
	op->state = engine->completes_together ? OP_STATE_AWAIT_ALL : OP_STATE_COMPLETE;
	_Atomic uint64_t *finished = &transport_area_of(team, team->rank)->finished;
	if (!engine->completes_together) {
		atomic_store_explicit(finished, op->seq, memory_order_release);
		return;
	}
	wait_store(finished, op->seq);
	transport_notify_all(team);
	if (team->host_count > 1) /* ranks of other hosts wait for `finished`, and for the entry */
		hosts_push(team->transport);
}

/* Setting BLOCKING: compares the entries of all ranks; whether all have finished. A rank in
 * which the collective failed also counts as finished, but has set the cause before. */
static enum op_progress check_all_finished(struct engine *engine, struct op *op)
{
	const struct transport_team *team = engine->team;
	enum op_progress progress = engine_check_all(engine, op);
	/* A rank that has failed before it entered never enters. */
	if (progress == OP_BLOCKED && engine_has_failed(engine))
		return op_fail(op, LS_ABORTED, -1);
	if (progress != OP_DONE)
		return progress;
	for (int q = 0; q < team->size; q++) {
		const _Atomic uint64_t *finished = &transport_area_of(team, q)->finished;
		if (atomic_load_explicit(finished, memory_order_acquire) < op->seq)
			transport_wait_word(team, q, finished, op->seq, q,
					    &op->words[op->word_count++]);
	}
	if (op->word_count > 0)
		return OP_BLOCKED;
	if (engine_has_failed(engine))
		return op_fail(op, LS_ABORTED, -1);
	op->state = OP_STATE_COMPLETE;
	return OP_DONE;
}

static enum op_progress enter_collective(struct engine *engine, struct op *op)
{
	enum op_progress progress = check_room(engine, op);
	if (progress != OP_DONE)
		return progress;
	publish_entry(engine, op);
	op->state = OP_STATE_ENTERED;
	return OP_DONE;
}

static enum op_progress check_ends(struct engine *engine, struct op *op)
{
	op->state = OP_STATE_STEPS;
	/* A failing rank sets the cause, then reads which ranks have entered. This rank has
	 * entered, then reads the cause. So the failing rank waits for this rank, or this rank
	 * stops here. */
	if (engine_has_failed(engine))
		return op_fail(op, LS_ABORTED, -1);
	/* A rank that closes the group raises members_ended, then reads what this rank has entered.
	 * So the closing rank sees this collective, or this rank sees that the group is being
	 * closed. */
	const struct transport_area *mine = transport_area_of(engine->team, engine->team->rank);
	return atomic_load(&mine->members_ended) ? engine_end_check(engine, op) : OP_DONE;
}

static enum op_progress advance_host(void *self, struct op *op)
{
	struct engine *engine = self;
	enum op_progress progress = OP_DONE;
	op->any_suffices = false;
	if (op->state == OP_STATE_ENTER) {
		progress = enter_collective(engine, op);
		if (progress != OP_DONE)
			return progress;
	}
	if (op->state == OP_STATE_ENTERED) {
		progress = check_ends(engine, op);
		if (progress != OP_DONE)
			return progress;
	}
	if (op->state == OP_STATE_STEPS && engine->ops) {
		progress = engine_ops_advance(engine, op);
		if (progress != OP_DONE)
			return progress;
		op->state = OP_STATE_AWAIT_TAKEN;
	}
	if (op->state == OP_STATE_STEPS) {
		do {
			while (op->step < op->plan->plan.step_count) {
				const struct plan_step *step = &op->plan->plan.steps[op->step];
				progress = engine_steps[step->kind](engine, op, step);
				if (progress != OP_DONE)
					return progress;
				op->step++;
				if (op->plan->reads_windows && op->round == 0 &&
				    step->kind == PLAN_STEP_AWAIT && step->phase == 0 &&
				    !adapt_plan(engine, op, step))
					return op_fail(op, LS_INTERNAL, -1);
				trace_step(engine->trace, op->record, op->step);
			}
		} while (engine_fragment_next(engine, op));
		op->state = OP_STATE_AWAIT_TAKEN;
	}
	if (op->state == OP_STATE_AWAIT_TAKEN) {
		progress = check_taken(engine, op);
		if (progress != OP_DONE)
			return progress;
		if (engine_has_failed_hint(engine) && !engine_window_is_whole(engine, op))
			return op_fail(op, LS_ABORTED, -1);
		leave_collective(engine, op);
	}
	return op->state == OP_STATE_AWAIT_ALL ? check_all_finished(engine, op) : OP_DONE;
}

static enum op_progress abandon_host(void *self, struct op *op, const struct ranks *gone, bool force)
{
	return engine_abandon_host(self, op, gone, force);
}

static enum op_progress withdraw(void *self, struct op *op, bool force)
{
	return engine_ops_withdraw(self, op, force);
}

static const struct op_runner runner = {.submit = submit_host,
					.advance = advance_host,
					.abandon = abandon_host,
					.withdraw = withdraw};

void engine_submit(struct engine *engine, struct op *op, struct op_workspace *workspace)
{
	op->device.state = OP_DEVICE_NONE;
	/* Another engine has its own way to the memory of its devices. */
	bool has_own_way = engine->ops || !memory_inspects_buffers(engine->memory);
	if (op_is_on_stream(op))
		op_device_submit_on_stream(op, workspace);
	else if (has_own_way ||
		 !op_device_submit(engine->memory, op, workspace, &engine->device_done))
		submit_host(engine, op, workspace);
}

void engine_inline_resume(struct engine *engine, struct op *op, struct op_workspace *workspace,
			  uint64_t history)
{
	engine_submit(engine, op, workspace);
	op->history = history;
	op->state = OP_STATE_ENTERED;
}

enum op_progress engine_advance(struct engine *engine, struct op *op)
{
	if (op->status == LS_PENDING)
		return op_device_advance(engine->memory, op, &runner, engine);
	return op->status == LS_OK ? advance_host(engine, op) : OP_FAILED;
}

enum op_progress engine_abandon(struct engine *engine, struct op *op, const struct ranks *gone,
				bool force)
{
	return op->device.state == OP_DEVICE_NONE && !op_is_on_stream(op)
		       ? engine_abandon_host(engine, op, gone, force)
		       : op_device_abandon(engine->memory, op, &runner, engine, gone, force);
}
