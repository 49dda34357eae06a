/* SPDX-License-Identifier: BSD-3-Clause
 * ls_group_from_members: the members of the new group find each other by messages. See
 * from_members.c. */
#ifndef GROUP_FROM_MEMBERS_H
#define GROUP_FROM_MEMBERS_H

#include "base/ranks.h"
#include "group/group_private.h"

/* ---- from_members.c ---- */

/* What a rank offers for a group to be made. */
struct group_offer {
	/* of a split: color << 32 | key, in the order of keys; otherwise the hash of the list */
	uint64_t what;
	uint64_t left; /* as `left_before` in struct group_making */
	uint32_t id;   /* the group's id, if this rank becomes its first member */
	uint16_t area; /* 0: none */
	/* For how many members the area has memory << 1; | 1: it has memory for reports, too. */
	uint16_t room;
};
_Static_assert(RANKS_WORLD_MAX < 1 << 15, "a number of members");
/* A list of ranks, as far as other ranks need to know it. They compare its hash. */
enum { GROUP_LIST_SHOWN = 32 };
struct group_list {
	uint64_t site;
	uint32_t label; /* as in struct trace_record */
	int32_t count;
	uint16_t ranks[GROUP_LIST_SHOWN]; /* the first ranks of the list */
};
/* The message that each member sends to the others. */
struct group_card {
	struct group_offer offer;
	struct group_list list;
	uint32_t serial; /* identifies the call among all calls of all ranks; never 0 */
};

struct group_meeting {
	ls_group *parent;
	const struct ls_call_options *options; /* of the messages */
	const uint16_t *ranks;                 /* the whole list: mine.list.count ranks */
	struct group_card mine;
	struct ls_group *offered; /* the object of my offer; NULL: none */
	/* With LS_OK: the offer of each member, by its rank in the parent. */
	struct group_offer offers[RANKS_WORLD_MAX];
	/* With LS_INCONSISTENT: the rank whose list differs, and its message. */
	int differs;
	struct group_card other;
};

/* Blocking. LS_OK: all ranks of my list have passed the same list, and all get LS_OK with the same
 * offers. LS_INCONSISTENT: one of these ranks has passed another list; no rank will get LS_OK with
 * this offer, which is withdrawn, and the parent has not failed. Otherwise the error of a message:
 * then other ranks may have got LS_OK with this offer. */
ls_status group_meet(struct group_meeting *meeting);

/* ---- member_allgather.c: after the meeting ---- */

struct group_participants {
	const uint16_t *ranks; /* ranks in the parent, this rank among them */
	int count;
	const struct ls_call_options *options; /* of the messages */
};

/* An all-gather of `bytes` among the participants; the bytes of rank q go to place q of `all`.
 * Blocking. Errors: those of messages. */
ls_status group_member_allgather(ls_group *parent, const struct group_participants *participants,
				 const void *mine, void *all, size_t bytes);

#endif
