/* SPDX-License-Identifier: BSD-3-Clause
 * What an open group costs while nothing is under way: lockstep run -n N ./idle SECONDS prints
 * "idle MICROSECONDS" of processor time for each rank, of all threads of the library together. The
 * program's own thread is left out: a virtual machine may count its wake-up from poll as a
 * millisecond. */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Of all threads but the calling one, as the scheduler counts it. */
static double processor_us(void)
{
	unsigned long long sum_ns = 0;
	DIR *threads = opendir("/proc/self/task");
	struct dirent *entry;
	while (threads && (entry = readdir(threads))) {
		char path[64];
		unsigned long long ns;
		int tid = (int)strtol(entry->d_name, NULL, 10); /* 0: no thread */
		snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
		FILE *file = tid > 0 && tid != getpid() ? fopen(path, "re") : NULL;
		if (!file)
			continue;
		if (fscanf(file, "%llu", &ns) == 1)
			sum_ns += ns;
		fclose(file);
	}
	if (threads)
		closedir(threads);
	return (double)sum_ns * 1e-3;
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
