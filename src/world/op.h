/* SPDX-License-Identifier: BSD-3-Clause
 * One operation of a rank, and the pool of those that outlive the call. */
#ifndef WORLD_OP_H
#define WORLD_OP_H

#include <lockstep/lockstep.h>
#include <pthread.h>

#include "base/lock.h"
#include "engine/engine.h"

/* One operation, from the call until it is over; then, if it has a handle, until that is freed too.
 * A blocking call has it on its stack. */
struct ls_op {
	struct engine_op engine;
	ls_group *group;
	struct ls_op *next; /* in the lane, among the spare ones, or among all sends and receives */
	struct ls_op *before; /* among all sends and receives */
	uint64_t deadline_ns; /* 0: timeout_ms from its first wait on, as it waits in no queue */
	pthread_t caller;     /* of the lane: who called it */
	uint32_t timeout_ms;
	bool may_leave;     /* it has a time limit of its own */
	_Atomic bool begun; /* it has been handed to the engine */
	bool pooled;        /* not on a stack */
	ls_op_callback *callback;
	void *callback_data;
	_Atomic uint32_t holders; /* the lane, and the user's handle; the last one puts it back */
	/* Of one that somebody waits for who comes back now and then: when the first of these waits
	 * for that word began. */
	_Atomic uint64_t waited_ns;
	uint64_t waited_word; /* of the lane: which word, for the one who drives */
	_Atomic bool told;    /* somebody has been told how it ended */
	/* Of a shared one: how often it was given out, how often somebody has been told, and how
	 * often it was freed. The first may miss some where threads race, the others not: at least
	 * given - freed are not freed; asked >= freed as long as each is asked for before it is
	 * freed. newest: the record for which it was given out last. */
	_Atomic uint64_t given, asked, freed, newest;
	_Atomic uint32_t over; /* 1 + status once it is over; nobody runs it any more */
	uint64_t *counts;      /* of the pool: room for two lists, kept for the next user */
	/* Of sends and receives. */
	struct ls_message *message;               /* of the caller's, to be filled; NULL: none */
	void **block;                             /* where the caller wants the block; NULL: none */
	bool listed, wants_progress, wants_eager; /* see p2p.h; under its lock */
	bool claimed;                             /* under that lock: somebody begins it, or has */
	bool in_turn; /* setting P2P=serial: it waits for the sends before it */
	struct ls_op *batch,
		*next_part; /* it is part of this one, NULL: of none; of a batch: its parts */
	bool is_batch;
	bool shared;            /* the handle of many that are over; nobody's to give back */
	uint32_t batch_tid;     /* of a batch: the thread it belongs to */
	_Atomic uint32_t parts; /* of a batch: parts that are not over, and the batch call itself */
	_Atomic uint32_t worst; /* of a batch: the first status of a part that is not LS_OK */
};

/* Operations that are not on a stack, in blocks, so that handles need no allocation once as many
 * have been in flight before. */
enum { WORLD_POOL_OPS = 64, WORLD_POOL_BLOCKS = 1024 };
struct world_pool {
	struct lock_group lock;
	struct ls_op *spare LOCK_GUARDED(group);
	struct ls_op *blocks[WORLD_POOL_BLOCKS] LOCK_GUARDED(group);
	int block_count LOCK_GUARDED(group);
	_Atomic long handles; /* not freed by the user so far */
};

#endif
