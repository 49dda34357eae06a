/* SPDX-License-Identifier: BSD-3-Clause
 * Opens a world of ranks with a fixed schedule, then runs a program on it under a drawn
 * schedule. */
#include "episode.h"

#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scheduler_private.h"

pid_t __real_getpid(void);

enum { SLICE_MS = 1000, PATIENCE = 10 };

/* Programs that must end well sleep and take no longer than this. */
static const uint64_t idle_ns = UINT64_C(1000000000), patience_ns = UINT64_C(5000000000);

/* The state of the process that runs an episode. */
static struct {
	struct episode *episode;
	const struct subject *subject;
	struct subject_plan plan;
	enum scheduler_policy policy;
	uint64_t random;
	char rendezvous[64];
	bool opener;
	bool looks; /* waits look for their cause early */
	int opened, go;
	ls_group *worlds[SCHEDULER_RANKS];
} run;

const char *episode_outcome_name(enum episode_outcome outcome)
{
	static const char *const names[] = {"fine",    "a hang that nobody reports",
					    "no end",  "wrong",
					    "a crash", "a loop without a point"};
	return names[outcome];
}

/* splitmix64, for what is drawn before the scheduler runs. */
static uint64_t draw(uint64_t limit)
{
	uint64_t z = run.random += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % limit;
}

static const struct subject *choose_subject(const char *only)
{
	unsigned sum = 0;
	for (size_t i = 0; i < subject_count; i++)
		if (only && strcmp(subjects[i]->name, only) == 0)
			return subjects[i];
		else
			sum += subjects[i]->weight;
	uint64_t at = draw(sum);
	size_t i = 0;
	for (; at >= subjects[i]->weight; i++)
		at -= subjects[i]->weight;
	return subjects[i];
}

static void put_settings(char *settings)
{
	for (char *rest = settings; rest && *rest;) {
		char *setting = strsep(&rest, " ");
		char *value = strchr(setting, '=');
		if (!value)
			continue;
		*value = 0;
		setenv(setting, value + 1, 1);
	}
}

/* How waits begin and which plans collectives have must not change any result. */
static void draw_settings(void)
{
	static const char *const waits[] = {"auto", "spin", "yield", "sleep"};
	static const char *const spins[] = {"0", "1", "20"};
	static const char *const algorithms[] = {"auto", "auto",     "auto", "direct",  "pull",
						 "ring", "doubling", "tree", "pairwise"};
	setenv("LOCKSTEP_ARENA_BYTES", "64M", 1);
	setenv("LOCKSTEP_LOOK_MS", run.looks ? "10" : "10000", 1);
	setenv("LOCKSTEP_PATIENCE_MS", "100000", 1);
	setenv("LOCKSTEP_WAIT", waits[draw(4)], 1);
	setenv("LOCKSTEP_SPIN_US", spins[draw(3)], 1);
	setenv("LOCKSTEP_ALGORITHM", algorithms[draw(sizeof algorithms / sizeof *algorithms)], 1);
	put_settings(run.plan.settings);
}

/* ---- the ranks ---- */

const char *subject_rendezvous(void)
{
	return run.rendezvous;
}

static void open_world(void *data)
{
	int rank = (int)(intptr_t)data;
	char device[256] = "";
	if (run.subject->device)
		run.subject->device(rank, device, sizeof device);
	struct ls_group_options options = {.size = sizeof options,
					   .device = device[0] ? device : NULL,
					   .rank = rank,
					   .world_size = run.plan.ranks,
					   .rendezvous = run.rendezvous};
	ls_status status = ls_group_open(&options, &run.worlds[rank]);
	if (status != LS_OK)
		scheduler_fail("rank %d cannot open its group: %s", rank, ls_status_name(status));
	if (run.subject->opened)
		run.subject->opened(rank, run.worlds[rank]);
}

/* In some episodes another thread opens the group, and ends before the first call. Then no wait
 * table has the main thread. */
static void rank_main(void *data)
{
	int rank = (int)(intptr_t)data;
	if (run.plan.opens_itself) {
		run.subject->run(rank, NULL);
		return;
	}
	if (run.opener)
		scheduler_join(scheduler_spawn(rank, "opener", open_world, data));
	else
		open_world(data);
	scheduler_store(&run.opened, run.opened + 1);
	scheduler_await(&run.go, 1, UINT64_MAX);
	run.subject->run(rank, run.worlds[rank]);
}

static void harness_main(void *data)
{
	int threads[SCHEDULER_RANKS];
	(void)data;
	for (int r = 0; r < run.plan.ranks; r++)
		threads[r] = scheduler_spawn(r, "main", rank_main, (void *)(intptr_t)r);
	if (!run.plan.opens_itself)
		scheduler_await(&run.opened, run.plan.ranks, UINT64_MAX);
	scheduler_begin(run.policy, run.random);
	/* Without looks a lost wake-up is a hang, and not only a delay. */
	if (!run.looks) {
		scheduler_idle(idle_ns);
		scheduler_patience(patience_ns);
	}
	scheduler_store(&run.go, 1);
	for (int r = 0; r < run.plan.ranks; r++)
		scheduler_join(threads[r]);
	run.subject->judge();
}

/* ---- the process of an episode ---- */

static void add_text(const char *format, const char *text)
{
	char *out = run.episode->text;
	size_t at = strlen(out);
	snprintf(out + at, EPISODE_TEXT - at, format, text);
}

static void explain(void)
{
	static char where[EPISODE_TEXT / 2];
	run.episode->points = scheduler_points();
	run.episode->threads = scheduler.count;
	scheduler_self = NULL;
	scheduler_describe(where, sizeof where);
	add_text("%s", where);
	if (scheduler_said()[0])
		add_text("the library printed:\n%s", scheduler_said());
}

static void keep_program(void)
{
	FILE *file = run.subject->shrink
			     ? fmemopen(run.episode->program, sizeof run.episode->program - 1, "w")
			     : NULL;
	if (!file)
		return;
	run.subject->show(file);
	fclose(file);
}

static void crashed(int signal)
{
	static volatile sig_atomic_t again;
	run.episode->outcome = EPISODE_CRASHED;
	if (!again) {
		again = 1;
		add_text("signal %s\n", strsignal(signal));
		explain();
		keep_program();
	}
	_exit(0);
}

/* Standard error becomes a file. To a pipe or a terminal the library would write through a
 * descriptor of its own, and the text would be lost. */
static void keep_what_is_said(void)
{
	int fd = memfd_create("said", MFD_CLOEXEC);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
		perror("explore: no file for what is said");
		_exit(2);
	}
	close(fd);
}

/* One heap suffices, because one thread runs at a time; it keeps the pages that it has touched.
 * Objects that are made for the largest job are mapped instead, so that a job of few ranks touches
 * few of their pages. A schedule that opens a world then takes 0.7 of the time. */
static void prepare_heap(void)
{
	enum { MORE_BYTES = 1 << 20, MAPPED_BYTES = 48 << 10 };
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_TOP_PAD, MORE_BYTES);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
}

_Noreturn static void child_main(struct episode *episode, const char *only)
{
	static const enum episode_outcome outcomes[] = {
		[SCHEDULER_DONE] = EPISODE_FINE,
		[SCHEDULER_HANG] = EPISODE_HANG,
		[SCHEDULER_ENDLESS] = EPISODE_ENDLESS,
		[SCHEDULER_CRASHED] = EPISODE_WRONG,
	};
	struct sigaction action = {.sa_handler = crashed, .sa_flags = (int)SA_RESETHAND};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prepare_heap();
	keep_what_is_said();
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGABRT, &action, NULL);
	run.episode = episode;
	run.random = episode->seed;
	draw(2); /* so that neighbouring seeds have nothing in common */
	run.subject = choose_subject(only);
	run.policy = draw(2) ? SCHEDULER_WALK : SCHEDULER_PRIORITY;
	run.subject->draw(draw(UINT64_MAX), &run.plan);
	run.looks = !run.plan.is_well || draw(2);
	draw_settings();
	run.opener = draw(4) == 0;
	/* As where ranks share a process: only the wait tables say what the library does beside its
	 * callers. */
	scheduler.hides = !run.plan.opens_itself && draw(2);
	snprintf(run.rendezvous, sizeof run.rendezvous, "unix:lockstep-explore-%010d",
		 (int)__real_getpid());
	snprintf(episode->name, sizeof episode->name, "%s %s", run.subject->name, run.plan.name);
	episode->ranks = run.plan.ranks;
	episode->subject = run.subject;
	scheduler.coverage = episode->coverage;
	scheduler.traced = episode->traced;
	scheduler.woken = episode->woken;
	if (episode->traced)
		run.subject->show(stdout);
	episode->outcome = outcomes[scheduler_run(harness_main, NULL)];
	episode->points = scheduler_points();
	episode->threads = scheduler.count;
	if (episode->outcome != EPISODE_FINE) {
		explain();
		keep_program();
	}
	fflush(stdout);
	_exit(0);
}

/* Whether the process has computed for this long, or has existed for much longer, without an end.
 * This looks in slices, and at processor time, because on a busy machine, or while it is stopped,
 * the process makes no progress. */
static bool is_stuck(pid_t pid, struct pollfd *end)
{
	clockid_t clock;
	struct timespec used;
	for (int slices = 0; slices < PATIENCE * EPISODE_LIMIT_MS / SLICE_MS; slices++) {
		if (poll(end, 1, SLICE_MS) != 0)
			return false;
		if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0 &&
		    used.tv_sec * 1000 + used.tv_nsec / 1000000 >= EPISODE_LIMIT_MS)
			return true;
	}
	return true;
}

void episode_run(struct episode *episode, const char *only)
{
	episode->outcome = EPISODE_CRASHED;
	episode->text[0] = 0;
	episode->points = 0;
	episode->program[0] = 0;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		child_main(episode, only);
	int fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd end = {.fd = fd, .events = POLLIN};
	if (fd < 0) {
		perror("explore: cannot start a process");
		exit(2);
	}
	if (is_stuck(pid, &end)) {
		episode->outcome = EPISODE_STUCK;
		kill(pid, SIGKILL);
	}
	close(fd);
	waitpid(pid, NULL, 0);
}
