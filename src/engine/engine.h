/* SPDX-License-Identifier: BSD-3-Clause
 * How one operation runs: the host engine, which executes the plans of collectives over windows and
 * messages, and single sends and receives. It never blocks and never decides what a failure means.
 * engine_advance makes what progress it can, and returns what it waits for or what it has found;
 * the caller waits, and judges.
 *
 * One thread at a time advances an operation: a thread that waits for it, or the progress thread.
 * The collectives of a group run one after the other (the caller ensures it). Sends and receives
 * run concurrently with them and with each other. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#include "base/ranks.h"
#include "base/settings.h"
#include "base/wait.h"
#include "device/device.h"
#include "memory/buffer.h"
#include "memory/memory.h"
#include "engine/match.h"
#include "engine/stores.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "trace/trace.h"
#include "transport/mail.h"
#include "transport/transport.h"

enum {
	ENGINE_PLAN_BITS = 6,
	ENGINE_PLANS = 1 << ENGINE_PLAN_BITS, /* plans kept */
	ENGINE_CHUNK_BYTES = 64 * 1024, /* payloads of messages are copied in chunks of this size */
	ENGINE_BOUNCE_BYTES = 512 * 1024,
	/* Payloads up to this stay in a cache: two targets at once took a quarter less time up to 8
	 * MiB on an AMD EPYC with 32 MiB of it, and up to a quarter more at 16 MiB (`lockstep bench
	 * -n 2 --fresh`). */
	ENGINE_CACHED_BYTES = 8 << 20,
	/* Plain buffers with a count for each rank are not cut into fragments: from this length on
	 * they are rather read where they are. */
	ENGINE_REMOTE_BYTES = 2 << 20,
	/* Plain buffers are copied in fragments of this size, so that the copy of one is read from
	 * the cache while the next is made, and a rank needs room for ENGINE_SLOTS of them and not
	 * for all. */
	ENGINE_FRAGMENT_BYTES = 512 * 1024,
	ENGINE_SLOTS = 2,
	/* Plain payloads of messages are copied into the arena up to this, and read where they are
	 * above: two copies take less time than the system needs to find the pages, up to a size
	 * that is too much to have twice. A blocking call has one message under way, others may
	 * have many. With REMOTE=always there is a lower bound. */
	ENGINE_POINT_READ_BYTES = 4 * 1024 * 1024,
	ENGINE_POINT_READ_BLOCKING = 64 * 1024 * 1024 + 1,
	/* Of the arena, for a message that could be read as well. */
	ENGINE_POINT_ARENA_SHARE = 64,
	ENGINE_POINT_READ_LEAST = 16 * 1024,
	ENGINE_POINT_READ_PIECE = 1024 * 1024,
	/* From here on a message that both ranks copy at once is stored past the cache: 5.3 beside
	 * 8.4 us for 64 KiB between two processors of an EPYC that have a cache in common, and 6
	 * beside 13 where they have none. */
	ENGINE_POINT_STREAM_BYTES = 16 * 1024,
	/* So many bytes of a message are copied before somebody looks what else there is to do; one
	 * piece at least. */
	ENGINE_POINT_SLICE_BYTES = 1024 * 1024,
};

enum engine_progress {
	ENGINE_DONE,
	ENGINE_BLOCKED, /* op->words say on what */
	ENGINE_FAILED,  /* op->status and op->culprit say why */
};

struct engine_plan {
	bool valid;
	bool needs_staging; /* it needs more than the caller's buffers where they are */
	bool reads_windows; /* it looks into windows, which may be in fragments */
	/* Once all have entered, and one of them shows its OUTPUT by address, PLAN_PULL takes over.
	 * Both begin by awaiting all. */
	bool may_switch_to_pull;
	/* In rounds: its last step awaits peers only so that they are done with my buffers. */
	bool last_await_guards;
	uint64_t signature; /* what the plan adds to that of an operation */
	struct plan_request request;
	struct plan plan;
};

/* ---- short collectives: see slot.h ---- */

/* Whose entries this rank needs: that of a member, or of these. */
enum engine_slot_source { ENGINE_SLOT_EVERYBODY = -1, ENGINE_SLOT_NOBODY = -2 };
enum engine_slot_result {
	ENGINE_SLOT_NOTHING,
	ENGINE_SLOT_REDUCE,
	ENGINE_SLOT_REDUCE_FEW, /* by device_few */
	ENGINE_SLOT_COPY,       /* a part of each source, one behind the other */
	ENGINE_SLOT_COPY_MINE,
};

/* What a collective comes to whose payloads travel in the entries. */
struct engine_slot {
	bool usable;
	uint16_t window;                  /* enum transport_window: where my payload lies */
	uint16_t algorithm, step_count;   /* of the plan, for the record */
	uint64_t signature, count;        /* as the entry shows them */
	uint32_t input_bytes, peer_bytes; /* of my payload, and of a peer's */
	int source;                       /* a member, or enum engine_slot_source */
	enum engine_slot_result result;
	uint32_t part, from; /* the bytes that I need of a payload, and where they begin */
	uint32_t stride;     /* from the part of one source to that of the next in my output */
	struct device_few few;
	struct device_reduce reduce; /* but for its sources and targets */
};

/* What the last call of a kind came to. A program repeats its calls, and to work this out again
 * takes as long as the rest of a short one. */
struct engine_memo {
	/* What it follows from; never with lists. */
	ls_dtype dtype;
	ls_reduce_op reduce;
	int peer;
	uint64_t count;
	uintptr_t apart; /* of the two buffers */
	bool has_send, has_recv;
	/* What follows; plan NULL: nothing is kept. */
	const struct engine_plan *plan;
	struct plan_table_choice choice;
	size_t element;
	uint64_t signature;
	struct engine_slot slot;
};

struct engine_mailbox;
struct engine_ops;

struct engine {
	struct transport_team *team;
	struct engine_mailbox *mailbox; /* sends and receives */
	struct trace *trace;
	struct memory *memory;
	const struct engine_ops *ops; /* NULL: the processor runs collectives */
	void *ops_state;
	const _Atomic uint64_t *cause; /* wait_has_failed */
	/* the group's: handles of short sends that somebody waited for */
	_Atomic uint64_t waited_sends;
	enum plan_algorithm wanted;
	struct plan_table table; /* narrowed to this size */
	int rank, size;          /* of which table, plans and memos are */
	uint64_t peers;          /* bit q: world rank q is a member; MEMORY_ALL_PEERS: all are */
	bool blocking;           /* a collective is over when all ranks have completed it */
	uint64_t history; /* of the collectives entered so far, as in struct transport_entry */
	uint64_t entered_by_all; /* every rank has entered this collective: a lower bound, grows */
	/* The pages of my area that the last payload began with and that the next one will, if it
	 * fits there, and the last collective that had each page; 0: none. */
	unsigned payload_last, payload_next;
	uint64_t payload_seqs[TRANSPORT_INLINE_PAGES];
	enum setting_remote remote; /* whether plain buffers are shown by address */
	uint64_t fragment_bytes;    /* ENGINE_FRAGMENT_BYTES; the same on all ranks */
	struct engine_stores stores;
	_Atomic uint64_t device_done; /* copies of collectives that devices have done */
	unsigned char *bounce;        /* [ENGINE_BOUNCE_BYTES] for bytes of peers' plain memory */
	size_t steps_max;
	struct plan_step *steps; /* [ENGINE_PLANS][steps_max] */
	struct engine_plan plans[ENGINE_PLANS];
	struct engine_memo memos[TRACE_KIND_COUNT];
};

/* What is asked for. */
struct engine_call {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce; /* 0 where nothing is reduced */
	int peer;            /* root, destination or source; -1 where there is none */
	int tag;
	/* Of this rank; no address and no bytes where it has nothing to give, or nothing to get. */
	struct buffer send, recv;
	/* All ranks have the same count: elements of the call, or of one rank's part. In the calls
	 * with a count for each rank: their sum (all-to-all: what I send), and the lists, which
	 * must stay as long as the operation: counts[r] is rank r's part; all-to-all: what I send
	 * to rank r, and recv_counts what I receive from it. */
	uint64_t count;
	const uint64_t *counts, *recv_counts;
	uint64_t shape; /* engine_shape of counts, 0 where there are none */
	double factor;  /* of LS_PREMUL_SUM */
};

enum engine_p2p_stage {
	P2P_NEW,
	P2P_QUEUED,  /* send: there is no room yet */
	P2P_SENT,    /* send: the receiver has to take it */
	P2P_POSTED,  /* receive: it is unmatched yet */
	P2P_MATCHED, /* receive: pieces are to be copied */
	P2P_GIVEN,   /* receive: the source is still copying pieces */
	P2P_OVER,    /* op->status tells how */
};

/* What only a send or a receive has. */
struct engine_p2p {
	/* enum engine_p2p_stage; changed under the mailbox' lock while others see it */
	_Atomic uint32_t stage;
	/* Set by the group. */
	bool detached; /* engine_p2p_progress advances it, and engine_p2p_over hands it out */
	bool gives;    /* send: the buffer is a block, which then belongs to the receiver */
	bool takes;    /* receive: into a block; call.recv is filled */
	bool blocks;   /* the call blocks */
	bool stays; /* send: with me until it is matched, however short; so it can be taken back */
	bool eager; /* send: goes into cells, if some are free when there is room for it */
	bool late;  /* send: posted before its payload is staged, by a call that then does that */
	/* What it is a part of, such as a batch; NULL: of nothing. Only compared. */
	const struct engine_op *whole;

	/* a long send has been taken back; under that lock, and looked at without */
	_Atomic bool back;

	bool plain;     /* send: op->input_offset is an address */
	bool announced; /* send: it has an RTS slot that the receiver knows */
	/* Receive: ranks that would have waited for each other, had the messages been longer; 0:
	 * none. */
	uint64_t unsafe;
	uint32_t index, generation;         /* of the RTS slot; the index is 0 .. MAIL_RTS - 1 */
	uint64_t piece_bytes, pieces, mine; /* how it is copied, and how many pieces I have */
	/* How long this rank has copied, in ticks of base/clock.h: a send into its block, a receive
	 * out of it. */
	uint64_t ticks;
	struct engine_stores_use stores; /* send: of its block */
	struct mail_rts *rts;            /* NULL: none */
	struct mail_message message;     /* receive: what it has matched */
	struct match_entry entry;        /* receive that is unmatched */
	/* in the queue for room, among the active, or among those that are over */
	struct engine_op *next;
};

/* What an operation on memory of a device has beside: see device.c. */
enum engine_device_stage {
	ENGINE_DEVICE_NONE, /* all is host memory */
	ENGINE_DEVICE_FETCHING,
	ENGINE_DEVICE_RUNNING,
	ENGINE_DEVICE_DELIVERING,
};
struct engine_device {
	enum engine_device_stage stage;
	struct buffer send, recv; /* the caller's, while the call has those in host memory */
	void *send_block, *recv_block;
	struct engine_room *room;
	struct driver *driver; /* the last that was given something to do */
	/* The device's: so many of what was issued. Of a collective engine->device_done, as the
	 * progress thread may look at it when the operation, on a caller's stack, is over. */
	_Atomic uint64_t *done, own_done;
	uint64_t issued, stored; /* copies, and those that a store has been put behind */
};

/* One operation. The group fills call, seq and record; the engine owns the rest from engine_submit,
 * which sets it, until ENGINE_DONE or the end of engine_abandon. */
struct engine_op {
	struct engine_call call;
	uint64_t seq;    /* number in its lane, from 1 */
	uint64_t record; /* in the trace */

	/* Set by engine_submit. */
	/* ENGINE_FAILED: LS_MISMATCH, LS_ABORTED, LS_INTERNAL, LS_OUT_OF_MEMORY, and what reading a
	 * peer's plain memory can end with */
	ls_status status;
	int culprit; /* the peer it was seen on, -1: none */
	int stage;   /* enum in the engine: which part of the operation comes next */
	uint32_t step;
	/* A collective in fragments runs its plan, from step `loop` on, once for each: fragment
	 * `round` of `rounds` is elements [first, first + elements) of each part, or of the whole;
	 * `fragment` is how many all but the last have. Otherwise there is one round with all of
	 * it. */
	uint32_t round, rounds, loop;
	uint64_t fragment, first, elements;
	const struct engine_plan *plan;
	struct plan_table_choice choice; /* the cause is looked at between its chunks */
	uint64_t checked;            /* bit q: peer q's entry header has been compared with mine */
	uint64_t signature, history; /* of a collective, and of those before it */
	size_t element;              /* bytes of one */
	/* With a count for each rank: starts[r] is the first element of part r, starts[size] the
	 * end; of INPUT and of OUTPUT. In the room, or NULL. */
	const uint64_t *starts, *recv_starts;
	/* Where the plan's buffers lie here, and how peers reach them: the offset in my arena, or
	 * the address. A block is mine to free: a buffer that had to be where peers reach it, or
	 * that the caller does not have; NULL otherwise. */
	const unsigned char *input;
	unsigned char *output, *scratch;
	uint64_t input_offset, output_offset;
	enum transport_window input_window, output_window;
	void *input_block, *output_block, *scratch_block;
	uint64_t peer_sends, peer_expected; /* of engine_hint */
	uint64_t sent; /* bit q: a long message to peer q may not have been taken yet */
	int word_count;
	bool any;                /* one of the words is enough */
	struct wait_word *words; /* ENGINE_BLOCKED: what it waits for; in the room */
	uint64_t *tickets;       /* the last long message to each peer; in the room */
	struct engine_p2p p2p;
	struct engine_device device;
};

/* Room that an operation needs beside itself. Not part of it, because clearing it would cost more
 * than a short collective. */
struct engine_room {
	struct wait_word words[RANKS_HOST_MAX];
	uint64_t tickets[RANKS_HOST_MAX];
	uint64_t starts[RANKS_HOST_MAX + 1], recv_starts[RANKS_HOST_MAX + 1];
};

/* Makes room for one group after another, whose members `team` is set to. Errors: LS_OUT_OF_MEMORY,
 * with a message. */
LS_CHECKED ls_status engine_init(struct engine *engine, struct transport_team *team,
				 struct trace *trace, struct memory *memory,
				 const struct settings *settings);
/* `team` has been set to the members of a group, in which nothing has been done yet. table: the
 * same on all ranks; it is copied. */
void engine_begin(struct engine *engine, const _Atomic uint64_t *cause,
		  const struct plan_table *table);
void engine_fini(struct engine *engine);

/* Chooses the plan, copies plain buffers into reach of peers. Does not block, nor touch a peer.
 * `room` (uninitialised) must last as long as the operation. */
void engine_submit(struct engine *engine, struct engine_op *op, struct engine_room *room);

/* Goes on as far as it can without blocking. */
enum engine_progress engine_advance(struct engine *engine, struct engine_op *op);

/* The operation has failed here or elsewhere (*cause is set, or the caller will set it): after
 * this call this rank touches no peer's memory for it. Returns ENGINE_BLOCKED as long as a peer may
 * still touch this rank's buffers (op->words: until it says that it does not); call again after
 * waiting. With `force`, or when no peer is left, buffers are taken away from peers where needed,
 * and it returns ENGINE_DONE: the caller's buffers are the caller's alone. ENGINE_FAILED: it could
 * not do so, as its message says, and a peer that is stopped may touch them when it goes on. gone:
 * bit q set if peer q is dead, or has left. */
enum engine_progress engine_abandon(struct engine *engine, struct engine_op *op, uint64_t gone,
				    bool force);

/* ---- the end: see end.c ---- */

/* What two members have not done alike. */
struct engine_difference {
	/* LS_MISMATCH; LS_PEER_LEFT: member `one` has closed the group after fewer than `other` */
	ls_status status;
	int one, other; /* members */
	uint64_t seq;   /* the collective that differs, or that is missing */
};
/* This rank closes the group, after `seq` collectives which are all over: says so to all
 * members. */
void engine_end_tell(struct engine *engine, uint64_t seq);
/* And then looks for a member whose collectives differ, as far as they have come; true if there is
 * one. gone: bit q set if peer q is dead, or has left; such a one counts only if it has told how it
 * ended. This rank must not have left yet. */
bool engine_end_compare(const struct engine *engine, uint64_t seq, uint64_t gone,
			struct engine_difference *out);

/* ---- sends and receives: see mailbox.h ---- */

/* A send or receive of at most MAIL_EAGER_BYTES, to or from one peer. */
struct engine_short {
	int peer, tag;
	ls_dtype dtype;
	bool blocks; /* the call that makes it */
	uint64_t count, bytes;
	const void *send;
	void *recv;
};
struct engine_sent {
	uint64_t number; /* as engine_p2p_number */
	/* The receiver is at work and behind: the caller does well to hold back for a moment. */
	bool crowded;
};
/* A send that is over at once: true, it lies with the peer. record: its index in the trace. False:
 * nothing has been done, as there is something in the way. */
bool engine_p2p_send_short(struct engine *engine, const struct engine_short *call, uint64_t record,
			   struct engine_sent *out);
/* A receive whose message is there, and is short. */
struct engine_received {
	struct mail_message message;
	uint64_t number; /* as engine_p2p_number; filled if it is asked for */
	uint64_t unsafe; /* as op->p2p.unsafe */
};
/* False: *word is the word to wait for before the next try. NULL: the caller does not wait. */
bool engine_p2p_receive_short(struct engine *engine, const struct engine_short *call, bool numbers,
			      struct engine_received *out, struct wait_word *word);
/* Adds 1 to a word of the group's that all threads change by this alone; returns its value. */
uint64_t engine_p2p_add(struct engine *engine, _Atomic uint64_t *word);
/* The number of a new send to, or receive from, this peer or MATCH_ANY: 1, 2, … */
uint64_t engine_p2p_number(struct engine *engine, enum trace_kind kind, int peer);
/* What the caller waits for himself. */
struct engine_own {
	const struct engine_op *op;
	const struct engine_op *before; /* another that has to be over first; NULL */
	/* 0: one operation. Else `op` stands for all those whose p2p.whole it is: all of them are
	 * needed, and their words carry this choice. */
	uint32_t choice;
};
/* Takes in what has arrived, sends what there is room for, and goes on with all detached
 * operations. True if there is more to do at once; else words[*count] are filled with what to wait
 * for, any of them; those beyond max are counted and left out. Words of others than the `own_count`
 * (at most WAIT_CHOICE_MAX) that the caller waits for carry WAIT_RECORD_OTHERS. For one thread at a
 * time. */
bool engine_p2p_progress(struct engine *engine, const struct engine_own *own, int own_count,
			 struct wait_word *words, int max, int *count);
/* The same words, without doing anything, for any thread; with own_count only the words of those.
 * Returns their number. */
int engine_p2p_words(struct engine *engine, const struct engine_own *own, int own_count,
		     struct wait_word *words, int max);
/* Whether one of them is there, or some of a detached operation is to be copied now. */
bool engine_p2p_is_ready(struct engine *engine);
/* Whether a send, receive or probe can be over without the peers in the set `gone`, which were gone
 * before this was asked. Any thread; what they have done before they went counts, whether it has
 * been taken in or not. */
enum engine_need {
	ENGINE_NEEDS_NOBODY, /* of them */
	/* of any source: all other members are gone, and this rank may send it itself */
	ENGINE_NEEDS_SELF,
	ENGINE_NEEDS_GONE, /* *peer; it never ends */
};
enum engine_need engine_p2p_need(struct engine *engine, const struct engine_op *op, uint64_t gone,
				 int *peer);
/* Where a message of this rank to itself would be seen; to find that among words. */
const _Atomic uint64_t *engine_p2p_self_word(struct engine *engine);
/* One that is over, with op->status; each is handed out once. NULL: there is none. */
struct engine_op *engine_p2p_over(struct engine *engine);
/* Detached operations that are not over. */
uint32_t engine_p2p_pending(const struct engine *engine);
/* After the group has failed: takes any detached one that is not over out of its list, for
 * engine_abandon; NULL: there is none. */
struct engine_op *engine_p2p_leave(struct engine *engine);
/* Whether some of a detached operation is to be copied now; or one is over, whichever thread ended
 * it, and has not been handed out. */
bool engine_p2p_has_work(struct engine *engine);
/* Whether a send waits for room. */
static inline bool engine_p2p_is_queued(const struct engine_op *op)
{
	return atomic_load_explicit(&op->p2p.stage, memory_order_acquire) == P2P_QUEUED;
}
/* Takes it back: true if it is over then, with LS_CANCELLED. */
bool engine_p2p_cancel(struct engine *engine, struct engine_op *op);
/* The oldest message that a receive would take: ENGINE_DONE; else ENGINE_BLOCKED, and *count
 * words. */
enum engine_progress engine_p2p_probe(struct engine *engine, int source, int tag,
				      struct mail_message *out, struct wait_word *words, int *count);
/* Gives a block back that was received by reference; false if this is none. */
bool engine_p2p_give_back(struct engine *engine, void *block);

/* No send or receive is under way, and this rank begins none any more: messages of that source
 * which it has not received, or that it has sent to one who had closed the group by then. How many,
 * and the oldest; each is told of once, by either rank. Long ones are not among them, as their
 * sends have failed. */
int engine_p2p_lost_from(struct engine *engine, int source, struct mail_envelope *first);
int engine_p2p_lost_to(struct engine *engine, int dest, struct mail_envelope *first);

/* A hash of the counts of `size` ranks, for the trace record and for engine_op.shape. */
uint64_t engine_shape(const uint64_t *counts, int size);

/* After LS_MISMATCH: how many elements op->culprit sends to this rank, and how many this rank
 * expects of it, if that is what differs; the same number twice otherwise. */
static inline void engine_hint(const struct engine_op *op, uint64_t *sent, uint64_t *expected)
{
	*sent = op->peer_sends;
	*expected = op->peer_expected;
}

/* What the signature of an entry says. */
struct engine_signature {
	enum trace_kind kind;
	uint8_t dtype, reduce;
	uint16_t algorithm;
	int32_t root; /* group rank; -1: the collective has none */
};
/* Reads one that any process may have written, in a group of `size`. False: it is none of a
 * collective whose entry may come before its record. Only the kind and the root are in range. */
bool engine_signature_read(uint64_t signature, int size, struct engine_signature *out);

/* Whether the operation is a collective. */
static inline bool engine_is_collective(enum trace_kind kind)
{
	return kind != TRACE_SEND && kind != TRACE_RECV && kind != TRACE_PROBE;
}

#endif
