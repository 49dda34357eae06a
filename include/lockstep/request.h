/* SPDX-License-Identifier: BSD-3-Clause
 * Options of operations, and nonblocking operations. See ls_request(3).
 *
 * Nonblocking: with options->request set, a call returns when the operation has its position in the
 * order of the group's calls, without waiting for other ranks; a short collective may be complete
 * by then. With LOCKSTEP_BLOCKING=1, which is for finding faults, the call of a collective returns
 * only when all ranks have completed it. A group can have 65,536 operations that are under way or
 * whose handles are not freed; one more is refused with LS_OUT_OF_MEMORY, as is one for which there
 * is no memory or no thread. *options->request is the handle of the operation. The caller must not
 * touch the operation's buffers until the operation is complete, and must not pass them to another
 * one that writes them (LOCKSTEP_CHECK=1 makes that an error: LS-RACE-OVERLAP). Only collectives of
 * one group may share buffers, because they run one after the other. Counts and options are copied.
 * Unlike MPI_Wait, ls_wait and ls_test do not free the handle: ls_request_free does.
 *
 * Collectives of one group run in the order of their calls, blocking and nonblocking ones alike. So
 * a blocking collective also waits for those before it. A thread that waits for a collective runs
 * the group's collectives until its own is complete, unless another thread already does. If no
 * thread waits, the rank's progress thread runs them. Short ones may run inside their call. Sends
 * and receives do not wait for collectives, and wait for each other only as ls_send(3) says;
 * lockstep-p2p(7) says which thread makes progress on them. */
#ifndef LOCKSTEP_REQUEST_H
#define LOCKSTEP_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle of a nonblocking operation that is under way, or complete and not yet freed. */
typedef struct ls_request ls_request;
struct ls_message; /* p2p.h */

/* Called once when an operation is complete, with its status, perhaps before the call that began
 * the operation returns. It runs in a thread of the library, or in any thread that is inside a call
 * on this group, or inside a call on messages of another group: a nonblocking send or receive,
 * ls_wait, ls_test, ls_batch_end. It must not block. It may call no function of Lockstep but
 * ls_request_free, those of device.h that say what they do in a completion callback, and those that
 * return constants: ls_status_name, ls_status_text, ls_status_scope, ls_dtype_bytes, ls_version. A
 * call that would have to wait prints a message and returns LS_BAD_ARGUMENT; ls_group_close prints
 * one and does nothing. The callback must take no lock that a thread holds while it calls
 * Lockstep: that thread may be the one that calls back. */
typedef void ls_request_callback(void *data, ls_status status);

/* `size` is sizeof the struct; every other field may be zero for its default; NULL in place of the
 * struct means all defaults. */
struct ls_call_options {
	uint32_t size;
	/* Time limit of the operation in milliseconds, counted from its call; 0: the group's. An
	 * operation with a limit of its own may end by itself, so it is never part of a proved
	 * deadlock. */
	uint32_t timeout_ms;
	/* Matches sends with receives: 0 to 2^31-1, or LS_ANY_TAG in receives and probes.
	 * Collectives do not use it, and refuse a negative one (LS_BAD_ARGUMENT). */
	int32_t tag;
	/* With `request`, 1: the call blocks as ls_wait(*request, 0) would. If the operation is
	 * complete when that wait ends, *request is NULL and the call returns the operation's
	 * status. Otherwise it returns LS_PENDING, and *request is the handle. For languages whose
	 * signal handlers run between calls, in groups opened with resume_after_signals. Not with
	 * `callback`. */
	uint32_t resumable;
	/* Shown in reports in place of the C call site, e.g. "train.py:42", and in messages about
	 * wrong arguments in place of the function's name. Copied. NULL: none. */
	const char *label;
	/* A stream of this rank's device, in whose order the operation runs (device.h):
	 * collectives, ls_send, ls_recv, ls_isend and ls_irecv. All other calls that take options
	 * return LS_BAD_ARGUMENT for a stream, and so do sends with LOCKSTEP_P2P=serial. Not with
	 * `resumable`. NULL: none. */
	void *stream;
	/* Not NULL: the call does not block, unless `resumable` is 1, and *request is the handle,
	 * which the caller frees with ls_request_free. *request is NULL on failure. */
	ls_request **request;
	/* Not NULL: called when the operation is complete; not if the call returns an error. The
	 * call does not block then, even without `request`; without `request` there is no
	 * handle. */
	ls_request_callback *callback;
	void *callback_data;
	/* For LS_PREMUL_SUM: this rank's elements are multiplied by it. Ranks may pass different
	 * factors. */
	double factor;
	/* For receives; not NULL: describes the received message once the operation is complete
	 * with LS_OK. The caller sets message->size, and keeps the struct valid until the operation
	 * is complete. */
	struct ls_message *message;
};

/* Returns LS_PENDING while the operation is under way, then its status. Any thread. Does not wait
 * for other ranks, except for up to a second (two, on several hosts) to report a failure. If
 * `request` is a send, a receive or a batch, the call also makes whatever progress is possible at
 * once on all sends and receives of the rank, but none on collectives. If the operation can never
 * complete, because a peer that it needs has failed or left, it ends as it would in ls_wait, and
 * the group fails.
 * Errors: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_test(ls_request *request);

/* Blocks until the operation is complete and returns its status. After timeout_ms it returns
 * LS_PENDING: the operation continues, and may be waited for again. timeout_ms 0: no limit to the
 * wait (the operation has a time limit of its own). Any thread, any number of times. A signal
 * handler that was installed without SA_RESTART fails the group with LS_INTERRUPTED, as in a
 * blocking call; in a group that was opened with resume_after_signals, a wait without a time
 * limit returns LS_PENDING instead (group.h). Errors of its own: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_wait(ls_request *request, uint32_t timeout_ms);

/* Blocks until one of `count` operations is complete, and returns its status; *index is its place
 * in `requests`, the lowest if several are complete. The operations may be collectives, sends,
 * receives and batches, all of one group. count is 1 to 64; NULL entries are skipped. After
 * timeout_ms it returns LS_PENDING with *index -1 (timeout_ms 0: no limit). Any thread. To wait for
 * all of several operations, wait for each in turn, or use a batch (p2p.h). Errors of its own:
 * LS_BAD_ARGUMENT (`index` or `requests` is NULL, count is not 1 to 64, all entries are NULL, or
 * they are of several groups), LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_wait_any(ls_request *const *requests, int count,
					   uint32_t timeout_ms, int *index);

/* Frees the handle; NULL is allowed. The operation itself continues. If it is a send that can never
 * be received, because its peer has died or left, the group fails. If nothing has read the
 * operation's final status (ls_wait, ls_wait_any, ls_test and a callback read it), this call warns,
 * once for each call site, because a failure would pass unseen. Free every handle before
 * ls_group_close, exactly once for each call that returned one. Two calls may return the same
 * pointer, because short messages that complete at once share a handle: so never use the pointer as
 * a key. A call with a handle that was freed already prints a message, and does nothing, until
 * another operation gets the handle. */
LS_EXPORT void ls_request_free(ls_request *request);

#ifdef __cplusplus
}
#endif
#endif
