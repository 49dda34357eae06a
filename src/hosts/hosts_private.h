/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share. A file calls only files above it in this header; those of one
 * section do not call each other. relay.c finds what is to be sent, mirror.c writes what has
 * arrived. */
#ifndef HOSTS_HOSTS_PRIVATE_H
#define HOSTS_HOSTS_PRIVATE_H

#include "hosts/hosts.h"
#include "transport/segment.h"

enum { HOSTS_AREA_WORDS = (TRANSPORT_AREAS + 63) / 64 };

struct hosts_relay;

struct hosts_mirror {
	_Atomic uint32_t lost, cut; /* cut: a cut was requested */
	/* See parting.c; for the thread that makes progress on the link. */
	bool has_sent_leaves; /* this rank has sent LEAVES to that rank */
	/* this rank has to send HEARD to that rank, unless it has sent LEAVES */
	bool owes_heard;
	bool has_parted; /* counted in hosts->parted */
	/* By area of that rank: the relay of the group that has it, if this rank is a member; else
	 * NULL. */
	struct hosts_relay *relays[TRANSPORT_AREAS];
};

/* What a transfer moves, and whether this rank sends or receives it. */
enum hosts_transfer_kind {
	HOSTS_TRANSFER_SEND,    /* a long message: sent */
	HOSTS_TRANSFER_RECEIVE, /* a long message: received */
	HOSTS_TRANSFER_POST,    /* a message of a collective: sent */
	HOSTS_TRANSFER_FETCH,   /* a message of a collective: received */
	HOSTS_TRANSFER_TELL,    /* a block: sent */
	HOSTS_TRANSFER_HEAR,    /* a block: received */
};

/* One payload that the link sends to another host, or fetches from there, and what this rank has to
 * know when that ends. */
struct hosts_transfer {
	struct link_transfer link_transfer; /* the first member, because events name it */
	struct hosts_relay *relay;          /* of a block: NULL */
	uint32_t generation;                /* of the RTS slot */
	uint8_t index;                      /* of the RTS slot, or of the channel's slot */
	uint8_t kind;                       /* enum hosts_transfer_kind */
	bool is_under_way;                  /* the link uses it */
	bool is_returned;                   /* sent: the owner has returned the RTS slot */
};

/* How far the payload that this rank fetches is. */
enum hosts_fetch_state {
	HOSTS_FETCH_NONE,
	HOSTS_FETCH_WANTED, /* the thread that makes progress on the link fetches it */
	HOSTS_FETCH_OVER,   /* fetch.link_transfer.status says how */
};

/* Messages of collectives between this rank and one on another host: channels.c. Used by the thread
 * that makes progress on the link, except the atomic members, `target` and `target_bytes`. */
struct hosts_channel {
	/* in the peer's mirror, from this rank; in this rank's segment, from the peer */
	struct transport_channel *to, *from;
	unsigned char (*pages)[TRANSPORT_PAGE_BYTES]; /* payloads of `from`, a page each slot */
	uint64_t sent;    /* of `to`: the position of the last message that was sent to the peer */
	uint64_t refused; /* of `from`: the value that was sent to the peer */
	uint64_t taken;   /* of `from`: its value when the peer was last told of freed slots */
	/* For each slot of `from`: the newest position that arrived, and the newest that the peer
	 * was told is taken. */
	uint64_t arrived[TRANSPORT_CHANNEL_SLOTS], told[TRANSPORT_CHANNEL_SLOTS];
	struct link_message offered[TRANSPORT_CHANNEL_SLOTS]; /* handle NULL: none */
	struct hosts_transfer posts[TRANSPORT_CHANNEL_SLOTS], fetch;
	_Atomic uint32_t withdrawn; /* no payload of this rank is sent any more */
	_Atomic uint32_t copying;   /* a thread reads what is offered */
	/* One at a time, because the collectives of a group run one after the other. */
	_Atomic uint32_t fetching; /* enum hosts_fetch_state */
	uint32_t wanted;           /* the slot whose payload is fetched */
	void *target;
	uint64_t target_bytes; /* as in struct hosts_relay */
};

/* What was sent from this rank to one on another host, in one team; also the long messages that are
 * under way in both directions. Used by the thread that makes progress on the link, except the
 * atomic members, `target` and `target_bytes`. */
struct hosts_relay {
	struct transport_team *team;
	int peer;                    /* world rank */
	uint16_t area;               /* in the segment of that rank */
	bool is_ready;               /* it has made the group: its `opened` is >= generation */
	uint64_t generation, opened; /* opened: mine, as sent */
	/* in the peer's mirror, from this rank; in this rank's segment, from the peer */
	struct mail_ring *to, *from;
	uint64_t entered, ended, finished, times_closed; /* values sent */
	unsigned kept_back;        /* about how much since the last push: HOSTS_KEEP_MAX */
	uint64_t lingers_until_ns; /* until when it does not send times_closed; 0: still open */
	bool has_told_failure;     /* the peer was told that the group has failed */
	bool has_cells;            /* the mirror's cells have memory */
	bool has_pages;            /* the mirror's pages of payloads have memory */
	uint64_t next;             /* the next position of `to` to be sent */
	uint64_t announced;        /* the last position whose long payload was offered */
	uint64_t taken, returned;
	uint64_t freed[MAIL_SLOTS], done[MAIL_SLOTS];
	struct hosts_transfer sent[MAIL_SLOTS], received[MAIL_SLOTS];
	struct link_message offered[MAIL_SLOTS]; /* handle NULL: none */
	/* Bit i: message i to the peer, or from the peer, was announced with LATE, and LONG has not
	 * followed yet. */
	uint64_t late_sent, late_received;
	/* Bit i: the payload of message i is to be fetched to target[i]. */
	_Atomic uint64_t wanted;
	void *target[MAIL_SLOTS];
	uint64_t target_bytes[MAIL_SLOTS]; /* what the receive expects, whatever the peer offers */
	/* Bit i: the peer is to be asked to cancel message i, if its generation is this one. */
	_Atomic uint64_t cancels;
	_Atomic uint32_t cancelled[MAIL_SLOTS];
	struct hosts_channel channel;
};

enum hosts_pump_state { HOSTS_PUMP_AWAKE, HOSTS_PUMP_TICKS, HOSTS_PUMP_ARMED };

/* What another thread has done last since the pump looked. */
enum hosts_pump_progress { HOSTS_PROGRESS_NONE, HOSTS_PROGRESS_MADE, HOSTS_PROGRESS_HANDED_OVER };

/* See pump.c. */
struct hosts_pump {
	struct transport *transport;
	pthread_t thread;
	_Atomic bool runs;
	_Atomic uint32_t *tid;  /* to be stored by the thread */
	_Atomic uint32_t waits; /* until the thread has begun */
	int event_fd;           /* wakes the pump */
	_Atomic bool stop;
	/* enum hosts_pump_state; stored by the pump, and by threads that wake it */
	_Atomic uint32_t state;
	_Atomic uint32_t progress; /* enum hosts_pump_progress; stored by all */
	struct wait_pump calls;    /* for waiters */
};

struct hosts {
	struct transport *transport;
	struct link *link;
	struct hosts_pump pump;
	struct hosts_events events;
	_Atomic bool leaves;       /* hosts_leave was called */
	_Atomic uint64_t parted;   /* how many mirrors have_parted */
	bool owes_heard;           /* some mirror owes_heard */
	_Atomic uint32_t progress; /* see advance.c */
	/* By world rank (ranks_bit). kept_back: the link keeps something back for that rank.
	 * kept_long: something that may stay so while all threads sleep. due: it must be pushed
	 * before this thread stops. The thread that makes progress stores all three. */
	_Atomic uint64_t kept_back[RANKS_WORLD_WORDS], kept_long[RANKS_WORLD_WORDS];
	uint64_t due[RANKS_WORLD_WORDS];
	/* By team, for each world rank: there is something to send to it. */
	_Atomic uint64_t unsent[TRANSPORT_AREAS][RANKS_WORLD_WORDS];
	_Atomic uint64_t areas[HOSTS_AREA_WORDS];              /* bit i: unsent[i] is not empty */
	struct transport_team *_Atomic teams[TRANSPORT_AREAS]; /* by area of my segment */
};

/* The notes of a link. words[0]: this enum. A place is (area << 32 | offset in the area) << 1 |
 * HOSTS_OF_SOURCE or HOSTS_OF_TARGET. The inbox that one of the two ranks has for the other counts
 * as the first of its area. */
enum hosts_note {
	/* payload goes to place [1]; then the word at place [2] gets value [3] */
	HOSTS_NOTE_WRITE,
	/* a long message of the ring at place [1]: RTS slot [2], generation [3]. Without a payload:
	 * of a message that LATE has announced, and that has no byte */
	HOSTS_NOTE_LONG,
	/* the same of a message whose payload a stream of the source has not copied yet: bytes [4].
	 * LONG follows when the stream has, unless the group fails before */
	HOSTS_NOTE_LATE,
	/* a message of a collective for the slot at place [1]: seq [2], count [3], position [4] */
	HOSTS_NOTE_CHANNEL,
	/* group [1] has failed: status [2], culprit [3], operation [4]; payload: the groups that
	 * fail together, and the text */
	HOSTS_NOTE_FAILED,
	HOSTS_NOTE_ASK, /* the words of hosts_ask */
	/* payload: the message in a cell of the source at place [1] */
	HOSTS_NOTE_CELL,
	/* cancels a long message of the source's, of the ring at place [1]: RTS slot [2],
	 * generation [3] */
	HOSTS_NOTE_CANCEL,
	HOSTS_NOTE_TELL,   /* round [1]; the block as payload */
	HOSTS_NOTE_LEAVES, /* the source has sent `ended` of all its groups */
	HOSTS_NOTE_HEARD,  /* the source has got LEAVES, and all that came before it */
};
enum { HOSTS_OF_SOURCE = 0, HOSTS_OF_TARGET = 1 };

/* Whether the message has a form that no peer sends: only long payloads of collectives are
 * eager. */
static inline bool hosts_is_forged(const struct link_message *message)
{
	return message->is_eager &&
	       (message->note.words[0] != HOSTS_NOTE_CHANNEL || message->bytes <= LINK_SHORT_BYTES);
}

/* The way from this rank to one on another host, in one team. */
struct hosts_path {
	struct hosts *hosts;
	struct hosts_relay *relay;
	struct link *link;
	int peer; /* world rank */
	struct transport_segment *mine, *mirror;
};

/* The place of `at`, which is in my area of the path's group, or in the peer's inbox there. The
 * peer finds it in its mirror. */
static inline uint64_t hosts_place_at_source(const struct hosts_path *path, const void *at)
{
	const struct transport_team *team = path->relay->team;
	const struct transport_area *area = transport_area_of(team, team->rank);
	uint64_t offset = (uintptr_t)at - (uintptr_t)area;
	uint64_t ring = (uintptr_t)path->relay->from - offsetof(struct transport_inbox, mail);
	if (offset >= sizeof *area)
		offset = sizeof *area + ((uintptr_t)at - ring);
	return ((uint64_t)team->area << 32 | offset) << 1 | HOSTS_OF_SOURCE;
}
/* The place of `at`, which is in the peer's mirror here. The peer finds it in its own area. */
static inline uint64_t hosts_place_at_target(const struct hosts_path *path, const void *at)
{
	unsigned area = path->relay->area;
	uint64_t offset = (uintptr_t)at - (uintptr_t)transport_mirror_area(path->mirror, area);
	return ((uint64_t)area << 32 | offset) << 1 | HOSTS_OF_TARGET;
}

/* ---- what a peer is told ---- */

/* A rank sends what no rank waits for together with the next thing that a rank does wait for, or
 * when it has nothing else to do: up to 16 collectives, or 16 to 20 slots, at once. Each message
 * between hosts costs both of them some microseconds, and each collective has something to tell to
 * all ranks.
 *
 * A peer waits for freed slots only when it has used all that it may, LOCKSTEP_MESSAGES. Then it
 * may wait until the pump pushes, a millisecond at most. A peer waits for an entry or `finished`
 * only
 *   - when it is more than HOSTS_ENTRIES_KEPT collectives ahead of what it knows of this rank
 *     (engine_room_awaits). So this rank has not entered all of those that the peer has completed,
 *     and tells of them when it does;
 *   - when the two ranks call different collectives. That may be found up to HOSTS_LONG_MS later.
 * So these are also kept while the rank sleeps. */
enum hosts_keep {
	HOSTS_KEEP_NOT = 0,
	HOSTS_KEEP_WORD = 1,
	HOSTS_KEEP_SLOT = 4,
	HOSTS_KEEP_MAX = 80,
	HOSTS_KEEP_LONG = 128, /* a flag */
	HOSTS_KEEP_FINISHED = HOSTS_KEEP_LONG | 1,
	HOSTS_KEEP_ENTRY = HOSTS_KEEP_LONG | 4,
};
enum { HOSTS_LONG_MS = 100 };
_Static_assert((HOSTS_KEEP_MAX - 1) / (HOSTS_KEEP_ENTRY - HOSTS_KEEP_LONG) <= HOSTS_ENTRIES_KEPT,
	       "the next entry goes at once, with those before it");

/* Counts a note or word that the link has taken, and says when it has to go. */
static inline bool hosts_path_taken(const struct hosts_path *path, enum hosts_keep keep)
{
	struct hosts *hosts = path->hosts;
	uint64_t bit = ranks_bit(path->peer);
	unsigned weight = (unsigned)keep & ~(unsigned)HOSTS_KEEP_LONG;
	_Atomic uint64_t *kept = keep & HOSTS_KEEP_LONG ? hosts->kept_long : hosts->kept_back;
	struct hosts_relay *relay = path->relay;
	kept += path->peer / 64;
	atomic_fetch_add(&transport_traffic(path->mine, path->peer)->posted, 1);
	if (keep != HOSTS_KEEP_NOT && (relay->kept_back += weight) < HOSTS_KEEP_MAX) {
		atomic_fetch_add(&transport_traffic(path->mine, path->peer)->kept_back, 1);
		if (!(atomic_load_explicit(kept, memory_order_relaxed) & bit))
			atomic_fetch_or(kept, bit);
		return true;
	}
	if (relay)
		relay->kept_back = 0;
	hosts->due[path->peer / 64] |= bit;
	return true;
}

/* As the functions of the link with these names. They also count what the link has taken. */
static inline bool hosts_path_post(const struct hosts_path *path, enum hosts_keep keep,
				   const struct link_note *note, const void *payload,
				   uint64_t bytes, struct link_transfer *transfer)
{
	return path->link->ops->post(path->link, path->peer, note, payload, bytes, transfer) &&
	       hosts_path_taken(path, keep);
}
static inline bool hosts_path_store(const struct hosts_path *path, enum hosts_keep keep,
				    uint64_t index, uint64_t value)
{
	return path->link->ops->store(path->link, path->peer, index, value) &&
	       hosts_path_taken(path, keep);
}

/* Also pushes what the link keeps back for the peer, because the peer waits for its payload to be
 * fetched, and for this rank's entry. */
static inline void hosts_path_fetch(const struct hosts_path *path,
				    const struct link_message *message, void *to,
				    struct link_transfer *transfer)
{
	atomic_fetch_add(&transport_traffic(path->mine, path->peer)->begun, 1);
	path->link->ops->fetch(path->link, path->peer, message, to, transfer);
	struct hosts *hosts = path->hosts;
	int word = path->peer / 64;
	uint64_t kept = atomic_load_explicit(&hosts->kept_back[word], memory_order_relaxed) |
			atomic_load_explicit(&hosts->kept_long[word], memory_order_relaxed);
	hosts->due[word] |= kept & ranks_bit(path->peer);
}

/* ---- mark.c, return.c, mirror_memory.c ---- */

/* Marks this pair for the thread that makes progress next. */
void hosts_mark(struct hosts *hosts, unsigned area, int rank);
/* Wakes threads of this rank. */
void hosts_wake(const struct hosts *hosts);

/* Call when nobody wants the payload of a message: returns it, if the message has one that has not
 * been fetched. */
void hosts_return_offer(struct hosts *hosts, int peer, const struct link_message *message);
/* As hosts_return_offer, for all messages of one rank that the relay has. */
void hosts_return_offers(struct hosts *hosts, int peer, struct hosts_relay *relay);

/* Allocates memory for a part of a mirror's area; *has: the part has memory. False, after a
 * message: the system has none. Then the peer is cut off, because nothing more of it would be
 * right. */
bool hosts_mirror_ensure(struct hosts *hosts, const struct hosts_relay *relay, bool *has, void *at,
			 size_t bytes);

/* ---- wake_pump.c ---- */

void hosts_pump_wake(const struct hosts_pump *pump);
/* As hosts_pump_wake, if the pump sleeps on the link's descriptor. */
void hosts_pump_wake_armed(struct hosts_pump *pump);
/* Call when a post has completed at once: the link says so at the next advance, but its descriptor
 * does not wake the pump. Any thread. */
void hosts_pump_recheck(struct hosts_pump *pump);
/* After progress on the link, by whichever thread: whether the pump pushes soon what the link keeps
 * back. False: this thread has to. */
bool hosts_pump_pushes(struct hosts_pump *pump);

/* ---- fetch.c ---- */

/* The end of what is copied of a long message. Also one without a byte has a piece: its receiver
 * waits for it. */
static inline uint64_t hosts_pieces(uint64_t bytes)
{
	return bytes > 0 ? transport_mail_pieces(bytes) : 1;
}
/* Fetches what hosts_fetch_message has asked for. What is late stays asked for. */
void hosts_fetch_wanted(const struct hosts_path *path);
/* A message has arrived for RTS slot `index`, with its payload or announced with LATE: it can be
 * matched. */
void hosts_fetch_announced(struct hosts_relay *relay, unsigned index, uint64_t bytes,
			   uint32_t generation);
/* LONG has arrived for a slot of late_received. If it is not what was announced, it goes back. */
void hosts_fetch_offered(struct hosts *hosts, int peer, struct hosts_relay *relay, unsigned index,
			 const struct link_message *message);
/* Fails a receive whose payload will never arrive. */
void hosts_fetch_fail(struct hosts_relay *relay, unsigned index);

/* ---- cancels.c ---- */

/* Call when the link had no room for an offer: the source alone decides again whether to cancel
 * it. */
void hosts_take_offer_back(const struct hosts *hosts, struct mail_rts *rts);

/* Sends the requests of hosts_cancel to the peer. False: the link had no memory for all. */
bool hosts_send_cancels(const struct hosts_path *path);
/* `peer` asks this rank to cancel a message of one of my rings. */
void hosts_cancel_arrived(struct hosts *hosts, int peer, struct hosts_relay *relay, uint64_t index,
			  uint32_t generation);
/* After a failure: cancels all messages that were offered to this rank and not matched, and refuses
 * the payloads of those that were matched, unless the link fetches them already. */
void hosts_cancel_offered(struct hosts *hosts, int peer, struct hosts_relay *relay);

/* ---- channels.c ---- */

/* Implement struct transport_hosts_ops: messages of collectives with a member on another host. */
bool hosts_quiet(struct transport_team *team, int peer, struct wait_word *blocked);
const void *hosts_payload(const struct transport_team *team, int peer,
			  const struct transport_message *message);

/* Sends messages of collectives, and tells which were taken; fetches payloads, or returns those
 * that nobody wants. False: the link had no memory for all. */
bool hosts_channel_send(const struct hosts_path *path);
/* A message of `peer` for this slot, in an area of mine that belongs to the team. */
void hosts_channel_arrived(struct transport_team *team, int peer, struct transport_slot *slot,
			   const struct link_message *message);
/* `peer` has stored a word in an area of mine that belongs to the team: perhaps that a slot of the
 * channel to it is free. */
void hosts_channel_word(struct transport_team *team, int peer, const _Atomic uint64_t *word);
void hosts_channel_ended(struct hosts_transfer *transfer);
void hosts_channel_set(struct transport_team *team, int member, struct hosts_relay *relay);

/* ---- parting.c ---- */

/* Sends how many collectives this rank has called, once it has closed the group: after its entries,
 * and before times_closed. False: the link had no memory. */
bool hosts_send_end(const struct hosts_path *path, uint64_t ended);
/* Call once the end of `peer` has been stored in this area of its mirror. */
void hosts_end_arrived(struct hosts *hosts, int peer, unsigned area);
/* Sends LEAVES and HEARD to the ranks that are due to get them. Call after all else of a pass. */
void hosts_parting_send(struct hosts *hosts);
/* Call when `peer` has sent LEAVES (`leaves`) or HEARD. */
void hosts_parting_arrived(struct hosts *hosts, int peer, bool leaves);
/* Call when nothing comes from `peer` any more, because its connection has broken or this rank has
 * cut it off: causes the event `lost`. */
void hosts_parting_lost(struct hosts *hosts, int peer);

/* ---- relay.c ---- */

/* Sends what is new in this team to all marked members. Keeps the marks of those for whom the link
 * had no room. */
void hosts_relay_team(struct hosts *hosts, unsigned area);

/* ---- advance.c ---- */

/* Between these two calls the thread alone uses the link; it calls no function that makes progress
 * on the link. The first call waits for another thread that makes progress, which never blocks. Not
 * under a lock that an event takes. */
void hosts_progress_begin(struct hosts *hosts);
void hosts_progress_end(struct hosts *hosts);
/* As hosts_advance, for the pump, which pushes when it has nothing else to do. */
bool hosts_advance_without_push(struct transport *transport);
/* As hosts_push, but for what the link may keep long. */
void hosts_push_short(struct hosts *hosts);

/* Implements struct transport_hosts_ops. */
void hosts_notify(const struct transport_team *team, int rank);
void hosts_notify_remote(const struct transport_team *team);

/* ---- pump.c ---- */

void hosts_pump_init(struct hosts_pump *pump, struct transport *transport);
/* Ends the thread. */
void hosts_pump_stop(struct hosts_pump *pump);

/* ---- ask.c ---- */

/* Takes a note that belongs to no group. False: the note belongs to one. */
bool hosts_groupless_arrived(struct hosts *hosts, int peer, const struct link_message *message);
void hosts_tell_ended(struct hosts *hosts, struct hosts_transfer *transfer);

#endif
