/* SPDX-License-Identifier: BSD-3-Clause
 * Groups that fail together: a cycle of ranks that wait in several groups. A thread whose call of
 * one group fails may continue with a call of another. So on each host all groups fail before a
 * thread wakes. A report has the ids of all (struct transport_report), whichever rank brings it to
 * a host. */
#include <limits.h>

#include "world/registry.h"
#include "failure/failure_private.h"

bool failure_find_cause_ref(struct world *world, uint32_t id, struct failure_cause_ref *out)
{
	struct ls_group *own = world_hold(world, id);
	int first = INT_MAX; /* the first member on this host has the cause */
	if (own) {
		*out = failure_cause_ref_of(own);
		world_release(own);
		return true;
	}
	for (int q = 0; q < world->size; q++) {
		const struct transport_segment *segment = world->transport.peers[q].segment;
		const struct trace_view *view = &world->views[q];
		for (unsigned i = 0; view->header && i < TRACE_GROUP_MAX; i++) {
			const struct trace_group *group = &view->groups[i];
			if (world->transport.peers[q].mirror || atomic_load(&group->id) != id ||
			    group->rank >= first)
				continue;
			first = group->rank;
			*out = (struct failure_cause_ref){
				.id = id,
				.owner = q,
				.head = transport_area_at(segment, world->size, i),
			};
		}
	}
	return first != INT_MAX;
}

/* Adds a group, in the order of their numbers. */
static int add_group(uint32_t *groups, int count, uint32_t id)
{
	int at = count;
	for (int i = 0; i < count; i++)
		if (groups[i] == id)
			return count;
	if (count == TRANSPORT_REPORT_GROUPS)
		return count;
	for (; at > 0 && groups[at - 1] > id; at--)
		groups[at] = groups[at - 1];
	groups[at] = id;
	return count + 1;
}

/* All groups in which a rank of the cycle waits: such a rank can never continue. Also those of
 * operations for which only a stream waits: a call that has failed returns when its device is done
 * with it, and so not before these fail. */
static int find_groups(const struct diagnose_snapshot *snapshot, const struct ranks *cycle,
		       uint32_t *groups, int count)
{
	RANKS_EACH (r, cycle) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			const struct diagnose_thread *thread = &rank->threads[i];
			const struct wait_slot_body *wait = &thread->wait;
			if (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD)
				continue;
			if (wait->group)
				count = add_group(groups, count, wait->group);
			for (uint32_t k = 0; k < wait->edge_count; k++) {
				uint32_t id = diagnose_group_in_front(rank, thread, k);
				if (id)
					count = add_group(groups, count, id);
			}
		}
	}
	return count;
}

/* Tells the hosts of the cycle's ranks: perhaps no member of a group is on this host. */
static void tell_others(struct ls_group *group, const struct ranks *cycle)
{
	struct world *world = group->world;
	struct hosts_failure failure;
	if (!world->link || !failure_copy(group, &failure))
		return;
	RANKS_EACH (r, cycle)
		if (world->transport.peers[r].mirror)
			(void)hosts_tell_failed(&world->transport, r, &failure);
}

void failure_raise_deadlock(struct ls_group *group, struct diagnose_snapshot *snapshot,
			    const struct diagnose_verdict *verdict, const struct diagnose_hint *hint)
{
	struct failure_cause_ref refs[TRANSPORT_REPORT_GROUPS];
	uint32_t groups[TRANSPORT_REPORT_GROUPS] = {group->id};
	int ref_count = 0, count = find_groups(snapshot, &verdict->culprits, groups, 1);
	for (int i = 0; i < count; i++)
		ref_count += failure_find_cause_ref(group->world, groups[i], &refs[ref_count]);
	failure_raise_all(group, refs, ref_count, groups, hint, snapshot);
	tell_others(group, &verdict->culprits);
}

static void complete_group(struct ls_group *group, uint32_t id, const struct hosts_failure *failure)
{
	struct world *world = group->world;
	struct ls_group *own = world_hold(world, id);
	struct failure_cause_ref ref;
	if (failure_find_cause_ref(world, id, &ref) && !failure_is_settled(&ref)) {
		if (failure_write_told(world, &ref, own, failure))
			failure_publish(world, &ref, 1);
		else
			failure_await_cause(group, &ref);
	}
	if (own)
		world_release(own);
}

void failure_await_together(struct ls_group *group)
{
	struct hosts_failure failure;
	if (!failure_copy(group, &failure))
		return;
	for (int i = 0; i < TRANSPORT_REPORT_GROUPS && failure.groups[i]; i++)
		if (failure.groups[i] != group->id)
			complete_group(group, failure.groups[i], &failure);
}

/* ---- what another host tells ---- */

/* The groups of a failure that another host reports. */
struct told {
	struct world *world;
	const struct hosts_failure *failure;
	struct failure_cause_ref refs[TRANSPORT_REPORT_GROUPS + 1];
	/* Held, or NULL: this rank is not in it. */
	struct ls_group *own[TRANSPORT_REPORT_GROUPS + 1];
	int count, own_count;
};

static void take_group(struct told *told, uint32_t id)
{
	struct failure_cause_ref ref;
	struct ls_group *own = world_hold(told->world, id);
	if (own)
		told->own[told->own_count++] = own;
	if (failure_find_cause_ref(told->world, id, &ref) &&
	    failure_write_told(told->world, &ref, own, told->failure))
		told->refs[told->count++] = ref;
}

void failure_raise_told(struct world *world, const struct hosts_failure *failure)
{
	struct told told = {.world = world, .failure = failure};
	bool is_named = false;
	for (int i = 0; i < TRANSPORT_REPORT_GROUPS && failure->groups[i]; i++) {
		is_named = is_named || failure->groups[i] == failure->group;
		take_group(&told, failure->groups[i]);
	}
	if (!is_named)
		take_group(&told, failure->group);
	failure_publish(world, told.refs, told.count);
	for (int i = 0; i < told.own_count; i++) {
		/* Here, because perhaps no thread is in a call of the group that would do it. */
		hosts_withdraw(&told.own[i]->team);
		world_release(told.own[i]);
	}
}
