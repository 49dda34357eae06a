/* SPDX-License-Identifier: BSD-3-Clause
 * All messages of one rank in one group: queued sends, unexpected messages (arrived and not
 * matched), and posted receives (not matched yet). One lock guards all of them. It is held for
 * look-ups and short copies only; long messages are copied without it (sendrecv.c).
 *
 *   send     new -> queued (no free slot) -> sent (long: until it is received) -> complete
 *   receive  new -> posted -> matched (long: pieces are copied) -> (the source copies the rest)
 *            -> complete */
#ifndef MAILBOX_MAILBOX_PRIVATE_H
#define MAILBOX_MAILBOX_PRIVATE_H

#include "mailbox/mailbox.h"
#include "mailbox/match.h"
#include "transport/mail.h"

enum {
	/* How a plain payload travels. It is copied into the arena, or read by address. Either: as
	 * was faster lately (decision 039). One that cannot be read, or where a read is slow
	 * (transport_reads_fast), is copied.
	 *            nonblocking    blocking
	 *   copied   below 64 KiB   below 16 KiB
	 *   either   to 1 MiB       to 1 MiB       MIN, MAX
	 *   copied   below 4 MiB    above          LONG
	 *   read     above          never          a copy takes room: read where it can be
	 * A nonblocking one whose sender can help (help.c) is read: above MAX, or, where a read is
	 * slow, above MAILBOX_PLACES_BYTES. */
	MAILBOX_READ_MIN_BYTES = 64 * 1024,
	MAILBOX_READ_BLOCKING_MIN_BYTES = 16 * 1024,
	MAILBOX_READ_MAX_BYTES = 1024 * 1024,
	MAILBOX_READ_LONG_BYTES = 4 * 1024 * 1024,
	/* Up to MAX, from LONG on if the send blocks, and where a read is slow, a payload is copied
	 * only if its block takes at most 1/64 of the arena. */
	MAILBOX_ARENA_SHARE = 64,
	MAILBOX_READ_PIECE_BYTES = 1024 * 1024,
	/* So many detached receives from one source at a time ask it for help: the places of two
	 * stay in the cache, and one is filled while the other one is emptied. */
	MAILBOX_IN_TURN = 2,
	/* So often a receive polls in vain for a piece that its sender may copy, before it reads by
	 * address: for the first piece; and when its sender makes progress for sure, but may be
	 * copying pieces of other messages. */
	MAILBOX_PATIENCE = 4,
	MAILBOX_PATIENCE_LATER = 32,
	/* After so many bytes, but at least one piece, the copying thread checks for other work. */
	MAILBOX_SLICE_BYTES = 1024 * 1024,
};

/* The block of a longer send that blocks has places (MAIL_PLACES). The sender of a longer one that
 * does not block may help. */
#ifndef MAILBOX_PLACES_BYTES /* test/explore has a lower one, and so shorter messages */
#define MAILBOX_PLACES_BYTES (512 * UINT64_C(1024))
#endif

/* The messages between this rank and one peer. */
struct mailbox_peer {
	struct mail_ring *to;           /* in the peer's segment: messages from me */
	struct mail_ring *from;         /* in my segment: messages from the peer */
	const struct mail_cells *cells; /* in the peer's segment: cells of its messages */
	bool is_here;                   /* the peer shares this host */
	bool to_open, from_open;        /* the rings have memory */
	struct mail_out out;
	/* A thread that waits for a message of this source awaits `in.next`, read in the same
	 * section of the lock in which it found no message. So the awaited word changes for each
	 * message that another thread looks at afterwards. */
	struct mail_in in;
	struct op *queue, *queue_last; /* sends that wait for a free slot, in order */
	/* RTS slots that no operation waits for: those of blocks that were handed over, and of
	 * cancelled sends. Each slot, and its block, is free once the receiver has returned it. Any
	 * thread may find a returned slot, even that of an operation, before the operation does. So
	 * no slot stays in use because no thread makes progress. */
	uint64_t unowned_rts[2]; /* as mail_out.rts */
	void **blocks;           /* [MAIL_RTS]; NULL: none */
	/* [MAIL_SLOTS] By the peer's RTS slot, of the second half: blocks that the peer has handed
	 * over to me, and that I have not returned. */
	void **held;
	uint64_t sends, receives; /* how many this rank has begun */
	/* For crossed.c: calls have waited for all messages to the peer from this position on; 0:
	 * not for the last message. */
	uint64_t waited_from;
	uint32_t holds; /* the number of blocks in `held` */
	/* In a pass of mailbox_progress: how many receives from this source it has advanced that
	 * their sender helps. Only for the thread that makes progress. */
	uint32_t in_turn;
	/* This rank has just copied pieces ahead for the peer, which takes them; so the peer makes
	 * progress. Only for that thread, too. */
	bool takes;
	uint32_t posted_count; /* posted receives from this source alone */
	uint32_t unexpected_count;
	/* [MAIL_SLOTS] arrived and not matched; in the order of arrival */
	struct mail_message *unexpected;
};
/* The seldom used arrays of a peer are apart, so that a new group touches few pages. */
struct mailbox_store {
	void *blocks[MAIL_RTS], *held[MAIL_SLOTS];
	struct mail_message unexpected[MAIL_SLOTS];
};

/* For a rank of which one thread sends and receives: see crossed.c. */
struct mailbox_crossing {
	/* The last send that the thread has waited for since its last blocking receive: to which
	 * rank, -1: none. */
	int to;
	uint32_t run; /* the thread has waited for this many sends to that rank, up to this one */
	bool waits_unknown; /* nobody knows for how many nonblocking sends it has waited */
	uint64_t position;
	/* Short nonblocking sends: how many; how many there were when the thread had last waited
	 * for all; and the last one. */
	uint64_t begun, waited_up_to, begun_position;
	int begun_to;
	/* The thread has begun a receive from any source, and did not wait for it at once. */
	bool left_any_open;
	uint32_t count;    /* how many receives were checked */
	struct ranks ring; /* what the last check has followed */
};

/* The message that is in one of my cells, or was there last. */
struct mailbox_cell_use {
	uint64_t position;
	int peer;
};
/* My cells, the left ones of all pairs and the right ones: see cells.c. */
struct mailbox_cells {
	struct mail_cells *memory;
	bool open;        /* the cells have memory */
	uint64_t free[2]; /* bit i: the cell of pair i is free; 0: in use when last checked */
	unsigned half;    /* which half of a pair a message takes that needs one cell */
	struct mailbox_cell_use uses[2][MAIL_CELL_PAIRS];
};

struct mailbox {
	struct lock_mail lock;
	struct transport_team *team;
	struct memory *memory;
	const _Atomic uint64_t *cause; /* the group's cause word, see wait_has_failed */
	bool polls;                    /* waits of the group spin first */
	struct ranks members;          /* by world rank */
	enum setting_cma cma;          /* whether plain buffers are shown by address */
	struct op_tuner tuner LOCK_GUARDED(mail);
	_Atomic uint64_t waited_sends; /* handles of short sends waited for so far */
	struct match_table posted LOCK_GUARDED(mail);
	/* Detached operations that need to be advanced. The thread that advances them takes them
	 * out of the list meanwhile. When it puts them back it ends those that were cancelled. The
	 * cancelling thread ends a cancelled operation that is in the list. */
	struct op *active LOCK_GUARDED(mail);
	struct op *lingering LOCK_GUARDED(mail); /* of mailbox_linger */
	/* Detached operations that are complete. The thread that has added one may go back to
	 * sleep; so a thread that stops making progress, or arms the bell, checks this list
	 * (mailbox_has_work). */
	struct op *complete LOCK_GUARDED(mail), *complete_last LOCK_GUARDED(mail);
	/* Read without the lock; changed under it, by mailbox_tally. */
	_Atomic uint32_t complete_count;
	_Atomic uint32_t pending; /* detached operations that are not complete */
	_Atomic uint32_t busy;    /* of those: OP_P2P_DEVICE_BUSY, or in `lingering` */
	uint64_t any_receives;    /* how many receives from any source were begun */
	unsigned limit;           /* setting MESSAGES */
	uint32_t tid;             /* the first thread that has sent or received */
	bool several_threads;     /* other threads have sent or received, too */
	int next_source;          /* the source that a receive from any source looks at first */
	struct mailbox_crossing crossing;
	struct mailbox_cells cells;
	struct mailbox_peer peers[];
};

static inline enum op_p2p_state mailbox_state_of(const struct op *op)
{
	return (enum op_p2p_state)atomic_load_explicit(&op->p2p.state, memory_order_acquire);
}
static inline struct op *mailbox_op_of(struct match_entry *entry)
{
	return (struct op *)(void *)((char *)entry - offsetof(struct op, p2p.entry));
}
static inline const struct op *mailbox_const_op_of(const struct match_entry *entry)
{
	return (const struct op *)(const void *)((const char *)entry -
						 offsetof(struct op, p2p.entry));
}
static inline void mailbox_set_state(struct op *op, enum op_p2p_state state)
{
	atomic_store_explicit(&op->p2p.state, (uint32_t)state, memory_order_release);
}

/* ---- under the lock ---- */

/* Adds to a counter that only holders of the lock change, so it takes no locked instruction. */
static inline void mailbox_tally(_Atomic uint32_t *counter, int change) LOCK_REQUIRES(mail);
static inline void mailbox_tally(_Atomic uint32_t *counter, int change)
{
	uint32_t count = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, count + (uint32_t)change, memory_order_relaxed);
}
/* The operation is complete. Its memory may be gone afterwards: that of a detached one once the
 * lock is released; that of a blocking one at once, because its caller reads the state without the
 * lock. */
void mailbox_complete(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail);
/* Whether mailbox_complete only begins the last part of a receive on a stream: the message is here,
 * and the stream copies it out. */
bool mailbox_needs_delivery(const struct op *op);
/* Appends a detached operation to the list of complete ones; also one that has failed while its
 * peer may still touch its buffer, which its state tells mailbox_abandon. */
void mailbox_add_complete(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail);
/* Frees a block of this rank's arena; NULL: nothing. */
void mailbox_free_block(struct mailbox *mailbox, void *block);
/* Call when the RTS slot of the operation shows its progress from now on. As after
 * mailbox_complete, the memory of a blocking operation may be gone at once. */
void mailbox_activate(struct mailbox *mailbox, struct op *op, enum op_p2p_state state)
	LOCK_REQUIRES(mail);
/* Counts a new operation, and notes the thread that made it. */
void mailbox_count(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail);
static inline void mailbox_note_thread(struct mailbox *mailbox) LOCK_REQUIRES(mail);
static inline void mailbox_note_thread(struct mailbox *mailbox)
{
	uint32_t tid = trace_thread_id();
	if (__builtin_expect(mailbox->tid == tid, 1))
		return;
	mailbox->several_threads |= mailbox->tid != 0;
	mailbox->tid = mailbox->tid ? mailbox->tid : tid;
}
/* Allocates the inbox for messages that this rank sends to a peer, or receives from it, if it has
 * no memory yet; call before the first send or receive. False, after a message: the system has no
 * memory left. */
bool mailbox_open_to(struct mailbox *mailbox, int peer) LOCK_REQUIRES(mail);
bool mailbox_open_from(struct mailbox *mailbox, int peer) LOCK_REQUIRES(mail);

/* ---- cells.c ---- */

/* Call for a new group. */
void mailbox_cells_init(struct mailbox *mailbox);
/* Whether there are free cells for this many bytes, at most MAIL_EAGER_BYTES. The first call
 * allocates the cells' memory, and each looks which cells the receivers have read meanwhile. */
bool mailbox_reclaim_cells(struct mailbox *mailbox, uint64_t bytes) LOCK_REQUIRES(mail);
/* Posts a message of more than MAIL_INLINE_BYTES, for which there are free cells and a free slot;
 * writes the place of the cells into the envelope. */
void mailbox_post_eager(struct mailbox *mailbox, int dest, struct mail_envelope *envelope,
			const void *payload, uint64_t bytes) LOCK_REQUIRES(mail);

/* ---- arrive.c, cancel.c, crossed.c, mailbox.c, send.c: matching, and queued sends ---- */

/* The envelope of a new message, as if its payload were in the slot. */
struct mail_envelope mailbox_envelope(const struct op_call *call, uint64_t record);
/* The place of the oldest unexpected message of one source that has this tag; -1: none. The second
 * function removes the message at a place. */
int mailbox_find_unexpected(const struct mailbox_peer *peer, int tag) LOCK_REQUIRES(mail);
void mailbox_take_unexpected(struct mailbox_peer *peer, int place, struct mail_message *out)
	LOCK_REQUIRES(mail);
/* The call that has sent a message. */
enum mailbox_sending {
	MAILBOX_WAITED,      /* a blocking one: with a long message it would have waited */
	MAILBOX_HANDLE,      /* a nonblocking one with a handle; a short message */
	MAILBOX_NONBLOCKING, /* another nonblocking one */
};
void mailbox_note_sent(struct mailbox *mailbox, int dest, enum mailbox_sending how)
	LOCK_REQUIRES(mail);
/* Call for each message that a blocking call has received. True: the ranks of `crossing.ring` would
 * all have waited for each other if their messages had been long. */
bool mailbox_crossed(struct mailbox *mailbox, const struct mail_message *message)
	LOCK_REQUIRES(mail);
/* Removes a receive from the posted ones. */
void mailbox_unpost(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail);
/* Completes a cancelled operation that no thread advances. */
void mailbox_end_cancelled(struct mailbox *mailbox, struct op *op) LOCK_REQUIRES(mail);
/* The RTS slot, and a block or NULL, belong to the receiver until it returns them. */
void mailbox_disown_rts(struct mailbox_peer *peer, unsigned index, void *block);
/* Removes a send from the queue. */
void mailbox_unqueue(struct mailbox_peer *peer, struct op *op);
/* Takes all new messages of one source out of its ring: matches them, or adds them to the
 * unexpected ones. */
void mailbox_arrive(struct mailbox *mailbox, int source) LOCK_REQUIRES(mail);
/* Posts queued sends to this peer as far as there are free slots. True: the caller wakes the
 * peer. */
bool mailbox_flush_peer(struct mailbox *mailbox, int peer) LOCK_REQUIRES(mail);
/* As mailbox_cancel, but begins no send that waited behind this one: for a group that has
 * failed. */
bool mailbox_take_back(struct mailbox *mailbox, struct op *op);
/* The word that changes when a message of this source arrives. */
void mailbox_source_word(struct mailbox *mailbox, int source, struct wait_word *word)
	LOCK_REQUIRES(mail);
/* As mailbox_source_word, for a source or MATCH_ANY; returns how many words. */
int mailbox_source_words(struct mailbox *mailbox, int source, struct wait_word *words)
	LOCK_REQUIRES(mail);
/* The word that changes when a slot for a queued send may be free. */
void mailbox_room_word(struct mailbox *mailbox, int peer, struct wait_word *word)
	LOCK_REQUIRES(mail);

/* ---- these take the lock, and wake peers where needed ---- */

/* Posts a new send, or queues it behind others. False: there is no free slot for a send with
 * p2p.posted_first; nothing was done. */
bool mailbox_send(struct mailbox *mailbox, struct op *op);
/* Posts queued sends to this send's peer as far as there are free slots. False, with *word, if the
 * send itself is still queued. */
bool mailbox_flush(struct mailbox *mailbox, const struct op *op, struct wait_word *word);
/* Matches a new receive with an unexpected message, or posts it. A blocking one that is posted then
 * has its words in op->words. A detached one may be complete, and its memory gone. */
void mailbox_receive(struct mailbox *mailbox, struct op *op);
/* Polls the rings of all sources that this receive may match, and matches the arrived messages.
 * True, with op->words: the receive is still posted. */
bool mailbox_poll_posted(struct mailbox *mailbox, struct op *op);
/* Whether a send that asks for it was cancelled; then it is complete, except its state. */
bool mailbox_finish_cancel(struct mailbox *mailbox, struct op *op);
/* Completes a send with op->status: the receiver has freed its RTS slot, or it was cancelled. */
void mailbox_complete_send(struct mailbox *mailbox, struct op *op);

/* ---- stage.c ---- */

/* Makes the payload of a long send accessible to its receiver, unless it is posted first. False: it
 * has failed with op->status. */
bool mailbox_stage_payload(struct mailbox *mailbox, struct op *op);
/* Frees the block that a payload was staged in; lost: the receiver may still read it, so it is
 * never used again. */
void mailbox_release_payload(struct mailbox *mailbox, struct op *op, bool lost);
/* Call if there is no free slot for a send that was to be posted first: its payload is read by
 * address, or staged whole. False: it has failed with op->status. */
bool mailbox_post_later(struct mailbox *mailbox, struct op *op);
/* Whether to store past the cache. The receiver may still have the lines of an earlier message. If
 * the two processors share no cache, fetching a line back from it takes longer than writing it to
 * memory. */
bool mailbox_begin_stores(struct mailbox *mailbox, struct op *op);
/* The receiver has copied the message: notes what the stores and the transfer have cost. */
void mailbox_end_stores(struct mailbox *mailbox, const struct op *op);

/* ---- places.c ---- */

/* Where a piece is in a block. */
uint64_t mailbox_place_of(const struct op *op, bool in_places, uint64_t piece);
/* Polls for about as long as the copy of a piece takes, because a rank waits about that long for a
 * piece or for a place if both ranks run. */
bool mailbox_poll_word(const struct mailbox *mailbox, const _Atomic uint64_t *word, uint64_t value);
/* Stages the payload of a send that was posted. OP_BLOCKED, with op->words: all places are full. */
enum op_progress mailbox_stage_pieces(struct mailbox *mailbox, struct op *op);

/* ---- help.c ---- */

/* Receive: asks the sender for help; the second call does nothing. */
void mailbox_ask_for_help(struct mailbox *mailbox, struct op *op);
/* Receive that has asked: the next piece, if the sender has copied it; else NULL. *waits: the
 * sender may be copying it, so do not read it yet. Claim the piece before it is used. */
const void *mailbox_find_ahead(struct mailbox *mailbox, struct op *op, bool *waits);
/* Send whose receiver has asked: copies pieces as far as there are free places. OP_MORE: a slice
 * was copied. OP_BLOCKED, perhaps with a word for the next place. */
enum op_progress mailbox_help(struct mailbox *mailbox, struct op *op);

/* ---- sendrecv.c ---- */

/* Advances a send or receive that has its RTS slot: copies pieces, or checks how many the peer has
 * copied. OP_MORE: a slice was copied, and the next one can be copied at once. */
enum op_progress mailbox_copy_pieces(struct mailbox *mailbox, struct op *op);
/* The value that `staged` must reach before a receive that has its RTS slot can copy the next
 * piece; 0: it need not wait. */
uint64_t mailbox_unstaged(const struct op *op);
/* The word that an operation with an RTS slot waits for: until its payload is staged, then until
 * the peer is done. */
void mailbox_rts_word(struct mailbox *mailbox, const struct op *op, struct wait_word *word);

/* Advances an operation whose buffers are in host memory. */
enum op_progress mailbox_advance_host(struct mailbox *mailbox, struct op *op);

/* ---- abandon.c ---- */

/* As mailbox_abandon, for an operation whose buffers are in host memory. */
enum op_progress mailbox_abandon_host(struct mailbox *mailbox, struct op *op,
				      const struct ranks *gone, bool force);

/* ---- sendrecv.c and abandon.c ---- */

/* As transport_wait_word, for a word that transport_notify_message announces. */
static inline void mailbox_wait_word(const struct mailbox *mailbox, int owner,
				     const _Atomic uint64_t *word, uint64_t value, int peer,
				     struct wait_word *out)
{
	transport_wait_word(mailbox->team, owner, word, value, peer, out);
	out->topic = TRANSPORT_TOPIC_MESSAGES;
}

/* Adds a word of member `owner`'s segment, which the operation's peer writes. */
static inline void mailbox_add_word(struct mailbox *mailbox, struct op *op, int owner,
				    const _Atomic uint64_t *word, uint64_t value)
{
	mailbox_wait_word(mailbox, owner, word, value, op->call.peer, &op->words[op->word_count++]);
}

/* Whether the group has failed. The answer may lag, so nothing may depend on false: it only ends
 * long work early. */
static inline bool mailbox_has_failed_hint(const struct mailbox *mailbox)
{
	return wait_has_failed(atomic_load_explicit(mailbox->cause, memory_order_relaxed));
}

static inline bool mailbox_is_reached(const _Atomic uint64_t *word, uint64_t value)
{
	return (int64_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

#endif
