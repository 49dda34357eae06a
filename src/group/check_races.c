/* SPDX-License-Identifier: BSD-3-Clause
 * LOCKSTEP_CHECK=1: what calls touch, and the reports of calls that touch memory that is in use. */
#include "races/races.h"

#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "p2p/p2p.h"
#include "pool/pool.h"
#include "trace/trace.h"
#include "world/device.h"
#include "group/group_private.h"

enum { WHO_BYTES = 160, REPORT_BYTES = 1024 };

/* ---- reports ---- */

struct who_text {
	char name[WHO_BYTES], stream[32], from[TRACE_CALLER_BYTES + 2];
};

/* ", called from PLACE,", as it stands within a sentence; "": not known. */
static void write_place(const struct races_who *who, char *out, size_t bytes)
{
	char from[TRACE_CALLER_BYTES] = "";
	if (who->label[0])
		snprintf(from, sizeof from, ", called from %s", who->label);
	else
		trace_caller_text_at(who->site, from, sizeof from);
	snprintf(out, bytes, "%s%s", from, from[0] ? "," : "");
}

static void describe_who(const struct races_who *who, struct who_text *out)
{
	*out = (struct who_text){0};
	if (who->number)
		snprintf(out->name, sizeof out->name, "%s #%llu", who->name,
			 (unsigned long long)who->number);
	else
		snprintf(out->name, sizeof out->name, "%s%s%s", who->name,
			 who->kernel ? " of kernel " : "", who->kernel ? who->kernel : "");
	if (who->stream)
		snprintf(out->stream, sizeof out->stream, " on stream %p", who->stream);
	write_place(who, out->from, sizeof out->from);
}

static const char *advice(const struct races_who *earlier, const struct races_who *later)
{
	if (!earlier->stream)
		return "Wait for it first: by ls_wait, ls_test or its callback";
	if (!later->stream)
		return "Wait for it first: by ls_wait, or a synchronise of its stream";
	if (earlier->is_program)
		return "Let the second stream follow an event of the first one, or wait for that "
		       "before";
	return "Let the second stream follow it (ls_request_follow, or an event), or wait for it before";
}

/* Makes messages name the rank whose program is wrong. Returns what message_set_rank restores
 * afterwards. */
static int speak_for(const struct world *world)
{
	int outer_rank = message_rank();
	message_set_rank(world->rank);
	return outer_rank;
}

static void say_overlap(const struct world *world, const struct races_who *later,
			const struct races_conflict *conflict)
{
	struct who_text second, first;
	describe_who(later, &second);
	describe_who(&conflict->earlier, &first);
	int outer_rank = speak_for(world);
	MESSAGE_SAY(MESSAGE_RACE_OVERLAP, second.name, second.stream, second.from,
		    conflict->later_writes ? "writes" : "reads", (unsigned long long)conflict->bytes,
		    conflict->address, first.name, first.stream, first.from,
		    conflict->earlier_writes ? "write" : "read", advice(&conflict->earlier, later));
	message_set_rank(outer_rank);
}

/* what: the verb, such as "frees". */
static ls_status say_free(const struct world *world, const char *name, const char *what,
			  const void *block, const void *site, const struct races_conflict *conflict)
{
	const struct races_who freer = {.name = name, .site = site};
	struct who_text second, first;
	describe_who(&freer, &second);
	describe_who(&conflict->earlier, &first);
	int outer_rank = speak_for(world);
	MESSAGE_SAY(MESSAGE_RACE_FREE, name, second.from, what, block, first.name, first.stream,
		    first.from, conflict->earlier_writes ? "write" : "read",
		    (unsigned long long)conflict->bytes,
		    conflict->earlier.stream ? "Wait for it first, or name its stream by "
					       "ls_device_record"
					     : "Wait for it first");
	message_set_rank(outer_rank);
	return LS_BAD_ARGUMENT;
}

static ls_status say_freed(const struct world *world, const struct races_who *who,
			   const void *address, const struct races_who *freer)
{
	struct who_text second, first;
	describe_who(who, &second);
	describe_who(freer, &first);
	int outer_rank = speak_for(world);
	MESSAGE_SAY(MESSAGE_RACE_FREED, second.name, second.stream, second.from, address,
		    first.name, first.from);
	message_set_rank(outer_rank);
	return LS_BAD_ARGUMENT;
}

/* ---- operations ---- */

static struct races_use use_of(const ls_group *group, const struct op_call *call,
			       const struct ls_call_options *options, const void *site)
{
	struct races_use use = {.who = {.name = trace_kind_name(call->kind),
					.group = group->id,
					.site = site,
					.stream = options->stream},
				.parts = {{.address = call->send.address,
					   .bytes = call->send.address ? call->send.bytes : 0},
					  {.address = call->recv.address,
					   .bytes = call->recv.address ? call->recv.bytes : 0,
					   .writes = true}},
				.is_collective = op_is_collective(call->kind)};
	if (options->label)
		snprintf(use.who.label, sizeof use.who.label, "%s", options->label);
	return use;
}

/* Whether some of the part lies in memory that the program has freed. *address: where that memory
 * begins. Other free memory was never allocated, or was freed too long ago. */
static bool has_freed(const struct world *world, const struct races_part *part,
		      const void **address, struct races_who *freer)
{
	const unsigned char *at = part->address, *end = at + part->bytes;
	size_t piece;
	while ((at = pool_find_free(world->device->pool, at, (size_t)(end - at), &piece)) != NULL) {
		if (races_who_freed(world->races, at, piece, address, freer))
			return true;
		at += piece;
	}
	return false;
}

static bool is_freed(const struct world *world, const struct races_use *use, const void **address,
		     struct races_who *freer)
{
	bool found = false;
	for (int i = 0; world->device && i < RACES_PARTS && !found; i++)
		found = has_freed(world, &use->parts[i], address, freer);
	return found;
}

ls_status group_races_enter(ls_group *group, const struct op_call *call,
			    const struct ls_call_options *options, const void *site,
			    uint64_t *access)
{
	struct world *world = group->world;
	struct races_conflict conflict;
	struct races_who freer;
	const void *address;
	struct races_use use = use_of(group, call, options, site);
	/* On a stream a call orders what follows it, even if it touches nothing, as a barrier. */
	if (use.parts[0].bytes == 0 && use.parts[1].bytes == 0 && !options->stream)
		return LS_OK;
	if (is_freed(world, &use, &address, &freer))
		return say_freed(world, &use.who, address, &freer);
	if (!options->stream)
		races_sum_up(&use);
	if (races_begin(world->races, &use, access, &conflict))
		return LS_OK;
	/* A message may have arrived unnoticed, and its operation be over. */
	p2p_collect(group);
	if (races_begin(world->races, &use, access, &conflict))
		return LS_OK;
	say_overlap(world, &use.who, &conflict);
	return LS_BAD_ARGUMENT;
}

void group_races_follow(const struct ls_request *op, const void *stream)
{
	if (op->access)
		races_follow(op->group->world->races, op->access, stream);
}

void group_races_forget(ls_group *group, const void *stream)
{
	if (group->world->races)
		races_forget(group->world->races, stream);
}

/* ---- memory ---- */

ls_status group_races_free_device(ls_group *group, void *block, const void *site)
{
	struct races *races = group->world->races;
	struct races_conflict conflict;
	struct races_who who = {.name = "ls_device_free", .site = site};
	void *streams[POOL_USES];
	size_t bytes;
	if (!races)
		return LS_OK;
	int count = pool_uses(group->world->device->pool, block, &bytes, streams, POOL_USES);
	if (count < 0)
		return LS_OK; /* pool_free refuses it */
	if (!races_may_free(races, block, bytes, streams, count, &conflict))
		return say_free(group->world, who.name, "frees", block, site, &conflict);
	races_freed(races, block, bytes, &who);
	return LS_OK;
}

/* Checks whether a block of the arena may be released: this rank's own, or one that it has
 * received. */
static ls_status check_arena_block(ls_group *group, const char *name, const char *what,
				   const void *block, const void *site)
{
	struct races *races = group->world->races;
	struct races_conflict conflict;
	if (!races)
		return LS_OK;
	size_t bytes = memory_bytes_of(&group->world->memory, block);
	if (bytes == 0)
		bytes = mailbox_held_bytes(group->mailbox, block);
	if (bytes == 0 || races_may_free(races, block, bytes, NULL, 0, &conflict))
		return LS_OK;
	return say_free(group->world, name, what, block, site, &conflict);
}

void group_races_alloc(ls_group *group, const void *block, uint64_t bytes)
{
	if (group->world->races)
		races_allocated(group->world->races, block, bytes);
}

ls_status group_races_free(ls_group *group, const void *block, const void *site)
{
	return check_arena_block(group, "ls_free", "frees", block, site);
}

ls_status group_races_hand_over(ls_group *group, const void *block, const void *site)
{
	return check_arena_block(group, "ls_send_block", "hands over", block, site);
}

/* ---- what the driver reports ---- */

/* The copy or kernel has been enqueued on its stream, so the result is lost: the group of the
 * operation fails. */
static void fail_group(struct world *world, const struct races_who *later,
		       const struct races_conflict *conflict)
{
	struct who_text second, first;
	char note[REPORT_BYTES];
	ls_group *group = world_hold(world, conflict->earlier.group);
	if (!group)
		return;
	describe_who(later, &second);
	describe_who(&conflict->earlier, &first);
	snprintf(note, sizeof note, "%s%s touches what %s%s has not done yet", second.name,
		 second.from, first.name, first.from);
	failure_abort(group, note, false);
	world_release(group);
}

/* Compares one range, or two. False: the group has failed. */
static bool compare_ranges(struct world *world, const struct driver_touch *touch, int first)
{
	struct races_use use = {.who = {.name = touch->call,
					.kernel = touch->kernel,
					.site = touch->site,
					.stream = touch->stream,
					.is_program = true},
				.done = touch->done,
				.number = touch->number};
	struct races_conflict conflict;
	uint64_t ticket;
	for (int i = 0; i < RACES_PARTS && first + i < touch->count; i++) {
		const struct driver_range *range = &touch->ranges[first + i];
		use.parts[i] = (struct races_part){
			.address = range->address, .bytes = range->bytes, .writes = range->writes};
	}
	if (races_begin(world->races, &use, &ticket, &conflict))
		return true;
	say_overlap(world, &use.who, &conflict);
	fail_group(world, &use.who, &conflict);
	return false;
}

static void on_touch(void *data, const struct driver_touch *touch)
{
	bool fine = true;
	for (int i = 0; fine && i < touch->count; i += RACES_PARTS)
		fine = compare_ranges(data, touch, i);
}

static void on_record(void *data, const void *event, const void *stream)
{
	const struct world *world = data;
	races_record(world->races, event, stream);
}

static void on_follow(void *data, const void *event, const void *stream)
{
	const struct world *world = data;
	races_follow_event(world->races, event, stream);
}

static void on_make(void *data, const void *handle)
{
	const struct world *world = data;
	races_made(world->races, handle);
}

static void on_await(void *data, const void *stream)
{
	const struct world *world = data;
	races_await(world->races, stream);
}

/* ---- life ---- */

ls_status group_races_open(struct world *world)
{
	struct world_device *device = world->device;
	if (!world->settings.check)
		return LS_OK;
	world->races = races_open(device ? &device->driver.broken : NULL);
	if (!world->races)
		return LS_OUT_OF_MEMORY;
	if (!device || !device->driver.ops->observe)
		return LS_OK;
	device->observer =
		(struct driver_observer){world, on_make, on_touch, on_record, on_follow, on_await};
	races_watch(world->races);
	device->driver.ops->observe(&device->driver, &device->observer);
	return LS_OK;
}

void group_races_close(struct world *world)
{
	struct world_device *device = world->device;
	if (!world->races)
		return;
	if (device && device->driver.ops->observe)
		device->driver.ops->observe(&device->driver, NULL);
	races_close(world->races);
	world->races = NULL;
}
