/* SPDX-License-Identifier: BSD-3-Clause
 * allocator-lock with Lockstep's own locks: the gate's lock in place of the one that keeps frees
 * and launches apart, the pool's lock in place of the allocator's. A thread that takes them in the
 * wrong order gets LS-LOCK-ORDER, whether the threads meet or not. So a test that has run once, and
 * did not hang, has shown the mistake. clang refuses to compile it
 * (test/compile/record_under_lock.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "pool/gate.h"
#include "pool/pool.h"
#include "sim_driver.h"

enum { SEEDS = 100, TEXT_BYTES = 4096, DEVICE_BYTES = 8 << 20, MOST_BEFORE = 8 };

/* In which order the two threads run. */
enum meeting {
	LAUNCH_ALONE,
	LAUNCH_LAST,
	BOTH_AT_ONCE, /* with the old locks these may hang */
	MEETINGS,
};

static struct sim *sim;
static struct sim_driver driver;
static struct pool *pool;
static struct pool_gate gate;
static struct wait_bell bell;
static struct waiter waiter = {.bell = &bell, .look_fd = -1};
static _Atomic uint64_t done;
static void *kept; /* a block */
static pthread_barrier_t both;

static void must(bool is_so)
{
	if (!is_so)
		_exit(9);
}

static void open_pool(void)
{
	struct sim_options options = {.devices = 1, .bytes = DEVICE_BYTES};
	sim = sim_open(&options);
	must(sim && sim_driver_open(&driver, sim, 0, &bell));
	pool_gate_init(&gate);
	struct pool_options pool_options = {
		.driver = &driver.driver, .gate = &gate, .waiter = &waiter, .name = "sim:0"};
	must(pool_open(&pool, &pool_options) == LS_OK);
	must(pool_alloc(pool, 4096, driver.driver.stream, CLOCK_NEVER, &kept) == LS_OK);
	pthread_barrier_init(&both, NULL, 2);
}

/* empty_cache, after some allocations. It takes the locks in the order of the table: pool, then
 * gate. */
static void use_pool(int times)
{
	for (int i = 0; i < times; i++) {
		void *block;
		must(pool_alloc(pool, 4096, driver.driver.stream, CLOCK_NEVER, &block) == LS_OK);
		must(pool_free(pool, block, NULL) == LS_OK);
	}
	pool_trim(pool, 0);
}

/* Launches with the gate's lock held, which excludes frees; then tells the pool which stream uses
 * the block, as record_stream does. */
LOCK_UNCHECKED static void launch_then_record(void)
{
	lock_gate_acquire(&gate.lock);
	must(sim_store(driver.driver.stream, &done, 1, NULL) == SIM_OK);
	must(pool_record(pool, kept, driver.driver.stream, NULL) == LS_OK);
	lock_gate_release(&gate.lock);
}

static void *use_pool_beside(void *meeting)
{
	if (*(enum meeting *)meeting == LAUNCH_LAST)
		use_pool(3);
	pthread_barrier_wait(&both);
	if (*(enum meeting *)meeting == BOTH_AT_ONCE)
		use_pool(1);
	return NULL;
}

/* The locks are biased to this thread, to the other one, or to none. */
static void play(uint32_t seed)
{
	enum meeting meeting = seed % MEETINGS;
	pthread_t thread;
	open_pool();
	use_pool((int)(seed / MEETINGS % MOST_BEFORE));
	if (meeting != LAUNCH_ALONE) {
		must(pthread_create(&thread, NULL, use_pool_beside, &meeting) == 0);
		pthread_barrier_wait(&both);
	}
	launch_then_record();
}

/* In a child, because it prints the message and then aborts. */
static void check(uint32_t seed)
{
	char text[TEXT_BYTES] = "";
	int ends[2], status;
	size_t used = 0;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL);
		play(seed);
		_exit(0);
	}
	close(ends[1]);
	for (ssize_t got; (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
		used += (size_t)got;
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
	    !strstr(text, "wants a 'pool' lock while it holds a 'gate' lock [LS-LOCK-ORDER]"))
		fail_msg("seed %u: status %d, said: %s", seed, status, text);
}

static void each_schedule_reports_it(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < SEEDS; seed++)
		check(seed);
	printf("# LS-LOCK-ORDER on %d of %d schedules\n", SEEDS, SEEDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_schedule_reports_it)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
