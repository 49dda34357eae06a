/* SPDX-License-Identifier: BSD-3-Clause
 * Driving the sends and receives that run beside the caller, and waiting for one who drives. */
#include "base/clock.h"
#include "points.h"

enum { DRIVE_WORDS = WAIT_EDGE_MAX - 2 }; /* one is for news */

/* What the one who drives waits for, and whom. */
struct drive {
	ls_op *const *ops;
	int count;
	struct wait_word words[WAIT_EDGE_MAX];
	int word_count; /* more than DRIVE_WORDS: some were left out */
	bool more;
	uint64_t news; /* as they were before he looked */
};

static bool is_over(const struct ls_op *op)
{
	return atomic_load_explicit(&op->over, memory_order_acquire) != 0;
}

/* What a batch waits for is any part of it that is not over, as it waits for all. */
static const struct ls_op *face_of(const struct ls_op *op)
{
	const struct ls_op *part = op->is_batch ? op->next_part : NULL;
	while (part && is_over(part))
		part = part->next_part;
	return part ? part : op;
}

/* Of the operations that are waited for, those of this group. */
static int own_of(const struct drive *drive, const ls_group *group, const struct engine_op **own)
{
	int count = 0;
	for (int i = 0; i < drive->count; i++) {
		const struct ls_op *op = drive->ops[i];
		if (op && op->group == group && group_op_is_point(op) && !is_over(op))
			own[count++] = &face_of(op)->engine;
	}
	return count;
}

/* One that nobody waits for, but whose callback somebody waits for, needs a peer that is gone. Others are found
 * to by whoever waits for them; until then they may be taken back. */
struct ls_op *group_points_needing(ls_group *group, uint64_t gone, int *peer)
{
	struct group_points *points = &group->world->points;
	struct ls_op *needing = NULL;
	lock_group_acquire(&points->lock);
	for (struct ls_op *op = points->eager_count ? points->first : NULL; op && !needing;
	     op = op->next)
		if (op->group == group && op->callback && atomic_load(&op->begun) &&
		    engine_point_needs(&group->engine, &op->engine, gone, peer))
			needing = op;
	lock_group_release(&points->lock);
	return needing;
}

static void fail_needing(ls_group *group, uint64_t gone)
{
	int peer = -1;
	struct ls_op *needing = group_points_needing(group, gone, &peer);
	if (!needing)
		return;
	int world_rank = group_world_rank(group, peer);
	ls_status reason =
		wait_peer_has_left(&group->peers[world_rank]) ? LS_PEER_LEFT : LS_PEER_DIED;
	ls_status status = group_op_fail(needing, reason, world_rank, 0);
	(void)status; /* everything of the group ends with it */
}

/* A part of a batch may be over now, so that another one stands for it: the words were asked for with the first. */
static bool is_outdated(const struct drive *drive, const ls_group *group,
			const struct engine_op *const *own, int count)
{
	const struct engine_op *now[WAIT_EDGE_MAX];
	if (own_of(drive, group, now) != count)
		return true;
	for (int i = 0; i < count; i++)
		if (now[i] != own[i])
			return true;
	return false;
}

static void sweep_group(struct drive *drive, ls_group *group)
{
	const struct engine_op *own[WAIT_EDGE_MAX];
	if (engine_point_pending(&group->engine) == 0)
		return;
	uint64_t gone = group_gone_members(group); /* before what they have sent is taken in */
	int count = own_of(drive, group, own), words = 0;
	int room = drive->word_count < DRIVE_WORDS ? DRIVE_WORDS - drive->word_count : 0;
	drive->more |= engine_point_progress(&group->engine, own, count,
					     drive->words + DRIVE_WORDS - room, room, &words);
	drive->word_count += words;
	group_points_collect(group);
	drive->more |= is_outdated(drive, group, own, count);
	if (gone && group_cause_status(group) == LS_OK)
		fail_needing(group, gone);
	if (group_cause_status(group) != LS_OK)
		group_points_end_all(group);
}

/* Those whose time is up. */
static void sweep_deadlines(struct group_world *world)
{
	struct group_points *points = &world->points;
	struct ls_op *late = NULL;
	uint64_t now = clock_now_ns(), next = CLOCK_NEVER;
	lock_group_acquire(&points->lock);
	if (points->first && points->next_deadline_ns <= now) {
		for (struct ls_op *op = points->first; op; op = op->next) {
			if (op->deadline_ns <= now && !late)
				late = op;
			else if (op->deadline_ns < next)
				next = op->deadline_ns;
		}
		points->next_deadline_ns = next;
	}
	if (late)
		group_op_hold(late); /* somebody may end it meanwhile */
	lock_group_release(&points->lock);
	if (!late)
		return;
	ls_status status = group_op_fail(late, LS_TIMED_OUT, -1, 0);
	(void)status; /* as above */
	group_points_end_all(late->group);
	group_op_let_go(late);
}

static void sweep(struct group_world *world, struct drive *drive)
{
	drive->word_count = 0;
	drive->more = false;
	drive->news = atomic_load_explicit(&world->points.news, memory_order_acquire);
	sweep_deadlines(world);
	for (ls_group *group = atomic_load(&world->points.groups); group; group = group->next_points)
		sweep_group(drive, group);
	if (world->points.serial)
		drive->more |= group_points_begin_next(world);
}

bool group_points_sweep(struct group_world *world)
{
	struct drive drive = {.ops = NULL};
	sweep(world, &drive);
	return drive.more;
}

void group_points_help(struct group_world *world)
{
	if (group_points_take(&world->points))
		group_points_leave(world, group_points_sweep(world));
}

static bool is_any_over(ls_op *const *ops, int count)
{
	for (int i = 0; i < count; i++)
		if (ops[i] && is_over(ops[i]))
			return true;
	return false;
}

static const struct ls_op *first_of(ls_op *const *ops, int count)
{
	const struct ls_op *first = NULL;
	for (int i = 0; i < count && !first; i++)
		first = ops[i];
	return face_of(first);
}

static uint64_t deadline_of(struct group_points *points, uint64_t until_ns)
{
	lock_group_acquire(&points->lock);
	uint64_t next = points->next_deadline_ns;
	lock_group_release(&points->lock);
	return next < until_ns ? next : until_ns;
}

/* Counts what is over here, in the area of the group of all ranks. */
struct transport_area *group_points_area(const struct group_world *world)
{
	return transport_area_at(world->transport.segment, world->size, 0);
}

void group_points_over_word(const struct group_world *world, uint64_t value, struct wait_word *out)
{
	const struct transport_area *area = group_points_area(world);
	const char *start = (const char *)world->transport.segment;
	*out = (struct wait_word){.word = &area->points,
				  .edge = {.value = value,
					   .offset = (uint64_t)((const char *)&area->points - start),
					   .owner = world->rank,
					   .peer = -1, /* another thread of this rank */
					   .segment = WAIT_SEGMENT_LINK}};
}

/* Of collectives among the operations the one that ends first, which the progress thread runs: words[0] waits for
 * it. Returns how many words there are. */
static int lane_word(ls_op *const *ops, int count, struct wait_word *words)
{
	const struct ls_op *earliest = NULL;
	for (int i = 0; i < count; i++)
		if (ops[i] && !group_op_is_point(ops[i]) &&
		    (!earliest || ops[i]->engine.seq < earliest->engine.seq))
			earliest = ops[i];
	if (!earliest)
		return 0;
	const struct ls_group *group = earliest->group;
	transport_await(&group->team, group->rank,
			&transport_member(&group->team, group->rank)->over, earliest->engine.seq,
			group->rank, &words[0]);
	words[0].edge.peer = -1; /* another thread of this rank */
	words[0].edge.record = (uint32_t)earliest->engine.record;
	return 1;
}

/* One wait of who drives, or rests. */
static ls_status wait_once(const struct ls_op *first, const struct wait_word *words, int count,
			   const struct group_pause *pause, int *peer)
{
	ls_group *group = first->group;
	struct group_world *world = group->world;
	struct wait_call call = {
		.words = words,
		.count = count,
		.any = true,
		.may_leave =
			first->may_leave || (pause->at_ns < first->deadline_ns && !pause->returns),
		.deadline_ns = deadline_of(&world->points, pause->at_ns),
		.since_ns = pause->since_ns,
		.group = group->id,
		.record = first->engine.record,
	};
	if (wait_briefly(&group->waiter, &call))
		return LS_OK;
	uint64_t start = clock_ticks();
	ls_status status = wait_words(&group->waiter, &call, peer);
	trace_waited(&world->trace, clock_ticks() - start);
	return status;
}

/* All whom the operations could get anything from are gone. */
static void fail_first(const struct ls_op *first, ls_status status, int peer)
{
	ls_status cause = group_op_fail(first, status, peer, 0);
	(void)cause; /* the next sweep ends everything of the group with it */
}

/* What he waits for, or news: something has begun meanwhile, or is over, that he does not know of. */
static ls_status wait_driving(struct group_world *world, struct drive *drive,
			      const struct group_pause *pause, int *peer)
{
	struct group_points *points = &world->points;
	struct wait_call call = {.words = drive->words, .count = drive->word_count, .any = true};
	ls_group *group = first_of(drive->ops, drive->count)->group;
	ls_status status = LS_OK;
	*peer = -1;
	if (wait_briefly(&group->waiter, &call))
		return LS_OK;
	atomic_fetch_add(&points->resting, 1);
	struct wait_word *word = &drive->words[drive->word_count];
	group_points_over_word(world, atomic_load(&group_points_area(world)->points) + 1, word);
	word->edge.record = WAIT_RECORD_OTHERS;
	int count = drive->word_count + 1;
	count += lane_word(drive->ops, drive->count, &drive->words[count]);
	if (atomic_load(&points->news) == drive->news && !is_any_over(drive->ops, drive->count))
		status = wait_once(first_of(drive->ops, drive->count), drive->words, count, pause,
				   peer);
	atomic_fetch_sub(&points->resting, 1);
	return status;
}

/* LS_OK when one of them is over. */
static ls_status drive(struct group_world *world, ls_op *const *ops, int count,
		       const struct group_pause *pause, bool *more)
{
	struct drive drive = {.ops = ops, .count = count};
	ls_status status = LS_OK;
	int peer = -1;
	for (;;) {
		sweep(world, &drive);
		*more = drive.more;
		if (is_any_over(ops, count))
			return LS_OK;
		if (status == LS_PEER_DIED || status == LS_PEER_LEFT)
			fail_first(first_of(ops, count), status, peer);
		if (drive.more && clock_now_ns() < pause->at_ns)
			continue;
		struct group_pause until = *pause;
		if (drive.word_count > DRIVE_WORDS) {
			/* Too many to wait for: what is left out is looked at soon. */
			uint64_t soon = clock_deadline_ns(1);
			until.at_ns = soon < until.at_ns ? soon : until.at_ns;
			drive.word_count = DRIVE_WORDS;
		}
		status = wait_driving(world, &drive, &until, &peer);
		if (status == LS_INTERRUPTED)
			return status;
		if (clock_now_ns() >= pause->at_ns && !is_any_over(ops, count))
			return LS_PENDING;
	}
}

/* What the operations wait for themselves, so that a diagnosis sees it; nothing, if some of it is there already:
 * then who drives is about to go on. */
static int own_words(ls_op *const *ops, int count, struct wait_word *words)
{
	const struct engine_op *own[WAIT_EDGE_MAX];
	struct wait_word all[WAIT_EDGE_MAX];
	struct drive drive = {.ops = ops, .count = count};
	ls_group *group = first_of(ops, count)->group;
	int found = 0, own_count = own_of(&drive, group, own);
	int all_count = engine_point_words(&group->engine, own, own_count, all, WAIT_EDGE_MAX);
	for (int i = 0; i < all_count && i < WAIT_EDGE_MAX && found < DRIVE_WORDS; i++)
		if (all[i].edge.record != WAIT_RECORD_OTHERS)
			words[found++] = all[i];
	struct wait_call call = {.words = words, .count = found, .any = true};
	return wait_satisfied(&call) ? 0 : found;
}

static bool is_driven(struct group_points *points)
{
	lock_group_acquire(&points->lock);
	bool driven = points->driven;
	lock_group_release(&points->lock);
	return driven;
}

/* Somebody else drives. */
static ls_status rest(struct group_world *world, ls_op *const *ops, int count,
		      const struct group_pause *pause)
{
	struct transport_area *mine = group_points_area(world);
	struct wait_word words[WAIT_EDGE_MAX];
	int peer, word_count = own_words(ops, count, words);
	atomic_fetch_add(&world->points.resting, 1);
	uint64_t seen = atomic_load(&mine->points);
	ls_status status = LS_OK;
	/* Whoever stops driving from here on sees that somebody rests. */
	if (!is_any_over(ops, count) && is_driven(&world->points)) {
		struct wait_word *word = &words[word_count];
		group_points_over_word(world, seen + 1, word);
		word->edge.record = word_count ? WAIT_RECORD_OTHERS : 0;
		word_count++;
		word_count += lane_word(ops, count, &words[word_count]);
		status = wait_once(first_of(ops, count), words, word_count, pause, &peer);
	}
	atomic_fetch_sub(&world->points.resting, 1);
	/* Who drives looks for what he waits for himself, and his group may be another. */
	if ((status == LS_PEER_DIED || status == LS_PEER_LEFT) && !is_any_over(ops, count))
		fail_first(first_of(ops, count), status, peer);
	if (status != LS_OK && status != LS_INTERRUPTED)
		group_points_call_driver(world);
	return status;
}

ls_status group_points_await(struct ls_op *const *ops, int count, const struct group_pause *pause)
{
	struct group_world *world = first_of(ops, count)->group->world;
	while (!is_any_over(ops, count)) {
		ls_status status;
		bool more = false;
		if (group_points_take(&world->points)) {
			status = drive(world, ops, count, pause, &more);
			group_points_leave(world, more);
		} else {
			status = rest(world, ops, count, pause);
		}
		if (status == LS_INTERRUPTED && world->resumes && pause->at_ns == CLOCK_NEVER)
			continue;
		if (status == LS_INTERRUPTED || status == LS_PENDING)
			return status;
		if (clock_now_ns() >= pause->at_ns && !is_any_over(ops, count))
			return LS_PENDING;
	}
	return LS_OK;
}

void group_points_quiet(ls_group *group)
{
	struct group_points *points = &group->world->points;
	for (;;) {
		lock_group_acquire(&points->lock);
		struct ls_op *op = points->last;
		if (op)
			group_op_hold(op);
		lock_group_release(&points->lock);
		if (!op)
			return;
		ls_status status = group_points_await(&op, 1, &group_no_pause);
		(void)status; /* the caller learns of a failure by its own operation */
		group_op_let_go(op);
	}
}
