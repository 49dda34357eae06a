/* SPDX-License-Identifier: BSD-3-Clause
 * A peer that changes its state between two reads by the rank that waits for it. Whether it has
 * ended, or the group has failed, is read from a page that may not be read: the handler plays the
 * peer. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/wait_fixture.h"

static struct {
	struct fixture *fixture;
	_Atomic uint32_t *dead; /* of peer 0 */
	_Atomic uint64_t *cause;
	bool stores; /* the word that it owes, before it leaves */
} meanwhile;

static void leave_and_end(int number)
{
	struct shared *shared = meanwhile.fixture->shared;
	if (mprotect(meanwhile.dead, sizeof *meanwhile.dead, PROT_READ | PROT_WRITE) != 0)
		abort();
	if (meanwhile.stores)
		wait_store(&shared->words[0], 1);
	wait_store(&shared->left[0], number != 0);
	atomic_store(meanwhile.dead, 1);
}

static int setup(void **state)
{
	struct fixture *fixture = malloc(sizeof *fixture);
	assert_non_null(fixture);
	fixture_init(fixture);
	void *page = mmap(NULL, sizeof(uint32_t), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	meanwhile.fixture = fixture;
	meanwhile.stores = false;
	fixture->peers[0].dead = meanwhile.dead = page;
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(*state);
	free(*state);
	return munmap(meanwhile.dead, sizeof(uint32_t));
}

static ls_status wait_now(struct fixture *fixture, int count, int *peer)
{
	struct wait_call call = fixture_call(fixture, count, false);
	struct sigaction action = {.sa_handler = leave_and_end, .sa_flags = (int)SA_RESETHAND};
	call.deadline_ns = clock_now_ns();
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	return wait_words(&fixture->waiter, &call, peer);
}

static void one_that_leaves_and_ends_has_left(void **state)
{
	int peer;
	assert_int_equal(wait_now(*state, 1, &peer), LS_PEER_LEFT);
	assert_int_equal(peer, 0);
	assert_int_equal(atomic_load(meanwhile.dead), 1);
}

/* Peer 1 is still awaited, and there. */
static void one_that_has_done_its_part_is_not_missed(void **state)
{
	int peer;
	meanwhile.stores = true;
	assert_int_equal(wait_now(*state, 2, &peer), LS_TIMED_OUT);
	assert_int_equal(peer, -1);
	assert_int_equal(atomic_load(meanwhile.dead), 1);
}

static void store_and_fail(int number)
{
	if (mprotect(meanwhile.cause, sizeof *meanwhile.cause, PROT_READ | PROT_WRITE) != 0)
		abort();
	wait_store(&meanwhile.fixture->shared->words[0], 1);
	atomic_store(meanwhile.cause, number != 0);
}

/* Success goes before the failure of the group. */
static void one_that_fails_after_its_part_has_done_it(void **state)
{
	struct fixture *fixture = *state;
	struct sigaction action = {.sa_handler = store_and_fail, .sa_flags = (int)SA_RESETHAND};
	struct wait_call call = fixture_call(fixture, 1, false);
	int peer;
	meanwhile.cause =
		mmap(NULL, sizeof *meanwhile.cause, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(meanwhile.cause, MAP_FAILED);
	fixture->waiter.cause = meanwhile.cause;
	call.deadline_ns = clock_now_ns();
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	assert_int_equal(wait_words(&fixture->waiter, &call, &peer), LS_OK);
	assert_int_equal(peer, -1);
	assert_int_equal(atomic_load(meanwhile.cause), 1);
	assert_int_equal(munmap(meanwhile.cause, sizeof *meanwhile.cause), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_that_leaves_and_ends_has_left, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_has_done_its_part_is_not_missed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(one_that_fails_after_its_part_has_done_it, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
