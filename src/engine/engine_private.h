/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the engine share among themselves. */
#ifndef ENGINE_PRIVATE_H
#define ENGINE_PRIVATE_H

#include "engine.h"

/* Which part of an operation comes next. */
enum engine_stage {
	ENGINE_ENTER, /* collective: my entry slot must be free */
	ENGINE_STEPS, /* collective: op->step is the cursor */
	ENGINE_DRAIN, /* collective: my last long messages must have been taken */
	ENGINE_POST,  /* send: the channel must have a free slot */
	ENGINE_TAKEN, /* send: the receiver must have taken the payload */
	ENGINE_MATCH, /* receive */
	ENGINE_OVER,
};

/* ---- window.c ---- */

/* Puts the buffers where the plan needs them; op->status is set on failure. */
bool engine_window_stage(struct engine *engine, struct engine_op *op);
/* Brings a staged result home. */
void engine_window_deliver(struct engine_op *op);
/* Gives the staging blocks back; with `lost` peers may still touch them, so they are never reused. */
void engine_window_release(struct engine *engine, struct engine_op *op, bool lost);
/* Takes the caller's own buffers away from peers; false, after a message, if that is not possible. */
bool engine_window_detach(struct engine *engine, struct engine_op *op);
/* False if another failed operation of mine has taken pages of my output away from peers: what they
 * wrote since then is lost. */
bool engine_window_is_whole(struct engine *engine, const struct engine_op *op);
/* `from` buffer of rank `rank` as this process sees it; NULL if the peer's header is nonsense. */
const unsigned char *engine_window_of(struct engine *engine, const struct engine_op *op, int rank,
				      enum plan_buffer buffer);

/* ---- step.c ---- */

enum engine_progress engine_step_run(struct engine *engine, struct engine_op *op,
				     const struct plan_step *step);
/* Compares peer's entry header with mine, once. ENGINE_BLOCKED: it has not entered yet. */
enum engine_progress engine_step_check(struct engine *engine, struct engine_op *op, int peer);
/* Whether peer has taken the long messages of this operation; else adds what to wait for. */
enum engine_progress engine_step_taken(struct engine *engine, struct engine_op *op, int peer);

/* ---- point.c ---- */

enum engine_progress engine_point_advance(struct engine *engine, struct engine_op *op);
enum engine_progress engine_point_abandon(struct engine *engine, struct engine_op *op,
					  uint64_t gone, bool force);

/* ---- shared small things ---- */

static inline enum engine_progress engine_fail(struct engine_op *op, ls_status status, int culprit)
{
	op->status = status;
	op->culprit = culprit;
	return ENGINE_FAILED;
}

static inline bool engine_cause_is_set(const struct engine *engine)
{
	return atomic_load_explicit(engine->cause, memory_order_relaxed) != 0;
}

/* memcpy in chunks between which the cause is looked at; false if it was set. */
bool engine_copy(const struct engine *engine, void *to, const void *from, uint64_t bytes,
		 bool stream);

#endif
