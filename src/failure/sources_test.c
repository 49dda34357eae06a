/* SPDX-License-Identifier: BSD-3-Clause
 * What a snapshot says of a process while its parent fetches its exit status, and of a rank on
 * another host that has left. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure/failure_private.h"

static pid_t unfetched; /* 0: none */

void __real_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot);
void __wrap_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot);

/* It runs after the kernel was asked about the process, and reads /proc. */
void __wrap_diagnose_collect(const struct diagnose_source *sources, int count,
			     const struct diagnose_closing *closing,
			     struct diagnose_snapshot *snapshot)
{
	if (unfetched)
		assert_int_equal(waitpid(unfetched, NULL, 0), unfetched);
	unfetched = 0;
	__real_diagnose_collect(sources, count, closing, snapshot);
}

static pid_t start(bool kills)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0 && kills)
		raise(SIGKILL);
	if (pid == 0)
		_exit(7);
	return pid;
}

static void test_fetched_meanwhile(void **state)
{
	(void)state;
	for (int kills = 0; kills <= 1; kills++) {
		struct world *world = calloc(1, sizeof *world);
		struct transport_peer none = {.segment = NULL};
		struct diagnose_source told;
		siginfo_t info;
		assert_non_null(world);
		failure_watch_init(&world->watch);
		world->size = 1;
		world->transport.peers = &none;
		world->pids[0] = unfetched = start(kills);
		int fd = (int)syscall(SYS_pidfd_open, unfetched, 0);
		assert_true(fd >= 0);
		world->watch.pid_fds[0] = fd;
		assert_int_equal(waitid(P_PID, (id_t)unfetched, &info, WEXITED | WNOWAIT), 0);
		struct diagnose_snapshot *snapshot = failure_collect(world, NULL);
		assert_non_null(snapshot);
		assert_int_equal(snapshot->ranks[0].process, DIAGNOSE_PROCESS_DEAD);
		if (diagnose_read_exit(fd, &told)) { /* Linux 6.15 and newer */
			assert_int_equal(snapshot->ranks[0].signal, kills ? SIGKILL : 0);
			assert_int_equal(snapshot->ranks[0].exit_code, kills ? -1 : 7);
		}
		close(fd);
		free(snapshot);
		free(world);
	}
}

/* Its connection is lost in either case; whether it has closed its group stands in its mirror. */
static void test_left_on_another_host(void **state)
{
	(void)state;
	enum { MIRROR_BYTES = 1 << 26 };
	void *segment = mmap(NULL, MIRROR_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(segment, MAP_FAILED);
	static char mark;
	struct transport_peer remote = {.segment = segment, .mirror = (struct hosts_mirror *)&mark};
	struct world *world = calloc(1, sizeof *world);
	assert_non_null(world);
	world->size = 1;
	world->transport.peers = &remote;
	atomic_store(&world->dead[0], 1);
	for (int left = 0; left <= 1; left++) {
		struct diagnose_source sources[1];
		failure_fill_sources(world, sources);
		assert_int_equal(sources[0].left, left);
		struct diagnose_snapshot *snapshot = failure_collect(world, NULL);
		assert_non_null(snapshot);
		assert_int_equal(snapshot->ranks[0].process, DIAGNOSE_PROCESS_DEAD);
		assert_int_equal(snapshot->ranks[0].left, left);
		free(snapshot);
		wait_store(&transport_peer_area(&world->transport, &remote, 0)->times_closed, 1);
	}
	free(world);
	munmap(segment, MIRROR_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fetched_meanwhile),
					   cmocka_unit_test(test_left_on_another_host)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
