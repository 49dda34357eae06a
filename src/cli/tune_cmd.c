/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep tune: measures what algorithms, chunks and kinds of store are worth on this machine, and
 * prints the table that follows. For each number of ranks it runs itself under the launcher, with
 * --rank in front; those ranks measure (tune/measure_rank.c), and rank 0 prints its lines. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "cli/cli.h"
#include "launcher/launcher.h"
#include "print/print.h"
#include "tune/tune.h"

enum { COUNTS_MAX = 8, NUMBER_BYTES = 24 };
static const uint64_t bytes_max = UINT64_C(1) << 28;
static const char default_ranks[] = "2,4,8";
static const char default_sizes[] = "64,2K,16K,128K,1M,4M,16M";

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},  {"bytes", required_argument, NULL, 'b'},
	{"rounds", required_argument, NULL, 'o'}, {"rank", required_argument, NULL, 'r'},
	{"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

struct choices {
	uint64_t ranks[COUNTS_MAX];
	int rank_count;
	const char *list; /* of sizes, as it was given */
	bool rank;        /* this process is one of the ranks that the typed command has started */
	struct tune_request request;
};

/* ---- the command line ---- */

/* Reads growing numbers between commas. Returns how many there are, 0 if the list has anything
 * else. */
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
	out->request.size_count =
		read_list(list, true, bytes_max, TUNE_SIZES_MAX, out->request.sizes);
	if (out->request.size_count > 0)
		return -1;
	return cli_usage(self, "--bytes needs up to %d growing numbers such as 64,8K,1M, not '%s'",
			 TUNE_SIZES_MAX, list);
}

static int read_option(const struct cli_command *self, int option, struct choices *out)
{
	uint64_t range[2];

	switch (option) {
	case 'n':
		out->rank_count = read_list(optarg, false, RANKS_HOST_MAX, COUNTS_MAX, out->ranks);
		if (out->rank_count > 0 && out->ranks[0] > 1)
			return -1;
		return cli_usage(self, "-n needs growing numbers of ranks from 2 to %d, not '%s'",
				 RANKS_HOST_MAX, optarg);
	case 'b':
		return read_sizes(self, optarg, out);
	case 'o':
		if (cli_number(optarg, 1, TUNE_ROUNDS_MAX, &out->request.rounds))
			return -1;
		return cli_usage(self, "--rounds needs a number from 1 to %d, not '%s'",
				 TUNE_ROUNDS_MAX, optarg);
	case 'r':
		if (read_list(optarg, false, RANKS_HOST_MAX, 2, range) == 0)
			return cli_usage(self, "--rank is for lockstep tune itself");
		out->rank = true;
		out->request.ranks_min = range[0];
		out->request.ranks_max = range[1];
		return -1;
	case 'h':
		return CLI_OK;
	default:
		return CLI_USAGE;
	}
}

static int parse_options(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	int option;

	*out = (struct choices){.request.rounds = 3};
	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:n:h", options)) != -1) {
		int status = read_option(self, option, out);
		if (status >= 0)
			return status;
	}
	if (optind < argc)
		return cli_usage(self, "'%s' is too much", argv[optind]);
	if (out->request.size_count == 0)
		read_sizes(self, default_sizes, out);
	if (out->rank_count == 0)
		out->rank_count =
			read_list(default_ranks, false, RANKS_HOST_MAX, COUNTS_MAX, out->ranks);
	return -1;
}

/* ---- the command itself ---- */

/* Runs one job. What the launcher does to signals is undone, so that ranks of the next job do not
 * inherit it. */
static int run_job(const struct choices *choices, int count)
{
	char program[PATH_MAX], range[2 * NUMBER_BYTES], rounds[NUMBER_BYTES];
	struct sigaction pipe_action, limit_action;
	sigset_t mask;
	uint64_t min = count > 0 ? choices->ranks[count - 1] + 1 : 1;
	uint64_t max = count + 1 < choices->rank_count ? choices->ranks[count] : RANKS_HOST_MAX;

	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	program[length > 0 ? length : 0] = '\0';
	if (length <= 0 || access(program, X_OK) != 0)
		snprintf(program, sizeof program, "/proc/self/exe");
	snprintf(range, sizeof range, "%d,%d", (int)min, (int)max);
	snprintf(rounds, sizeof rounds, "%d", (int)choices->request.rounds);
	const char *const words[] = {program, "tune",    "--rank",      range, "--rounds",
				     rounds,  "--bytes", choices->list, NULL};
	struct launcher_options job = {.ranks = (int)choices->ranks[count],
				       /* The launcher only reads the words. */
				       .command = (char **)(uintptr_t)words};
	if (sigprocmask(SIG_BLOCK, NULL, &mask) != 0 || sigaction(SIGPIPE, NULL, &pipe_action) != 0 ||
	    sigaction(SIGXFSZ, NULL, &limit_action) != 0)
		return CLI_FAILED;
	int status = launcher_run(&job);
	if (sigprocmask(SIG_SETMASK, &mask, NULL) != 0 ||
	    sigaction(SIGPIPE, &pipe_action, NULL) != 0 ||
	    sigaction(SIGXFSZ, &limit_action, NULL) != 0)
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

static int tune_main(const struct cli_command *self, int argc, char **argv)
{
	struct choices choices;

	int early = parse_options(self, argc, argv, &choices);
	if (early >= 0)
		return early;
	if (choices.rank)
		return tune_measure(&choices.request) ? CLI_OK : CLI_FAILED;
	return be_command(&choices);
}

const struct cli_command cli_tune_command = {
	.name = "tune",
	.arguments = "[OPTIONS]",
	.summary = "measures this machine and prints the table from which algorithms are chosen",
	.help = "Measures algorithms, chunk sizes and kinds of stores in turn, and prints a table of\n"
		"those that are clearly faster than the defaults. To use it:\n"
		"\n"
		"    lockstep tune >table\n"
		"    export LOCKSTEP_TABLE=$PWD/table\n"
		"\n"
		"It takes some minutes, in which nothing else should run. See lockstep-tune(1).\n"
		"\n"
		"options:\n"
		"  -n, --ranks LIST  numbers of ranks to measure with, increasing; default 2,4,8\n"
		"  --bytes LIST      payloads to measure with, increasing; default\n"
		"                    64,2K,16K,128K,1M,4M,16M\n"
		"  --rounds N        how often each candidate is measured, 1 to 15; default 3\n"
		"  -h, --help        this text\n"
		"\n"
		"exit status: 0; 1 if it could not be measured; 2 for a wrong command line.\n",
	.main = tune_main,
};
