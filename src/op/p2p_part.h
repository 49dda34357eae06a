/* SPDX-License-Identifier: BSD-3-Clause
 * The part of an operation that only sends and receives have. The mailbox owns it. */
#ifndef OP_P2P_PART_H
#define OP_P2P_PART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "op/tuner.h"
#include "transport/mail.h"

struct op;

enum { MATCH_ANY = -1 };

/* A posted receive in the table of posted receives (mailbox/match.h). */
struct match_entry {
	int32_t source, tag;      /* what it receives; MATCH_ANY: any */
	uint64_t order;           /* place in the order of the calls */
	struct match_entry *next; /* in the queue of this receive */
	/* In the first receive of a queue: the last one, and the bucket's next queue. */
	struct match_entry *last, *next_queue;
};

/* Which part of a send or receive comes next. */
enum op_p2p_state {
	OP_P2P_NEW,
	OP_P2P_QUEUED,        /* send: it waits for a free slot */
	OP_P2P_SENT,          /* send: it waits until the receiver has taken the message */
	OP_P2P_POSTED,        /* receive: not matched yet */
	OP_P2P_MATCHED,       /* receive: pieces remain to be copied */
	OP_P2P_SENDER_COPIES, /* receive: the sender is still copying pieces */
	OP_P2P_DELIVERING,    /* receive on a stream: the stream copies it out */
	OP_P2P_DEVICE_BUSY,   /* it has failed, and its device still works on it */
	OP_P2P_COMPLETE,      /* complete, with op->status */
};

struct op_p2p {
	/* enum op_p2p_state; changes under the mailbox's lock while other threads see it */
	_Atomic uint32_t state;
	/* Set by the caller. */
	bool detached;         /* mailbox_progress advances it; mailbox_take_complete returns it */
	bool hands_over_block; /* send: the buffer is a block, which then belongs to the receiver */
	bool receives_block;   /* receive: into a block, which the mailbox sets as call.recv */
	bool is_blocking;      /* the call blocks */
	/* Its end runs no code of the program and begins no other operation, so several such
	 * operations may be ended together. */
	bool ends_quietly;
	bool cancellable;  /* send: it can be cancelled until it is matched, even a short one */
	bool uses_cells;   /* send: it takes cells if some are free when it gets a slot */
	bool posted_first; /* send: it is posted first; then the call stages its payload */
	/* Send: its block has MAIL_PLACES places, which it reuses. With by_address: it helps if its
	 * receiver asks. */
	bool in_places;
	bool nontemporal; /* send that is posted first: it stages past the cache */
	bool fetches;     /* send on a stream: the device still fetches its payload */
	/* The batch of which the operation is a part; NULL: none. Compared, never followed. */
	const struct op *batch;
	/* For a long send. Written under the mailbox's lock, read without it. */
	_Atomic bool cancelled, asks_cancel; /* asks_cancel: asks the receiver on another host */
	/* For a long send: it has failed, and the thread that ends it frees its block, so it is not
	 * cancelled any more. Guarded by the mailbox's lock. */
	bool ends_failed;
	_Atomic bool lingers; /* it is in the list of mailbox_linger */
	/* Receive of a long message: what its RTS slot said when it was claimed. */
	uint64_t window, window_bytes;
	bool by_address, staged_all;  /* send: input_offset is an address; payload copied whole */
	bool announced;               /* send: it has an RTS slot that the receiver knows */
	bool crossed;                 /* receive: see mailbox_crossed_ranks */
	bool window_by_address;       /* receive: window is an address, not an arena offset */
	bool window_in_places;        /* receive: as mail_rts.in_places */
	bool asked;                   /* receive: it has asked its sender to help */
	bool extended;                /* receive: it has polled for longer, as the peer is busy */
	uint8_t patience;             /* receive: how often it still polls for such help */
	uint32_t index, generation;   /* of the RTS slot; the index is 0 .. MAIL_RTS - 1 */
	uint64_t piece_bytes, pieces; /* size and number of pieces */
	uint64_t pieces_copied;       /* by this rank */
	uint64_t pieces_staged;       /* send that was posted first: so far */
	/* How long this rank has copied, in ticks of base/clock.h: a send into its block, a receive
	 * out of it. */
	uint64_t ticks;
	uint64_t staging_ticks; /* the same of a send that was posted first, into its block only */
	struct op_tuner_use stores, transfer; /* send: the copy to its block; the transfer */
	uint64_t matched_ticks;               /* receive of a long message: when it matched */
	struct mail_rts *rts;                 /* NULL: none */
	struct mail_message message;          /* receive: the message that it has matched */
	struct match_entry entry;             /* receive that is unmatched */
	/* in the queue for a slot, in the list of active operations, or in that of complete ones */
	struct op *next;
};

#endif
