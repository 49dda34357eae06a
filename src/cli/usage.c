/* SPDX-License-Identifier: BSD-3-Clause
 * Command lines: options, numbers, help and what is said about mistakes, the same for all
 * commands. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/settings.h"
#include "cli/cli.h"

enum { OPTION_MAX = 16 };

int cli_help(const struct cli_command *command)
{
	printf("usage: lockstep %s %s\n\n%s", command->name, command->arguments, command->help);
	return CLI_OK;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	MESSAGE_SAY(MESSAGE_USAGE, command ? command->name : "", command ? ": " : "", text,
		    command ? " " : "", command ? command->name : "");
	return CLI_USAGE;
}

static void say_unknown(const struct cli_command *command, const char *given,
			const struct option *options)
{
	char texts[OPTION_MAX][32];
	const char *known[OPTION_MAX + 1];
	int count = 0;

	for (; options[count].name && count < OPTION_MAX; count++) {
		snprintf(texts[count], sizeof texts[count], "--%s", options[count].name);
		known[count] = texts[count];
	}
	known[count] = NULL;

	char word[64];
	snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
	const char *nearest = cli_nearest(word, known);
	if (nearest)
		cli_usage(command, "there is no option '%s' (did you mean '%s'?)", word, nearest);
	else
		cli_usage(command, "there is no option '%s'", word);
}

int cli_option(const struct cli_command *command, int argc, char **argv, const char *letters,
	       const struct option *options)
{
	/* After an error optind need not tell the option: getopt_long stays at a word of several
	 * letters, but moves past others. So remember where it looked. */
	int before = optind;

	opterr = 0;
	int option = getopt_long(argc, argv, letters, options, NULL);
	if (option == 'h') {
		cli_help(command);
		return 'h';
	}
	if (option != '?' && option != ':')
		return option;

	const char *given = before < argc ? argv[before] : "";
	if (option == ':') {
		cli_usage(command, "option '%s' needs a value", given);
	} else if (strncmp(given, "--", 2) == 0) {
		if (optopt)
			cli_usage(command, "option '%.*s' takes no value", (int)strcspn(given, "="),
				  given);
		else
			say_unknown(command, given, options);
	} else {
		cli_usage(command, "there is no option '-%c'", optopt);
	}
	return '?';
}

bool cli_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	*out = 0;
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || value < min || value > max)
		return false;
	*out = value;
	return true;
}

int cli_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
}

bool cli_bytes(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	char *end;

	*out = 0;
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno != 0)
		return false;
	if (*end != '\0') {
		const char *unit = strchr(units, *end);
		if (!unit || end[1] != '\0')
			return false;
		unsigned shift = 10u * (unsigned)(unit - units + 1);
		if (value > UINT64_MAX >> shift)
			return false;
		value <<= shift;
	}
	*out = value;
	return true;
}

bool cli_decimal(const char *text, double *out)
{
	char *end;

	*out = 0;
	/* strtod would also take a sign, words such as "inf", and hexadecimal numbers. */
	if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0' || text[0] == '+' ||
	    text[0] == '-')
		return false;
	*out = strtod(text, &end);
	return end != text && *end == '\0';
}

bool cli_seconds(const char *text, uint64_t *out_ms)
{
	double seconds;

	*out_ms = 0;
	if (!cli_decimal(text, &seconds) || !(seconds > 0) || seconds > 366.0 * 86400)
		return false;
	*out_ms = (uint64_t)ceil(seconds * 1000);
	return true;
}

static bool all_are(const char *text, int (*is)(int))
{
	for (; *text; text++)
		if (!is((unsigned char)*text))
			return false;
	return true;
}

bool cli_settings(struct settings *out)
{
	if (settings_read(NULL, out) != LS_OK)
		return false;
	message_set_level((enum setting_log)out->log);
	settings_warn_of_unknown(NULL);
	return true;
}

struct cli_named cli_named(const char *word)
{
	struct cli_named named = {0};
	size_t length = strlen(word);
	uint64_t pid;

	if (length == 16 && all_are(word, isxdigit)) {
		named.job = strtoull(word, NULL, 16);
		snprintf(named.what, sizeof named.what, "%s", word);
	} else if (length <= 9 && cli_number(word, 1, INT32_MAX, &pid)) {
		named.pid = (pid_t)pid;
		snprintf(named.what, sizeof named.what, "process %s", word);
	} else {
		named.file = true;
	}
	return named;
}
