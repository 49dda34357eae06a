/* SPDX-License-Identifier: BSD-3-Clause
 * The runner: starts the ranks of one test after the other, waits, judges, prints TAP. Ranks are
 * reaped only when the test is over, so that no process id can have been given to somebody else
 * when the test's process group is killed. */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exclude.h"
#include "hosts.h"
#include "runner_options.h"

enum {
	RANKS_MAX = RUNNER_RANKS_MAX,
	LIMIT_MS = 30000,
	HOSTS_LIMIT_MS = 90000, /* thousands of small operations take longer there */
	GRACE_MS = 3000, /* once one rank has failed, the others get so long to end by themselves */
	CASE_MS = 100,   /* of a random test with many cases */
};

/* One test with one number of ranks, while it runs. */
struct job {
	const struct runner_test *test;
	int ranks;
	unsigned turn;
	bool threads;
	int hosts; /* 0: all ranks on this one */
	bool checked;
	uint64_t seed;
	uint32_t first_case, last_case;
	char name[96];
	char rendezvous[64];
	struct runner_shared *shared;
	int output;    /* memfd that takes what the ranks print */
	int processes; /* 1 with threads */
	pid_t group;
	pid_t pids[RANKS_MAX];
	int pidfds[RANKS_MAX];
	siginfo_t ends[RANKS_MAX]; /* si_pid 0: still runs */
	enum runner_outcome outcome;
};

static _Thread_local int rank_of_thread = -1;

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "runner: %s: %s\n", what, strerror(errno));
	exit(2);
}

static int64_t now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ---- for tests ---- */

void runner_fail(const char *file, int line, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "rank %d: %s:%d: %s\n", rank_of_thread, file, line, text);
	_exit(1);
}

void runner_note(const struct runner_rank *self, const char *format, ...)
{
	char *note = self->shared->notes[self->rank];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(note, sizeof self->shared->notes[0], format, arguments);
	va_end(arguments);
}

void runner_expect(const char *file, int line, const char *call, ls_status status,
		   ls_status expected)
{
	if (status != expected)
		runner_fail(file, line, "%s is %s, not %s", call, ls_status_name(status),
			    ls_status_name(expected));
}

void runner_meet(const struct runner_rank *self)
{
	int result = pthread_barrier_wait(&self->shared->meeting);
	CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

void runner_ready(const struct runner_rank *self, ls_group *group)
{
	OK(ls_barrier(group, NULL));
	runner_meet(self);
}

/* ---- the processes of a test ---- */

struct thread {
	pthread_t id;
	struct runner_rank self;
	const struct runner_test *test;
};

static struct runner_rank rank_of(const struct job *job, int rank)
{
	return (struct runner_rank){.rank = rank,
				    .size = job->ranks,
				    .turn = job->turn,
				    .threads = job->threads,
				    .seed = job->seed,
				    .first_case = job->first_case,
				    .last_case = job->last_case,
				    .name = job->name,
				    .rendezvous = job->rendezvous,
				    .shared = job->shared};
}

static void *run_thread(void *argument)
{
	struct thread *thread = argument;
	rank_of_thread = thread->self.rank;
	thread->test->run(&thread->self);
	return NULL;
}

static void run_threads(const struct job *job)
{
	struct thread threads[RANKS_MAX];
	for (int r = 0; r < job->ranks; r++) {
		threads[r] = (struct thread){.self = rank_of(job, r), .test = job->test};
		if ((errno = pthread_create(&threads[r].id, NULL, run_thread, &threads[r])))
			die("pthread_create");
	}
	for (int r = 0; r < job->ranks; r++)
		pthread_join(threads[r].id, NULL);
}

static bool put_settings(const char *settings)
{
	char *rest = strdup(settings); /* putenv keeps it */
	while (rest && *rest) {
		char *setting = strsep(&rest, " ");
		if (putenv(setting))
			return false;
	}
	return true;
}

/* What a child does; it leaves by exit, so that a sanitizer has its say. */
_Noreturn static void run_child(const struct job *job, int rank, pid_t runner)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != runner)
		_exit(2);
	setpgid(0, job->group);
	if (dup2(job->output, STDOUT_FILENO) < 0 || dup2(job->output, STDERR_FILENO) < 0)
		_exit(2);
	if (job->hosts)
		hosts_enter(hosts_of_rank(rank, job->ranks));
	if (job->checked && setenv("LOCKSTEP_CHECK", "1", 1))
		_exit(2);
	if (job->test->setting && !put_settings(job->test->setting))
		_exit(2);
	/* Every rank maps every arena: 64 mappings, for which a sanitizer has no room in one
	 * process. */
	if (job->threads && setenv("LOCKSTEP_ARENA_BYTES", "1G", 0))
		_exit(2);
	rank_of_thread = rank;
	if (job->threads) {
		run_threads(job);
	} else {
		struct runner_rank self = rank_of(job, rank);
		job->test->run(&self);
	}
	exit(0);
}

static void start(struct job *job)
{
	static unsigned started;
	pid_t runner = getpid();
	if (job->hosts)
		hosts_rendezvous(job->rendezvous, sizeof job->rendezvous, started++);
	else
		snprintf(job->rendezvous, sizeof job->rendezvous, "unix:lockstep-test-%d-%u",
			 (int)runner, started++);
	job->shared = mmap(NULL, sizeof *job->shared, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	job->output = memfd_create("runner-output", MFD_CLOEXEC);
	pthread_barrierattr_t attributes;
	if (job->shared == MAP_FAILED || job->output < 0 || pthread_barrierattr_init(&attributes))
		die("cannot prepare a test");
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (pthread_barrier_init(&job->shared->meeting, &attributes, (unsigned)job->ranks))
		die("pthread_barrier_init");
	pthread_barrierattr_destroy(&attributes);
	job->processes = job->threads ? 1 : job->ranks;
	fflush(stdout);
	for (int i = 0; i < job->processes; i++) {
		pid_t pid = fork();
		if (pid == 0)
			run_child(job, i, runner);
		if (pid < 0)
			die("fork");
		job->pids[i] = pid;
		if (i == 0)
			job->group = pid;
		setpgid(pid, job->group); /* here and in the child: whoever is first */
		job->pidfds[i] = (int)syscall(SYS_pidfd_open, pid, 0);
		if (job->pidfds[i] < 0)
			die("pidfd_open");
	}
}

static bool is_killed(const struct job *job, int i)
{
	return job->ends[i].si_code != CLD_EXITED && job->ends[i].si_status == SIGKILL;
}

/* Notes how process i ended; it stays a zombie. */
static void note_end(struct job *job, int i)
{
	if (waitid(P_PIDFD, (id_t)job->pidfds[i], &job->ends[i], WEXITED | WNOWAIT))
		die("waitid");
	bool expected = !job->threads && job->test->killed >> i & 1;
	bool failed = job->ends[i].si_code == CLD_EXITED && job->ends[i].si_status != 0;
	if (expected ? is_killed(job, i) : job->ends[i].si_code == CLD_EXITED && !failed)
		return;
	if (job->outcome == RUNNER_PASS)
		job->outcome = failed || expected ? RUNNER_FAIL : RUNNER_CRASH;
}

static int64_t limit_of(const struct job *job)
{
	int64_t cases_ms = (int64_t)(job->last_case - job->first_case) * CASE_MS;
	if (job->test->limit_ms)
		return job->test->limit_ms;
	int64_t limit_ms = job->hosts ? HOSTS_LIMIT_MS : LIMIT_MS;
	return job->test->random && cases_ms > limit_ms ? cases_ms : limit_ms;
}

/* Waits until all have ended, or the time is over. */
static void await_end(struct job *job)
{
	int64_t end_ms = now_ms() + limit_of(job) * RUNNER_PATIENCE;
	bool hurried = false;
	for (;;) {
		struct pollfd fds[RANKS_MAX];
		int running = 0;
		for (int i = 0; i < job->processes; i++) {
			bool runs = job->ends[i].si_pid == 0;
			fds[i] = (struct pollfd){.fd = runs ? job->pidfds[i] : -1, .events = POLLIN};
			running += runs;
		}
		if (!running)
			return;
		if (job->outcome != RUNNER_PASS && !hurried) {
			hurried = true;
			if (end_ms > now_ms() + GRACE_MS * RUNNER_PATIENCE)
				end_ms = now_ms() + GRACE_MS * RUNNER_PATIENCE;
		}
		int64_t left_ms = end_ms - now_ms();
		if (left_ms <= 0)
			break;
		if (poll(fds, (nfds_t)job->processes, (int)left_ms) < 0 && errno != EINTR)
			die("poll");
		for (int i = 0; i < job->processes; i++)
			if (fds[i].revents)
				note_end(job, i);
	}
	if (job->outcome == RUNNER_PASS)
		job->outcome = RUNNER_HANG;
}

static FILE *open_output(const struct job *job)
{
	FILE *file = fdopen(fcntl(job->output, F_DUPFD_CLOEXEC, 0), "r");
	if (!file)
		die("fdopen");
	rewind(file);
	return file;
}

static bool reports_races(const struct job *job)
{
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file = open_output(job);
	while (!found && getline(&line, &room, file) > 0)
		found = strstr(line, "[LS-RACE-");
	free(line);
	fclose(file);
	return found;
}

static void show_failure(const struct job *job, bool races)
{
	static const char *const names[] = {"passed", "failed", "crashed", "ran out of time"};
	printf("# it %s%s%s\n", names[job->outcome],
	       job->outcome == job->test->ends ? "" : ", which was not expected",
	       races ? "; races were reported" : "");
	for (int i = 0; i < job->processes; i++)
		if (job->ends[i].si_pid == 0)
			printf("# rank %d did not end\n", i);
		else if (job->ends[i].si_code != CLD_EXITED)
			printf("# rank %d ended by signal %d\n", i, job->ends[i].si_status);
		else if (job->ends[i].si_status)
			printf("# rank %d ended with status %d\n", i, job->ends[i].si_status);
	for (int r = 0; r < job->ranks; r++)
		if (job->shared->notes[r][0])
			printf("# rank %d was at: %.*s\n", r, (int)sizeof job->shared->notes[r],
			       job->shared->notes[r]);
	char *line = NULL;
	size_t room = 0;
	FILE *file = open_output(job);
	for (ssize_t length; (length = getline(&line, &room, file)) > 0;)
		printf("# | %s%s", line, line[length - 1] == '\n' ? "" : "\n");
	free(line);
	fclose(file);
}

static void finish(struct job *job)
{
	kill(-job->group, SIGKILL); /* also children of ranks; the zombies keep the number ours */
	for (int i = 0; i < job->processes; i++) {
		waitpid(job->pids[i], NULL, 0);
		close(job->pidfds[i]);
	}
	close(job->output);
	munmap(job->shared, sizeof *job->shared);
}

static bool run_job(struct job *job, int number)
{
	int64_t begin_ms = now_ms();
	start(job);
	await_end(job);
	bool races = job->checked && reports_races(job);
	bool ok = job->outcome == job->test->ends && !races;
	printf("%sok %d - %s (%d ms)\n", ok ? "" : "not ", number, job->name,
	       (int)(now_ms() - begin_ms));
	if (!ok)
		show_failure(job, races);
	finish(job);
	fflush(stdout);
	return ok;
}

/* ---- the table, as the options want it ---- */

static bool is_left_out(const struct runner_test *test, int ranks,
			const struct runner_options *options)
{
	if (options->hosts && ranks < options->hosts)
		return true;
	return !options->all && ((options->hosts && exclude_on_hosts(test->symbol)) ||
				 (options->checked && exclude_checked(test->symbol)));
}

/* The next test with one number of ranks, beginning at (*test, *ranks); false at the end. */
static bool next_job(const struct runner_options *options, size_t *test, int *ranks, struct job *job)
{
	for (; *test < runner_test_count; (*test)++, *ranks = 0) {
		const struct runner_test *at = &runner_tests[*test];
		while (++*ranks <= RANKS_MAX) {
			*job = (struct job){.test = at,
					    .ranks = *ranks,
					    .threads = options->threads,
					    .hosts = (int)options->hosts,
					    .checked = options->checked,
					    .seed = options->seed};
			snprintf(job->name, sizeof job->name, "%s/%d", at->name, *ranks);
			bool wanted = at->ranks >> *ranks & 1 &&
				      !(options->threads && at->processes_only) &&
				      (options->nightly || !at->nightly) &&
				      !is_left_out(at, *ranks, options) &&
				      (!options->filter || strstr(job->name, options->filter));
			if (wanted)
				return true;
		}
	}
	return false;
}

/* The cases of all random tests, shared out among them. */
static long cases_of_each(const struct runner_options *options)
{
	struct job job;
	size_t test = 0;
	int ranks = 0;
	long jobs = 0;
	while (next_job(options, &test, &ranks, &job))
		jobs += job.test->random;
	return jobs ? (options->cases + jobs - 1) / jobs : 0;
}

static int run_table(const struct runner_options *options, unsigned turn, int *number)
{
	struct job job;
	size_t test = 0;
	int ranks = 0, passed = 0;
	long cases = cases_of_each(options), at = 0;
	while (next_job(options, &test, &ranks, &job)) {
		if (at++ % options->parts != options->part - 1)
			continue;
		job.turn = turn;
		job.seed += turn;
		job.first_case = options->only < 0 ? 0 : (uint32_t)options->only;
		job.last_case = options->only < 0 ? (uint32_t)cases : (uint32_t)options->only + 1;
		++*number;
		if (options->list)
			printf("%s\n", job.name);
		else
			passed += run_job(&job, *number);
	}
	return passed;
}

int main(int argc, char **argv)
{
	struct runner_options options;
	int number = 0, passed = 0;
	runner_read_options(argc, argv, &options);
	if (options.hosts && !options.list)
		hosts_make((int)options.hosts);
	for (unsigned turn = 0; turn < options.repeat; turn++)
		passed += run_table(&options, turn, &number);
	if (options.list)
		return 0;
	if (options.hosts && !options.all)
		exclude_tell_on_hosts();
	if (options.checked && !options.all)
		exclude_tell_checked();
	printf("1..%d\n%d passed, %d failed\n", number, passed, number - passed);
	return number == 0 || passed < number;
}
