/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep bench: times collectives, messages and groups on this machine. The command replaces
 * itself by `lockstep run`, whose ranks are this command again, with --rank in front. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "bench/bench.h"
#include "bench/lockstep.h"
#include "cli/cli.h"
#include "print/print.h"

enum {
	SIZES_MAX = 64,
	RUN_WORDS = 6, /* lockstep run --no-prefix -n N PROGRAM */
};
static const uint64_t bytes_max = UINT64_C(1) << 36;
static const char default_sizes[] = "8,1K,16K,64K,256K,1M,4M,16M";
static const struct bench_effort effort = {.repeat_s = 0.02, .limit_s = 0.5, .repeats = 7};

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},
	{"bytes", required_argument, NULL, 'b'},
	{"fresh", no_argument, NULL, 'f'},
	{"plain", no_argument, NULL, 'p'},
	{"no-bind", no_argument, NULL, 'u'},
	{"json", no_argument, NULL, 'j'},
	{"rank", no_argument, NULL, 'r'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct choices {
	bool ops[BENCH_OP_COUNT], all;
	uint64_t sizes[SIZES_MAX];
	int size_count;
	uint64_t ranks;
	bool fresh, plain, unbound, json;
	bool rank; /* this process is one of the ranks that the typed command has started */
};

/* ---- the command line ---- */

static int read_sizes(const struct cli_command *self, const char *list, struct choices *out)
{
	out->size_count = 0;
	for (const char *word = list;; word++) {
		char text[32];
		size_t length = strcspn(word, ",");
		uint64_t *size = &out->sizes[out->size_count];

		snprintf(text, sizeof text, "%.*s", (int)(length < 31 ? length : 31), word);
		if (!cli_bytes(text, size) || *size == 0 || *size > bytes_max)
			return cli_usage(self, "--bytes needs numbers such as 8,64K,16M, not '%s'",
					 text);
		if (++out->size_count == SIZES_MAX)
			return cli_usage(self, "--bytes takes at most %d numbers", SIZES_MAX - 1);
		word += length;
		if (*word == '\0')
			return -1;
	}
}

static int read_op(const struct cli_command *self, const char *word, struct choices *out)
{
	const char *known[BENCH_OP_COUNT + 2] = {"all"};
	int op = bench_op_from(word);

	if (op >= 0) {
		out->ops[op] = true;
		return -1;
	}
	for (int i = 0; i < BENCH_OP_COUNT; i++) {
		known[i + 1] = bench_op_name((enum bench_op)i);
	}
	out->all |= strcmp(word, "all") == 0;
	if (out->all)
		return -1;
	const char *nearest = cli_nearest(word, known);
	if (nearest)
		return cli_usage(self, "there is no operation '%s' (did you mean '%s'?)", word,
				 nearest);
	return cli_usage(self, "there is no operation '%s'", word);
}

/* Returns -1 to go on, otherwise the exit status. */
static int read_option(const struct cli_command *self, int option, struct choices *out)
{
	switch (option) {
	case 'n':
		if (!cli_number(optarg, 1, RANKS_HOST_MAX, &out->ranks))
			return cli_usage(self, "-n needs a number of ranks from 1 to %d, not '%s'",
					 RANKS_HOST_MAX, optarg);
		return -1;
	case 'b':
		return read_sizes(self, optarg, out);
	case 'f':
		out->fresh = true;
		return -1;
	case 'p':
		out->plain = true;
		return -1;
	case 'u':
		out->unbound = true;
		return -1;
	case 'j':
		out->json = true;
		return -1;
	case 'r':
		out->rank = true;
		return -1;
	case 'h':
		return CLI_OK;
	default:
		return CLI_USAGE;
	}
}

/* Returns as many ranks as the processors can run, but at least two, because a collective needs
 * two. */
static uint64_t default_ranks(void)
{
	int count = cli_processors();
	return count < 2 ? 2 : count > RANKS_HOST_MAX ? RANKS_HOST_MAX : (uint64_t)count;
}

/* "all" selects every operation that can be run with this many ranks. Returns -1, or the exit
 * status. */
static int choose_ops(const struct cli_command *self, struct choices *out)
{
	for (int i = 0; i < BENCH_OP_COUNT; i++) {
		bool possible = out->ranks > 1 || !bench_needs_two((enum bench_op)i);
		if (out->ops[i] && !possible)
			return cli_usage(self, "%s needs two ranks",
					 bench_op_name((enum bench_op)i));
		out->ops[i] |= out->all && possible;
	}
	return -1;
}

/* Options may stand before and after operations. */
static int parse_options(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	bool any = false;

	*out = (struct choices){0};
	optind = 1;
	while (optind < argc) {
		int status = -1;
		int option = cli_option(self, argc, argv, "+:n:h", options);
		if (option != -1) {
			status = read_option(self, option, out);
		} else if (optind < argc) {
			status = read_op(self, argv[optind++], out);
			any = true;
		}
		if (status >= 0)
			return status;
	}
	if (!any)
		out->ops[BENCH_ALLREDUCE] = true;
	if (out->size_count == 0)
		read_sizes(self, default_sizes, out);
	if (out->ranks == 0)
		out->ranks = default_ranks();
	return choose_ops(self, out);
}

/* ---- the command itself ---- */

static int become_launcher(const struct choices *choices, int argc, char **argv)
{
	char program[PATH_MAX], ranks[16];
	char **words = calloc((size_t)argc + RUN_WORDS + 3, sizeof *words);
	int count = 0;

	/* The link would always work, but reports are easier to read with the path. */
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	program[length > 0 ? length : 0] = '\0';
	if (length <= 0 || access(program, X_OK) != 0)
		snprintf(program, sizeof program, "/proc/self/exe");
	if (!words) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
		return CLI_FAILED;
	}
	snprintf(ranks, sizeof ranks, "%d", (int)choices->ranks);
	char *const start[] = {"lockstep", "run",   "--no-prefix", "-n",
			       ranks,      program, argv[0],       "--rank"};
	for (size_t i = 0; i < sizeof start / sizeof start[0]; i++)
		words[count++] = start[i];
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	execv("/proc/self/exe", words);
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "execv of this program", strerror(errno));
	free(words);
	return CLI_FAILED;
}

/* ---- a rank ---- */

struct printer {
	const struct choices *choices;
	struct print_json json;
	int ranks;
	bool messages; /* some of the operations are messages */
};

static void print_begin(struct printer *printer)
{
	const struct choices *choices = printer->choices;
	const char *memory = choices->plain ? "plain" : "mapped",
		   *data = choices->fresh ? "fresh" : "hot";

	if (choices->json) {
		print_json_open(&printer->json, NULL, '{');
		print_json_string(&printer->json, "version", LOCKSTEP_VERSION);
		print_json_number(&printer->json, "ranks", printer->ranks);
		print_json_string(&printer->json, "dtype", "float32");
		print_json_string(&printer->json, "memory", memory);
		print_json_string(&printer->json, "data", data);
		print_json_open(&printer->json, "results", '[');
		return;
	}
	printf("%d rank%s, float32, %s memory, %s data\n", printer->ranks,
	       printer->ranks == 1 ? "" : "s", memory, data);
	printf("%-14s  %12s  %12s  %8s", "operation", "bytes", "microseconds", "GB/s");
	printf("%s\n", printer->messages ? "   Mmsg/s" : "");
}

static void print_json(struct print_json *json, const struct bench_case *what, size_t bytes,
		       double seconds, double bus_factor)
{
	double rate = (double)bytes / seconds * 1e-9;

	print_json_open(json, NULL, '{');
	print_json_string(json, "operation", bench_op_name(what->op));
	print_json_unsigned(json, "bytes", bytes);
	if (what->op == BENCH_MATCH)
		print_json_number(json, "outstanding", bench_round_messages(what->op, what->bytes));
	print_json_real(json, "microseconds", seconds * 1e6);
	if (bytes > 0) {
		print_json_real(json, "algorithm_gb_s", rate);
		print_json_real(json, "bus_gb_s", rate * bus_factor);
	}
	if (bench_needs_two(what->op))
		print_json_real(json, "messages_per_s", 1 / seconds);
	print_json_close(json, '}');
}

static void print_result(struct printer *printer, const struct bench_case *what,
			 const struct bench_time *time)
{
	bool message = bench_needs_two(what->op), match = what->op == BENCH_MATCH;
	size_t bytes = match ? BENCH_SMALL_BYTES
			     : bench_elements(what->op, what->bytes, printer->ranks) * sizeof(float);
	double bus_factor = bench_bus_factor(what->op, printer->ranks);
	char name[32];

	if (printer->choices->json) {
		print_json(&printer->json, what, bytes, time->seconds, bus_factor);
		return;
	}
	snprintf(name, sizeof name, "%s", bench_op_name(what->op));
	if (match)
		print_append(name, sizeof name, " %d", bench_round_messages(what->op, what->bytes));
	if (bytes > 0)
		printf("%-14s  %12zu  %12.2f  %8.2f", name, bytes, time->seconds * 1e6,
		       (double)bytes / time->seconds * 1e-9 * bus_factor);
	else
		printf("%-14s  %12s  %12.2f  %8s", name, "-", time->seconds * 1e6, "-");
	if (message)
		printf("  %7.3f\n", 1e-6 / time->seconds);
	else
		printf("%s\n", printer->messages ? "        -" : "");
	fflush(stdout);
}

static void print_end(struct printer *printer)
{
	if (!printer->choices->json)
		return;
	print_json_close(&printer->json, ']');
	print_json_close(&printer->json, '}');
	putchar('\n');
}

/* How many sizes an operation is timed at, and which: those of the command line, unless it has its
 * own. */
static int size_count(const struct choices *choices, enum bench_op op)
{
	int count;
	bool own = bench_sizes(op, &count);

	return !choices->ops[op] ? 0 : own ? count : choices->size_count;
}

static size_t size_at(const struct choices *choices, enum bench_op op, int i)
{
	int count;
	const size_t *own = bench_sizes(op, &count);

	return own ? own[i] : choices->sizes[i];
}

static bool time_one(const struct bench_runtime *runtime, const struct bench_case *what,
		     struct bench_time *out)
{
	char wrong[256];

	if (!bench_check(runtime, what, wrong, sizeof wrong)) {
		if (wrong[0])
			MESSAGE_SAY(MESSAGE_BENCH_WRONG, wrong);
		return false;
	}
	return bench_time(runtime, what, &effort, out);
}

static bool time_all(ls_group *group, const struct choices *choices, float *send, float *recv)
{
	struct bench_lockstep state;
	struct bench_runtime runtime = bench_lockstep(group, &state);
	struct printer printer = {.choices = choices, .json = {.out = stdout}, .ranks = runtime.size};

	for (int op = BENCH_COLLECTIVE_COUNT; op < BENCH_OP_COUNT; op++)
		printer.messages |= choices->ops[op] && bench_needs_two((enum bench_op)op);
	if (runtime.rank == 0)
		print_begin(&printer);
	for (int op = 0; op < BENCH_OP_COUNT; op++) {
		int count = size_count(choices, (enum bench_op)op);
		for (int i = 0; i < count; i++) {
			struct bench_case what = {.op = (enum bench_op)op,
						  .bytes = size_at(choices, (enum bench_op)op, i),
						  .fresh = choices->fresh,
						  .send = send,
						  .recv = recv};
			struct bench_time time;
			if (!time_one(&runtime, &what, &time))
				return false;
			if (runtime.rank == 0)
				print_result(&printer, &what, &time);
		}
	}
	if (runtime.rank == 0)
		print_end(&printer);
	return true;
}

/* Bytes of the largest buffer that any of the operations needs. */
static size_t largest_buffer(const struct choices *choices, int ranks)
{
	size_t elements = 1;

	for (int op = 0; op < BENCH_OP_COUNT; op++)
		for (int i = size_count(choices, (enum bench_op)op) - 1; i >= 0; i--) {
			size_t here = bench_elements((enum bench_op)op,
						     size_at(choices, (enum bench_op)op, i), ranks);
			elements = here > elements ? here : elements;
		}
	return (elements * sizeof(float) + 63) / 64 * 64;
}

static bool get_buffer(ls_group *group, bool plain, size_t bytes, void **out)
{
	if (!plain)
		return ls_alloc(group, bytes, out) == LS_OK;
	*out = aligned_alloc(64, bytes);
	if (!*out)
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "aligned_alloc of a buffer", strerror(ENOMEM));
	return *out;
}

static int be_rank(const struct choices *choices)
{
	ls_group *group;
	struct settings_launch launch;
	void *send = NULL, *recv = NULL;

	if (settings_read_launch(NULL, &launch) != LS_OK)
		return CLI_FAILED;
	if (!choices->unbound)
		bench_bind((int)launch.rank);
	if (ls_group_open(NULL, &group) != LS_OK)
		return CLI_FAILED;
	size_t bytes = largest_buffer(choices, ls_group_size(group));
	bool good = get_buffer(group, choices->plain, bytes, &send) &&
		    get_buffer(group, choices->plain, bytes, &recv) &&
		    time_all(group, choices, send, recv);
	ls_group_close(group); /* also frees memory of ls_alloc */
	if (choices->plain) {
		free(send);
		free(recv);
	}
	return good ? CLI_OK : CLI_FAILED;
}

static int bench_main(const struct cli_command *self, int argc, char **argv)
{
	struct choices choices;

	int early = parse_options(self, argc, argv, &choices);
	if (early >= 0)
		return early;
	return choices.rank ? be_rank(&choices) : become_launcher(&choices, argc, argv);
}

const struct cli_command cli_bench_command = {
	.name = "bench",
	.arguments = "[OPERATION…] [OPTIONS]",
	.summary = "times collectives, messages and groups on this machine",
	.help = "Starts ranks as lockstep run does, checks the result of each OPERATION and times it:\n"
		"all-reduce (if none is named), reduce, broadcast, all-gather, gather, scatter,\n"
		"reduce-scatter, all-to-all, barrier; between two ranks ping-pong, bandwidth,\n"
		"message-rate, match; group, which opens and closes one; or all of them.\n"
		"Microseconds are those of the slowest rank, the median of several loops; GB/s are\n"
		"bus bandwidth, see lockstep-bench(1).\n"
		"\n"
		"options:\n"
		"  -n, --ranks N    number of ranks, 1 to 64; default: the processors, at least 2\n"
		"  --bytes LIST     sizes of the larger buffer of a rank; default:\n"
		"                   8,1K,16K,64K,256K,1M,4M,16M\n"
		"  --fresh          each rank rewrites its data before each operation\n"
		"  --plain          memory of malloc instead of ls_alloc\n"
		"  --no-bind        does not bind ranks to processors\n"
		"  --json           for programs\n"
		"  -h, --help       this text\n"
		"\n"
		"exit status: 0; 1 if an operation failed or its result was wrong; 2 for a wrong\n"
		"command line.\n",
	.main = bench_main,
};
