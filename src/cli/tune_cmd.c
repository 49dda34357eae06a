/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep tune: measures what algorithms, chunks and kinds of store are worth on this machine, and prints
 * the table that follows. For each number of ranks it runs itself under `lockstep run`, with --rank in
 * front; those ranks open a group for each candidate, in turns, and rank 0 prints its lines. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/messages.h"
#include "base/settings.h"
#include "bench/bench.h"
#include "bench/lockstep.h"
#include "cli/cli.h"
#include "print/print.h"
#include "cli/tune.h"
#include "transport/transport.h"

enum { RANKS_MAX = 64, COUNTS_MAX = 8, NUMBER_BYTES = 24 };
static const uint64_t bytes_max = UINT64_C(1) << 28;
static const uint64_t buffer_max = UINT64_C(1) << 29; /* all parts of a gather together */
static const char default_ranks[] = "2,4,8";
static const char default_sizes[] = "64,2K,16K,128K,1M,4M,16M";
static const struct bench_effort effort = {.repeat_s = 0.004, .limit_s = 0.04, .repeats = 3};

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},  {"bytes", required_argument, NULL, 'b'},
	{"rounds", required_argument, NULL, 'o'}, {"rank", required_argument, NULL, 'r'},
	{"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

/* Which collective of a plan each operation of a benchmark is. */
static const enum plan_collective collectives[BENCH_COLLECTIVE_COUNT] = {
	[BENCH_ALLREDUCE] = PLAN_ALLREDUCE,
	[BENCH_REDUCE] = PLAN_REDUCE,
	[BENCH_BROADCAST] = PLAN_BROADCAST,
	[BENCH_ALLGATHER] = PLAN_ALLGATHER,
	[BENCH_GATHER] = PLAN_GATHER,
	[BENCH_SCATTER] = PLAN_SCATTER,
	[BENCH_REDUCE_SCATTER] = PLAN_REDUCE_SCATTER,
	[BENCH_ALLTOALL] = PLAN_ALLTOALL,
	[BENCH_BARRIER] = PLAN_BARRIER,
};

struct choices {
	uint64_t ranks[COUNTS_MAX];
	int rank_count;
	uint64_t sizes[TUNE_SIZES_MAX];
	int size_count;
	uint64_t rounds;
	const char *list; /* of sizes, as it was given */
	/* Not the command that was typed, but one of its ranks: for groups of this many. */
	bool rank;
	uint64_t ranks_min, ranks_max;
};

/* ---- the command line ---- */

/* Growing numbers between commas; how many, or 0 if the list is not one. */
static int read_list(const char *list, bool bytes, uint64_t max, int room, uint64_t *out)
{
	int count = 0;

	for (const char *word = list;; word++) {
		char text[32];
		size_t length = strcspn(word, ",");
		snprintf(text, sizeof text, "%.*s", (int)(length < 31 ? length : 31), word);
		if (count == room ||
		    !(bytes ? cli_bytes(text, &out[count]) : cli_number(text, 1, max, &out[count])))
			return 0;
		if (out[count] < 1 || out[count] > max ||
		    (count > 0 && out[count] <= out[count - 1]))
			return 0;
		count++;
		word += length;
		if (*word == '\0')
			return count;
	}
}

static int read_sizes(const struct cli_command *self, const char *list, struct choices *out)
{
	out->list = list;
	out->size_count = read_list(list, true, bytes_max, TUNE_SIZES_MAX, out->sizes);
	if (out->size_count > 0)
		return -1;
	return cli_usage(self, "--bytes needs up to %d growing numbers such as 64,8K,1M, not '%s'",
			 TUNE_SIZES_MAX, list);
}

static int read_option(const struct cli_command *self, int option, struct choices *out)
{
	uint64_t range[2];

	switch (option) {
	case 'n':
		out->rank_count = read_list(optarg, false, RANKS_MAX, COUNTS_MAX, out->ranks);
		if (out->rank_count > 0 && out->ranks[0] > 1)
			return -1;
		return cli_usage(self, "-n needs growing numbers of ranks from 2 to %d, not '%s'",
				 RANKS_MAX, optarg);
	case 'b':
		return read_sizes(self, optarg, out);
	case 'o':
		if (cli_number(optarg, 1, TUNE_ROUNDS_MAX, &out->rounds))
			return -1;
		return cli_usage(self, "--rounds needs a number from 1 to %d, not '%s'",
				 TUNE_ROUNDS_MAX, optarg);
	case 'r':
		if (read_list(optarg, false, RANKS_MAX, 2, range) == 0)
			return cli_usage(self, "--rank is for lockstep tune itself");
		out->rank = true;
		out->ranks_min = range[0];
		out->ranks_max = range[1];
		return -1;
	case 'h':
		return CLI_OK;
	default:
		return CLI_USAGE;
	}
}

static int parse(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	int option;

	*out = (struct choices){.rounds = 3};
	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:n:h", options)) != -1) {
		int status = read_option(self, option, out);
		if (status >= 0)
			return status;
	}
	if (optind < argc)
		return cli_usage(self, "'%s' is too much", argv[optind]);
	if (out->size_count == 0)
		read_sizes(self, default_sizes, out);
	if (out->rank_count == 0)
		out->rank_count = read_list(default_ranks, false, RANKS_MAX, COUNTS_MAX, out->ranks);
	return -1;
}

/* ---- the command itself ---- */

/* `lockstep run` as the user would type it. What it does to signals is undone. */
static int run_job(const struct choices *choices, int count)
{
	char program[PATH_MAX], ranks[NUMBER_BYTES], range[2 * NUMBER_BYTES], rounds[NUMBER_BYTES];
	struct sigaction pipe_action;
	sigset_t mask;
	uint64_t min = count > 0 ? choices->ranks[count - 1] + 1 : 1;
	uint64_t max = count + 1 < choices->rank_count ? choices->ranks[count] : RANKS_MAX;

	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	program[length > 0 ? length : 0] = '\0';
	if (length <= 0 || access(program, X_OK) != 0)
		snprintf(program, sizeof program, "/proc/self/exe");
	snprintf(ranks, sizeof ranks, "%d", (int)choices->ranks[count]);
	snprintf(range, sizeof range, "%d,%d", (int)min, (int)max);
	snprintf(rounds, sizeof rounds, "%d", (int)choices->rounds);
	const char *const words[] = {"run",     "--no-prefix", "-n",  ranks,      program,
				     "tune",    "--rank",      range, "--rounds", rounds,
				     "--bytes", choices->list, NULL};
	if (sigprocmask(SIG_BLOCK, NULL, &mask) != 0 || sigaction(SIGPIPE, NULL, &pipe_action) != 0)
		return CLI_FAILED;
	/* Options are only read, and words not changed. */
	int status = cli_run_command.main(&cli_run_command, sizeof words / sizeof *words - 1,
					  (char **)(uintptr_t)words);
	if (sigprocmask(SIG_SETMASK, &mask, NULL) != 0 ||
	    sigaction(SIGPIPE, &pipe_action, NULL) != 0)
		return CLI_FAILED;
	return status;
}

static void print_head(void)
{
	char host[64] = "", line[PLAN_TABLE_TEXT_BYTES];
	const struct plan_table none = {0};

	if (gethostname(host, sizeof host - 1) != 0)
		host[0] = '\0';
	printf("# lockstep %s tune, on ", LOCKSTEP_VERSION);
	print_safely(stdout, host, 0);
	printf(" with %ld processors\n", sysconf(_SC_NPROCESSORS_ONLN));
	plan_table_text(&none, -1, line);
	puts(line);
}

static int be_command(const struct choices *choices)
{
	print_head();
	for (int i = 0; i < choices->rank_count; i++) {
		if (fflush(stdout) != 0)
			return CLI_FAILED;
		int status = run_job(choices, i);
		if (status != CLI_OK)
			return status;
	}
	return CLI_OK;
}

/* ---- a rank ---- */

struct tuner {
	const struct choices *choices;
	struct settings_launch launch;
	struct tune_times times; /* of the round that is under way; then the medians */
	double *rounds;          /* [rounds][the same] */
	size_t each;             /* how many times a round has */
	int openings;
};

/* The table of one candidate as a file of this process, so that opening a group reads it as any other. */
static bool set_table(const struct tune_candidate *candidate, int *fd)
{
	char text[2 * PLAN_TABLE_TEXT_BYTES], path[NUMBER_BYTES * 2];
	struct plan_table table = {.count = 0};

	for (int a = PLAN_SLOT; a <= PLAN_DIRECT; a++) {
		if (candidate->algorithm != PLAN_NONE && a != PLAN_SLOT)
			break;
		table.lines[table.count++] = (struct plan_table_line){
			.bytes_max = UINT64_MAX,
			.collective = PLAN_TABLE_ANY,
			.algorithm = candidate->algorithm != PLAN_NONE ? (uint8_t)candidate->algorithm
								       : (uint8_t)a,
			.stores = (uint8_t)candidate->stores,
			.ranks_min = 1,
			.ranks_max = PLAN_SIZE_MAX,
			.chunk_bytes = candidate->chunk_bytes,
			.read_bytes = candidate->read_bytes,
		};
	}
	*fd = memfd_create("lockstep-tune", MFD_CLOEXEC);
	for (int i = 0; *fd >= 0 && i < table.count; i++) {
		plan_table_text(&table, i, text);
		print_append(text, sizeof text, "\n");
		size_t bytes = strlen(text);
		if (write(*fd, text, bytes) != (ssize_t)bytes)
			return false;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
	return *fd >= 0 && setenv("LOCKSTEP_TABLE", path, 1) == 0;
}

/* `lockstep run` serves one meeting; these are many, each at a place of its own. */
static ls_status open_group(struct tuner *tuner, ls_group **out)
{
	char place[128];
	struct ls_group_options group = {.size = sizeof group,
					 .rank = (int32_t)tuner->launch.rank,
					 .world_size = (int32_t)tuner->launch.world_size,
					 .rendezvous = place};

	snprintf(place, sizeof place, "%s-%d", tuner->launch.rendezvous, tuner->openings++);
	return ls_group_open(&group, out);
}

/* Bytes of the larger buffer for this payload; 0: more than is reasonable. */
static size_t buffer_bytes(enum bench_op op, uint64_t payload, int ranks)
{
	bool one_part = op == BENCH_ALLGATHER || op == BENCH_GATHER;
	uint64_t bytes = one_part ? payload * (uint64_t)ranks : payload;

	return bytes <= buffer_max ? bytes : 0;
}

static size_t largest(const struct tuner *tuner, int ranks)
{
	size_t bytes = 64;

	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++)
		for (int i = 0; i < tuner->choices->size_count; i++) {
			size_t wanted =
				buffer_bytes((enum bench_op)op, tuner->choices->sizes[i], ranks);
			size_t here =
				bench_elements((enum bench_op)op, wanted, ranks) * sizeof(float);
			bytes = here > bytes ? here : bytes;
		}
	return (bytes + 63) / 64 * 64;
}

static bool time_points(struct tuner *tuner, ls_group *group, int candidate, float *buffers[2])
{
	struct bench_lockstep state;
	struct bench_runtime runtime = bench_lockstep(group, &state);
	const struct choices *choices = tuner->choices;

	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++) {
		enum plan_collective collective = collectives[op];
		for (int i = 0; i < (op == BENCH_BARRIER ? 1 : choices->size_count); i++) {
			uint64_t payload = op == BENCH_BARRIER ? 0 : choices->sizes[i];
			struct bench_case what = {
				.op = (enum bench_op)op,
				.bytes = buffer_bytes((enum bench_op)op, payload, runtime.size),
				.fresh = true,
				.send = buffers[0],
				.recv = buffers[1]};
			struct bench_time time;
			if (!cli_tune_fits(candidate, collective, payload, TRANSPORT_INLINE_BYTES) ||
			    (payload > 0 && what.bytes == 0))
				continue;
			if (!bench_time(&runtime, &what, &effort, &time))
				return false;
			*cli_tune_at(&tuner->times, candidate, collective, i) = time.seconds;
		}
	}
	return true;
}

static bool get_buffers(ls_group *group, bool plain, size_t bytes, float *out[2])
{
	for (int i = 0; i < 2; i++) {
		void *memory = NULL;
		if (!plain && ls_alloc(group, bytes, &memory) != LS_OK)
			return false;
		if (plain)
			memory = aligned_alloc(64, bytes);
		if (!memory) {
			MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "aligned_alloc of a buffer",
				    strerror(ENOMEM));
			return false;
		}
		out[i] = memory;
	}
	return true;
}

static bool try_candidate(struct tuner *tuner, int candidate)
{
	bool plain = cli_tune_candidate(candidate)->plain;
	float *buffers[2] = {NULL, NULL};
	ls_group *group;
	int fd;

	if (!set_table(cli_tune_candidate(candidate), &fd)) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "memfd_create", strerror(errno));
		return false;
	}
	ls_status status = open_group(tuner, &group);
	close(fd);
	if (status != LS_OK)
		return false;
	size_t bytes = largest(tuner, ls_group_size(group));
	bool good = get_buffers(group, plain, bytes, buffers) &&
		    time_points(tuner, group, candidate, buffers) &&
		    ls_barrier(group, NULL) == LS_OK;
	ls_group_close(group); /* which frees what ls_alloc gave */
	for (int i = 0; plain && i < 2; i++)
		free(buffers[i]);
	return good;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void take_medians(struct tuner *tuner)
{
	double values[TUNE_ROUNDS_MAX];
	size_t rounds = tuner->choices->rounds;

	for (size_t i = 0; i < tuner->each; i++) {
		for (size_t r = 0; r < rounds; r++)
			values[r] = tuner->rounds[r * tuner->each + i];
		qsort(values, rounds, sizeof *values, compare);
		tuner->times.seconds[i] = values[rounds / 2];
	}
}

static bool measure(struct tuner *tuner)
{
	int candidates = cli_tune_candidates();

	for (size_t r = 0; r < tuner->choices->rounds; r++) {
		/* All turn the order in the same way. */
		for (int k = 0; k < candidates; k++)
			if (!try_candidate(tuner, (k + (int)r * 5) % candidates))
				return false;
		memcpy(tuner->rounds + r * tuner->each, tuner->times.seconds,
		       tuner->each * sizeof(double));
	}
	take_medians(tuner);
	return true;
}

static void print_lines(const struct tuner *tuner)
{
	struct plan_table table = {.count = 0};
	char line[PLAN_TABLE_TEXT_BYTES];

	if (!cli_tune_choose(&tuner->times, TRANSPORT_INLINE_BYTES, (int)tuner->choices->ranks_min,
			     (int)tuner->choices->ranks_max, &table))
		return;
	for (int i = 0; i < table.count; i++) {
		plan_table_text(&table, i, line);
		puts(line);
	}
}

static int be_rank(const struct choices *choices)
{
	struct tuner tuner = {.choices = choices};
	bool good = false;

	if (settings_read_launch(NULL, &tuner.launch) != LS_OK || !tuner.launch.rendezvous)
		return CLI_FAILED;
	unsetenv("LOCKSTEP_ALGORITHM"); /* it would win over every table */
	bench_bind((int)tuner.launch.rank);
	tuner.each = (size_t)cli_tune_candidates() * PLAN_COLLECTIVE_COUNT * TUNE_SIZES_MAX;
	tuner.times.size_count = choices->size_count;
	memcpy(tuner.times.sizes, choices->sizes, sizeof tuner.times.sizes);
	tuner.times.seconds = calloc(tuner.each, sizeof(double));
	tuner.rounds = calloc(tuner.each * choices->rounds, sizeof(double));
	if (tuner.times.seconds && tuner.rounds)
		good = measure(&tuner);
	else
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
	if (good && tuner.launch.rank == 0)
		print_lines(&tuner);
	free(tuner.times.seconds);
	free(tuner.rounds);
	return good ? CLI_OK : CLI_FAILED;
}

static int tune_main(const struct cli_command *self, int argc, char **argv)
{
	struct choices choices;

	int early = parse(self, argc, argv, &choices);
	if (early >= 0)
		return early;
	return choices.rank ? be_rank(&choices) : be_command(&choices);
}

const struct cli_command cli_tune_command = {
	.name = "tune",
	.arguments = "[OPTIONS]",
	.summary = "measures this machine and prints the table that algorithms are chosen from",
	.help = "Tries algorithms, chunks and kinds of store in turns, and prints a table of those that\n"
		"are clearly faster than the defaults. To use it:\n"
		"\n"
		"    lockstep tune >table\n"
		"    export LOCKSTEP_TABLE=$PWD/table\n"
		"\n"
		"It takes some minutes, in which nothing else should run. See lockstep-tune(1).\n"
		"\n"
		"options:\n"
		"  -n, --ranks LIST  numbers of ranks to measure with, growing (2,4,8)\n"
		"  --bytes LIST      payloads to measure with, growing (64,2K,16K,128K,1M,4M,16M)\n"
		"  --rounds N        how often each is measured, 1 to 15 (3)\n"
		"  -h, --help        this text\n"
		"\n"
		"exit status: 0; 1 if it could not be measured; 2 for a wrong command line.\n",
	.main = tune_main,
};
