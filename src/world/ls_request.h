/* SPDX-License-Identifier: BSD-3-Clause
 * One operation of a rank, and the pool of operations that outlive their call. */
#ifndef WORLD_LS_REQUEST_H
#define WORLD_LS_REQUEST_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/lock.h"
#include "engine/engine.h"

/* One operation, from its call until it is complete; if it has a handle, until the handle is freed.
 * A blocking call has it on its stack. Complete means that the status is final. */
struct ls_request {
	struct op base;
	ls_group *group;
	struct ls_request *next;   /* in the lane, the pool, or the list of sends and receives */
	struct ls_request *before; /* in the list of sends and receives */
	uint64_t deadline_ns; /* 0: timeout_ms after its first wait, because it waits in no queue */
	pthread_t caller;     /* in the lane: the thread that called it */
	uint32_t timeout_ms;
	bool has_own_limit; /* a time limit: its wait may end by itself, and so proves nothing */
	_Atomic bool begun; /* submitted: engine_submit, mailbox_submit */
	bool pooled;        /* from the pool, not on a stack */
	ls_status failing;  /* not LS_OK: its status once no peer and no device uses its buffers */
	bool on_stream;     /* enqueued on a stream; stays true when it is complete */
	uint64_t access;    /* of races/races.h, until it is complete; 0: none */
	/* In the device's list of operations on streams: the next one, and the pointer to this
	 * one. */
	struct ls_request *stream_next, **stream_link;
	ls_request_callback *callback;
	void *callback_data;
	/* References: the lane or the list of messages, the user's handle, a batch of its parts,
	 * each part of its batch. The thread that drops the last one returns it to the pool. */
	_Atomic uint32_t references;
	/* For waits that are resumed: when the first wait for the current word began. */
	_Atomic uint64_t waited_ns;
	uint64_t waited_word; /* in the lane: the current word of the thread that makes progress */
	_Atomic bool status_read;
	_Atomic bool is_freed; /* its handle, unless it is shared; from then on calls refuse it */
	/* For a shared handle. If each status is read before its handle is freed, asked >= freed.
	 * Not freed are at least handed_out - freed. */
	_Atomic uint64_t handed_out; /* how often; may be too small where threads race */
	_Atomic uint64_t asked;      /* how often the status was read */
	_Atomic uint64_t freed;      /* how often the handle was freed */
	_Atomic uint64_t newest;     /* the record of the latest operation that got the handle */
	_Atomic uint32_t complete;   /* 0; or 1 + status, and no thread uses it any more */
	/* from the pool: memory for two lists, kept for the next operation */
	uint64_t *counts;
	/* Fields of sends and receives. */
	struct ls_message *message; /* the caller's, to be filled in; NULL: none */
	/* where to store the address of the block; NULL: nowhere */
	void **block;
	/* The operation is in the list; it needs the progress thread; any wake-up of the rank must
	 * wake that thread: p2p/pending.c. Under the lock of the list. */
	bool listed, wants_progress, wants_urgent;
	/* Under the lock of the list: a thread begins the operation, or has begun it. */
	bool claimed;
	bool ordered;                 /* setting P2P=serial: it waits for the sends before it */
	struct ls_request *batch;     /* of which this is a part; NULL: none */
	struct ls_request *next_part; /* of a batch: its first part; of a part: the next one */
	bool is_batch;
	/* the handle of many complete operations; never returned to the pool */
	bool shared;
	uint32_t batch_tid; /* in a batch: its thread */
	/* in a batch: its parts that are not complete, + 1 until ls_batch_end */
	_Atomic uint32_t parts;
	_Atomic uint32_t worst; /* in a batch: the first status of a part that is not LS_OK */
};

/* Operations that are not on a stack, in blocks, so that a handle needs no allocation if as many
 * were in progress before. */
enum { WORLD_POOL_OPS = 64, WORLD_POOL_BLOCKS = 1024 };
struct world_pool {
	struct lock_rank lock;
	struct ls_request *spare LOCK_GUARDED(rank);
	struct ls_request *blocks[WORLD_POOL_BLOCKS] LOCK_GUARDED(rank);
	int block_count LOCK_GUARDED(rank);
	long handles LOCK_GUARDED(rank); /* that the user has not freed */
};

#endif
