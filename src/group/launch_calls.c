/* SPDX-License-Identifier: BSD-3-Clause
 * Launches that belong together: ls_launch_begin and ls_launch_end. Between the two the gates of
 * the devices let no memory go back to the driver. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/messages.h"
#include "engine/engine_ops.h"
#include "pool/gate.h"
#include "pool/launch.h"
#include "world/device.h"
#include "world/registry.h"
#include "group/group_private.h"
#include "group/arguments.h"
#include "group/group.h"

enum { LAUNCH_GROUPS = 64 };

struct launch {
	struct pool_gate *gates[LAUNCH_GROUPS];
	int count;
	/* Only to be compared: another thread may have closed one by mistake. */
	const ls_group *groups[LAUNCH_GROUPS];
	int group_count;
	uint32_t fork_generation;
	int rank;         /* of the first group, for messages */
	const void *site; /* of ls_launch_begin */
	ls_status first;
};

/* What the calling thread has begun; NULL: nothing. On the heap, as the loader has little room for
 * variables of threads in a library that is loaded late. */
static _Thread_local struct launch *launch;

/* Made once: tells when a thread ends. */
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_error;

static void drop_launch(void)
{
	free(launch);
	launch = NULL;
	if (key_error == 0)
		pthread_setspecific(key, NULL); /* cannot fail: the key has a value */
}

static void close_gates(void)
{
	while (launch->count > 0) {
		struct pool_gate *gate = launch->gates[--launch->count];
		pool_gate_end(gate);
		pool_gate_leave(gate, NULL);
	}
	drop_launch();
}

/* Drops a launch that was begun before this process was forked: it is the parent's. False: none. */
static bool drop_parents(void)
{
	if (!launch || fork_is_in(launch->fork_generation))
		return false;
	drop_launch();
	return true;
}

/* Without this no memory would go back to the driver any more. */
static void on_thread_end(void *unused)
{
	(void)unused;
	if (drop_parents() || !launch)
		return;
	int outer_rank = message_rank();
	char from[TRACE_CALLER_BYTES];
	message_set_rank(launch->rank);
	trace_caller_text_at(launch->site, from, sizeof from);
	MESSAGE_SAY(MESSAGE_GROUP_LAUNCH_LEFT, from);
	message_set_rank(outer_rank);
	close_gates();
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, on_thread_end);
}

/* Whether an operation of one rank would wait in its call for that of the next one, or might, as
 * one of another engine (decision 044). */
static bool would_wait_for_itself(ls_group *const *groups, int count)
{
	bool several = false, has_room = true;
	for (int i = 0; i < count; i++) {
		several |= groups[i]->world != groups[0]->world;
		has_room &= pool_has_room(groups[i]->world->device->pool) &&
			    !engine_launches(&groups[i]->engine);
	}
	return several && !has_room;
}

static ls_status check_launch(ls_group *const *groups, int count)
{
	if (!drop_parents() && launch)
		return group_bad_state("ls_launch_begin", "this thread", "in a launch",
				       "in none: call ls_launch_end first");
	if (!groups || count < 1 || count > LAUNCH_GROUPS)
		return group_bad("ls_launch_begin", groups ? "count" : "groups", groups ? count : 0,
				 "1 to 64 groups");
	for (int i = 0; i < count; i++) {
		if (groups[i] && !world_is_usable(groups[i]))
			return group_not_open("ls_launch_begin", groups[i]);
		if (!groups[i] || !groups[i]->world->device)
			return group_bad("ls_launch_begin", "groups", i,
					 "groups of ranks that have a device");
	}
	if (would_wait_for_itself(groups, count))
		return group_bad("ls_launch_begin", "groups", count,
				 "of one rank, as calls of this driver or engine may wait for "
				 "their own work");
	return LS_OK;
}

static bool has_gate(const struct pool_gate *gate)
{
	for (int i = 0; i < launch->count; i++)
		if (launch->gates[i] == gate)
			return true;
	return false;
}

static ls_status open_gate(ls_group *group)
{
	struct world *world = group->world;
	struct pool_gate *gate = world->device->gate;
	uint64_t deadline_ns = clock_deadline_ns(group->timeout_ms);
	ls_status status;
	if (has_gate(gate))
		return LS_OK;
	do
		status = pool_gate_begin(gate, &world->waiter, deadline_ns);
	while (status == LS_INTERRUPTED);
	if (status != LS_OK)
		return status;
	pool_gate_hold(gate);
	launch->gates[launch->count++] = gate;
	return LS_OK;
}

/* Begins a launch without gates. */
static ls_status new_launch(ls_group *const *groups, int count, const void *site)
{
	const char *fault = "no memory for ls_launch_begin";
	pthread_once(&key_once, make_key);
	launch = calloc(1, sizeof *launch);
	int error = launch && key_error == 0 ? pthread_setspecific(key, launch) : key_error;
	if (launch && error != 0) { /* nobody would learn that the thread ends */
		fault = strerror(error);
		drop_launch();
	}
	if (!launch) {
		char from[TRACE_CALLER_BYTES];
		trace_caller_text(from, sizeof from);
		MESSAGE_SAY(MESSAGE_GROUP_HANDLES, from, fault);
		return LS_OUT_OF_MEMORY;
	}
	memcpy(launch->groups, groups, (size_t)count * sizeof(ls_group *));
	launch->group_count = count;
	launch->fork_generation = fork_generation();
	launch->rank = groups[0]->world->rank;
	launch->site = site;
	return LS_OK;
}

ls_status ls_launch_begin(ls_group *const *groups, int count)
{
	ls_status status = check_launch(groups, count);
	if (status == LS_OK)
		status = new_launch(groups, count, GROUP_SITE);
	if (status != LS_OK)
		return status;
	for (int i = 0; status == LS_OK && i < count; i++)
		status = open_gate(groups[i]);
	if (status != LS_OK)
		close_gates();
	return status;
}

static bool is_listed(const ls_group *group)
{
	for (int i = 0; i < launch->group_count; i++)
		if (launch->groups[i] == group)
			return true;
	return false;
}

/* The device is closed with the world group, and then the driver must get its memory back. */
static bool would_wait_for_launch(const ls_group *group)
{
	const struct world_device *device = group->world->device;
	return group->id == WORLD_GROUP_ID && device && has_gate(device->gate);
}

void group_launch_close(const ls_group *group)
{
	if (!launch || (!is_listed(group) && !would_wait_for_launch(group)))
		return;
	group_bad_state("ls_group_close", "this thread",
			is_listed(group) ? "in a launch of the group"
					 : "in a launch that the group's device waits for",
			"in none: call ls_launch_end first. The launch ends here");
	close_gates();
}

void group_launch_note(ls_status status)
{
	if (group_launch_is_open() && launch->first == LS_OK)
		launch->first = status;
}

bool group_launch_is_open(void)
{
	drop_parents();
	return launch != NULL;
}

ls_status ls_launch_end(void)
{
	if (drop_parents())
		return LS_FORKED;
	if (!launch)
		return group_bad_state("ls_launch_end", "this thread", "in no launch",
				       "in one: call ls_launch_begin first");
	ls_status first = launch->first;
	close_gates();
	return first;
}
