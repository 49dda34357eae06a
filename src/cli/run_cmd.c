/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep run: the options of the launcher. */
#include <string.h>

#include "base/ranks.h"
#include "cli/cli.h"
#include "launcher/launcher.h"

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},    {"timeout", required_argument, NULL, 't'},
	{"log-dir", required_argument, NULL, 'l'},  {"no-prefix", no_argument, NULL, 'p'},
	{"phases", no_argument, NULL, 'P'},         {"trace", required_argument, NULL, 'T'},
	{"hosts", required_argument, NULL, 'H'},    {"ssh", required_argument, NULL, 's'},
	{"lockstep", required_argument, NULL, 'L'}, {"env", required_argument, NULL, 'e'},
	{"daemon", no_argument, NULL, 'D'},         {"daemon-check", no_argument, NULL, 'C'},
	{"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
};

enum { VARIABLES_MAX = 32 };

/* The options, and the storage into which they point. */
struct wanted {
	struct launcher_options options;
	struct launcher_list hosts;
	const char *variables[VARIABLES_MAX + 1];
	int variable_count;
	bool is_daemon, is_check;
};

/* Returns -1 to go on, otherwise the exit status. */
static int take_hosts(const struct cli_command *self, const char *text, struct wanted *out)
{
	char why[256];

	if (!launcher_list_parse(text, &out->hosts, why))
		return cli_usage(self, "--hosts: %s", why);
	out->options.hosts = &out->hosts;
	return -1;
}

static int take_variable(const struct cli_command *self, const char *name, struct wanted *out)
{
	if (name[0] == '\0' || strchr(name, '='))
		return cli_usage(self, "--env needs the name of a variable, not '%s'", name);
	if (out->variable_count == VARIABLES_MAX)
		return cli_usage(self, "--env can be given %d times", VARIABLES_MAX);
	out->variables[out->variable_count++] = name;
	out->options.variables = out->variables;
	return -1;
}

/* Takes the options of a job on several hosts. Returns -1 to go on, otherwise the exit status. */
static int take_remote(const struct cli_command *self, int option, struct wanted *out)
{
	switch (option) {
	case 'H':
		return take_hosts(self, optarg, out);
	case 's':
		out->options.ssh = optarg;
		break;
	case 'L':
		out->options.lockstep = optarg;
		break;
	case 'e':
		return take_variable(self, optarg, out);
	case 'D':
		out->is_daemon = true;
		break;
	case 'C':
		out->is_check = true;
		break;
	default:
		return CLI_USAGE;
	}
	return -1;
}

/* Returns -1 if the options fit each other, otherwise the exit status. */
static int check_wanted(const struct cli_command *self, const struct wanted *wanted, uint64_t ranks)
{
	const struct launcher_options *asked = &wanted->options;

	if (!asked->hosts && (asked->ssh || asked->lockstep || asked->variables))
		return cli_usage(self, "--ssh, --lockstep and --env go with --hosts");
	if (!asked->hosts && ranks == 0)
		return cli_usage(self, "how many ranks? say -n NUMBER before the program");
	if (asked->hosts && ranks != 0)
		return cli_usage(self, "-n is for one host; with --hosts say HOST:RANKS,HOST:RANKS");
	return -1;
}

/* Returns -1 to go on, otherwise the exit status. */
static int parse_options(const struct cli_command *self, int argc, char **argv,
			 struct wanted *wanted)
{
	struct launcher_options *out = &wanted->options;
	uint64_t ranks = 0;
	int option, early;

	*wanted = (struct wanted){.options = {.prefix = true}};
	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:n:h", options)) != -1) {
		switch (option) {
		case 'n':
			if (!cli_number(optarg, 1, RANKS_HOST_MAX, &ranks))
				return cli_usage(self,
						 "-n needs a number of ranks from 1 to %d, not '%s'",
						 RANKS_HOST_MAX, optarg);
			break;
		case 't':
			if (!cli_seconds(optarg, &out->timeout_ms))
				return cli_usage(self,
						 "--timeout needs a number of seconds, not '%s'",
						 optarg);
			break;
		case 'l':
			out->log_dir = optarg;
			break;
		case 'p':
			out->prefix = false;
			break;
		case 'P':
			out->phases = true;
			break;
		case 'T':
			out->trace_path = optarg;
			break;
		case 'h':
			return CLI_OK;
		default:
			early = take_remote(self, option, wanted);
			if (early >= 0)
				return early;
		}
	}
	if (wanted->is_daemon || wanted->is_check)
		return -1;
	if (optind >= argc)
		return cli_usage(self, "which program?");
	early = check_wanted(self, wanted, ranks);
	if (early >= 0)
		return early;
	out->ranks = (int)ranks;
	out->command = argv + optind;
	return -1;
}

static int run_main(const struct cli_command *self, int argc, char **argv)
{
	struct wanted wanted;

	int early = parse_options(self, argc, argv, &wanted);
	if (early >= 0)
		return early;
	if (wanted.is_check)
		return launcher_daemon_check();
	return wanted.is_daemon ? launcher_daemon_run() : launcher_run(&wanted.options);
}

const struct cli_command cli_run_command = {
	.name = "run",
	.arguments = "(-n N | --hosts LIST) [OPTIONS] [--] PROGRAM [ARGUMENTS…]",
	.summary = "starts N ranks of a program, on this machine or on several",
	.help = "Starts N processes of PROGRAM as the ranks of one job. Prints every line that they write\n"
		"with the rank in front; standard input goes to rank 0. When a rank fails, the others\n"
		"have 3 seconds to report and to exit; then they are ended with SIGTERM, and 2 seconds\n"
		"later with SIGKILL. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the ranks; a\n"
		"second INT kills them.\n"
		"\n"
		"options:\n"
		"  -n, --ranks N    number of ranks, 1 to 64\n"
		"  --hosts LIST     HOST:RANKS,HOST:RANKS...: the ranks of each host; reaches the hosts\n"
		"                   by ssh, and is one of them if it is in the list\n"
		"  --ssh COMMAND    how to call ssh, such as \"ssh -p 2222\"\n"
		"  --lockstep PATH  where lockstep is on the other hosts; default: its path here\n"
		"  --env NAME       ranks on other hosts get this variable, too; may be repeated\n"
		"  --timeout S      ends the job after S seconds, with exit status 124\n"
		"  --log-dir DIR    also writes rank output to DIR/rank-N.out and DIR/rank-N.err\n"
		"  --no-prefix      prints what ranks write unchanged, without the rank\n"
		"  --phases         reports at the end where the time of each rank went, and which ranks\n"
		"                   made the others wait, if the program marks phases (ls_phase(3))\n"
		"  --trace FILE     writes the flight recorders of all ranks to FILE at the end;\n"
		"                   lockstep trace FILE draws them\n"
		"  -h, --help       this text\n"
		"\n"
		"Ranks find in their environment RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
		"GROUP_RANK, MASTER_ADDR, MASTER_PORT and the other variables that torchrun sets, and\n"
		"LOCKSTEP_RENDEZVOUS, the address at which they find each other. As under torchrun,\n"
		"OMP_NUM_THREADS is 1 if it is not set and a host has more than one rank.\n"
		"\n"
		"exit status: 0 if all ranks returned 0, else that of the rank that failed first (128 +\n"
		"the signal that ended it); 124 after --timeout; 126 if PROGRAM cannot be run, 127 if\n"
		"there is none; 2 for a wrong command line; 1 if the job could not be started, if a rank\n"
		"detected an error only when it closed a group, or if output, logs or traces could not\n"
		"be written.\n"
		"\n"
		"On other hosts ranks have the launcher's working directory, and of its environment PATH,\n"
		"LD_LIBRARY_PATH, OMP_NUM_THREADS, LOCKSTEP_*, UCX_*, PYTHON* and what --env names.\n"
		"lockstep run --daemon is what runs on each host.\n"
		"\n"
		"After a failure the state of all ranks is kept in DIR or $TMPDIR or /tmp, for\n"
		"lockstep diagnose FILE.\n",
	.main = run_main,
};
