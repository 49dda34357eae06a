/* SPDX-License-Identifier: BSD-3-Clause
 * What every operation takes beside its data, and operations that run beside the caller. See ls_op(3).
 *
 * With options->op set a call returns as soon as the operation has its place in the order of the group's
 * calls, and *options->op is its handle. Until it is over its buffers must be left alone; counts and options
 * are copied. Collectives of one group are run in the order of their calls, blocking ones too, so one that
 * blocks also waits for those before it; a progress thread of the rank runs them. Sends and receives wait
 * for none of them, and for each other only as ls_send(3) says; lockstep-p2p(7) tells who goes on with them. */
#ifndef LOCKSTEP_OP_H
#define LOCKSTEP_OP_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operation under way, or one that is over and not yet freed. */
typedef struct ls_op ls_op;
struct ls_message; /* p2p.h */

/* Called once when an operation is over, with its status, in a thread of the library, or any thread inside a call
 * on this group or on messages of another. Must not block, nor call Lockstep with the exception of
 * ls_op_free. */
typedef void ls_op_callback(void *data, ls_status status);

/* `size` is sizeof the struct; every other field may be zero for its default; NULL in place of the struct
 * means all defaults. */
struct ls_op_options {
	uint32_t size;
	/* Time limit of this call in milliseconds, from the call on; 0: the group's. */
	uint32_t timeout_ms;
	/* Matches sends with receives, 0 to 2^31-1, or LS_ANY_TAG; not used by collectives. */
	int32_t tag;
	/* With `op`, 1: the call blocks as ls_wait(*op, 0) would, and gives a handle only if that ends before the
	 * operation does: LS_PENDING. Else *op is NULL, and the status is that of the operation. For languages whose
	 * signal handlers run between calls, in groups opened with resume_after_signals. Not with `callback`. */
	uint32_t awaited;
	/* Named in reports in place of the C call site, e.g. "train.py:42", and in messages about wrong arguments in
	 * place of the function. Copied. NULL: none. */
	const char *label;
	/* Device stream; NULL, as only host memory is supported. */
	void *stream;
	/* Not NULL: do not block, *op is the handle, to be freed with ls_op_free. NULL on failure. */
	ls_op **op;
	/* Not NULL: called when the operation is over. Without `op` it does not block either, and there is
	 * no handle. */
	ls_op_callback *callback;
	void *callback_data;
	/* Of LS_PREMUL_SUM: what this rank's elements are multiplied with; ranks may differ. */
	double factor;
	/* Of receives; not NULL: filled when the operation is over with LS_OK, message->size set by the caller.
	 * It must stay as long as the operation. */
	struct ls_message *message;
};

/* LS_PENDING while the operation is under way, then its status. Does not block. It goes on with all sends and
 * receives of the rank, if this is one, or a batch, as far as that is possible at once; it does not help collectives
 * on. One that can never be over, as whom it needs has died or left, ends as it would in ls_wait, and the group with
 * it; that the report is worked out may then take up to a second. Errors: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_test(ls_op *op);

/* Blocks until the operation is over and returns its status, or LS_PENDING after timeout_ms (0: as long
 * as it takes; it has a time limit of its own), which changes nothing: it goes on and may be waited for
 * again. Any thread, any number of times. LS_INTERRUPTED closes the group, as in a blocking call; of a group
 * that was opened with resume_after_signals it is LS_PENDING, as group.h says. */
LS_EXPORT LS_CHECKED ls_status ls_wait(ls_op *op, uint32_t timeout_ms);

/* Blocks until one of `count` operations of one group (1 to 64, NULL entries are skipped) is over, whether
 * collectives, messages or batches; *index tells which, the lowest if several are, and its status is
 * returned. LS_PENDING, *index -1, after timeout_ms (0: never). LS_BAD_ARGUMENT if all entries are NULL. */
LS_EXPORT LS_CHECKED ls_status ls_wait_any(ls_op *const *ops, int count, uint32_t timeout_ms,
					   int *index);

/* Gives the handle back; NULL is allowed. The operation itself goes on. A send that nobody will ever take, as its peer
 * has died or left, then closes the group. Freed without ls_wait, ls_wait_any or ls_test having told its status, it is reported once, for then nobody knows whether it failed; a
 * callback counts as telling. All handles must be freed before ls_group_close, each once for the call that gave
 * it: short messages that are over at once share a handle. */
LS_EXPORT void ls_op_free(ls_op *op);

#ifdef __cplusplus
}
#endif
#endif
