/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a job whose ranks stand on several hosts, within one process. Ranks of one host map
 * each other's segments; the others have mirrors, and a loop-back link. */
#ifndef HOSTS_HOSTS_FIXTURE_H
#define HOSTS_HOSTS_FIXTURE_H

#include <fcntl.h>

#include "link/loop_fixture.h"
#include "hosts/hosts.h"
#include "transport/segment.h"
#include "transport/transport_fixture.h"

static inline void hosts_join(struct test_job *job, struct loop *loop, int r, const int *host_of)
{
	struct test_rank *rank = &job->ranks[r];
	struct transport *transport = &rank->transport;
	struct link *link = loop_link(loop, r);
	bool done;
	transport_team_fini(&rank->team);
	uint16_t hosts[RANKS_WORLD_MAX];
	for (int q = 0; q < job->size; q++)
		hosts[q] = (uint16_t)host_of[q];
	assert_int_equal(hosts_open(transport, link, hosts, &(struct hosts_events){0}), LS_OK);
	assert_int_equal(link->ops->connect(link, &done), LS_OK);
	assert_int_equal(transport_peer_open_own(transport, rank->memory.fd, rank->trace_fd), LS_OK);
	for (int q = 0; q < job->size; q++) {
		const struct test_rank *peer = &job->ranks[q];
		int fds[TRANSPORT_FDS] = {fcntl(peer->transport.segment_fd, F_DUPFD_CLOEXEC, 0),
					  fcntl(peer->memory.fd, F_DUPFD_CLOEXEC, 0),
					  fcntl(peer->trace_fd, F_DUPFD_CLOEXEC, 0)};
		if (q != r && host_of[q] == host_of[r])
			assert_int_equal(transport_peer_open(transport, q, fds), LS_OK);
		else if (q != r)
			assert_int_equal(hosts_mirror_open(transport, q), LS_OK);
		transport_close_fds(fds, TRANSPORT_FDS);
	}
	assert_int_equal(transport_team_init(&rank->team, transport), LS_OK);
	assert_int_equal(hosts_team_init(&rank->team), LS_OK);
	transport_team_set_world(&rank->team);
	hosts_team_open(&rank->team, 0, NULL, NULL);
}

/* Connects the ranks of a job that is not connected. */
static inline struct loop *hosts_connect(struct test_job *job, const int *host_of, uint64_t seed)
{
	struct loop *loop = loop_new(job->size, seed);
	for (int r = 0; r < job->size; r++)
		hosts_join(job, loop, r, host_of);
	return loop;
}

/* Call before the job is closed. */
static inline void hosts_disconnect(struct test_job *job, struct loop *loop)
{
	for (int r = 0; r < job->size; r++) {
		hosts_close(&job->ranks[r].transport);
		hosts_team_fini(&job->ranks[r].team);
	}
	for (int r = 0; r < job->size; r++)
		loop_link(loop, r)->ops->close(loop_link(loop, r));
	assert_true(loop_free(loop));
}

#endif
