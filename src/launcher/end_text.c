/* SPDX-License-Identifier: BSD-3-Clause
 * How one rank ended, in words. */
#include "launcher/launcher_private.h"

#include <stdio.h>

#include "print/print.h"

bool launcher_has_failed(const struct launcher_rank *rank)
{
	return rank->signal != 0 || rank->exit_code != 0;
}

void launcher_how_ended(const struct launcher_rank *rank, bool several, bool then, char *out,
			size_t bytes)
{
	char name[32];

	if (rank->lost && rank->remote_pid == 0) {
		snprintf(out, bytes, "%s never started", several ? "were" : "was");
		return;
	}
	if (rank->lost) {
		snprintf(out, bytes, "%s lost with the connection to the host",
			 several ? "were" : "was");
		return;
	}
	if (rank->signal == 0) {
		snprintf(out, bytes, "%sexited with %d", then ? "then " : "", rank->exit_code);
		return;
	}
	print_signal(rank->signal, name, sizeof name);
	snprintf(out, bytes, "%s %skilled by %s (%d)%s", several ? "were" : "was",
		 then ? "then " : "", name, rank->signal, rank->dumped ? ", core dumped" : "");
}

void launcher_end_text(const struct launcher_job *job, int rank, char *out, size_t bytes)
{
	char how[LAUNCHER_HOW_BYTES];

	launcher_how_ended(&job->ranks[rank], false, false, how, sizeof how);
	if (job->hosts && job->ranks[rank].remote_pid == 0)
		snprintf(out, bytes, "rank %d on host %s %s", rank, launcher_hosts_name(job, rank),
			 how);
	else if (job->hosts)
		snprintf(out, bytes, "rank %d (pid %d on host %s) %s", rank,
			 job->ranks[rank].remote_pid, launcher_hosts_name(job, rank), how);
	else
		snprintf(out, bytes, "rank %d (pid %d) %s", rank, job->ranks[rank].pid, how);
}
