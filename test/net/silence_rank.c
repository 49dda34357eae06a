/* SPDX-License-Identifier: BSD-3-Clause
 * silence_rank FOLDER: a rank that calls small all-reduces until one fails, or the file `stop` is
 * in FOLDER, and prints which. Rank 0 makes the file `going` when all ranks have done some, and
 * for so long that hosts have heard each other: nobody misses a host that he has never heard. With
 * LINGERS set it keeps a group that has failed open until there is a file `stop`. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "files.h"

enum { SOME = 50, HEARD_MS = 500 };

static int64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **words)
{
	ls_group *group;
	struct ls_failure failure = {.size = sizeof failure};
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 2 || ls_group_open(NULL, &group) != LS_OK)
		return 1;
	int rank = ls_group_rank(group);
	int64_t heard_ms = now_ms() + HEARD_MS;
	bool is_going = rank != 0;
	int32_t ends = 0;
	ls_status status = LS_OK;
	for (long i = 0; status == LS_OK && !ends; i++) {
		ends = rank == 0 && has_file(words[1], "stop");
		status = ls_allreduce(group, &ends, &ends, 1, LS_INT32, LS_MAX, NULL);
		if (!is_going && i >= SOME && now_ms() >= heard_ms) {
			make_file(words[1], "going");
			is_going = true;
		}
	}
	if (status == LS_OK)
		printf("rank %d went on\n", rank);
	else if (ls_group_failure(group, &failure) == LS_OK)
		printf("rank %d got %s: %s\n", rank, ls_status_name(status), failure.text);
	while (getenv("LINGERS") && !has_file(words[1], "stop"))
		(void)poll(NULL, 0, 10);
	ls_group_close(group);
	return status != LS_OK;
}
