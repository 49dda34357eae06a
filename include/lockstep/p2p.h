/* SPDX-License-Identifier: BSD-3-Clause
 * Messages from one rank to another, on any group. See ls_send(3) and lockstep-p2p(7).
 *
 * Matching: the receiver takes the oldest message of `src` that has the same tag. Messages of one sender
 * with one tag are received in the order they were sent, and receives that ask for the same take them in
 * the order they were called; blocking, beside the caller or in a batch makes no difference. Nothing else
 * has an order: messages do not wait for other tags, other peers, other groups or collectives.
 *
 * Buffering: a message of up to 192 bytes is copied, and its send is done. The send of a longer one is done
 * when a receive has taken it, for which the sender's processor is not needed. A rank may have so many
 * unmatched messages under way to each peer as the setting LOCKSTEP_MESSAGES says; a send beyond that waits
 * until one of them has been received.
 *
 * Errors: as ls_collective(3). A message that is longer than the buffer that was to receive it is
 * LS_TRUNCATED, one that is shorter or of another dtype is LS_MISMATCH; both close the group on all its
 * ranks, with a report that names both calls. */
#ifndef LOCKSTEP_P2P_H
#define LOCKSTEP_P2P_H

#include <stdint.h>

#include "group.h"
#include "op.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	LS_ANY_SOURCE = -1, /* of receives and probes: in place of a rank */
	LS_ANY_TAG = -1,    /* of receives and probes: in place of options->tag */
};

/* What a message says of itself. */
struct ls_message {
	uint32_t size; /* set by the caller: sizeof(struct ls_message) */
	int32_t source;
	int32_t tag;
	uint32_t dtype; /* enum ls_dtype */
	uint64_t count; /* elements */
};

/* Sends count elements to rank `dst`, which may be the sender itself, with options->tag. Returns when the
 * buffer may be used again; with options->op or options->callback, and in a batch, at once. */
LS_EXPORT LS_CHECKED ls_status ls_send(ls_group *group, const void *buffer, uint64_t count,
				       ls_dtype dtype, int dst, const struct ls_op_options *options);

/* Receives a message of rank `src` (or LS_ANY_SOURCE) with options->tag (or LS_ANY_TAG). With
 * options->message it is told which one it was. Blocks as ls_send does. */
LS_EXPORT LS_CHECKED ls_status ls_recv(ls_group *group, void *buffer, uint64_t count,
				       ls_dtype dtype, int src, const struct ls_op_options *options);

/* The same, never blocking: *op is the handle (op.h), NULL on failure. The buffer must be left alone
 * until it is over. options->op must be NULL. */
LS_EXPORT LS_CHECKED ls_status ls_isend(ls_group *group, const void *buffer, uint64_t count,
					ls_dtype dtype, int dst,
					const struct ls_op_options *options, ls_op **op);
LS_EXPORT LS_CHECKED ls_status ls_irecv(ls_group *group, void *buffer, uint64_t count,
					ls_dtype dtype, int src,
					const struct ls_op_options *options, ls_op **op);

/* Waits until a message is there that a receive of `src` and options->tag would take, and tells which; it
 * stays where it is, and its sender may still take it back. out->size is set by the caller. ls_iprobe does not
 * wait: LS_PENDING if there is none; LS_PEER_DIED or LS_PEER_LEFT, as ls_probe, if there never will be one. */
LS_EXPORT LS_CHECKED ls_status ls_probe(ls_group *group, int src,
					const struct ls_op_options *options, struct ls_message *out);
LS_EXPORT LS_CHECKED ls_status ls_iprobe(ls_group *group, int src,
					 const struct ls_op_options *options,
					 struct ls_message *out);

/* Takes back a send or a receive that has not met its other half. LS_OK: it is over, with the status
 * LS_CANCELLED, and its buffer is the caller's. LS_PENDING: too late, it goes on, or is over already. Waits
 * for no other rank. Any thread. The handle must still be freed. LS_BAD_ARGUMENT: a collective, or a batch. */
LS_EXPORT LS_CHECKED ls_status ls_cancel(ls_op *op);

/* From begin to end the calling thread's ls_send and ls_recv, also of blocks, on this group do not block: each
 * takes its place in the order at its call, as ls_isend and ls_irecv do. Calls that ask for a handle or a callback
 * of their own are not part of the batch. The end waits for all of them, and returns
 * the first status that is not LS_OK; with `op` it does not wait, and *op stands for them all. What other
 * ranks batch does not matter. Begin in a batch, and end outside of one: LS_BAD_ARGUMENT. */
LS_EXPORT LS_CHECKED ls_status ls_batch_begin(ls_group *group);
LS_EXPORT LS_CHECKED ls_status ls_batch_end(ls_group *group, ls_op **op);

/* Hand over: `block` (that ls_alloc gave this rank; it may be longer than the message) belongs to the receiver
 * once this has returned, and the sender must not touch it any more. Nothing is copied if the receiver takes
 * it with ls_recv_block. Does not block for the receiver, but for LOCKSTEP_MESSAGES, and while the receiver
 * holds 64 blocks of this rank. On failure the block stays the caller's. */
LS_EXPORT LS_CHECKED ls_status ls_send_block(ls_group *group, void *block, uint64_t count,
					     ls_dtype dtype, int dst,
					     const struct ls_op_options *options);

/* Receives a message into memory of the library: *block is the sender's own block, if it was sent with
 * ls_send_block, or a new one of ls_alloc. To be given back with ls_free on this group, before it is closed; it
 * cannot be sent on as a block. NULL on failure. */
LS_EXPORT LS_CHECKED ls_status ls_recv_block(ls_group *group, void **block, uint64_t count,
					     ls_dtype dtype, int src,
					     const struct ls_op_options *options);

#ifdef __cplusplus
}
#endif
#endif
