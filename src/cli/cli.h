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

/* Exit statuses, the same for all commands but `run`, which returns that of the failed rank. */
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
extern const struct cli_command cli_plan_command;
extern const struct cli_command cli_settings_command;
extern const struct cli_command cli_explain_command;
extern const struct cli_command cli_bench_command;
extern const struct cli_command cli_tune_command;

/* ---- usage.c ---- */

/* Prints the help of one command on standard output; returns CLI_OK. */
int cli_help(const struct cli_command *command);

/* Says what is wrong with the command line, and where to read more; returns CLI_USAGE. `command` may be
 * NULL: the program itself. */
int cli_usage(const struct cli_command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* getopt_long as all commands use it: options end at the first other argument, and errors are said with
 * the nearest option. Returns the option, 'h' after help was asked for, '?' after an error was said, -1
 * at the end. Start with optind = 1. */
int cli_option(const struct cli_command *command, int argc, char **argv, const char *letters,
	       const struct option *options);

/* Whole numbers, and numbers of bytes with K, M or G (powers of 1024). False for anything else. */
bool cli_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool cli_bytes(const char *text, uint64_t *out);
/* Seconds such as "2" or "0.5", to milliseconds; more than zero, at most a year. */
bool cli_seconds(const char *text, uint64_t *out_ms);

/* ---- text.c ---- */

/* The entry of `words` (ended by NULL) that `word` was probably meant to be, NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *words);

/* "rank 2", "ranks 0, 1, 3", "ranks 0-15, 18". */
void cli_ranks(uint64_t mask, char *out, size_t bytes);
/* The same without the word. */
void cli_rank_list(uint64_t mask, char *out, size_t bytes);

/* "4032 B", "64 KiB", "1.5 MiB". */
void cli_bytes_text(uint64_t value, char *out, size_t bytes);

/* "SIGKILL"; "signal 99" for a number that has no name. */
void cli_signal(int number, char *out, size_t bytes);

/* Appends to the NUL-terminated text in `out`, cut at the end. */
void cli_append(char *out, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The last part of a path, which is never empty unless the path is. */
const char *cli_base_name(const char *path);

/* Prints `text` with everything that may not be shown (base/text.h) replaced by '?', and each line after the
 * first indented by `indent`. For text that came out of another process' memory or a file. */
void cli_print_safely(FILE *out, const char *text, int indent);

/* Value of `name` in an environment, NULL if it is not there. */
const char *cli_variable(char *const *environment, const char *name);

/* ---- output.c ---- */

/* Opens `name` in `place` (AT_FDCWD) for writing, empty; -1 and *why. It is a regular file, and was reached by no
 * link that another user has made. exact: nor by any, symbolic or hard, and it is this user's; for names that
 * others can guess. */
int cli_create(int place, const char *name, bool exact, unsigned mode, const char **why);

/* ---- json.c: just enough to write one object ---- */

struct cli_json {
	FILE *out;
	bool comma; /* the next value needs a comma before it */
};

/* `key` is NULL inside an array. Strings may hold any bytes; what is no UTF-8 becomes U+FFFD, and what may not
 * be shown is escaped. */
void cli_json_open(struct cli_json *json, const char *key, char bracket);
void cli_json_close(struct cli_json *json, char bracket);
void cli_json_string(struct cli_json *json, const char *key, const char *value);
void cli_json_number(struct cli_json *json, const char *key, int64_t value);
void cli_json_unsigned(struct cli_json *json, const char *key, uint64_t value);
/* Six significant digits. */
void cli_json_real(struct cli_json *json, const char *key, double value);
void cli_json_bool(struct cli_json *json, const char *key, bool value);
void cli_json_null(struct cli_json *json, const char *key);
/* The numbers of the bits that are set, as an array. */
void cli_json_mask(struct cli_json *json, const char *key, uint64_t mask);

#endif
