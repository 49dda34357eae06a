/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep memory: how much memory of their devices the ranks of one job hold. Reads only. */
#include "base/messages.h"
#include "base/settings.h"
#include "cli/cli.h"
#include "inspect/inspect.h"
#include "inspect/device_memory.h"
#include "print/print.h"

static const struct option options[] = {
	{"svg", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct choices {
	const char *svg; /* a file, "-": standard output; NULL: no picture */
	bool json;
	const char *name; /* "": the only job there is */
};

/* Returns -1 to go on, otherwise the exit status. */
static int parse_options(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	int option;

	*out = (struct choices){.name = ""};
	for (optind = 1; optind < argc;) { /* options may follow the name */
		while ((option = cli_option(self, argc, argv, "+:h", options)) != -1) {
			if (option == 'h')
				return CLI_OK;
			if (option == '?')
				return CLI_USAGE;
			if (option == 's')
				out->svg = optarg;
			if (option == 'j')
				out->json = true;
		}
		if (optind == argc)
			break;
		if (out->name[0])
			return cli_usage(self, "one job, process or file at a time");
		out->name = argv[optind++];
		if (!out->name[0])
			return cli_usage(self, "an empty name is no job, process or file");
	}
	if (out->svg && out->json)
		return cli_usage(self, "one of --svg and --json at a time");
	return -1;
}

static void draw_svg(const void *memory, FILE *out)
{
	inspect_memory_svg(out, memory);
}

static int show_memory(const struct choices *choices, const struct inspect_memory *memory)
{
	struct print_json json = {.out = stdout};

	if (choices->svg)
		return cli_draw(choices->svg, draw_svg, memory);
	if (!choices->json) {
		inspect_memory_print(stdout, memory);
		return CLI_OK;
	}
	inspect_memory_json(&json, memory);
	putchar('\n');
	return CLI_OK;
}

static int show_file(const struct choices *choices)
{
	struct inspect_memory memory;
	const char *why;
	struct inspect_saved *saved = inspect_saved_read(choices->name, &why);

	if (!saved) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_FILE, choices->name, why);
		return CLI_NOTHING;
	}
	inspect_memory_of_file(saved, &memory);
	int status = show_memory(choices, &memory);
	inspect_saved_free(saved);
	return status;
}

static int show_job(const struct cli_command *self, const struct choices *choices,
		    const struct cli_named *named)
{
	struct inspect_memory memory;
	struct inspect_jobs jobs;

	int status = cli_find_job(self, named, &jobs);
	if (status != CLI_OK)
		return status;
	struct inspect_report *report = inspect_report_take(jobs.views[0], NULL);
	if (report) {
		inspect_memory_take(jobs.views[0], report, &memory);
		status = show_memory(choices, &memory);
	} else {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_MEMORY);
		status = CLI_FAILED;
	}
	inspect_report_free(report);
	inspect_jobs_free(&jobs);
	return status;
}

static int memory_main(const struct cli_command *self, int argc, char **argv)
{
	struct cli_named named = {0};
	struct settings settings;
	struct choices choices;

	int status = parse_options(self, argc, argv, &choices);
	if (status >= 0)
		return status;
	if (!cli_settings(&settings))
		return CLI_USAGE;
	if (choices.name[0])
		named = cli_named(choices.name);
	return named.file ? show_file(&choices) : show_job(self, &choices, &named);
}

const struct cli_command cli_memory_command = {
	.name = "memory",
	.arguments = "[--json | --svg FILE] [JOB | PID | FILE]",
	.summary = "shows which ranks of a job hold how much device memory",
	.help = "Shows for each rank that has a device how much of its memory the rank holds: in blocks\n"
		"that are in use (ls_device_alloc), cached for the next allocation, freed but still used\n"
		"by streams, or put off until the driver may take it back; and the peaks. It reads memory\n"
		"that ranks keep for this purpose, so it also works when they are stopped, or have ended\n"
		"while another rank or the launcher is alive. It stops and disturbs nothing.\n"
		"\n"
		"  JOB   a job's number: 16 hexadecimal digits\n"
		"  PID   any process of a job, or its launcher\n"
		"  FILE  the file of lockstep run --trace, or the snapshot of a job that failed\n"
		"\n"
		"Without any of them: the running job, if there is only one.\n"
		"\n"
		"options:\n"
		"  --json      one object for programs on standard output, with further figures\n"
		"  --svg FILE  a picture: a bar for each rank, with its peaks (-: standard output)\n"
		"  -h, --help  this text\n"
		"\n"
		"exit status: 0 if the memory was shown, 1 if not, 2 for a wrong command line, 3 if there\n"
		"is no such job, or the file is damaged.\n",
	.main = memory_main,
};
