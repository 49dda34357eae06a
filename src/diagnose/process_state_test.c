/* SPDX-License-Identifier: BSD-3-Clause
 * Processes as /proc shows them: real children, stopped, asleep, ended in every way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "diagnose/diagnose.h"
#include "diagnose/facts.h"

/* Valid until the next look. */
static const struct diagnose_rank *look(int pid, uint64_t start_ns)
{
	static struct diagnose_rank rank;
	memset(&rank, 0, sizeof rank);
	rank.start_ns = start_ns;
	diagnose_look_process(pid, &rank);
	return &rank;
}

/* A child that runs `body` and then exits with 7; the test's end kills it if need be. */
static pid_t start(void (*body)(void))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	body();
	_exit(7);
}

static void reap(pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void await_zombie(pid_t pid)
{
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void do_nothing(void)
{
}
static void stop_myself(void)
{
	raise(SIGSTOP);
}
static void kill_myself(void)
{
	raise(SIGTERM);
}
static void sleep_for_good(void)
{
	for (;;)
		pause();
}
static void stop_under_a_strange_name(void)
{
	prctl(PR_SET_NAME, ") Z 1 (R) S 2");
	raise(SIGSTOP);
}
static void *sleeper(void *unused)
{
	sleep_for_good();
	return unused;
}
static void end_the_first_thread(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, sleeper, NULL) == 0)
		pthread_exit(NULL);
}

static void myself(void **state)
{
	(void)state;
	assert_int_equal(look(getpid(), 0)->process, DIAGNOSE_PROCESS_RUNNING);
	assert_int_equal(look(getpid(), clock_now_ns())->process, DIAGNOSE_PROCESS_RUNNING);
}

static void stopped(void **state)
{
	(void)state;
	int status;
	pid_t pid = start(stop_myself);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_STOPPED);
	reap(pid);
	pid = start(stop_under_a_strange_name);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_STOPPED);
	reap(pid);
}

static void asleep(void **state)
{
	(void)state;
	pid_t pid = start(sleep_for_good);
	while (look(pid, 0)->process == DIAGNOSE_PROCESS_RUNNING)
		sched_yield(); /* until it has come so far */
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_SLEEPING);
	reap(pid);
}

static void ended(void **state)
{
	(void)state;
	pid_t pid = start(do_nothing);
	await_zombie(pid);
	const struct diagnose_rank *rank = look(pid, 0);
	assert_int_equal(rank->process, DIAGNOSE_PROCESS_DEAD);
	assert_int_equal(rank->signal, 0);
	assert_int_equal(rank->exit_code, 7);
	reap(pid);
	/* Nothing is left of it; unless its number has been given to another one just now. */
	rank = look(pid, 0);
	assert_int_equal(rank->process, DIAGNOSE_PROCESS_DEAD);
	assert_int_equal(rank->signal, -1);
	assert_int_equal(rank->exit_code, -1);
	pid = start(kill_myself);
	await_zombie(pid);
	rank = look(pid, 0);
	assert_int_equal(rank->process, DIAGNOSE_PROCESS_DEAD);
	assert_int_equal(rank->signal, SIGTERM);
	assert_int_equal(rank->exit_code, -1);
	reap(pid);
	pid = start(sleep_for_good);
	kill(pid, SIGKILL);
	await_zombie(pid);
	assert_int_equal(look(pid, 0)->signal, SIGKILL);
	reap(pid);
}

/* A new kernel tells the exit status of a process through its pidfd even after the parent has
 * reaped it. */
static void ended_and_fetched(void **state)
{
	(void)state;
	void (*const ends[])(void) = {do_nothing, kill_myself};
	for (int i = 0; i < 2; i++) {
		pid_t pid = start(ends[i]);
		struct diagnose_source source = {.process = DIAGNOSE_PROCESS_UNKNOWN};
		int fd = (int)syscall(SYS_pidfd_open, pid, 0);
		assert_true(fd >= 0);
		await_zombie(pid);
		assert_false(diagnose_read_exit(fd, &source));
		reap(pid);
		bool told = diagnose_read_exit(fd, &source);
		close(fd);
		if (!told)
			skip(); /* before Linux 6.15 */
		assert_int_equal(source.process, DIAGNOSE_PROCESS_DEAD);
		assert_int_equal(source.signal, i ? SIGTERM : 0);
		assert_int_equal(source.exit_code, i ? -1 : 7);
	}
	assert_false(diagnose_read_exit(-1, &(struct diagnose_source){0}));
	assert_false(diagnose_read_exit(STDIN_FILENO, &(struct diagnose_source){0}));
}

static char state_of(pid_t pid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	assert_true(length > 0);
	return strrchr(text, ')')[2];
}

/* The process looks like a zombie when only its first thread has ended. */
static void first_thread_ended(void **state)
{
	(void)state;
	pid_t pid = start(end_the_first_thread);
	while (state_of(pid) != 'Z')
		sched_yield();
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_RUNNING);
	reap(pid);
}

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* A process of a frozen cgroup counts as stopped; skipped where this user may not make cgroups. */
static void frozen(void **state)
{
	(void)state;
	char both[64], alone[64], pid_text[16];
	snprintf(both, sizeof both, "/sys/fs/cgroup/unified/lockstep-test-%d", getpid());
	snprintf(alone, sizeof alone, "/sys/fs/cgroup/lockstep-test-%d", getpid());
	const char *folder = mkdir(both, 0700) == 0 ? both : alone;
	char freeze[96];
	if (folder == alone && mkdir(alone, 0700) != 0)
		skip();
	snprintf(freeze, sizeof freeze, "%s/cgroup.freeze", folder);
	if (access(freeze, W_OK) != 0) {
		rmdir(folder); /* a folder, but no cgroup */
		skip();
	}
	pid_t pid = start(sleep_for_good);
	snprintf(pid_text, sizeof pid_text, "%d", pid);
	write_file(folder, "cgroup.procs", pid_text);
	while (look(pid, 0)->process == DIAGNOSE_PROCESS_RUNNING)
		sched_yield();
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_SLEEPING);
	write_file(folder, "cgroup.freeze", "1");
	uint64_t deadline = clock_deadline_ns(20000);
	while (look(pid, 0)->process != DIAGNOSE_PROCESS_STOPPED && clock_now_ns() < deadline)
		sched_yield(); /* freezing takes its time */
	assert_int_equal(look(pid, 0)->process, DIAGNOSE_PROCESS_STOPPED);
	write_file(folder, "cgroup.freeze", "0");
	reap(pid);
	rmdir(folder);
}

/* The trace is older than the process that has its number now. */
static void number_of_another_process(void **state)
{
	(void)state;
	pid_t pid = start(sleep_for_good);
	assert_int_equal(look(pid, 1)->process, DIAGNOSE_PROCESS_DEAD);
	assert_int_equal(look(pid, 1)->signal, -1);
	assert_int_not_equal(look(pid, clock_now_ns())->process, DIAGNOSE_PROCESS_DEAD);
	reap(pid);
}

static void no_process(void **state)
{
	(void)state;
	assert_int_equal(look(0, 0)->process, DIAGNOSE_PROCESS_UNKNOWN);
	assert_int_equal(look(-1, 0)->process, DIAGNOSE_PROCESS_UNKNOWN);
	/* Above any pid_max. */
	assert_int_equal(look(0x7fffffff, 0)->process, DIAGNOSE_PROCESS_DEAD);
}

/* In a PID namespace without a /proc of its own, the entry 1 of /proc is another process. */
static void other_namespace(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWPID) != 0)
			_exit(100);
		pid_t first = fork();
		if (first == 0) {
			pid_t child = fork();
			if (child == 0)
				_exit(0);
			if (child < 2 || waitpid(child, NULL, 0) != child)
				_exit(1);
			/* Outside there is a process 2 on every system. (The thread sanitizer has
			 * taken 2 for a thread of its own.) */
			_exit(look(child, 0)->process == DIAGNOSE_PROCESS_DEAD &&
					      look(1, 0)->process == DIAGNOSE_PROCESS_UNKNOWN
				      ? 0
				      : 2);
		}
		int status;
		_exit(first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status)
			      ? WEXITSTATUS(status)
			      : 3);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 100)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a rank that runs another program ---- */

static struct trace_view trace;
static size_t trace_bytes;

static void map_trace(void)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	trace_bytes = 4096 + sizeof *trace.wait_table;
	assert_true(fd >= 0 && ftruncate(fd, (off_t)trace_bytes) == 0);
	char *at = mmap(NULL, trace_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	close(fd);
	trace.header = (void *)at;
	trace.wait_table = (void *)(at + 4096);
}

static _Atomic uint32_t *watch_tid(void)
{
	return &((struct wait_table *)(uintptr_t)trace.wait_table)->watch_tid;
}

static void *be_the_watch(void *ends)
{
	atomic_store(watch_tid(), (uint32_t)gettid());
	while (!ends)
		pause();
	return NULL;
}

static void have_a_watch(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, be_the_watch, NULL) == 0)
		pause();
}

/* Ends the thread that a rank's watch would be, as when a process was killed and its memory is not
 * freed yet. */
static void lose_the_watch(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, be_the_watch, watch_tid()) == 0)
		pthread_join(thread, NULL);
	pause();
}

static void run_another(void)
{
	execlp("sleep", "sleep", "1000", NULL);
}

/* Waits until the program of the process is this one. */
static void await_program(pid_t pid, const char *name)
{
	char path[64], text[64] = "";
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	while (strncmp(text, name, strlen(name)) != 0)
		assert_true(diagnose_read_file(path, text, sizeof text, NULL) > 0);
}

static void await_watch(void)
{
	while (atomic_load(watch_tid()) == 0)
		sched_yield();
}

static void runs_another_program(void **state)
{
	(void)state;
	map_trace();
	struct trace_header *header = (void *)(uintptr_t)trace.header;
	pid_t pid = start(have_a_watch);
	await_watch();
	assert_false(diagnose_is_replaced(pid, &trace));
	reap(pid);
	assert_false(diagnose_is_replaced(pid, &trace));

	atomic_store(watch_tid(), 0);
	pid = start(lose_the_watch);
	await_watch();
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%u", (int)pid, atomic_load(watch_tid()));
	while (access(path, F_OK) == 0)
		sched_yield();
	assert_false(diagnose_is_replaced(pid, &trace));
	kill(pid, SIGKILL);
	await_zombie(pid);
	assert_false(diagnose_is_replaced(pid, &trace));
	reap(pid);

	for (uint32_t tid = 0; tid < 2; tid++) { /* without a watch yet; with one that is gone */
		atomic_store(watch_tid(), tid ? 999999999 : 0);
		pid = start(run_another);
		await_program(pid, "sleep");
		assert_true(diagnose_is_replaced(pid, &trace));
		atomic_store(&header->left_ns, 1);
		assert_false(diagnose_is_replaced(pid, &trace));
		atomic_store(&header->left_ns, 0);
		reap(pid);
	}
	munmap((void *)(uintptr_t)trace.header, trace_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(myself),
		cmocka_unit_test(stopped),
		cmocka_unit_test(asleep),
		cmocka_unit_test(ended),
		cmocka_unit_test(ended_and_fetched),
		cmocka_unit_test(first_thread_ended),
		cmocka_unit_test(frozen),
		cmocka_unit_test(number_of_another_process),
		cmocka_unit_test(no_process),
		cmocka_unit_test(other_namespace),
		cmocka_unit_test(runs_another_program),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
