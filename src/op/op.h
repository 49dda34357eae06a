/* SPDX-License-Identifier: BSD-3-Clause
 * One operation: a collective, which the engine runs, or a send, receive or probe, which a mailbox
 * runs. */
#ifndef OP_OP_H
#define OP_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#include "base/ranks.h"
#include "base/wait.h"
#include "op/device_part.h"
#include "op/p2p_part.h"
#include "memory/buffer.h"
#include "memory/memory.h"
#include "plan/plan_table.h"
#include "trace/trace.h"
#include "transport/transport.h"

/* What a function that advances an operation without blocking has reached. */
enum op_progress {
	/* The operation, or the part of it that the function is for, is complete. */
	OP_DONE,
	/* It cannot continue before op->words are stored (one of them if op->any_suffices). Wait
	 * for them, then call again. */
	OP_BLOCKED,
	/* It can continue at once: it has returned so that the thread checks for other work. Call
	 * again, without a wait. Only mailbox_copy_pieces returns it. */
	OP_MORE,
	/* op->status and op->culprit say why. Call engine_abandon or mailbox_abandon. */
	OP_FAILED,
};

/* Which part of an operation comes next. Messages have OP_STATE_STEPS, then OP_STATE_COMPLETE. */
enum op_state {
	OP_STATE_ENTER,       /* collective: waits until its entry slot is free */
	OP_STATE_ENTERED,     /* collective: the entry is published; has a rank failed or closed? */
	OP_STATE_STEPS,       /* collective: op->step is the cursor. Message: p2p.state says more */
	OP_STATE_AWAIT_TAKEN, /* collective: waits until peers have taken its last long messages */
	OP_STATE_AWAIT_ALL,   /* collective: waits until all ranks have completed it */
	OP_STATE_COMPLETE,
};

/* The arguments of a call. */
struct op_call {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce; /* 0 where nothing is reduced */
	int peer;            /* root, destination or source; -1 where there is none */
	int tag;
	/* This rank's buffers. If it sends or receives nothing, address and bytes are 0. */
	struct buffer send, recv;
	/* Elements of the call, or of one rank's part; the same on all ranks. In calls with a count
	 * for each rank: the sum of counts. counts[r] is the count of rank r's part; in an
	 * all-to-all it is what I send to rank r, and recv_counts[r] what I receive from it. The
	 * lists must stay valid as long as the operation. */
	uint64_t count;
	const uint64_t *counts, *recv_counts;
	uint64_t shape; /* engine_shape of counts, 0 where there are none */
	double factor;  /* of LS_PREMUL_SUM */
};

/* Sets every field by itself, tag, buffers, counts and factor to 0: a structure of which most
 * fields are left out is cleared by a slow instruction, and one that is copied right after it was
 * written waits for the stores. */
static inline void op_call_set(struct op_call *call, enum trace_kind kind, uint64_t count,
			       ls_dtype dtype, ls_reduce_op reduce, int peer)
{
	call->kind = kind;
	call->dtype = dtype;
	call->reduce = reduce;
	call->peer = peer;
	call->tag = 0;
	buffer_set(&call->send, NULL, 0);
	buffer_set(&call->recv, NULL, 0);
	call->count = count;
	call->counts = call->recv_counts = NULL;
	call->shape = 0;
	call->factor = 0;
}

/* One operation. Its caller fills call, seq and record. The rest belongs to the engine or the
 * mailbox, from engine_submit or mailbox_submit, which set it, until OP_DONE or the end of
 * engine_abandon or mailbox_abandon. */
struct op {
	struct op_call call;
	uint64_t seq;    /* number in its lane, from 1 */
	uint64_t record; /* in the trace */
	/* Set when it is submitted. OP_FAILED: LS_MISMATCH, LS_TRUNCATED, LS_PEER_LEFT,
	 * LS_PEER_DIED, LS_ABORTED, LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY, LS_INTERNAL, or an error of
	 * transport_read or of a device. OP_DONE: LS_OK or LS_CANCELLED. */
	ls_status status;
	int culprit;         /* the peer on which the error was seen; -1: none */
	enum op_state state; /* which part of the operation comes next */
	uint32_t step;
	/* A collective in fragments runs its plan, from step `loop` on, once for each fragment.
	 * Fragment `round` of `rounds` is elements [first, first + elements) of each part, or of
	 * the whole; all but the last one have `fragment` elements. Without fragments there is one
	 * round with all elements. */
	uint32_t round, rounds, loop;
	uint64_t fragment, first, elements;
	const struct engine_plan *plan;
	struct plan_table_choice choice; /* its chunk: the cause is read between chunks */
	uint64_t signature, history;     /* of this collective; the hash of all before it */
	size_t element_bytes;
	/* With a count for each rank: starts[r] is the first element of part r of INPUT,
	 * starts[size] the end; recv_starts: the same of OUTPUT. In the workspace, or NULL. */
	const uint64_t *starts, *recv_starts;
	/* Where the plan's buffers are in this process, and how peers reach them: the offset in my
	 * arena, or the address. The operation frees its blocks: copies that peers can reach, and
	 * buffers that the caller does not have; NULL: none. */
	const unsigned char *input;
	unsigned char *output, *scratch;
	uint64_t input_offset, output_offset;
	enum transport_window input_window, output_window;
	void *input_block, *output_block, *scratch_block;
	uint64_t peer_sends, peer_expected; /* see op_count_difference */
	int word_count;
	bool any_suffices, has_untaken; /* of the words; of `untaken` there are some */
	struct wait_word *words;        /* OP_BLOCKED: what it waits for; in the workspace */
	/* In the workspace. checked: peers (ranks_bit) whose entry has been compared with mine.
	 * untaken: those that may not have taken the last long message to them, `tickets`. */
	uint64_t *tickets, *checked, *untaken;
	/* A message from another host whose payload is being fetched to `target`; NULL: none. */
	struct transport_message *fetching;
	int fetching_from;
	void *target;
	struct op_p2p p2p;
	struct op_device device;
	struct op_stream stream; /* filled before the operation is submitted, see stream.h */
};

/* Arrays that an operation needs. They are not part of it, because clearing them would take longer
 * than a short collective. */
struct op_workspace {
	struct wait_word words[RANKS_WORLD_MAX];
	uint64_t tickets[RANKS_WORLD_MAX];
	uint64_t checked[RANKS_WORLD_WORDS], untaken[RANKS_WORLD_WORDS];
	uint64_t starts[RANKS_WORLD_MAX + 1], recv_starts[RANKS_WORLD_MAX + 1];
};

/* Whether the operation is a collective. */
static inline bool op_is_collective(enum trace_kind kind)
{
	return kind != TRACE_SEND && kind != TRACE_RECV && kind != TRACE_PROBE;
}

/* After LS_MISMATCH: how many elements op->culprit sends to this rank, and how many this rank
 * expects of it, if that is what differs; the same number twice otherwise. */
static inline void op_count_difference(const struct op *op, uint64_t *sent, uint64_t *expected)
{
	*sent = op->peer_sends;
	*expected = op->peer_expected;
}

static inline enum op_progress op_fail(struct op *op, ls_status status, int culprit)
{
	op->status = status;
	op->culprit = culprit;
	return OP_FAILED;
}

/* Sets the fields of an operation that has just been submitted, except those that only the engine
 * or only the mailbox uses. */
void op_reset(struct op *op, struct op_workspace *workspace);
/* Allocates a block of the arena, and returns the offset at which peers find it; false, with
 * op->status, if the arena is full. */
bool op_alloc_block(struct memory *memory, struct op *op, uint64_t bytes, void **block,
		    uint64_t *offset);

/* Makes the operation wait for one more word, which only this process can read; at most
 * RANKS_WORLD_MAX. */
void op_add_private_word(struct op *op, const _Atomic uint64_t *word, uint64_t value);
/* The same for a word that a device stores behind a stream, or that belongs to the launch. offset:
 * as WAIT_SEGMENT_DEVICE says. */
void op_add_device_word(struct op *op, const _Atomic uint64_t *word, uint64_t value,
			uint64_t offset);

#endif
