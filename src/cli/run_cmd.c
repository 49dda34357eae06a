/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep run: the options of the launcher. */
#include "base/ranks.h"
#include "cli/cli.h"
#include "launcher/launcher.h"

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},   {"timeout", required_argument, NULL, 't'},
	{"log-dir", required_argument, NULL, 'l'}, {"no-prefix", no_argument, NULL, 'p'},
	{"phases", no_argument, NULL, 'P'},        {"trace", required_argument, NULL, 'T'},
	{"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit status. */
static int parse(const struct cli_command *self, int argc, char **argv, struct launcher_options *out)
{
	uint64_t ranks = 0;
	int option;

	*out = (struct launcher_options){.prefix = true};
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
			return CLI_USAGE;
		}
	}
	if (optind >= argc)
		return cli_usage(self, "which program?");
	if (ranks == 0)
		return cli_usage(self, "how many ranks? say -n NUMBER before the program");
	out->ranks = (int)ranks;
	out->command = argv + optind;
	return -1;
}

static int run_main(const struct cli_command *self, int argc, char **argv)
{
	struct launcher_options wanted;

	int early = parse(self, argc, argv, &wanted);
	return early >= 0 ? early : launcher_run(&wanted);
}

const struct cli_command cli_run_command = {
	.name = "run",
	.arguments = "-n N [OPTIONS] [--] PROGRAM [ARGUMENTS…]",
	.summary = "starts N ranks of a program on this machine",
	.help = "Starts N processes of PROGRAM as the ranks of one job. Prints every line that they write\n"
		"with the rank in front; standard input goes to rank 0. When a rank fails, the others\n"
		"have 3 seconds to report and to exit; then they are ended with SIGTERM, and 2 seconds\n"
		"later with SIGKILL. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the ranks; a\n"
		"second INT kills them.\n"
		"\n"
		"options:\n"
		"  -n, --ranks N    number of ranks, 1 to 64\n"
		"  --timeout S      ends the job after S seconds, with exit status 124\n"
		"  --log-dir DIR    also writes rank output to DIR/rank-N.out and DIR/rank-N.err\n"
		"  --no-prefix      prints lines without the rank\n"
		"  --phases         reports at the end where the time of each rank went, and which ranks\n"
		"                   made the others wait, if the program marks phases (ls_phase(3))\n"
		"  --trace FILE     writes the flight recorders of all ranks to FILE at the end;\n"
		"                   lockstep trace FILE draws them\n"
		"  -h, --help       this text\n"
		"\n"
		"Ranks find in their environment RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
		"GROUP_RANK, MASTER_ADDR, MASTER_PORT and the other variables that torchrun sets, and\n"
		"LOCKSTEP_RENDEZVOUS, the address at which they find each other.\n"
		"\n"
		"exit status: 0 if all ranks returned 0, else that of the rank that failed first (128 +\n"
		"the signal that ended it); 124 after --timeout; 126 if PROGRAM cannot be run, 127 if\n"
		"there is none; 2 for a wrong command line; 1 if the job could not be started, or if a\n"
		"rank detected an error only when it closed a group.\n"
		"\n"
		"After a failure the state of all ranks is kept in DIR or $TMPDIR or /tmp, for\n"
		"lockstep diagnose FILE.\n",
	.main = run_main,
};
