/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations that the files of the engine share. */
#ifndef ENGINE_PRIVATE_H
#define ENGINE_PRIVATE_H

#include <string.h>

#include "engine/engine.h"
#include "engine/payload.h"

/* ---- buffers.c ---- */

/* Works out sizes and places of the buffers, and the parameters of the plan. */
void engine_buffers_set(const struct engine *engine, struct op *op, struct op_workspace *workspace,
			struct plan_params *params);
/* The count, if it must be the same on all ranks; otherwise 0. */
static inline uint64_t engine_common_count(const struct op *op)
{
	return op->call.recv_counts ? 0 : op->call.count;
}

/* ---- end.c ---- */

/* Call when this rank has just published a collective and another rank has begun to close the
 * group: compares the collective with those of the ranks that close. */
enum op_progress engine_end_check(struct engine *engine, struct op *op);

/* ---- engine_ops.c: collectives of an engine with engine->ops ---- */

void engine_ops_submit(struct engine *engine, struct op *op);
enum op_progress engine_ops_advance(struct engine *engine, struct op *op);
enum op_progress engine_ops_abandon(struct engine *engine, struct op *op, bool force);
enum op_progress engine_ops_withdraw(struct engine *engine, struct op *op, bool force);

/* ---- abandon.c ---- */

/* As engine_abandon, for an operation whose buffers are in host memory. */
enum op_progress engine_abandon_host(struct engine *engine, struct op *op, const struct ranks *gone,
				     bool force);

/* ---- window.c ---- */

/* Copies buffers to where the plan needs them; op->status is set on failure. Before this call
 * op->input and op->output are the caller's own buffers. */
void engine_window_stage(struct engine *engine, struct op *op);
/* Writes the places of the buffers into the entry. */
void engine_window_publish(struct engine *engine, const struct op *op);
/* How many bytes of payload engine_window_publish will write to pages. */
uint64_t engine_window_payload(const struct op *op);
/* Copies a staged result to the caller's buffer. */
void engine_window_deliver(struct op *op);
/* Frees the staging blocks; with `lost` peers may still touch them, so they are never reused. */
void engine_window_release(struct engine *engine, struct op *op, bool lost);
/* Revokes peers' access to the caller's own buffers; false, after a message, if that is not
 * possible. */
bool engine_window_revoke(struct engine *engine, struct op *op);
/* False if another failed operation of mine has revoked peers' access to pages of my output: what
 * they wrote since then is lost. */
bool engine_window_is_whole(struct engine *engine, const struct op *op);
/* Whether the entry shows buffers of this rank, so that peers may be accessing them. */
static inline bool engine_window_is_shown(const struct op *op)
{
	return op->input_window > TRANSPORT_WINDOW_INLINE ||
	       op->output_window > TRANSPORT_WINDOW_INLINE;
}

/* ---- view.c ---- */

/* A part of one rank's buffer, to be read. */
struct engine_view {
	const unsigned char *at; /* where this process has it mapped; NULL: only by `address` */
	uint64_t address;        /* in the process of `rank` */
	int rank;
};
/* False if the peer's entry is nonsense. */
bool engine_window_open(const struct engine *engine, const struct op *op, int rank,
			enum plan_buffer buffer, uint64_t offset, uint64_t bytes,
			struct engine_view *out);
/* Bytes of a view: where they are mapped, otherwise copied to `room`. NULL, with op->status, if
 * they cannot be read. */
const void *engine_view_bytes(const struct engine *engine, struct op *op,
			      const struct engine_view *view, uint64_t offset, uint64_t bytes,
			      void *room);
/* Copies `bytes` from the beginning of a view, in chunks; reads the cause between chunks. */
enum op_progress engine_view_copy(const struct engine *engine, struct op *op,
				  const struct engine_view *view, unsigned char *to, uint64_t bytes);
/* Whether any rank shows its OUTPUT by address, so that others cannot write to it. Once all ranks
 * have entered, the answer is the same on all. */
bool engine_window_shows_address(const struct engine *engine, const struct op *op);
/* Whether `peer`, or with PLAN_ALL any rank, shows its INPUT or OUTPUT in fragments. */
bool engine_window_shows_fragments(const struct engine *engine, const struct op *op, int peer);
/* Whether rank `rank` shows the buffer in fragments; then offsets count from the beginning of the
 * fragment. */
bool engine_window_is_fragmented(const struct engine *engine, const struct op *op, int rank,
				 enum plan_buffer buffer);
/* Where a buffer of this rank is; its own block of OUTPUT and SCRATCH in rounds: in their slot. */
unsigned char *engine_window_own(const struct op *op, enum plan_buffer buffer);
/* A part of the OUTPUT of rank `rank`, to be written; NULL if its entry is nonsense. */
unsigned char *engine_window_target(const struct engine *engine, const struct op *op, int rank,
				    uint64_t offset, uint64_t bytes);

/* ---- range.c ---- */

/* Blocks of a buffer. `offset` and `bytes` are in bytes. */
struct engine_range {
	uint64_t offset, bytes, elements;
};
/* As rank `owner` shows the buffer. */
struct engine_range engine_range_shown(const struct engine *engine, const struct op *op,
				       unsigned buffer, int owner, unsigned block, unsigned blocks);
/* The blocks of a step in a buffer of this rank's caller, or in a copy of all of it. */
struct engine_range engine_range_own(const struct op *op, unsigned buffer,
				     const struct plan_step *step);
/* The blocks of a step in what engine_window_own gives: in rounds perhaps a slot. */
struct engine_range engine_range_kept(const struct engine *engine, const struct op *op,
				      unsigned buffer, const struct plan_step *step);

/* ---- fragment.c ---- */

/* Sets one round with all elements. */
void engine_fragment_none(struct op *op);
/* Sets as many rounds as there are fragments, if there are two or more. Each round but the first
 * begins with step `loop`. */
void engine_fragment_begin(const struct engine *engine, struct op *op, uint32_t loop);
/* Shows a plain INPUT or OUTPUT in fragments; false, with op->status, if the arena is full. */
bool engine_fragment_show(struct engine *engine, struct op *op, enum plan_buffer buffer);
/* Copies the parts of this round's fragment of INPUT that peers read to its slot in the arena. */
void engine_fragment_stage(struct engine *engine, struct op *op);
/* Ends a round: copies the results to the caller's buffer, and begins the next round. False: that
 * was the last one. */
bool engine_fragment_next(struct engine *engine, struct op *op);
/* The value of the entry's signal word for a phase of a round. */
uint64_t engine_fragment_signal(const struct op *op, uint32_t round, unsigned phase);
/* The offset of this round's slot from the first slot; the same on all ranks. */
uint64_t engine_fragment_slot(const struct op *op, enum plan_buffer buffer);
/* This round's slot of OUTPUT, if that is shown in fragments. In PLAN_RAILS the slots of a plain
 * INPUT have room for it. */
unsigned char *engine_fragment_output(const struct op *op);
/* Whether I write my own block of OUTPUT to the slot, where peers read it, rather than to the
 * caller's buffer. */
static inline bool engine_fragment_shows_own(const struct op *op)
{
	return op->output_window == TRANSPORT_WINDOW_FRAGMENTED &&
	       (op->plan->plan.algorithm == PLAN_PULL || op->plan->plan.algorithm == PLAN_RAILS);
}

/* ---- step.c ---- */

/* Either completes the step; or changes nothing, and fills op->words. Then the caller waits, and
 * calls again. */
typedef enum op_progress engine_step(struct engine *engine, struct op *op,
				     const struct plan_step *step);
extern engine_step *const engine_steps[PLAN_STEP_KIND_COUNT]; /* by enum plan_step_kind */
/* Compares peer's entry with mine, once. OP_BLOCKED: peer has not entered yet. */
enum op_progress engine_step_check(struct engine *engine, struct op *op, int peer);
/* Compares the entries of all peers with mine. OP_BLOCKED: some have not entered yet. */
static inline enum op_progress engine_check_all(struct engine *engine, struct op *op)
{
	const struct transport_team *team = engine->team;
	op->word_count = 0;
	for (int q = 0; q < team->size; q++)
		if (q != team->rank && engine_step_check(engine, op, q) == OP_FAILED)
			return OP_FAILED;
	return op->word_count ? OP_BLOCKED : OP_DONE;
}
/* All-to-allv: whether peer sends as many elements as I expect from it; false is a mismatch. */
bool engine_step_expects(struct op *op, int peer, uint64_t sends);
/* Whether peer has taken the long messages of this operation; if not, adds a word to wait for. */
enum op_progress engine_step_taken(struct engine *engine, struct op *op, int peer);

/* Goes on with op->fetching, also after a failure: OP_BLOCKED adds a word. */
enum op_progress engine_step_fetch(struct engine *engine, struct op *op);

/* ---- shared small things ---- */

/* Whether this rank's input is multiplied first, so that peers read a copy. */
static inline bool engine_is_scaled(const struct op *op)
{
	return op->call.reduce == LS_PREMUL_SUM;
}

/* How many bytes of a peer's plain memory one call reads. A rank that shows no plain memory itself
 * may have to read that of others. */
static inline uint64_t engine_read_bytes(const struct op *op)
{
	return op->choice.read_bytes ? op->choice.read_bytes : ENGINE_BOUNCE_BYTES / 2;
}

/* memcpy in chunks; reads the cause between chunks, and returns false if it was set. */
bool engine_copy(const struct engine *engine, void *to, const void *from, uint64_t bytes,
		 uint64_t chunk_bytes);

#endif
