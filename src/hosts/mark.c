/* SPDX-License-Identifier: BSD-3-Clause
 * Says that there is something new: to the thread that makes progress on the link, or to threads of
 * this rank. */
#include "hosts/hosts_private.h"

void hosts_mark(struct hosts *hosts, unsigned area, int rank)
{
	atomic_fetch_or(&hosts->unsent[area][rank / 64], ranks_bit(rank));
	atomic_fetch_or(&hosts->areas[area / 64], UINT64_C(1) << area % 64);
	/* Last: `served` reaches this count once the link has what the bits stand for. */
	atomic_fetch_add(&hosts->transport->segment->marked, 1);
}

void hosts_wake(const struct hosts *hosts)
{
	wait_request_progress(&hosts->transport->segment->bell, 0);
}
