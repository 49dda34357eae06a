/* SPDX-License-Identifier: BSD-3-Clause
 * All messages of one rank in one group: what waits to be sent, what has arrived and nobody wanted
 * yet, what is asked for and has not arrived. One lock guards all of it, and is held for looks and
 * short copies only; long messages are copied without it (p2p.c).
 *
 * Two sorts of operations: one that blocks its caller is advanced by that thread alone, whoever
 * completes it; one that is detached is advanced by engine_p2p_progress, whoever calls that, and
 * then stands in the list of those that are over until somebody asks with engine_p2p_over.
 *
 *   send     new -> queued (no room) -> sent (long: the receiver has to take it) -> over
 *   receive  new -> posted -> matched (long: pieces are copied) -> given (the source copies
 *            some) -> over */
#ifndef ENGINE_MAILBOX_H
#define ENGINE_MAILBOX_H

#include "engine/engine_private.h"
#include "engine/match.h"
#include "transport/mail.h"

/* What lies between this rank and one other. */
struct mailbox_peer {
	struct mail_box *to;            /* in its segment, from me */
	struct mail_box *from;          /* in mine, from it */
	const struct mail_eager *eager; /* in its segment, of what it sends to me */
	bool reads_cells;               /* it reads mine */
	bool to_open, from_open;        /* the memory of both boxes is there */
	struct mail_out out;
	/* A thread that waits for a message of this source awaits `in.next` as it was under the
	 * lock under which it saw that there is none for it: so what others take in after that has
	 * reached it. */
	struct mail_in in;
	struct engine_op *queue, *queue_last; /* sends that wait for room, in their order */
	/* RTS slots that no operation waits for: of blocks that were handed over, and of sends that
	 * were taken back. They are free once the receiver is done with them; then so is the block.
	 * Of the others somebody may find that they are free before their own operations do: so
	 * none is left in use because nobody drives. */
	uint64_t adrift[2]; /* as mail_out.rts */
	void **blocks;      /* [MAIL_RTS]; NULL: none */
	/* [MAIL_SLOTS] Blocks that were handed over to me and that I have not given back: of the
	 * second half of the peer's RTS slots. */
	void **held;
	uint64_t sends, receives; /* how many were begun */
	/* all messages to it from this position on were waited for; 0: not the last one */
	uint64_t waited_from;
	uint32_t holds;  /* how many these are */
	uint32_t asking; /* receives that wait for this source and no other */
	uint32_t unexpected_count;
	/* [MAIL_SLOTS] arrived, wanted by nobody yet; in their order */
	struct mail_message *unexpected;
};
/* What is seldom touched of a peer lies apart, so that a new group touches few pages. */
struct mailbox_store {
	void *blocks[MAIL_RTS], *held[MAIL_SLOTS];
	struct mail_message unexpected[MAIL_SLOTS];
};

/* Of the one thread: see crossed.c. */
struct mailbox_crossing {
	/* The last send that it has waited for since its last receive that blocked; -1: none. */
	int to;
	uint32_t run; /* so many up to it, of those to the same rank, were waited for */
	bool unsure;  /* how many of those begun beside the caller were waited for */
	uint64_t position;
	/* Short sends begun beside the caller: how many, how many when all had been waited for, and
	 * the last one. */
	uint64_t begun, seen, begun_position;
	int begun_to;
	uint32_t count; /* receives that came to be looked at */
};

/* The message that lies in one of my cells, or did last. */
struct mailbox_loan {
	uint64_t position;
	int peer;
};
/* My cells, the left ones of all pairs and the right ones: see eager.c. */
struct mailbox_cells {
	struct mail_eager *memory;
	bool open;        /* the memory is there */
	uint64_t free[2]; /* bit i: that of pair i; of the others nobody has looked lately */
	unsigned side;    /* from which messages take them that need one */
	struct mailbox_loan loans[2][MAIL_CELL_PAIRS];
};

struct engine_mailbox {
	struct lock_mail lock;
	struct match_table posted LOCK_GUARDED(mail);
	/* Detached, and somebody has to see how far they are. The thread that goes on with them
	 * takes them out meanwhile, and looks which have been taken back when it puts them in
	 * again; others are ended by the thread that takes them back. */
	struct engine_op *active LOCK_GUARDED(mail);
	/* Detached ones that are over: who has put one there may go back to sleep, so whoever stops
	 * driving, or arms the progress thread, looks here (engine_p2p_has_work). */
	struct engine_op *over LOCK_GUARDED(mail), *over_last LOCK_GUARDED(mail);
	_Atomic uint32_t over_count;
	_Atomic uint32_t pending; /* detached operations that are not over */
	uint64_t any_receives;    /* how many of any source were begun */
	unsigned limit;           /* setting MESSAGES */
	uint32_t tid;             /* the one thread that has sent and received so far */
	bool mixed;               /* there is more than one */
	int turn;                 /* whose message any source takes next, if several have some */
	struct mailbox_crossing crossing;
	struct mailbox_cells cells;
	struct mailbox_peer peers[];
};

static inline enum engine_p2p_stage p2p_stage(const struct engine_op *op)
{
	return (enum engine_p2p_stage)atomic_load_explicit(&op->p2p.stage, memory_order_acquire);
}
static inline struct engine_op *engine_mailbox_op_of(struct match_entry *entry)
{
	return (struct engine_op *)(void *)((char *)entry - offsetof(struct engine_op, p2p.entry));
}
static inline const struct engine_op *engine_mailbox_const_op_of(const struct match_entry *entry)
{
	return (const struct engine_op *)(const void *)((const char *)entry -
							offsetof(struct engine_op, p2p.entry));
}
static inline void point_set(struct engine_op *op, enum engine_p2p_stage stage)
{
	atomic_store_explicit(&op->p2p.stage, (uint32_t)stage, memory_order_release);
}

/* ---- under the lock ---- */

/* Nobody has to see to it any more. A detached one may be gone as soon as the lock is; one that
 * blocks its caller, who looks at its stage without the lock, at once. */
void engine_mailbox_is_over(struct engine_mailbox *mailbox, struct engine_op *op)
	LOCK_REQUIRES(mail);
/* A detached one has failed, and its peer may still touch its buffer: its stage tells
 * engine_p2p_abandon. */
void engine_mailbox_hand_out(struct engine_mailbox *mailbox, struct engine_op *op)
	LOCK_REQUIRES(mail);
/* From now on its RTS slot tells how far it is. One that blocks its caller may be gone at once,
 * too. */
void engine_mailbox_activate(struct engine_mailbox *mailbox, struct engine_op *op,
			     enum engine_p2p_stage stage) LOCK_REQUIRES(mail);
/* A new operation, and the thread that made it. */
void engine_mailbox_count(struct engine_mailbox *mailbox, struct engine_op *op) LOCK_REQUIRES(mail);
static inline void engine_mailbox_note_thread(struct engine_mailbox *mailbox) LOCK_REQUIRES(mail);
static inline void engine_mailbox_note_thread(struct engine_mailbox *mailbox)
{
	uint32_t tid = trace_thread_id();
	if (__builtin_expect(mailbox->tid == tid, 1))
		return;
	mailbox->mixed |= mailbox->tid != 0;
	mailbox->tid = mailbox->tid ? mailbox->tid : tid;
}
/* Makes memory for what this rank sends to a peer, or receives from it, if there is none yet;
 * before the first send or receive. False, after a message: the system has none left. */
bool engine_mailbox_open_to(struct engine *engine, int peer) LOCK_REQUIRES(mail);
bool engine_mailbox_open_from(struct engine *engine, int peer) LOCK_REQUIRES(mail);

/* ---- eager.c ---- */

/* The mailbox is of another group. */
void engine_mailbox_cells_init(struct engine *engine);
/* Whether there are free ones for so many bytes, at most MAIL_EAGER_BYTES. */
bool engine_mailbox_has_cells(struct engine *engine, uint64_t bytes) LOCK_REQUIRES(mail);
/* Posts a message of more than MAIL_INLINE_BYTES, for which there are free cells and a free slot.
 * The envelope gets the place of the cells. */
void engine_mailbox_post_eager(struct engine_mailbox *mailbox, int dest,
			       struct mail_envelope *envelope, const void *payload, uint64_t bytes)
	LOCK_REQUIRES(mail);

/* ---- */

/* What a new message to this peer says of itself while its payload is in its slot. */
struct mail_envelope engine_mailbox_envelope(const struct engine_call *call, uint64_t record);
/* The place of the oldest message that fits among those of one source that have arrived, or -1; and
 * takes it out. */
int engine_mailbox_find_unexpected(const struct mailbox_peer *peer, int tag) LOCK_REQUIRES(mail);
void engine_mailbox_take_unexpected(struct mailbox_peer *peer, int place, struct mail_message *out)
	LOCK_REQUIRES(mail);
/* How a message has been sent that has just been posted. */
enum mailbox_sent {
	/* by a call that would have waited for the receiver, however long the message */
	MAILBOX_WAITED,
	MAILBOX_BEGUN, /* a short one, by a call that gives a handle */
	MAILBOX_BESIDE,
};
void engine_mailbox_note_sent(struct engine *engine, int dest, enum mailbox_sent how)
	LOCK_REQUIRES(mail);
/* The ranks that would all have waited for each other, had their messages been long; 0: there are
 * none. For each message that a call which blocks has received. */
uint64_t engine_mailbox_crossed(struct engine *engine, const struct mail_message *message)
	LOCK_REQUIRES(mail);
/* A receive asks no longer. */
void engine_mailbox_forget(struct engine_mailbox *mailbox, struct engine_op *op) LOCK_REQUIRES(mail);
/* It has been taken back, and nobody goes on with it: it is over. */
void engine_mailbox_end_back(struct engine_mailbox *mailbox, struct engine_op *op)
	LOCK_REQUIRES(mail);
/* A send waits for room no longer. */
void engine_mailbox_unqueue(struct mailbox_peer *peer, struct engine_op *op);
/* Takes in what has come from one source. */
void engine_mailbox_arrive(struct engine *engine, int source) LOCK_REQUIRES(mail);
/* Posts what waits for room to this peer, as far as there is some; true: it is to be woken. */
bool engine_mailbox_flush_peer(struct engine *engine, int peer) LOCK_REQUIRES(mail);
/* What to wait for until a message of this source may be there. */
void engine_mailbox_source_word(struct engine *engine, int source, struct wait_word *word)
	LOCK_REQUIRES(mail);
/* The same of this source or any; returns how many words. */
int engine_mailbox_source_words(struct engine *engine, int source, struct wait_word *words)
	LOCK_REQUIRES(mail);
/* What to wait for until there may be room for those that are queued. */
void engine_mailbox_room_word(struct engine *engine, int peer, struct wait_word *word)
	LOCK_REQUIRES(mail);

/* ---- these take the lock, and wake the ranks that they have to ---- */

/* Gives a new send its place: posted, or queued behind others. False: it is late, and there is no
 * room, so nothing has been done. */
bool engine_mailbox_send(struct engine *engine, struct engine_op *op);
/* Posts what waits for room to this send's peer, as far as there is some. False, with *word, if the
 * send itself still waits. */
bool engine_mailbox_flush(struct engine *engine, const struct engine_op *op, struct wait_word *word);
/* Gives a new receive its place: it matches a message that is there, or is asked for; then
 * op->words are what to wait for, unless it is detached, and may be over, and gone. */
void engine_mailbox_receive(struct engine *engine, struct engine_op *op);
/* Takes in what has arrived from where this receive could get it. True, with op->words: it has
 * matched nothing. */
bool engine_mailbox_asks(struct engine *engine, struct engine_op *op);
/* Whether an operation that is unmatched is now out of all lists, or will be as soon as who goes
 * on with it has seen that. */
bool engine_mailbox_take_back(struct engine *engine, struct engine_op *op);
/* A send is over, as its RTS slot is, or as it was taken back: op->status tells. */
void engine_mailbox_sent(struct engine *engine, struct engine_op *op);
/* The oldest message that fits; false if there is none, and words[*count] are what to wait for:
 * none if the system has no memory for an inbox, and a message has said so. */
bool engine_mailbox_peek(struct engine *engine, int source, int tag, struct mail_message *out,
			 struct wait_word *words, int *count);

/* ---- p2p.c ---- */

/* Makes the payload of a long send accessible to its receiver, unless it is late; false, with
 * op->status. */
bool engine_p2p_stage(struct engine *engine, struct engine_op *op);
/* A send or receive that has its RTS slot: copies, or looks how far the other is. ENGINE_BLOCKED
 * without words: a slice has been copied, and there is more to do at once. */
enum engine_progress engine_p2p_go_on(struct engine *engine, struct engine_op *op);
/* What has to be stored in `staged` before a receive that has its RTS slot can go on; 0:
 * nothing. */
uint64_t engine_p2p_unstaged(const struct engine_op *op);
/* What such a one waits for last of all, or now if its payload is not staged yet. */
void engine_p2p_word(struct engine *engine, const struct engine_op *op, struct wait_word *word);

#endif
