/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank keeps for looks at other hosts: how it is made and freed. */
#include <stdlib.h>

#include "failure/remote_look.h"

struct failure_remote *failure_remote_open(void)
{
	struct failure_remote *remote = calloc(1, sizeof *remote);
	for (int i = 0; remote && i < TRANSPORT_QUESTIONS; i++)
		remote->answers[i].fd = -1;
	return remote;
}

void failure_remote_close(struct failure_remote *remote)
{
	if (!remote)
		return;
	failure_remote_forget_told(remote, RANKS_WORLD_MAX);
	failure_requests_close(remote);
	failure_show_close(remote);
	for (int q = 0; q < RANKS_WORLD_MAX; q++)
		free(remote->heard[q].first);
	free(remote);
}
