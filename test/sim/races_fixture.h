/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of LOCKSTEP_CHECK=1 with ranks: what is printed, and what the other ranks do. */
#ifndef SIM_RACES_FIXTURE_H
#define SIM_RACES_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>

#include "job_fixture.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(int32_t), LONG = 1 << 20 };

/* Ranks 1 and 2 take part in an operation of rank 0 only when rank 0 says so. */
static _Atomic int allowed;

static inline void allow(int step)
{
	atomic_store(&allowed, step);
}

static inline void await_step(int step)
{
	while (atomic_load(&allowed) < step)
		sched_yield();
}

/* Whether the thread's last error has all these texts, up to NULL, and two call sites. */
static inline bool has_said(const char *const *texts)
{
	char said[2048] = "";
	if (ls_last_error(said, sizeof said) <= 0)
		return false;
	const char *site = strstr(said, "called from ");
	bool all = site && strstr(site + 1, "called from ");
	for (; *texts; texts++)
		all = all && strstr(said, *texts);
	if (!all)
		fprintf(stderr, "it said: %s\n", said);
	return all;
}
/* Whether the text names this line and the next one as the call sites, the later call first. */
static inline bool has_said_lines(const char *file, int first)
{
	char said[2048] = "", earlier[64], later[64];
	snprintf(earlier, sizeof earlier, "%s:%d,", file, first);
	snprintf(later, sizeof later, "%s:%d,", file, first + 1);
	if (ls_last_error(said, sizeof said) <= 0)
		return false;
	const char *at = strstr(said, later);
	return at && strstr(at, earlier);
}
#define SAID(...) has_said((const char *const[]){__VA_ARGS__, NULL})

static inline ls_status sum(struct rank *rank, const void *send, void *recv, int stream,
			    ls_request **op)
{
	struct ls_call_options options = {.size = sizeof options, .request = op};
	if (stream >= 0)
		options.stream = rank->streams[stream];
	return ls_allreduce(rank->group, send, recv, COUNT, LS_INT32, LS_SUM, &options);
}

static inline void end(ls_request *op)
{
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
}

/* What the other ranks do: this many all-reduces, once rank 0 has made all wrong calls. */
static inline void take_part(int count, struct rank *rank)
{
	int32_t *mine = calloc(COUNT, sizeof *mine);
	MUST(mine);
	await_step(1);
	for (int i = 0; i < count; i++)
		MUST(sum(rank, mine, mine, -1, NULL) == LS_OK);
	free(mine);
}

/* ---- the tests ---- */

static rank_program *current;

/* In the end all operations that have begun are complete. */
static inline void run_current(struct rank *rank)
{
	struct ls_failure failure = {.size = sizeof failure};
	current(rank);
	MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	if (failure.status == LS_OK)
		MUST(ls_barrier(rank->group, NULL) == LS_OK);
}

static inline void check_job(rank_program *program)
{
	allow(0);
	current = program;
	run_job(run_current, "");
}

#endif
