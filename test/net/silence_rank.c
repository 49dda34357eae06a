/* SPDX-License-Identifier: BSD-3-Clause
 * silence_rank FOLDER: a rank that calls small all-reduces until one fails, or the file `stop` is
 * in FOLDER, and prints which. Rank 0 makes the file `going` when all ranks have done some, and
 * for so long that hosts have heard each other: no host misses one that it has never heard. With
 * LINGERS set it keeps a group that has failed open until there is a file `stop`. With MOVES set
 * each step also moves long payloads between hosts: `messages` of the second half of the ranks to
 * the first, or a `scatter` of the last rank. With STOPS set that rank stops itself while its own
 * is on the way, once all have done some steps. */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "files.h"

enum { SOME = 20, HEARD_MS = 500, LONG_BYTES = 32 << 20, MIDDLE_MS = 1 };

static int64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Begins to move a long payload. */
static ls_status move(ls_group *group, bool scatters, unsigned char *data, ls_request **request)
{
	struct ls_call_options options = {.size = sizeof options, .request = request};
	int rank = ls_group_rank(group), size = ls_group_size(group), half = size / 2;
	if (scatters)
		return ls_scatter(group, data, data + LONG_BYTES, LONG_BYTES / (uint64_t)size,
				  LS_UINT8, size - 1, &options);
	return rank < half ? ls_irecv(group, data, LONG_BYTES, LS_UINT8, rank + half, NULL, request)
			   : ls_isend(group, data, LONG_BYTES, LS_UINT8, rank - half, NULL, request);
}

/* Stops this process, unless the payload was faster: then the next one may be on the way. */
static void stop_midway(ls_request *request)
{
	(void)poll(NULL, 0, MIDDLE_MS);
	if (ls_test(request) == LS_PENDING)
		(void)raise(SIGSTOP);
}

/* data NULL: moves nothing. */
static ls_status step(ls_group *group, int32_t *ends, unsigned char *data, bool stops)
{
	ls_request *request;
	const char *moves = getenv("MOVES");
	ls_status status = ls_allreduce(group, ends, ends, 1, LS_INT32, LS_MAX, NULL);
	if (status == LS_OK && data)
		status = move(group, strcmp(moves, "scatter") == 0, data, &request);
	if (status != LS_OK || !data)
		return status;
	if (stops)
		stop_midway(request);
	status = ls_wait(request, 0);
	ls_request_free(request);
	return status;
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
	const char *stops = getenv("STOPS");
	void *data = NULL; /* to send from, and then to receive to */
	if (getenv("MOVES") && ls_alloc(group, (size_t)2 * LONG_BYTES, &data) != LS_OK)
		return 1;
	int32_t ends = 0;
	ls_status status = LS_OK;
	for (long i = 0; status == LS_OK && !ends; i++) {
		ends = rank == 0 && has_file(words[1], "stop");
		bool is_due = i >= SOME && now_ms() >= heard_ms;
		status = step(group, &ends, data,
			      is_due && stops && strtol(stops, NULL, 10) == rank);
		if (!is_going && is_due) {
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
