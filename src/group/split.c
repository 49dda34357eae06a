/* SPDX-License-Identifier: BSD-3-Clause
 * Groups made from a group. In one all-gather all its ranks exchange their arguments, and the clean
 * area of their segment that the new group can have. All ranks see the same data, so they compute
 * the same members, or the same error. Only if some area has too little memory, a second round
 * tells whether the system had enough. */
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "group/group_private.h"
#include "group/from_members.h"
#include "group/arguments.h"
#include "group/group.h"

_Static_assert(sizeof(struct group_offer) <= TRANSPORT_TINY_BYTES, "one cache line each");

/* In place of `what`: this rank joins no group; it was called with wrong arguments. */
#define NONE (UINT64_C(0xffffffff) << 32)
#define WRONG (NONE + 1)

/* A call in progress. */
struct request {
	const char *function;
	struct ls_group *parent;
	enum trace_kind kind;
	const void *site;
	struct group_participants *participants; /* NULL: all ranks of the parent take part */
	struct ls_group *mine; /* NULL: not to be a member, or no group object is free */
	struct group_offer offers[RANKS_WORLD_MAX];
	struct ranks members; /* ranks of the parent that are to be members of some new group */
	bool short_of_memory;
	struct group_making making; /* size 0: this rank is in no new group */
};

/* ---- ids ---- */

static bool is_used(const struct ls_group *group, uint32_t id)
{
	while (group && group->id != id)
		group = group->next;
	return group;
}

/* 1 + number * world size + rank, so no other rank returns it. Numbers start again after some
 * thousand millions, and then skip those of groups that still exist. */
static uint32_t next_id(struct world *world)
{
	uint32_t size = (uint32_t)world->size, last = (UINT32_MAX - 2 * size) / size, id;
	lock_rank_acquire(&world->lock);
	do {
		if (world->number == last) {
			world->number = 0;
			world->numbers_again = true;
		}
		id = 1 + ++world->number * size + (uint32_t)world->rank;
	} while (world->numbers_again && (is_used(world->open, id) || is_used(world->closed, id)));
	lock_rank_release(&world->lock);
	return id;
}

/* ---- offers ---- */

static void give_object_back(struct request *request)
{
	if (request->mine)
		group_free(request->mine);
	request->mine = NULL;
}

static struct group_offer make_offer(struct request *request, uint64_t what, bool joins)
{
	struct world *world = request->parent->world;
	struct group_offer mine = {.what = what};
	if (joins)
		request->mine = group_alloc(world, request->function);
	if (request->mine) {
		const struct ls_group *group = request->mine;
		mine.area = group->area;
		mine.room = (uint16_t)(group->memory_members << 1 | group->memory_reports);
		mine.left = atomic_load(&group_own_area(group)->times_closed);
		mine.id = next_id(world);
	}
	return mine;
}

static ls_status exchange_bytes(struct request *request, const void *mine, void *all, size_t bytes)
{
	if (request->participants)
		return group_member_allgather(request->parent, request->participants, mine, all,
					      bytes);
	return group_exchange(request->parent, request->kind, mine, all, bytes, request->site);
}

/* All ranks exchange `what`. An error here is the failure of the parent. Other ranks may not have
 * seen it, and so may have the new group, with my area. */
static ls_status exchange_offers(struct request *request, uint64_t what, bool joins)
{
	struct group_offer mine = make_offer(request, what, joins);
	ls_status status = exchange_bytes(request, &mine, request->offers, sizeof mine);
	if (status != LS_OK && request->mine)
		group_retire(request->mine);
	return status;
}

static ls_status say_refusal(const struct request *request, int rank, ls_status status)
{
	if (rank != request->parent->rank)
		MESSAGE_SAY(MESSAGE_GROUP_PART, request->function,
			    world_rank_of(request->parent, rank), ls_status_name(status));
	return status;
}

/* Checks whether all ranks that are to be members can be members. */
static ls_status check_offers(const struct request *request)
{
	for (int q = 0; q < request->parent->size; q++)
		if (ranks_have(&request->members, q) && request->offers[q].area == 0)
			return say_refusal(request, q, LS_OUT_OF_MEMORY);
	return LS_OK;
}

static ls_status first_wrong(const struct request *request)
{
	for (int q = 0; q < request->parent->size; q++)
		if (request->offers[q].what == WRONG)
			return say_refusal(request, q, LS_BAD_ARGUMENT);
	return LS_OK;
}

/* ---- members ---- */

static bool share_host(const struct ls_group *parent, int one, int other)
{
	return parent->team.hosts[one] == parent->team.hosts[other];
}

/* Whether a member is the first on its host: its area has the words that all members there
 * write. */
static bool is_first_of_host(const struct ls_group *parent, const uint16_t *ranks, int i)
{
	for (int j = 0; j < i; j++)
		if (share_host(parent, ranks[j], ranks[i]))
			return false;
	return true;
}

/* Adds one group: ranks[0 … count - 1] of the parent. */
static void add_members(struct request *request, const uint16_t *ranks, int count)
{
	const struct ls_group *parent = request->parent;
	struct group_making *making = &request->making;
	int place = -1;
	for (int i = 0; i < count; i++) {
		const struct group_offer *offer = &request->offers[ranks[i]];
		ranks_add(&request->members, ranks[i]);
		request->short_of_memory |=
			offer->room >> 1 < count ||
			(is_first_of_host(parent, ranks, i) && !(offer->room & 1)) ||
			!share_host(parent, ranks[0], ranks[i]);
		if (ranks[i] == parent->rank)
			place = i;
	}
	if (place < 0)
		return;
	making->id = request->offers[ranks[0]].id;
	making->parent = parent->id;
	making->timeout_ms = parent->timeout_ms;
	making->rank = place;
	making->size = count;
	for (int i = 0; i < count; i++) {
		const struct group_offer *offer = &request->offers[ranks[i]];
		making->members[i] = (uint16_t)parent->team.members[ranks[i]].world;
		making->areas[i] = offer->area;
		making->left_before[i] = offer->left;
	}
}

/* Ranks in the order of colors, keys, and ranks. */
static void sort_ranks(const struct request *request, uint16_t *ranks)
{
	for (int q = 0; q < request->parent->size; q++) {
		int at = q;
		for (; at > 0 && request->offers[ranks[at - 1]].what > request->offers[q].what; at--)
			ranks[at] = ranks[at - 1];
		ranks[at] = (uint16_t)q;
	}
}

static void divide_by_color(struct request *request)
{
	uint16_t ranks[RANKS_WORLD_MAX];
	int size = request->parent->size;
	sort_ranks(request, ranks);
	for (int first = 0, end; first < size; first = end) {
		uint64_t color = request->offers[ranks[first]].what >> 32;
		for (end = first; end < size; end++)
			if (request->offers[ranks[end]].what >> 32 != color)
				break;
		if (color != NONE >> 32)
			add_members(request, ranks + first, end - first);
	}
}

/* ---- the end ---- */

/* Adds memory to the area of this rank, and to the mirrors of areas of members on other hosts. */
static ls_status add_own_memory(const struct request *request)
{
	const struct group_making *making = &request->making;
	const struct transport *transport = &request->parent->world->transport;
	bool is_first = true;
	ls_status status = LS_OK;
	for (int i = 0; i < making->size && status == LS_OK; i++) {
		const struct transport_peer *peer = &transport->peers[making->members[i]];
		is_first = is_first && (peer->mirror || i >= making->rank);
		if (peer->mirror)
			status = hosts_mirror_grow(transport, making->members[i], making->areas[i]);
	}
	return status == LS_OK ? group_add_memory(request->mine, making->size, is_first) : status;
}

/* Some area needs more memory than it has: all ranks learn whether it could be allocated. */
static ls_status add_memory(struct request *request)
{
	int32_t mine = LS_OK, all[RANKS_WORLD_MAX] = {LS_OK};
	const struct group_making *making = &request->making;
	if (making->size > 0)
		mine = add_own_memory(request);
	ls_status status = exchange_bytes(request, &mine, all, sizeof mine);
	if (status != LS_OK) {
		if (request->mine)
			group_retire(request->mine);
		request->mine = NULL;
		return status;
	}
	for (int q = 0; q < request->parent->size; q++)
		if (all[q] != LS_OK)
			return say_refusal(request, q, (ls_status)all[q]);
	return LS_OK;
}

static ls_status finish_request(struct request *request, ls_group **out)
{
	ls_status status = check_offers(request);
	if (status == LS_OK && request->short_of_memory)
		status = add_memory(request);
	if (status == LS_OK && request->making.size > 0) {
		group_init(request->mine, &request->making);
		*out = request->mine;
		return LS_OK;
	}
	give_object_back(request);
	return status != LS_OK ? status : LS_NOT_MEMBER;
}

static void begin_request(struct request *request, const char *function, ls_group *parent,
			  enum trace_kind kind, const void *site)
{
	request->function = function;
	request->parent = parent;
	request->kind = kind;
	request->site = site;
	request->participants = NULL;
	request->mine = NULL;
	request->members = (struct ranks){{0}};
	request->short_of_memory = false;
	request->making.size = 0;
	request->making.site = (uint64_t)(uintptr_t)site;
	request->making.label = 0;
}

ls_status ls_group_split(ls_group *parent, int color, int key, ls_group **out)
{
	const char *function = "ls_group_split";
	struct request request;
	uint64_t what = (uint64_t)(uint32_t)color << 32 | ((uint32_t)key ^ UINT32_C(1) << 31);
	if (!out)
		return group_bad_state(function, "out", "NULL", "not NULL");
	*out = NULL;
	ls_status status = group_check(function, parent);
	if (status != LS_OK)
		return status;
	if (color < 0)
		what = color == -1 ? NONE : WRONG;
	if (what == WRONG) {
		status = group_bad(function, "color", color,
				   "-1, for no group, or a color from 0 on");
		(void)status; /* the rank takes part nevertheless, so that the others learn of it */
	}
	begin_request(&request, function, parent, TRACE_GROUP_SPLIT, GROUP_SITE);
	status = exchange_offers(&request, what, color >= 0);
	if (status != LS_OK)
		return status;
	status = first_wrong(&request);
	if (status != LS_OK) {
		give_object_back(&request);
		return status;
	}
	divide_by_color(&request);
	return finish_request(&request, out);
}

/* ---- a list of ranks ---- */

/* All ranks of a list, and what the others are told of it. */
struct whole_list {
	struct group_list told;
	uint16_t ranks[RANKS_WORLD_MAX];
};

static bool is_list(const char *function, const ls_group *parent, const int *ranks, int count,
		    struct whole_list *out)
{
	struct ranks seen = {{0}};
	char right[64];
	snprintf(right, sizeof right, "ranks of the group, 0 to %d, each once", parent->size - 1);
	if (!ranks || count < 1 || count > parent->size) {
		ls_status status = group_bad(function, ranks ? "count" : "ranks", ranks ? count : 0,
					     ranks ? "a count from 1 to the size of the group"
						   : "a list of ranks");
		(void)status;
		return false;
	}
	for (int i = 0; i < count; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->size || ranks_have(&seen, ranks[i])) {
			ls_status status = group_bad(function, "ranks", ranks[i], right);
			(void)status;
			return false;
		}
		ranks_add(&seen, ranks[i]);
		out->ranks[i] = (uint16_t)ranks[i];
		if (i < GROUP_LIST_SHOWN)
			out->told.ranks[i] = out->ranks[i];
	}
	out->told.count = count;
	return true;
}

static uint64_t hash_list(const struct whole_list *list)
{
	uint64_t wide[RANKS_WORLD_MAX];
	for (int i = 0; i < list->told.count; i++)
		wide[i] = list->ranks[i];
	return engine_shape(wide, list->told.count) >> 1; /* never NONE or WRONG */
}

static bool has_rank(const struct whole_list *list, int rank)
{
	for (int i = 0; i < list->told.count; i++)
		if (list->ranks[i] == rank)
			return true;
	return false;
}

/* "rank 2 gave 0, 1, 3 (called from a.c:10)": a rank of the job, and the list of the call, which
 * has ranks of the parent. */
static void describe_list(const struct ls_group *parent, const struct group_list *list, int rank,
			  char *out, size_t bytes)
{
	char site[DIAGNOSE_SITE_BYTES] = "";
	const struct trace_view *view = group_view(parent, rank);
	const struct trace_record record = {.site = list->site, .label = list->label};
	int used = snprintf(out, bytes, "rank %d gave", world_rank_of(parent, rank));
	for (int i = 0; i < list->count && i < GROUP_LIST_SHOWN && (size_t)used < bytes; i++)
		used += snprintf(out + used, bytes - (size_t)used, "%s %u", i ? "," : "",
				 list->ranks[i]);
	if (list->count > GROUP_LIST_SHOWN && (size_t)used < bytes)
		used += snprintf(out + used, bytes - (size_t)used, ", … (%d ranks)", list->count);
	if (view)
		trace_site(view, &record, site, sizeof site);
	if (site[0] && (size_t)used < bytes)
		snprintf(out + used, bytes - (size_t)used, " (called from %s)", site);
}

/* All ranks exchange their lists, and print which two differ. */
static ls_status say_difference(struct request *request, const struct group_list *mine)
{
	const struct ls_group *parent = request->parent;
	struct group_list all[RANKS_WORLD_MAX];
	char one[512], two[512];
	int other = 1;
	ls_status status = group_exchange(request->parent, request->kind, mine, all, sizeof *mine,
					  request->site);
	if (status != LS_OK)
		return status;
	while (other < parent->size - 1 && request->offers[other].what == request->offers[0].what)
		other++;
	describe_list(parent, &all[0], 0, one, sizeof one);
	describe_list(parent, &all[other], other, two, sizeof two);
	MESSAGE_SAY(MESSAGE_GROUP_LISTS, request->function, one, two);
	return LS_INCONSISTENT;
}

static bool all_alike(const struct request *request)
{
	for (int q = 1; q < request->parent->size; q++)
		if (request->offers[q].what != request->offers[0].what)
			return false;
	return true;
}

ls_status ls_group_from_ranks(ls_group *parent, const int *ranks, int count, ls_group **out)
{
	const char *function = "ls_group_from_ranks";
	struct request request;
	struct whole_list list = {.told.site = (uintptr_t)GROUP_SITE};
	if (!out)
		return group_bad_state(function, "out", "NULL", "not NULL");
	*out = NULL;
	ls_status status = group_check(function, parent);
	if (status != LS_OK)
		return status;
	/* A rank with wrong arguments takes part nevertheless, so that the others learn of it. */
	bool good = is_list(function, parent, ranks, count, &list);
	begin_request(&request, function, parent, TRACE_GROUP_FROM_RANKS, GROUP_SITE);
	status = exchange_offers(&request, good ? hash_list(&list) : WRONG,
				 good && has_rank(&list, parent->rank));
	if (status != LS_OK)
		return status;
	status = first_wrong(&request);
	if (status == LS_OK && !all_alike(&request))
		status = say_difference(&request, &list.told);
	if (status != LS_OK) {
		give_object_back(&request);
		return status;
	}
	add_members(&request, list.ranks, list.told.count);
	return finish_request(&request, out);
}

/* ---- ls_group_from_members ---- */

/* Returns when all ranks of the list have sent their offers, or this rank has received another
 * list. */
static ls_status meet_members(struct request *request, const struct whole_list *list,
			      const struct ls_call_options *options)
{
	struct ls_group *parent = request->parent;
	struct group_meeting meeting = {.parent = parent, .options = options, .ranks = list->ranks};
	char one[512], two[512];
	meeting.mine.list = list->told;
	meeting.mine.offer = make_offer(request, hash_list(list), true);
	meeting.mine.serial = next_id(parent->world);
	meeting.offered = request->mine;
	ls_status status = group_meet(&meeting);
	if (status == LS_INCONSISTENT) {
		describe_list(parent, &list->told, parent->rank, one, sizeof one);
		describe_list(parent, &meeting.other.list, meeting.differs, two, sizeof two);
		MESSAGE_SAY(MESSAGE_GROUP_LISTS, request->function, one, two);
		give_object_back(request);
	} else if (status != LS_OK && request->mine) {
		group_retire(request->mine); /* other members may use its area */
		request->mine = NULL;
	}
	memcpy(request->offers, meeting.offers, sizeof request->offers);
	return status;
}

ls_status ls_group_from_members(ls_group *parent, const int *ranks, int count,
				const struct ls_call_options *given, ls_group **out)
{
	const char *function = "ls_group_from_members";
	struct request request;
	struct ls_call_options options;
	struct whole_list list = {.told.site = (uintptr_t)GROUP_SITE};
	if (!out)
		return group_bad_state(function, "out", "NULL", "not NULL");
	*out = NULL;
	ls_status status = group_begin(function, parent, given, &options);
	if (status != LS_OK)
		return status;
	function = group_caller(function, &options);
	if (options.request || options.callback)
		return group_bad_state(function, "options", "one with op or a callback",
				       "one without");
	if (!is_list(function, parent, ranks, count, &list))
		return LS_BAD_ARGUMENT;
	if (!has_rank(&list, parent->rank))
		return group_bad(function, "ranks", parent->rank, "a list with the rank that calls");
	uint32_t timeout_ms = options.timeout_ms;
	options.timeout_ms = 0; /* the limit is for the new group, not for the messages */
	begin_request(&request, function, parent, TRACE_GROUP_FROM_RANKS, GROUP_SITE);
	if (options.label)
		request.making.label = trace_label(&parent->world->trace, options.label);
	options.label = function;
	list.told.label = request.making.label;
	status = meet_members(&request, &list, &options);
	if (status != LS_OK)
		return status;
	struct group_participants participants = {
		.ranks = list.ranks, .count = list.told.count, .options = &options};
	request.participants = &participants;
	add_members(&request, list.ranks, list.told.count);
	if (timeout_ms)
		request.making.timeout_ms = timeout_ms;
	return finish_request(&request, out);
}
