/* SPDX-License-Identifier: BSD-3-Clause
 * Process groups. What their ranks do together is in collective.h and p2p.h. See ls_group(3).
 *
 * Threads: a group may be used from any thread of the process that opened it. Collectives of one
 * group are numbered in the order of their calls, and that order must be the same on all ranks; so
 * two threads that call collectives on one group without ordering them are a bug, which is found
 * like any other mismatch. Sends and receives may run beside collectives and beside each other.
 *
 * Blocking: every operation returns when its part is done, when it has failed, or at its time-out; or at
 * once, if it is asked to run beside the caller (op.h).
 *
 * Buffers: any memory. Memory from ls_alloc is reached by peers without a copy, and so is faster.
 * After an error no peer touches the caller's buffer any more; its content is undefined. Only after
 * LS_SYSTEM a stopped peer still may: the system had no memory left to take the buffer away from it.
 *
 * Again: a world can be opened again after all ranks have closed it, except under `lockstep run`, which
 * serves one meeting for each launch: there a program that cannot go on ends, and is started again.
 *
 * Failure: a status with scope LS_SCOPE_GROUP closes the group for good: every later call on it
 * returns the same status at once, on every surviving rank; ls_group_failure tells the cause.
 *
 * Fork: in a child that was forked without exec every call that would touch the group returns
 * LS_FORKED, and ls_free and ls_group_close do nothing. */
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
	/* Time limit of ls_group_open itself in milliseconds; 0: setting LOCKSTEP_OPEN_TIMEOUT_MS. */
	uint32_t open_timeout_ms;
	/* Which rank of how many the caller is. Read only when `rendezvous` is set; otherwise the
	 * launcher's environment says it (RANK, WORLD_SIZE). */
	int32_t rank;
	int32_t world_size;
	/* Not 0: a signal handler that runs while a thread waits ends nothing, also in groups made from this one.
	 * Blocking calls wait on. ls_wait and ls_wait_any without a time limit return LS_PENDING then, and every 50 ms
	 * in any case, as a handler may have run just before; the caller sees to it and waits again at once, for a
	 * deadlock is proved as if he had never left. For languages whose handlers run after the call, such as Python.
	 * 0: LS_INTERRUPTED closes the group, or ends ls_group_open, unless the handler was installed with SA_RESTART. */
	uint32_t resume_after_signals;
	/* Where ranks meet: "unix:NAME" (an abstract Unix socket) or "tcp:127.0.0.1:PORT"; rank 0 listens
	 * there. NULL: from the environment (lockstep run, torchrun, or MASTER_ADDR and MASTER_PORT). */
	const char *rendezvous;
	/* Not 0: blocks of ls_alloc that are in use when this group is closed stay, with what is in them, until
	 * ls_free(NULL, block). For languages that free memory some time after nobody looks at it any more. 0: closing
	 * frees all blocks. */
	uint32_t keep_memory;
};

/* Why a group is closed. */
struct ls_failure {
	uint32_t size;    /* set by the caller: sizeof(struct ls_failure) */
	ls_status status; /* LS_OK while the group is open */
	int32_t rank; /* the rank of the group that is to blame, -1 if there is no single one in it */
	int32_t pid;        /* its process, as this process numbers it; 0: none, or not known */
	uint64_t operation; /* number of the operation that could not go on, from 1; 0 if none */
	/* The report, several lines, no terminal colours, NUL-terminated. Its ranks are those of ls_group_open. */
	char text[2048];
};

/* Opens the group of all ranks: meets them, connects to every one of them, maps their memory.
 * Collective and blocking; all ranks return the same status. *out is NULL on failure, and the reason
 * was said on standard error. Errors: LS_BAD_ARGUMENT, LS_WRONG_WORLD_SIZE, LS_DUPLICATE_RANK,
 * LS_RANK_MISSING, LS_PEER_DIED, LS_PORT_TAKEN, LS_NO_MASTER, LS_UNTRUSTED_PEER, LS_WRONG_VERSION, LS_OUT_OF_MEMORY,
 * LS_UNSUPPORTED, LS_INTERRUPTED, LS_SYSTEM, LS_INCONSISTENT (of settings that all ranks need alike). */
LS_EXPORT LS_CHECKED ls_status ls_group_open(const struct ls_group_options *options, ls_group **out);

/* Divides `parent` into groups: ranks that give the same colour (>= 0) are members of one, in the order of
 * their keys, and of their ranks in `parent` where keys are equal. With a colour of -1 a rank is in none:
 * LS_NOT_MEMBER, *out NULL, which is no error. Collective over `parent`, blocking: it returns when all have
 * come. The new group has the time-out of `parent`, order, operations and failures of its own; the same
 * members twice give two groups that know nothing of each other. Close it before the group of ls_group_open.
 * In the order of the parent's collectives it is one, which another one there does not match. Errors: as
 * ls_collective(3); on all ranks, with `parent` open: LS_OUT_OF_MEMORY, if some rank is in 512 groups already
 * (which count until all members have closed them), LS_BAD_ARGUMENT, if some rank's arguments are wrong. */
LS_EXPORT LS_CHECKED ls_status ls_group_split(ls_group *parent, int colour, int key, ls_group **out);

/* Makes a group of `count` ranks of `parent`, in this order. Collective over `parent`: all its ranks call
 * it, with the same list; one that is not in it gets LS_NOT_MEMBER, *out NULL. Lists that differ are
 * LS_INCONSISTENT on all ranks, with both lists in the message, and `parent` stays open. Otherwise as
 * ls_group_split. */
LS_EXPORT LS_CHECKED ls_status ls_group_from_ranks(ls_group *parent, const int *ranks, int count,
						   ls_group **out);

struct ls_op_options; /* op.h */

/* The same, but only the ranks of the list call it, and the others need not know. It takes no place in the order
 * of the parent's collectives: the members tell each other by messages on `parent`, with options->tag, which no
 * other receive of theirs may take meanwhile. Of the options tag and label are used, and
 * timeout_ms for the operations of the new group (0: the time limit of `parent`). LS_BAD_ARGUMENT:
 * this rank is not in its own list. LS_INCONSISTENT: the list of another member, that this rank has heard of, is not the
 * same; no group is made with this call. That member is told as well if it listens within a second, else once this rank
 * calls again. Both leave `parent` open and no message behind. After LS_INCONSISTENT the call may be made again at once,
 * with the same tag: once all of a list give it, all have the group, also those that have waited meanwhile. */
LS_EXPORT LS_CHECKED ls_status ls_group_from_members(ls_group *parent, const int *ranks, int count,
						     const struct ls_op_options *options,
						     ls_group **out);

/* The open group of ls_group_split, ls_group_from_ranks or ls_group_from_members, made from `parent`, that has just these members
 * in this order (the one made last, if there are several); NULL if there is none. Never makes one. */
LS_EXPORT ls_group *ls_group_get(ls_group *parent, const int *ranks, int count);

/* Which rank of `other` is the process that is rank `rank` of `group`; -1 if it is none. Both of one world. */
LS_EXPORT int ls_group_rank_in(const ls_group *group, int rank, const ls_group *other);

/* Leaves and frees the group. Local: it waits for nobody, and peers that still need this rank get
 * LS_PEER_LEFT. Frees all memory of ls_alloc, if it is the group of ls_group_open, which is closed last;
 * groups made from it that are still open are closed with it, and a warning names them. No other thread may be
 * inside a call on the group. Says on standard error which messages nobody will receive any more; with the setting
 * CHECK the group fails for that with LS_ABORTED. NULL is allowed.
 * Collectives of this rank that other members have called differently, or one that it has called more or less often,
 * are found here at the latest, though all calls have returned LS_OK: members that are still in the group get
 * LS_MISMATCH or LS_PEER_LEFT; the others are told on standard error, and by the exit status of `lockstep run`. Who
 * wants a status ends with ls_barrier. */
LS_EXPORT void ls_group_close(ls_group *group);

/* Closes the group with LS_ABORTED on all ranks; their blocked calls return at once. From any thread,
 * at any time; does not block. `reason` (may be NULL) is copied into the report. The first cause
 * stays: on a group that has failed already this does nothing and returns LS_OK. */
LS_EXPORT LS_CHECKED ls_status ls_group_abort(ls_group *group, const char *reason);

/* -1 if group is NULL. */
LS_EXPORT int ls_group_rank(const ls_group *group);
LS_EXPORT int ls_group_size(const ls_group *group);

/* Why the group is closed; out->status is LS_OK while it is open. Does not block. */
LS_EXPORT LS_CHECKED ls_status ls_group_failure(ls_group *group, struct ls_failure *out);

#ifdef __cplusplus
}
#endif
#endif
