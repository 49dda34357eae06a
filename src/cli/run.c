/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep run: starts the ranks of a job, serves their rendezvous, passes on what they write and the
 * signals they are sent, and ends what is left when one of them fails. */
#include "cli/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "cli/cli.h"

struct choices {
	uint64_t ranks;
	uint64_t timeout_ms; /* 0: none */
	const char *log_dir;
	const char *trace;
	bool prefix;
	bool phases;
	char *const *command;
};

static const struct option options[] = {
	{"ranks", required_argument, NULL, 'n'},   {"timeout", required_argument, NULL, 't'},
	{"log-dir", required_argument, NULL, 'l'}, {"no-prefix", no_argument, NULL, 'p'},
	{"phases", no_argument, NULL, 'P'},        {"trace", required_argument, NULL, 'T'},
	{"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit status. */
static int parse(const struct cli_command *self, int argc, char **argv, struct choices *out)
{
	int option;

	*out = (struct choices){.prefix = true};
	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:n:h", options)) != -1) {
		switch (option) {
		case 'n':
			if (!cli_number(optarg, 1, RUN_RANK_MAX, &out->ranks))
				return cli_usage(self,
						 "-n needs a number of ranks from 1 to %d, not '%s'",
						 RUN_RANK_MAX, optarg);
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
			out->trace = optarg;
			break;
		case 'h':
			return CLI_OK;
		default:
			return CLI_USAGE;
		}
	}
	if (optind >= argc)
		return cli_usage(self, "which program?");
	if (out->ranks == 0)
		return cli_usage(self, "how many ranks? say -n NUMBER before the program");
	out->command = argv + optind;
	return -1;
}

/* Every signal that the loop hears is blocked, and so are ranks until their program begins. */
static ls_status take_signals(struct run_job *job)
{
	static const int heard[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
	};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof heard / sizeof heard[0]; i++)
		sigaddset(&set, heard[i]);
	if (sigprocmask(SIG_BLOCK, &set, &job->start.mask) == 0 &&
	    sigaction(SIGPIPE, &ignore, &job->start.broken_pipe) == 0) {
		job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
		if (job->signal_fd >= 0)
			return LS_OK;
	}
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "signalfd", strerror(errno));
	return LS_SYSTEM;
}

static ls_status open_rendezvous(struct run_job *job)
{
	struct rendezvous_place place = {.serve = true, .rank = -1, .world_size = job->count};

	/* Ranks bring their own deadlines: a program may work for an hour before it wants to meet. */
	ls_status status = cli_start_init(&job->start);
	if (status != LS_OK)
		return status;
	memcpy(place.address, job->start.rendezvous, sizeof place.address);
	return rendezvous_server_open(&place, CLOCK_NEVER, &job->server);
}

static ls_status start_ranks(struct run_job *job, int *exit_status)
{
	int input;

	ls_status status = cli_input_init(&job->input, &input);
	for (int rank = 0; status == LS_OK && rank < job->count; rank++) {
		status = cli_child_start(&job->start, rank, rank == 0 ? input : -1,
					 &job->ranks[rank], job->output.streams[rank], exit_status);
		if (status == LS_OK)
			job->started++;
		if (rank == 0 && input > STDERR_FILENO)
			close(input);
	}
	return status;
}

/* What ranks have left behind in their groups ends before their leaders are buried: until then the
 * groups' numbers cannot belong to anybody else. */
static void bury(struct run_job *job)
{
	for (int rank = 0; rank < job->started; rank++)
		kill(-job->ranks[rank].pid, SIGKILL);
	cli_guard_stop(&job->guard);
	for (int rank = 0; rank < job->started; rank++) {
		waitpid(job->ranks[rank].pid, NULL, WNOHANG);
		close(job->ranks[rank].pidfd);
	}
}

static ls_status prepare(struct run_job *job, const struct choices *choices)
{
	ls_status status = take_signals(job);
	if (status == LS_OK)
		status = cli_output_init(&job->output, &job->settings, job->count, choices->prefix,
					 choices->log_dir);
	if (status == LS_OK)
		status = cli_end_prepare(job);
	if (status == LS_OK)
		status = open_rendezvous(job);
	if (status == LS_OK)
		status = cli_guard_start(&job->guard);
	job->start.guard_fd = job->guard.fd;
	return status;
}

static int run(struct run_job *job, const struct choices *choices)
{
	int exit_status = CLI_FAILED;
	int cannot_start = 0;

	if (prepare(job, choices) != LS_OK)
		return CLI_FAILED;
	ls_status started = start_ranks(job, &cannot_start);
	if (started != LS_OK)
		cli_loop_kill(job);
	else if (job->timeout_ms > 0)
		job->timeout_ns = clock_deadline_ns(job->timeout_ms);
	ls_status ended = cli_loop(job);
	if (started == LS_OK && ended == LS_OK)
		exit_status = cli_end_report(job);
	else if (cannot_start != 0)
		exit_status = cannot_start;
	return exit_status;
}

static struct run_job *job_new(const struct choices *choices)
{
	struct run_job *job = calloc(1, sizeof *job);

	if (!job)
		return NULL;
	job->count = (int)choices->ranks;
	job->first = -1;
	job->timeout_ms = choices->timeout_ms;
	job->timeout_ns = job->phase_end_ns = job->look_ns = CLOCK_NEVER;
	job->signal_fd = job->guard.fd = job->trace_fd = -1;
	job->input.fd = job->input.out = -1;
	job->log_dir = choices->log_dir;
	job->phases = choices->phases;
	job->trace_path = choices->trace;
	job->start.command = choices->command;
	job->start.ranks = job->count;
	return job;
}

static void job_free(struct run_job *job)
{
	bury(job);
	cli_input_fini(&job->input);
	cli_output_fini(&job->output);
	inspect_report_free(job->report);
	inspect_view_free(job->view);
	rendezvous_server_close(job->server);
	if (job->signal_fd >= 0)
		close(job->signal_fd);
	if (job->trace_fd >= 0)
		close(job->trace_fd);
	free(job);
}

static int run_main(const struct cli_command *self, int argc, char **argv)
{
	struct choices choices;

	int early = parse(self, argc, argv, &choices);
	if (early >= 0)
		return early;
	struct run_job *job = job_new(&choices);
	if (!job) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
		return CLI_FAILED;
	}
	int status = CLI_FAILED;
	if (settings_read(NULL, &job->settings) == LS_OK) {
		message_set_level((enum setting_log)job->settings.log);
		status = run(job, &choices);
	}
	job_free(job);
	return status;
}

const struct cli_command cli_run_command = {
	.name = "run",
	.arguments = "-n N [OPTIONS] [--] PROGRAM [ARGUMENTS…]",
	.summary = "starts N ranks of a program on this machine",
	.help = "Starts N processes of PROGRAM, which meet as the ranks of one job. Every line that they\n"
		"write gets the rank in front; standard input goes to rank 0. When a rank fails, the\n"
		"others have 3 seconds to report and to end; then they are ended with SIGTERM, and 2\n"
		"seconds later with SIGKILL. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the\n"
		"ranks; a second INT kills them.\n"
		"\n"
		"options:\n"
		"  -n, --ranks N    how many ranks, 1 to 64\n"
		"  --timeout S      ends the job after S seconds, with exit status 124\n"
		"  --log-dir DIR    also writes what ranks write to DIR/rank-N.out and DIR/rank-N.err\n"
		"  --no-prefix      passes lines on without the rank\n"
		"  --phases         at the end says what each rank spent its time on, and who kept the\n"
		"                   others waiting, if the program marks the phases of its steps\n"
		"  --trace FILE     at the end keeps in FILE what each rank has recorded, for lockstep\n"
		"                   trace FILE, which draws it\n"
		"  -h, --help       this text\n"
		"\n"
		"Ranks find in their environment RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
		"GROUP_RANK, MASTER_ADDR, MASTER_PORT and the other variables that torchrun sets, and\n"
		"LOCKSTEP_RENDEZVOUS, where they meet.\n"
		"\n"
		"exit status: 0 if all ranks returned 0, else that of the rank that failed first (128 +\n"
		"the signal that ended it); 124 after --timeout; 126 if PROGRAM cannot be run, 127 if\n"
		"there is none; 2 for a wrong command line; 1 if the job could not be started, or if a\n"
		"rank found only when it closed a group that something had gone wrong in it.\n"
		"\n"
		"After a failure the state of all ranks is kept in DIR or $TMPDIR or /tmp, for\n"
		"lockstep diagnose FILE.\n",
	.main = run_main,
};
