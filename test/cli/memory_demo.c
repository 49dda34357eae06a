/* SPDX-License-Identifier: BSD-3-Clause
 * A rank with a simulated device that holds memory of each sort, for the tests of lockstep memory:
 * memory_demo [WAITS]. The last rank has no device. Rank WAITS then asks for more memory than is
 * free, while the others are in a barrier; without WAITS all print "ready" and stay. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/must_fixture.h"
#include "sim_driver.h"

enum { MIB = 1 << 20 };

static enum sim_step spin(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	return SIM_STEP_SPINS;
}
static const struct sim_kernel spins = {"spin", spin};

static void *block(ls_group *group, size_t bytes, struct sim_stream *stream)
{
	void *out;
	MUST(ls_device_alloc(group, bytes, stream, &out) == LS_OK);
	return out;
}

/* Freed while a kernel that never ends uses it. */
static void pend(ls_group *group, size_t bytes, struct sim_stream *const *streams)
{
	void *used = block(group, bytes, streams[0]);
	MUST(ls_device_record(group, used, streams[1]) == LS_OK);
	MUST(sim_launch(streams[1], &spins, NULL, 0) == SIM_OK);
	MUST(ls_device_free(group, used) == LS_OK);
}

/* Freed, and to be given back when nothing is in flight. */
static void put_off(ls_group *group, size_t bytes, struct sim_stream *stream)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	MUST(ls_device_free(group, block(group, bytes, stream)) == LS_OK);
	MUST(ls_launch_begin(&group, 1) == LS_OK); /* until the process ends */
	do {
		sched_yield();
		MUST(ls_device_trim(group, 0) == LS_OK);
		MUST(ls_device_stats(group, &stats) == LS_OK);
	} while (stats.put_off < bytes);
}

static void hold(ls_group *group, int rank, bool waits)
{
	struct sim_stream *streams[2];
	for (int i = 0; i < 2; i++)
		MUST(sim_stream_open(lockstep_sim(), rank, &streams[i]) == SIM_OK);
	if (!waits)
		put_off(group, (size_t)6 * MIB, streams[0]);
	block(group, (size_t)4 * MIB * (size_t)(rank + 1), streams[0]);
	pend(group, (size_t)2 * MIB, streams);
	MUST(ls_device_free(group, block(group, (size_t)20 * MIB, streams[0])) == LS_OK);
	if (!waits)
		return;
	void *more;
	ls_status status = ls_device_alloc(group, (size_t)60 * MIB, streams[0], &more);
	printf("%s\n", ls_status_name(status));
}

int main(int argc, char **argv)
{
	const char *number = getenv("RANK"), *count = getenv("WORLD_SIZE");
	MUST(number && count);
	int rank = (int)strtol(number, NULL, 10), size = (int)strtol(count, NULL, 10);
	int who = argc > 1 ? (int)strtol(argv[1], NULL, 10) : -1;
	bool has_device = rank < size - 1;
	char device[64];
	snprintf(device, sizeof device, "sim:%d%s", rank, who < 0 ? "" : ",free=at_once");
	struct ls_group_options options = {.size = sizeof options,
					   .device = has_device ? device : NULL};
	ls_group *group;
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(ls_group_open(&options, &group) == LS_OK);
	if (has_device && (who < 0 || who == rank))
		hold(group, rank, who == rank);
	else if (who >= 0)
		printf("%s\n", ls_status_name(ls_barrier(group, NULL)));
	puts("ready");
	for (;;)
		pause();
}
