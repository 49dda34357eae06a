/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that peers access: the calls of lockstep/memory.h. ls_register is one collective in two
 * exchanges: all ranks announce their memory, and each maps that of the others; then they agree
 * that every rank could. Only after that a rank treats a buffer as registered. */
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

ls_status ls_alloc(ls_group *group, size_t bytes, void **out)
{
	if (out)
		*out = NULL;
	if (!group || !out)
		return group_bad_state("ls_alloc", group ? "out" : "group", "NULL", "not NULL");
	if (!world_is_usable(group))
		return group_not_open("ls_alloc", group);
	ls_status status = memory_alloc_for_user(&group->world->memory, bytes, out);
	if (status == LS_OK)
		group_races_alloc(group, *out, bytes);
	return status;
}

ls_status ls_free(ls_group *group, void *block)
{
	if (!block)
		return LS_OK;
	if (!group)
		return memory_free_kept(block, trace_caller_text);
	if (!world_is_usable(group))
		return group_is_closed(group) ? group_not_open("ls_free", group) : LS_OK;
	ls_status status = group_races_free(group, block, GROUP_SITE);
	if (status != LS_OK)
		return status;
	/* Another rank has handed over a block of its arena. */
	struct memory *memory = &group->world->memory;
	bool mine = (uintptr_t)block - (uintptr_t)memory->base < memory->bytes;
	if (!mine && mailbox_give_back(group->mailbox, block))
		return LS_OK;
	return memory_free(memory, block, trace_caller_text);
}

/* What a rank tells the others. */
struct offer {
	uint64_t status; /* its arguments are right, or why not */
	uint64_t fresh;  /* some member may not have mapped the range yet */
	struct memory_region_name name;
};

/* Notes that the members have mapped the range. Perhaps all ranks have it now. */
static void note_mapped(const ls_group *group, struct memory_region *region)
{
	struct ranks have = memory_region_peers(region),
		     members = transport_team_ranks(&group->team);
	struct ranks all = ranks_below(group->world->size);
	ranks_join(&have, &members);
	memory_region_show(region, ranks_are_in(&all, &have) ? NULL : &members);
}

static bool have_mapped(const ls_group *group, const struct memory_region *region)
{
	struct ranks have = memory_region_peers(region),
		     members = transport_team_ranks(&group->team);
	return ranks_are_in(&members, &have);
}

static struct memory_region *make_offer(const ls_group *group, void *address, size_t bytes, int fd,
					uint64_t offset, struct offer *out)
{
	struct memory *memory = &group->world->memory;
	*out = (struct offer){.status = LS_OK};
	if (bytes == 0)
		return NULL;
	out->status = memory_region_check(address, bytes, fd, offset, &out->name);
	if (out->status != LS_OK)
		return NULL;
	struct memory_region *region = memory_region_find(memory, address, &out->name);
	out->fresh = !region || !have_mapped(group, region);
	if (!region)
		region = memory_region_add(memory, address, &out->name);
	if (region)
		out->name.offset = region->name.offset;
	else
		out->status = LS_OUT_OF_MEMORY;
	return region;
}

/* LS_OK if all ranks can go on. Otherwise a message names the first rank that cannot, unless this
 * one cannot either: it has said why. */
static ls_status first_refusal(const ls_group *group, const struct offer *offers)
{
	for (int q = 0; q < group->size; q++) {
		ls_status status = (ls_status)offers[q].status;
		if (status == LS_OK)
			continue;
		if (offers[group->rank].status == LS_OK)
			MESSAGE_SAY(MESSAGE_GROUP_REGISTER, world_rank_of(group, q),
				    ls_status_name(status));
		return status;
	}
	return LS_OK;
}

/* Maps the ranges of all ranks of this host, also its own: a message of a rank to itself is found
 * as any other. Between hosts the link copies. */
static ls_status map_offers(ls_group *group, const struct offer *offers)
{
	ls_status status = LS_OK;
	for (int q = 0; q < group->size && status == LS_OK; q++) {
		struct transport_member *member = &group->team.members[q];
		if (offers[q].fresh && !member->peer->mirror)
			status = memory_view_add(&member->peer->arena, member->world,
						 &offers[q].name);
	}
	return status;
}

ls_status ls_register(ls_group *group, void *address, size_t bytes, int fd, uint64_t offset,
		      const struct ls_call_options *given)
{
	const void *site = GROUP_SITE;
	struct ls_call_options options;
	struct offer mine, offers[RANKS_WORLD_MAX];
	ls_status status = group_begin("ls_register", group, given, &options);
	if (status != LS_OK)
		return status;
	if (options.request || options.callback)
		return group_bad_state(group_caller("ls_register", &options), "options",
				       "one with op or a callback", "one without");
	struct world *world = group->world;
	struct memory_region *region = make_offer(group, address, bytes, fd, offset, &mine);
	status = group_allgather(group, &mine, offers, sizeof mine, LS_UINT8, &options, site);
	if (status == LS_OK)
		status = first_refusal(group, offers);
	if (status != LS_OK)
		return status;
	int32_t found = (int32_t)map_offers(group, offers), agreed = LS_OK;
	status = group_allreduce(group, &found, &agreed, 1, LS_INT32, LS_MAX, &options, site);
	if (status != LS_OK || agreed != LS_OK)
		return status != LS_OK ? status : (ls_status)agreed;
	if (region && mine.fresh)
		note_mapped(group, region);
	else if (region)
		atomic_fetch_add_explicit(&world->registered_again, 1, memory_order_relaxed);
	return LS_OK;
}

ls_status ls_deregister(ls_group *group, const void *address)
{
	if (!group || !address)
		return group_bad_state("ls_deregister", group ? "address" : "group", "NULL",
				       "not NULL");
	if (!world_is_usable(group))
		return group_is_closed(group) ? group_not_open("ls_deregister", group) : LS_OK;
	if (memory_region_remove(&group->world->memory, address))
		return LS_OK;
	return group_bad("ls_deregister", "address", (uintptr_t)address,
			 "where a registered range begins");
}

ls_status ls_memory_stats(ls_group *group, struct ls_memory_stats *out)
{
	struct ls_memory_stats all = {0};
	struct memory_stats stats;
	if (!group)
		return group_bad_state("ls_memory_stats", "group", "NULL",
				       "a group from ls_group_open");
	if (!out || out->size < 8 || out->size > sizeof all)
		return group_bad("ls_memory_stats", out ? "out->size" : "out", out ? out->size : 0,
				 "sizeof(struct ls_memory_stats)");
	if (!world_is_usable(group))
		return group_not_open("ls_memory_stats", group);
	memory_stats(&group->world->memory, &stats);
	all.size = out->size;
	all.arena_bytes = stats.bytes;
	all.live_bytes = stats.live;
	all.cached_bytes = stats.cached;
	all.hits = stats.hits;
	all.misses = stats.misses;
	memory_regions(&group->world->memory, &all.registered, &all.registered_bytes);
	all.registered_again = atomic_load(&group->world->registered_again);
	all.registrable = (uint64_t)memory_regions_left(&group->world->memory);
	memcpy(out, &all, out->size);
	return LS_OK;
}
