/* SPDX-License-Identifier: BSD-3-Clause
 * How one collective runs: a plan over windows and channels. The engine never blocks and never
 * decides what a failure means. engine_advance makes the progress that is possible at once. Then it
 * returns the words that the operation waits for, or the error that it has found. The caller waits,
 * and handles the error.
 *
 * One thread at a time advances an operation: a thread that waits for it, or the progress thread.
 * The caller runs the collectives of a group one after the other. Messages (mailbox/mailbox.h) run
 * concurrently with them. */
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
#include "op/op.h"
#include "op/tuner.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "trace/trace.h"
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
	/* Between hosts a fragment is so many times as long: each takes messages, and so waits. */
	ENGINE_FRAGMENTS_BETWEEN_HOSTS = 32,
};

struct engine_plan {
	bool valid;
	bool needs_staging; /* the caller's buffers alone, where they are, do not suffice */
	bool reads_windows; /* its steps read windows of peers, which may be in fragments */
	/* Long payloads go in rounds even if no buffer is plain: ranks of other hosts do not see
	 * which buffers are. */
	bool always_in_rounds;
	/* If one of the ranks shows its OUTPUT by address, PLAN_PULL replaces this plan once all
	 * ranks have entered. Both plans begin by awaiting all ranks. */
	bool may_switch_to_pull;
	/* In place, no step writes my own block of OUTPUT before another one uses it. */
	bool begins_with_input;
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
	uint32_t part_bytes;   /* of each payload I need a part of this length, */
	uint32_t offset_bytes; /* which begins here */
	uint32_t stride_bytes; /* in my output: from the part of one source to that of the next */
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
	size_t element_bytes;
	uint64_t signature;
	struct engine_inline_plan inline_plan;
};

struct engine_ops;
struct memory;

struct engine {
	struct transport_team *team;
	struct trace *trace;
	struct memory *memory;
	const struct engine_ops *ops; /* NULL: the processor runs collectives */
	void *ops_state;
	const _Atomic uint64_t *cause; /* the group's cause word, see wait_has_failed */
	enum plan_algorithm wanted;
	struct plan_table table; /* the lines that fit this size */
	int rank, size;          /* for which table, plans and memos were made */
	struct ranks members;    /* by world rank */
	bool completes_together; /* a collective is complete only when it is so on all ranks */
	/* the hash of the collectives entered so far, as in struct transport_entry */
	uint64_t history;
	uint64_t entered_by_all; /* a collective that every rank has entered; grows */
	/* Payload pages of my area: the first page of the last payload; that of the next one, if it
	 * fits there; and for each page the last collective that used it, 0: none. */
	unsigned payload_last, payload_next;
	uint64_t payload_seqs[TRANSPORT_INLINE_PAGES];
	enum setting_cma cma;    /* whether plain buffers are shown by address */
	uint64_t fragment_bytes; /* ENGINE_FRAGMENT_BYTES; the same on all ranks */
	struct op_tuner tuner;
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
void engine_submit(struct engine *engine, struct op *op, struct op_workspace *workspace);

/* Makes the progress that is possible without blocking. */
enum op_progress engine_advance(struct engine *engine, struct op *op);

/* Call when the operation has failed here or elsewhere (*cause is set, or the caller will set it).
 * Then this rank touches no peer's memory for it any more. OP_BLOCKED: a peer may still touch
 * this rank's buffers; wait for op->words and call again. With `force`, or when no peer is left, it
 * revokes the access of peers where needed; it cuts peers on other hosts, and then OP_BLOCKED
 * means that another thread makes progress on the link and is about to do it. OP_DONE: no peer
 * touches the caller's buffers any more. OP_FAILED: access could not be revoked, a message says
 * why, and a stopped peer may touch the buffers when it continues. gone: the peers that are dead or
 * have left; NULL: none. */
enum op_progress engine_abandon(struct engine *engine, struct op *op, const struct ranks *gone,
				bool force);

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
/* Call after engine_end_publish: searches for a member whose collectives so far differ from mine;
 * true if there is one. gone: as for engine_abandon; such a peer counts only if it has published
 * its end. This rank must not have left yet. */
bool engine_end_compare(const struct engine *engine, uint64_t seq, const struct ranks *gone,
			struct engine_difference *out);

/* A hash of the counts of `size` ranks, for the trace record and for op_call.shape. */
uint64_t engine_shape(const uint64_t *counts, int size);

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

#endif
