/* SPDX-License-Identifier: BSD-3-Clause
 * Moves bytes between two ranks of one host through shared memory (layout.h), also from a rank to
 * itself (doc/decisions/001). What is between hosts is in the room above, hosts/hosts.h. */
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
#include "transport/layout.h"
#include "transport/notify.h"

/* A message that a thread of this rank has claimed, copied to memory that its source cannot
 * change. */
struct transport_message {
	uint64_t position;
	uint64_t seq, count, bytes, window;
	uint32_t index; /* of its slot */
	const struct transport_slot *slot;
};

/* What this process keeps of its channels with a peer in private memory, so that the peer cannot
 * damage it. */
struct transport_cursor {
	uint64_t posted;  /* the position of my newest message to the peer */
	uint64_t taken;   /* messages from the peer that I have taken out */
	uint64_t matched; /* messages from the peer that I have claimed */
	uint32_t claimed; /* bit i: a thread of mine is receiving the message in slot i */
	struct transport_message messages[TRANSPORT_CHANNEL_SLOTS];
};

/* One rank as this process sees it; my own rank has one too. */
struct transport_peer {
	int rank; /* of the world */
	struct transport_segment *segment;
	size_t segment_bytes;
	struct memory_view arena;
	/* Open for diagnoses from outside (transport_hold); -1: closed. For my own rank: the
	 * descriptors of `struct transport` and of the exchange, not owned. */
	int segment_fd, trace_fd;
	/* Copied from the peer's struct transport_cma; constant after transport_connect. */
	int pid;
	uint64_t word_address;
	uint16_t host; /* of the job, from 0 */
	/* Not NULL: the rank is on another host, `segment` is its mirror, and `arena` is empty. Of
	 * the room `hosts`, from the heap. */
	struct hosts_mirror *mirror;
	uint16_t edge_segment; /* enum wait_segment, of its words */
};

struct transport {
	int rank, size;
	uint64_t job;
	int pid;           /* whose memory it is: a forked child has none of it */
	int segment_fd;    /* mine */
	size_t file_bytes; /* of the segment's file of each rank of this host */
	struct transport_segment *segment;
	struct transport_peer *peers; /* [size]; NULL before init */
	uint64_t *word;               /* the word at my segment's cma.address; NULL: none */
	bool no_cma;                  /* peers do not read my plain memory */
	_Atomic uint32_t reads_fast;  /* enum transport_reads, found out by transport_reads_fast */
	bool populates;               /* the system has MADV_POPULATE_WRITE */
	bool keeps_segment;           /* transport_fini leaves this rank's own mapped */
	/* How ranks on other hosts are reached; NULL: all are here. The room `hosts` sets both. */
	struct hosts *hosts;
	const struct transport_hosts_ops *hosts_ops;
	/* Used by transport_reads_buffer: a hash of each buffer that could be read; 0: none. */
	_Atomic uint64_t readable_buffers[32];
};

struct transport_team;
struct transport_message;
/* What this room asks for members on other hosts (hosts/hosts.h), as the functions named here do
 * for members of this host. */
struct transport_hosts_ops {
	/* transport_notify, transport_request_progress: sends what was not sent yet, or leaves that
	 * to the thread that makes progress on the link */
	void (*notify)(const struct transport_team *team, int rank);
	/* the same for all members on other hosts */
	void (*notify_remote)(const struct transport_team *team);
	/* transport_channel_quiet */
	bool (*quiet)(struct transport_team *team, int peer, struct wait_word *blocked);
	/* transport_channel_payload */
	const void *(*payload)(const struct transport_team *team, int peer,
			       const struct transport_message *message);
};

/* What this process keeps of its channels with one member. Any thread may use them: the lock makes
 * posting atomic, and finding and claiming a message, too. */
struct transport_channel_state {
	struct lock_peer lock;
	struct transport_cursor cursor LOCK_GUARDED(peer);
};

/* A member of a group. */
struct transport_member {
	int world; /* its world rank */
	struct transport_peer *peer;
	struct transport_area *area; /* of this group, in its segment */
	uint8_t topic; /* of the words that it stores for all members: transport_notify_all */
};

/* The members of one group, as this process sees them. Functions on a team name members by their
 * group rank. Constant while the group is open. */
struct transport_team {
	struct transport *transport;
	int rank, size;
	_Atomic uint32_t reads_me; /* enum transport_reads, found out by transport_reads_me */
	struct transport_channel_state *channels; /* [world size]; NULL before init */
	/* [world size]: what was sent to ranks on other hosts, by world rank; NULL: there are
	 * none */
	struct hosts_relay *relays;
	uint16_t area; /* in my segment; set only with relays */
	struct transport_member members[RANKS_WORLD_MAX];
	uint64_t here[RANKS_WORLD_WORDS]; /* ranks_bit: members on this host, also this rank */
	int first_here;                   /* the first of them */
	int host_count;                   /* of the members */
	uint16_t hosts[RANKS_WORLD_MAX];  /* each member's, from 0 in the order of the members */
};
enum transport_reads { TRANSPORT_READS_UNKNOWN, TRANSPORT_READS_YES, TRANSPORT_READS_NO };

/* ---- opening ---- */

/* Creates this rank's segment; size <= RANKS_WORLD_MAX. Errors: LS_BAD_ARGUMENT,
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message; *transport is zeroed then. */
LS_CHECKED ls_status transport_init(struct transport *transport, uint64_t job, int rank, int size);
/* As transport_init, for a job whose ranks are on several hosts. */
LS_CHECKED ls_status transport_init_mirrors(struct transport *transport, uint64_t job, int rank,
					    int size);

/* Binds and listens on an abstract Unix socket with a fresh name (41 characters), which is written
 * to `address`. Errors: LS_OUT_OF_MEMORY, LS_SYSTEM, with a message; *listen_fd is -1 then. */
LS_CHECKED ls_status transport_listen(char *address, size_t bytes, int *listen_fd);

/* The arguments of transport_connect. */
struct transport_exchange {
	/* The ranks of this host, by world rank; empty: all. */
	struct ranks here;
	const char *address; /* without the leading NUL; not needed if there is one rank */
	/* From transport_listen on the root; -1 on other ranks. The caller owns it, and closes it
	 * as soon as transport_connect has returned, so a rank that comes late fails at once. */
	int listen_fd;
	int arena_fd, trace_fd; /* the caller's; trace_fd stays open as long as the transport */
	struct waiter *waiter;
	uint64_t deadline_ns;
	/* The process of each rank, so that the end of one that has not connected yet is noticed at
	 * once. NULL: it is noticed at the deadline. */
	const int *pids;
	/* Setting CMA is off: this rank and its peers do not read each other's plain memory. */
	bool no_cma;
	/* The process that started all ranks; 0: not known. Under the Yama security module
	 * (ptrace_scope 1) this rank permits that process and its descendants to read its memory,
	 * as they could without Yama. If it is not known, no process is permitted, and plain memory
	 * is staged. */
	int launcher;
};
/* Exchanges the descriptors of segments, arenas and traces among the ranks of a host, and maps all
 * of them. The first rank of the host, the root, listens on the abstract Unix socket `address`; a
 * rank passes descriptors only after SO_PEERCRED has shown the same user on both ends. Collective;
 * blocks until a second after deadline_ns at most. No rank returns LS_OK before all have mapped
 * everything. Other processes that connect to the socket are refused, or cost one descriptor until
 * the end. After a failure the transport can only be closed.
 * Errors, with a message that names the rank: LS_RANK_MISSING (not there in time), LS_PEER_DIED,
 * LS_NO_MASTER, LS_UNTRUSTED_PEER, LS_OUT_OF_MEMORY, LS_SYSTEM, LS_INTERNAL; LS_INTERRUPTED. All
 * ranks that reach the root return the error that one of them finds. */
LS_CHECKED ls_status transport_connect(struct transport *transport,
				       const struct transport_exchange *exchange);

/* In place of transport_connect, if this rank cannot take part, because of `status`, which is not
 * LS_OK: the others need not wait for it, and return that status. Blocks on the root for up to a
 * second, until all others have heard it; else not. */
void transport_decline(const struct transport_exchange *exchange, uint64_t job, int rank, int size,
		       ls_status status);

/* Closes the descriptors of all peers, except the TRANSPORT_HELD ranks before this one, cyclically.
 * A diagnosis from outside finds a dead rank as long as a rank that keeps its descriptors, or the
 * launcher, lives. */
void transport_hold(struct transport *transport);

/* Unmaps and closes everything; no thread may be inside a call. In a forked child only descriptors
 * are closed. Harmless on a transport that is zeroed, and when repeated. */
void transport_fini(struct transport *transport);

/* ---- areas ---- */

/* Allocates memory for area `index` of my segment, for a group of `members`; with `reports`, which
 * the first member needs, for its reports, too. Parts that have memory keep it. Errors:
 * LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status transport_area_grow(struct transport *transport, unsigned index, int members,
					 bool reports);
/* Resets an area of my segment for another group, except `times_closed`. All `members` of the group
 * that used it have left; it ran this many `collectives`. */
void transport_area_reset(struct transport *transport, unsigned index, int members,
			  uint64_t collectives);
/* Allocates memory for the inbox of member `source` in the area of member `owner`, if it has none
 * yet, so that no access to it can end in SIGBUS. Both ranks call it before they first touch the
 * inbox. False, after a message: the system has no memory left. Any thread; does not block. */
LS_CHECKED bool transport_inbox_open(const struct transport_team *team, int owner, int source);
/* As transport_inbox_open, for the cells of my own area. */
LS_CHECKED bool transport_cells_open(const struct transport_team *team);

/* ---- teams ---- */

/* Allocates a team, which serves one group after another, of up to all ranks. Error:
 * LS_OUT_OF_MEMORY, without a message. */
LS_CHECKED ls_status transport_team_init(struct transport_team *team, struct transport *transport);
/* Harmless on a team that is zeroed, and when repeated. */
void transport_team_fini(struct transport_team *team);
/* Sets its `size` members: member q is world rank members[q] and uses area areas[q]; this process
 * is member `rank`. After transport_connect. */
void transport_team_set(struct transport_team *team, int rank, int size, const uint16_t *members,
			const uint16_t *areas);
/* As transport_team_set, for the group of all ranks. */
void transport_team_set_world(struct transport_team *team);

/* ---- plain memory ---- */

/* Whether every member on this host has found that it can read this rank's plain memory, so that a
 * window may be shown to it by address. False as long as a peer has not tried yet; a peer tries
 * before its transport_connect returns, and nobody waits for that. One load once it is known. Any
 * thread. */
bool transport_reads_me(struct transport_team *team);

/* Whether a window that is shown by address may be this buffer of the caller's: transport_reads_me
 * holds, and the system lets other processes read the buffer. The system does not let them read all
 * memory: not that of a device's driver, for example. This tries the first and the last byte; a
 * buffer of less than 1 MiB that could be read once is not tried again, though other memory may be
 * at its place by then. Any thread. */
bool transport_reads_buffer(struct transport_team *team, const void *buffer, uint64_t bytes);

/* Whether a read takes so little time on this machine that a payload is rather read than copied
 * twice. The first call of a process measures it, in about a tenth of a millisecond; so ranks may
 * differ. Any thread. */
bool transport_reads_fast(struct transport_team *team);
/* For it: whether a read that takes `read` ticks is fast where a copy within the cache takes
 * `copy`. */
bool transport_is_fast_read(uint64_t read, uint64_t copy);

/* Copies `bytes` at `address` in the memory of member `peer`'s process to `to`: all of them, or an
 * error. The peer must keep them there and unchanged meanwhile. A wrong address is an error and
 * nothing worse, even if the peer is a rank of this process. Nothing interrupts a call: a caller
 * that has to read the group's cause splits long buffers, and reads it between the calls. Errors:
 * LS_PEER_DIED, without a message: the process has ended, runs another program, has closed its
 * transport, or its number has passed to another process, whose bytes are never returned as the
 * peer's. LS_SYSTEM (for example, the peer has unmapped the buffer), LS_OUT_OF_MEMORY, with a
 * message that names the peer. After an error the content of `to` is undefined. Any thread. */
LS_CHECKED ls_status transport_read(const struct transport_team *team, int peer, uint64_t address,
				    void *to, uint64_t bytes);

/* ---- words ---- */

/* The members, by world rank. */
static inline struct ranks transport_team_ranks(const struct transport_team *team)
{
	struct ranks members = {{0}};
	for (int q = 0; q < team->size; q++)
		ranks_add(&members, team->members[q].world);
	return members;
}
/* Whether a member shares this host. If not, this rank can use neither its windows nor its payloads
 * beside entries: only words, entries and messages pass between hosts (hosts/hosts.h). */
static inline bool transport_is_here(const struct transport_team *team, int rank)
{
	return team->here[rank / 64] & ranks_bit(rank);
}

static inline struct transport_area *transport_area_of(const struct transport_team *team, int rank)
{
	return team->members[rank].area;
}
/* The area with the words that all members on this host write, such as the group's cause. */
static inline struct transport_area *transport_head_of(const struct transport_team *team)
{
	return team->members[team->first_here].area;
}
static inline struct transport_entry *transport_entry(const struct transport_team *team, int rank,
						      uint64_t seq)
{
	return &transport_area_of(team, rank)->entries[transport_entry_index(seq)];
}
/* Area `index` of a rank, as this process has mapped it. */
static inline struct transport_area *transport_peer_area(const struct transport *transport,
							 const struct transport_peer *peer,
							 unsigned index)
{
	return peer->mirror ? transport_mirror_area(peer->segment, index)
			    : transport_area_at(peer->segment, transport->size, index);
}
/* The inbox of member `source` in the area of member `owner`. Of an owner on another host only this
 * rank's own inbox is known. */
static inline struct transport_inbox *transport_inbox_of(const struct transport_team *team,
							 int owner, int source)
{
	const struct transport_member *member = &team->members[owner];
	return transport_inbox(member->area, member->peer->mirror ? 0 : source);
}
/* Messages of member `source` to member `owner`. */
struct mail_ring *transport_mail(const struct transport_team *team, int owner, int source);
/* The arena of member `rank`, as this process sees it. */
static inline struct memory_view *transport_arena(const struct transport_team *team, int rank)
{
	return &team->members[rank].peer->arena;
}

/* ---- messages ---- */

/* Any thread may call these. They do not block. The caller holds no lock of level `peer` or of a
 * later level. */

/* Posts a message to `peer` and wakes it. False if the channel has no free slot: wait for *blocked.
 * Payloads up to TRANSPORT_MESSAGE_INLINE_BYTES are copied; a longer one must be in my arena at
 * `window`, unchanged until transport_channel_taken. *ticket identifies the message for
 * transport_channel_taken and may be ignored. */
bool transport_channel_post(struct transport_team *team, int peer,
			    const struct transport_envelope *envelope, const void *payload,
			    uint64_t window, uint64_t *ticket, struct wait_word *blocked)
	LOCK_AVOIDS(peer);
/* Whether a posted message has been taken; or, if it went to another host, whether the link no
 * longer needs its payload, nor that of an earlier message to this peer. If not, wait for *blocked.
 * *refused: the status to return, LS_OK or that of a refusal. The first refused message closes the
 * channel, so all later calls return its status. LS_INTERNAL if the peer wrote nonsense. */
bool transport_channel_taken(struct transport_team *team, int peer, uint64_t ticket,
			     ls_status *refused, struct wait_word *blocked);

/* Claims the oldest message from `peer` that has this collective number and that no other thread
 * has claimed. NULL if there is none: wait for *blocked. The returned copy, which the peer cannot
 * change, is valid until transport_channel_take, which must follow. */
struct transport_message *transport_channel_match(struct transport_team *team, int peer,
						  uint64_t seq, struct wait_word *blocked)
	LOCK_AVOIDS(peer);
/* After a failure: whether `peer` will read none of the long messages that I posted any more; if it
 * may, wait for *blocked. The caller has set the group's cause before. A rank that matches a
 * message reads the cause afterwards, and before it reads the payload. So once all matched messages
 * are taken, the peer reads none any more. A peer on another host reads through this rank's link:
 * call hosts_withdraw first. */
bool transport_channel_quiet(struct transport_team *team, int peer, struct wait_word *blocked);
/* The payload (message->bytes), in memory that the peer can still change; NULL if the peer wrote
 * nonsense. Not for a message for which hosts_must_fetch is true. */
const void *transport_channel_payload(struct transport_team *team, int peer,
				      const struct transport_message *message);
/* Frees the slot and wakes the sender. refused: LS_OK, or the status that the sender is to return.
 * `message` is no longer valid. */
void transport_channel_take(struct transport_team *team, int peer,
			    struct transport_message *message, ls_status refused) LOCK_AVOIDS(peer);

/* For tests: whether the equations of struct transport_channel hold for this rank's inboxes, while
 * no message is under way. */
bool transport_is_valid(struct transport_team *team) LOCK_AVOIDS(peer);

#endif
