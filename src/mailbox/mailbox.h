/* SPDX-License-Identifier: BSD-3-Clause
 * The messages of one rank in one group: sends, receives and probes, one by one. As the engine, it
 * never blocks: mailbox_advance makes the progress that is possible at once, then returns the words
 * that the operation waits for.
 *
 * Any number of threads may send and receive at once. There are two sorts of operations. A blocking
 * one is advanced by the calling thread alone, although another thread may complete it. A detached
 * one is advanced by any thread that calls mailbox_progress; once it is complete,
 * mailbox_take_complete returns it. */
#ifndef MAILBOX_MAILBOX_H
#define MAILBOX_MAILBOX_H

#include "base/settings.h"
#include "op/op.h"
#include "transport/mail.h"

struct mailbox;

/* Allocates the mailbox of a group of at most the world's size, which serves one group after
 * another. `team` is the members of the present group. Errors: LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status mailbox_init(struct mailbox **mailbox, struct transport_team *team,
				  struct memory *memory, const struct settings *settings);
/* Call for a new group, after `team` was set to its members. waiter: how its threads wait. */
void mailbox_begin(struct mailbox *mailbox, const struct waiter *waiter);
/* NULL: does nothing. */
void mailbox_fini(struct mailbox *mailbox);

/* ---- one operation ---- */

/* As engine_submit, for a send, receive or probe. Nothing is sent or matched yet. */
void mailbox_submit(struct mailbox *mailbox, struct op *op, struct op_workspace *workspace);
/* As engine_advance. OP_BLOCKED of a detached operation: it belongs to mailbox_progress now,
 * and may already be complete and freed. */
enum op_progress mailbox_advance(struct mailbox *mailbox, struct op *op);
/* As engine_abandon. */
enum op_progress mailbox_abandon(struct mailbox *mailbox, struct op *op, const struct ranks *gone,
				 bool force);

/* ---- short messages ---- */

/* A send or receive of at most MAIL_EAGER_BYTES, to or from one peer. */
struct mailbox_short {
	int peer, tag;
	ls_dtype dtype;
	bool is_blocking; /* the call blocks */
	bool posts;       /* a receive that the caller posts if no message is there */
	uint64_t count, bytes;
	const void *send;
	void *recv;
};
struct mailbox_short_sent {
	uint64_t number; /* as mailbox_number */
	/* The receiver is busy and falls behind: the caller should pause for a moment. */
	bool receiver_lags;
};
/* A send that is complete at once. True: the message is in the peer's memory. False: nothing was
 * done, because the send needs the general path. record: its index in the trace. */
bool mailbox_send_short(struct mailbox *mailbox, const struct mailbox_short *call, uint64_t record,
			struct mailbox_short_sent *out);
/* Whether the ring of a peer on this host is full, and nothing else prevents a short send; *word
 * then says that its messages are being taken. */
bool mailbox_awaits_room(struct mailbox *mailbox, int peer, struct wait_word *word);
/* A short message that was received at once. */
struct mailbox_short_received {
	struct mail_message message;
	uint64_t number; /* as mailbox_number; only with `numbers`, or if the call posts */
	bool crossed;    /* as op->p2p.crossed */
};
/* False: there is no such message; *word is the word to wait for before the next try. word NULL:
 * the caller does not wait. */
bool mailbox_receive_short(struct mailbox *mailbox, const struct mailbox_short *call, bool numbers,
			   struct mailbox_short_received *out, struct wait_word *word);
/* As mailbox_submit and mailbox_advance together, for a detached receive of at most
 * MAIL_EAGER_BYTES from one peer of this host, for which mailbox_receive_short has just found no
 * message. True: it is posted. False: it has matched a message that has come since; it may be
 * complete, and its memory gone. */
bool mailbox_post_short(struct mailbox *mailbox, struct op *op);
/* For a receive whose handle the caller has: takes in what has arrived from its source. True: it is
 * still posted, and *word is the word to wait for before the next try. False: it is matched, and
 * may be complete; or it was not posted, or may match messages of any source. */
bool mailbox_poll_receive(struct mailbox *mailbox, const struct op *op, struct wait_word *word);
/* After a receive with `crossed`: the ranks that would have waited for each other with longer
 * messages. */
struct ranks mailbox_crossed_ranks(struct mailbox *mailbox);
/* Adds 1 to a word that threads change only by this function, and returns the new value. Under the
 * mailbox's biased lock, which costs less than a locked instruction. */
uint64_t mailbox_increment(struct mailbox *mailbox, _Atomic uint64_t *word);
/* Call when a thread has waited for the handle of a short send. The count of these calls is exact
 * if only one thread sends, and is used only then. */
void mailbox_note_waited(struct mailbox *mailbox);
/* The number of a new send to `peer`, or of a new receive from `peer` or MATCH_ANY: 1, 2, … */
uint64_t mailbox_number(struct mailbox *mailbox, enum trace_kind kind, int peer);
/* An operation that the calling thread itself waits for. */
struct mailbox_awaited {
	const struct op *op;
	const struct op *before; /* an operation that has to be complete first; NULL: none */
	/* 0: one operation. Otherwise `op` stands for all operations whose p2p.batch it is: all of
	 * them are needed, and their words carry this alternative. */
	uint32_t alternative;
};
/* Matches arrived messages, sends queued ones if there are free slots, and advances all detached
 * operations. True if there is more to do at once. Otherwise any of words[*count] ends the wait;
 * words beyond max are counted and left out. Words of operations that are not among the `own_count`
 * (at most WAIT_ALTERNATIVE_MAX) carry WAIT_RECORD_OTHERS. For one thread at a time. */
bool mailbox_progress(struct mailbox *mailbox, const struct mailbox_awaited *own, int own_count,
		      struct wait_word *words, int max, int *count);
/* Fills in the same words without making progress; with own_count only the words of these
 * operations. Any thread. Returns the number of words. */
int mailbox_list_words(struct mailbox *mailbox, const struct mailbox_awaited *own, int own_count,
		       struct wait_word *words, int max);
/* Whether one of these words has arrived, or a detached operation has something to copy. */
bool mailbox_is_ready(struct mailbox *mailbox);
/* What an operation still needs of peers that are gone. */
enum mailbox_need {
	MAILBOX_NEEDS_NOBODY, /* it needs none of them */
	/* from any source: all other members are gone, but this rank may send the message itself */
	MAILBOX_NEEDS_SELF,
	MAILBOX_NEEDS_GONE, /* it needs *peer, and so can never complete */
};
/* Whether a send, receive or probe can complete without the peers in `gone`, which were dead or had
 * left before this call. What they did before counts. Any thread. */
enum mailbox_need mailbox_needs(struct mailbox *mailbox, const struct op *op,
				const struct ranks *gone, int *peer);
/* The word that a message of this rank to itself would change. Callers find it among other
 * words. */
const _Atomic uint64_t *mailbox_self_word(struct mailbox *mailbox);
/* Detached operations that are complete, with op->status; p2p.next is the next one. Several only if
 * all of them end quietly, with LS_OK: otherwise the end of one may need that another thread ends
 * the others. Returns each operation once. NULL: none. */
struct op *mailbox_take_complete(struct mailbox *mailbox);
/* How many detached operations are not complete. */
uint32_t mailbox_pending(const struct mailbox *mailbox);
/* After the group has failed: removes any one detached operation that is not complete from its
 * list, for mailbox_abandon; NULL: none. device_busy: also one of mailbox_await_device. */
struct op *mailbox_remove(struct mailbox *mailbox, bool device_busy);
/* For a failed operation on a stream, after mailbox_abandon has done all but wait for its device.
 * The operation becomes complete, with its status, when the device has completed its work. */
void mailbox_await_device(struct mailbox *mailbox, struct op *op);
/* For any other failed operation, whose buffer a peer or the link still uses (mailbox_abandon:
 * OP_BLOCKED). It stays in the list of mailbox_take_lingering. */
void mailbox_linger(struct mailbox *mailbox, struct op *op);
/* Removes all operations of mailbox_linger, which are to be abandoned again; p2p.next is the next
 * one. NULL: none. */
struct op *mailbox_take_lingering(struct mailbox *mailbox);
bool mailbox_is_lingering(struct mailbox *mailbox);
/* How many of mailbox_pending have failed and wait only for a device, or for a peer or the link to
 * stop using their buffer. */
uint32_t mailbox_busy(const struct mailbox *mailbox);
/* Whether a detached operation has something to copy, or is complete and mailbox_take_complete
 * has not returned it yet. */
bool mailbox_has_work(struct mailbox *mailbox);
/* Whether a send waits for a slot. */
static inline bool mailbox_is_queued(const struct op *op)
{
	return atomic_load_explicit(&op->p2p.state, memory_order_acquire) == OP_P2P_QUEUED;
}
/* Whether a send has had a slot. */
static inline bool mailbox_is_posted(const struct op *op)
{
	enum op_p2p_state state = atomic_load_explicit(&op->p2p.state, memory_order_acquire);
	return state == OP_P2P_SENT || state == OP_P2P_COMPLETE;
}
/* Before this rank leaves the group: frees the blocks that their receivers have returned. Those
 * that they still have stay allocated until the world is closed. */
void mailbox_free_returned(struct mailbox *mailbox);
/* Once all members have left the group, and no link uses its buffers: frees the blocks that were
 * never to become a receiver's: copies of sends that were cancelled, and blocks that were sent to
 * another host, where their receivers have copies. */
void mailbox_free_left(struct mailbox *mailbox);
/* Cancels an operation. True: it was unmatched, and is now complete with LS_CANCELLED, or will be
 * once the thread that advances it has seen that. Sends that were queued behind it begin if there
 * is room for them. */
bool mailbox_cancel(struct mailbox *mailbox, struct op *op);
/* If mailbox_cancel was false, asks a receiver on another host. True: wait for one of two words,
 * call mailbox_cancel again. The operation may end with LS_CANCELLED later, too. */
bool mailbox_ask_cancel(struct mailbox *mailbox, struct op *op, struct wait_word words[2]);
/* OP_DONE: *out is the oldest message that a receive of this source and tag would match.
 * OP_BLOCKED: there is none; wait for any of *count words. *count is 0 if the system has no memory
 * for an inbox, which a message has said. */
enum op_progress mailbox_probe(struct mailbox *mailbox, int source, int tag,
			       struct mail_message *out, struct wait_word *words, int *count);
/* Returns a block that was received without a copy to its sender. False: it is no such block. */
bool mailbox_give_back(struct mailbox *mailbox, void *block);
/* How long the message in such a block is, as its sender says. 0: it is no such block. */
size_t mailbox_held_bytes(struct mailbox *mailbox, const void *block);

/* Call when this rank has no send or receive under way, and begins none any more. Counts messages
 * that nobody will receive: from `source`, or sent to `dest` after it had closed the group. *first:
 * the oldest. Each counts once, on one of the two ranks; long ones do not, as their sends fail. */
int mailbox_lost_from(struct mailbox *mailbox, int source, struct mail_envelope *first);
int mailbox_lost_to(struct mailbox *mailbox, int dest, struct mail_envelope *first);

#endif
