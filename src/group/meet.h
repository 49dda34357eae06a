/* SPDX-License-Identifier: BSD-3-Clause
 * Members of a group to be made come together by themselves: see meet.c. */
#ifndef GROUP_MEET_H
#define GROUP_MEET_H

#include "base/ranks.h"
#include "group_private.h"

/* ---- meet.c ---- */

/* What a rank tells of a group to be made. */
struct group_offer {
	/* of a split: colour << 32 | key, in the order of keys; else the hash of the list */
	uint64_t what;
	uint64_t left;   /* as `stays` in struct group_making */
	uint32_t id;     /* of the group, should this rank be its first member */
	uint16_t area;   /* 0: none */
	uint8_t members; /* for how many its memory is enough */
	bool reports;    /* whether it has memory for reports */
};
struct group_list {
	uint64_t site;
	uint32_t label; /* as in struct trace_record */
	int32_t count;
	uint8_t ranks[RANKS_HOST_MAX];
};
/* What each member tells the others. */
struct group_card {
	struct group_offer offer;
	struct group_list list;
	uint32_t serial; /* of the call; no other call of any rank has it. Never 0 */
};

struct group_meeting {
	ls_group *parent;
	const struct ls_op_options *options; /* of the messages */
	struct group_card mine;
	struct ls_group *offered; /* the object of my offer, NULL: none */
	/* Of LS_OK: of each member, at the place of its rank of the parent. */
	struct group_offer offers[RANKS_HOST_MAX];
	/* Of LS_INCONSISTENT. */
	int differs;
	struct group_card other;
};

/* Blocking. LS_OK: all of my list have given the same one, and all get LS_OK with the same offers.
 * LS_INCONSISTENT: one of them has given another; nobody will get LS_OK with this offer of mine,
 * and it is withdrawn. Else what messages end with: then others may have LS_OK with it. */
ls_status group_meet(struct group_meeting *meeting);

/* ---- member_allgather.c: once they have ---- */

struct group_participants {
	const uint8_t *ranks; /* of the parent, with my own */
	int count;
	const struct ls_op_options *options; /* of the messages */
};

/* Each tells `bytes` to all; those of rank q go to place q of `all`. Blocking. Errors: what
 * messages end with. */
ls_status group_member_allgather(ls_group *parent, const struct group_participants *participants,
				 const void *mine, void *all, size_t bytes);

#endif
