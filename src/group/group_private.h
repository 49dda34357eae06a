/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: how calls begin, what users ask of handles, and the objects
 * that groups are made of. */
#ifndef GROUP_PRIVATE_H
#define GROUP_PRIVATE_H

#include "base/ranks.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "races/races.h"
#include "world/registry.h"

/* ---- begin.c ---- */

/* LS_OK, or why the group cannot be used: NULL, a forked child, or its first cause. Also fails the
 * group if one of its nonblocking sends can never be received. */
ls_status group_check(const char *function, ls_group *group);
/* How a call begins: its options over the defaults, checked, and then the group. A handle that was
 * asked for is NULL if this fails. */
ls_status group_begin(const char *function, ls_group *group, const struct ls_call_options *given,
		      struct ls_call_options *out);

/* As group_begin, for calls that may run on a stream, and do not wait. */
ls_status group_begin_streamable(const char *function, ls_group *group,
				 const struct ls_call_options *given, struct ls_call_options *out);
/* As group_begin_streamable, for collectives: some options make them wait. */
ls_status group_begin_collective(const char *function, ls_group *group,
				 const struct ls_call_options *given, struct ls_call_options *out);

/* ---- device_calls.c ---- */

/* Opens the device that the option names, for a rank that has no shared memory yet; NULL: none.
 * Errors, with a message: those of device_driver_find, LS_OUT_OF_MEMORY, LS_SYSTEM. */
LS_CHECKED ls_status group_device_open(struct world *world, const char *name);
/* From now on operations may use the device's memory: the waiter of the rank is final. */
LS_CHECKED ls_status group_device_register(struct world *world);
/* Whether a thread is in a call on the device's memory, which would go on with memory that is gone.
 * Then a message says so. */
bool group_device_refuses_close(struct world *world);
/* Call when no operation is left. Blocks until the streams have done their work, up to the time
 * limit. */
void group_device_close(struct world *world, uint32_t timeout_ms);

/* ---- launch_calls.c ---- */

/* The group is being closed. If this thread is in a launch of it, says so, and ends the launch: the
 * device would be waited for in vain, and its gate may not exist any more at ls_launch_end. */
void group_launch_close(const ls_group *group);
/* Notes how a call has enqueued an operation on a stream, for ls_launch_end. */
void group_launch_note(ls_status status);
/* Whether the calling thread is between ls_launch_begin and ls_launch_end. */
bool group_launch_is_open(void);

/* ---- collective.c ---- */

/* An all-gather of `bytes` from each member, as a part of the call that `kind` names. */
ls_status group_exchange(ls_group *group, enum trace_kind kind, const void *mine, void *all,
			 size_t bytes, const void *site);

/* ---- check.c ---- */

/* Checks the arguments. Also sums up lists of counts, and drops buffers that this rank does not
 * need. Errors: LS_BAD_ARGUMENT, LS_UNSUPPORTED, with a message. */
ls_status group_prepare_collective(const char *function, const ls_group *group,
				   struct op_call *call);

/* Whether the arguments are right, and the payloads so short that they travel in the entries; drops
 * buffers that this rank does not need. False: group_prepare_collective decides. */
bool group_prepare_short(const ls_group *group, struct op_call *call);
/* Copies the caller's lists of counts, for an operation that outlives the call. False: no
 * memory. */
bool group_keep_counts(struct ls_request *op);
/* Whether a buffer is memory of a device. Then the call takes the general path: on the short paths
 * the processor itself reads and writes the payload. */
static inline bool group_is_on_device(ls_group *group, const struct op_call *call)
{
	struct memory *memory = &group->world->memory;
	return memory_inspects_buffers(memory) &&
	       memory_region_any_device(memory, &call->send, &call->recv);
}

/* Whether the call cannot take the short path, also because the rank looks for races. */
static inline bool group_needs_operation(ls_group *group, const struct op_call *call)
{
	return memory_inspects_buffers(&group->world->memory) &&
	       (group->world->races || group_is_on_device(group, call));
}

/* ---- check_races.c: without LOCKSTEP_CHECK=1 these functions do nothing ---- */

/* Begins and ends to look for races, for the rank. Errors: LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status group_races_open(struct world *world);
void group_races_close(struct world *world);
/* The second part of group_races_begin. */
LS_CHECKED ls_status group_races_enter(ls_group *group, const struct op_call *call,
				       const struct ls_call_options *options, const void *site,
				       uint64_t *access);
/* What the call touches is in use until its operation is complete, or until group_races_end. The
 * caller has set *access to 0. Errors, with a message: LS_BAD_ARGUMENT: something that is not over
 * touches the same memory, or the memory has been freed. */
LS_CHECKED static inline ls_status group_races_begin(ls_group *group, const struct op_call *call,
						     const struct ls_call_options *options,
						     const void *site, uint64_t *access)
{
	return __builtin_expect(group->world->races != NULL, false)
		       ? group_races_enter(group, call, options, site, access)
		       : LS_OK;
}
static inline void group_races_end(ls_group *group, uint64_t access)
{
	if (access)
		races_end(group->world->races, access);
}
/* From now on the stream's work comes after that of the operation. */
void group_races_follow(const struct ls_request *op, const void *stream);
/* Call for memory that the allocator has handed out. */
void group_races_alloc(ls_group *group, const void *block, uint64_t bytes);
/* Call before a block of the device is freed (free_device), before one of the arena is freed
 * (free), and before one is sent by ls_send_block (hand_over). Errors, with a message:
 * LS_BAD_ARGUMENT (an operation or a copy still uses it). */
LS_CHECKED ls_status group_races_free_device(ls_group *group, void *block, const void *site);
LS_CHECKED ls_status group_races_free(ls_group *group, const void *block, const void *site);
LS_CHECKED ls_status group_races_hand_over(ls_group *group, const void *block, const void *site);
/* The stream is about to be destroyed. */
void group_races_forget(ls_group *group, const void *stream);

/* ---- batch.c ---- */

/* The batch of the calling thread, NULL: it is in none. */
struct ls_request *group_batch_find(ls_group *group);
/* Makes the operation, which has not begun, the newest part of the batch; unjoin removes it again,
 * because it could not begin. */
void group_batch_join(struct ls_request *batch, struct ls_request *op);
void group_batch_unjoin(struct ls_request *batch, struct ls_request *op, ls_status status);

/* ---- handles.c ---- */

/* LS_BAD_ARGUMENT, with a message, if it is NULL, of a closed group, or was freed: that is found
 * until another operation gets the handle. LS_FORKED. */
LS_CHECKED ls_status group_check_handle(const char *function, const ls_request *op);
/* The call that has stored the handle *op returns an error: frees the handle, and sets *op to NULL.
 * op: NULL, if the caller wants no handle. */
void group_op_withdraw(struct ls_request **op);
/* Waits for the handle *op as ls_wait does. Returns LS_PENDING; or the operation's status, and then
 * the handle is freed and *op is NULL. */
ls_status group_op_await(struct ls_request **op);

/* ---- message_calls.c, handles.c ---- */

/* ls_isend for the messages with which the library makes a group. With P2P=serial no send waits for
 * such a send, which waits only for earlier sends to the same peer that have no slot yet, because
 * ranks that make a group take messages in their own order. However short, it can be cancelled
 * until it is matched. */
ls_status group_isend(ls_group *group, const void *buffer, uint64_t bytes, int dst,
		      const struct ls_call_options *options, ls_request **request);

/* Cancels a send or receive (NULL: none) and frees its handle: LS_CANCELLED. If it is too late to
 * cancel, as group_op_finish. */
ls_status group_op_cancel(ls_request **op);

/* ---- close.c ---- */

/* Frees all that the rank has, after all its groups were left, or when it could not open the world.
 * timeout_ms: how long it waits for the device. */
void group_close_world(struct world *world, uint32_t timeout_ms);

/* ---- make.c: group objects ---- */

/* A group to be made, as all its members know it. */
struct group_making {
	uint32_t id, parent, timeout_ms, label;
	uint64_t site;
	int rank, size;
	uint16_t members[RANKS_WORLD_MAX];     /* world ranks */
	uint16_t areas[RANKS_WORLD_MAX];       /* the area that each member has offered */
	uint64_t left_before[RANKS_WORLD_MAX]; /* times_closed of these areas before that */
};

/* Returns a group object whose area nobody uses; NULL, after a message that names the function, if
 * there are too many groups, or no memory. */
struct ls_group *group_alloc(struct world *world, const char *function);
/* Frees an object that was not opened, and that no other rank knows of. */
void group_free(struct ls_group *group);
/* Withdraws the offer of the area of an object that was not opened: ranks that got the offer see
 * that by times_closed. */
void group_withdraw(struct ls_group *group);
/* As group_withdraw, if other ranks may have opened the group: these see that this member has left.
 * The object is not reused. */
void group_retire(struct ls_group *group);
/* This rank's area, also that of an object that is not open. */
struct transport_area *group_own_area(const struct ls_group *group);
/* Whether the area has memory for so many members; and adds it, by transport_area_grow. */
bool group_has_memory(const struct ls_group *group, int members, bool reports);
LS_CHECKED ls_status group_add_memory(struct ls_group *group, int members, bool reports);
/* Opens the group. */
void group_init(struct ls_group *group, const struct group_making *making);
/* Ends the group's operations, publishes that this rank has left, and allows the object to be
 * reused once all members have left. */
void group_leave(struct ls_group *group);
/* Closes all open groups but the world group. */
void group_leave_all(struct world *world);
/* Frees all group objects, which no thread uses any more. */
void group_free_all(struct world *world);

#endif
