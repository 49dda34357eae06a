/* SPDX-License-Identifier: BSD-3-Clause
 * The program `lockstep`: its commands, and the few things they share. Every command is a function
 * main() calls with its own argv; argv[0] is the command's name. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Exit statuses, the same for all commands but `run`, which returns the status of the failed
 * rank. */
enum {
	CLI_OK = 0,
	CLI_FAILED = 1, /* the command itself failed; of diagnose: there is a verdict */
	CLI_USAGE = 2,
	CLI_NOTHING = 3, /* diagnose: no such job */
};

struct cli_command {
	const char *name;
	const char *arguments; /* as in the usage line */
	const char *summary;   /* one line of `lockstep --help` */
	const char *help;      /* the rest of `lockstep NAME --help` */
	int (*main)(const struct cli_command *self, int argc, char **argv);
};

extern const struct cli_command cli_run_command;
extern const struct cli_command cli_diagnose_command;
extern const struct cli_command cli_trace_command;
extern const struct cli_command cli_memory_command;
extern const struct cli_command cli_plan_command;
extern const struct cli_command cli_settings_command;
extern const struct cli_command cli_explain_command;
extern const struct cli_command cli_bench_command;
extern const struct cli_command cli_tune_command;

/* ---- usage.c ---- */

/* Prints the help of one command on standard output; returns CLI_OK. */
int cli_help(const struct cli_command *command);

/* Says what is wrong with the command line, and where to read more; returns CLI_USAGE. `command`
 * may be NULL: the program itself. */
int cli_usage(const struct cli_command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* getopt_long as all commands use it: options end at the first other argument, and errors are said
 * with the nearest option. Returns the option, 'h' after help was asked for, '?' after an error was
 * said, -1 at the end. Start with optind = 1. */
int cli_option(const struct cli_command *command, int argc, char **argv, const char *letters,
	       const struct option *options);

/* Whole numbers, and numbers of bytes with K, M or G (powers of 1024). False for anything else. */
bool cli_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool cli_bytes(const char *text, uint64_t *out);
/* How many processors this process may use; 2 if the kernel does not say. */
int cli_processors(void);
/* A decimal number such as "2", "0.5" or "1e-3", without a sign. */
bool cli_decimal(const char *text, double *out);
/* Seconds such as "2" or "0.5", to milliseconds; more than zero, at most a year. */
bool cli_seconds(const char *text, uint64_t *out_ms);

/* Reads the settings, and lets messages of LOCKSTEP_LOG through from now on. Also says which
 * variables are no settings. False after a message: a value cannot be used. */
struct settings;
bool cli_settings(struct settings *out);

/* What a word on the command line stands for: 16 hexadecimal digits are a job, up to 9 decimal ones
 * a process, anything else a file. */
struct cli_named {
	uint64_t job; /* 0: the word is no job */
	pid_t pid;    /* 0: the word is no process */
	bool file;
	char what[32]; /* as messages call it: "process 123"; "" for a file */
};
struct cli_named cli_named(const char *word);

/* ---- one_job.c ---- */

struct inspect_jobs;

/* Finds the job that was named, or the only one there is. Returns CLI_OK, and *out has that one
 * job, which the caller frees; after a message another exit status. */
int cli_find_job(const struct cli_command *self, const struct cli_named *named,
		 struct inspect_jobs *out);
/* Calls draw with the file at `path`, made or emptied, or with standard output (NULL and "-").
 * Returns CLI_OK; CLI_FAILED after a message. */
int cli_draw(const char *path, void (*draw)(const void *what, FILE *out), const void *what);

/* ---- nearest.c ---- */

/* The entry of `words` (ended by NULL) that `word` was probably meant to be, NULL if none is
 * near. */
const char *cli_nearest(const char *word, const char *const *words);

#endif
