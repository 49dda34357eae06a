/* SPDX-License-Identifier: BSD-3-Clause
 * Another engine for the collectives of a group, such as NCCL. Without one (engine->ops is NULL)
 * the processor runs them, by plans. Entering, comparing entries and leaving stay the same, so a
 * difference between ranks is found before anything is enqueued. Sends and receives do not use it.
 * All members of a group have the same engine.
 *
 *   engine_submit  -> submit
 *   engine_advance    enter: publish the entry ── compare all others' ── advance … ── leave
 *   engine_abandon -> abandon, if advance was called before
 *
 * With `launch`, a collective on a stream of the caller's goes another way. The entries are
 * compared while it waits there:
 *
 *   the call       -> launch, on the stream, between two stores
 *   engine_advance    enter ── compare ── wait for the store behind it ── leave
 *   engine_abandon -> abandon, if launch was called before; then the stream goes on
 *
 * doc/decisions/044 says how NCCL fits, and what is left to the maker of the state.
 *
 * No function calls Lockstep or is called with a lock held, and only `launch` may block. One thread
 * at a time calls the others for a group. Threads may launch beside them, but none launches the
 * operation that another one abandons. A thread that stores a word for which `advance` or `abandon`
 * waits, in memory of this process, calls transport_notify for this rank afterwards. Other
 * processes cannot read such a word, so a rank that waits for one is never part of a proof. The
 * word must stay in memory until the world group is closed: the progress thread may read it once
 * more. */
#ifndef ENGINE_ENGINE_OPS_H
#define ENGINE_ENGINE_OPS_H

#include "base/ranks.h"
#include "engine/engine.h"

struct engine_ops {
	/* Prepares op->call, and enqueues nothing, because ranks may differ. On failure it sets
	 * op->status, as engine_submit does. */
	void (*submit)(void *state, struct op *op);
	/* Called after all members have entered. Enqueues the operation, alone or with others that
	 * are ready. OP_DONE: the result is in the caller's buffer; OP_BLOCKED, with words
	 * of op_add_private_word; OP_FAILED, with op->status. */
	enum op_progress (*advance)(void *state, struct op *op);
	/* The group has failed: ends the operation as early as possible. OP_DONE: nothing
	 * touches the caller's buffers any more. OP_BLOCKED, also with `force`: the caller
	 * waits and calls again, however long it takes, because a device's access cannot be
	 * revoked. OP_FAILED: it will never end. */
	enum op_progress (*abandon)(void *state, struct op *op, bool force);
	/* Enqueues the operation on the stream op->stream.handle, in its call, so that all that the
	 * program enqueues afterwards is behind it. It may call op->stream.driver, at most
	 * ENGINE_LAUNCH_ENTRIES times, and block as that may. The buffers are the caller's own: the
	 * engine refuses those that it cannot reach, with LS_UNSUPPORTED or LS_BAD_ARGUMENT, and a
	 * message; a stream that is being captured by now with LS_UNSUPPORTED, as the driver does.
	 * On an error nothing was enqueued, and the group fails, as peers wait for the operation.
	 * NULL: operations on streams run on copies in host memory, by submit and advance. */
	ls_status (*launch)(void *state, struct op *op);
};
enum { ENGINE_LAUNCH_ENTRIES = 3 }; /* POOL_LAUNCH_ENTRIES, without the two stores */

/* ---- for the rooms above ---- */

/* Whether the engine enqueues collectives on their streams, by engine_launch. */
bool engine_launches(const struct engine *engine);
LS_CHECKED ls_status engine_launch(struct engine *engine, struct op *op);

/* Sets the engine of a group that has begun nothing. NULL: the processor. `state` is the functions'
 * first argument; the caller owns it, and it must outlast the group. */
void engine_use(struct engine *engine, const struct engine_ops *ops, void *state);

#endif
