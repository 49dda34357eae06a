/* SPDX-License-Identifier: BSD-3-Clause
 * Group objects: what one rank needs for one group, including an area of its segment, which stays
 * the object's forever. An object is reused for another group without mapping, allocating or
 * clearing anything that the last group did not use. That may happen only after all members of the
 * last group have left it, because until then they may read the area. A rank resets an area before
 * it offers it to others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "hosts/hosts.h"
#include "failure/failure.h"
#include "progress/lane.h"
#include "progress/warn.h"
#include "progress/progress.h"
#include "p2p/p2p.h"
#include "group/group_private.h"

_Static_assert((int)TRACE_GROUP_MAX == (int)TRANSPORT_AREAS, "an entry of the trace for each area");

enum { ROOM_MS = 600 }; /* how long a new group waits for the progress thread to free an object */

/* ---- objects ---- */

/* Objects are never freed. After its world is closed an object stays readable for a program that
 * uses a group after it has closed it: each call then says so. Until it is used again. */
struct object {
	struct ls_group group; /* first, so that a group's address is that of its object */
	struct object *older;
	_Atomic bool is_used;
};

/* All objects of all ranks of this process, the newest first. None is ever removed, so a thread
 * needs no lock to look for an unused one: a process may fork while another of its threads is
 * here. */
static struct object *_Atomic objects;

/* NULL: all are in use. */
static struct object *use_again(void)
{
	for (struct object *object = atomic_load(&objects); object; object = object->older) {
		bool is_used = false;
		if (!atomic_load_explicit(&object->is_used, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&object->is_used, &is_used, true))
			return object;
	}
	return NULL;
}

/* NULL: no memory. */
static struct ls_group *acquire_object(void)
{
	struct object *object = use_again();
	if (object)
		return &object->group;
	object = aligned_alloc(_Alignof(struct object), sizeof *object);
	if (!object)
		return NULL;
	atomic_init(&object->is_used, true);
	object->older = atomic_load(&objects);
	while (!atomic_compare_exchange_weak(&objects, &object->older, object))
		;
	return &object->group;
}

static void destroy_object(struct ls_group *group)
{
	mailbox_fini(group->mailbox);
	group->mailbox = NULL;
	engine_fini(&group->engine);
	hosts_team_fini(&group->team);
	transport_team_fini(&group->team);
	progress_lane_fini(group);
	group->fork_generation = FORK_NEVER; /* if opening the world failed, nobody has left it */
	atomic_store(&((struct object *)group)->is_used, false);
}

/* Clears all but the long arrays of the lane, with room for each rank that a job can have: these
 * are written before they are read, and in a small job most of their memory is never touched. */
static void clear_object(struct ls_group *group)
{
	const size_t workspace = offsetof(struct ls_group, lane.workspace);
	const size_t item = offsetof(struct ls_group, lane.unattended);
	const size_t words = offsetof(struct ls_group, lane.words);
	const size_t rest = offsetof(struct ls_group, lane.followers);
	char *at = (char *)group;
	memset(at, 0, workspace);
	memset(at + item, 0, words - item);
	memset(at + rest, 0, sizeof *group - rest);
}

/* Area 0 is that of the world group, and already has memory. */
static struct ls_group *create_object(struct world *world, uint32_t area, const char *function)
{
	struct ls_group *group = acquire_object();
	if (!group) {
		MESSAGE_SAY(MESSAGE_GROUP_MEMORY, function, sizeof *group);
		return NULL;
	}
	clear_object(group);
	group->fork_generation = FORK_NEVER;
	group->world = world;
	group->area = (uint16_t)area;
	group->memory_members = area == 0 ? (uint16_t)world->size : 0;
	group->memory_reports = area == 0;
	progress_lane_init(group);
	ls_status status = transport_team_init(&group->team, &world->transport);
	if (status == LS_OK)
		status = hosts_team_init(&group->team);
	if (status != LS_OK)
		MESSAGE_SAY(MESSAGE_GROUP_MEMORY, function,
			    (size_t)world->size * sizeof *group->team.channels);
	if (status == LS_OK)
		status = engine_init(&group->engine, &group->team, &world->trace, &world->memory,
				     &world->settings);
	if (status == LS_OK)
		status = mailbox_init(&group->mailbox, &group->team, &world->memory,
				      &world->settings);
	if (status == LS_OK)
		return group;
	destroy_object(group);
	return NULL;
}

/* Whether no member uses the area any more. */
static bool is_left_by_all(const struct ls_group *group)
{
	if (atomic_load_explicit(&group->holders, memory_order_acquire) > 0 ||
	    failure_ends_are_due(group))
		return false;
	for (int q = 0; q < group->size; q++) {
		const struct wait_peer *peer = &group->peers[group->team.members[q].world];
		if (!wait_peer_has_left(peer) && !wait_peer_is_dead(peer))
			return false;
	}
	return true;
}

/* Makes the object ready for another group. */
static void reset_object(struct ls_group *group)
{
	mailbox_free_left(group->mailbox);
	transport_area_reset(&group->world->transport, group->area, group->size,
			     atomic_load(&group->trace_entry->entered));
	for (int q = 0; q < group->size; q++)
		group->peers[group->team.members[q].world] = (struct wait_peer){0};
}

/* Takes closed groups that all members have left out of their list. */
static struct ls_group *take_left(struct world *world) LOCK_REQUIRES(rank)
{
	struct ls_group **at = &world->closed, *left = NULL;
	while (*at) {
		struct ls_group *group = *at;
		if (!is_left_by_all(group)) {
			at = &group->next;
			continue;
		}
		*at = group->next;
		group->next = left;
		left = group;
	}
	world->clearing += left != NULL;
	return left;
}

/* Makes these groups spare, except those of which a link still uses buffers. */
static void clear_left(struct world *world, struct ls_group *left)
{
	struct ls_group *next;
	for (struct ls_group *group = left; group; group = next) {
		bool free = hosts_team_close(&group->team);
		next = group->next;
		if (free)
			reset_object(group);
		lock_rank_acquire(&world->lock);
		struct ls_group **list = free ? &world->spare : &world->closed;
		group->next = *list;
		*list = group;
		lock_rank_release(&world->lock);
	}
	lock_rank_acquire(&world->lock);
	world->clearing--;
	lock_rank_release(&world->lock);
}

/* *full: all objects are in use. */
static struct ls_group *take_object(struct world *world, const char *function, bool *full)
{
	lock_rank_acquire(&world->lock);
	struct ls_group *left = world->spare ? NULL : take_left(world);
	lock_rank_release(&world->lock);
	if (left)
		clear_left(world, left);
	lock_rank_acquire(&world->lock);
	struct ls_group *group = world->spare;
	uint32_t area = world->object_count;
	*full = !group && area == TRANSPORT_AREAS;
	if (group)
		world->spare = group->next;
	else if (!*full)
		/* counts also if there is no memory, because then this rank cannot continue */
		world->object_count++;
	lock_rank_release(&world->lock);
	return group || *full ? group : create_object(world, area, function);
}

/* Whether another thread has spare objects in a moment. */
static bool is_clearing(struct world *world)
{
	lock_rank_acquire(&world->lock);
	bool clearing = world->clearing > 0;
	lock_rank_release(&world->lock);
	return clearing;
}

struct ls_group *group_alloc(struct world *world, const char *function)
{
	uint64_t until_ns = clock_deadline_ns(ROOM_MS);
	bool full;
	struct ls_group *group = take_object(world, function, &full);
	while (full && clock_now_ns() < until_ns &&
	       (is_clearing(world) || progress_thread_release_closed(world)))
		group = take_object(world, function, &full);
	if (full)
		MESSAGE_SAY(MESSAGE_GROUP_MANY, function, TRANSPORT_AREAS - 1);
	return group;
}

void group_free(struct ls_group *group)
{
	struct world *world = group->world;
	lock_rank_acquire(&world->lock);
	group->next = world->spare;
	world->spare = group;
	lock_rank_release(&world->lock);
}

struct transport_area *group_own_area(const struct ls_group *group)
{
	const struct transport *transport = &group->world->transport;
	return transport_area_at(transport->segment, transport->size, group->area);
}

void group_withdraw(struct ls_group *group)
{
	_Atomic uint64_t *left = &group_own_area(group)->times_closed;
	atomic_store(left, atomic_load_explicit(left, memory_order_relaxed) + 1);
}

void group_retire(struct ls_group *group)
{
	struct world *world = group->world;
	_Atomic uint64_t *left = &group_own_area(group)->times_closed;
	wait_store(left, atomic_load_explicit(left, memory_order_relaxed) + 1);
	for (int q = 0; q < world->size; q++) {
		atomic_fetch_add(&world->transport.peers[q].segment->departures, 1);
		transport_notify_world(&world->transport, q);
	}
	transport_notify_all(&group->team);
	atomic_fetch_add(&group->holders, 1);
	lock_rank_acquire(&world->lock);
	group->next = world->closed;
	world->closed = group;
	lock_rank_release(&world->lock);
}

bool group_has_memory(const struct ls_group *group, int members, bool reports)
{
	return group->memory_members >= members && (group->memory_reports || !reports);
}

ls_status group_add_memory(struct ls_group *group, int members, bool reports)
{
	if (group_has_memory(group, members, reports))
		return LS_OK;
	ls_status status =
		transport_area_grow(&group->world->transport, group->area, members, reports);
	if (status != LS_OK)
		return status;
	if (group->memory_members < members)
		group->memory_members = (uint16_t)members;
	group->memory_reports |= reports;
	return LS_OK;
}

/* ---- open ---- */

static void fill_waiters(struct ls_group *group)
{
	struct waiter *waiter = &group->waiter, *quiet = &group->quiet;
	*waiter = group->world->waiter;
	waiter->cause = &transport_head_of(&group->team)->cause;
	waiter->peers = group->peers;
	waiter->peer_count = group->world->size;
	waiter->asleep = &transport_area_of(&group->team, group->rank)->asleep;
	*quiet = *waiter;
	quiet->wait_table = NULL;
	quiet->registry = NULL;
	quiet->cause = NULL;
	quiet->look_ns = 0;
	quiet->look_fd = -1;
}

void group_init(struct ls_group *group, const struct group_making *making)
{
	struct world *world = group->world;
	struct trace_membership membership = {
		.id = making->id,
		.parent = making->parent,
		.size = (uint32_t)making->size,
		.first_area = making->areas[0],
		.rank = making->rank,
		.members = making->members,
	};
	atomic_store(&group->is_closing, false);
	group->fork_generation = world->fork_generation;
	group->id = making->id;
	group->parent = making->parent;
	group->rank = making->rank;
	group->size = making->size;
	group->timeout_ms = making->timeout_ms;
	group->site = making->site;
	group->label = making->label;
	group->failures_before = atomic_load(&world->failures);
	atomic_store(&group->has_failed, false);
	atomic_store(&group->cause_claimed, false);
	atomic_store(&group->revoke_at_ns, 0);
	transport_team_set(&group->team, making->rank, making->size, making->members, making->areas);
	bool first = making->id == WORLD_GROUP_ID;
	hosts_team_open(&group->team, group->area, first ? NULL : making->areas,
			making->left_before);
	for (int q = 0; q < making->size; q++)
		group->peers[making->members[q]] =
			(struct wait_peer){.left = &transport_area_of(&group->team, q)->times_closed,
					   .left_before = making->left_before[q],
					   .dead = &world->dead[making->members[q]]};
	const struct transport_area *head = transport_head_of(&group->team);
	uintptr_t segment = (uintptr_t)group->team.members[group->team.first_here].peer->segment;
	membership.claim_offset = (uintptr_t)&head->claim - segment;
	membership.cause_offset = (uintptr_t)&head->cause - segment;
	fill_waiters(group);
	engine_begin(&group->engine, group->waiter.cause, &world->table);
	mailbox_begin(group->mailbox, &group->waiter);
	failure_begin(group);
	group->trace_entry = trace_group_fill(&world->trace, group->area, &membership);
	progress_lane_begin(group);
	progress_pool_init(&group->pool);
	group->batches = NULL; /* the last group may not have ended one */
	atomic_store(&group->batch_count, 0);
	p2p_short_init(group);
	group->next_p2p = NULL;
	atomic_store(&group->has_p2p, false);
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_store(&group->gone[w], 0);
	atomic_store(&group->any_gone, false);
	atomic_store(&group->gone_seen, 0);
	atomic_store(&group->passes, 0);
	memset(group->warned, 0, sizeof group->warned);
	lock_rank_acquire(&world->lock);
	group->next = world->open;
	world->open = group;
	lock_rank_release(&world->lock);
	if (!first)
		hosts_team_announce(&group->team); /* from now on other hosts tell of a failure */
}

/* ---- close ---- */

/* Completes operations that their streams have done: the program may have waited for the
 * streams. */
static void await_delivered(ls_group *group)
{
	struct ls_request *op;
	ls_status status = LS_OK;
	while ((op = p2p_first_delivered(group))) {
		status = p2p_await(&op, 1, &progress_no_pause);
		progress_op_unref(op);
	}
	while ((op = progress_lane_first(group))) {
		bool over = progress_stream_is_over(op);
		if (over)
			status = progress_lane_await(op, &progress_no_pause);
		progress_op_unref(op);
		if (!over)
			break;
	}
	(void)status; /* the group's failure shows it */
}

/* Waits for messages on streams: after a failure they remain until the device is done. */
static void await_streams(ls_group *group)
{
	struct ls_request *op;
	while ((op = p2p_first_on_stream(group))) {
		ls_status status = p2p_await(&op, 1, &progress_no_pause);
		(void)status; /* as above */
		progress_op_unref(op);
	}
}

/* Ends operations that were not waited for: otherwise peers would use buffers that vanish. */
static void end_operations(ls_group *group)
{
	p2p_fail_gone(group);
	if (group->world->device)
		await_delivered(group);
	p2p_progress(group); /* perhaps sends were received since somebody last looked */
	long pending = progress_lane_length(group) + p2p_under_way(group);
	if (pending > 0) {
		char text[PROGRESS_DESCRIBED_BYTES], reason[PROGRESS_DESCRIBED_BYTES + 64];
		struct ls_request *first = p2p_first(group);
		first = first ? first : progress_lane_first(group);
		progress_warn_pending(first, pending, text, sizeof text);
		if (first)
			progress_op_unref(first);
		snprintf(reason, sizeof reason, "with %s under way", text);
		failure_abort_by_close(group, reason);
	}
	if (group->world->device)
		await_streams(group);
	p2p_close(group);
	progress_lane_close(group);
	progress_warn_left(group);
	progress_pool_fini(group);
}

void group_leave(struct ls_group *group)
{
	struct world *world = group->world;
	end_operations(group);
	failure_warn_lost(group);
	if (group->id == WORLD_GROUP_ID)
		world_leave(world);
	atomic_store(&group->trace_entry->state, TRACE_GROUP_CLOSED);
	failure_compare_ends(group);
	mailbox_free_returned(group->mailbox);
	lock_rank_acquire(&world->lock);
	struct ls_group **at = &world->open;
	while (*at && *at != group)
		at = &(*at)->next;
	if (*at)
		*at = group->next;
	lock_rank_release(&world->lock);
	_Atomic uint64_t *left = &transport_area_of(&group->team, group->rank)->times_closed;
	wait_store(left, atomic_load_explicit(left, memory_order_relaxed) + 1);
	/* Sequentially consistent, as the members' side is: either a member sees that I have left,
	 * or I see that it sleeps. */
	for (int q = 0; q < group->size; q++) {
		const struct transport_peer *mapped = group->team.members[q].peer;
		atomic_fetch_add(&mapped->segment->departures, 1);
		if (atomic_load(&transport_area_of(&group->team, q)->asleep) ||
		    wait_is_urgent(&mapped->segment->bell) || mapped->mirror)
			transport_notify(&group->team, q);
	}
	group->fork_generation = FORK_NEVER;
	atomic_fetch_add(&group->holders, 1); /* another thread may open a group meanwhile */
	lock_rank_acquire(&world->lock);
	group->next = world->closed;
	world->closed = group;
	lock_rank_release(&world->lock);
	failure_ends_closed(group);
	world_release(group);
}

static struct ls_group *newest_group(struct world *world)
{
	lock_rank_acquire(&world->lock);
	struct ls_group *group = world->open;
	lock_rank_release(&world->lock);
	return group;
}

void group_leave_all(struct world *world)
{
	for (struct ls_group *group = newest_group(world); group && group->id != WORLD_GROUP_ID;
	     group = newest_group(world))
		group_leave(group);
}

static void destroy_list(struct ls_group *group)
{
	while (group) {
		struct ls_group *next = group->next;
		destroy_object(group);
		group = next;
	}
}

void group_free_all(struct world *world)
{
	lock_rank_acquire(&world->lock);
	struct ls_group *lists[] = {world->open, world->closed, world->spare};
	world->open = world->closed = world->spare = NULL;
	lock_rank_release(&world->lock);
	for (int i = 0; i < 3; i++)
		destroy_list(lists[i]);
}
