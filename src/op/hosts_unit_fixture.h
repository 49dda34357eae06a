/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: the ranks of unit_fixture.h, on several hosts. What is between the hosts is a
 * loop-back that is late and has little room. */
#ifndef OP_HOSTS_UNIT_FIXTURE_H
#define OP_HOSTS_UNIT_FIXTURE_H

#include "op/unit_fixture.h"
#include "hosts/hosts_fixture.h"

struct test_hosts {
	struct fixture *fixture;
	struct loop *loop;
};

static inline struct test_hosts *open_hosts(int size, const int *host_of, uint64_t seed)
{
	struct test_hosts *hosts = calloc(1, sizeof *hosts);
	struct fixture *fixture = calloc(1, sizeof *fixture);
	const struct settings settings = {.messages = MAIL_SLOTS};
	MUST(hosts && fixture);
	hosts->fixture = fixture;
	fixture->has_hosts = true;
	fixture->job = test_job_new_of(size, TEST_JOB_LIMIT_MS, true);
	for (int r = 0; r < size; r++)
		fixture_enlarge_arena(fixture, r);
	hosts->loop = hosts_connect(fixture->job, host_of, seed);
	fixture_open_units(fixture, &settings);
	return hosts;
}

static inline void close_hosts(struct test_hosts *hosts)
{
	hosts_disconnect(hosts->fixture->job, hosts->loop);
	fixture_close(hosts->fixture);
	free(hosts);
}

#endif
