/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep diagnose: which jobs there are, who waits for whom in them, and why. The command stops
 * and disturbs nothing, except that --stacks does so to see C frames. It only reads, except that it
 * asks ranks of a job on several hosts for the traces of ranks on other hosts
 * (inspect/ask_hosts.h). */
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/settings.h"
#include "cli/cli.h"
#include "failure/python_line.h"
#include "inspect/report.h"
#include "print/print.h"

static const struct option options[] = {
	{"json", no_argument, NULL, 'j'},
	{"stacks", no_argument, NULL, 's'},
	{"python", no_argument, NULL, 'p'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct output {
	bool as_json, stacks;
	struct print_json json;
	uint64_t patience_ms;
	int shown;
	bool verdict;
};

static void show_report(struct output *output, const struct inspect_report *report,
			const struct inspect_saved *saved)
{
	struct inspect_shown shown = {report, saved,
				      inspect_report_is_verdict(report, output->patience_ms),
				      output->stacks};

	output->verdict = output->verdict || shown.verdict;
	if (output->as_json) {
		inspect_print_json(&output->json, &shown);
	} else {
		if (output->shown > 0)
			putchar('\n');
		inspect_print(stdout, &shown);
	}
	output->shown++;
}

static int show_file(struct output *output, const char *path)
{
	const char *why;
	struct inspect_saved *saved = inspect_saved_read(path, &why);

	if (!saved) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_FILE, path, why);
		return CLI_NOTHING;
	}
	show_report(output, &saved->report, saved);
	output->verdict = output->verdict || !saved->ended_well;
	inspect_saved_free(saved);
	return CLI_OK;
}

static int show_jobs(struct output *output, uint64_t job, pid_t pid, const char *what)
{
	struct inspect_jobs jobs;

	if (inspect_find_jobs(job, pid, &jobs) != LS_OK)
		return CLI_NOTHING;
	for (size_t i = 0; i < jobs.count; i++) {
		struct inspect_report *report = inspect_report_take(jobs.views[i], NULL);
		if (!report) {
			MESSAGE_SAY(MESSAGE_DIAGNOSE_MEMORY);
			continue;
		}
		inspect_report_ask_hosts(report, jobs.views[i]);
		inspect_report_explain(report);
		inspect_report_add_python(report);
		show_report(output, report, NULL);
		inspect_report_free(report);
	}
	if (jobs.count == 0)
		MESSAGE_SAY(MESSAGE_DIAGNOSE_NOTHING, what ? " of " : "", what ? what : "",
			    jobs.unreadable ? "; some processes of this user may not be looked into"
					    : "");
	inspect_jobs_free(&jobs);
	return CLI_OK;
}

static int show_named(struct output *output, const char *name)
{
	if (!name[0])
		return show_jobs(output, 0, 0, NULL);
	struct cli_named named = cli_named(name);
	return named.file ? show_file(output, name)
			  : show_jobs(output, named.job, named.pid, named.what);
}

/* Prints the Python line of each process that has one. Ranks ask for these lines when they write
 * their reports. */
static int show_python(const struct cli_command *self, int count, char **words)
{
	char line[DIAGNOSE_PYTHON_BYTES];

	if (count == 0)
		return cli_usage(self, "--python needs the number of a process");
	for (int i = 0; i < count; i++) {
		char *end;
		unsigned long pid = strtoul(words[i], &end, 10);
		unsigned long tid = *end == ':' ? strtoul(end + 1, &end, 10) : pid;
		if (*end || pid == 0 || pid > INT32_MAX || tid == 0 || tid > INT32_MAX)
			return cli_usage(self, "'%s' is neither PID nor PID:TID", words[i]);
		bool awaits_mutex = inspect_python_line((int)pid, (uint32_t)tid, line, sizeof line);
		if (line[0])
			printf("%lu%.*s %s\n", pid, awaits_mutex, (char[]){PYTHON_AWAITS_MUTEX},
			       line);
	}
	return CLI_OK;
}

static int diagnose_main(const struct cli_command *self, int argc, char **argv)
{
	struct output output = {.json = {.out = stdout}};
	struct settings settings;
	bool python = false;
	int option;

	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:h", options)) != -1) {
		if (option == 'h')
			return CLI_OK;
		if (option == 'j')
			output.as_json = true;
		else if (option == 's')
			output.stacks = true;
		else if (option == 'p')
			python = true;
		else
			return CLI_USAGE;
	}
	if (python)
		return show_python(self, argc - optind, argv + optind);
	if (argc - optind > 1)
		return cli_usage(self, "one job, process or file at a time");
	const char *name = optind < argc ? argv[optind] : "";
	if (optind < argc && !name[0])
		return cli_usage(self, "an empty name is no job, process or file");
	if (output.stacks && cli_named(name).file && name[0])
		return cli_usage(
			self, "--stacks looks into processes: '%s' is neither a job nor one", name);
	if (!cli_settings(&settings))
		return CLI_USAGE;
	output.patience_ms = settings.patience_ms;

	if (output.as_json) {
		print_json_open(&output.json, NULL, '{');
		print_json_open(&output.json, "jobs", '[');
	}
	int status = show_named(&output, name);
	if (output.as_json) {
		print_json_close(&output.json, ']');
		print_json_close(&output.json, '}');
		putchar('\n');
	}
	if (status != CLI_OK)
		return status;
	return output.shown == 0 ? CLI_NOTHING : output.verdict ? CLI_FAILED : CLI_OK;
}

const struct cli_command cli_diagnose_command = {
	.name = "diagnose",
	.arguments = "[--json] [--stacks] [JOB | PID | FILE], or --python PID[:TID]...",
	.summary = "shows for each job which ranks wait for which, and why",
	.help = "Finds the jobs of this user on this machine. Shows for each whether it runs, what each\n"
		"rank does, for which ranks it waits, and what keeps the job from making progress. It\n"
		"reads memory that ranks keep for this purpose, so it also works when they are stopped,\n"
		"or have ended while another rank or the launcher is alive. Ranks of the job on other\n"
		"hosts are shown, too; hosts that do not answer are named.\n"
		"\n"
		"  JOB   a job's number: 16 hexadecimal digits\n"
		"  PID   any process of a job, or its launcher\n"
		"  FILE  a snapshot that lockstep run wrote when a job failed, or the file of its option\n"
		"        --trace\n"
		"\n"
		"options:\n"
		"  --json      prints one JSON object: {\"jobs\": [...]}\n"
		"  --stacks    also shows the stack of each thread of each rank, in Python and in C;\n"
		"              for C frames a thread is stopped for about 100 microseconds\n"
		"  --python    only prints, for each process, the line of Python at which its main\n"
		"              thread is, or the thread TID: what ranks add to a report about a rank elsewhere\n"
		"  -h, --help  this text\n"
		"\n"
		"exit status: 0 if nothing is wrong; 1 if a group has failed, if there is a verdict (\"elsewhere\"\n"
		"only after LOCKSTEP_PATIENCE_MS), or if the job of FILE has ended badly; 2 for a wrong command\n"
		"line; 3 if there is no such job.\n",
	.main = diagnose_main,
};
