/* SPDX-License-Identifier: BSD-3-Clause
 * explore: runs drawn programs under drawn schedules, in as many processes at once as there are
 * processors. It prints how many schedules it ran, how long they were, how many of the library's
 * points they passed, and what they found. It writes each finding to a file, which can be
 * replayed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coverage.h"
#include "episode.h"
#include "parked.h"
#include "places.h"

enum {
	WORKERS_MAX = 64,
	FINDINGS_MAX = 10, /* how many are shown and kept */
	REPLAY_BYTES = 4096,
	TELL_MS = 20000,
	SHRUNK_MAX = 2, /* how many findings are reduced */
	SHRINK_SEEDS = 20,
	SAME_WORDS = 20, /* two findings are the same if they begin with the same characters */
};

struct options {
	uint64_t seed, schedules;
	int workers;
	const char *only, *replay, *folder;
	bool keep_going, first, woken;
};

/* What the workers share. */
struct wait_table {
	_Atomic uint64_t next, done;
	_Atomic uint64_t found;
	/* how many schedules had so many points, in eight classes for each power of two */
	_Atomic uint64_t of_length[64];
};

static struct options options = {.seed = 1, .schedules = 1000, .folder = "."};
static struct wait_table *wait_table;
static unsigned char *coverage;

_Noreturn static void refuse(const char *what, const char *value)
{
	fprintf(stderr,
		"explore: %s '%s'\n"
		"usage: make explore [SEED=N] [SCHEDULES=N] [ONLY=NAME] [REPLAY=FILE], or by itself:\n"
		"       explore [--seed N] [--schedules N] [--workers N] [--only NAME] [--folder DIR]\n"
		"               [--all | --first] [--woken] [--list] [--replay FILE]\n"
		"--all: goes on after %d findings; --first: stops at one; --folder: where they are written;\n"
		"--woken: the kernel wakes each thread for its turn, as on processors that we cannot switch threads on\n",
		what, value, FINDINGS_MAX);
	exit(2);
}

/* `name`: the option, of make explore and of this program. */
static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < least || value > most) {
		char what[128];
		snprintf(what, sizeof what,
			 "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not", name,
			 least, most);
		refuse(what, text);
	}
	return value;
}

static void list_subjects(void)
{
	for (size_t i = 0; i < subject_count; i++)
		printf("%s\n", subjects[i]->name);
	exit(0);
}

static void check_only(const char *name)
{
	for (size_t i = 0; i < subject_count; i++)
		if (strcmp(subjects[i]->name, name) == 0)
			return;
	fprintf(stderr, "explore: ONLY (--only) cannot be '%s'; the sorts of programs are", name);
	for (size_t i = 0; i < subject_count; i++)
		fprintf(stderr, "%s%s", i ? ", " : " ", subjects[i]->name);
	fprintf(stderr, "\n");
	exit(2);
}

static void read_options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(name, "--list") == 0)
			list_subjects();
		else if (strcmp(name, "--all") == 0)
			options.keep_going = true;
		else if (strcmp(name, "--first") == 0)
			options.first = true;
		else if (strcmp(name, "--woken") == 0)
			options.woken = true;
		else if (!value)
			refuse("not understood or without a value:", name);
		else if (strcmp(name, "--seed") == 0)
			options.seed = number("SEED (--seed)", value, 0, UINT64_MAX), i++;
		else if (strcmp(name, "--schedules") == 0)
			options.schedules =
				number("SCHEDULES (--schedules)", value, 1, UINT64_C(1) << 40),
			i++;
		else if (strcmp(name, "--workers") == 0)
			options.workers = (int)number(name, value, 1, WORKERS_MAX), i++;
		else if (strcmp(name, "--only") == 0)
			check_only(options.only = value), i++;
		else if (strcmp(name, "--folder") == 0)
			options.folder = value, i++;
		else if (strcmp(name, "--replay") == 0)
			options.replay = value, i++;
		else
			refuse("not understood:", name);
	}
}

static void *share(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("explore: no memory");
		exit(2);
	}
	return memory;
}

/* ---- findings ---- */

/* Identifies this build, because a seed means something else in another one: FNV-1a of the file. */
static uint64_t build_number(void)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	unsigned char bytes[65536];
	ssize_t length;
	while (fd >= 0 && (length = read(fd, bytes, sizeof bytes)) > 0)
		for (ssize_t i = 0; i < length; i++)
			hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	if (fd >= 0)
		close(fd);
	return hash;
}

static const char *path_of(uint64_t seed, const char *ending)
{
	static char path[512];
	snprintf(path, sizeof path, "%s/explore-%" PRIu64 "%s", options.folder, seed, ending);
	return path;
}

static FILE *open_to_write(const char *path)
{
	FILE *file = fopen(path, "we");
	if (!file)
		printf("explore: cannot write %s: %s\n", path, strerror(errno));
	return file;
}

/* First what --replay reads, then what a person reads. `program`: the file of a reduced program, or
 * "-". */
static void write_replay(const char *path, const struct episode *episode, const char *only,
			 const char *program)
{
	FILE *file = open_to_write(path);
	if (!file)
		return;
	fprintf(file,
		"lockstep explore 1\nbuild %016" PRIx64 "\nseed %" PRIu64
		"\nonly %s\nprogram %s\n\n%s\n%s\n",
		build_number(), episode->seed, only ? only : "-", program,
		episode_outcome_name(episode->outcome), episode->text);
	fclose(file);
	printf("to see it step by step: make explore REPLAY=%s\n", path);
}

/* The same seed gives a reduced program another schedule, so each attempt tries several seeds. */
struct shrinking {
	struct episode *episode;
	const char *only;
	uint64_t seed;
	enum episode_outcome outcome;
	/* how the finding's text begins; with another beginning it is another finding */
	char why[64];
};

static bool fails_again(void *data)
{
	struct shrinking *shrinking = data;
	for (uint64_t i = 0; i < SHRINK_SEEDS; i++) {
		shrinking->episode->seed = shrinking->seed + i;
		episode_run(shrinking->episode, shrinking->only);
		if (shrinking->episode->outcome == shrinking->outcome &&
		    !strncmp(shrinking->episode->text, shrinking->why, strlen(shrinking->why)))
			return true;
	}
	return false;
}

static void shrink_finding(struct episode *episode)
{
	const struct subject *subject = episode->subject;
	struct shrinking shrinking = {.episode = episode,
				      .only = subject->name,
				      .seed = episode->seed,
				      .outcome = episode->outcome};
	char path[512];
	/* Operations have other names in a reduced program, so a text that begins with one does not
	 * count. */
	snprintf(shrinking.why, sizeof shrinking.why, "%.*s", SAME_WORDS,
		 episode->text[0] == 'r' ? "" : episode->text);
	snprintf(path, sizeof path, "%s", path_of(episode->seed, ".program"));
	FILE *file = open_to_write(path);
	if (!file)
		return;
	fputs(episode->program, file);
	fclose(file);
	setenv("EXPLORE_PROGRAM", path, 1);
	subject->shrink(path, fails_again, &shrinking);
	if (fails_again(&shrinking)) {
		printf("\nthe same, made smaller: %s\n%s\n%s\n", path, episode->program,
		       episode->text);
		write_replay(path_of(shrinking.seed, "-small.txt"), episode, subject->name, path);
	}
	unsetenv("EXPLORE_PROGRAM");
}

static void write_finding(struct episode *episode, bool shrinks)
{
	printf("\nseed %" PRIu64 ": %s, in '%s' with %d ranks after %" PRIu64 " points\n%s\n",
	       episode->seed, episode_outcome_name(episode->outcome), episode->name, episode->ranks,
	       episode->points, episode->text);
	write_replay(path_of(episode->seed, ".txt"), episode, options.only, "-");
	if (shrinks && episode->program[0])
		shrink_finding(episode);
}

/* ---- workers ---- */

/* Eight classes for each power of two. */
static int length_class(uint64_t points)
{
	int power = points ? 63 - __builtin_clzll(points) : 0;
	int class = power <= 3 ? 0 : 4 * (power - 3) + (int)(points >> (power - 2) & 3);
	return class < 63 ? class : 63;
}

static uint64_t class_begin(int class)
{
	return class == 0 ? 0 : (uint64_t)(4 + class % 4) << (class / 4 + 1);
}

static void work(int worker)
{
	struct episode *episode = share(sizeof *episode);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)worker % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &one);
	sched_setaffinity(0, sizeof one, &one);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The first process handles these. A handler here would affect the library. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	episode->coverage = coverage;
	episode->woken = options.woken;
	uint64_t at;
	while ((at = atomic_fetch_add(&wait_table->next, 1)) < options.schedules) {
		episode->seed = options.seed + at;
		episode_run(episode, options.only);
		atomic_fetch_add(&wait_table->of_length[length_class(episode->points)], 1);
		atomic_fetch_add(&wait_table->done, 1);
		if (episode->outcome == EPISODE_FINE)
			continue;
		uint64_t found = atomic_fetch_add(&wait_table->found, 1);
		if (found < FINDINGS_MAX)
			write_finding(episode, found < SHRUNK_MAX && !options.first);
		else if (options.keep_going)
			printf("seed %" PRIu64 ": %s, in '%s' after %" PRIu64 " points: %.*s\n",
			       episode->seed, episode_outcome_name(episode->outcome), episode->name,
			       episode->points, (int)strcspn(episode->text, "\n"), episode->text);
		if (options.first || (found >= FINDINGS_MAX && !options.keep_going))
			atomic_store(&wait_table->next, options.schedules);
		fflush(stdout);
	}
	_exit(0);
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t median_points(void)
{
	uint64_t seen = 0, half = (atomic_load(&wait_table->done) + 1) / 2;
	int class = 0;
	for (; class < 63 && (seen += atomic_load(&wait_table->of_length[class])) < half; class ++)
		continue;
	return class_begin(class);
}

static void report(double seconds, bool last)
{
	uint64_t done = atomic_load(&wait_table->done);
	size_t seen, all;
	coverage_count(coverage, &seen, &all);
	printf("%" PRIu64 " schedules, %.0f a second, half of them of %" PRIu64
	       " points or more; %zu of %zu places seen; %" PRIu64 " found%s\n",
	       done, (double)done / (seconds > 0 ? seconds : 1), median_points(), seen, all,
	       atomic_load(&wait_table->found), last ? "" : " so far");
	fflush(stdout);
}

/* A line for doc/reliability.md. */
static void tell_figure(double seconds)
{
	size_t seen, all;
	coverage_count(coverage, &seen, &all);
	printf("# figure: %" PRIu64 " schedules, seeds from %" PRIu64 ", half of them of %" PRIu64
	       " points or more, %.0f a second: %" PRIu64
	       " found; %zu of %zu places of atomic accesses were passed\n",
	       atomic_load(&wait_table->done), options.seed, median_points(),
	       (double)atomic_load(&wait_table->done) / seconds, atomic_load(&wait_table->found),
	       seen, all);
}

/* Lets no further schedule begin. */
static void stop(int signal)
{
	(void)signal;
	atomic_store(&wait_table->next, options.schedules);
}

static int explore(void)
{
	pid_t pids[WORKERS_MAX];
	double begin = now_s();
	int running = 0, ends[2];
	if (pipe2(ends, O_CLOEXEC)) {
		perror("explore: no pipe");
		exit(2);
	}
	fflush(stdout);
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	for (; running < options.workers; running++) {
		pids[running] = fork();
		if (pids[running] == 0)
			work(running);
		if (pids[running] < 0) {
			perror("explore: cannot start a process");
			exit(2);
		}
	}
	/* Each worker holds the other end while it runs. */
	close(ends[1]);
	struct pollfd end = {.fd = ends[0], .events = POLLIN};
	for (int ended; (ended = poll(&end, 1, TELL_MS)) <= 0;)
		if (ended == 0)
			report(now_s() - begin, false);
	close(ends[0]);
	for (int i = 0; i < running; i++)
		waitpid(pids[i], NULL, 0);
	double seconds = now_s() - begin;
	report(seconds, true);
	tell_figure(seconds);
	uint64_t found = atomic_load(&wait_table->found), done = atomic_load(&wait_table->done);
	printf("%" PRIu64 " passed, %" PRIu64 " failed\n", done - found, found);
	return found || !done;
}

/* ---- replay ---- */

static int replay(void)
{
	static char only[128], program[512];
	char text[REPLAY_BYTES] = {0};
	uint64_t build, seed;
	FILE *file = fopen(options.replay, "re");
	errno = file ? 0 : errno;
	size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
	if (!file || (!bytes && errno)) {
		fprintf(stderr, "explore: REPLAY (--replay): cannot read '%s': %s\n",
			options.replay, strerror(errno));
		return 2;
	}
	fclose(file);
	if (sscanf(text,
		   "lockstep explore 1 build %" SCNx64 " seed %" SCNu64 " only %127s program %511s",
		   &build, &seed, only, program) != 4) {
		fprintf(stderr,
			"explore: REPLAY (--replay): '%s' is no finding. What make explore finds it "
			"keeps in %s/explore-SEED.txt\n",
			options.replay, options.folder);
		return 2;
	}
	if (build != build_number()) {
		fprintf(stderr,
			"explore: %s was found by another build, in which its seed means something else.\n"
			"Build the version that found it, or look for it again: make explore\n",
			options.replay);
		return 2;
	}
	if (strcmp(program, "-") != 0)
		setenv("EXPLORE_PROGRAM", program, 1);
	struct episode *episode = share(sizeof *episode);
	episode->seed = seed;
	episode->traced = true;
	episode->woken = options.woken;
	episode_run(episode, strcmp(only, "-") == 0 ? NULL : only);
	printf("\n%s\n%s\n", episode_outcome_name(episode->outcome), episode->text);
	return episode->outcome != EPISODE_FINE;
}

/* The system draws addresses anew for each run, unless it is told not to. Replays need the same
 * addresses. */
static void fix_addresses(char **argv)
{
	int now = personality(0xffffffff);
	if (now < 0 || now & ADDR_NO_RANDOMIZE || personality((unsigned)now | ADDR_NO_RANDOMIZE) < 0)
		return;
	execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
	fix_addresses(argv);
	options.workers = (int)sysconf(_SC_NPROCESSORS_ONLN);
	read_options(argc, argv);
	wait_table = share(sizeof *wait_table);
	coverage = share(coverage_bytes());
	places_make();
	parked_make();
	return options.replay ? replay() : explore();
}
