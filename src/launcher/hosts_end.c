/* SPDX-License-Identifier: BSD-3-Clause
 * How a job on several hosts ends: tells all daemons, waits for them, and frees what is left. */
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/daemons.h"

static void release_host(struct launcher_host *host)
{
	if (host->pid > 0) {
		kill(-host->pid, SIGKILL); /* not reaped: no other process has the number */
		launcher_host_await(host, 1000);
		waitpid(host->pid, NULL, WNOHANG);
		close(host->pidfd);
	}
	if (host->channel.in >= 0)
		close(host->channel.in);
	if (host->words_fd >= 0)
		close(host->words_fd);
	launcher_channel_fini(&host->channel);
	free(host->notes.data);
	free(host->part.data);
	free(host->stream.line);
}

void launcher_hosts_free(struct launcher_hosts *hosts)
{
	if (!hosts)
		return;
	launcher_hosts_end_input(hosts);
	for (int i = 0; i < hosts->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		/* Without a daemon nobody reads a frame, and ssh may try for a long time. */
		if (host->state == LAUNCHER_HOST_STARTED || host->pid == 0)
			continue;
		launcher_channel_send(&host->channel, CHANNEL_END, NULL, 0, NULL, 0);
		launcher_channel_flush(&host->channel);
	}
	uint64_t deadline_ns = clock_deadline_ns(LAUNCHER_HOST_END_MS);
	for (int i = 0; i < hosts->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		uint64_t now_ns = clock_now_ns();
		if (host->state == LAUNCHER_HOST_STARTED || host->pid == 0 || now_ns >= deadline_ns)
			continue;
		if (host->channel.in >= 0)
			shutdown(host->channel.in, SHUT_WR);
		launcher_host_await(host, (deadline_ns - now_ns) / 1000000);
	}
	for (int i = 0; i < hosts->count; i++)
		release_host(&hosts->hosts[i]);
	free(hosts);
}
