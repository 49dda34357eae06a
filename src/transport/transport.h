/* SPDX-License-Identifier: BSD-3-Clause
 * Moves bytes between two ranks of one host, through shared memory; also a rank's messages to
 * itself (doc/decisions/001). For ranks on other hosts see hosts.h.
 *
 * Every rank owns a segment: a memfd that its peers map and write. It has the rank's doorbell, and
 * an area for each of its groups: the entries that it publishes when it enters collectives, which
 * peers read; and for each member a channel (messages within collectives) and a ring (sends) into
 * which that member writes. All awaited words are 64-bit, written by one rank only, and only grow.
 *
 *   rank r's segment
 *   +---------+--------------------+-----------------------+------------------------------------+
 *   | head    | per group: member  | entry slot 0 … K-1    | lanes [source rank]: a channel     |
 *   | bell    | finished, left,    | header 64 B + payload | posted (source) | taken (owner)    |
 *   |         | cause, look, claim |                       | slots: envelope + small payload    |
 *   +---------+--------------------+-----------------------+------------------------------------+
 *
 * What is read from a peer's memory is bounds-checked; a dead owner's segment stays mapped. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/lock.h"
#include "base/ranks.h"
#include "base/wait.h"
#include "memory/memory.h"
#include "transport/mail.h"
#include "transport/publish.h"

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
 * who writes them. Behind it lie [world size] places for the channels from each member, by group
 * rank, and then [world size] reports, by world rank: transport_channel and transport_report.
 * Memory is there as far as the group needs it. */
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
	/* Of messages that this rank sends; others read them. */
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

/* From one member to one. */
struct transport_lanes {
	struct transport_channel channel; /* for the plans of collectives that send messages */
	struct mail_box mail;             /* for sends and receives */
};

/* Where the reports begin in an area; and its bytes, which end with a page. */
static inline size_t transport_area_reports_at(int world_size)
{
	return sizeof(struct transport_area) + (size_t)world_size * sizeof(struct transport_lanes);
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

/* A message that a thread of this rank has claimed, copied out of reach of its source. */
struct transport_message {
	uint64_t position;
	uint64_t seq, count, bytes, window;
	uint32_t index; /* of its slot */
	const struct transport_slot *slot;
};

/* What only this process knows of its channels with a peer, so that a peer cannot damage it. */
struct transport_cursor {
	uint64_t posted;  /* by me, to the peer: the position of my newest message */
	uint64_t taken;   /* by me, from the peer */
	uint64_t matched; /* by me, from the peer */
	uint32_t claimed; /* bit i: a thread of mine is receiving the message in slot i */
	struct transport_message messages[TRANSPORT_CHANNEL_SLOTS];
};

/* One rank as this process sees it; my own rank has one too. */
struct transport_peer {
	int peer; /* world rank */
	struct transport_segment *segment;
	size_t segment_bytes;
	struct memory_view arena;
	/* Open for diagnoses from outside (transport_hold); -1 if not. Of my own rank: those of
	 * `struct transport` and of the exchange, not owned. */
	int segment_fd, trace_fd;
	/* Of the peer's struct transport_remote, copied once; constant after transport_connect. */
	int pid;
	uint64_t word_address;
	/* Not NULL: the rank is on another host, `segment` is its mirror, and `arena` is empty. */
	struct transport_mirror *remote;
	uint16_t edge_segment; /* enum wait_segment, of its words */
};

struct transport {
	int rank, size;
	uint64_t job;
	int pid;        /* whose memory it is: a forked child has none of it */
	int segment_fd; /* mine */
	struct transport_segment *segment;
	struct transport_peer *peers;  /* [size]; NULL before init */
	uint64_t *word;                /* what my segment's remote.address names; NULL: none */
	bool no_remote;                /* nobody reads my plain memory */
	struct transport_hosts *hosts; /* NULL: all ranks are on this host */
};

/* What this process keeps of its channels with one member. Any thread may use them: the lock makes
 * posting one step, and finding and claiming another. */
struct transport_box {
	struct lock_peer lock;
	struct transport_cursor cursor LOCK_GUARDED(peer);
};

/* A member of a group. */
struct transport_member {
	int world; /* its rank there */
	struct transport_peer *peer;
	struct transport_area *area; /* of this group, in its segment */
};

/* The members of one group, as this process sees them. All that is done in a group names members by
 * their rank in it. Constant while the group is open. */
struct transport_team {
	struct transport *transport;
	int rank, size;
	_Atomic uint32_t reads_me;   /* enum transport_reads, found out by transport_reads_me */
	struct transport_box *boxes; /* [world size]; NULL before init */
	/* [world size]: what went to ranks on other hosts, by world rank; NULL: there are none */
	struct transport_relay *relays;
	uint16_t area; /* in my segment; known only with relays */
	struct transport_member members[RANKS_HOST_MAX];
};
enum transport_reads { TRANSPORT_READS_OPEN, TRANSPORT_READS_YES, TRANSPORT_READS_NO };

/* ---- opening ---- */

/* Creates this rank's segment; size <= RANKS_HOST_MAX. Errors: LS_BAD_ARGUMENT,
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message; *transport is zeroed then. */
LS_CHECKED ls_status transport_init(struct transport *transport, uint64_t job, int rank, int size);

/* Binds and listens on an abstract Unix socket with a fresh name (41 characters), which is written
 * to `address`. Errors: LS_OUT_OF_MEMORY, LS_SYSTEM, with a message; *listen_fd is -1 then. */
LS_CHECKED ls_status transport_listen(char *address, size_t bytes, int *listen_fd);

/* Passes (segment, arena, trace) descriptors among all ranks through the abstract Unix socket
 * `address`, on which rank 0 listens, after SO_PEERCRED has shown the same user on both ends; maps
 * everything. Collective, blocking until deadline_ns; no rank returns LS_OK before all have mapped
 * everything. Others that connect to the socket are turned away, or cost one descriptor until the
 * end. After a failure the transport can only be closed. Errors, with a message that names the
 * rank: LS_RANK_MISSING (not there in time), LS_PEER_DIED, LS_NO_MASTER, LS_UNTRUSTED_PEER,
 * LS_OUT_OF_MEMORY, LS_SYSTEM, LS_INTERNAL; LS_INTERRUPTED. What one rank finds, all ranks return,
 * as long as they reach rank 0. */
struct transport_exchange {
	const char *address; /* without the leading NUL; not needed in a world of one rank */
	/* Of transport_listen in rank 0, -1 elsewhere. Stays the caller's, who closes it as soon as
	 * transport_connect has returned: a rank that comes too late learns by that. */
	int listen_fd;
	int arena_fd, trace_fd; /* the caller's; trace_fd stays open as long as the transport */
	struct waiter *waiter;
	uint64_t deadline_ns;
	/* Process of each rank, so that one that ends before it has connected is seen at once.
	 * NULL: the deadline tells. */
	const int *pids;
	/* Setting REMOTE is off: this rank reads no plain memory of peers, nor do they of its. */
	bool no_remote;
	/* The process that started all ranks, 0: not known. Where the Yama security module is at
	 * work (ptrace_scope 1), it and its descendants are given leave to read this rank's memory,
	 * which they could without Yama; without a name nobody is given leave, and plain memory is
	 * staged. */
	int launcher;
};
LS_CHECKED ls_status transport_connect(struct transport *transport,
				       const struct transport_exchange *exchange);

/* Closes the descriptors of all peers but the TRANSPORT_HELD ranks before this one, cyclically. A
 * diagnosis from outside finds a dead rank while one of its keepers, or the launcher, lives. */
void transport_hold(struct transport *transport);

/* Unmaps and closes everything; no thread may be inside a call. In a forked child only descriptors
 * are closed. Harmless on a transport that is zeroed, and when repeated. */
void transport_fini(struct transport *transport);

/* ---- areas ---- */

/* Gives area `index` of my segment memory for a group of `members`, and for reports on it, if it is
 * to be of its first member. What has memory already keeps it. Errors: LS_OUT_OF_MEMORY, LS_SYSTEM,
 * with a message. */
LS_CHECKED ls_status transport_area_grow(struct transport *transport, unsigned index, int members,
					 bool reports);
/* Makes it as it was before the first use, but for `left`: a group of `members` had it, which ran
 * `collectives` and of which all have left. */
void transport_area_reset(struct transport *transport, unsigned index, int members,
			  uint64_t collectives);

/* ---- teams ---- */

/* Makes room for the members of one group after another, of up to all ranks. Error:
 * LS_OUT_OF_MEMORY. */
LS_CHECKED ls_status transport_team_init(struct transport_team *team, struct transport *transport);
/* Harmless on a team that is zeroed, and when repeated. */
void transport_team_fini(struct transport_team *team);
/* From now on it is of `size` members, of which this process is number `rank`: world rank
 * members[q] has area areas[q]. After transport_connect. */
void transport_team_set(struct transport_team *team, int rank, int size, const uint8_t *members,
			const uint16_t *areas);
/* The same of all ranks. */
void transport_team_set_world(struct transport_team *team);

/* ---- plain memory ---- */

/* Whether every member has found that it can read this rank's plain memory, so that a window may
 * name an address. False as long as a peer has not tried yet, which it does before its
 * transport_connect returns; nobody waits for that. One load once it is known. Any thread. */
bool transport_reads_me(struct transport_team *team);

/* Copies `bytes` at `address` in the memory of member `peer`'s process to `to`, all of them or an
 * error. The peer must keep them there and unchanged meanwhile. A wrong address is an error and
 * nothing worse, also where the peer is a rank of this very process. One call is one step that
 * nothing cuts short: a caller that has to look at the group's cause cuts long buffers into pieces,
 * and looks between them. Errors: LS_PEER_DIED, without a message: the process has ended, runs
 * another program, has closed its transport, or its number is another process' by now; nothing is
 * returned as read that was not the peer's. LS_SYSTEM (such as: the peer has unmapped the buffer),
 * LS_OUT_OF_MEMORY, with a message that names the peer. What `to` holds after an error is of no
 * use. Any thread. */
LS_CHECKED ls_status transport_read(const struct transport_team *team, int peer, uint64_t address,
				    void *to, uint64_t bytes);

/* ---- words ---- */

static inline struct transport_area *transport_area_of(const struct transport_team *team, int rank)
{
	return team->members[rank].area;
}
static inline struct transport_entry *transport_entry(const struct transport_team *team, int rank,
						      uint64_t seq)
{
	return &transport_area_of(team, rank)->entries[seq % TRANSPORT_ENTRIES];
}
/* Messages of member `source` to member `owner`. */
struct mail_box *transport_mail(const struct transport_team *team, int owner, int source);
/* The arena of member `rank`, as this process sees it. */
static inline struct memory_view *transport_arena(const struct transport_team *team, int rank)
{
	return &team->members[rank].peer->arena;
}

/* ---- messages ---- */

/* All of these may be called by any thread, none blocks, and none may be called under a lock of
 * rank `peer` or one that comes after it. */

/* Posts a message to `peer` and wakes it. False, with *blocked saying what to wait for, when the
 * channel has no free slot. bytes <= TRANSPORT_MESSAGE_INLINE are copied; longer ones must lie in
 * my arena at `window` and stay untouched until transport_taken. *ticket names the message, for a
 * sender that wants to know what became of it; nobody has to ask. */
bool transport_post(struct transport_team *team, int peer,
		    const struct transport_envelope *envelope, const void *payload, uint64_t window,
		    uint64_t *ticket, struct wait_word *blocked) LOCK_AVOIDS(peer);
/* Whether a posted message has been taken; if not, *blocked. *refused: the status to return. It is
 * the message's own, or that of an earlier refusal: a channel on which one message was refused is
 * closed, and says so to everyone who asks from then on. LS_INTERNAL if the peer wrote nonsense. */
bool transport_taken(struct transport_team *team, int peer, uint64_t ticket, ls_status *refused,
		     struct wait_word *blocked);

/* Claims the oldest message from `peer` that has this collective number and that no other thread
 * has claimed, or NULL with *blocked set. What is returned is a copy that the peer cannot reach,
 * valid until transport_take, which must follow. */
struct transport_message *transport_match(struct transport_team *team, int peer, uint64_t seq,
					  struct wait_word *blocked) LOCK_AVOIDS(peer);
/* After a failure: whether `peer` has let go of all long messages I posted. The caller has set the
 * group's cause before; a rank that matches a message looks at the cause after that and before it
 * reads. So once all that had been matched is taken, nothing of mine will be read any more. If not,
 * *blocked. */
bool transport_quiet(struct transport_team *team, int peer, struct wait_word *blocked);
/* message->bytes of payload where this process sees it, in memory that the peer can still change;
 * NULL if the peer wrote nonsense. */
const void *transport_payload(struct transport_team *team, int peer,
			      const struct transport_message *message);
/* Frees the slot and tells the sender; refused LS_OK, or the status the sender shall return.
 * `message` is no longer valid then. */
void transport_take(struct transport_team *team, int peer, struct transport_message *message,
		    ls_status refused) LOCK_AVOIDS(peer);

/* Whether the equations of struct transport_channel hold for what this rank receives. For tests:
 * only while no message is under way. */
bool transport_is_valid(struct transport_team *team) LOCK_AVOIDS(peer);

#endif
