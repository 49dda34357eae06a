/* SPDX-License-Identifier: BSD-3-Clause */
#include "runner_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hosts.h"
#include "runner.h"

_Noreturn static void explain_usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--list] [--threads] [--filter TEXT] [--repeat N] [--nightly]\n"
		"       [--cases N] [--seed N] [--case N] [--part K/N] [--hosts N] [--checked]\n"
		"       [--all]\n"
		"--cases: of all random tests together; --seed: makes others of them; --case: only that\n"
		"one of each random test; --nightly: with what takes long; --part: one Nth of the tests;\n"
		"--hosts: of each test the ranks are on this many; --checked: with LOCKSTEP_CHECK=1, and a\n"
		"race that is reported is a failure; --all: also tests that are left out with these\n",
		program);
	exit(2);
}

/* Where it stops to be understood. */
static char *read_part(char *text, struct runner_options *options)
{
	char *end;
	options->part = strtol(text, &end, 10);
	if (*end != '/')
		return text;
	options->parts = strtol(end + 1, &end, 10);
	return options->part >= 1 && options->part <= options->parts ? end : text;
}

void runner_read_options(int argc, char **argv, struct runner_options *options)
{
	*options = (struct runner_options){
		.repeat = 1, .cases = RUNNER_CASES, .seed = 1, .only = -1, .part = 1, .parts = 1};
	for (int i = 1; i < argc; i++) {
		char *end = NULL;
		bool more = i + 1 < argc;
		if (strcmp(argv[i], "--list") == 0)
			options->list = true;
		else if (strcmp(argv[i], "--threads") == 0)
			options->threads = true;
		else if (strcmp(argv[i], "--nightly") == 0)
			options->nightly = true;
		else if (strcmp(argv[i], "--checked") == 0)
			options->checked = true;
		else if (strcmp(argv[i], "--all") == 0)
			options->all = true;
		else if (strcmp(argv[i], "--filter") == 0 && more)
			options->filter = argv[++i];
		else if (strcmp(argv[i], "--repeat") == 0 && more)
			options->repeat = strtol(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--cases") == 0 && more)
			options->cases = strtol(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--seed") == 0 && more)
			options->seed = strtoull(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--case") == 0 && more)
			options->only = strtol(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--hosts") == 0 && more)
			options->hosts = strtol(argv[++i], &end, 10);
		else if (strcmp(argv[i], "--part") == 0 && more)
			end = read_part(argv[++i], options);
		else
			explain_usage(argv[0]);
		if (options->hosts < 0 || options->hosts > HOSTS_MAX ||
		    (options->hosts && options->threads))
			explain_usage(argv[0]);
		if (end && (*end || end == argv[i]))
			explain_usage(argv[0]);
	}
}
