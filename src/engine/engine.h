/* SPDX-License-Identifier: BSD-3-Clause
 * How one operation runs: plans of collectives over windows and messages, and single sends and
 * receives. It never blocks and never decides what a failure means. engine_advance makes the
 * progress that is possible at once. Then it returns the words that the operation waits for, or the
 * error that it has found. The caller waits, and handles the error.
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
#include "kernel/kernel.h"
#include "memory/buffer.h"
#include "memory/memory.h"
#include "engine/match.h"
#include "engine/on_device.h"
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
	/* Payloads up to this size stay in the cache. On an AMD EPYC with 32 MiB of cache, storing
	 * to two targets at once took a quarter less time up to 8 MiB, and up to a quarter more at
	 * 16 MiB (`lockstep bench -n 2 --fresh`). */
	ENGINE_CACHED_BYTES = 8 << 20,
	/* Plain buffers of calls with a count for each rank are not cut into fragments. From this
	 * length on peers read them by address, and no rank copies them. */
	ENGINE_CMA_BYTES = 2 << 20,
	/* Plain buffers are copied in fragments of this size. So peers read the copy of a fragment
	 * from the cache, and a rank needs memory for ENGINE_FRAGMENT_SLOTS fragments only. */
	ENGINE_FRAGMENT_BYTES = 512 * 1024,
	ENGINE_FRAGMENT_SLOTS = 2,
	/* From MIN to MAX bytes a plain payload is read by address or copied into the arena, as
	 * was faster lately (decision 039). From LONG on it is read: a copy takes room. */
	ENGINE_P2P_READ_MIN = 64 * 1024,
	ENGINE_P2P_READ_BLOCKING_MIN = 16 * 1024,
	ENGINE_P2P_READ_MAX = 1024 * 1024,
	ENGINE_P2P_READ_LONG = 4 * 1024 * 1024,
	ENGINE_P2P_READ_BLOCKING_LONG = 64 * 1024 * 1024 + 1, /* 64 MiB are still copied */
	/* Such a copy takes at most 1/64 of the arena. */
	ENGINE_P2P_ARENA_SHARE = 64,
	ENGINE_P2P_READ_PIECE_BYTES = 1024 * 1024,
	/* From here on a message that both ranks copy at once is stored past the cache: 5.3 us in
	 * place of 8.4 us for 64 KiB between two processors of an EPYC that have a cache in common,
	 * and 6 us in place of 13 us where they have none. */
	ENGINE_P2P_STREAM_BYTES = 16 * 1024,
	/* After so many bytes, but at least one piece, the copying thread checks for other work. */
	ENGINE_P2P_SLICE_BYTES = 1024 * 1024,
};

/* What a function that advances an operation without blocking has reached. */
enum engine_progress {
	/* The operation, or the part of it that the function is for, is complete. */
	ENGINE_DONE,
	/* It cannot continue before op->words are stored (one of them suffices if op->any). Wait
	 * for them, then call again. */
	ENGINE_BLOCKED,
	/* It can continue at once: it has returned so that the thread checks for other work. Call
	 * again, without a wait. Only engine_p2p_copy_pieces returns it. */
	ENGINE_MORE,
	/* op->status and op->culprit say why. Call engine_abandon. */
	ENGINE_FAILED,
};

struct engine_plan {
	bool valid;
	bool needs_staging; /* the caller's buffers alone, where they are, do not suffice */
	bool reads_windows; /* it reads windows of peers, which may be in fragments */
	/* If one of the ranks shows its OUTPUT by address, PLAN_PULL replaces this plan once all
	 * ranks have entered. Both plans begin by awaiting all ranks. */
	bool may_switch_to_pull;
	/* In rounds: its last step awaits peers only because they may still use my buffers. */
	bool last_await_guards;
	uint64_t signature; /* what the plan contributes to the signature of an operation */
	struct plan_params params;
	struct plan plan;
};

/* ---- short collectives: see inline.h ---- */

/* Which entries this rank needs: that of one member, of all members, or none. */
enum engine_inline_source { ENGINE_INLINE_EVERYBODY = -1, ENGINE_INLINE_NOBODY = -2 };
enum engine_inline_result {
	ENGINE_INLINE_NOTHING,
	ENGINE_INLINE_REDUCE,
	ENGINE_INLINE_REDUCE_FEW, /* by kernel_few */
	ENGINE_INLINE_COPY,       /* a part of each source, one after the other */
	ENGINE_INLINE_COPY_MINE,
};

/* All that the next call of a short collective needs to know, so that it builds no operation. */
struct engine_inline_plan {
	bool usable, others_ahead;        /* ahead of a root: see engine_inline_prefetch_next */
	uint16_t window;                  /* enum transport_window: where my payload is */
	uint16_t algorithm, step_count;   /* of the plan, for the trace record */
	uint64_t signature, count;        /* as the entry shows them */
	uint32_t input_bytes, peer_bytes; /* of my payload, and of a peer's */
	int source;                       /* a member, or enum engine_inline_source */
	enum engine_inline_result result;
	uint32_t part, from; /* how many bytes of a payload I need, and the offset of the first */
	uint32_t stride;     /* in my output: from the part of one source to that of the next */
	struct kernel_few few;
	struct kernel_reduce reduce; /* without its sources and targets */
};

/* What the engine worked out for the last call of a kind. Programs repeat their calls, and working
 * it out again would take as long as the rest of a short collective. */
struct engine_memo {
	/* The arguments of that call, which had no lists of counts. */
	ls_dtype dtype;
	ls_reduce_op reduce;
	int peer;
	uint64_t count;
	uintptr_t distance; /* from send to recv */
	bool has_send, has_recv;
	/* The results; plan NULL: there are none. */
	const struct engine_plan *plan;
	struct plan_table_choice choice;
	size_t element;
	uint64_t signature;
	struct engine_inline_plan inline_plan;
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
	const _Atomic uint64_t *cause; /* the group's cause word, see wait_has_failed */
	_Atomic uint64_t waited_sends; /* of the group: handles of short sends waited for so far */
	enum plan_algorithm wanted;
	struct plan_table table; /* the lines that fit this size */
	int rank, size;          /* for which table, plans and memos were made */
	struct ranks peers;      /* the members, by world rank */
	bool completes_together; /* a collective is complete only when it is so on all ranks */
	/* the hash of the collectives entered so far, as in struct transport_entry */
	uint64_t history;
	uint64_t entered_by_all; /* every rank has entered it; a lower bound, which grows */
	/* Payload pages of my area: the first page of the last payload; that of the next one, if it
	 * fits there; and for each page the last collective that used it, 0: none. */
	unsigned payload_last, payload_next;
	uint64_t payload_seqs[TRANSPORT_INLINE_PAGES];
	enum setting_remote remote; /* whether plain buffers are shown by address */
	uint64_t fragment_bytes;    /* ENGINE_FRAGMENT_BYTES; the same on all ranks */
	struct engine_stores stores;
	_Atomic uint64_t device_done; /* how many copies of collectives devices have completed */
	unsigned char *bounce;        /* [ENGINE_BOUNCE_BYTES] for bytes of peers' plain memory */
	size_t steps_max;
	struct plan_step *steps; /* [ENGINE_PLANS][steps_max] */
	struct engine_plan plans[ENGINE_PLANS];
	struct engine_memo memos[TRACE_KIND_COUNT];
	/* The hosts of the members, for which plans and memos were made, too. */
	struct plan_topology topology;
	uint16_t hosts[RANKS_WORLD_MAX];
};

/* The arguments of a call. */
struct engine_call {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce; /* 0 where nothing is reduced */
	int peer;            /* root, destination or source; -1 where there is none */
	int tag;
	/* This rank's buffers. If it sends or receives nothing, address and bytes are 0. */
	struct buffer send, recv;
	/* Elements of the call, or of one rank's part; the same on all ranks. In calls with a count
	 * for each rank: the sum of counts. counts[r] is the count of rank r's part; in an
	 * all-to-all it is what I send to rank r, and recv_counts[r] what I receive from it. The
	 * lists must stay valid as long as the operation. */
	uint64_t count;
	const uint64_t *counts, *recv_counts;
	uint64_t shape; /* engine_shape of counts, 0 where there are none */
	double factor;  /* of LS_PREMUL_SUM */
};

enum engine_p2p_stage {
	ENGINE_P2P_NEW,
	ENGINE_P2P_QUEUED,      /* send: it waits for a free slot */
	ENGINE_P2P_SENT,        /* send: it waits until the receiver has taken the message */
	ENGINE_P2P_POSTED,      /* receive: not matched yet */
	ENGINE_P2P_MATCHED,     /* receive: pieces remain to be copied */
	ENGINE_P2P_DRAINING,    /* receive: the sender is still copying pieces */
	ENGINE_P2P_DELIVERING,  /* receive on a stream: the stream copies it out */
	ENGINE_P2P_DEVICE_BUSY, /* it has failed, and its device still works on it */
	ENGINE_P2P_COMPLETE,    /* complete, with op->status */
};

/* The part of an operation that only sends and receives have. */
struct engine_p2p {
	/* enum engine_p2p_stage; changes under the mailbox' lock while other threads see it */
	_Atomic uint32_t stage;
	/* Set by the caller. */
	bool detached; /* engine_p2p_progress advances it; engine_p2p_take_complete returns it */
	bool hands_over_block; /* send: the buffer is a block, which then belongs to the receiver */
	bool receives_block;   /* receive: into a block, which the engine writes to call.recv */
	bool is_blocking;      /* the call blocks */
	bool cancellable;      /* send: it can be cancelled until it is matched, even a short one */
	bool uses_cells;       /* send: it takes cells if some are free when it gets a slot */
	bool posted_first;     /* send: it is posted first; then the call stages its payload */
	bool fetches;          /* send on a stream: the device still fetches its payload */
	/* The batch that it is a part of; NULL: none. It is compared, never followed. */
	const struct engine_op *batch;
	/* Of a long send; written under the mailbox' lock, read without it. */
	_Atomic bool cancelled, asks_cancel; /* asks: its receiver, on another host */
	/* Receive of a long message: what its RTS slot said when it was claimed. */
	uint64_t window, window_bytes;
	bool by_address, staged_all; /* send: input_offset is an address; copied whole */
	bool announced;              /* send: it has an RTS slot that the receiver knows */
	bool crossed, is_plain; /* receive: see engine_p2p_crossed_ranks; window is an address */
	uint32_t index, generation;   /* of the RTS slot; the index is 0 .. MAIL_RTS - 1 */
	uint64_t piece_bytes, pieces; /* size and number */
	uint64_t pieces_copied;       /* by this rank */
	/* How long this rank has copied, in ticks of base/clock.h: a send into its block, a receive
	 * out of it. */
	uint64_t ticks;
	struct engine_stores_use stores, transfer; /* send: of its block; of its payload */
	uint64_t matched_ticks;                    /* receive of a long message: when it matched */
	struct mail_rts *rts;                      /* NULL: none */
	struct mail_message message;               /* receive: the message that it has matched */
	struct match_entry entry;                  /* receive that is unmatched */
	/* in the queue for a slot, in the list of active operations, or in that of complete ones */
	struct engine_op *next;
};

/* One operation. The group fills call, seq and record; the engine owns the rest from engine_submit,
 * which sets it, until ENGINE_DONE or the end of engine_abandon. */
struct engine_op {
	struct engine_call call;
	uint64_t seq;    /* number in its lane, from 1 */
	uint64_t record; /* in the trace */
	/* Set by engine_submit. ENGINE_FAILED: LS_MISMATCH, LS_TRUNCATED, LS_PEER_LEFT,
	 * LS_PEER_DIED, LS_ABORTED, LS_BAD_ARGUMENT, LS_OUT_OF_MEMORY, LS_INTERNAL, or an error of
	 * transport_read or of a device. ENGINE_DONE: LS_OK or LS_CANCELLED. */
	ls_status status;
	int culprit; /* the peer on which the error was seen; -1: none */
	int stage;   /* enum engine_stage: which part of the operation comes next */
	uint32_t step;
	/* A collective in fragments runs its plan, from step `loop` on, once for each fragment.
	 * Fragment `round` of `rounds` is elements [first, first + elements) of each part, or of
	 * the whole; all but the last one have `fragment` elements. Without fragments there is one
	 * round with all elements. */
	uint32_t round, rounds, loop;
	uint64_t fragment, first, elements;
	const struct engine_plan *plan;
	struct plan_table_choice choice; /* its chunk: the cause is read between chunks */
	uint64_t signature, history;     /* of this collective; the hash of all before it */
	size_t element;                  /* bytes of one element */
	/* With a count for each rank: starts[r] is the first element of part r of INPUT,
	 * starts[size] the end; recv_starts: the same of OUTPUT. In the workspace, or NULL. */
	const uint64_t *starts, *recv_starts;
	/* Where the plan's buffers are in this process, and how peers reach them: the offset in my
	 * arena, or the address. The operation frees its blocks: copies that peers can reach, and
	 * buffers that the caller does not have; NULL: none. */
	const unsigned char *input;
	unsigned char *output, *scratch;
	uint64_t input_offset, output_offset;
	enum transport_window input_window, output_window;
	void *input_block, *output_block, *scratch_block;
	uint64_t peer_sends, peer_expected; /* see engine_count_difference */
	int word_count;
	bool any, undrained_any; /* one of the words suffices; `undrained` may have some */
	struct wait_word *words; /* ENGINE_BLOCKED: what it waits for; in the workspace */
	/* In the workspace. checked: peers (ranks_bit) whose entry has been compared with mine.
	 * undrained: those that may not have taken the last long message to them, `tickets`. */
	uint64_t *tickets, *checked, *undrained;
	/* A message from another host whose payload is being fetched to `target`; NULL: none. */
	struct transport_message *fetching;
	int fetching_from;
	void *target;
	struct engine_p2p p2p;
	struct engine_device device;
	struct engine_stream stream; /* filled before engine_submit, see stream.h */
};

/* Arrays that an operation needs. They are not part of it, because clearing them would take longer
 * than a short collective. */
struct engine_workspace {
	struct wait_word words[RANKS_WORLD_MAX];
	uint64_t tickets[RANKS_WORLD_MAX];
	uint64_t checked[RANKS_WORLD_WORDS], undrained[RANKS_WORLD_WORDS];
	uint64_t starts[RANKS_WORLD_MAX + 1], recv_starts[RANKS_WORLD_MAX + 1];
};

/* Allocates the memory of an engine, which serves one group after another; `team` is the members of
 * the present one. Errors: LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status engine_init(struct engine *engine, struct transport_team *team,
				 struct trace *trace, struct memory *memory,
				 const struct settings *settings);
/* Call for a new group, after `team` was set to its members. table: copied; the same everywhere. */
void engine_begin(struct engine *engine, const _Atomic uint64_t *cause,
		  const struct plan_table *table);
void engine_fini(struct engine *engine);

/* Chooses the plan, and copies plain buffers to where peers can reach them. Does not block, nor
 * access a peer's memory. `workspace` (uninitialised) must last as long as the operation. */
void engine_submit(struct engine *engine, struct engine_op *op, struct engine_workspace *workspace);

/* Makes the progress that is possible without blocking. ENGINE_BLOCKED of a detached send or
 * receive: it belongs to engine_p2p_progress now, and may already be complete and freed. */
enum engine_progress engine_advance(struct engine *engine, struct engine_op *op);

/* Call when the operation has failed here or elsewhere (*cause is set, or the caller will set it).
 * Then this rank touches no peer's memory for it any more. ENGINE_BLOCKED: a peer may still touch
 * this rank's buffers; wait for op->words and call again. With `force`, or when no peer is left, it
 * revokes the access of peers where needed; it cuts peers on other hosts, and then ENGINE_BLOCKED
 * means that another thread makes progress on the link and is about to do it. ENGINE_DONE: no peer
 * touches the caller's buffers any more. ENGINE_FAILED: access could not be revoked, a message says
 * why, and a stopped peer may touch the buffers when it continues. gone: the peers that are dead or
 * have left; NULL: none. */
enum engine_progress engine_abandon(struct engine *engine, struct engine_op *op,
				    const struct ranks *gone, bool force);

/* ---- the end: see end.c ---- */

/* Where the collectives of two members differ. */
struct engine_difference {
	/* LS_MISMATCH; LS_PEER_LEFT: member `one` has closed the group after fewer collectives than
	 * member `other` */
	ls_status status;
	int one, other;
	uint64_t seq; /* the collective that differs, or that is missing */
};
/* Publishes to all members that this rank closes the group after `seq` collectives, which are all
 * complete. */
void engine_end_publish(struct engine *engine, uint64_t seq);
/* Call it next: searches for a member whose collectives so far differ from mine; true if there is
 * one. gone: as above; such a peer counts only if it has published its end. This rank must not have
 * left yet. */
bool engine_end_compare(const struct engine *engine, uint64_t seq, const struct ranks *gone,
			struct engine_difference *out);

/* ---- sends and receives: see mailbox.h ---- */

/* A send or receive of at most MAIL_EAGER_BYTES, to or from one peer. */
struct engine_short {
	int peer, tag;
	ls_dtype dtype;
	bool is_blocking; /* the call blocks */
	uint64_t count, bytes;
	const void *send;
	void *recv;
};
struct engine_sent {
	uint64_t number; /* as engine_p2p_number */
	/* The receiver is busy and falls behind: the caller should pause for a moment. */
	bool receiver_lags;
};
/* A send that is complete at once. True: the message is in the peer's memory. False: nothing was
 * done, because the send needs the general path. record: its index in the trace. */
bool engine_p2p_send_short(struct engine *engine, const struct engine_short *call, uint64_t record,
			   struct engine_sent *out);
/* A short message that was received at once. */
struct engine_received {
	struct mail_message message;
	uint64_t number; /* as engine_p2p_number; only with `numbers` */
	bool crossed;    /* as op->p2p.crossed */
};
/* False: there is no such message; *word is the word to wait for before the next try. word NULL:
 * the caller does not wait. */
bool engine_p2p_receive_short(struct engine *engine, const struct engine_short *call, bool numbers,
			      struct engine_received *out, struct wait_word *word);
/* After a receive with `crossed`: who would have waited for each other with longer messages. */
struct ranks engine_p2p_crossed_ranks(struct engine *engine);
/* Adds 1 to a word that threads change only by this function, and returns the new value. */
uint64_t engine_p2p_increment(struct engine *engine, _Atomic uint64_t *word);
/* The number of a new send to `peer`, or of a new receive from `peer` or MATCH_ANY: 1, 2, … */
uint64_t engine_p2p_number(struct engine *engine, enum trace_kind kind, int peer);
/* An operation that the calling thread itself waits for. */
struct engine_awaited {
	const struct engine_op *op;
	const struct engine_op *before; /* another that has to be complete first; NULL: none */
	/* 0: one operation. Otherwise `op` stands for all operations whose p2p.batch it is: all of
	 * them are needed, and their words carry this alternative. */
	uint32_t alternative;
};
/* Matches arrived messages, sends queued ones if there are free slots, and advances all detached
 * operations. True if there is more to do at once. Otherwise any of words[*count] ends the wait;
 * words beyond max are counted and left out. Words of operations that are not among the `own_count`
 * (at most WAIT_ALTERNATIVE_MAX) carry WAIT_RECORD_OTHERS. For one thread at a time. */
bool engine_p2p_progress(struct engine *engine, const struct engine_awaited *own, int own_count,
			 struct wait_word *words, int max, int *count);
/* Fills in the same words, makes no progress; with own_count only those of these operations. Any
 * thread. Returns their number. */
int engine_p2p_words(struct engine *engine, const struct engine_awaited *own, int own_count,
		     struct wait_word *words, int max);
/* Whether one of these words has arrived, or a detached operation has something to copy. */
bool engine_p2p_is_ready(struct engine *engine);
/* What an operation still needs of peers that are gone. */
enum engine_need {
	ENGINE_NEEDS_NOBODY, /* it needs none of them */
	/* from any source: all other members are gone, but this rank may send the message itself */
	ENGINE_NEEDS_SELF,
	ENGINE_NEEDS_GONE, /* it needs *peer, and so can never complete */
};
/* Whether a send, receive or probe can complete without the peers in `gone`, which were dead or had
 * left before this call. What they did before counts. Any thread. */
enum engine_need engine_p2p_need(struct engine *engine, const struct engine_op *op,
				 const struct ranks *gone, int *peer);
/* The word that a message of this rank to itself would change; to find it among other words. */
const _Atomic uint64_t *engine_p2p_self_word(struct engine *engine);
/* A detached operation that is complete, with op->status; returns each one once. NULL: none. */
struct engine_op *engine_p2p_take_complete(struct engine *engine);
/* How many detached operations are not complete. */
uint32_t engine_p2p_pending(const struct engine *engine);
/* After the group has failed: removes any one detached operation that is not complete from its
 * list, for engine_abandon; NULL: none. device_busy: also one of engine_p2p_await_device. */
struct engine_op *engine_p2p_remove(struct engine *engine, bool device_busy);
/* For a failed operation on a stream, after engine_abandon has done all but wait for its device. It
 * becomes complete, with the status that it has, when the device has completed its work for it. */
void engine_p2p_await_device(struct engine *engine, struct engine_op *op);
/* How many of engine_p2p_pending only wait for their device. */
uint32_t engine_p2p_device_busy(const struct engine *engine);
/* Whether a detached operation has something to copy, or is complete and engine_p2p_take_complete
 * has not returned it yet. */
bool engine_p2p_has_work(struct engine *engine);
/* Whether a send waits for a slot. */
static inline bool engine_p2p_is_queued(const struct engine_op *op)
{
	return atomic_load_explicit(&op->p2p.stage, memory_order_acquire) == ENGINE_P2P_QUEUED;
}
/* Whether a send has had one. */
static inline bool engine_p2p_is_posted(const struct engine_op *op)
{
	uint32_t stage = atomic_load_explicit(&op->p2p.stage, memory_order_acquire);
	return stage == ENGINE_P2P_SENT || stage == ENGINE_P2P_COMPLETE;
}
/* Cancels it. True: it was unmatched, and is now complete with LS_CANCELLED, or will be once the
 * thread that advances it has seen that. */
bool engine_p2p_cancel(struct engine *engine, struct engine_op *op);
/* If that was false, asks a receiver on another host. True: wait for one of two words, call
 * engine_p2p_cancel again. The operation may end with LS_CANCELLED later, too. */
bool engine_p2p_ask_cancel(struct engine *engine, struct engine_op *op, struct wait_word words[2]);
/* ENGINE_DONE: *out is the oldest message that such a receive would match. ENGINE_BLOCKED: there is
 * none; wait for any of *count words. */
enum engine_progress engine_p2p_probe(struct engine *engine, int source, int tag,
				      struct mail_message *out, struct wait_word *words, int *count);
/* Returns a block that was received without a copy to its sender; false if it is none. */
bool engine_p2p_give_back(struct engine *engine, void *block);
/* How long the message in such a block is, as its sender says; 0: it is none. */
size_t engine_p2p_held_bytes(struct engine *engine, const void *block);

/* Call when this rank has no send or receive under way, and begins none any more. Counts messages
 * that nobody will receive: from `source`, or sent to `dest` after it had closed the group. *first:
 * the oldest. Each counts once, on one of the two ranks; long ones do not, as their sends fail. */
int engine_p2p_lost_from(struct engine *engine, int source, struct mail_envelope *first);
int engine_p2p_lost_to(struct engine *engine, int dest, struct mail_envelope *first);

/* A hash of the counts of `size` ranks, for the trace record and for engine_call.shape. */
uint64_t engine_shape(const uint64_t *counts, int size);

/* After LS_MISMATCH: how many elements op->culprit sends to this rank, and how many this rank
 * expects of it, if that is what differs; the same number twice otherwise. */
static inline void engine_count_difference(const struct engine_op *op, uint64_t *sent,
					   uint64_t *expected)
{
	*sent = op->peer_sends;
	*expected = op->peer_expected;
}

/* The fields of an entry's signature. */
struct engine_signature {
	enum trace_kind kind;
	uint8_t dtype, reduce;
	uint16_t algorithm;
	int32_t root; /* group rank; -1: the collective has none */
};
/* Reads a signature that any process may have written, in a group of `size`. False: it does not
 * belong to a collective whose entry may come before its record. Only kind and root are checked to
 * be in range. */
bool engine_signature_read(uint64_t signature, int size, struct engine_signature *out);

/* Whether the operation is a collective. */
static inline bool engine_is_collective(enum trace_kind kind)
{
	return kind != TRACE_SEND && kind != TRACE_RECV && kind != TRACE_PROBE;
}

#endif
