/* SPDX-License-Identifier: BSD-3-Clause
 * Notices a host whose daemon is silent: the daemon is stopped, or host or network are down, and
 * ssh has not noticed. The launcher pings each daemon; anything that comes is an answer. A silent
 * host is first reported, and then given up. Only time in which the launcher has listened counts,
 * so that a launcher that was stopped itself accuses nobody. */
#include "launcher/daemons.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/messages.h"

enum {
	PING_MS = 500,
	LISTENED_MS = 2 * PING_MS, /* the most that counts between two looks */
	REPORT_MS = 2000,
};

/* Whether news of a rank may come from there. */
static bool is_watched(const struct launcher_job *job, const struct launcher_host *host)
{
	if (host->state != LAUNCHER_HOST_RUNS || host->channel.ended)
		return false;
	for (int rank = host->first; rank < host->first + host->count; rank++)
		if (!job->ranks[rank].ended)
			return true;
	return false;
}

/* To start the ranks a daemon may need long, if the program is on a slow file system; it answers no
 * ping meanwhile. */
static uint64_t limit_ms(const struct launcher_job *job, const struct launcher_host *host)
{
	uint64_t limit = job->settings.unreachable_ms;

	return host->has_started || limit > LAUNCHER_HOST_START_MS ? limit : LAUNCHER_HOST_START_MS;
}

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void hear(struct launcher_host *host)
{
	char ranks[32];

	host->received = host->channel.received;
	if (host->is_silent) {
		launcher_host_ranks_text(host, ranks, sizeof ranks);
		MESSAGE_SAY(MESSAGE_RUN_HOST_HEARD, host->name, ranks, seconds(host->silent_ns));
	}
	host->is_pinged = host->is_silent = false;
	host->silent_ns = 0;
}

static void miss(struct launcher_job *job, struct launcher_host *host, uint64_t passed_ns)
{
	uint64_t limit = limit_ms(job, host);
	uint64_t report = limit / 2 < REPORT_MS ? limit / 2 : REPORT_MS;
	char ranks[32];

	host->silent_ns += passed_ns;
	launcher_host_ranks_text(host, ranks, sizeof ranks);
	if (host->silent_ns >= limit * 1000000) {
		MESSAGE_SAY(MESSAGE_RUN_HOST_GIVEN_UP, host->name, ranks, seconds(host->silent_ns));
		launcher_host_give_up(job, host);
	} else if (host->silent_ns >= report * 1000000 && !host->is_silent) {
		host->is_silent = true;
		MESSAGE_SAY(MESSAGE_RUN_HOST_SILENT, host->name, ranks, seconds(host->silent_ns),
			    (double)limit / 1e3);
	}
}

uint64_t launcher_hosts_deadline(const struct launcher_job *job)
{
	for (int i = 0; job->hosts && i < job->hosts->count; i++)
		if (is_watched(job, &job->hosts->hosts[i]))
			return job->hosts->ping_ns;
	return CLOCK_NEVER;
}

void launcher_hosts_watch(struct launcher_job *job, uint64_t now_ns)
{
	struct launcher_hosts *hosts = job->hosts;

	if (!hosts)
		return;
	uint64_t passed_ns = hosts->watched_ns ? now_ns - hosts->watched_ns : 0;
	if (passed_ns > LISTENED_MS * UINT64_C(1000000))
		passed_ns = LISTENED_MS * UINT64_C(1000000);
	hosts->watched_ns = now_ns;
	bool pings = now_ns >= hosts->ping_ns;
	if (pings)
		hosts->ping_ns = now_ns + PING_MS * UINT64_C(1000000);
	for (int i = 0; i < hosts->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		if (!is_watched(job, host))
			continue;
		if (host->received != host->channel.received)
			hear(host);
		else if (host->is_pinged)
			miss(job, host, passed_ns);
		if (pings && !host->is_pinged && is_watched(job, host)) {
			host->is_pinged = true;
			launcher_channel_send(&host->channel, CHANNEL_PING, NULL, 0, NULL, 0);
			launcher_channel_flush(&host->channel);
		}
	}
}
