/* SPDX-License-Identifier: BSD-3-Clause
 * Point-to-point messages, on any group. See ls_send(3) and lockstep-p2p(7).
 *
 * Matching: a receive takes the oldest message from `src` that has the same tag. Messages from one
 * sender that match the same receive are received in the order in which they were sent. Receives
 * that match the same message take it in the order in which they were called. Blocking calls,
 * nonblocking calls and batches follow the same rule. There is no other order: messages do not wait
 * for other tags, other peers, other groups or collectives.
 *
 * Buffering: a message of up to 192 bytes is copied to where the receiver finds it, and its send is
 * complete (eager). The same is true of up to 4096 bytes while this rank has a free cell for the
 * message (lockstep-p2p(7), LIMITS). The send of a message above 4096 bytes, or of one that finds
 * no free cell, completes when the message has been received (rendezvous). Each rank may have
 * LOCKSTEP_MESSAGES unmatched messages under way to each peer in each group; one more send to that
 * peer waits until one of them has been received.
 *
 * Threads and blocking: any thread; see group.h and request.h.
 *
 * Errors: those of collectives (ls_collective(3)). A message that is longer than the receive buffer
 * is LS_TRUNCATED. A message that is shorter, or of another dtype, is LS_MISMATCH. In both cases
 * the group fails on all its ranks, with a report that names both calls. */
#ifndef LOCKSTEP_P2P_H
#define LOCKSTEP_P2P_H

#include <stdint.h>

#include "group.h"
#include "request.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	LS_ANY_SOURCE = -1, /* in receives and probes, as src */
	LS_ANY_TAG = -1,    /* in receives and probes, as options->tag */
};

/* The envelope of a message (what MPI calls a status). */
struct ls_message {
	uint32_t size;  /* set by the caller: sizeof(struct ls_message) */
	int32_t source; /* the sender's rank in the group */
	int32_t tag;
	uint32_t dtype; /* enum ls_dtype */
	uint64_t count; /* elements */
};

/* Sends count elements to rank `dst`, which may be the sender itself, with options->tag. Returns
 * when the caller may reuse the buffer. With options->request or options->callback, and in a batch,
 * it returns at once, and the caller may reuse the buffer when the operation is complete. */
LS_EXPORT LS_CHECKED ls_status ls_send(ls_group *group, const void *buffer, uint64_t count,
				       ls_dtype dtype, int dst,
				       const struct ls_call_options *options);

/* Receives a message from rank `src` (or LS_ANY_SOURCE) with options->tag (or LS_ANY_TAG). `count`
 * must be the count of the message (in MPI it may be more). Fills in options->message if it is not
 * NULL. Blocks as ls_send does. */
LS_EXPORT LS_CHECKED ls_status ls_recv(ls_group *group, void *buffer, uint64_t count, ls_dtype dtype,
				       int src, const struct ls_call_options *options);

/* Nonblocking ls_send and ls_recv: *request is the handle (request.h), NULL on failure. The caller
 * must not touch the buffer until the operation is complete. options->request must be NULL. */
LS_EXPORT LS_CHECKED ls_status ls_isend(ls_group *group, const void *buffer, uint64_t count,
					ls_dtype dtype, int dst,
					const struct ls_call_options *options, ls_request **request);
LS_EXPORT LS_CHECKED ls_status ls_irecv(ls_group *group, void *buffer, uint64_t count,
					ls_dtype dtype, int src,
					const struct ls_call_options *options, ls_request **request);

/* ls_probe blocks until there is a message that a receive of `src` and options->tag would match,
 * and writes its envelope to *out; the caller sets out->size. The message is not received or
 * reserved: another thread may receive it, and its sender may still cancel it. ls_iprobe does not
 * block: it returns LS_PENDING if there is no such message. If there can never be one, both return
 * LS_PEER_DIED or LS_PEER_LEFT, and the group fails. */
LS_EXPORT LS_CHECKED ls_status ls_probe(ls_group *group, int src,
					const struct ls_call_options *options,
					struct ls_message *out);
LS_EXPORT LS_CHECKED ls_status ls_iprobe(ls_group *group, int src,
					 const struct ls_call_options *options,
					 struct ls_message *out);

/* Cancels a send or a receive that has not been matched. LS_OK: the operation is complete with the
 * status LS_CANCELLED, and the caller may use its buffer. LS_PENDING: too late; the operation
 * continues, or is complete already. Does not block, with one exception: for a long send to
 * another host it waits for that host's answer, for at most 100 ms. Without an answer it returns
 * LS_PENDING, and the operation may still end with LS_CANCELLED. Any thread. The handle must still
 * be freed. LS_BAD_ARGUMENT: `request` is a collective, a batch, or on a stream. */
LS_EXPORT LS_CHECKED ls_status ls_cancel(ls_request *request);

/* A batch: between ls_batch_begin and ls_batch_end, the calling thread's ls_send, ls_recv,
 * ls_send_block and ls_recv_block on this group do not block. Each starts, and takes its position
 * in the matching order, when it is called, as ls_isend and ls_irecv do; unlike an NCCL group,
 * nothing is deferred to the end, and other ranks need not use the same batches. Calls with a
 * handle or callback of their own are not part of the batch. ls_batch_end with request NULL waits
 * for all parts and returns the first status that is not LS_OK; with `request` it does not wait,
 * and *request is one handle for all parts. A thread has one batch at a time on each group.
 * LS_BAD_ARGUMENT: begin inside a batch, or end outside of one. */
LS_EXPORT LS_CHECKED ls_status ls_batch_begin(ls_group *group);
LS_EXPORT LS_CHECKED ls_status ls_batch_end(ls_group *group, ls_request **request);

/* Sends a block by handing over its ownership. `block` comes from ls_alloc on this rank, and may be
 * longer than the message. When the call has returned LS_OK (with a handle: when the operation is
 * complete) the block belongs to the receiver, and the sender must not touch it any more. On one
 * host nothing is copied if the receiver uses ls_recv_block; to another host the content is copied.
 * The call does not wait for the receive. It waits in two cases only: while LOCKSTEP_MESSAGES
 * unmatched messages to that peer are under way, or while the receiver holds 64 blocks of this
 * rank. On failure the block still belongs to the caller. */
LS_EXPORT LS_CHECKED ls_status ls_send_block(ls_group *group, void *block, uint64_t count,
					     ls_dtype dtype, int dst,
					     const struct ls_call_options *options);

/* Receives a message into memory of the library. If it was sent with ls_send_block, *block is the
 * sender's own block, if the sender is on this host; otherwise it is a new block of ls_alloc. The
 * caller frees it with ls_free on this group before the group is closed, and cannot pass it to
 * ls_send_block. *block is NULL on failure. With a handle or a callback, and in a batch, *block is
 * NULL until the operation is complete; the caller keeps that variable valid until then. */
LS_EXPORT LS_CHECKED ls_status ls_recv_block(ls_group *group, void **block, uint64_t count,
					     ls_dtype dtype, int src,
					     const struct ls_call_options *options);

#ifdef __cplusplus
}
#endif
#endif
