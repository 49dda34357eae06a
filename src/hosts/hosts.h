/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks on other hosts. Each has a mirror here: memory laid out as the segment of that rank, but
 * with one inbox in each area, for messages of this rank. So this rank reads the words of that rank
 * from local memory. transport_notify sends what this rank has stored, in a mirror or in its own
 * segment, through a link (link/link.h). What other ranks have stored arrives as events. An event
 * writes it to the place where that rank would have written it on one host.
 *
 * Supported: a group's entries without payload pages, `finished`, `times_closed`; messages of
 * collectives, and sends and receives, of any length. A payload of a collective's message of up to
 * LINK_SHORT_BYTES travels with it; a longer one must be in the source's arena, and is fetched to
 * its place by hosts_collect. Windows never cross hosts, nor do reads of plain memory
 * (transport_is_here).
 *
 * Words that several ranks write (transport_head_of) are shared by the members of one host. So each
 * host has a cause of its own. The rank that sets a cause, and each rank that learns of it, sends
 * it to all other hosts. There it becomes the cause, unless a rank of that host has set another
 * cause at the same time.
 *
 * One group after another uses an area. A rank sends that it has made a group (`opened`) before
 * anything else about that group, and others send to it only then. It sends `times_closed` last. So
 * each rank recognizes what is left over from an earlier group, and drops it.
 *
 * A rank that closes a group publishes what it has called there (`ended`). A process exits only
 * once, for each peer, the peer has the `ended` of this rank or this rank has that of the peer. So
 * of any two members one can compare: parting.c. */
#ifndef HOSTS_HOSTS_H
#define HOSTS_HOSTS_H

#include "link/link.h"
#include "transport/transport.h"

enum {
	HOSTS_ASK_WORDS = 2,
	HOSTS_TELL_MAX = 64 << 20, /* bytes of a block */
};

/* Why a group has failed, as a rank on another host says. */
struct hosts_failure {
	uint32_t group, status;
	int32_t culprit; /* world rank, -1: none */
	uint64_t operation;
	uint32_t groups[TRANSPORT_REPORT_GROUPS]; /* as in struct transport_report */
	char text[TRANSPORT_TEXT_BYTES];
};

/* The thread that makes progress on the link calls these functions. They never block, and hold no
 * lock when they return. */
struct hosts_events {
	void *context;
	/* The connection to a rank has broken, or this rank has cut it off: nothing comes from it
	 * any more. May be called twice. */
	void (*lost)(void *context, int rank);
	/* A group has failed. Called once or more for each group. */
	void (*failed)(void *context, const struct hosts_failure *failure);
	/* `ended` (struct transport_area) of a member on another host has been stored in its
	 * mirror. */
	void (*ended)(void *context, const struct transport_team *team, int rank);
	/* The words of hosts_ask. */
	void (*asked)(void *context, int rank, const uint64_t words[HOSTS_ASK_WORDS]);
	/* The block of hosts_tell: `bytes` at `block`, which the event now owns and has to
	 * free. */
	void (*told)(void *context, int rank, uint64_t round, void *block, uint64_t bytes);
};

/* Call after transport_init and before the first team, if ranks are on other hosts. hosts_of: the
 * host of each rank of the job, the same numbers on all ranks; copied, as are the events. The
 * caller owns the link and connects it before anything is published; this function sets its events.
 * Errors: LS_OUT_OF_MEMORY, with a message; LS_INTERNAL: the link is not valid. */
LS_CHECKED ls_status hosts_open(struct transport *transport, struct link *link,
				const uint16_t *hosts_of, const struct hosts_events *events);
/* Makes the mirror of rank `rank`, which is on another host, in place of the exchange of
 * descriptors. Errors: LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status hosts_mirror_open(struct transport *transport, int rank);
/* Cuts off all peers, and returns all messages. Call before the teams and the transport end, while
 * no other thread uses them. */
void hosts_close(struct transport *transport);

/* Sends a few words to rank `rank`, on another host. False: the link has no room now; try again
 * later. Any thread; not under a lock that an event takes. */
bool hosts_ask(struct transport *transport, int rank, const uint64_t words[HOSTS_ASK_WORDS]);
/* As hosts_ask: the failure of a group of which no member is on this host. It causes the event
 * `failed`. */
bool hosts_tell_failed(struct transport *transport, int rank, const struct hosts_failure *failure);
/* As hosts_ask: a block from the heap, which belongs to this function if it returns true. */
bool hosts_tell(struct transport *transport, int rank, uint64_t round, void *block, uint64_t bytes);

/* Allocates what a team needs for members on other hosts; call after transport_team_init. Does
 * nothing if all ranks of the job are here. Error: LS_OUT_OF_MEMORY, without a message. */
LS_CHECKED ls_status hosts_team_init(struct transport_team *team);
/* Call before transport_team_fini. Harmless without hosts_team_init, and when repeated. */
void hosts_team_fini(struct transport_team *team);
/* Call once the members of a team are set, if some are on other hosts: from now on its messages
 * come to area `area` of my segment. areas: the areas of the members; closed: how often the groups
 * with these areas had been closed. `areas` NULL: the world group, before the link is connected;
 * this call announces it, too. Does nothing if all members are here. */
void hosts_team_open(struct transport_team *team, unsigned area, const uint16_t *areas,
		     const uint64_t *closed);
/* Call once the events of hosts_open find the group: a member on another host may say once, as soon
 * as it knows that this rank has the group, that the group has failed. Of two members neither sends
 * anything to the other before both have called this. Does nothing if all members are here. */
void hosts_team_announce(struct transport_team *team);
/* Call once all members have left the group. True: area and team may be used for another one.
 * False: the link still uses buffers of the group; call it later. Not under a lock of level
 * `group`. */
bool hosts_team_close(struct transport_team *team);
/* Allocates memory for the mirror of an area of `rank`, which is on another host. Errors:
 * LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status hosts_mirror_grow(const struct transport *transport, int rank, unsigned area);

/* Makes progress on all messages to and from other hosts. False: there was nothing to do, or
 * another thread does it. Any thread, without locks; never blocks. */
bool hosts_advance(struct transport *transport);

/* Sends what is kept back because usually no rank waits for it: entries, `finished` and freed
 * slots. If another thread makes progress on the link at the moment, that thread does it. Any
 * thread, without locks; never blocks. */
void hosts_push(struct transport *transport);

/* How many of a rank's newest entries a rank on another host may not know for HOSTS_LONG_MS. */
enum { HOSTS_ENTRIES_KEPT = 19 };

enum hosts_armed {
	/* There is nothing to do, and until the next hosts_advance the descriptor *fd, which is the
	 * link's, becomes readable when there is something to do. */
	HOSTS_ARMED,
	HOSTS_NOT_ARMED, /* call hosts_advance first */
	/* Another thread makes progress at the moment. It wakes the pump when it stops. */
	HOSTS_IN_USE,
};
enum hosts_armed hosts_arm(struct transport *transport, int *fd);

/* Starts a thread (pump.c) that makes progress on the link while no other thread of the rank does.
 * Call once the link is connected. *tid: its number, stored before this function returns. Errors,
 * with a message: LS_OUT_OF_MEMORY. */
LS_CHECKED ls_status hosts_pump_start(struct transport *transport, _Atomic uint32_t *tid);
/* For the waiters of this rank, also before hosts_pump_start. NULL: all ranks are on this host.
 * Valid until hosts_close. */
const struct wait_pump *hosts_pump(const struct transport *transport);

/* Call once this rank has closed its last group, before hosts_flush: tells all ranks on other
 * hosts that it has sent `ended` of all its groups. *parted: the word to wait for. It reaches its
 * value once each of these ranks has received all that, or this rank has received the same from it,
 * or it is lost or cut off. That needs the thread that makes progress on the link there, and
 * nothing of the program. False: all ranks are on this host. */
bool hosts_leave(struct transport *transport, struct wait_word *parted);

/* Call before hosts_close, while no other thread uses the transport. Blocks until all that this
 * rank has stored for ranks on other hosts is on its way, even if this process is killed then. Also
 * waits until the long messages that it has sent have been received. Blocks at most until
 * deadline_ns, and not for ranks that are lost. Ends the thread of hosts_pump_start; does nothing
 * without one. */
void hosts_flush(struct transport *transport, uint64_t deadline_ns);

/* Cuts rank `rank` off. This thread does it, or the thread that makes progress on the link just
 * now. Afterwards nobody on that host touches this rank's buffers, as the words of messages under
 * way show (mail_rts: owner_copied, source_copied), and receives of these messages fail with
 * LS_ABORTED. That rank finds the connection broken. The event `lost` tells the same to this rank,
 * for all its groups: what it sends there is dropped. */
void hosts_cut(struct transport *transport, int rank);
/* Whether the connection to rank `rank` has broken. */
bool hosts_is_lost(const struct transport *transport, int rank);

/* Whether the payload of a collective's message that this rank has matched stays with `peer` until
 * hosts_collect. */
static inline bool hosts_must_fetch(const struct transport_team *team, int peer,
				    const struct transport_message *message)
{
	return !transport_is_here(team, peer) && message->bytes > LINK_SHORT_BYTES;
}
/* Fetches that payload to `to`, any memory of this process. The link owns `to` until this function
 * returns true: then *status is LS_OK, LS_PEER_DIED, LS_ABORTED (cut, or withdrawn), or LS_INTERNAL
 * (the peer offers another length than the message has). False: the payload is not there yet; wait
 * for *blocked, and call again with the same arguments. At most one message of a member at a
 * time. */
bool hosts_collect(struct transport_team *team, int peer, const struct transport_message *message,
		   void *to, ls_status *status, struct wait_word *blocked);
/* After a failure: sends no message of a collective to other hosts any more, and takes none from
 * there that has not been matched. Then transport_channel_quiet says when the link reads no payload
 * of this rank any more: once the peer has withdrawn, too, or was lost or cut off. So each rank of
 * a group that has failed calls this function, also a rank that is in no collective. Any thread. */
void hosts_withdraw(struct transport_team *team);

/* Call when a long message has just been matched, in mail_rts `index` of the ring of member
 * `source`. If it comes from another host, this requests its bytes to be written to `to`, so no
 * rank copies pieces; `source_copied` shows when they have arrived. Then call transport_notify.
 * False: the message comes from this host. */
bool hosts_fetch_message(struct transport_team *team, int source, unsigned index, void *to,
			 uint64_t bytes);
/* Call for a long message to member `target`, in mail_rts `index` of its ring, which can no longer
 * be cancelled here: asks the owner to cancel it. The thread that makes progress on the owner's
 * link does so, unless the message has been matched. Once the answer is here, `owner_copied` of
 * this use has its last value: then transport_mail_was_cancelled says whether the message was
 * cancelled. May be repeated. Any thread; never blocks. False: the member is on this host. */
bool hosts_cancel(struct transport_team *team, int target, unsigned index, uint32_t generation);
/* Why the RTS slot of a message that was matched is closed: LS_PEER_DIED, the connection to its
 * source broke while its bytes came; LS_INTERNAL, the source offered another length than it had
 * announced; LS_ABORTED: anything else, also on this host. */
ls_status hosts_fetch_status(const struct transport_team *team, int source, unsigned index);

#endif
