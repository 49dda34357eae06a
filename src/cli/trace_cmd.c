/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep trace: what the ranks of one job did when, from the memory of a job that runs, or from
 * what lockstep run has kept of one that has ended. */
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/settings.h"
#include "cli/cli.h"
#include "timeline/timeline.h"
#include "inspect/ask_hosts.h"
#include "inspect/inspect.h"

_Static_assert((int)INSPECT_RANK_MAX == (int)TIMELINE_RANK_MAX, "a timeline has room for each job");

struct choices {
	const char *svg, *html; /* files, "-": standard output; NULL both: text */
	bool text, json;
	uint64_t last_ns; /* 0: everything */
	const char *name; /* "": the only job there is */
};

static const struct option options[] = {
	{"svg", required_argument, NULL, 's'},
	{"html", required_argument, NULL, 'm'},
	{"text", no_argument, NULL, 't'},
	{"last", required_argument, NULL, 'l'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static bool read_ms(const char *text, uint64_t *out_ns)
{
	double ms;

	if (!cli_decimal(text, &ms) || !(ms >= 1e-6) || ms > 1e12)
		return false;
	*out_ns = (uint64_t)(ms * 1e6);
	return true;
}

/* Returns -1 to go on, otherwise the exit status. */
static int parse_options(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	int option;

	*out = (struct choices){.name = ""};
	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:h", options)) != -1) {
		if (option == 'h')
			return CLI_OK;
		if (option == '?')
			return CLI_USAGE;
		if (option == 's')
			out->svg = optarg;
		if (option == 'm')
			out->html = optarg;
		if (option == 't')
			out->text = true;
		if (option == 'j')
			out->json = true;
		if (option == 'l' && !read_ms(optarg, &out->last_ns))
			return cli_usage(self, "--last needs a number of milliseconds, not '%s'",
					 optarg);
	}
	if (!!out->svg + !!out->html + out->text + out->json > 1)
		return cli_usage(self, "one of --svg, --html, --json and --text at a time");
	if (argc - optind > 1)
		return cli_usage(self, "one job, process or file at a time");
	if (optind < argc)
		out->name = argv[optind];
	if (optind < argc && !out->name[0])
		return cli_usage(self, "an empty name is no job, process or file");
	return -1;
}

/* ---- reading ---- */

/* Adds a rank of a job on several hosts, with its times as those of this host. */
static bool add_at(struct timeline *timeline, int rank, const struct trace_view *trace,
		   const struct inspect_hosts *hosts)
{
	bool is_copy = trace == &hosts->traces[rank];
	struct timeline_clock clock = {.first = hosts->locations[rank].first};

	if (is_copy) {
		memcpy(&clock.rate, &trace->header->rate, sizeof clock.rate);
		clock.offset_ns = hosts->offset_ns[rank];
		clock.error_ns = hosts->error_ns[rank];
	} else {
		clock.rate = trace_rate_now(trace);
	}
	return timeline_add_at(timeline, rank, trace, &clock);
}

/* Copies all traces before the first call site is looked up, as the job goes on meanwhile. */
static bool add_all(struct timeline *timeline, const struct trace_view *const *traces,
		    const struct inspect_hosts *hosts)
{
	for (int i = 0; i < timeline->size; i++) {
		if (!traces[i] && hosts && hosts->locations[i].first != hosts->here)
			timeline_miss(timeline, i, hosts->locations[i].host,
				      hosts->locations[i].first);
		if (traces[i] && !(hosts ? add_at(timeline, i, traces[i], hosts)
					 : timeline_add(timeline, i, traces[i])))
			return false;
	}
	return true;
}

static struct timeline *timeline_of(uint64_t job, int size, const struct trace_view *const *traces,
				    const struct inspect_hosts *hosts, uint64_t last_ns,
				    uint64_t now_ns)
{
	struct timeline *timeline = timeline_new(job, size);

	if (!timeline || !add_all(timeline, traces, hosts)) {
		timeline_free(timeline);
		return NULL;
	}
	if (now_ns == 0)
		now_ns = clock_now_ns();
	for (int i = 0; i < size; i++)
		if (traces[i])
			timeline_add_sites(timeline, i, traces[i]);
	if (!timeline_lay_out(timeline, last_ns, now_ns)) {
		timeline_free(timeline);
		return NULL;
	}
	return timeline;
}

/* NULL after a message, with the exit status in *status. */
static struct timeline *read_file(const char *path, uint64_t last_ns, int *status)
{
	const struct trace_view *traces[INSPECT_RANK_MAX] = {NULL};
	const char *why;

	*status = CLI_NOTHING;
	struct inspect_saved *saved = inspect_saved_read(path, &why);
	if (!saved) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_FILE, path, why);
		return NULL;
	}
	const struct diagnose_snapshot *snapshot = saved->report.snapshot;
	const struct inspect_hosts *hosts = saved->report.hosts;
	for (int i = 0; i < snapshot->size; i++)
		if (saved->traces[i].header)
			traces[i] = hosts ? &hosts->traces[i] : &saved->traces[i];
	struct timeline *timeline = timeline_of(snapshot->job, snapshot->size, traces, hosts,
						last_ns, snapshot->now_ns ? snapshot->now_ns : 1);
	inspect_saved_free(saved);
	if (!timeline)
		MESSAGE_SAY(MESSAGE_DIAGNOSE_MEMORY);
	return timeline;
}

static struct timeline *read_job(const struct cli_command *self, const struct cli_named *named,
				 uint64_t last_ns, int *status)
{
	const struct trace_view *traces[INSPECT_RANK_MAX] = {NULL};
	struct timeline *timeline;
	struct inspect_jobs jobs;

	*status = cli_find_job(self, named, &jobs);
	if (*status != CLI_OK)
		return NULL;
	const struct inspect_view *view = jobs.views[0];
	struct inspect_hosts *hosts = inspect_hosts_new(view);
	if (hosts)
		(void)inspect_hosts_copy(hosts, view);
	for (int i = 0; i < view->size; i++)
		if (view->ranks[i].trace.header)
			traces[i] = &view->ranks[i].trace;
		else if (hosts && hosts->traces[i].header)
			traces[i] = &hosts->traces[i];
	timeline = timeline_of(view->job, view->size, traces, hosts, last_ns, 0);
	inspect_hosts_free(hosts);
	if (!timeline) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_MEMORY);
		*status = CLI_NOTHING;
	}
	inspect_jobs_free(&jobs);
	return timeline;
}

/* ---- writing ---- */

static void draw_svg(const void *timeline, FILE *out)
{
	timeline_svg(timeline, out);
}

static void draw_html(const void *timeline, FILE *out)
{
	timeline_html(timeline, out);
}

static int draw_timeline(const struct choices *choices, const struct timeline *timeline)
{
	if (choices->svg)
		return cli_draw(choices->svg, draw_svg, timeline);
	if (choices->html)
		return cli_draw(choices->html, draw_html, timeline);
	if (choices->json)
		timeline_json(timeline, stdout);
	else
		timeline_text(timeline, TIMELINE_COLUMNS, stdout);
	return CLI_OK;
}

static int trace_main(const struct cli_command *self, int argc, char **argv)
{
	struct timeline *timeline;
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
	timeline = named.file ? read_file(choices.name, choices.last_ns, &status)
			      : read_job(self, &named, choices.last_ns, &status);
	if (!timeline)
		return status;
	status = draw_timeline(&choices, timeline);
	timeline_free(timeline);
	return status;
}

const struct cli_command cli_trace_command = {
	.name = "trace",
	.arguments = "[--text | --json | --svg FILE | --html FILE] [--last MS] [JOB | PID | FILE]",
	.summary = "draws a timeline of the ranks of a job",
	.help = "Draws a timeline with a band for each rank. A band has a row for each stream of operations\n"
		"that may overlap with others (the collectives of each group, the messages to or from each\n"
		"peer with each tag), and in it a bar for each operation, from its call to its end. It shows\n"
		"the newest operations of each rank (LOCKSTEP_TRACE_RECORDS), and does not stop the ranks.\n"
		"Ranks on other hosts are on the same axis; it says how far the clocks there differ.\n"
		"\n"
		"  JOB   a job's number: 16 hexadecimal digits\n"
		"  PID   any process of a job, or its launcher\n"
		"  FILE  the file of lockstep run --trace, or the snapshot of a job that failed\n"
		"\n"
		"Without any of them: the running job, if there is only one.\n"
		"\n"
		"options:\n"
		"  --text       lines of 100 characters on standard output; the default\n"
		"  --json       one object for programs on standard output: groups, and operations of each rank\n"
		"  --svg FILE   a picture, with a tooltip on each bar (-: standard output)\n"
		"  --html FILE  a page with zoom and scrolling (-: standard output)\n"
		"  --last MS    only operations that ended in the last MS milliseconds, or still run\n"
		"  -h, --help   this text\n"
		"\n"
		"exit status: 0 if the timeline was drawn, 1 if not, 2 for a wrong command line, 3\n"
		"if there is no such job, or the file is damaged.\n",
	.main = trace_main,
};
