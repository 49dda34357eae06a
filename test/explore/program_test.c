/* SPDX-License-Identifier: BSD-3-Clause
 * Drawn programs on real threads, each in a process of its own with a time limit. If asked to,
 * reduces a failing program; then prints it. The failure may not happen again, because here the
 * system chooses which thread runs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"
#include "program.h"
#include "scheduler.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 10, PROGRAMS = 100 };
#else
enum { SLOWNESS = 1, PROGRAMS = 300 };
#endif

enum { OUTPUT_BYTES = 16384, LIMIT_MS = 20000, TIMEOUT_MS = 10000, SHRINKS = 400, AGAIN = 3 };

struct options {
	uint64_t seed;
	long programs;
	bool plants, shrink, show;
	int only;
	const char *file;
};

/* One rank of a program that runs. */
struct rank {
	struct program_run *run;
	int rank, size;
	char name[64]; /* where the ranks meet */
};

static void run_rank(void *data)
{
	struct rank *rank = data;
	struct ls_group_options options = {.size = sizeof options,
					   .timeout_ms = TIMEOUT_MS * SLOWNESS,
					   .rank = rank->rank,
					   .world_size = rank->size,
					   .rendezvous = rank->name};
	ls_group *world;
	ls_status status = ls_group_open(&options, &world);
	if (status != LS_OK)
		scheduler_fail("rank %d cannot open its group: %s", rank->rank,
			       ls_status_name(status));
	program_run_rank(rank->run, rank->rank, &world);
	ls_group_close(world);
}

/* Reports of the thread sanitizer are part of the output, but not of what the library says. */
static void keep_reports(void)
{
#ifdef __SANITIZE_THREAD__
	void __sanitizer_set_report_fd(void *fd);
	__sanitizer_set_report_fd((void *)(intptr_t)fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
#endif
}

/* Runs it in a process of its own. What that prints says why it failed. */
_Noreturn static void run_here(const struct program *program)
{
	struct rank ranks[PROGRAM_RANKS];
	int threads[PROGRAM_RANKS], looker = -1;
	char why[4096], messages[8];
	int file = memfd_create("said", MFD_CLOEXEC);
	snprintf(messages, sizeof messages, "%d", program->world.messages);
	keep_reports();
	if (file < 0 || dup2(file, STDERR_FILENO) < 0 ||
	    fcntl(STDERR_FILENO, F_SETFL, O_APPEND) != 0 ||
	    setenv("LOCKSTEP_MESSAGES", messages, 1) != 0 ||
	    setenv("LOCKSTEP_P2P", program->world.serial ? "serial" : "auto", 1) != 0 ||
	    setenv("LOCKSTEP_BLOCKING", program->world.blocking ? "1" : "0", 1) != 0 ||
	    setenv("LOCKSTEP_ARENA_BYTES", "1G", 1) != 0)
		exit(2);
	plain_begin(file);
	struct program_run *run = program_run_new(program);
	for (int r = 0; r < program->world.ranks; r++) {
		ranks[r] = (struct rank){.run = run, .rank = r, .size = program->world.ranks};
		snprintf(ranks[r].name, sizeof ranks[r].name, "unix:lockstep-program-%d",
			 (int)getpid());
		threads[r] = scheduler_spawn(r, "rank", run_rank, &ranks[r]);
	}
	if (program->looks)
		looker = scheduler_spawn(SCHEDULER_NOBODY, "looks", program_run_looks, run);
	for (int r = 0; r < program->world.ranks; r++)
		scheduler_join(threads[r]);
	if (looker >= 0)
		scheduler_join(looker);
	if (!program_judge(program, program_run_results(run), scheduler_said(), why, sizeof why))
		scheduler_fail("%s\nsaid: %s", why, scheduler_said());
	program_run_free(run);
	exit(0);
}

/* True: all is right. Else `output` says what is wrong. */
static bool run_program(const struct program *program, char output[OUTPUT_BYTES])
{
	int file = memfd_create("program", MFD_CLOEXEC);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
			_exit(2);
		run_here(program);
	}
	int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1, status = 0;
	if (file < 0 || pidfd < 0) {
		printf("cannot start a program: %s\n", strerror(errno));
		exit(2);
	}
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	bool hangs = poll(&end, 1, LIMIT_MS * SLOWNESS) == 0;
	if (hangs)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ssize_t length = pread(file, output, OUTPUT_BYTES - 64, 0);
	length = length > 0 ? length : 0;
	output[length] = '\0';
	if (hangs)
		snprintf(output + length, 64, "it hangs\n");
	else if (!WIFEXITED(status))
		snprintf(output + length, 64, "signal %d\n", WTERMSIG(status));
	close(file);
	close(pidfd);
	return !hangs && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool still_fails(void *data, const struct program *program)
{
	for (int i = 0; i < AGAIN; i++)
		if (!run_program(program, data))
			return true;
	return false;
}

static void tell(const struct options *options, struct program *program, char *output)
{
	if (options->shrink) {
		int tries = program_shrink(program, still_fails, output, SHRINKS);
		printf("made smaller in %d tries\n", tries);
		still_fails(output, program);
	}
	program_print(program, stdout);
	printf("%s\n", output);
}

static void draw(const struct options *options, uint64_t seed, struct program *program)
{
	struct program_world world;
	struct program_taste taste = {
		.plants = options->plants, .looks = true, .registers = true, .only = options->only};
	program_draw_world(seed, &world);
	program_make(seed, &world, &taste, program);
}

static bool run_seed(const struct options *options, uint64_t seed)
{
	struct program program;
	char output[OUTPUT_BYTES];
	draw(options, seed, &program);
	const char *illegal = program_is_legal(&program);
	if (options->show)
		program_print(&program, stdout);
	if (!illegal && run_program(&program, output))
		return true;
	printf("not ok - seed %llu: %s\n", (unsigned long long)seed,
	       illegal ? illegal : "it failed");
	if (illegal)
		program_print(&program, stdout);
	else
		tell(options, &program, output);
	return false;
}

static int run_file(const struct options *options)
{
	static struct program program;
	char output[OUTPUT_BYTES];
	FILE *file = fopen(options->file, "re");
	const char *why = file ? program_read(file, &program) : strerror(errno);
	if (file)
		fclose(file);
	if (why) {
		printf("%s: %s\n", options->file, why);
		return 2;
	}
	if (run_program(&program, output)) {
		printf("1 passed, 0 failed\n");
		return 0;
	}
	struct options shrink = *options;
	tell(&shrink, &program, output);
	return 1;
}

static void read_options(int argc, char **argv, struct options *options)
{
	*options = (struct options){.seed = 1, .programs = PROGRAMS, .plants = true};
	for (int i = 1; i < argc; i++) {
		bool more = i + 1 < argc;
		if (strcmp(argv[i], "--shrink") == 0) {
			options->shrink = true;
		} else if (strcmp(argv[i], "--show") == 0) {
			options->show = true;
		} else if (strcmp(argv[i], "--healthy") == 0) {
			options->plants = false;
		} else if (strcmp(argv[i], "--seed") == 0 && more) {
			options->seed = strtoull(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--programs") == 0 && more) {
			options->programs = strtol(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--plant") == 0 && more) {
			options->only = (int)strtol(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--file") == 0 && more) {
			options->file = argv[++i];
		} else {
			printf("usage: %s [--seed N] [--programs N] [--healthy] [--plant N] [--shrink] [--show]"
			       " [--file FILE]\n",
			       argv[0]);
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	struct options options;
	long passed = 0;
	read_options(argc, argv, &options);
	if (options.file)
		return run_file(&options);
	for (long i = 0; i < options.programs; i++)
		passed += run_seed(&options, options.seed + (uint64_t)i);
	printf("%ld passed, %ld failed\n", passed, options.programs - passed);
	return passed < options.programs;
}
