/* SPDX-License-Identifier: BSD-3-Clause
 * Moves bytes between two ranks of one host, through shared memory; also a rank's messages to
 * itself (doc/decisions/001). What lies in that memory: layout.h. For ranks on other hosts see
 * hosts.h. */
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
#include "transport/publish.h"

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
	bool populates;                /* the system has MADV_POPULATE_WRITE */
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
/* Makes memory for the inbox of member `source` in the area of member `owner`, if that has none
 * yet, so that no access to it can end in SIGBUS. Both ranks call it before they first touch the
 * inbox. False, after a message: the system has no memory left. Any thread; blocks on nobody. */
LS_CHECKED bool transport_inbox_open(const struct transport_team *team, int owner, int source);
/* The same for the cells of my own area. */
LS_CHECKED bool transport_cells_open(const struct transport_team *team);

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
