/* SPDX-License-Identifier: BSD-3-Clause
 * Makes and checks the block of traces.h. */
#include "failure/traces.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hosts/hosts.h"

#define COPIES_MAGIC UINT64_C(0x3259504f4353) /* "SCOPY2" */
enum { SITES_MS = 100 };

void *failure_pack_traces(const struct world *world, const struct ranks *ranks, size_t *bytes)
{
	struct failure_copies head = {.magic = COPIES_MAGIC, .job = world->transport.job};
	uint64_t until_ns = clock_deadline_ns(SITES_MS), at = sizeof head;
	head.bytes = sizeof head;
	RANKS_EACH (q, ranks) {
		uint64_t more = world->views[q].header ? world->views[q].bytes : 0;
		if (more > HOSTS_TELL_MAX ||
		    failure_copies_align(more) > HOSTS_TELL_MAX - head.bytes)
			continue;
		head.of[q] = more;
		head.bytes += failure_copies_align(more);
	}
	char *block = aligned_alloc(FAILURE_COPIES_ALIGN, head.bytes);
	if (!block)
		return NULL;
	memcpy(block, &head, sizeof head);
	RANKS_EACH (q, ranks) {
		if (head.of[q])
			trace_copy(&world->views[q], block + at, until_ns);
		at += failure_copies_align(head.of[q]);
	}
	((struct failure_copies *)(void *)block)->now_ns = clock_now_ns();
	*bytes = head.bytes;
	return block;
}

bool failure_copies_are_good(const struct world *world, const struct failure_copies *head,
			     size_t bytes)
{
	uint64_t sum = sizeof *head;
	if (head->magic != COPIES_MAGIC || head->job != world->transport.job || head->bytes != bytes)
		return false;
	for (int q = 0; q < RANKS_WORLD_MAX; q++) {
		if (head->of[q] > bytes)
			return false;
		sum += failure_copies_align(head->of[q]);
	}
	return sum == bytes;
}
