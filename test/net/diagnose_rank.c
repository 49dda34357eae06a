/* SPDX-License-Identifier: BSD-3-Clause
 * diagnose_rank FOLDER: a rank that calls some all-reduces, in the phase "step". Then the last rank
 * makes the file `going` in FOLDER and waits for the file `go`, while all others wait in one more
 * all-reduce. Before that all hosts have heard each other, as no host misses one that it has never
 * heard. With CYCLE set each rank receives from the next one instead, and none sends. */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { SOME = 10, HEARD_MS = 500, STEP_MS = 10 };

static void path_of(const char *folder, const char *name, char *out, size_t bytes)
{
	snprintf(out, bytes, "%s/%s", folder, name);
}

static bool has_file(const char *folder, const char *name)
{
	char path[512];
	path_of(folder, name, path, sizeof path);
	return access(path, F_OK) == 0;
}

static void make_file(const char *folder, const char *name)
{
	char path[512];
	path_of(folder, name, path, sizeof path);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
	if (fd >= 0)
		close(fd);
}

static ls_status one_step(ls_group *group)
{
	float value = 1;
	ls_status status = ls_phase_begin(group, "step");
	(void)poll(NULL, 0, STEP_MS);
	if (status == LS_OK)
		status = ls_allreduce(group, &value, &value, 1, LS_FLOAT32, LS_SUM, NULL);
	return status == LS_OK ? ls_phase_end(group, "step") : status;
}

int main(int count, char **words)
{
	ls_group *group;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 2 || ls_group_open(NULL, &group) != LS_OK)
		return 1;
	int rank = ls_group_rank(group);
	ls_status status = LS_OK;
	for (int i = 0; i < SOME && status == LS_OK; i++)
		status = one_step(group);
	int size = ls_group_size(group);
	if (rank == size - 1) {
		(void)poll(NULL, 0, HEARD_MS);
		make_file(words[1], "going");
		while (!getenv("CYCLE") && !has_file(words[1], "go"))
			(void)poll(NULL, 0, 10);
	}
	float value;
	if (status == LS_OK)
		status = getenv("CYCLE")
				 ? ls_recv(group, &value, 1, LS_FLOAT32, (rank + 1) % size, NULL)
				 : one_step(group);
	struct ls_failure failure = {.size = sizeof failure};
	printf("rank %d ended with %s\n", rank, ls_status_name(status));
	if (ls_group_failure(group, &failure) == LS_OK && failure.status != LS_OK)
		printf("rank %d blames pid %d of '%s'\n", rank, failure.pid, failure.host);
	ls_group_close(group);
	return status != LS_OK;
}
