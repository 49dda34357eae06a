/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: two ranks on two hosts, which the test's thread plays both, and a group of them. */
#ifndef HOSTS_PAIR_FIXTURE_H
#define HOSTS_PAIR_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "hosts/hosts_fixture.h"
#include "hosts/hosts_private.h"
#include "transport/notify.h"

enum { HERE = 0, REMOTE = 1, RANKS = 2, PASSES = 1000 };

static const int host_of[RANKS] = {0, 1};

struct pair {
	struct test_job *job;
	struct loop *loop;
	struct transport *here, *there;
	struct transport_team *team, *remote_team;
};

static inline struct pair open_pair(void)
{
	struct pair pair = {.job = test_job_new_of(RANKS, TEST_JOB_LIMIT_MS, true)};
	pair.loop = hosts_connect(pair.job, host_of, 1);
	pair.here = &pair.job->ranks[HERE].transport;
	pair.there = &pair.job->ranks[REMOTE].transport;
	pair.team = &pair.job->ranks[HERE].team;
	pair.remote_team = &pair.job->ranks[REMOTE].team;
	transport_notify_all(pair.team);
	transport_notify_all(pair.remote_team);
	/* Each has to hear that the other one has made the group. */
	while (!pair.team->relays[REMOTE].is_ready || !pair.remote_team->relays[HERE].is_ready) {
		hosts_advance(pair.here);
		hosts_advance(pair.there);
	}
	return pair;
}

static inline void close_pair(struct pair *pair)
{
	hosts_disconnect(pair->job, pair->loop);
	test_job_close(pair->job);
}

static inline void advance_both(const struct pair *pair)
{
	for (int i = 0; i < PASSES; i++) {
		hosts_advance(pair->here);
		hosts_advance(pair->there);
	}
}

#endif
