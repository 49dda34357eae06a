/* SPDX-License-Identifier: BSD-3-Clause
 * Looking for the cause of a long wait. Any rank whose wait lasts pokes its own watch; the first watch
 * that takes the lease (a time stamp that all ranks share) looks for the whole group. What is proved
 * fails the group; a stopped or absent rank is only reported, once for each operation. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/messages.h"
#include "group_private.h"

static void fill_sources(const struct group_world *world, struct diagnose_source *sources)
{
	for (int q = 0; q < world->size; q++)
		sources[q] = (struct diagnose_source){
			.rank = q,
			.pid = world->pids[q],
			.trace = world->views[q].header ? &world->views[q] : NULL,
			.segment = world->transport.links[q].segment,
			.segment_bytes = world->transport.links[q].segment_bytes,
			.process = DIAGNOSE_UNKNOWN,
			.signal = -1,
			.exit_code = -1,
		};
}

struct diagnose_job *group_look_collect(const struct group_world *world)
{
	struct diagnose_source sources[PLAN_SIZE_MAX];
	struct diagnose_job *job = diagnose_job_new(world->size);
	if (!job)
		return NULL;
	fill_sources(world, sources);
	diagnose_collect(sources, world->size, false, job);
	return job;
}

void group_look_tell(const struct group_world *world, struct diagnose_job *job,
		     const struct diagnose_verdict *verdict, char *text, size_t bytes)
{
	struct diagnose_source sources[PLAN_SIZE_MAX];
	fill_sources(world, sources);
	diagnose_add_sites(sources, world->size, job);
	diagnose_text(job, verdict, text, bytes);
}

/* True for one watch of the group at a time, and not again before a look interval has passed. */
static bool take_lease(struct group_world *world)
{
	_Atomic uint64_t *looked = &transport_member(&world->transport, 0)->looked_ns;
	uint64_t now = clock_now_ns();
	uint64_t last = atomic_load(looked);
	if (last <= now && now - last < world->waiter.look_ns / 2)
		return false;
	return atomic_compare_exchange_strong(looked, &last, now);
}

/* One report per cause, culprits and operation, whoever prints it. */
static void report_once(struct group_world *world, struct diagnose_job *job,
			const struct diagnose_verdict *verdict)
{
	_Atomic uint64_t *reported = &transport_member(&world->transport, 0)->reported;
	uint64_t key = verdict->culprits * UINT64_C(0x9e3779b97f4a7c15) ^ verdict->seq << 8 ^
		       (uint64_t)verdict->cause ^ (uint64_t)verdict->group << 48;
	uint64_t last = atomic_load(reported);
	if (last == key || !atomic_compare_exchange_strong(reported, &last, key))
		return;
	char text[DIAGNOSE_TEXT_BYTES];
	group_look_tell(world, job, verdict, text, sizeof text);
	message_report("LS-WAITING", text);
}

/* Fails the group for what is proved; reports what is likely, once it has lasted long enough. */
static void act(struct group_world *world, struct diagnose_job *job,
		const struct diagnose_verdict *verdict)
{
	struct diagnose_hint hint = {.status = verdict->status,
				     .rank = world->rank,
				     .peer = verdict->blamed,
				     .group = verdict->group,
				     .seq = verdict->seq};
	uint64_t now = clock_now_ns();
	uint64_t waited_ms = verdict->since_ns < now ? (now - verdict->since_ns) / 1000000 : 0;
	ls_status status;
	switch (verdict->cause) {
	case DIAGNOSE_MISMATCH:
	case DIAGNOSE_DIED:
	case DIAGNOSE_LEFT:
	case DIAGNOSE_DEADLOCK:
		status = group_cause_raise(world, &hint, false);
		(void)status; /* those who wait return it */
		return;
	case DIAGNOSE_ELSEWHERE:
		if (waited_ms >= world->settings.patience_ms)
			report_once(world, job, verdict);
		return;
	case DIAGNOSE_IS_STOPPED: /* whoever goes on within half a second is not worth a line */
		if (waited_ms >= GROUP_STOPPED_MS)
			report_once(world, job, verdict);
		return;
	default:
		return;
	}
}

void group_look(struct group_world *world)
{
	if (group_cause_status(world) != LS_OK || !take_lease(world))
		return;
	struct diagnose_job *job = group_look_collect(world);
	if (!job)
		return;
	struct diagnose_verdict verdict;
	diagnose_judge(job, NULL, &verdict);
	act(world, job, &verdict);
	free(job);
}
