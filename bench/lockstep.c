/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep as a runtime to be timed. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "bench/lockstep.h"
#include "runtime.h"

struct state {
	struct bench_lockstep group; /* first: what the runtime calls its state */
	ls_request *request;
	void *plain[2]; /* what bench_allocate gave, to be freed */
};

int bench_rank(void)
{
	const char *rank = getenv("RANK");
	return rank ? (int)strtol(rank, NULL, 10) : -1;
}

bool bench_open(struct bench_runtime *out, bool threads)
{
	struct state *state = calloc(1, sizeof *state);
	ls_group *group;
	(void)threads; /* any thread may call */
	if (!state || ls_group_open(NULL, &group) != LS_OK)
		return false;
	*out = bench_lockstep(group, &state->group);
	return true;
}

static ls_group *group_of(const struct bench_runtime *runtime)
{
	const struct state *state = runtime->state;
	return state->group.group;
}

void bench_close(struct bench_runtime *runtime)
{
	struct state *state = runtime->state;
	ls_group_close(group_of(runtime));
	for (int i = 0; i < 2; i++)
		free(state->plain[i]);
	free(state);
}

void *bench_allocate(struct bench_runtime *runtime, size_t bytes, bool plain)
{
	void *out;
	if (plain) {
		out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
		if (!out)
			perror("aligned_alloc");
		struct state *state = runtime->state;
		state->plain[state->plain[0] != NULL] = out;
		return out;
	}
	return ls_alloc(group_of(runtime), bytes, &out) == LS_OK ? out : NULL;
}

bool bench_begin(struct bench_runtime *runtime, float *buffer, size_t count)
{
	struct state *state = runtime->state;
	struct ls_call_options options = {.size = sizeof options, .request = &state->request};
	return ls_allreduce(group_of(runtime), buffer, buffer, count, LS_FLOAT32, LS_SUM,
			    &options) == LS_OK;
}

bool bench_finish(struct bench_runtime *runtime)
{
	struct state *state = runtime->state;
	ls_status status = ls_wait(state->request, 0);
	ls_request_free(state->request);
	return status == LS_OK;
}

size_t bench_trace_bytes(void)
{
	char path[300], target[256];
	size_t bytes = 0;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		struct stat stat;
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t length = readlink(path, target, sizeof target - 1);
		target[length > 0 ? length : 0] = '\0';
		bool own = strncmp(target, "/memfd:lockstep-trace", 21) == 0;
		const char *rank = strrchr(target, ':');
		if (own && rank && strtol(rank + 1, NULL, 10) == bench_rank() &&
		    fstat((int)strtol(entry->d_name, NULL, 10), &stat) == 0)
			bytes = (size_t)stat.st_blocks * 512;
	}
	if (folder)
		closedir(folder);
	return bytes;
}
