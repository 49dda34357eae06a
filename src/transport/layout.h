/* SPDX-License-Identifier: BSD-3-Clause
 * What lies in the memory of a rank that its peers map and write.
 *
 * Every rank owns a segment: a memfd. It has the rank's doorbell, and an area for each of its
 * groups: the entries that it publishes when it enters collectives, which peers read; and for each
 * member an inbox, into which that member writes messages: a channel within collectives, a ring for
 * sends. All awaited words are 64-bit, written by one rank only, and only grow.
 *
 *   rank r's segment
 *   +---------+--------------------+-----------------------+------------------------------------+
 *   | head    | per group: member  | entry slot 0 … K-1    | inboxes [source rank]: a channel   |
 *   | bell    | finished, left,    | header 64 B + payload | posted (source) | taken (owner)    |
 *   |         | cause, look, claim |                       | slots: envelope + small payload    |
 *   +---------+--------------------+-----------------------+------------------------------------+
 *
 * What is read from a peer's memory is bounds-checked; a dead owner's segment stays mapped. */
#ifndef TRANSPORT_LAYOUT_H
#define TRANSPORT_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wait.h"
#include "transport/mail.h"

enum {
	/* K: how many collectives a rank may be ahead of the slowest. With 8 a broadcast of 8 B to
	 * 4 ranks on two processors took twice as long (`lockstep bench broadcast -n 4 --bytes 8`),
	 * as a root that cannot run ahead gives way to the others more often. */
	TRANSPORT_ENTRIES = 32,
	TRANSPORT_INLINE_BYTES = 16384, /* payload of an entry, in pages of the area */
	TRANSPORT_INLINE_PAGES = 32,
	TRANSPORT_TINY_BYTES = 24,      /* payload of an entry in its line */
	TRANSPORT_CHANNEL_SLOTS = 32,   /* messages to a peer that are under way at once */
	TRANSPORT_MESSAGE_INLINE = 192, /* payload of a slot; longer ones stay with the sender */
	TRANSPORT_TEXT_BYTES = 2048,
	TRANSPORT_PHASE_BITS = 16,
	TRANSPORT_CPU_WORDS = 16, /* 1024 processors */
	TRANSPORT_AREAS = 513,    /* groups that a rank may be in at once, that of all ranks too */
	TRANSPORT_HELD = 12,      /* peers whose descriptors a rank keeps open */
	TRANSPORT_PAGE_BYTES = 4096,
	TRANSPORT_AREAS_AT = TRANSPORT_PAGE_BYTES, /* where they begin in a segment */
};
#define TRANSPORT_MAGIC UINT64_C(0x31474553534c) /* "LSSEG1" */

/* The signal word of an entry slot: collective number (from 1) and phase in one growing value. */
static inline uint64_t transport_signal(uint64_t seq, unsigned phase)
{
	return seq << TRANSPORT_PHASE_BITS | phase;
}

enum transport_window {
	TRANSPORT_WINDOW_NONE,
	TRANSPORT_WINDOW_HEADER,  /* in the entry's own line, in place of the two words below */
	TRANSPORT_WINDOW_INLINE,  /* in the entry's payload */
	TRANSPORT_WINDOW_ARENA,   /* at an offset of the rank's arena */
	TRANSPORT_WINDOW_ADDRESS, /* at an address of the rank's process, for transport_read */
	/* copied by fragments into slots at an offset of the rank's arena */
	TRANSPORT_WINDOW_FRAGMENTED,
};

/* What a rank published when it entered collective number `seq`; lies in slot seq mod K. The signal
 * is stored last, so that who sees it sees the rest, and a payload that lies in pages. */
struct transport_entry {
	_Alignas(64) _Atomic uint64_t signal; /* transport_signal(seq, phase) */
	uint64_t signature;                   /* kind, dtype, op, root packed; equal on all ranks */
	uint64_t count;
	/* of all signatures and counts before this one, so that a difference which no edge of its
	 * own plan showed is found by the next collective */
	uint64_t history;
	union {
		struct {
			uint64_t input;  /* arena offset or address of the input window */
			uint64_t output; /* the same of the output window */
		};
		/* A payload so short that a second cache line would take longer than all the
		 * rest. */
		unsigned char tiny[TRANSPORT_TINY_BYTES];
	};
	uint16_t input_window; /* enum transport_window */
	uint16_t output_window;
	uint32_t page; /* where the payload begins that lies beside it */
};
_Static_assert(sizeof(struct transport_entry) == 64, "an entry is one cache line");

/* A rank's word on why a group is closed; valid once the group's cause names that rank. */
struct transport_report {
	_Alignas(64) uint32_t status;
	int32_t blamed; /* world rank, -1: none */
	uint64_t operation;
	char text[TRANSPORT_TEXT_BYTES];
};

/* What a rank's segment holds for one group that the rank is a member of; words each on the line of
 * who writes them. Behind it lie [world size] inboxes, by group rank of the source, and then [world
 * size] reports, by world rank: transport_inbox and transport_report. Memory is there as far as the
 * group needs it; that of an inbox, 41 KiB, once its source sends or its owner receives. */
struct transport_area {
	_Alignas(64) _Atomic uint64_t finished; /* collectives this rank will never touch again */
	/* Messages beside the caller that are over here, of all groups; in the area of the group of
	 * all ranks. */
	_Atomic uint64_t p2p_over;
	/* Queued collectives that are over here, for threads of this rank that wait for another of
	 * its threads; in the segment, so that a diagnosis can follow them. */
	_Atomic uint64_t over;
	/* How often a thread of this rank has left off driving queued collectives while others of
	 * it wait for them. */
	_Atomic uint64_t released;
	/* How many groups have had this area and were closed by the rank: so who knows how many
	 * there were before its group need not fear that the area is used again. */
	_Alignas(64) _Atomic uint64_t left;
	/* Threads of the rank that sleep in this group: a member that leaves has to wake only
	 * them. */
	_Atomic uint32_t asleep;
	/* How the rank's collectives of the group ended, stored when it closes it and before
	 * `left`: 1 + how many there were, 0 before; stored first, the `history` that one more
	 * would have had. */
	_Atomic uint64_t ended, history;
	/* Members that have stored theirs: raised by each of them, before it looks how far this
	 * rank has come. */
	_Atomic uint64_t closing;
	/* Bit q: the inbox of member q is in use. Set by the owner or by member q, whichever needs
	 * it first, before it touches the inbox (transport_inbox_open). */
	_Alignas(64) _Atomic uint64_t inboxes;
	/* 1: the owner takes no message out any more, also of inboxes that are not in use yet. */
	_Atomic uint64_t mail_ended;
	/* Used in member 0's area only, written by anybody: who works out the first cause (world
	 * rank + 1), whose report holds (world rank + 1), when somebody last looked, which reports
	 * have been printed (see group), and the world ranks, bit by bit, that the last look saw
	 * stopped and to blame. */
	_Alignas(64) _Atomic uint64_t claim;
	_Alignas(64) _Atomic uint64_t cause;
	_Alignas(64) _Atomic uint64_t looked_ns;
	_Alignas(64) _Atomic uint64_t reported;
	_Atomic uint64_t stopped;
	/* In one page with the words above, and all that peers touch of a rank whose payloads fit
	 * into its entries. With each entry in a page of its own, 64 ranks touched 64 * 64 * 32
	 * pages in their first 32 collectives. */
	struct transport_entry entries[TRANSPORT_ENTRIES];
	/* Of the entries in progress, in the order of their collectives, one or some pages each: so
	 * there is room for many short ones or a few long ones. */
	_Alignas(4096) unsigned char payloads[TRANSPORT_INLINE_PAGES][TRANSPORT_PAGE_BYTES];
	/* Of messages that this rank sends; others read them. Its memory is there once
	 * transport_cells_open has made it. */
	struct mail_eager eager;
};
_Static_assert(offsetof(struct transport_area, payloads) == TRANSPORT_PAGE_BYTES, "one page");

/* What a message says of itself. */
struct transport_envelope {
	uint64_t seq; /* the collective's number */
	uint64_t count, bytes;
};

/* A slot of a channel. The source fills a free one and stores state last; the owner copies what it
 * needs and stores state 0. Positions are 1, 2, … in the order of posting, and no state returns. */
struct transport_slot {
	_Alignas(64) _Atomic uint64_t state; /* 0: free; else the message's position */
	struct transport_packed {
		uint64_t seq, count, bytes;
		uint64_t window; /* arena offset in the source's arena, for what is not inline */
	} packed;
	uint64_t reserved[3];
	unsigned char payload[TRANSPORT_MESSAGE_INLINE];
};
_Static_assert(sizeof(struct transport_slot) == 256, "message slot");

/* Messages of one rank (the source) to the rank whose segment this is (the owner), within
 * collectives.
 *
 *            source                             owner
 *   state == 0: fill, state = n      lowest state <= posted of this number: claim, copy
 *   posted = n, ring          --->   (refused = status), state = 0
 *   taken > seen: look again  <---   taken += 1, ring
 *
 * A rank that finds nothing waits for a counter that it read before it looked at the slots, so that
 * nothing that happens in between is missed; and it overlooks what came after it read the counter,
 * so that it never sees a message without the ones before. A message is over once its slot's state
 * is no longer its position, so slots are used again at once and a sender need not come back. A
 * refusal outlives the slot: `refused` is set before the state, once and for good, and closes the
 * channel. In quiet: posted == taken + slots whose state is not 0 (transport_is_valid). Model:
 * test/model/channel.pml. */
struct transport_channel {
	_Alignas(64) _Atomic uint64_t posted; /* messages put in so far, by the source */
	/* messages taken out so far, by the owner, in any order */
	_Alignas(64) _Atomic uint64_t taken;
	_Atomic uint64_t refused; /* ls_status of the first refused message, by the owner */
	_Atomic uint64_t matched; /* messages claimed so far, by the owner; taken <= matched */
	struct transport_slot slots[TRANSPORT_CHANNEL_SLOTS];
};

/* Says whose segment this is; checked before anything else in it is looked at. */
struct transport_head {
	uint64_t magic;
	uint64_t bytes; /* of the whole segment */
	uint64_t job;
	int32_t rank, size;
};

/* Which rank reads whose plain memory (malloc, tensors): remote.c. The owner writes all but
 * `told`. */
struct transport_remote {
	_Alignas(64) _Atomic uint64_t pid; /* the owner's process, as it sees itself */
	/* Of a word in the owner's private memory that no other memory holds at this place, by
	 * which readers know that it is still this process; 0: there is none. */
	_Atomic uint64_t address;
	_Atomic uint64_t readable; /* bit q: the owner can read rank q; valid once `probed` is 1 */
	_Atomic uint64_t probed;
	/* Used in rank 0's segment only, written by anybody: 1 once somebody has said that the
	 * system refuses. */
	_Atomic uint64_t told;
};

struct transport_segment {
	struct transport_head head;
	uint64_t cpus[TRANSPORT_CPU_WORDS]; /* on which the owner may run, as cpu_set_t has it */
	/* What all ranks must have alike, written before others map this: a hash of the owner's
	 * table of choices, and setting ALGORITHM. */
	uint64_t table, algorithm;
	struct wait_bell bell;
	struct transport_remote remote;
	/* Raised by whoever leaves a group that this rank may be in, once it has, and by this rank
	 * itself when a peer has died: so that who asks again and again need not look at all of
	 * them each time. Nobody waits for it. */
	_Alignas(64) _Atomic uint64_t departures;
	/* Behind it, from TRANSPORT_AREAS_AT on, lie TRANSPORT_AREAS areas. The first one is of the
	 * group of all ranks. Memory is there for that one, and for others once they are used. */
};
_Static_assert(sizeof(struct transport_segment) <= TRANSPORT_AREAS_AT, "areas lie behind it");

/* What one member sends to another. */
struct transport_inbox {
	struct transport_channel channel; /* for the plans of collectives that send messages */
	struct mail_box mail;             /* for sends and receives */
};

static inline struct transport_inbox *transport_inbox(struct transport_area *area, int source)
{
	return (struct transport_inbox *)(area + 1) + source;
}
/* Whether the inbox of member `source` is in use. If not, it is as new. Sequentially consistent:
 * see transport/lost.c. */
static inline bool transport_inbox_is_open(const struct transport_area *area, int source)
{
	return atomic_load(&area->inboxes) >> source & 1;
}
/* Where the reports begin in an area; and its bytes, which end with a page. */
static inline size_t transport_area_reports_at(int world_size)
{
	return sizeof(struct transport_area) + (size_t)world_size * sizeof(struct transport_inbox);
}
static inline size_t transport_area_bytes(int world_size)
{
	size_t bytes = transport_area_reports_at(world_size) +
		       (size_t)world_size * sizeof(struct transport_report);
	return (bytes + TRANSPORT_PAGE_BYTES - 1) / TRANSPORT_PAGE_BYTES * TRANSPORT_PAGE_BYTES;
}
static inline size_t transport_segment_bytes(int world_size)
{
	return TRANSPORT_AREAS_AT + TRANSPORT_AREAS * transport_area_bytes(world_size);
}
/* Area `index` < TRANSPORT_AREAS of a segment. */
static inline struct transport_area *transport_area_at(const struct transport_segment *segment,
						       int world_size, unsigned index)
{
	return (struct transport_area *)((uintptr_t)segment + TRANSPORT_AREAS_AT +
					 index * transport_area_bytes(world_size));
}
/* What rank `teller` of the world has to say of a group; `head`: the area of its member 0. */
static inline struct transport_report *transport_report(const struct transport_area *head,
							int world_size, int teller)
{
	return (struct transport_report *)((uintptr_t)head + transport_area_reports_at(world_size)) +
	       teller;
}

#endif
