/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep plan: prints what each rank does in a collective, step by step, and why that plan was
 * chosen. These are the very plans that the engine runs; nothing is started for it. */
#include <stdlib.h>
#include <string.h>

#include "base/ranks.h"
#include "base/settings.h"
#include "cli/cli.h"
#include "cli/plan_cmd.h"
#include "print/print.h"
#include "engine/plan_file.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "transport/transport.h"

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'}, {"hosts", required_argument, NULL, 'H'},
	{"bytes", required_argument, NULL, 'b'}, {"algorithm", required_argument, NULL, 'a'},
	{"root", required_argument, NULL, 'r'},  {"rank", required_argument, NULL, 'k'},
	{"in-place", no_argument, NULL, 'i'},    {"table", no_argument, NULL, 't'},
	{"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
};

enum { DEFAULT_BYTES = 1 << 20, NAME_MAX_COUNT = 16 };

/* A list of names, for cli_nearest and to be printed. */
struct names {
	const char *words[NAME_MAX_COUNT + 1];
	int count;
};

static struct names collective_names(void)
{
	struct names names = {.count = 0};

	for (unsigned i = 0; i < COLL_COUNT; i++)
		names.words[names.count++] = plan_collective_name(i);
	return names;
}

static struct names algorithm_names(enum coll_id collective)
{
	struct names names = {.count = 0};

	for (unsigned i = 0; i < PLAN_ALGORITHM_COUNT; i++)
		if (plan_has(collective, (enum plan_algorithm)i))
			names.words[names.count++] = plan_algorithm_name(i);
	return names;
}

static int refuse_name(const struct cli_command *self, const char *what, const char *given,
		       const struct names *names)
{
	char list[128] = "";
	const char *nearest = cli_nearest(given, names->words);

	if (nearest)
		return cli_usage(self, "there is no %s '%s' (did you mean '%s'?)", what, given,
				 nearest);
	for (int i = 0; i < names->count; i++)
		print_append(list, sizeof list, "%s%s", i ? ", " : "", names->words[i]);
	return cli_usage(self, "there is no %s '%s', only %s", what, given, list);
}

/* The words of the command line, before they are checked against each other. */
struct words {
	uint64_t ranks, bytes, root, rank;
	bool has_bytes, has_root, has_rank, in_place, table;
	const char *hosts;
	const char *algorithm;
	const char *collective;
};

/* Returns -1 to go on, otherwise the exit status. */
static int read_option(const struct cli_command *self, int option, struct words *words)
{
	switch (option) {
	case 'n':
		if (!cli_number(optarg, 1, RANKS_WORLD_MAX, &words->ranks))
			return cli_usage(self, "-n needs a number of ranks from 1 to %d, not '%s'",
					 RANKS_WORLD_MAX, optarg);
		return -1;
	case 'H':
		words->hosts = optarg;
		return -1;
	case 'b':
		words->has_bytes = true;
		if (!cli_bytes(optarg, &words->bytes))
			return cli_usage(self,
					 "--bytes needs a number such as 4096, 64K or 1M, not '%s'",
					 optarg);
		return -1;
	case 'r':
		words->has_root = true;
		if (!cli_number(optarg, 0, RANKS_WORLD_MAX - 1, &words->root))
			return cli_usage(self, "--root needs a rank, not '%s'", optarg);
		return -1;
	case 'k':
		words->has_rank = true;
		if (!cli_number(optarg, 0, RANKS_WORLD_MAX - 1, &words->rank))
			return cli_usage(self, "--rank needs a rank, not '%s'", optarg);
		return -1;
	case 'a':
		words->algorithm = optarg;
		return -1;
	case 'i':
		words->in_place = true;
		return -1;
	case 't':
		words->table = true;
		return -1;
	case 'h':
		return CLI_OK;
	default:
		return CLI_USAGE;
	}
}

/* Options may stand before and after the collective. */
static int read_words(const struct cli_command *self, int argc, char **argv, struct words *out)
{
	*out = (struct words){0};
	optind = 1;
	while (optind < argc) {
		int option = cli_option(self, argc, argv, "+:n:h", options);
		if (option != -1) {
			int status = read_option(self, option, out);
			if (status >= 0)
				return status;
		} else if (optind < argc) {
			if (out->collective)
				return cli_usage(self, "one collective at a time, not also '%s'",
						 argv[optind]);
			out->collective = argv[optind++];
		}
	}
	return -1;
}

/* Where the ranks are. Returns -1 to go on. */
static int take_ranks(const struct cli_command *self, const struct words *words,
		      struct cli_plan *out)
{
	struct plan_params *params = &out->params;
	char why[256];
	int rank = 0;

	if (words->hosts && words->ranks)
		return cli_usage(self, "-n is for one host; with --hosts say HOST:RANKS,HOST:RANKS");
	if (!words->hosts && words->ranks == 0)
		return cli_usage(self, "for how many ranks? say -n NUMBER, or --hosts LIST");
	params->size = (int)words->ranks;
	if (!words->hosts)
		return -1;
	if (!launcher_list_parse(words->hosts, &out->hosts, why))
		return cli_usage(self, "--hosts: %s", why);
	params->size = out->hosts.ranks;
	for (int host = 0; host < out->hosts.count; host++)
		for (int i = 0; i < out->hosts.hosts[host].ranks; i++)
			out->host_of[rank++] = (uint16_t)host;
	out->topology = (struct plan_topology){out->hosts.count, out->host_of};
	params->topology = out->hosts.count > 1 ? &out->topology : NULL;
	return -1;
}

/* Returns -1 to go on. */
static int take_algorithm(const struct cli_command *self, const struct words *words,
			  struct cli_plan *out)
{
	struct plan_params *params = &out->params;
	char what[64];

	if (!words->algorithm)
		return -1;
	int algorithm = plan_algorithm_from(words->algorithm);
	if (algorithm <= 0 || !plan_has(params->collective, (enum plan_algorithm)algorithm)) {
		struct names names = algorithm_names(params->collective);
		snprintf(what, sizeof what, "%s algorithm", words->collective);
		return refuse_name(self, what, words->algorithm, &names);
	}
	if (params->topology && !plan_crosses_hosts((enum plan_algorithm)algorithm))
		return cli_usage(self, "%s works on one host only", words->algorithm);
	if (algorithm == PLAN_INLINE && out->bytes > TRANSPORT_INLINE_BYTES)
		return cli_usage(self, "an entry carries at most %d bytes; say --bytes",
				 TRANSPORT_INLINE_BYTES);
	params->algorithm = (enum plan_algorithm)algorithm;
	out->asked_algorithm = true;
	return -1;
}

/* Checks words against each other, and makes the choices from them. */
static int check_words(const struct cli_command *self, const struct words *words,
		       struct cli_plan *out)
{
	struct names names = collective_names();
	struct plan_params *params = &out->params;

	*out = (struct cli_plan){.rank = words->has_rank ? (int)words->rank : -1};
	if (!words->collective)
		return cli_usage(self, "which collective? such as %s", names.words[0]);
	int collective = plan_collective_from(words->collective);
	if (collective < 0)
		return refuse_name(self, "collective", words->collective, &names);
	params->collective = (enum coll_id)collective;
	int early = take_ranks(self, words, out);
	if (early >= 0)
		return early;
	params->in_place = words->in_place;
	if (words->has_rank && (int)words->rank >= params->size)
		return cli_usage(self, "of %d ranks the last is %d, so there is no rank %d",
				 params->size, params->size - 1, out->rank);
	if (words->has_root && !plan_has_root(params->collective))
		return cli_usage(self, "%s has no root", words->collective);
	if (words->has_root && (int)words->root >= params->size)
		return cli_usage(self, "of %d ranks the last is %d, so there is no root %d",
				 params->size, params->size - 1, (int)words->root);
	params->root = (int)words->root;
	if (words->has_bytes && collective == COLL_BARRIER)
		return cli_usage(self, "a barrier moves no bytes");
	if (words->in_place && (collective == COLL_BARRIER || collective == COLL_ALLTOALL))
		return cli_usage(self, "%s is never in place", words->collective);
	out->bytes = collective == COLL_BARRIER ? 0
		     : words->has_bytes         ? words->bytes
						: DEFAULT_BYTES;
	return take_algorithm(self, words, out);
}

static enum plan_algorithm of_setting(uint64_t value)
{
	switch ((enum setting_algorithm)value) {
	case SETTING_ALGORITHM_AUTO:
		break;
	case SETTING_ALGORITHM_DIRECT:
		return PLAN_DIRECT;
	case SETTING_ALGORITHM_PULL:
		return PLAN_PULL;
	case SETTING_ALGORITHM_RING:
		return PLAN_RING;
	case SETTING_ALGORITHM_DOUBLING:
		return PLAN_DOUBLING;
	case SETTING_ALGORITHM_TREE:
		return PLAN_TREE;
	case SETTING_ALGORITHM_PAIRWISE:
		return PLAN_PAIRWISE;
	}
	return PLAN_NONE;
}

static void choose_algorithm(struct cli_plan *choices, const struct settings *settings)
{
	struct plan_params *params = &choices->params;
	enum plan_algorithm wanted = of_setting(settings->algorithm);

	if (choices->asked_algorithm)
		return;
	choices->set_algorithm = plan_has(params->collective, wanted) &&
				 (!params->topology || plan_crosses_hosts(wanted));
	params->algorithm = cli_plan_choose(choices, choices->bytes, wanted);
}

static void print_lines(const struct plan_table *table, int first, const char *before)
{
	char line[PLAN_TABLE_TEXT_BYTES];
	for (int i = first; i < table->count; i++) {
		plan_table_text(table, i, line);
		printf("%s%s\n", before, line);
	}
}

/* The output can be used as a file for LOCKSTEP_TABLE: all but lines of the table are comments. */
static void print_table(const struct plan_table *table, const struct settings *settings)
{
	enum plan_algorithm wanted = of_setting(settings->algorithm);
	struct plan_table whole = *table;
	whole.count = whole.total;
	if (settings->table) {
		printf("# LOCKSTEP_TABLE is ");
		print_safely(stdout, settings->table, 0);
		printf("; what no line of it fits, the last lines do\n");
	} else {
		printf("# LOCKSTEP_TABLE is not set: these are the defaults\n");
	}
	if (wanted != PLAN_NONE)
		printf("# LOCKSTEP_ALGORITHM: %s, where a collective has it\n",
		       plan_algorithm_name(wanted));
	print_lines(&whole, -1, "");
	puts("# Where there are more ranks than processors, the last lines are instead:");
	plan_table_oversubscribe(&whole);
	print_lines(&whole, whole.count - PLAN_TABLE_OVERSUBSCRIBED_LINES, "# ");
}

static int check_table_words(const struct cli_command *self, const struct words *words)
{
	if (words->collective || words->ranks || words->hosts || words->has_bytes ||
	    words->has_root || words->has_rank || words->in_place || words->algorithm)
		return cli_usage(self, "--table prints all that there is; say nothing else");
	return -1;
}

/* The most that one has. */
static int ranks_of_a_host(const struct cli_plan *choices)
{
	int most = choices->hosts.count ? 0 : choices->params.size;
	for (int host = 0; host < choices->hosts.count; host++)
		if (choices->hosts.hosts[host].ranks > most)
			most = choices->hosts.hosts[host].ranks;
	return most;
}

static int plan_main(const struct cli_command *self, int argc, char **argv)
{
	struct words words;
	struct cli_plan choices = {0};
	struct settings settings;
	struct plan_table table;

	int early = read_words(self, argc, argv, &words);
	if (early < 0)
		early = words.table ? check_table_words(self, &words)
				    : check_words(self, &words, &choices);
	if (early >= 0)
		return early;
	if (!cli_settings(&settings) || engine_table_read(settings.table, &table) != LS_OK)
		return CLI_USAGE;
	if (words.table) {
		print_table(&table, &settings);
		return CLI_OK;
	}
	if (cli_processors() < ranks_of_a_host(&choices)) /* as it would be for ranks here */
		plan_table_oversubscribe(&table);
	choices.table = &table;
	choose_algorithm(&choices, &settings);
	return cli_plan_print(&choices);
}

const struct cli_command cli_plan_command = {
	.name = "plan",
	.arguments = "COLLECTIVE (-n N | --hosts LIST) [OPTIONS] | --table",
	.summary = "prints the steps of each rank in a collective",
	.help = "Prints the steps that each of N ranks runs in COLLECTIVE, and how the algorithm was\n"
		"chosen. COLLECTIVE is all-reduce, reduce, broadcast, all-gather, gather, scatter,\n"
		"reduce-scatter, all-to-all or barrier. No rank is started.\n"
		"\n"
		"options:\n"
		"  -n, --ranks N      number of ranks, 1 to 512\n"
		"  --hosts LIST       HOST:RANKS,HOST:RANKS...: the ranks of each host, as in run\n"
		"  --bytes B          size of the input of one rank, such as 4096 or 64K; default 1M\n"
		"  --algorithm A      inline, direct, pull, ring, doubling, tree, pairwise, rails or\n"
		"                     leaders, where the collective has it\n"
		"  --root R           root of reduce, broadcast, gather or scatter; default 0\n"
		"  --rank R           only the steps of this rank\n"
		"  --table            instead of a plan, the table from which algorithms, chunk sizes and\n"
		"                     kinds of stores are chosen (see lockstep-tune(1))\n"
		"  --in-place         the collective works in place, as each call allows it\n"
		"  -h, --help         this text\n"
		"\n"
		"exit status: 0; 2 for a wrong command line.\n",
	.main = plan_main,
};
