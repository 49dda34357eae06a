/* SPDX-License-Identifier: BSD-3-Clause
 * How one operation runs: the host engine, which executes plans over windows and messages, and single
 * sends and receives. It never blocks and never decides what a failure means: engine_advance goes on as
 * far as it can, and says what it waits for or what it has found; the group waits, and judges.
 *
 * An operation has one owner at a time: the thread that submitted it. On one group the collectives run
 * one after the other (the group sees to it); sends and receives run beside them and each other. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/group.h>

#include "base/settings.h"
#include "base/wait.h"
#include "memory/memory.h"
#include "plan/plan.h"
#include "trace/trace.h"
#include "transport/transport.h"

enum {
	ENGINE_PLANS = 16,              /* plans kept; a power of two */
	ENGINE_CHUNK_BYTES = 64 * 1024, /* the cause word is looked at between chunks of this size */
	ENGINE_STREAM_BYTES =
		4 << 20, /* below this, results fit in caches, and plain stores win everywhere */
};

enum engine_progress {
	ENGINE_DONE,
	ENGINE_BLOCKED, /* op->words say on what */
	ENGINE_FAILED,  /* op->status and op->culprit say why */
};

/* A plan and what the engine derived from it. */
struct engine_plan {
	bool valid;
	bool input_window;  /* peers read my input */
	bool output_window; /* peers read or write my output */
	struct plan_request request;
	struct plan plan;
};

struct engine {
	struct transport *transport;
	struct trace *trace;
	struct memory *memory;
	const _Atomic uint64_t *cause; /* non-zero: the group has failed */
	enum plan_algorithm wanted;
	bool stream;      /* results that peers will read are stored past the cache */
	uint64_t history; /* of the collectives entered so far, as in struct transport_entry */
	uint64_t entered_by_all; /* every rank has entered this collective: a lower bound, grows */
	size_t steps_max;
	struct plan_step *steps; /* [ENGINE_PLANS][steps_max] */
	struct engine_plan plans[ENGINE_PLANS];
};

/* One operation. The group fills the first part; the engine owns the rest from engine_submit until
 * ENGINE_DONE or the end of engine_abandon. */
struct engine_op {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce;
	int peer; /* root, destination or source */
	int tag;
	const void *send;
	void *recv;
	uint64_t count, bytes;
	uint64_t seq;    /* number in its lane, from 1 */
	uint64_t record; /* in the trace */

	/* Set by engine_submit. */
	ls_status status; /* ENGINE_FAILED: LS_MISMATCH, LS_OUT_OF_MEMORY, LS_ABORTED, LS_INTERNAL */
	int culprit;      /* the peer it was seen on, -1: none */
	int stage;        /* enum in the engine: which part of the operation comes next */
	uint32_t step;
	const struct engine_plan *plan;
	uint64_t checked;            /* bit q: peer q's entry header has been compared with mine */
	uint64_t signature, history; /* of a collective, and of those before it */
	/* Where my buffers lie for peers. The block is mine to free when the buffer is plain memory and
	 * had to be copied into the arena, NULL otherwise. */
	const unsigned char *input;
	unsigned char *output, *scratch;
	uint64_t input_offset, output_offset;
	void *input_block, *output_block, *scratch_block;
	uint64_t sent; /* bit q: a long message to peer q may not have been taken yet */
	int word_count;
	struct wait_word *words; /* ENGINE_BLOCKED: what it waits for; in the room */
	uint64_t *tickets;       /* the last long message to each peer; in the room */
};

/* Room that an operation needs beside itself. Not part of it, because clearing it would cost more than
 * a short collective. */
struct engine_room {
	struct wait_word words[PLAN_SIZE_MAX];
	uint64_t tickets[PLAN_SIZE_MAX];
};

/* Errors: LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status engine_init(struct engine *engine, struct transport *transport,
				 struct trace *trace, struct memory *memory,
				 const _Atomic uint64_t *cause, const struct settings *settings);
void engine_fini(struct engine *engine);

/* Chooses the plan, copies plain buffers into reach of peers. Does not block, nor touch a peer. `room`
 * (uninitialised) must last as long as the operation. */
void engine_submit(struct engine *engine, struct engine_op *op, struct engine_room *room);

/* Goes on as far as it can without blocking. */
enum engine_progress engine_advance(struct engine *engine, struct engine_op *op);

/* The operation has failed here or elsewhere (*cause is set, or will be by whoever called): after this
 * call this rank touches no peer's memory for it. Returns ENGINE_BLOCKED as long as a peer may still touch
 * this rank's buffers (op->words: until it says that it does not); call again after waiting. With
 * `force`, or when no peer is left, buffers are taken away from peers where needed, and it returns
 * ENGINE_DONE: the caller's buffers are the caller's alone. ENGINE_FAILED: it could not do so, as its
 * message says, and a peer that is stopped may touch them when it goes on. gone: bit q set if peer q is
 * dead, or has left. */
enum engine_progress engine_abandon(struct engine *engine, struct engine_op *op, uint64_t gone,
				    bool force);

/* Whether the operation is a collective. */
static inline bool engine_is_collective(enum trace_kind kind)
{
	return kind == TRACE_ALLREDUCE || kind == TRACE_BROADCAST || kind == TRACE_BARRIER;
}

#endif
