/* SPDX-License-Identifier: BSD-3-Clause
 * Process groups: what MPI and NCCL call communicators. The operations on a group are in
 * collective.h and p2p.h. See ls_group(3).
 *
 * World group: the group that ls_group_open returns. All ranks of the job are its members. All
 * other groups are made from it, or from groups that were made from it. A rank's number may differ
 * from group to group.
 *
 * Threads: any thread of the process that opened a group may use it. Collectives of one group are
 * numbered in the order of their calls, and that order must be the same on all ranks. So two
 * threads that call collectives on one group must agree on an order, or the mismatch is detected
 * and reported. Sends and receives may run concurrently with collectives and with each other.
 *
 * Blocking: a blocking operation returns when this rank's part is done, when the operation has
 * failed, or at its time limit. A nonblocking operation (request.h) returns at once.
 *
 * Buffers: any host memory; memory of a device as device.h says. Peers access memory from ls_alloc
 * without a copy, so it is faster. After an error no peer accesses the caller's buffer any more,
 * and its content is undefined. LS_SYSTEM is the exception: a stopped peer may still access the
 * buffer, because Lockstep could not revoke the peer's access. The buffer lies in registered memory
 * (memory.h), or the system had no memory left.
 *
 * Reopening: after all ranks have closed the world group, they can open it again. Under `lockstep
 * run` they cannot, because it serves one rendezvous for each launch: a program that cannot
 * continue exits, and `lockstep run` is called again. A process may have several world groups open
 * at once, each with a rendezvous of its own.
 *
 * Failure: a status with scope LS_SCOPE_GROUP means that the group has failed. It stays failed.
 * Every later call that communicates on it (collectives, sends, receives, probes, ls_batch_begin,
 * and the calls that make groups) returns the same status on every surviving rank, at once or
 * within about a second (two, on several hosts) while another thread still writes the report.
 * ls_wait and ls_test return the status of their operation, and ls_batch_end the first status of
 * its parts that is not LS_OK. Local calls work as before: ls_alloc, ls_free, ls_memory_stats,
 * ls_deregister, ls_device_..., ls_phase_..., ls_group_abort, ls_group_failure, which says why the
 * group has failed, and ls_group_close, which frees it.
 *
 * Fork: in a child that was forked without exec, a call on a group or on an operation returns
 * LS_FORKED if it returns a status. The exceptions are ls_free and ls_deregister, which do nothing
 * and return LS_OK. ls_request_free and ls_group_close do nothing, and ls_group_get returns NULL.
 * ls_group_rank, ls_group_size and ls_group_rank_in answer as in the parent. The child may open a
 * world group of its own. lockstep(7) says of each call what it does there.
 *
 * After its close a group stays recognisable, until another group gets the same address: a call on
 * it that returns a status prints a message and returns LS_BAD_ARGUMENT. ls_group_rank,
 * ls_group_size and ls_group_rank_in return -1, and ls_group_get NULL, without a message. */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_group ls_group;

/* All option structs: `size` is sizeof the struct; every other field may be zero for its default;
 * NULL in place of the struct means all defaults. */

struct ls_group_options {
	uint32_t size;
	/* Default time limit of an operation in milliseconds; 0: setting LOCKSTEP_TIMEOUT_MS. */
	uint32_t timeout_ms;
	/* Time limit of ls_group_open itself in milliseconds; 0: setting
	 * LOCKSTEP_OPEN_TIMEOUT_MS. */
	uint32_t open_timeout_ms;
	/* The caller's rank and the number of ranks. Read only if `rendezvous` is set; otherwise
	 * they come from the environment (RANK, WORLD_SIZE). */
	int32_t rank;
	int32_t world_size;
	/* Not 0: a signal handler that runs during a wait ends no operation, on this group and on
	 * groups made from it. Blocking calls continue to wait. ls_wait and ls_wait_any without a
	 * time limit return LS_PENDING after a handler has run, and also every 50 ms, because a
	 * handler may have run just before the wait. The caller then handles the signal and must
	 * wait again at once: a deadlock is proved as if the wait were uninterrupted. For languages
	 * whose handlers run after the call has returned, such as Python. 0: a handler fails the
	 * group with LS_INTERRUPTED, or ends ls_group_open with it, unless the handler was
	 * installed with SA_RESTART. */
	uint32_t resume_after_signals;
	/* The address at which the ranks find each other: "unix:NAME" (an abstract Unix socket) or
	 * "tcp:ADDRESS:PORT"; rank 0 listens there. NULL: from the environment (lockstep run,
	 * torchrun, MASTER_ADDR and MASTER_PORT, or srun). */
	const char *rendezvous;
	/* Not 0: blocks of ls_alloc that are in use when this group is closed stay valid, and keep
	 * their content, until ls_free(NULL, block). For languages whose garbage collector frees
	 * memory later. 0: closing the group frees all blocks. */
	uint32_t keep_memory;
	/* This rank's device: the name of a driver, the number of the device, and options of the
	 * driver, as in "sim:0" or "sim:0,bytes=67108864". Ranks need not have the same. NULL:
	 * none. Read only by ls_group_open. */
	const char *device;
};

/* Why a group has failed. */
struct ls_failure {
	uint32_t size;    /* set by the caller: sizeof(struct ls_failure) */
	ls_status status; /* LS_OK: the group has not failed */
	/* rank in this group of the process at fault; -1: no single member is at fault */
	int32_t rank;
	/* its process id, as seen by this process, or on `host`; 0: none, or not known */
	int32_t pid;
	uint64_t operation; /* number of the operation that could not complete, from 1; 0 if none */
	/* The report: several lines, no terminal colors, NUL-terminated. Its ranks are world
	 * ranks. */
	char text[2048];
	/* The host of that process, if it is another one than that of this process; "": it is this
	 * one, or pid is 0. NUL-terminated. */
	char host[64];
};

/* Opens the world group: finds all ranks, connects to each of them, and maps their memory. No
 * connection is made later. Collective and blocking. Once all ranks have met, all return the same
 * status. Before that they may differ: a rank whose arguments or environment are wrong returns
 * LS_BAD_ARGUMENT, one in which a signal handler ran LS_INTERRUPTED, and the others
 * LS_RANK_MISSING. If the port is taken, rank 0 returns LS_PORT_TAKEN, and the others
 * LS_UNTRUSTED_PEER or LS_NO_MASTER. On failure *out is NULL, and a message gives the reason.
 * Errors: LS_BAD_ARGUMENT, LS_WRONG_WORLD_SIZE, LS_DUPLICATE_RANK, LS_RANK_MISSING, LS_PEER_DIED,
 * LS_PORT_TAKEN, LS_NO_MASTER, LS_UNTRUSTED_PEER, LS_WRONG_VERSION, LS_OUT_OF_MEMORY,
 * LS_UNSUPPORTED, LS_INTERRUPTED, LS_SYSTEM; LS_INCONSISTENT if LOCKSTEP_ALGORITHM,
 * LOCKSTEP_BLOCKING or the content of LOCKSTEP_TABLE differs between ranks. Other settings that
 * must be the same are not compared. */
LS_EXPORT LS_CHECKED ls_status ls_group_open(const struct ls_group_options *options, ls_group **out);

/* Splits `parent` into groups, as MPI_Comm_split does: ranks that pass the same color (>= 0)
 * become members of one group, ordered by key, and by rank in `parent` where keys are equal. A rank
 * that passes color -1 joins no group: it gets LS_NOT_MEMBER, which is no error, and *out is NULL.
 * Collective over `parent` and blocking: it returns when all ranks of `parent` have called it. It
 * takes one position in the order of the parent's collectives; any other collective there is a
 * mismatch. The new group inherits the time limit of `parent`. Its operation numbers, order and
 * failures are its own, even if another group has the same members. Close it before the world
 * group.
 * Errors: those of collectives (ls_collective(3)). On all ranks, and `parent` does not fail:
 * LS_OUT_OF_MEMORY if some rank is already in 512 groups besides the world group (a group counts
 * until all its members have closed it); LS_BAD_ARGUMENT if some rank's arguments are wrong. */
LS_EXPORT LS_CHECKED ls_status ls_group_split(ls_group *parent, int color, int key, ls_group **out);

/* Makes a group of the `count` ranks of `parent` that `ranks` lists, in the order of the list.
 * Collective over `parent`: all ranks of `parent` call it, with the same list. A rank that is not
 * in the list gets LS_NOT_MEMBER, and *out is NULL. If lists differ, all ranks get LS_INCONSISTENT,
 * a message shows two of the lists, and `parent` does not fail. The rest is as in
 * ls_group_split. */
LS_EXPORT LS_CHECKED ls_status ls_group_from_ranks(ls_group *parent, const int *ranks, int count,
						   ls_group **out);

struct ls_call_options; /* request.h */

/* Makes the same group, but only the ranks of the list call it (as with MPI_Comm_create_group).
 * Blocking. It takes no position in the order of the parent's collectives: the members exchange
 * messages on `parent` with options->tag, so the caller must not have other receives there which
 * match these messages. The call reads three options: `tag`, `label`, and `timeout_ms`, which
 * becomes the time limit of operations on the new group (0: that of `parent`). `request` and
 * `callback` must be NULL, else LS_BAD_ARGUMENT.
 * Errors, after which `parent` has not failed and no message is left: LS_BAD_ARGUMENT (this rank is
 * not in its own list); LS_OUT_OF_MEMORY (as for ls_group_split); LS_INCONSISTENT (another member
 * has passed a different list; this call makes no group). That member gets LS_INCONSISTENT, too:
 * within a second if it is in its call, otherwise when this rank calls again. After LS_INCONSISTENT
 * a rank may call again at once, with the same tag. Once all ranks of a list pass that list, all of
 * them get the group, also those that have been waiting meanwhile. */
LS_EXPORT LS_CHECKED ls_status ls_group_from_members(ls_group *parent, const int *ranks, int count,
						     const struct ls_call_options *options,
						     ls_group **out);

/* Finds the open group that this rank has made from `parent` (by ls_group_split,
 * ls_group_from_ranks or ls_group_from_members) and whose members are exactly these ranks, in this
 * order. If there are several, it returns the newest; NULL if there is none. Local; any thread; it
 * never makes a group. The pointer is the one that the making call returned: close it once. */
LS_EXPORT ls_group *ls_group_get(ls_group *parent, const int *ranks, int count);

/* Translates a rank: returns the rank in `other` of the process that is rank `rank` in `group`. -1
 * if that process is not a member of `other`, and always if the two groups come from different
 * calls of ls_group_open. Local; any thread. */
LS_EXPORT int ls_group_rank_in(const ls_group *group, int rank, const ls_group *other);

/* Leaves and frees the group; NULL is allowed. No other thread may be inside a call on the group:
 * if one waits there, this call prints a message and does nothing. ls_group_abort ends such calls.
 * Local: it waits for other ranks in three cases only. It waits for the report of a failure, about
 * a second at most (two, on several hosts). It waits until no peer touches the buffers of the
 * operations that it ends: a quarter of a second at most, and 1.5 s in a group of several hosts.
 * And the close of the world group of several hosts waits until the other hosts have what this rank
 * sent last, at most two seconds. Peers that still need this rank get LS_PEER_LEFT.
 *
 * Before it, free all handles of operations on the group, and close each ls_ddp and ls_join that
 * was opened on it. What a call on one of them does after the close is undefined.
 *
 * Close the world group last: that frees all memory of ls_alloc (see keep_memory). It also closes
 * the groups that are still open, with a warning that names them.
 *
 * Messages that can no longer be received: a warning names the first from each rank to each other
 * rank, and counts the rest. With LOCKSTEP_CHECK=1 such a message also fails the group, with
 * LS_ABORTED, on the members that have not closed it yet.
 *
 * Collectives: if those of this rank differ from those of other members, in kind, arguments or
 * number, this call detects it at the latest, even if all calls have returned LS_OK. Members that
 * are still in the group get LS_MISMATCH or LS_PEER_LEFT. If all have left, the report goes to
 * standard error, and `lockstep run` exits with 1. A program that needs a status calls ls_barrier
 * before it closes the group. Nothing is compared if another group of this rank has failed while
 * this one was open. */
LS_EXPORT void ls_group_close(ls_group *group);

/* Fails the group with LS_ABORTED on all ranks; their blocked calls return at once. Any thread, at
 * any time, but not in a signal handler; does not block. `reason` (may be NULL) is copied into the
 * report. The first cause stays: on a group that has failed already this does nothing and returns
 * LS_OK. All later calls of this rank on the group fail. If another thread of this rank is still
 * preparing the report of an earlier failure, these calls first wait for that report, for about a
 * second at most (two, on several hosts). */
LS_EXPORT LS_CHECKED ls_status ls_group_abort(ls_group *group, const char *reason);

/* This rank's number in the group, from 0, and the number of its members. Local; any thread. -1 if
 * `group` is NULL or closed. */
LS_EXPORT int ls_group_rank(const ls_group *group);
LS_EXPORT int ls_group_size(const ls_group *group);

/* Why the group has failed; out->status is LS_OK while it has not. Local; any thread; does not
 * block.
 * Errors: LS_BAD_ARGUMENT, LS_FORKED. */
LS_EXPORT LS_CHECKED ls_status ls_group_failure(ls_group *group, struct ls_failure *out);

#ifdef __cplusplus
}
#endif
#endif
