/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: how calls begin, what users ask of handles, and the objects
 * that groups are made of. */
#ifndef GROUP_PRIVATE_H
#define GROUP_PRIVATE_H

#include "base/ranks.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "world/registry.h"

/* ---- api.c ---- */

/* LS_OK, or why the group cannot be used: NULL, a forked child, or its first cause. Also fails the
 * group if one of its nonblocking sends can never be received. */
ls_status group_check(const char *call, ls_group *group);
/* How a call begins: its options over the defaults, checked, and then the group. A handle that was
 * asked for is NULL if this fails. */
ls_status group_begin(const char *call, ls_group *group, const struct ls_op_options *given,
		      struct ls_op_options *out);

/* ---- collective.c ---- */

/* All-gather of `bytes` from each, as part of the call that `kind` stands for. */
ls_status group_tell(ls_group *group, enum trace_kind kind, const void *mine, void *all,
		     size_t bytes, const void *site);

/* ---- check.c ---- */

/* Also sums up lists of counts, and drops buffers that this rank does not need. Errors:
 * LS_BAD_ARGUMENT, LS_UNSUPPORTED, with a message. */
ls_status group_check_collective(const char *call, const ls_group *group, struct engine_call *op);

/* Whether a call is right, and so short that its payloads travel in the entries; drops buffers that
 * this rank does not need. False: the full check tells. */
bool group_is_short(const ls_group *group, struct engine_call *op);
/* Whether a buffer is memory of a device. Short paths read and write payloads at once, which only
 * the processor does. */
static inline bool group_is_on_device(ls_group *group, const struct engine_call *op)
{
	struct memory *memory = &group->world->memory;
	return memory_has_devices(memory) && memory_region_any_device(memory, &op->send, &op->recv);
}

/* ---- batch.c ---- */

/* The batch of the calling thread, NULL: it is in none. */
struct ls_op *group_batch_find(ls_group *group);
/* The operation, which has not begun, becomes its newest part; and is none after all, as it could
 * not begin. */
void group_batch_join(struct ls_op *batch, struct ls_op *op);
void group_batch_unjoin(struct ls_op *batch, struct ls_op *op, ls_status status);

/* ---- op.c: what the user asks of a handle ---- */

/* Waits for *op, of the user, as ls_wait would: LS_PENDING, or its status, and then *op has been
 * given back and is NULL. */
ls_status group_op_await(struct ls_op **op);
/* The same, and signals do not end it. */
ls_status group_op_finish(ls_op **op);

/* ---- p2p.c ---- */

/* ls_isend of what the library itself sends to make a group. With P2P=serial no send waits for it,
 * and it only for those before it that have no place with the same peer yet: ranks that come
 * together take messages in an order of their own. However short, it stays with this rank until it
 * is matched, so it can be cancelled until then. */
ls_status group_isend(ls_group *group, const void *buffer, uint64_t bytes, int dst,
		      const struct ls_op_options *options, ls_op **op);

/* A send or a receive, NULL: none, is given back without having happened: LS_CANCELLED; or, too
 * late for that, as by group_op_finish. */
ls_status group_op_take_back(ls_op **op);

/* ---- make.c: group objects ---- */

/* Who is in a group, as all its members know it. */
struct group_making {
	uint32_t id, parent, timeout_ms, label;
	uint64_t site;
	int rank, size;
	uint8_t members[RANKS_HOST_MAX]; /* world ranks */
	uint16_t areas[RANKS_HOST_MAX];  /* that each has taken for it */
	uint64_t stays[RANKS_HOST_MAX];  /* `left` of each before that */
};

/* An object with an area that nobody uses; NULL, after a message, if there are too many, or no
 * memory. */
struct ls_group *group_alloc(struct world *world);
/* Gives one back that was never filled, and that nobody else knows of. */
void group_free(struct ls_group *group);
/* One that was never filled: whoever was offered it sees by `left` of its area that it is offered
 * no more. */
void group_withdraw(struct ls_group *group);
/* One that was never filled, but that others may take for a member's: they learn that it has left,
 * and it is not used again. */
void group_retire(struct ls_group *group);
/* My own area, also of an object that is not filled. */
struct transport_area *group_own_area(const struct ls_group *group);
/* Memory for the area, see transport_area_grow. */
bool group_has_memory(const struct ls_group *group, int members, bool reports);
LS_CHECKED ls_status group_add_memory(struct ls_group *group, int members, bool reports);
/* Opens it. */
void group_init(struct ls_group *group, const struct group_making *making);
/* Ends its operations, tells the others, and lets the object be used again once all have left. */
void group_leave(struct ls_group *group);
/* Closes groups that are open, but the one of all ranks. */
void group_leave_all(struct world *world);
/* Frees all objects; no thread uses them any more. */
void group_free_all(struct world *world);

#endif
