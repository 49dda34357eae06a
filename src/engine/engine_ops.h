/* SPDX-License-Identifier: BSD-3-Clause
 * Another engine for the collectives of a group, such as a library of a device's maker. Without one
 * (engine->ops is NULL) the processor runs them, by plans. Entering, comparing headers and leaving
 * stay as they are, so ranks that differ learn it before anything is enqueued; sends and receives
 * are not its business. All members of a group have the same one.
 *
 *   engine_submit  -> submit
 *   engine_advance    enter: publish the header ── compare all others' ── advance … ── leave
 *   engine_abandon -> abandon, if advance was called before
 *
 * No function blocks, calls Lockstep, or is called with a lock held; each is called by one thread
 * at a time for each group. Whoever stores a word that `advance` or `abandon` gave to wait for, in
 * memory of this process, calls transport_publish for this rank afterwards. Nobody else can read
 * such a word, so a rank that waits for one is never part of a proof. It stays in memory until the
 * group of all ranks is closed: the progress thread may look at it once more. */
#ifndef ENGINE_ENGINE_OPS_H
#define ENGINE_ENGINE_OPS_H

#include "base/ranks.h"
#include "engine/engine.h"

struct engine_ops {
	/* Makes ready what op->call asks for, and enqueues nothing, as ranks may differ. op->status
	 * tells of a failure, as engine_submit's does. */
	void (*submit)(void *state, struct engine_op *op);
	/* All members have entered. Enqueues, alone or with what else is ready; then says how far
	 * it is: ENGINE_DONE, the result is where the caller wants it; ENGINE_BLOCKED, by
	 * engine_await_foreign; ENGINE_FAILED, with op->status. */
	enum engine_progress (*advance)(void *state, struct engine_op *op);
	/* The group has failed: cuts short what it can. ENGINE_DONE: nothing touches the caller's
	 * buffers any more. ENGINE_BLOCKED, with `force` too: the caller waits and calls again,
	 * for as long as that takes, since a buffer that a device writes to cannot be taken away
	 * from it. ENGINE_FAILED: it will never end. */
	enum engine_progress (*abandon)(void *state, struct engine_op *op, bool force);
};

/* Of a group that has begun nothing. NULL: the processor. `state` is the functions' first argument,
 * stays the caller's, and must outlast the group. */
void engine_use(struct engine *engine, const struct engine_ops *ops, void *state);

/* Adds to what the operation waits for a word that only this process can read; at most
 * RANKS_HOST_MAX. `advance` and `abandon` are called with none. */
void engine_await_foreign(struct engine_op *op, const _Atomic uint64_t *word, uint64_t value);

#endif
