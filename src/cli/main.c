/* SPDX-License-Identifier: BSD-3-Clause
 * The program `lockstep`: finds the command and calls it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/messages.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
	&cli_run_command,     &cli_diagnose_command, &cli_trace_command,
	&cli_memory_command,  &cli_plan_command,     &cli_settings_command,
	&cli_explain_command, &cli_bench_command,    &cli_tune_command,
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out)
{
	fputs("usage: lockstep COMMAND [OPTIONS]\n"
	      "\n"
	      "Starts training jobs whose processes communicate through Lockstep, and finds out why a\n"
	      "job hangs.\n"
	      "\n"
	      "commands:\n",
	      out);
	for (int i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	fputs("\n"
	      "options:\n"
	      "  -h, --help     this text; lockstep COMMAND --help says more about a command\n"
	      "  -V, --version  the version\n",
	      out);
}

static const struct cli_command *find_command(const char *name)
{
	for (int i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static int refuse_word(const char *word)
{
	const char *known[COMMAND_COUNT + 3];
	int count = 0;

	if (word[0] == '-') {
		known[count++] = "--help";
		known[count++] = "--version";
	} else {
		for (int i = 0; i < COMMAND_COUNT; i++)
			known[count++] = commands[i]->name;
	}
	known[count] = NULL;

	const char *what = word[0] == '-' ? "option" : "command";
	const char *nearest = cli_nearest(word, known);
	if (nearest)
		return cli_usage(NULL, "there is no %s '%s' (did you mean '%s'?)", what, word,
				 nearest);
	return cli_usage(NULL, "there is no %s '%s'", what, word);
}

/* If the caller has closed descriptor 0, 1 or 2, the next file that is opened would get that
 * number, and with it our messages. So these descriptors are opened first. */
static int open_standard_descriptors(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return CLI_FAILED;
		/* Without FD_CLOEXEC: programs that lockstep run starts inherit these three. */
		if (fd <= STDERR_FILENO && fcntl(fd, F_SETFD, 0) < 0)
			return CLI_FAILED;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return CLI_OK;
}

/* A command that could not write its output has failed, whatever its result. A reader that has gone
 * away did not want the rest. */
static int finish_output(int result)
{
	int error = fflush(stdout) == 0 ? 0 : errno;
	if (error == 0 && !ferror(stdout))
		return result;
	if (error == 0) { /* nobody kept the reason of the write that failed, so try once more */
		clearerr(stdout);
		error = fputc('\n', stdout) == '\n' && fflush(stdout) == 0 ? EIO : errno;
	}
	if (error != EPIPE)
		MESSAGE_SAY(MESSAGE_OUTPUT, strerror(error));
	return result == CLI_OK ? CLI_FAILED : result;
}

int main(int argc, char **argv)
{
	if (open_standard_descriptors() != CLI_OK)
		return CLI_FAILED;
	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}

	const char *word = argv[1];
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		print_help(stdout);
		return finish_output(CLI_OK);
	}
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		printf("lockstep %s\n", LOCKSTEP_VERSION);
		return finish_output(CLI_OK);
	}
	const struct cli_command *command = find_command(word);
	if (!command)
		return refuse_word(word);
	return finish_output(command->main(command, argc - 1, argv + 1));
}
