/* SPDX-License-Identifier: BSD-3-Clause
 * The layout of the memory of a rank that its peers map and write.
 *
 * Every rank owns a segment: a memfd. It has the rank's doorbell, and an area for each of its
 * groups. The area has the entries that the rank publishes when it enters collectives; and for each
 * member an inbox, into which that member writes messages: a channel for messages within
 * collectives, a ring for sends. All awaited words are 64-bit, and only grow. Each has one writer,
 * except a group's cause, which any member may set once.
 *
 *   rank r's segment
 *   +---------+--------------------+-----------------------+------------------------------------+
 *   | head    | for each group:    | entries 0 … K-1       | inboxes [source rank]: a channel   |
 *   | bell    | finished,          | 64 B each; pages for  | posted (source) | taken (owner)    |
 *   |         | cause, look, claim | payloads beside them  | slots: envelope + small payload    |
 *   +---------+--------------------+-----------------------+------------------------------------+
 *
 * A rank checks the bounds of all that it reads from a peer's memory. The segment of a dead owner
 * stays mapped. */
#ifndef TRANSPORT_LAYOUT_H
#define TRANSPORT_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"
#include "base/wait.h"
#include "transport/mail.h"

enum {
	/* K: how many collectives a rank may be ahead of the slowest. With 8, a broadcast of 8 B to
	 * 4 ranks on two processors took twice as long (`lockstep bench broadcast -n 4 --bytes 8`),
	 * because a root that cannot run ahead yields its processor more often. */
	TRANSPORT_ENTRIES = 32,
	TRANSPORT_INLINE_BYTES = 16384, /* payload of an entry, in pages of the area */
	TRANSPORT_INLINE_PAGES = 32,
	TRANSPORT_TINY_BYTES = 24,    /* payload of an entry, in the entry itself */
	TRANSPORT_CHANNEL_SLOTS = 32, /* messages to a peer that are under way at once */
	/* The payload of a slot; longer ones stay with the sender. */
	TRANSPORT_MESSAGE_INLINE_BYTES = 192,
	TRANSPORT_TEXT_BYTES = 2048,
	TRANSPORT_REPORT_GROUPS = 64, /* groups that fail with one report */
	TRANSPORT_PHASE_BITS = 16,
	TRANSPORT_CPU_WORDS = 16, /* 1024 processors */
	TRANSPORT_AREAS = 513,    /* groups that a rank may be in at once, that of all ranks too */
	TRANSPORT_HELD = 12,      /* peers whose descriptors a rank keeps open */
	TRANSPORT_PAGE_BYTES = 4096,
	TRANSPORT_HOST_BYTES = 64, /* of a host's name, with its NUL */
};
#define TRANSPORT_MAGIC UINT64_C(0x33474553534c) /* "LSSEG3" */

/* The signal word of an entry: collective number (from 1) and phase in one growing value. It has
 * the lower 48 bits of the number. With a collective each microsecond these begin again after 9
 * years; so words are compared by their distance, as all awaited words are. */
static inline uint64_t transport_signal(uint64_t seq, unsigned phase)
{
	return seq << TRANSPORT_PHASE_BITS | phase;
}
/* Whether a signal word has reached `value`. */
static inline bool transport_signal_reached(uint64_t word, uint64_t value)
{
	return (int64_t)(word - value) >= 0;
}
/* Whether the word is a signal of collective `seq`, of any phase. */
static inline bool transport_signal_is_of(uint64_t word, uint64_t seq)
{
	return (word ^ transport_signal(seq, 0)) >> TRANSPORT_PHASE_BITS == 0;
}

enum transport_window {
	TRANSPORT_WINDOW_NONE,
	TRANSPORT_WINDOW_ENTRY,   /* in the entry itself, in place of the two window words */
	TRANSPORT_WINDOW_INLINE,  /* in the payload pages beside the entries */
	TRANSPORT_WINDOW_ARENA,   /* at an offset of the rank's arena */
	TRANSPORT_WINDOW_ADDRESS, /* at an address of the rank's process, for transport_read */
	/* copied by fragments into slots at an offset of the rank's arena */
	TRANSPORT_WINDOW_FRAGMENTED,
};

/* What a rank publishes when it enters collective number `seq`: entry transport_entry_index(seq)
 * of the ring. The signal is stored last, so a rank that sees it sees the rest, and a payload in
 * pages, too. */
struct transport_entry {
	_Alignas(64) _Atomic uint64_t signal; /* transport_signal(seq, phase) */
	/* Kind, dtype, op, algorithm and root, packed; with lists of counts, mixed with their hash.
	 * Equal on all ranks. */
	uint64_t signature;
	uint64_t count;
	/* A hash of all signatures and counts before this one. So the next collective finds a
	 * difference that the plan of its own collective did not show. */
	uint64_t history;
	union {
		struct {
			uint64_t input;  /* arena offset or address of the input window */
			uint64_t output; /* the same of the output window */
		};
		/* A short payload: to fetch a second cache line would take longer than all the
		 * rest. */
		unsigned char tiny[TRANSPORT_TINY_BYTES];
	};
	uint16_t input_window; /* enum transport_window */
	uint16_t output_window;
	uint32_t page; /* the first page of a payload in pages */
};
_Static_assert(sizeof(struct transport_entry) == 64, "an entry is one cache line");

/* The entries are used in an order that the processors of other ranks do not recognize, so that
 * these prefetch none: as in transport_mail_index. */
static inline unsigned transport_entry_index(uint64_t seq)
{
	enum { STEP = 21 };
	_Static_assert(STEP % 2 == 1, "TRANSPORT_ENTRIES collectives use each entry once");
	return (unsigned)(seq * STEP % TRANSPORT_ENTRIES);
}

/* A rank's report on why a group has failed; valid once the group's cause names that rank. */
struct transport_report {
	_Alignas(64) uint32_t status;
	int32_t culprit; /* world rank, -1: none */
	uint64_t operation;
	/* The ids of all groups that fail together, if there are several; ends with 0, if there is
	 * room. A rank that learns of the failure returns only after all these groups have failed
	 * on its host. */
	uint32_t groups[TRANSPORT_REPORT_GROUPS];
	char text[TRANSPORT_TEXT_BYTES];
};

/* The part of a rank's segment for one group. Words with different writers are on different cache
 * lines. It is followed by [world size] inboxes, by group rank of the source, and then by [world
 * size] reports, by world rank: transport_inbox and transport_report. The system provides pages for
 * the part that the group needs; those of an inbox, 41 KiB, once its source sends or its owner
 * receives. */
struct transport_area {
	_Alignas(64) _Atomic uint64_t finished; /* collectives this rank will never touch again */
	/* One thread makes progress on sends and receives, of all groups. It raises this word when
	 * a thread that waits for it has to look again. Only in the area of the world group. */
	_Atomic uint64_t p2p_wakeups;
	/* The number of the newest queued collective that is complete, for threads of this rank
	 * that wait for another of its threads. It is in the segment, so that a diagnosis can
	 * follow them. */
	_Atomic uint64_t completed_seq;
	/* How often a thread of this rank has stopped making progress on queued collectives while
	 * others of its threads wait for them. */
	_Atomic uint64_t released;
	/* How many groups that had this area the rank has closed. A member knows the number from
	 * before its group was made; so it sees when the rank has left. */
	_Alignas(64) _Atomic uint64_t times_closed;
	/* times_closed + 1 once the rank has made a group that has this area. Ranks on other hosts
	 * send nothing of the group before they have read that. */
	_Atomic uint64_t opened;
	/* Threads of the rank that sleep in this group: a member that leaves has to wake only
	 * them. */
	_Atomic uint32_t asleep;
	/* The end of the rank's collectives, stored when it closes the group, before
	 * `times_closed`. ended: 1 + how many there were; 0: not closed. history, stored before
	 * `ended`: the hash that the next entry would have had. */
	_Atomic uint64_t ended, history;
	/* How many members have stored their end. Each member raises it before it reads which
	 * collectives this rank has entered. */
	_Atomic uint64_t members_ended;
	/* ranks_bit of member q: its inbox is in use. Set by the owner or by member q, whichever
	 * needs it first, before it touches the inbox (transport_inbox_open). */
	_Alignas(64) _Atomic uint64_t inboxes[RANKS_WORLD_WORDS];
	/* 1: the owner takes no more messages out of any inbox, in use or not. */
	_Atomic uint64_t mail_ended;
	/* Only the area of the first member on each host uses the next five; all members on that
	 * host write them. claim: the rank that works out the first cause, as the group's id << 32
	 * | world rank + 1. */
	_Alignas(64) _Atomic uint64_t claim;
	/* The rank whose report counts, as in `claim`. */
	_Alignas(64) _Atomic uint64_t cause;
	_Alignas(64) _Atomic uint64_t looked_ns; /* the time of the last look */
	_Alignas(64) _Atomic uint64_t reported;  /* reports that were printed: failure/look.c */
	/* The world ranks that the last look found stopped and to blame. */
	_Atomic uint64_t stopped[RANKS_WORLD_WORDS];
	/* In one page with the words above, so that peers of a rank whose payloads fit into its
	 * entries touch only this page. With a page for each entry, 64 ranks touched 64 * 64 * 32
	 * pages in their first 32 collectives. */
	struct transport_entry entries[TRANSPORT_ENTRIES];
	/* Payloads of the entries in progress, in the order of their collectives, one or more pages
	 * each: many short ones or a few long ones. */
	_Alignas(4096) unsigned char payloads[TRANSPORT_INLINE_PAGES][TRANSPORT_PAGE_BYTES];
	/* For messages that this rank sends and others read. It has memory after
	 * transport_cells_open. */
	struct mail_cells cells;
};
_Static_assert(offsetof(struct transport_area, payloads) == TRANSPORT_PAGE_BYTES, "one page");

struct transport_envelope {
	uint64_t seq; /* the collective's number */
	uint64_t count, bytes;
};

/* A slot of a channel. The source fills a free slot and stores `state` last. The owner copies what
 * it needs and stores state 0. Positions are 1, 2, … in the order of posting, and never repeat. */
struct transport_slot {
	_Alignas(64) _Atomic uint64_t state; /* 0: free; else the message's position */
	struct transport_packed {
		uint64_t seq, count, bytes;
		uint64_t window; /* offset in the source's arena, of a payload that is not inline */
	} packed;
	/* Between hosts: the position of the last message that the source of this slot has taken
	 * from the same slot of the channel in the other direction. */
	_Atomic uint64_t freed;
	uint64_t reserved[2];
	unsigned char payload[TRANSPORT_MESSAGE_INLINE_BYTES];
};
_Static_assert(sizeof(struct transport_slot) == 256, "message slot");

/* Messages of one rank (the source) to the rank whose segment this is (the owner), within
 * collectives.
 *
 *            source                             owner
 *   state == 0: fill, state = n      lowest state <= posted with this seq: claim, copy
 *   posted = n, notify        --->   (refused = status), state = 0
 *   taken > seen: look again  <---   taken += 1, notify
 *
 * A rank reads a counter, then looks at the slots, and if it finds nothing it waits until that
 * counter changes; so it misses nothing. It ignores messages that came after it read the counter,
 * so it never sees a message without the earlier ones. A message is done once the state of its slot
 * is no longer its position. So slots are reused at once, and a sender need not come back. A
 * refusal outlives the slot: the owner sets `refused` before the state, once and for good, and that
 * closes the channel. While nothing is in progress: posted == taken + slots whose state is not 0
 * (transport_is_valid). Model: test/model/channel.pml. */
struct transport_channel {
	_Alignas(64) _Atomic uint64_t posted; /* messages put in so far, by the source */
	/* messages taken out so far, by the owner, in any order */
	_Alignas(64) _Atomic uint64_t taken;
	_Atomic uint64_t refused; /* ls_status of the first refused message, by the owner */
	_Atomic uint64_t matched; /* messages claimed so far, by the owner; taken <= matched */
	/* Between hosts: payloads that a rank's link has begun to read or to write, and those that
	 * it no longer touches. For that rank alone: a source counts in its mirror of the owner, an
	 * owner in its own segment, and the thread that makes progress on the link is the
	 * writer. */
	_Atomic uint64_t begun, ended;
	/* The same, at a source: the position of the last message that its link has taken. */
	_Atomic uint64_t sent;
	struct transport_slot slots[TRANSPORT_CHANNEL_SLOTS];
};

/* Identifies the segment; checked before anything else in it is read. */
struct transport_header {
	uint64_t magic;
	uint64_t bytes; /* of the whole segment */
	uint64_t job;
	int32_t rank, size;
};

/* Which ranks can read each other's plain memory (malloc, tensors) by cross memory attach: cma.c.
 * The owner writes all but `warned`. */
struct transport_cma {
	_Alignas(64) _Atomic uint64_t pid; /* the owner's process, as it sees itself */
	/* The address of a word in the owner's private memory. No other process has its value
	 * there, so readers see by it that this is still the owner; 0: none. */
	_Atomic uint64_t address;
	/* ranks_bit: the owner can read that rank; valid once `probed` is 1 */
	_Atomic uint64_t readable[RANKS_WORLD_WORDS];
	_Atomic uint64_t probed;
	/* Only in the segment of the first rank of a host, written by all ranks there: 1 once a
	 * rank has warned that the system refuses such reads. */
	_Atomic uint64_t warned;
};

/* Notes and words between a rank and one on another host. */
struct transport_traffic {
	_Atomic uint64_t posted;  /* given to the link */
	_Atomic uint64_t arrived; /* from the other rank, and stored here */
	/* Long payloads from the other rank: fetched or refused, begun and ended. */
	_Atomic uint64_t begun, fetched;
	/* Long payloads for the other rank, released by the link. Eager ones do not count, because
	 * they may stay at the other rank for any time. */
	_Atomic uint64_t released;
	_Atomic uint64_t copied; /* those of `fetched` that were eager */
	_Atomic uint64_t ahead;  /* eager ones for the other rank that the link still reads */
	/* Those of `posted` that were kept back since the last push; full batches have gone. */
	_Atomic uint64_t kept_back;
	_Atomic uint64_t lost; /* 1: the connection has broken or was cut: nothing comes any more */
};

/* What the agent of a host knows of another host. The next agent begins with it (struct
 * detector_past), and the ranks act by it. */
struct transport_remote_host {
	_Atomic uint64_t generation, number, broken, silent;
	/* Since when one of the two does not hear the other, by CLOCK_MONOTONIC; 0: both hear each
	 * other. how: how that is known, enum heartbeat_silence. */
	_Atomic uint64_t unheard_ns, how;
	_Atomic uint64_t listened_ns; /* how much of that time the agents here have listened */
	/* What is known of the other host's clock, under a sequence lock; error_ns 0: nothing. */
	_Atomic uint32_t clock_epoch;
	uint32_t zero;
	struct transport_remote_clock {
		/* Its CLOCK_MONOTONIC is ahead of the one here by offset_ns, give or take error_ns,
		 * as measured at at_ns. */
		int64_t offset_ns;
		uint64_t error_ns, at_ns;
	} clock;
};

/* What a command on this host may want of the ranks of all hosts: failure/shown.h. */
enum transport_question { TRANSPORT_QUESTION_JOB, TRANSPORT_QUESTION_TRACES, TRANSPORT_QUESTIONS };

/* In the segment of the first rank of a host, written by ranks of that host, and `asked` also by
 * commands. */
struct transport_agent {
	_Alignas(64) _Atomic uint64_t lease; /* generation << 16 | 1 + world rank of the agent */
	_Atomic uint64_t renewed_ns;         /* by CLOCK_MONOTONIC */
	/* ranks of this host that take part: ranks_bit */
	_Atomic uint64_t present[RANKS_WORLD_WORDS];
	/* asked: how often commands have asked; given: the newest of these questions that was
	 * answered. */
	_Atomic uint64_t asked[TRANSPORT_QUESTIONS], given[TRANSPORT_QUESTIONS];
	struct transport_remote_host hosts[RANKS_HOSTS_MAX]; /* by number of the host */
};

/* Where a rank of a job on several hosts is; written before others map the segment. */
struct transport_location {
	char host[TRANSPORT_HOST_BYTES]; /* ends with NUL */
	int32_t pid, first;              /* on its host; the lowest rank of that host */
};

struct transport_segment {
	struct transport_header header;
	uint64_t cpus[TRANSPORT_CPU_WORDS]; /* processors on which the owner may run (cpu_set_t) */
	/* What must be the same on all ranks, written before others map this: a hash of the owner's
	 * table of algorithms, and the settings ALGORITHM and BLOCKING. */
	uint64_t table, algorithm, blocking;
	struct wait_bell bell;
	struct transport_cma cma;
	/* Raised by each rank that has left a group that this rank may be in, and by this rank
	 * itself when a peer has died. So repeated checks need not look at all peers each time. No
	 * thread waits for it. */
	_Alignas(64) _Atomic uint64_t departures;
	/* For ranks on other hosts. marked: how often a thread had something new for one of them;
	 * served: `marked` before the link was last given all that was new. Nothing is under way
	 * from this rank to rank q if
	 *   served == marked, and then posted here == arrived there,
	 *   begun == fetched there, and fetched there == released here. */
	_Alignas(64) _Atomic uint64_t marked;
	_Atomic uint64_t served;
	struct transport_agent agent;
	/* Then follow for each world rank its traffic (transport_traffic), then the location of
	 * each (transport_location_of), which is zero if there is one host; and from
	 * transport_areas_at on TRANSPORT_AREAS areas. The first one is that of the group of all
	 * ranks. It has memory; the others get memory when they are used. */
};
_Static_assert(sizeof(struct transport_segment) % _Alignof(struct transport_traffic) == 0 &&
		       sizeof(struct transport_traffic) % _Alignof(struct transport_location) == 0,
	       "they follow it");

static inline struct transport_traffic *transport_traffic(const struct transport_segment *segment,
							  int rank)
{
	return (struct transport_traffic *)((uintptr_t)segment + sizeof *segment) + rank;
}
static inline struct transport_location *transport_location_of(
	const struct transport_segment *segment, int world_size, int rank)
{
	return (struct transport_location *)transport_traffic(segment, world_size) + rank;
}
/* Where the areas begin: whole pages. */
static inline size_t transport_areas_at(int world_size)
{
	size_t bytes = sizeof(struct transport_segment) +
		       (size_t)world_size * (sizeof(struct transport_traffic) +
					     sizeof(struct transport_location));
	return (bytes + TRANSPORT_PAGE_BYTES - 1) / TRANSPORT_PAGE_BYTES * TRANSPORT_PAGE_BYTES;
}

/* For what one member sends to another. */
struct transport_inbox {
	struct transport_channel channel; /* for the plans of collectives that send messages */
	struct mail_ring mail;            /* for sends and receives */
};

static inline struct transport_inbox *transport_inbox(struct transport_area *area, int source)
{
	return (struct transport_inbox *)(area + 1) + source;
}
/* Whether the inbox of member `source` is in use. If not, it has no memory. Sequentially
 * consistent: see transport/lost_messages.c. */
static inline bool transport_inbox_is_open(const struct transport_area *area, int source)
{
	return atomic_load(&area->inboxes[source / 64]) & ranks_bit(source);
}
/* The offset of the reports in an area; and the size of the area, which is whole pages. */
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
	return transport_areas_at(world_size) + TRANSPORT_AREAS * transport_area_bytes(world_size);
}
/* Area `index` < TRANSPORT_AREAS of a segment. */
static inline struct transport_area *transport_area_at(const struct transport_segment *segment,
						       int world_size, unsigned index)
{
	return (struct transport_area *)((uintptr_t)segment + transport_areas_at(world_size) +
					 index * transport_area_bytes(world_size));
}

/* A mirror has the head of a segment, and areas without reports, with one inbox each. The inbox is
 * for what the rank that keeps the mirror sends to the rank that is mirrored. */
static inline size_t transport_mirror_area_bytes(void)
{
	size_t bytes = sizeof(struct transport_area) + sizeof(struct transport_inbox);
	return (bytes + TRANSPORT_PAGE_BYTES - 1) / TRANSPORT_PAGE_BYTES * TRANSPORT_PAGE_BYTES;
}
static inline size_t transport_mirror_bytes(void)
{
	return transport_areas_at(0) + TRANSPORT_AREAS * transport_mirror_area_bytes();
}
static inline struct transport_area *transport_mirror_area(const struct transport_segment *mirror,
							   unsigned index)
{
	return (struct transport_area *)((uintptr_t)mirror + transport_areas_at(0) +
					 index * transport_mirror_area_bytes());
}
/* Where the mirror of a rank is in a segment's file. */
static inline size_t transport_mirror_at(int world_size, int rank)
{
	return transport_segment_bytes(world_size) + (size_t)rank * transport_mirror_bytes();
}
/* The bytes of a segment's file. With mirrors: one for each rank follows the segment, so that other
 * ranks of this host, too, can read the words that the owner awaits. */
static inline size_t transport_file_bytes(int world_size, bool mirrors)
{
	return mirrors ? transport_mirror_at(world_size, world_size)
		       : transport_segment_bytes(world_size);
}
/* The report of world rank `teller` on a group; `head`: transport_head_of. */
static inline struct transport_report *transport_report(const struct transport_area *head,
							int world_size, int teller)
{
	return (struct transport_report *)((uintptr_t)head + transport_area_reports_at(world_size)) +
	       teller;
}

#endif
