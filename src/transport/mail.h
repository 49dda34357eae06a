/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of one rank (the source) to another (the owner), in a ring in the owner's memory that
 * both have mapped: struct mail_ring. The receiver alone decides what a message matches. This file
 * only moves messages, lets both ranks copy the bytes of long ones, and shows both when that is
 * done.
 *
 * A short message is in its slot, or in cells of the source, and its send is complete ("eager" in
 * MPI and UCX). The slot of a long one names an RTS slot ("ready to send", as in their rendezvous
 * protocol), which says where the bytes are, and which rank copies which piece of them. Models:
 * test/model/mail.pml, cells.pml, rts.pml, reclaim.pml. */
#ifndef TRANSPORT_MAIL_H
#define TRANSPORT_MAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/prefetch.h"
#include "base/seqlock.h"
#include "base/wait.h"

enum {
	MAIL_SLOTS = 64, /* unmatched messages that a ring can hold; one bit each in a set */
	/* The first half is for messages that are copied, so each is free soon after its match.
	 * The second half is for blocks that are handed over, which the receiver may keep: no other
	 * message has to wait until it returns one. */
	MAIL_RTS = 2 * MAIL_SLOTS,
	MAIL_TINY_BYTES = 24,    /* payload in the envelope's cache line */
	MAIL_INLINE_BYTES = 192, /* payload of a slot */
	MAIL_EAGER_BYTES = 4096, /* payload of two cells */
	MAIL_CELL_BYTES = 2112,  /* 2 KiB and a line, so that cells begin in all sets of a cache */
	MAIL_CELL_PAIRS = 64,    /* of a rank in a group; one bit each in a set */
	MAIL_PIECE_BYTES = 64 * 1024,
	MAIL_PLACES = 8, /* pieces that a block has room for if the source reuses it */
	MAIL_PIECE_LEAST_BYTES = 4096,
	MAIL_CLAIMS = 0x3fffffff, /* the bits of a cursor that count pieces */
};

struct mail_envelope {
	uint64_t count;
	int32_t tag;
	uint32_t record; /* the lowest bits of the send's record in the source's trace */
	uint16_t rts;    /* 1 + its index; 0: the send is complete */
	uint8_t dtype;
	uint8_t flags; /* enum mail_flag */
	uint16_t cell; /* 1 + the source's cell; 0: the payload is in the slot */
	uint16_t reserved;
};
enum mail_flag {
	MAIL_BLOCK = 1, /* the window is a block, which will belong to the receiver */
};

/* Positions are 1, 2, … and grow. Position p uses slot transport_mail_index(p); if an older message
 * is still there, position p is skipped. So messages can be taken out in any order, and are matched
 * in the order of their positions.
 *
 *   source, at position p                        owner, at position p
 *   freed != held: sequence = p, go to p + 1     sequence < p: nothing more; await sequence
 *   else fill, held = p, sequence = p, notify    held == p: a message, otherwise p was skipped
 *                                                when it is taken: freed = p, taken += 1, notify
 *
 * A source that cancels a message skips one more position, so that the owner looks, and discards
 * the message. The first cache line is all that a short message needs, and what the owner polls. */
struct mail_slot {
	/* written by the source: the newest position that has used or skipped this slot */
	_Alignas(64) _Atomic uint64_t sequence;
	/* written by the source: the position of the message that is here, or was here last */
	_Atomic uint64_t held;
	struct mail_envelope envelope;
	unsigned char tiny[MAIL_TINY_BYTES];
	unsigned char payload[MAIL_INLINE_BYTES];
};
_Static_assert(sizeof(struct mail_envelope) == 24, "the same for all compilers");
_Static_assert(sizeof(struct mail_slot) == 256, "four cache lines");

/* Cells for payloads that are too long for a slot and short enough to be copied twice. A payload
 * uses one cell, or both of a pair. A rank has its cells in its own segment and uses them for
 * messages to all members of a group, so no pair of ranks needs its own. A cell belongs to a
 * message until that has left its slot, which the source sees in `freed` or `taken`; so cells need
 * no words. */
struct mail_cells {
	_Alignas(64) unsigned char cells[MAIL_CELL_PAIRS][2][MAIL_CELL_BYTES];
};

/* The slots are used in an order that the owner's processor does not recognize. Else it would fetch
 * slots by itself before the source has filled them, and the source would have to fetch each of
 * them back. */
static inline unsigned transport_mail_index(uint64_t position)
{
	enum { STEP = 25 };
	_Static_assert(STEP % 2 == 1, "MAIL_SLOTS positions use each slot once");
	return (unsigned)(position * STEP % MAIL_SLOTS);
}

/* One long message. Its words contain `generation`, the number of the use, so that they only grow:
 * see transport_mail_word. Once `done` has its value the source may reuse the RTS slot, even if
 * another thread of the source has not seen that yet. So each thread changes the cursor only if
 * that still has the thread's own generation.
 *
 * The cursor says which rank has the message, and what remains to be copied:
 *   0                 it is unmatched; the source may still cancel it (-> MAIL_CLOSED)
 *   MAIL_MATCHED + i  the owner has matched it; the rank that adds 1 copies piece i
 *   MAIL_CLOSED       no rank begins another piece
 * The side that has closed the cursor knows how many pieces were begun, and how many of these are
 * its own. So it waits for exactly the others; then nobody touches its buffer any more. */
struct mail_rts {
	/* The source's, written before the message is posted. */
	_Alignas(64) uint64_t window; /* arena offset, or address in its process */
	uint64_t bytes;
	uint32_t generation;
	uint16_t by_address; /* 1: window is an address in its private memory */
	/* 1: window has MAIL_PLACES places, and piece i is in place i mod MAIL_PLACES; the source
	 * reuses a place when `owner_copied` says that it may. With by_address: the source helps if
	 * `matched` asks it to. */
	uint16_t in_places;
	_Atomic uint64_t source_copied; /* pieces that the source has copied to `target` */
	/* how many pieces are at `window`, which may be begun; MAIL_CLAIMS: all */
	_Atomic uint64_t staged;
	uint64_t places;        /* arena offset of a struct mail_places, while the source helps */
	_Atomic uint64_t helps; /* 1 piece: the source helps */
	_Alignas(64) _Atomic uint64_t cursor; /* written by both */
	/* Written by the owner. */
	uint64_t target; /* 1 + the offset in its arena to which the source may copy; 0: none */
	/* How long the owner has copied its pieces; stored before `done`. A source that reads it
	 * late may get the value of the slot's next use. */
	_Atomic uint64_t ticks;
	_Atomic uint64_t elapsed;      /* how long it took from the match on; as `ticks` */
	_Atomic uint64_t matched;      /* from now on the source may copy pieces, too */
	_Atomic uint64_t owner_copied; /* pieces that the owner has copied */
	_Atomic uint64_t done;         /* the owner will never touch the source's buffer again */
};
#define MAIL_MATCHED UINT64_C(0x40000000)
#define MAIL_CLOSED UINT64_C(0x80000000)
_Static_assert(sizeof(struct mail_rts) == 128, "two cache lines");

/* Pieces that the source copies for an owner that reads by address. Piece i is in place
 * i mod MAIL_PLACES if `holds` of that place is transport_mail_word(generation, i + 1). The owner
 * looks before it claims the piece; the source replaces it once `owner_copied` counts it. */
struct mail_places {
	struct {
		_Alignas(64) _Atomic uint64_t word;
	} holds[MAIL_PLACES];
	unsigned char bytes[];
};
static inline uint64_t transport_mail_places_bytes(uint64_t piece_bytes)
{
	return sizeof(struct mail_places) + MAIL_PLACES * piece_bytes;
}

struct mail_ring {
	/* Written by the owner, unless said otherwise. */
	_Alignas(64) _Atomic uint64_t taken; /* messages taken out so far */
	/* Written by both, when the group is closed: 2 * the position below which all lost messages
	 * have been reported, + 1 once the owner takes no message out any more. Only grows. */
	_Atomic uint64_t reported;
	/* Written by the source: see mailbox/crossed.c. */
	_Atomic uint64_t crossed;
	/* How many uses of RTS slots have ended; raised after `done` of each. A rank that waits for
	 * a free RTS slot reads it before it checks all slots. */
	_Atomic uint64_t returned;
	/* By position mod MAIL_SLOTS: the position of the last message taken out of that slot. */
	_Atomic uint64_t freed[MAIL_SLOTS];
	struct mail_slot slots[MAIL_SLOTS];
	struct mail_rts rts[MAIL_RTS];
};

/* Whether the message of that position, which the slot's `held` names, is still there. False if the
 * position is 0, or cannot be in that slot. */
static inline bool transport_mail_holds(const struct mail_ring *ring, unsigned slot,
					uint64_t position)
{
	return position != 0 && transport_mail_index(position) == slot &&
	       atomic_load_explicit(&ring->freed[position % MAIL_SLOTS], memory_order_acquire) !=
		       position;
}

/* The value of an RTS slot's word in its g-th use. */
static inline uint64_t transport_mail_word(uint32_t generation, uint64_t pieces)
{
	return (uint64_t)generation << 32 | pieces;
}

/* ---- the source ---- */

/* What the source keeps in private memory, so that the owner cannot damage it. */
struct mail_out {
	uint64_t next;     /* the next position */
	uint64_t posted;   /* how many messages were posted */
	uint64_t seen;     /* `taken`, when last read */
	uint64_t returned; /* `returned`, before RTS slots were last checked */
	uint64_t clear;    /* the slots of positions below this are free since all was taken */
	uint64_t free;     /* the slots of positions from `next` up to this are free */
	/* When `taken` was last read, the owner had made progress, but little. The caller clears
	 * it. */
	bool receiver_lags;
	/* Bit i of rts[h]: RTS slot i of half h is in use. */
	uint64_t rts[2];
	uint32_t generations[MAIL_RTS];
};
void transport_mail_out_init(struct mail_out *out);

/* Whether a message may be posted: fewer than `limit` (<= MAIL_SLOTS) are there unmatched. Reads
 * `taken` into out->seen if it must. If not, wait until `taken` differs from out->seen. */
bool transport_mail_look_for_room(const struct mail_ring *ring, struct mail_out *out,
				  unsigned limit);
static inline bool transport_mail_find_room(const struct mail_ring *ring, struct mail_out *out,
					    unsigned limit)
{
	return out->posted - out->seen < limit || transport_mail_look_for_room(ring, out, limit);
}
/* Whether an RTS slot is known to be free. block: in the half for blocks. */
static inline bool transport_mail_has_rts(const struct mail_out *out, bool block)
{
	return ~out->rts[block] != 0;
}
/* Takes a free RTS slot (transport_mail_has_rts); fills it and its generation. Nothing is staged
 * yet. */
unsigned transport_mail_rts_alloc(struct mail_ring *ring, struct mail_out *out, bool block,
				  uint64_t window, bool by_address, uint64_t bytes);
/* Call when the use `generation` has ended, or was never posted. Does nothing if another thread has
 * freed it before, even if it is in use again. */
void transport_mail_rts_free(struct mail_out *out, unsigned index, uint32_t generation);
/* If no RTS slot of this half is free: frees all whose uses have ended, except those in kept[2],
 * which the caller checks afterwards. If still none is free, wait until ring->returned differs from
 * out->returned. */
void transport_mail_reclaim(const struct mail_ring *ring, struct mail_out *out, bool block,
			    const uint64_t *kept);
/* Copies the payload of a slot, which most often is one element. */
static inline void transport_mail_copy(void *to, const void *from, uint64_t bytes)
{
	if (bytes == sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	else if (bytes)
		memcpy(to, from, bytes);
}
/* Posts a message; transport_mail_find_room was true. payload: `bytes` for the slot, if the
 * envelope names neither an RTS slot nor cells. The last store is that of `sequence`, sequentially
 * consistent. */
void transport_mail_post(struct mail_ring *ring, struct mail_out *out,
			 const struct mail_envelope *envelope, const void *payload, uint64_t bytes);
/* For it: leaves out slots that hold older messages which were not matched yet. */
void transport_mail_step_over(struct mail_ring *ring, struct mail_out *out);
/* Stores whole words, because a diagnosis may read the envelope at any time. They are made in
 * registers: words that are read from memory after stores to their parts wait for these stores. */
static inline void transport_mail_store_envelope(struct mail_slot *slot,
						 const struct mail_envelope *envelope)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	_Atomic uint64_t *to = (_Atomic uint64_t *)&slot->envelope;
	uint64_t tag_record = (uint32_t)envelope->tag | (uint64_t)envelope->record << 32;
	uint64_t rest = envelope->rts | (uint64_t)envelope->dtype << 16 |
			(uint64_t)envelope->flags << 24 | (uint64_t)envelope->cell << 32;
	atomic_store_explicit(to, envelope->count, memory_order_release);
	atomic_store_explicit(to + 1, tag_record, memory_order_release);
	atomic_store_explicit(to + 2, rest, memory_order_release);
#else
	seqlock_store(&slot->envelope, envelope, sizeof *envelope);
#endif
}
/* As transport_mail_post, for a call of which each instruction counts. */
static inline void transport_mail_post_inline(struct mail_ring *ring, struct mail_out *out,
					      const struct mail_envelope *envelope,
					      const void *payload, uint64_t bytes)
{
	/* The source fetches a slot this many messages before it fills it, because a line takes
	 * longer from the owner's cache than a send takes. It does not fetch the next slot, which
	 * the owner may be polling. */
	enum { AHEAD = 3, LINE = 64 };
	if (__builtin_expect(out->next >= out->free, 0))
		transport_mail_step_over(ring, out);
	struct mail_slot *slot = &ring->slots[transport_mail_index(out->next)];
	transport_mail_store_envelope(slot, envelope);
	if (!(envelope->rts | envelope->cell))
		transport_mail_copy(bytes <= MAIL_TINY_BYTES ? slot->tiny : slot->payload, payload,
				    bytes);
	atomic_store_explicit(&slot->held, out->next, memory_order_release);
	wait_store(&slot->sequence, out->next);
	out->next++;
	out->posted++;
	const struct mail_slot *ahead = &ring->slots[transport_mail_index(out->next + AHEAD)];
	prefetch_for_store(ahead);
	if (bytes > MAIL_TINY_BYTES)
		for (uint64_t i = 0; i < bytes; i += LINE)
			prefetch_for_store(ahead->payload + i);
}

/* Whether the message that was posted at this position has left its slot. Reads the owner's words
 * only if the source does not know yet. */
static inline bool transport_mail_has_left(const struct mail_ring *ring, const struct mail_out *out,
					   uint64_t position)
{
	if ((int64_t)(out->clear - MAIL_SLOTS - position) > 0)
		return true;
	uint64_t freed =
		atomic_load_explicit(&ring->freed[position % MAIL_SLOTS], memory_order_acquire);
	return (int64_t)(freed - position) >= 0;
}

/* Call when a posted message was cancelled, so that the owner looks for it; then notify it. */
void transport_mail_skip(struct mail_ring *ring, struct mail_out *out);

/* ---- the owner ---- */

/* A message, copied to memory that the source cannot change. */
struct mail_message {
	struct mail_envelope envelope;
	uint64_t position;
	uint32_t slot;
	int32_t source; /* the caller of transport_mail_poll fills it */
};

struct mail_in {
	uint64_t next; /* the next position to look at */
	uint64_t taken;
	/* a position was skipped, so a message may have been cancelled; the caller clears it */
	bool skipped;
};
void transport_mail_in_init(struct mail_in *in);

/* The next message. False: there is none yet, and the word of transport_mail_awaited reaches
 * in->next when it comes. */
bool transport_mail_poll(struct mail_ring *ring, struct mail_in *in, struct mail_message *out);
/* The word to wait for if transport_mail_poll has found no message. */
static inline const _Atomic uint64_t *transport_mail_awaited(const struct mail_ring *ring,
							     const struct mail_in *in)
{
	return &ring->slots[transport_mail_index(in->next)].sequence;
}
/* Call when a message was there at once: the owner is behind the source, so more are probably
 * there. Fetches some at a time, because it takes as long to fetch several lines as one. */
static inline void transport_mail_prefetch(const struct mail_ring *ring, const struct mail_in *in)
{
	enum { LINES_AT_ONCE = 8 };
	if (in->next % LINES_AT_ONCE == 1)
		for (uint64_t next = in->next; next % LINES_AT_ONCE != 0; next++)
			__builtin_prefetch(&ring->slots[transport_mail_index(next)]);
}
/* Call when the owner has waited for a message, and so will probably wait for those that follow:
 * fetches the line after the next one, so that the fetch does not meet the source's store. */
static inline void transport_mail_prefetch_early(const struct mail_ring *ring,
						 const struct mail_in *in)
{
	__builtin_prefetch(&ring->slots[transport_mail_index(in->next + 1)]);
}
/* Whether a payload of more than MAIL_INLINE_BYTES is in the source's cells. */
static inline bool transport_mail_is_in_cell(const struct mail_envelope *envelope, uint64_t bytes)
{
	unsigned cell = envelope->cell - 1u;
	return bytes <= MAIL_EAGER_BYTES && cell < 2 * MAIL_CELL_PAIRS &&
	       (bytes <= MAIL_CELL_BYTES || cell % 2 == 0);
}
/* The payload of a message without an RTS slot; the source can still change it. cells: the source's
 * cells. NULL: the envelope is nonsense. */
static inline const void *transport_mail_payload(const struct mail_ring *ring,
						 const struct mail_cells *cells,
						 const struct mail_message *message, uint64_t bytes)
{
	const struct mail_slot *slot = &ring->slots[message->slot];
	unsigned cell = message->envelope.cell - 1u;
	if (bytes <= MAIL_INLINE_BYTES)
		return bytes <= MAIL_TINY_BYTES ? slot->tiny : slot->payload;
	return transport_mail_is_in_cell(&message->envelope, bytes)
		       ? cells->cells[cell / 2][cell % 2]
		       : NULL;
}
/* Frees the slot. The caller notifies the source. */
void transport_mail_free_slot(struct mail_ring *ring, struct mail_in *in,
			      const struct mail_message *message);

/* ---- messages that nobody will receive: lost_messages.c ---- */

/* Says that the owner takes no more messages out. It checks the ring once more after this. */
void transport_mail_end(struct mail_ring *ring);
bool transport_mail_has_ended(const struct mail_ring *ring);
/* How many short messages and blocks at positions below `next` nobody will receive, and the
 * envelope of the oldest; each counts only once. Call after transport_mail_end, as the owner, or as
 * the source, which posts nothing any more. */
int transport_mail_lost(struct mail_ring *ring, uint64_t next, struct mail_envelope *first);

/* Resets a ring that nobody uses any more. */
void transport_mail_reset(struct mail_ring *ring);

/* ---- RTS slots: both ranks ---- */

/* The size of a piece; both ranks compute the same. */
static inline uint64_t transport_mail_piece_bytes(uint64_t bytes)
{
	uint64_t piece = MAIL_PIECE_BYTES;
	while (piece > MAIL_PIECE_LEAST_BYTES && piece * 8 > bytes)
		piece /= 2;
	return piece;
}
static inline uint64_t transport_mail_pieces(uint64_t bytes)
{
	uint64_t piece = transport_mail_piece_bytes(bytes);
	return (bytes + piece - 1) / piece;
}

/* The value that `staged` must reach before another piece can be begun; 0: no need to wait. */
static inline uint64_t transport_mail_unstaged(const struct mail_rts *rts, uint32_t generation,
					       uint64_t pieces)
{
	uint64_t cursor = atomic_load_explicit(&rts->cursor, memory_order_acquire);
	uint64_t staged = atomic_load_explicit(&rts->staged, memory_order_acquire);
	uint64_t claims = cursor & MAIL_CLAIMS;
	uint64_t next = transport_mail_word(generation, claims + 1);
	bool left = claims < (pieces > 0 ? pieces : 1); /* an empty message is announced, too */
	bool waits = !(cursor & MAIL_CLOSED) && left && (int64_t)(staged - next) < 0;
	return waits ? next : 0;
}
/* Says that the owner will never touch the source's buffer again. Any thread of the owner, once for
 * each use. The caller notifies the source. */
void transport_mail_rts_done(struct mail_ring *ring, unsigned index, uint32_t generation);
/* The owner matches the message; false: the source has cancelled it. */
bool transport_mail_match(struct mail_rts *rts, uint32_t generation);
/* The source cancels the message; false: too late. */
bool transport_mail_cancel(struct mail_rts *rts, uint32_t generation);
/* Claims a piece; false: none is left. The caller has checked `staged`; the source claims none
 * before all are staged. */
bool transport_mail_claim(struct mail_rts *rts, uint32_t generation, uint64_t pieces,
			  uint64_t *piece);
/* Whether the source has cancelled the message. */
static inline bool transport_mail_is_cancelled(const struct mail_rts *rts)
{
	uint64_t cursor = atomic_load_explicit(&rts->cursor, memory_order_acquire);
	return (cursor & (MAIL_CLOSED | MAIL_MATCHED)) == MAIL_CLOSED;
}
/* Whether the use `generation` was cancelled, and whether one of the two ranks has closed its
 * cursor. A source on another host may have begun another use before the owner has seen the end of
 * this one. */
static inline bool transport_mail_was_cancelled(const struct mail_rts *rts, uint32_t generation)
{
	return atomic_load_explicit(&rts->cursor, memory_order_acquire) ==
	       transport_mail_word(generation, MAIL_CLOSED);
}
static inline bool transport_mail_is_closed(const struct mail_rts *rts, uint32_t generation)
{
	uint64_t cursor = atomic_load_explicit(&rts->cursor, memory_order_acquire);
	return cursor >> 32 == generation && cursor & MAIL_CLOSED;
}
/* Closes the cursor, so that no piece is begun any more; returns how many were begun. */
uint64_t transport_mail_close(struct mail_rts *rts, uint32_t generation, uint64_t pieces);

#endif
