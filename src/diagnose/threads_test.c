/* SPDX-License-Identifier: BSD-3-Clause
 * Threads that are in no wait table: the main thread of this very process, as another thread sees
 * it, and one that runs. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "diagnose/collect_fixture.h"

static bool main_thread_is(char wanted)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
	assert_true(diagnose_read_file(path, text, sizeof text, NULL) > 0);
	const char *name_end = strrchr(text, ')');
	return name_end && name_end[2] == wanted;
}

static int count_threads(void)
{
	int count = 0;
	DIR *tasks = opendir("/proc/self/task");
	assert_non_null(tasks);
	for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;)
		count += entry->d_name[0] != '.';
	closedir(tasks);
	return count;
}

/* Threads that are not the tests' own, as that of the thread sanitizer, which wakes by itself, and
 * begins only with the first of the tests'. */
static bool has_others(void)
{
#ifdef __SANITIZE_THREAD__
	return true;
#else
	return count_threads() > 1;
#endif
}

struct watcher {
	const struct trace_view *view;
	sem_t *wakes; /* NULL: its end does */
	uint64_t sleep;
	bool endless; /* to be seen so */
};

/* Looks at the main thread once that sleeps. */
static void *watch(void *argument)
{
	struct watcher *watcher = argument;
	do {
		while (!main_thread_is('S'))
			sched_yield();
		watcher->sleep = diagnose_outside_sleep(watcher->view);
	} while (watcher->endless && !watcher->sleep);
	if (watcher->wakes)
		assert_int_equal(sem_post(watcher->wakes), 0);
	return NULL;
}

static void a_join(void **state)
{
	struct collect_fixture *fixture = *state;
	struct watcher watcher = {.view = &fixture->views[0], .endless = true};
	pthread_t thread;
	if (has_others())
		skip();
	assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
	pthread_join(thread, NULL);
	assert_int_not_equal(watcher.sleep, 0);
}

/* On a semaphore: of this process, also with a limit; or one that other processes have, too. */
static void semaphores(void **state)
{
	const struct collect_fixture *fixture = *state;
	if (has_others())
		skip();
	sem_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	for (int way = 0; way < 3; way++) {
		sem_t own, *wakes = way == 2 ? shared : &own;
		struct timespec end;
		assert_int_equal(sem_init(wakes, way == 2, 0), 0);
		struct watcher watcher = {
			.view = &fixture->views[0], .wakes = wakes, .endless = way == 0};
		pthread_t thread;
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += 100;
		assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
		assert_int_equal(way == 1 ? sem_timedwait(wakes, &end) : sem_wait(wakes), 0);
		pthread_join(thread, NULL);
		assert_int_equal(watcher.sleep != 0, way == 0);
		sem_destroy(wakes);
	}
	munmap(shared, sizeof *shared);
}

static void handle(int number)
{
	(void)number;
}

struct handling {
	const struct trace_view *view;
	bool blocks; /* the thread that looks, like the main thread */
	uint64_t sleep;
};

static void *look_once(void *argument)
{
	struct handling *handling = argument;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(handling->blocks ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
	while (!main_thread_is('S'))
		sched_yield();
	handling->sleep = diagnose_outside_sleep(handling->view);
	return NULL;
}

/* A thread that a signal handler may run in does not count as asleep, whichever thread this is. */
static void handlers(void **state)
{
	const struct collect_fixture *fixture = *state;
	struct sigaction action = {.sa_handler = handle}, before;
	sigset_t set, unblocked;
	if (has_others())
		skip();
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	for (int way = 0; way < 3; way++) {
		struct handling handling = {.view = &fixture->views[0], .blocks = way != 1};
		pthread_t thread;
		pthread_sigmask(way == 0 ? SIG_UNBLOCK : SIG_BLOCK, &set,
				way == 0 ? &unblocked : NULL);
		do {
			assert_int_equal(pthread_create(&thread, NULL, look_once, &handling), 0);
			pthread_join(thread, NULL);
		} while (way == 2 && handling.sleep == 0);
		assert_int_equal(handling.sleep != 0, way == 2);
	}
	pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
	assert_int_equal(sigaction(SIGINT, &action, &before), 0);
	a_join(state);
	assert_int_equal(sigaction(SIGINT, &before, NULL), 0);
}

/* ---- all threads of a process ---- */

struct looking {
	struct collect_fixture *fixture;
	_Atomic int runs; /* 1: the other thread runs; 2: it is to end */
};

static void *run(void *argument)
{
	struct looking *looking = argument;
	atomic_store(&looking->runs, 1);
	while (atomic_load(&looking->runs) == 1)
		;
	return NULL;
}

/* A thread that has been joined may still be listed, and run. */
static void await_end(void)
{
	while (count_threads() > 2)
		sched_yield();
}

static void *look_at_all(void *argument)
{
	struct looking *looking = argument;
	struct collect_fixture *fixture = looking->fixture;
	struct wait_table *wait_table = fixture->traces[0].wait_table;
	const struct diagnose_source *source = &fixture->sources[0];
	pthread_t other;
	atomic_store(&wait_table->watch_tid, trace_thread_id());
	/* Of the main thread nothing is known. */
	assert_true(diagnose_look_threads(source).awake);
	do
		atomic_store(&wait_table->outside_sleep, diagnose_outside_sleep(source->trace));
	while (atomic_load(&wait_table->outside_sleep) == 0);
	struct diagnose_look first = diagnose_look_threads(source),
			     second = diagnose_look_threads(source);
	assert_false(first.awake);
	assert_false(second.awake);
	assert_int_equal(first.hash, second.hash);
	/* It sleeps, but it is another sleep. */
	atomic_fetch_add(&wait_table->outside_sleep, 2);
	assert_true(diagnose_look_threads(source).awake);
	atomic_fetch_sub(&wait_table->outside_sleep, 2);
	/* Somebody runs. */
	assert_int_equal(pthread_create(&other, NULL, run, looking), 0);
	while (atomic_load(&looking->runs) != 1)
		sched_yield();
	assert_true(diagnose_look_threads(source).awake);
	/* A thread in the wait table is none of these. */
	struct wait_slot_body body = wait_for(0, 1);
	body.tid = (uint32_t)getpid();
	publish(fixture, 0, 0, &body);
	atomic_store(&wait_table->outside_sleep, 0);
	atomic_store(&looking->runs, 2);
	pthread_join(other, NULL);
	await_end();
	assert_false(diagnose_look_threads(source).awake);
	/* The main thread sleeps outside, until this one ends, as its own process can see. */
	body.state = WAIT_OUTSIDE;
	publish(fixture, 0, 0, &body);
	do
		atomic_store(&wait_table->outside_sleep, diagnose_outside_sleep(source->trace));
	while (atomic_load(&wait_table->outside_sleep) == 0);
	assert_int_equal(diagnose_look_threads(source).outside, 1);
	atomic_fetch_add(&wait_table->outside_sleep, 2);
	assert_int_equal(diagnose_look_threads(source).outside, 0);
	/* Somebody runs who may wake it. */
	atomic_store(&looking->runs, 0);
	assert_int_equal(pthread_create(&other, NULL, run, looking), 0);
	while (atomic_load(&looking->runs) != 1)
		sched_yield();
	assert_int_equal(diagnose_outside_sleep(source->trace), 0);
	atomic_store(&looking->runs, 2);
	pthread_join(other, NULL);
	/* A process that cannot be looked at is judged by its main thread alone. */
	fixture->sources[0].pid = 1 << 30;
	assert_false(diagnose_look_threads(source).awake);
	atomic_store(&wait_table->slots[0].taken, 0);
	assert_true(diagnose_look_threads(source).awake);
	return NULL;
}

static void threads_of_a_process(void **state)
{
	/* The thread sanitizer has one of its own that wakes by itself, so nothing can be said of
	 * the others. */
	if (has_others())
		skip();
	struct looking looking = {.fixture = *state};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, look_at_all, &looking), 0);
	pthread_join(thread, NULL);
}

/* A process of its own is stopped by SIGSTOP: its main thread waits, its other thread would run. */
static void who_is_stopped(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_slot_body body = wait_for(0, 1);
	if (has_others())
		skip();
	struct looking *looking = mmap(NULL, sizeof *looking, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(looking, MAP_FAILED);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, run, looking) == 0)
			pthread_join(thread, NULL);
		_exit(0);
	}
	while (atomic_load(&looking->runs) != 1)
		sched_yield();
	body.tid = (uint32_t)child;
	publish(fixture, 0, 0, &body);
	fixture->traces[0].header->pid = child;
	fixture->sources[0].pid = child;
	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
	bool awake = diagnose_look_threads(&fixture->sources[0]).awake;
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(awake);
	munmap(looking, sizeof *looking);
}

/* ---- what cannot be seen ---- */

static void limit_descriptors(rlim_t limit, struct rlimit *before)
{
	struct rlimit now;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
	if (before)
		*before = now;
	now.rlim_cur = limit;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/* All threads are in the wait table, and so none acts; but without a descriptor nobody knows. */
static void no_descriptor_left(void **state)
{
	struct collect_fixture *fixture = *state;
	struct wait_slot_body body = wait_for(0, 1);
	struct rlimit before;
	if (has_others())
		skip();
	body.tid = (uint32_t)getpid();
	publish(fixture, 0, 0, &body);
	assert_false(diagnose_look_threads(&fixture->sources[0]).awake);
	assert_false(diagnose_newcomer_runs(&fixture->views[0]));
	int lowest = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	assert_true(lowest >= 0);
	close(lowest);
	limit_descriptors((rlim_t)lowest, &before);
	bool awake = diagnose_look_threads(&fixture->sources[0]).awake;
	bool runs = diagnose_newcomer_runs(&fixture->views[0]);
	limit_descriptors(before.rlim_cur, NULL);
	assert_true(awake);
	assert_true(runs);
}

/* A ring of ranks that are processes: whether it is proved depends on what is read of their
 * threads. */
static void a_ring_of_processes(void **state)
{
	struct collect_fixture *fixture = *state;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	publish_ring(fixture);
	collect(fixture, 0);
	assert_int_equal(test_cycle(fixture->snapshot, hops), SIZE); /* threads of one process */
	fixture->sources[1].pid = 1 << 30;
	collect(fixture, 0);
	assert_true(fixture->snapshot->ranks[1].awake);
	assert_int_equal(test_cycle(fixture->snapshot, hops), 0);
	/* Which is likely still. */
	struct diagnose_verdict verdict;
	diagnose_judge(fixture->snapshot, NULL, &verdict);
	assert_int_equal(verdict.cause, DIAGNOSE_ELSEWHERE);
	assert_int_equal(verdict.culprit, 1);
	char text[DIAGNOSE_TEXT_BYTES];
	diagnose_headline(fixture->snapshot, &verdict, text, sizeof text);
	assert_non_null(strstr(text, "rank 1 is elsewhere (a thread that is not seen to wait may "));
}

/* A ring in a group that rank 0 is about to close: other ranks see no ring; rank 0 does, and must
 * read the threads for it. */
static void a_ring_that_is_closed(void **state)
{
	struct collect_fixture *fixture = *state;
	static const uint16_t members[SIZE] = {0, 1, 2};
	struct trace_membership membership = {.id = GROUP,
					      .size = SIZE,
					      .claim_offset = 8 * 8,
					      .cause_offset = 9 * 8,
					      .members = members};
	struct diagnose_closing closing = {1, (const uint32_t[]){GROUP}};
	struct diagnose_hint hint = {.status = LS_TIMED_OUT, .rank = 0, .peer = 1, .group = GROUP};
	struct diagnose_verdict verdict;
	for (int r = 0; r < SIZE; r++)
		trace_group_fill(&fixture->traces[r], 1, &membership);
	atomic_store(&fixture->segments[0][8], (uint64_t)GROUP << 32 | (1 + 0));
	atomic_store(&fixture->segments[0][9], (uint64_t)GROUP << 32);
	publish_ring(fixture);
	collect(fixture, 0);
	assert_int_equal(test_bits(diagnose_find_stuck(fixture->snapshot)), 0);
	for (int processes = 0; processes < 2; processes++) {
		if (processes)
			fixture->sources[1].pid = 1 << 30;
		diagnose_collect(fixture->sources, SIZE, &closing, fixture->snapshot);
		diagnose_judge(fixture->snapshot, &hint, &verdict);
		assert_int_equal(fixture->snapshot->ranks[1].awake, processes);
		assert_int_equal(verdict.cause, processes ? DIAGNOSE_ELSEWHERE : DIAGNOSE_DEADLOCK);
	}
}

/* ---- between the two looks ---- */

/* A thread that is in no wait table, and sleeps but for the moment in which a certain word is read:
 * so it is seen asleep by both looks. A look reads the words of rank 0 first and those of rank 2
 * last. */
static struct {
	void *pages[SIZE]; /* the segments of the ranks */
	size_t page_bytes;
	pthread_t thread;
	sem_t wakes;
	_Atomic int tid, woken;
	_Atomic bool wakes_between, ends;
} napping;

static void *nap(void *argument)
{
	(void)argument;
	atomic_store(&napping.tid, (int)trace_thread_id());
	while (!atomic_load(&napping.ends)) {
		while (sem_wait(&napping.wakes) != 0)
			;
		atomic_fetch_add(&napping.woken, 1);
	}
	return NULL;
}

static bool sleeps(int tid)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	const char *name_end =
		diagnose_read_file(path, text, sizeof text, NULL) > 0 ? strrchr(text, ')') : NULL;
	return name_end && name_end[2] == 'S';
}

static void await_sleep(void)
{
	while (atomic_load(&napping.tid) == 0 || !sleeps(atomic_load(&napping.tid)))
		sched_yield();
}

/* A word is read: the last one of the first look, or the first one of the second. */
static void read_what_is_hidden(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	if (info->si_addr != napping.pages[0]) {
		mprotect(napping.pages[2], napping.page_bytes, PROT_READ | PROT_WRITE);
		mprotect(napping.pages[0], napping.page_bytes, PROT_NONE);
		return;
	}
	mprotect(napping.pages[0], napping.page_bytes, PROT_READ | PROT_WRITE);
	if (!atomic_load(&napping.wakes_between))
		return;
	int woken = atomic_load(&napping.woken);
	sem_post(&napping.wakes);
	while (atomic_load(&napping.woken) == woken)
		sched_yield();
	await_sleep();
}

/* Publishes a ring in which rank 0 is this process; the processes of the other ranks cannot be
 * read. */
static void publish_processes(struct collect_fixture *fixture)
{
	napping.page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	for (int r = 0; r < SIZE; r++) {
		struct wait_slot_body body = wait_for(r, (r + 1) % SIZE);
		napping.pages[r] = mmap(NULL, napping.page_bytes, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(napping.pages[r], MAP_FAILED);
		body.tid = (uint32_t)getpid();
		publish(fixture, r, 0, &body);
		fixture->sources[r].segment = napping.pages[r];
		fixture->sources[r].segment_bytes = napping.page_bytes;
		fixture->sources[r].pid = r == 0 ? getpid() : (1 << 30) + r;
	}
}

static void between_the_looks(void **state)
{
	struct collect_fixture *fixture = *state;
	struct sigaction action = {.sa_sigaction = read_what_is_hidden, .sa_flags = SA_SIGINFO},
			 before;
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	if (has_others())
		skip();
	publish_processes(fixture);
	assert_int_equal(sem_init(&napping.wakes, 0, 0), 0);
	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
	assert_int_equal(pthread_create(&napping.thread, NULL, nap, NULL), 0);
	await_sleep();
	for (int wakes = 0; wakes < 2; wakes++) {
		atomic_store(&napping.wakes_between, wakes);
		assert_int_equal(mprotect(napping.pages[2], napping.page_bytes, PROT_NONE), 0);
		assert_int_equal(collect(fixture, 0)->awake, wakes);
		assert_int_equal(atomic_load(&napping.woken), wakes);
		assert_int_equal(test_cycle(fixture->snapshot, hops), wakes ? 0 : SIZE);
	}
	atomic_store(&napping.ends, true);
	sem_post(&napping.wakes);
	pthread_join(napping.thread, NULL);
	sigaction(SIGSEGV, &before, NULL);
	for (int r = 0; r < SIZE; r++)
		munmap(napping.pages[r], napping.page_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_join, set_up, tear_down),
		cmocka_unit_test_setup_teardown(semaphores, set_up, tear_down),
		cmocka_unit_test_setup_teardown(handlers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(threads_of_a_process, set_up, tear_down),
		cmocka_unit_test_setup_teardown(who_is_stopped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_descriptor_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_ring_of_processes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_ring_that_is_closed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(between_the_looks, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
