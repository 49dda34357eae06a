/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a send or receive that runs beside the caller: in a list until it is over, gone on with by whoever
 * drives. See points.h. */
#include "points.h"

#include "base/clock.h"
#include "base/messages.h"

static struct ls_op *op_of(struct engine_op *engine)
{
	return (struct ls_op *)(void *)((char *)engine - offsetof(struct ls_op, engine));
}

/* ---- the list ---- */

/* What a proof has to know of those beside their callers: see struct trace_group. */
static void count_in(const struct ls_op *op)
{
	struct trace_group *entry = op->group->entry;
	if (op->callback)
		atomic_fetch_add(&entry->callbacks, 1);
	if (op->may_leave)
		atomic_fetch_add(&entry->limits, 1);
}

static void count_out(struct trace_group *entry, bool calls, bool limited)
{
	if (calls)
		atomic_fetch_sub(&entry->callbacks, 1);
	if (limited)
		atomic_fetch_sub(&entry->limits, 1);
}

/* True: the caller begins it. With P2P=serial only the first send has begun, or is about to; the others are begun
 * by group_points_begin_next. */
static bool add(struct group_points *points, struct ls_op *op)
{
	count_in(op);
	lock_group_acquire(&points->lock);
	op->next = NULL;
	op->before = points->last;
	if (points->last)
		points->last->next = op;
	else
		points->first = op;
	points->last = op;
	if (op->deadline_ns < points->next_deadline_ns)
		points->next_deadline_ns = op->deadline_ns;
	points->agent_count += op->wants_agent;
	points->eager_count += op->wants_eager;
	op->listed = true;
	bool begins = !points->serial || op->engine.call.kind != TRACE_SEND ||
		      group_points_first_send(points) == op;
	op->claimed = begins;
	lock_group_release(&points->lock);
	return begins;
}

static void take_out(struct group_points *points, struct ls_op *op)
{
	lock_group_acquire(&points->lock);
	if (op->before)
		op->before->next = op->next;
	else
		points->first = op->next;
	if (op->next)
		op->next->before = op->before;
	else
		points->last = op->before;
	points->agent_count -= op->wants_agent;
	points->eager_count -= op->wants_eager;
	op->listed = false;
	if (!points->first)
		points->next_deadline_ns = CLOCK_NEVER;
	lock_group_release(&points->lock);
}

/* The first one of the group that nobody has begun, NULL: the send whose turn it is. From now on it is the caller's to
 * begin, or to end; held. */
static struct ls_op *claim(struct group_points *points, const ls_group *group)
{
	lock_group_acquire(&points->lock);
	struct ls_op *op = group ? points->first : group_points_first_send(points);
	while (op && group && (op->group != group || op->claimed))
		op = op->next;
	if (op && op->claimed)
		op = NULL;
	if (op) {
		op->claimed = true;
		group_op_hold(op);
	}
	lock_group_release(&points->lock);
	return op;
}

bool group_points_can_begin(struct group_points *points)
{
	if (!points->serial)
		return false;
	const struct ls_op *op = group_points_first_send(points);
	return op && !op->claimed;
}

/* One that waits for room goes on when some is made, so each ring is a call for the agent. */
static void want_eager(struct group_points *points, struct ls_op *op)
{
	lock_group_acquire(&points->lock);
	if (op->listed && !op->wants_eager) {
		points->agent_count += !op->wants_agent;
		points->eager_count++;
		op->wants_agent = op->wants_eager = true;
	}
	lock_group_release(&points->lock);
}

/* Who drives may be looking through the list, so a group is put in front. */
static void add_group(ls_group *group)
{
	_Atomic(ls_group *) *head = &group->world->points.groups;
	if (atomic_exchange(&group->has_points, true))
		return;
	group->next_points = atomic_load(head);
	while (!atomic_compare_exchange_weak(head, &group->next_points, group))
		;
}

/* How many wait for those before them. */
static long count_unbegun(struct group_points *points, const ls_group *group)
{
	long count = 0;
	lock_group_acquire(&points->lock);
	for (const struct ls_op *op = points->first; op; op = op->next)
		count += op->group == group && !op->claimed;
	lock_group_release(&points->lock);
	return count;
}

long group_points_pending(ls_group *group)
{
	struct group_points *points = &group->world->points;
	long begun = (long)engine_point_pending(&group->engine);
	return points->serial ? begun + count_unbegun(points, group) : begun;
}

struct ls_op *group_points_first(ls_group *group)
{
	struct group_points *points = &group->world->points;
	lock_group_acquire(&points->lock);
	struct ls_op *op = points->first;
	while (op && op->group != group)
		op = op->next;
	if (op)
		group_op_hold(op);
	lock_group_release(&points->lock);
	return op;
}

/* ---- the end of one ---- */

static void finish(struct ls_op *op, ls_status status)
{
	struct group_world *world = op->group->world;
	take_out(&world->points, op);
	if (status == LS_OK)
		group_point_deliver(op);
	struct ls_op *batch = op->batch;
	bool gives_turn = world->points.serial && op->engine.call.kind == TRACE_SEND;
	bool calls = op->callback, limited = op->may_leave;
	struct trace_group *entry = op->group->entry;
	group_op_tell(op, status);
	count_out(entry, calls, limited);
	if (batch)
		group_batch_part_over(batch, status);
	/* The next one's turn has come: who drives begins it, or the agent, which is armed eagerly if one waits. */
	if (gives_turn)
		atomic_fetch_add(&world->points.news, 1);
	else if (atomic_load(&world->points.resting) == 0)
		return;
	atomic_fetch_add(&group_points_area(world)->points, 1);
	wait_ring(world->waiter.bell);
}

void group_points_collect(ls_group *group)
{
	struct engine_op *engine;
	while ((engine = engine_point_over(&group->engine))) {
		struct ls_op *op = op_of(engine);
		finish(op, group_op_settle(op, LS_OK, -1));
	}
}

/* The group has failed: nothing of it goes on. */
void group_points_end_all(ls_group *group)
{
	struct group_points *points = &group->world->points;
	struct engine_op *engine;
	struct ls_op *op;
	group_points_collect(group);
	while ((engine = engine_point_leave(&group->engine))) {
		op = op_of(engine);
		finish(op, group_op_settle(op, LS_ABORTED, -1));
	}
	while (points->serial && (op = claim(points, group))) {
		finish(op, group_op_settle(op, LS_ABORTED, -1));
		group_op_let_go(op);
	}
}

/* ---- the beginning ---- */

static ls_status begin(struct ls_op *op)
{
	struct engine *engine = &op->group->engine;
	struct engine_room room;
	engine_submit(engine, &op->engine, &room);
	atomic_store_explicit(&op->begun, true, memory_order_release);
	return engine_advance(engine, &op->engine) == ENGINE_FAILED ? op->engine.status : LS_OK;
}

/* Whether it would hold up a peer, or somebody wants to be told, while nobody waits for it. */
static void choose_agent(struct ls_op *op)
{
	const struct engine_call *call = &op->engine.call;
	bool in_turn = op->group->world->points.serial && call->kind == TRACE_SEND;
	op->wants_eager = in_turn || op->callback;
	op->wants_agent = op->wants_eager || call->kind == TRACE_RECV;
}

ls_status group_points_start(struct ls_op *op)
{
	ls_group *group = op->group;
	struct group_points *points = &group->world->points;
	op->deadline_ns = clock_deadline_ns(op->timeout_ms);
	choose_agent(op);
	if (op->wants_agent) {
		ls_status status = group_points_start_agent(group->world);
		if (status != LS_OK)
			return status;
	}
	add_group(group);
	group_op_hold(op);
	ls_status status = LS_OK;
	if (add(points, op)) {
		status = begin(op);
		if (status != LS_OK) {
			take_out(points, op);
			count_out(group->entry, op->callback, op->may_leave);
		} else {
			group_points_collect(group);
		}
		if (status == LS_OK && op->engine.call.kind == TRACE_SEND &&
		    engine_point_is_queued(&op->engine) &&
		    group_points_start_agent(group->world) == LS_OK)
			want_eager(points, op);
	}
	/* What has happened before is no call for an agent that is armed already. */
	bool ends = group_cause_status(group) != LS_OK ||
		    (op->callback && group_gone_members(group) != 0);
	group_op_let_go(op);
	if (group_points_pending(group) > 0 || points->serial)
		group_points_arm(group->world, ends || engine_point_has_work(&group->engine));
	return status;
}

bool group_points_begin_next(struct group_world *world)
{
	struct ls_op *op = claim(&world->points, NULL);
	if (!op)
		return false;
	ls_status status = begin(op);
	if (status != LS_OK)
		finish(op, group_op_settle(op, status, -1));
	group_op_let_go(op);
	return true;
}

bool group_points_take_back(struct ls_op *op)
{
	struct group_points *points = &op->group->world->points;
	if (!points->serial)
		return false;
	lock_group_acquire(&points->lock);
	bool mine = op->listed && !op->claimed;
	if (mine)
		op->claimed = true;
	lock_group_release(&points->lock);
	if (!mine)
		return false;
	op->engine.status = LS_CANCELLED;
	finish(op, group_op_settle(op, LS_OK, -1));
	return true;
}

/* ---- a group is closed ---- */

/* Until something is over on this rank, which may be what the caller wants; unless `op` is over already, or, with NULL,
 * nobody drives. He shows nothing, as other threads of this rank are busy with it and wait for nobody. */
static void await_told(struct group_world *world, struct waiter *quiet, const struct ls_op *op)
{
	struct wait_word word;
	atomic_fetch_add(&world->points.resting, 1);
	group_points_over_word(world, atomic_load(&group_points_area(world)->points) + 1, &word);
	if (op ? !group_op_is_over(op) : group_points_is_driven(&world->points)) {
		struct wait_call call = {.words = &word,
					 .count = 1,
					 .deadline_ns = clock_deadline_ns(GROUP_SLICE_MS)};
		int peer;
		ls_status status = wait_words(quiet, &call, &peer);
		(void)status; /* it is tried again, whatever it was */
	}
	atomic_fetch_sub(&world->points.resting, 1);
}

void group_points_await_told(const struct ls_op *op)
{
	while (!group_op_is_over(op))
		await_told(op->group->world, &op->group->quiet, op);
}

/* Setting P2P=serial: whether another thread has claimed it, and has not handed it to a peer yet. */
static bool is_being_begun(const struct ls_op *op)
{
	struct group_points *points = &op->group->world->points;
	if (!points->serial)
		return false;
	lock_group_acquire(&points->lock);
	bool being = op->listed && op->claimed && atomic_load(&op->engine.point.stage) == POINT_NEW;
	lock_group_release(&points->lock);
	return being;
}

void group_points_await_begun(const struct ls_op *op)
{
	while (is_being_begun(op))
		await_told(op->group->world, &op->group->quiet, op);
}

/* Whoever drives is inside a call on another group, or is the agent; and may wait there for what only the caller does
 * next. */
static void take_over(struct group_world *world, struct waiter *quiet)
{
	struct group_points *points = &world->points;
	atomic_fetch_add(&points->wanted, 1);
	while (!group_points_take_over(points)) {
		group_points_call_driver(world);
		await_told(world, quiet, NULL);
	}
}

void group_points_close(ls_group *group)
{
	_Atomic(ls_group *) *head = &group->world->points.groups;
	ls_group *at = group;
	if (!atomic_load(&group->has_points))
		return;
	take_over(group->world, &group->quiet);
	group_points_end_all(group);
	if (!atomic_compare_exchange_strong(head, &at, group->next_points)) {
		while (at->next_points != group)
			at = at->next_points;
		at->next_points = group->next_points;
	}
	group_points_leave(group->world, true);
}
