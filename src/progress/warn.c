/* SPDX-License-Identifier: BSD-3-Clause
 * How messages describe an operation of a group, and its call site. */
#include <stdio.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "diagnose/diagnose.h"
#include "failure/failure.h"
#include "world/registry.h"
#include "progress/warn.h"

bool progress_first_time(ls_group *group, const void *site)
{
	uint64_t key = (uint64_t)(uintptr_t)site;
	for (int i = 0; i < WORLD_WARNED; i++) {
		uint64_t seen = 0;
		if (atomic_compare_exchange_strong(&group->warned[i], &seen, key))
			return true;
		if (seen == key)
			return false;
	}
	return false;
}

/* Reads the record of an operation. False: the trace no longer has it. */
static bool read_record(const ls_group *group, uint64_t index, struct diagnose_record *out)
{
	const struct trace_view *view = &group->world->views[group->world->rank];
	uint32_t step;
	if (!view->header || !trace_read(view, index, &out->record, &step))
		return false;
	trace_site(view, &out->record, out->site, sizeof out->site);
	if (out->record.peer >= 0)
		out->record.peer = world_rank_of(group, out->record.peer);
	return true;
}

static void describe_shared(const struct ls_request *op, char *out, size_t bytes)
{
	struct ranks members = world_members_if_part(op->group);
	struct diagnose_record record = {0};
	bool known = read_record(op->group, atomic_load(&op->newest), &record);
	int used = snprintf(out, bytes, "a %s that completed at once%s",
			    trace_kind_name(op->base.call.kind), known ? ", such as " : "");
	if (known && used >= 0 && (size_t)used < bytes)
		diagnose_operation_text(&record, &members, out + used, bytes - (size_t)used);
}

static void describe_one(const struct ls_request *op, char *out, size_t bytes)
{
	ls_group *group = op->group;
	const struct op_call *call = &op->base.call;
	struct ranks members = world_members_if_part(group);
	struct diagnose_record record = {0};
	if (!read_record(group, op->base.record, &record)) /* the ring has gone on */
		record.record = (struct trace_record){
			.kind = (uint16_t)call->kind,
			.seq = op->base.seq,
			.group = group->id,
			.peer = call->peer < 0 ? call->peer : world_rank_of(group, call->peer),
			.tag = call->tag};
	diagnose_operation_text(&record, &members, out, bytes);
}

void progress_describe_record(const ls_group *group, uint64_t index, char *out, size_t bytes)
{
	struct ranks members = world_members_if_part(group);
	struct diagnose_record record = {0};
	snprintf(out, bytes, "%s", "an operation");
	if (read_record(group, index, &record))
		diagnose_operation_text(&record, &members, out, bytes);
}

void progress_describe(const struct ls_request *op, char *out, size_t bytes)
{
	if (op->is_batch)
		snprintf(out, bytes, "a batch");
	else if (op->shared)
		describe_shared(op, out, bytes);
	else
		describe_one(op, out, bytes);
}

void progress_warn_device(const struct ls_request *op)
{
	char text[PROGRESS_DESCRIBED_BYTES];
	describe_one(op, text, sizeof text);
	MESSAGE_SAY(MESSAGE_GROUP_DEVICE, text);
}

void progress_fail_changed(const struct ls_request *op)
{
	char text[PROGRESS_DESCRIBED_BYTES], note[PROGRESS_DESCRIBED_BYTES + 64];
	describe_one(op, text, sizeof text);
	MESSAGE_SAY(MESSAGE_RACE_CHANGED, text);
	snprintf(note, sizeof note, "the program has changed what %s sends", text);
	failure_abort(op->group, note, false);
}

void progress_warn_dropped(struct ls_request *op, const void *site)
{
	char text[PROGRESS_DESCRIBED_BYTES], from[TRACE_CALLER_BYTES];
	if (!progress_first_time(op->group, site))
		return;
	progress_describe(op, text, sizeof text);
	trace_caller_text_at(site, from, sizeof from);
	MESSAGE_SAY(MESSAGE_GROUP_DROPPED, text, from);
}

/* ", and 2 more", nothing for one. */
static const char *and_more(long count, char *out, size_t bytes)
{
	out[0] = '\0';
	if (count > 1)
		snprintf(out, bytes, ", and %ld more", count - 1);
	return out;
}

void progress_warn_pending(const struct ls_request *first, long count, char *text, size_t bytes)
{
	char more[32];
	snprintf(text, bytes, "%s", "an operation");
	if (first)
		progress_describe(first, text, bytes);
	MESSAGE_SAY(MESSAGE_GROUP_CLOSE_PENDING, count, count == 1 ? " is" : "s are", text,
		    and_more(count, more, sizeof more), count == 1 ? "it is" : "they are");
}

/* Says that `count` handles were not freed. newest: the newest of their operations, or a shared
 * handle; NULL: not known. */
static void tell_left(const struct ls_request *newest, long count)
{
	char text[PROGRESS_DESCRIBED_BYTES] = "", more[32];
	if (newest)
		progress_describe(newest, text, sizeof text);
	MESSAGE_SAY(MESSAGE_GROUP_HANDLES_LEFT, count, count == 1 ? " was" : "s were",
		    newest ? ": that of " : "", text, and_more(count, more, sizeof more));
}

/* "ranks 0, 1 and 2 each send to the next of them" */
static void write_ring(const struct ranks *ranks, char *out, size_t bytes)
{
	enum { NAMED_MAX = 32 };
	int count = ranks_count(ranks), seen = 0;
	size_t used = 0;
	RANKS_EACH (r, ranks) {
		if (seen == NAMED_MAX)
			break;
		used += (size_t)snprintf(out + used, bytes - used, "%s%d",
					 seen == 0           ? "ranks "
					 : seen == count - 1 ? " and "
							     : ", ",
					 r);
		seen++;
	}
	if (seen < count)
		used += (size_t)snprintf(out + used, bytes - used, " and %d more", count - seen);
	snprintf(out + used, bytes - used, " each send to the next of them");
}
_Static_assert(PROGRESS_DESCRIBED_BYTES > 32 * (sizeof ", 4095" - 1) + 64,
	       "as many names, and the rest");

void progress_warn_buffered(const struct ranks *ranks, int tag, const char *where)
{
	char who[PROGRESS_DESCRIBED_BYTES];
	const char *advice =
		"let one of them receive first, or wait for an ls_isend after the receive";
	int count = ranks_count(ranks), first = ranks_first(ranks);
	if (count == 1) {
		snprintf(who, sizeof who, "rank %d sends to itself", first);
		advice = "use ls_isend, and wait for it after the receive";
	} else if (count == 2) {
		snprintf(who, sizeof who, "ranks %d and %d both send to each other", first,
			 ranks_from(ranks, first + 1));
	} else {
		write_ring(ranks, who, sizeof who);
	}
	MESSAGE_SAY(MESSAGE_GROUP_BUFFERED, who, count == 1 ? "it receives" : "they receive", tag,
		    where, advice);
}

/* The newest operation whose handle was not freed. */
static const struct ls_request *find_left(struct world_pool *pool) LOCK_REQUIRES(rank)
{
	const struct ls_request *newest = NULL;
	for (int i = 0; i < pool->block_count * WORLD_POOL_OPS; i++) {
		const struct ls_request *op = &pool->blocks[i / WORLD_POOL_OPS][i % WORLD_POOL_OPS];
		if (atomic_load(&op->references) > 0 && !op->batch &&
		    (!newest || op->base.record > newest->base.record))
			newest = op;
	}
	return newest;
}

/* How many copies of a shared handle are not freed. */
static long count_left(const struct ls_request *shared)
{
	int64_t left = (int64_t)(atomic_load(&shared->handed_out) - atomic_load(&shared->freed));
	return left > 0 ? (long)left : 0;
}

void progress_warn_left(ls_group *group)
{
	struct world_pool *pool = &group->pool;
	long sent = count_left(&group->short_send), received = count_left(&group->short_recv);
	const struct ls_request *newest = sent ? &group->short_send : &group->short_recv;
	lock_rank_acquire(&pool->lock);
	long handles = pool->handles;
	if (handles > 0)
		newest = find_left(pool);
	lock_rank_release(&pool->lock);
	if (handles + sent + received > 0)
		tell_left(newest, handles + sent + received);
}
