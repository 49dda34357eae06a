/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank keeps for looks at other hosts: how it is made and freed. */
#include <stdlib.h>

#include "failure/far_look.h"

struct failure_far *failure_far_open(void)
{
	struct failure_far *far = calloc(1, sizeof *far);
	for (int i = 0; far && i < TRANSPORT_QUESTIONS; i++)
		far->answers[i].fd = -1;
	return far;
}

void failure_far_close(struct failure_far *far)
{
	if (!far)
		return;
	failure_far_forget_told(far, RANKS_WORLD_MAX);
	failure_requests_close(far);
	failure_show_close(far);
	for (int q = 0; q < RANKS_WORLD_MAX; q++)
		free(far->heard[q].first);
	free(far);
}
