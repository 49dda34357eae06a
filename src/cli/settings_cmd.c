/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep settings: every setting, as it would be used by a program started here. */
#include <string.h>
#include <strings.h>

#include "base/settings.h"
#include "cli/cli.h"
#include "print/print.h"

enum { SETTING_MAX = 64 };

static const struct option options[] = {
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static void print_line(const struct settings_line *line)
{
	bool set = line->source == SETTINGS_ENVIRONMENT;

	printf("  %-24s ", line->name);
	print_safely(stdout, line->value, 0);
	printf("%*s", line->value[0] ? (int)(14 - strnlen(line->value, 13)) : 14, "");
	printf("%-14s %-12s %s\n", line->value_default, set ? "environment" : "default", line->help);
}

/* The name may lack LOCKSTEP_, and be in any case. */
static bool is_named(const struct settings_line *line, const char *name)
{
	return strcasecmp(line->name, name) == 0 ||
	       strcasecmp(line->name + strlen("LOCKSTEP_"), name) == 0;
}

static int refuse_name(const struct cli_command *self, const char *name)
{
	const char *known[2 * SETTING_MAX + 1];
	size_t count = 0;

	for (size_t i = 0; i < settings_count() && count < 2 * SETTING_MAX; i++) {
		struct settings_line line;
		settings_describe(NULL, i, &line);
		known[count++] = line.name;
		known[count++] = line.name + strlen("LOCKSTEP_");
	}
	known[count] = NULL;
	const char *nearest = cli_nearest(name, known);
	if (nearest)
		return cli_usage(self, "there is no setting '%s' (did you mean '%s'?)", name,
				 nearest);
	return cli_usage(self, "there is no setting '%s'", name);
}

static int settings_main(const struct cli_command *self, int argc, char **argv)
{
	int option;

	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:h", options)) != -1)
		return option == 'h' ? CLI_OK : CLI_USAGE;
	if (argc - optind > 1)
		return cli_usage(self, "one setting at a time, or none for all");
	const char *name = optind < argc ? argv[optind] : NULL;

	int shown = 0;
	for (size_t i = 0; i < settings_count(); i++) {
		struct settings_line line;
		settings_describe(NULL, i, &line);
		if (name && !is_named(&line, name))
			continue;
		if (shown++ == 0)
			printf("  %-24s %-14s %-14s %-12s %s\n", "setting", "value", "default",
			       "source", "meaning");
		print_line(&line);
	}
	if (shown == 0)
		return refuse_name(self, name);
	fflush(stdout);

	/* These two say which variables are no settings, and which values cannot be used. */
	struct settings settings;
	settings_warn_of_unknown(NULL);
	return settings_read(NULL, &settings) == LS_OK ? CLI_OK : CLI_FAILED;
}

const struct cli_command cli_settings_command = {
	.name = "settings",
	.arguments = "[NAME]",
	.summary = "lists the settings with value, default and source",
	.help = "Lists all settings, or the setting NAME, as a program started from here would read them.\n"
		"A setting is an environment variable; numbers of bytes may end in K, M or G.\n"
		"\n"
		"options:\n"
		"  -h, --help  this text\n"
		"\n"
		"exit status: 0; 1 if a variable has a value that cannot be used; 2 for a wrong command\n"
		"line.\n",
	.main = settings_main,
};
