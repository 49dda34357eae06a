/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of the engine share among themselves. */
#ifndef ENGINE_PRIVATE_H
#define ENGINE_PRIVATE_H

#include <string.h>

#include "base/prefetch.h"
#include "engine.h"
#include "transport/payload.h"

/* Which part of an operation comes next. */
enum engine_stage {
	ENGINE_ENTER,   /* collective: my entry slot must be free */
	ENGINE_ENTERED, /* collective: my entry is there; who fails or closes has to be looked at */
	ENGINE_STEPS,   /* collective: op->step is the cursor */
	ENGINE_DRAIN,   /* collective: my last long messages must have been taken */
	ENGINE_TOGETHER, /* collective: it is over here, and must be so on all ranks */
	ENGINE_OVER,
};

/* ---- kind.c ---- */

/* Bytes of one element. */
size_t engine_element(ls_dtype dtype);
/* Works out sizes and places of the buffers, and the plan that is wanted. */
void engine_kind_request(const struct engine *engine, struct engine_op *op,
			 struct engine_room *room, struct plan_request *request);
/* Steps of a 64-bit hash that changes with every bit of both operands (the finaliser of
 * MurmurHash3). */
static inline uint64_t engine_mix(uint64_t hash, uint64_t value)
{
	hash ^= value;
	hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
	hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return hash ^ hash >> 33;
}
/* The count as far as it must be the same on all ranks. */
static inline uint64_t engine_common_count(const struct engine_op *op)
{
	return op->call.recv_counts ? 0 : op->call.count;
}

/* ---- end.c ---- */

/* A collective that has just been published, once somebody has begun to close the group: whether
 * those who do have called the same. */
enum engine_progress engine_end_check(struct engine *engine, struct engine_op *op);

/* ---- foreign.c: collectives of an engine with engine->ops ---- */

void engine_foreign_submit(struct engine *engine, struct engine_op *op);
enum engine_progress engine_foreign_advance(struct engine *engine, struct engine_op *op);
enum engine_progress engine_foreign_abandon(struct engine *engine, struct engine_op *op, bool force);

/* ---- device.c ---- */

/* True: a buffer is a device's, and is fetched before anything else; the operation goes on by
 * engine_device_advance. */
bool engine_device_submit(struct engine *engine, struct engine_op *op, struct engine_room *room);
enum engine_progress engine_device_advance(struct engine *engine, struct engine_op *op);
/* Waits for the device for as long as that takes, also with `force`. */
enum engine_progress engine_device_abandon(struct engine *engine, struct engine_op *op,
					   uint64_t gone, bool force);

/* ---- window.c ---- */

/* Puts the buffers where the plan needs them; op->status is set on failure. Until then they are
 * where the caller has them. */
void engine_window_stage(struct engine *engine, struct engine_op *op);
/* The pages that a payload of `bytes` will have begin with this one. */
static inline unsigned engine_payload_page(const struct engine *engine, uint64_t bytes)
{
	return engine->payload_next + transport_payload_pages(bytes) <= TRANSPORT_INLINE_PAGES
		       ? engine->payload_next
		       : 0;
}
/* The collective that all ranks must have entered before I write to these pages, as they have
 * finished the one that had them; 0: none. */
static inline uint64_t engine_payload_needs(const struct engine *engine, uint64_t bytes)
{
	unsigned page = engine_payload_page(engine, bytes);
	uint64_t last = 0;
	for (unsigned i = 0; i < transport_payload_pages(bytes); i++)
		if (engine->payload_seqs[page + i] > last)
			last = engine->payload_seqs[page + i];
	return last ? last + 1 : 0;
}
/* Gives them to entry `seq`. */
static inline void engine_payload_put(struct engine *engine, uint64_t seq, const void *payload,
				      uint64_t bytes)
{
	struct transport_team *team = engine->team;
	unsigned page = engine_payload_page(engine, bytes), pages = transport_payload_pages(bytes);
	transport_entry(team, team->rank, seq)->page = page;
	memcpy(transport_area_of(team, team->rank)->payloads[page], payload, bytes);
	for (unsigned i = 0; i < pages; i++)
		engine->payload_seqs[page + i] = seq;
	engine->payload_last = page;
	engine->payload_next = page + pages;
}
/* Call once an entry is published with a payload of `bytes` beside it: takes the lines of the next
 * payload back from those who have read them, while this rank waits anyway. That the next one is as
 * long is a guess. */
static inline void engine_payload_ahead(const struct engine *engine, uint64_t bytes)
{
	const struct transport_team *team = engine->team;
	const unsigned char *payload =
		transport_area_of(team, team->rank)->payloads[engine_payload_page(engine, bytes)];
	for (uint64_t at = 0; at < bytes; at += 64)
		prefetch_for_store(payload + at);
}
/* Writes into the entry where they are. */
void engine_window_publish(struct engine *engine, const struct engine_op *op);
/* Of what that will write to pages. */
uint64_t engine_window_payload(const struct engine_op *op);
/* Brings a staged result home. */
void engine_window_deliver(struct engine_op *op);
/* Gives the staging blocks back; with `lost` peers may still touch them, so they are never
 * reused. */
void engine_window_release(struct engine *engine, struct engine_op *op, bool lost);
/* Takes the caller's own buffers away from peers; false, after a message, if that is not
 * possible. */
bool engine_window_detach(struct engine *engine, struct engine_op *op);
/* False if another failed operation of mine has taken pages of my output away from peers: what they
 * wrote since then is lost. */
bool engine_window_is_whole(struct engine *engine, const struct engine_op *op);
/* Whether peers have published this rank's buffers, so that they may be inside. */
static inline bool engine_window_is_shown(const struct engine_op *op)
{
	return op->input_window > TRANSPORT_WINDOW_INLINE ||
	       op->output_window > TRANSPORT_WINDOW_INLINE;
}

/* A part of one rank's buffer, to be read. */
struct engine_view {
	const unsigned char *at; /* where this process sees it; NULL: it does not, and has to ask */
	uint64_t address;        /* in the process of `rank` */
	int rank;
};
/* False if the peer's header is nonsense. */
bool engine_window_open(const struct engine *engine, const struct engine_op *op, int rank,
			enum plan_buffer buffer, uint64_t offset, uint64_t bytes,
			struct engine_view *out);
/* Bytes of a view: where they lie, or else brought to `room`. NULL, with op->status: they cannot be
 * got. */
const void *engine_view_bytes(const struct engine *engine, struct engine_op *op,
			      const struct engine_view *view, uint64_t offset, uint64_t bytes,
			      void *room);
/* Copies `bytes` from the beginning of a view, in chunks between which the cause is looked at. */
enum engine_progress engine_view_copy(const struct engine *engine, struct engine_op *op,
				      const struct engine_view *view, unsigned char *to,
				      uint64_t bytes);
/* Whether any rank shows its OUTPUT by an address, which nobody else can write to. The same answer
 * on all ranks, once all have entered. */
bool engine_window_shows_address(const struct engine *engine, const struct engine_op *op);
/* The same of fragments, of INPUT or OUTPUT, of `peer` or all. */
bool engine_window_shows_fragments(const struct engine *engine, const struct engine_op *op,
				   int peer);
/* Whether rank `rank` shows the buffer in fragments, so that offsets count from the fragment's
 * beginning. */
bool engine_window_is_cut(const struct engine *engine, const struct engine_op *op, int rank,
			  enum plan_buffer buffer);
/* A part of the OUTPUT of rank `rank`, to be written; NULL if its header is nonsense. */
unsigned char *engine_window_target(const struct engine *engine, const struct engine_op *op,
				    int rank, uint64_t offset, uint64_t bytes);

/* Room in the arena, and where peers find it; false, with op->status, if there is none. */
bool engine_window_block(struct engine *engine, struct engine_op *op, uint64_t bytes, void **block,
			 uint64_t *offset);

/* ---- fragment.c ---- */

/* One round with all of it. */
void engine_fragment_none(struct engine_op *op);
/* Fragments, if there are two or more; each but the first begins with step `loop`. */
void engine_fragment_begin(const struct engine *engine, struct engine_op *op, uint32_t loop);
/* Shows INPUT or OUTPUT, which are plain, as fragments; false, with op->status, without room. */
bool engine_fragment_show(struct engine *engine, struct engine_op *op, enum plan_buffer buffer);
/* Copies what peers read of this round's fragment of INPUT to where they do. */
void engine_fragment_stage(struct engine *engine, struct engine_op *op);
/* Ends a round: brings the results home, begins the next one. False: that was the last. */
bool engine_fragment_next(struct engine *engine, struct engine_op *op);
/* The signal word of a phase of a round. */
uint64_t engine_fragment_signal(const struct engine_op *op, uint32_t round, unsigned phase);
/* Where the slot of this round begins, from the first one's beginning; the same on all ranks. */
uint64_t engine_fragment_slot(const struct engine_op *op, enum plan_buffer buffer);
/* Whether I write my own block of OUTPUT to its slot, where peers read it, and not to where the
 * caller wants it. */
static inline bool engine_fragment_is_own_cut(const struct engine_op *op)
{
	return op->output_window == TRANSPORT_WINDOW_FRAGMENTED &&
	       op->plan->plan.algorithm == PLAN_PULL;
}

/* ---- step.c ---- */

/* Either completes the step, or changes nothing and says in op->words what it waits for; then it
 * is called again. */
typedef enum engine_progress engine_step(struct engine *engine, struct engine_op *op,
					 const struct plan_step *step);
extern engine_step *const engine_steps[PLAN_STEP_KIND_COUNT]; /* by enum plan_step_kind */
/* Compares peer's entry header with mine, once. ENGINE_BLOCKED: it has not entered yet. */
enum engine_progress engine_step_check(struct engine *engine, struct engine_op *op, int peer);
/* All-to-allv: whether peer sends as many elements as I expect of it; else it is a mismatch. */
bool engine_step_expects(struct engine_op *op, int peer, uint64_t sends);
/* Whether peer has taken the long messages of this operation; else adds what to wait for. */
enum engine_progress engine_step_taken(struct engine *engine, struct engine_op *op, int peer);

/* ---- p2p.c, mailbox.c ---- */

LS_CHECKED ls_status engine_mailbox_init(struct engine *engine, unsigned limit);
void engine_mailbox_fini(struct engine *engine);
/* Nothing has been sent in the group yet. */
void engine_mailbox_begin(struct engine *engine);

enum engine_progress engine_p2p_advance(struct engine *engine, struct engine_op *op);
enum engine_progress engine_p2p_abandon(struct engine *engine, struct engine_op *op, uint64_t gone,
					bool force);

/* ---- shared small things ---- */

static inline enum engine_progress engine_fail(struct engine_op *op, ls_status status, int culprit)
{
	op->status = status;
	op->culprit = culprit;
	return ENGINE_FAILED;
}

/* What this rank gives is multiplied first, and so is a copy. */
static inline bool engine_is_scaled(const struct engine_op *op)
{
	return op->call.reduce == LS_PREMUL_SUM;
}

/* Read at once from a peer's plain memory; a rank that shows none itself may have to read
 * others'. */
static inline uint64_t engine_read_bytes(const struct engine_op *op)
{
	return op->choice.read_bytes ? op->choice.read_bytes : ENGINE_BOUNCE_BYTES / 2;
}

static inline bool engine_cause_is_set(const struct engine *engine)
{
	return wait_has_failed(atomic_load_explicit(engine->cause, memory_order_relaxed));
}

/* The same where what was stored before must be seen first: see README.md, late access. */
static inline bool engine_has_failed(const struct engine *engine)
{
	return wait_has_failed(atomic_load_explicit(engine->cause, memory_order_seq_cst));
}

/* memcpy in chunks between which the cause is looked at; false if it was set. */
bool engine_copy(const struct engine *engine, void *to, const void *from, uint64_t bytes,
		 uint64_t chunk_bytes);

#endif
