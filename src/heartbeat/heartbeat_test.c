/* SPDX-License-Identifier: BSD-3-Clause
 * What an agent stores for the ranks of its host, and which hosts a rank gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "heartbeat/heartbeat_private.h"

enum {
	HOSTS = 3,
	LEASE = 1 << 16 | 1,
	/* In whole cache lines, as aligned_alloc wants it. */
	SEGMENT_BYTES =
		(sizeof(struct transport_segment) + HOSTS * sizeof(struct transport_traffic) + 63) /
		64 * 64,
};

/* Rank 0 of three, each on a host of its own; it is the agent. */
static int open_agent(void **state)
{
	struct heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
	assert_non_null(heartbeat);
	heartbeat->world = calloc(1, sizeof *heartbeat->world);
	heartbeat->shared = calloc(1, sizeof *heartbeat->shared);
	assert_true(heartbeat->world && heartbeat->shared);
	heartbeat->world->size = heartbeat->hosts = HOSTS;
	heartbeat->world->transport.segment = aligned_alloc(64, SEGMENT_BYTES);
	assert_non_null(heartbeat->world->transport.segment);
	memset(heartbeat->world->transport.segment, 0, SEGMENT_BYTES);
	heartbeat->world->waiter.bell = &heartbeat->world->early_bell;
	heartbeat->world->settings.unreachable_ms = 10000;
	heartbeat->lease = LEASE;
	atomic_store(&heartbeat->shared->lease, LEASE);
	for (int h = 0; h < HOSTS; h++)
		heartbeat->host_of[h] = h;
	struct detector_options options = {.hosts = HOSTS, .job = 7, .generation = 1};
	detector_init(&heartbeat->detector, &options, clock_now_ns());
	*state = heartbeat;
	return 0;
}

static int close_agent(void **state)
{
	struct heartbeat *heartbeat = *state;
	free(heartbeat->world->transport.segment);
	free(heartbeat->shared);
	free(heartbeat->world);
	free(heartbeat);
	return 0;
}

static uint64_t stored(const struct heartbeat *heartbeat, int host)
{
	return atomic_load(&heartbeat->shared->hosts[host].unheard_ns);
}

/* Only the agent tells the ranks; and what a late one has stored, the agent mends. */
static void test_lost_lease(void **state)
{
	struct heartbeat *heartbeat = *state;
	heartbeat->detector.peers[1].unheard.real_ns = 77; /* as if it had been found */
	atomic_store(&heartbeat->shared->lease, LEASE + (1 << 16));
	assert_false(heartbeat_tell(heartbeat));
	assert_int_equal(stored(heartbeat, 1), 0);
	heartbeat->lease = LEASE + (1 << 16);
	assert_true(heartbeat_tell(heartbeat));
	assert_int_equal(stored(heartbeat, 1), 77);
	assert_int_equal(atomic_load(&heartbeat->shared->hosts[1].how), HEARTBEAT_SILENT);
	assert_int_equal(stored(heartbeat, 2), 0);
	atomic_store(&heartbeat->shared->hosts[1].unheard_ns, 0); /* by the late one */
	atomic_store(&heartbeat->shared->hosts[2].unheard_ns, 78);
	assert_true(heartbeat_tell(heartbeat));
	assert_int_equal(stored(heartbeat, 1), 77);
	assert_int_equal(stored(heartbeat, 2), 0);
}

static void test_ended(void **state)
{
	struct heartbeat *heartbeat = *state;
	uint64_t now_ns = clock_now_ns();
	atomic_store(&heartbeat->shared->hosts[1].unheard_ns, now_ns - UINT64_C(9000000000));
	atomic_store(&heartbeat->shared->hosts[1].listened_ns, UINT64_C(9000000000));
	heartbeat_act(heartbeat, now_ns); /* not yet */
	assert_false(heartbeat_has_ended(heartbeat, 1));
	atomic_store(&heartbeat->world->dead[1], 1);
	assert_true(heartbeat_has_ended(heartbeat, 1));
	assert_false(heartbeat_has_ended(heartbeat, 2));
	atomic_store(&heartbeat->shared->hosts[1].listened_ns, UINT64_C(18000000000));
	heartbeat_act(heartbeat, now_ns + UINT64_C(9000000000));
	assert_int_equal(heartbeat->acted, 0);
}

/* There is no link. */
static uint64_t ranks_cut;
void __wrap_hosts_cut(struct transport *transport, int rank);
void __wrap_hosts_cut(struct transport *transport, int rank)
{
	(void)transport;
	ranks_cut |= ranks_bit(rank);
}

/* A silence counts only while an agent of this host has listened. It had not if the agents, or all
 * of this host, were stopped. */
static void test_nobody_listened(void **state)
{
	struct heartbeat *heartbeat = *state;
	struct transport_remote_host *remote = &heartbeat->shared->hosts[1];
	uint64_t now_ns = clock_now_ns();
	atomic_store(&remote->unheard_ns, now_ns - UINT64_C(20000000000));
	atomic_store(&remote->listened_ns, UINT64_C(9900000000));
	heartbeat_act(heartbeat, now_ns);
	assert_int_equal(ranks_cut, 0);
	atomic_store(&remote->listened_ns, UINT64_C(10000000000));
	heartbeat_act(heartbeat, now_ns);
	assert_int_equal(ranks_cut, ranks_bit(1));
	assert_int_equal(atomic_load(&heartbeat->world->dead[1]), 1);
}

/* While the link to a host is proved to be broken, a lost connection does not mean that a rank
 * there has died. When the host is heard again, it does. */
static void test_lost_behind_broken_link(void **state)
{
	struct heartbeat *heartbeat = *state;
	struct world *world = heartbeat->world;
	struct transport_remote_host *remote = &heartbeat->shared->hosts[1];
	struct hosts_events events = failure_hosts_events(world);
	uint64_t now_ns = clock_now_ns();
	atomic_store(&remote->how, HEARTBEAT_LINK_TO);
	atomic_store(&remote->unheard_ns, now_ns);
	heartbeat_act(heartbeat, now_ns);
	events.lost(world, 1);
	assert_int_equal(atomic_load(&world->dead[1]), 0);
	events.lost(world, 2);
	assert_int_equal(atomic_load(&world->dead[2]), 1);
	atomic_store(&transport_traffic(world->transport.segment, 1)->lost, 1);
	atomic_store(&remote->unheard_ns, 0);
	heartbeat_act(heartbeat, now_ns);
	assert_int_equal(atomic_load(&world->dead[1]), 1);
}

/* Nobody hears the host, which may lose a rank all the same; its system says so. */
static void test_lost_of_silent_host(void **state)
{
	struct heartbeat *heartbeat = *state;
	struct hosts_events events = failure_hosts_events(heartbeat->world);
	uint64_t now_ns = clock_now_ns();
	atomic_store(&heartbeat->shared->hosts[1].how, HEARTBEAT_SILENT);
	atomic_store(&heartbeat->shared->hosts[1].unheard_ns, now_ns);
	heartbeat_act(heartbeat, now_ns);
	events.lost(heartbeat->world, 1);
	assert_int_equal(atomic_load(&heartbeat->world->dead[1]), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lost_lease, open_agent, close_agent),
		cmocka_unit_test_setup_teardown(test_ended, open_agent, close_agent),
		cmocka_unit_test_setup_teardown(test_nobody_listened, open_agent, close_agent),
		cmocka_unit_test_setup_teardown(test_lost_behind_broken_link, open_agent,
						close_agent),
		cmocka_unit_test_setup_teardown(test_lost_of_silent_host, open_agent, close_agent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
