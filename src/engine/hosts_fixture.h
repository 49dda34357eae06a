/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a group whose members are on several hosts, with an engine each. What is between the
 * hosts is a loop-back that is late and has little room. */
#ifndef ENGINE_HOSTS_FIXTURE_H
#define ENGINE_HOSTS_FIXTURE_H

#include "engine/engine_fixture.h"
#include "transport/hosts_fixture.h"

struct hosts {
	struct fixture *fixture;
	struct loop *loop;
};

static inline struct hosts *open_hosts(int size, const int *host_of, uint64_t seed)
{
	struct hosts *hosts = calloc(1, sizeof *hosts);
	struct fixture *fixture = calloc(1, sizeof *fixture);
	const struct settings settings = {.messages = MAIL_SLOTS};
	struct plan_table table;
	MUST(hosts && fixture);
	plan_table_default(&table);
	hosts->fixture = fixture;
	fixture->job = test_job_new_of(size, TEST_JOB_LIMIT_MS, true);
	for (int r = 0; r < size; r++) {
		struct memory *memory = &fixture->job->ranks[r].memory;
		memory_fini(memory);
		MUST(memory_init(memory, TEST_ARENA_BYTES, TEST_JOB_ID, r) == LS_OK);
	}
	hosts->loop = hosts_connect(fixture->job, host_of, seed);
	for (int r = 0; r < size; r++) {
		struct unit *unit = &fixture->units[r];
		struct trace_options options = {
			.job = TEST_JOB_ID, .rank = r, .world_size = size, .records = 16};
		*unit = (struct unit){
			.fixture = fixture, .link = &fixture->job->ranks[r], .rank = r, .size = size};
		unit->link->waiter.cause = &fixture->cause;
		MUST(trace_init(&unit->trace, &options) == LS_OK);
		MUST(engine_init(&unit->engine, &unit->link->team, &unit->trace,
				 &unit->link->memory, &settings) == LS_OK);
		engine_begin(&unit->engine, &fixture->cause, &table);
	}
	return hosts;
}

static inline void close_hosts(struct hosts *hosts)
{
	hosts_disconnect(hosts->fixture->job, hosts->loop);
	fixture_close(hosts->fixture);
	free(hosts);
}

#endif
