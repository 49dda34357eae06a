/* SPDX-License-Identifier: BSD-3-Clause
 * Looks at jobs in which nothing is wrong, as `lockstep diagnose` does, again and again while they
 * run: looks LOCKSTEP [--looks N] [--commands N] [--seed N]. Most looks call the functions of the
 * command in this process; --commands of them run the program LOCKSTEP. A look that finds anything
 * wrong is a failure, and prints what it found. A seed draws each job and is printed with it.
 * Prints TAP and "N passed, N failed". */
#include "looks.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inspect/inspect.h"

enum {
	FIND_EVERY = 200, /* after so many looks the job is searched for again */
	SITES_EVERY = 100,
	LIMIT_S = 120,       /* a job that takes longer hangs */
	PATIENCE_MS = 60000, /* a rank that computes for less is no verdict */
	SHOWN = 3,
	HEALTHY = 0, /* the exit statuses of the program */
	NO_JOB = 3,
};

struct job {
	struct looks_rank plan;
	char rendezvous[64];
	int output; /* memfd that receives what ranks and commands print */
	pid_t pids[LOOKS_RANKS_MAX];
	int pidfds[LOOKS_RANKS_MAX];
	struct inspect_jobs found;
	bool failed;
};

static struct {
	const char *program;
	long looks, commands;
	uint64_t seed;
} wanted = {.looks = 100000, .commands = 200, .seed = 1};

/* What was done. `busy` looks saw an operation in progress. */
static struct {
	long looks, busy, waiting, elsewhere, commands, jobs, shown;
	long bad_looks, bad_commands, bad_jobs;
} done;

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "looks: %s: %s\n", what, strerror(errno));
	exit(2);
}

static time_t now_s(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static void show(struct job *job, const char *what)
{
	char line[1024];
	job->failed = true;
	if (done.shown++ >= SHOWN)
		return;
	printf("# seed %llu, %d ranks: %s\n", (unsigned long long)job->plan.seed, job->plan.size,
	       what);
	FILE *file = fdopen(fcntl(job->output, F_DUPFD_CLOEXEC, 0), "r");
	if (!file)
		die("fdopen");
	rewind(file);
	while (fgets(line, sizeof line, file))
		printf("# | %s%s", line, strchr(line, '\n') ? "" : "\n");
	fclose(file);
	fflush(stdout);
}

/* ---- the job ---- */

static void start_rank(struct job *job, int rank)
{
	pid_t parent = getpid(), pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		struct looks_rank self = job->plan;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		self.rank = rank;
		if (getppid() != parent || dup2(job->output, STDOUT_FILENO) < 0 ||
		    dup2(job->output, STDERR_FILENO) < 0)
			_exit(2);
		looks_work(&self);
		exit(0);
	}
	job->pids[rank] = pid;
	job->pidfds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
	if (job->pidfds[rank] < 0)
		die("pidfd_open");
}

static void start(struct job *job, uint64_t seed)
{
	*job = (struct job){.plan = {.size = 2 + (int)(seed % (LOOKS_RANKS_MAX - 1)), .seed = seed}};
	snprintf(job->rendezvous, sizeof job->rendezvous, "unix:looks-%d-%llu", (int)getpid(),
		 (unsigned long long)seed);
	job->plan.rendezvous = job->rendezvous;
	job->output = memfd_create("looks-output", MFD_CLOEXEC);
	if (job->output < 0)
		die("memfd_create");
	fflush(stdout);
	for (int r = 0; r < job->plan.size; r++)
		start_rank(job, r);
}

/* Whether all ranks have ended. */
static bool is_over(const struct job *job)
{
	struct pollfd fds[LOOKS_RANKS_MAX];
	for (int r = 0; r < job->plan.size; r++)
		fds[r] = (struct pollfd){.fd = job->pidfds[r], .events = POLLIN};
	return poll(fds, (nfds_t)job->plan.size, 0) == job->plan.size;
}

static void finish(struct job *job)
{
	bool good = true;
	for (int r = 0; r < job->plan.size; r++) {
		int status;
		kill(job->pids[r], SIGKILL); /* no signal to a rank that has ended */
		if (waitpid(job->pids[r], &status, 0) != job->pids[r])
			die("waitpid");
		good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
		close(job->pidfds[r]);
	}
	done.jobs++;
	if (!good && !job->failed) {
		done.bad_jobs++;
		show(job, "the job did not end well");
	}
	close(job->output);
	inspect_jobs_free(&job->found);
}

/* ---- looks ---- */

static void find(struct job *job)
{
	inspect_jobs_free(&job->found);
	if (inspect_find_jobs(0, job->pids[0], &job->found) != LS_OK)
		die("inspect_find_jobs");
}

static void count(const struct inspect_report *report)
{
	bool waiting = false, busy = false;
	for (int r = 0; r < report->snapshot->size; r++) {
		const struct diagnose_rank *rank = &report->snapshot->ranks[r];
		waiting = waiting || rank->thread_count > 0;
		for (uint32_t i = 0; i < rank->record_count; i++)
			busy = busy || rank->records[i].end_ns == 0;
	}
	done.looks++;
	done.busy += busy;
	done.waiting += waiting;
	done.elsewhere += report->verdict.cause == DIAGNOSE_ELSEWHERE;
}

static void look(struct job *job)
{
	for (size_t i = 0; i < job->found.count; i++) {
		struct inspect_report *report = inspect_report_take(job->found.views[i], NULL);
		if (!report)
			die("inspect_report_take");
		if (done.looks % SITES_EVERY == 0)
			inspect_report_explain(report);
		else
			inspect_report_judge(report);
		count(report);
		if (inspect_report_is_verdict(report, PATIENCE_MS)) {
			done.bad_looks++;
			diagnose_add_sites(report->sources, report->snapshot->size,
					   report->snapshot);
			inspect_report_judge(report);
			show(job, report->text[0] ? report->text : "a verdict without words");
		}
		inspect_report_free(report);
	}
}

/* The same through the program. It may come before the job has begun, or after its end. */
static void command(struct job *job)
{
	char pid[16];
	int status;
	snprintf(pid, sizeof pid, "%d", (int)job->pids[0]);
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		if (dup2(job->output, STDOUT_FILENO) < 0 || dup2(job->output, STDERR_FILENO) < 0)
			_exit(2);
		execl(wanted.program, wanted.program, "diagnose", pid, (char *)NULL);
		_exit(2);
	}
	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_JOB)
		return;
	done.commands++;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != HEALTHY) {
		done.bad_commands++;
		show(job, "the program finds something wrong, the last that it says is:");
	}
	if (ftruncate(job->output, 0) || lseek(job->output, 0, SEEK_SET))
		die("ftruncate");
}

static void play(uint64_t seed)
{
	struct job job;
	time_t end_s = now_s() + LIMIT_S;
	start(&job, seed);
	for (long turn = 0; !is_over(&job) && !job.failed; turn++) {
		bool whole = job.found.count > 0 && inspect_view_has_segments(job.found.views[0]);
		if (!whole || turn % FIND_EVERY == 0)
			find(&job);
		if (done.busy < wanted.looks)
			look(&job);
		long share = (done.commands + 1) * (wanted.looks / (wanted.commands + 1) + 1);
		if (done.commands < wanted.commands && done.busy >= share)
			command(&job);
		if (now_s() > end_s)
			show(&job, "the job hangs");
	}
	finish(&job);
}

static int report(void)
{
	printf("1..3\n");
	printf("# figure: %ld looks at %ld jobs of 2 to %d ranks with 1 to 3 threads each, seeds from %llu; %ld of them saw "
	       "operations under way, %ld threads that waited, %ld that somebody was elsewhere: %ld false verdicts\n",
	       done.looks, done.jobs, LOOKS_RANKS_MAX, (unsigned long long)wanted.seed, done.busy,
	       done.waiting, done.elsewhere, done.bad_looks);
	printf("# figure: %ld looks through the command: %ld false verdicts\n", done.commands,
	       done.bad_commands);
	printf("%sok 1 - looks\n", done.bad_looks ? "not " : "");
	printf("%sok 2 - looks through the command\n", done.bad_commands ? "not " : "");
	printf("%sok 3 - the jobs end well\n", done.bad_jobs ? "not " : "");
	int failed = (done.bad_looks > 0) + (done.bad_commands > 0) + (done.bad_jobs > 0);
	printf("%d passed, %d failed\n", 3 - failed, failed);
	return failed > 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"looks", required_argument, NULL, 'l'},
		{"commands", required_argument, NULL, 'c'},
		{"seed", required_argument, NULL, 's'},
		{NULL, 0, NULL, 0},
	};
	int option;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'l')
			wanted.looks = strtol(optarg, NULL, 10);
		else if (option == 'c')
			wanted.commands = strtol(optarg, NULL, 10);
		else if (option == 's')
			wanted.seed = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	if (optind != argc - 1)
		return 2;
	wanted.program = argv[optind];
	if (setenv("LOCKSTEP_PATIENCE_MS", "60000", 1))
		die("setenv");
	for (uint64_t seed = wanted.seed;
	     (done.busy < wanted.looks || done.commands < wanted.commands) &&
	     done.bad_jobs < SHOWN && done.bad_looks < SHOWN;
	     seed++)
		play(seed);
	return report();
}
