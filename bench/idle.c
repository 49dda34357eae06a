/* SPDX-License-Identifier: BSD-3-Clause
 * What an open group costs while nothing is under way: lockstep run -n N ./idle SECONDS prints
 * "idle MICROSECONDS" of processor time for each rank, all of its threads together. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <lockstep/lockstep.h>

static float data[1000];

/* The progress thread has work once, so that there is one. */
static ls_status work_once(ls_group *group)
{
	ls_request *request;
	struct ls_call_options options = {.size = sizeof options, .request = &request};
	ls_status status = ls_allreduce(group, data, data, 1000, LS_FLOAT32, LS_SUM, &options);
	if (status != LS_OK)
		return status;
	status = ls_wait(request, 0);
	ls_request_free(request);
	return status == LS_OK ? ls_barrier(group, NULL) : status;
}

static double processor_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

int main(int argc, char **argv)
{
	ls_group *group;
	long seconds = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	if (seconds < 1 || seconds > 3600) {
		fprintf(stderr, "usage: idle SECONDS\n");
		return 2;
	}
	if (ls_group_open(NULL, &group) != LS_OK)
		return 1;
	ls_status status = work_once(group);
	poll(NULL, 0, 100); /* what was under way has ended, too */
	double before = processor_us();
	poll(NULL, 0, (int)seconds * 1000); /* the idle time itself */
	printf("idle %.1f\n", processor_us() - before);
	ls_group_close(group);
	return status == LS_OK ? 0 : 1;
}
