/* SPDX-License-Identifier: BSD-3-Clause
 * What is left of a job on several hosts: has each host copy the state of its ranks when something
 * goes wrong, and at the end fetches it, with the traces, and makes one report. */
#include "launcher/daemons.h"

#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"
#include "inspect/host_part.h"

enum { GATHER_MS = 20000 };

static void send_all(struct launcher_job *job, enum channel_type type, const void *head,
		     size_t bytes)
{
	for (int i = 0; i < job->hosts->count; i++) {
		struct launcher_host *host = &job->hosts->hosts[i];
		if (host->state != LAUNCHER_HOST_RUNS)
			continue;
		launcher_channel_send(&host->channel, type, head, bytes, NULL, 0);
		launcher_channel_flush(&host->channel);
	}
}

void launcher_hosts_copy(struct launcher_job *job, bool last)
{
	struct channel_copy copy = {.last = last};

	send_all(job, CHANNEL_COPY, &copy, sizeof copy);
}

void launcher_hosts_forget(struct launcher_job *job)
{
	send_all(job, CHANNEL_FORGET, NULL, 0);
}

/* ---- fetching ---- */

static bool is_awaited(const struct launcher_host *host)
{
	return host->state == LAUNCHER_HOST_RUNS && !host->channel.ended && !host->has_told;
}

static void await_parts(struct launcher_job *job, uint64_t deadline_ns)
{
	struct launcher_poll set;
	struct signalfd_siginfo info;

	for (;;) {
		bool waits = false;
		for (int i = 0; i < job->hosts->count; i++)
			waits |= is_awaited(&job->hosts->hosts[i]);
		if (!waits)
			return;
		set.count = 1;
		set.fds[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
		launcher_hosts_poll(job, &set);
		ls_status status = wait_fds(NULL, set.fds, set.count, -1, deadline_ns);
		if (status == LS_INTERRUPTED)
			continue;
		if (status != LS_OK)
			return;
		/* A user who interrupts now does not want to wait for a report. */
		while (set.fds[0].revents &&
		       read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
			if (info.ssi_signo == SIGTSTP)
				raise(SIGSTOP);
			else if (info.ssi_signo != SIGCONT && info.ssi_signo != SIGUSR1 &&
				 info.ssi_signo != SIGUSR2)
				return;
		}
		launcher_hosts_step(job, &set);
	}
}

static struct inspect_report *join_parts(const struct launcher_job *job, uint64_t waited_ms)
{
	struct inspect_part parts[RANKS_HOSTS_MAX];

	for (int i = 0; i < job->hosts->count; i++) {
		const struct launcher_host *host = &job->hosts->hosts[i];
		size_t bytes = host->has_told ? host->part.end - host->part.start : 0;
		parts[i] = (struct inspect_part){
			.host = host->name,
			.first = host->first,
			.ranks = host->count,
			.block = bytes > 0 ? host->part.data + host->part.start : NULL,
			.bytes = bytes,
			.offset_ns = host->offset_ns,
			.error_ns = host->error_ns,
		};
	}
	return inspect_parts_join(parts, job->hosts->count, job->count, waited_ms);
}

void launcher_hosts_gather(struct launcher_job *job)
{
	uint64_t begin_ns = clock_now_ns();

	launcher_hosts_end_input(job->hosts);
	for (int i = 0; i < job->hosts->count; i++)
		job->hosts->hosts[i].asked_ns = clock_now_ns();
	send_all(job, CHANNEL_ASK, NULL, 0);
	await_parts(job, clock_deadline_ns(GATHER_MS));
	for (int i = 0; i < job->hosts->count; i++)
		if (is_awaited(&job->hosts->hosts[i]))
			MESSAGE_SAY(MESSAGE_RUN_HOST, job->hosts->hosts[i].name,
				    "has not told in time what its ranks did");
	job->report = join_parts(job, (clock_now_ns() - begin_ns) / 1000000);
	for (int q = 0; job->report && q < job->count; q++)
		if (!job->report->snapshot->ranks[q].known)
			job->report->snapshot->ranks[q].pid = job->ranks[q].remote_pid;
	for (int i = 0; i < job->hosts->count; i++) {
		free(job->hosts->hosts[i].part.data);
		job->hosts->hosts[i].part = (struct channel_queue){0};
	}
}
