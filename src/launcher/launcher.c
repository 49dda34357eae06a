/* SPDX-License-Identifier: BSD-3-Clause
 * Starts the ranks of a job, serves their rendezvous, passes on what they write and the
 * signals they are sent, and ends what is left when one of them fails. */
#include "launcher/launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "launcher/launcher_private.h"

/* Blocks every signal that the loop hears; also in ranks until their program begins. A signal that
 * the caller had set to be ignored, as nohup does, is not heard: blocking alone would queue it. */
static ls_status take_signals(struct launcher_job *job)
{
	static const int heard[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
	};
	struct sigaction was;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof heard / sizeof heard[0]; i++)
		if (sigaction(heard[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
			sigaddset(&set, heard[i]);
	if (sigprocmask(SIG_BLOCK, &set, &job->start.mask) == 0 &&
	    launcher_start_signals(&job->start)) {
		job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
		if (job->signal_fd >= 0)
			return LS_OK;
	}
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "signalfd", OPEN_LIMIT_TEXT(errno));
	return LS_SYSTEM;
}

static ls_status open_rendezvous(struct launcher_job *job)
{
	struct rendezvous_place place = {.serve = true, .rank = -1, .world_size = job->count};

	/* Ranks bring their own deadlines: a program may work for an hour before it wants to
	 * meet. */
	ls_status status = launcher_start_init(&job->start);
	if (status != LS_OK)
		return status;
	memcpy(place.address, job->start.rendezvous, sizeof place.address);
	return rendezvous_server_open(&place, CLOCK_NEVER, &job->server);
}

static ls_status start_ranks(struct launcher_job *job, int *exit_status)
{
	int input;

	ls_status status = launcher_input_init(&job->input, &input);
	for (int rank = 0; status == LS_OK && rank < job->count; rank++) {
		status = launcher_child_start(&job->start, rank, rank == 0 ? input : -1,
					      &job->ranks[rank], job->output.streams[rank],
					      exit_status);
		if (status == LS_OK)
			job->started++;
		if (rank == 0 && input > STDERR_FILENO)
			close(input);
	}
	return status;
}

static ls_status prepare_job(struct launcher_job *job, const struct launcher_options *options)
{
	ls_status status = launcher_start_stack(&job->start);
	if (status == LS_OK)
		status = take_signals(job);
	if (status == LS_OK)
		status = launcher_output_init(&job->output, &job->settings, job->count,
					      options->prefix, options->log_dir);
	if (status == LS_OK)
		status = launcher_end_prepare(job);
	if (status != LS_OK || options->hosts)
		return status;
	status = open_rendezvous(job);
	if (status == LS_OK)
		status = launcher_guard_start(&job->guard);
	job->start.guard_fd = job->guard.fd;
	return status;
}

static int run_job(struct launcher_job *job, const struct launcher_options *options)
{
	int exit_status = LAUNCHER_FAILED;
	int cannot_start = 0;

	if (prepare_job(job, options) != LS_OK)
		return LAUNCHER_FAILED;
	ls_status started = options->hosts ? launcher_hosts_start(job, options, &cannot_start)
					   : start_ranks(job, &cannot_start);
	if (started != LS_OK && options->hosts)
		return cannot_start;
	if (started != LS_OK)
		launcher_loop_kill(job);
	else if (job->timeout_ms > 0)
		job->timeout_ns = clock_deadline_ns(job->timeout_ms);
	ls_status ended = launcher_loop(job);
	if (started == LS_OK && ended == LS_OK)
		exit_status = launcher_end_report(job);
	else if (cannot_start != 0)
		exit_status = cannot_start;
	return exit_status;
}

static struct launcher_job *job_new(const struct launcher_options *options)
{
	struct launcher_job *job = calloc(1, sizeof *job);

	if (!job)
		return NULL;
	job->count = options->hosts ? options->hosts->ranks : options->ranks;
	job->first = -1;
	job->timeout_ms = options->timeout_ms;
	job->timeout_ns = job->ending_until_ns = job->look_ns = job->signal_end_ns = CLOCK_NEVER;
	job->signal_fd = job->guard.fd = job->trace_fd = -1;
	job->input.fd = job->input.out = -1;
	job->log_dir = options->log_dir;
	job->phases = options->phases;
	job->trace_path = options->trace_path;
	job->start.command = options->command;
	job->start.ranks = job->start.size = job->count;
	job->start.hosts = 1;
	job->start.secret_fd = job->start.notes_fd = -1;
	return job;
}

static void job_free(struct launcher_job *job)
{
	/* Only the daemons signal ranks on several hosts. */
	if (!job->hosts)
		launcher_bury(job->ranks, job->started, &job->guard);
	launcher_hosts_free(job->hosts);
	launcher_input_fini(&job->input);
	launcher_output_fini(&job->output);
	inspect_report_free(job->report);
	inspect_view_free(job->view);
	rendezvous_server_close(job->server);
	if (job->signal_fd >= 0)
		close(job->signal_fd);
	if (job->trace_fd >= 0)
		close(job->trace_fd);
	if (job->start.notes_fd >= 0)
		close(job->start.notes_fd);
	free(job);
}

int launcher_run(const struct launcher_options *options)
{
	struct launcher_job *job = job_new(options);

	if (!job) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
		return LAUNCHER_FAILED;
	}
	int status = LAUNCHER_FAILED;
	if (settings_read(NULL, &job->settings) == LS_OK) {
		message_set_level((enum setting_log)job->settings.log);
		status = run_job(job, options);
	}
	job_free(job);
	return status;
}
