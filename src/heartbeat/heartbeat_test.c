/* SPDX-License-Identifier: BSD-3-Clause
 * What an agent stores for the ranks of its host, and which hosts a rank gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "heartbeat/heartbeat_private.h"

enum { HOSTS = 3, LEASE = 1 << 16 | 1 };

/* Rank 0 of three, each on a host of its own; it is the agent. */
static int open_agent(void **state)
{
	struct heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
	assert_non_null(heartbeat);
	heartbeat->world = calloc(1, sizeof *heartbeat->world);
	heartbeat->shared = calloc(1, sizeof *heartbeat->shared);
	assert_true(heartbeat->world && heartbeat->shared);
	heartbeat->world->size = heartbeat->hosts = HOSTS;
	heartbeat->world->settings.unreachable_ms = 10000;
	heartbeat->lease = LEASE;
	atomic_store(&heartbeat->shared->lease, LEASE);
	for (int h = 0; h < HOSTS; h++)
		heartbeat->host_of[h] = h;
	struct control_options options = {.hosts = HOSTS, .job = 7, .generation = 1};
	control_init(&heartbeat->control, &options, clock_now_ns());
	*state = heartbeat;
	return 0;
}

static int close_agent(void **state)
{
	struct heartbeat *heartbeat = *state;
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
	heartbeat->control.peers[1].unheard_ns = 77; /* as if it had been found */
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
	heartbeat_act(heartbeat, now_ns); /* not yet */
	assert_false(heartbeat_has_ended(heartbeat, 1));
	atomic_store(&heartbeat->world->dead[1], 1);
	assert_true(heartbeat_has_ended(heartbeat, 1));
	assert_false(heartbeat_has_ended(heartbeat, 2));
	heartbeat_act(heartbeat, now_ns + UINT64_C(9000000000));
	assert_int_equal(heartbeat->acted, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lost_lease, open_agent, close_agent),
		cmocka_unit_test_setup_teardown(test_ended, open_agent, close_agent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
