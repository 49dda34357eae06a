/* SPDX-License-Identifier: BSD-3-Clause
 * loss_rank FOLDER: a rank that calls collectives and sends messages of all lengths, makes groups
 * and closes them, and compares what arrives, until the file `stop` is in FOLDER. It prints how
 * many rounds went right, or what went wrong. Rank 0 makes the file `going` after the first. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/lockstep.h>

#include "files.h"

enum { LONG = 100000, KINDS = 6 };

static unsigned char buffers[2][LONG];

static unsigned char byte_of(long round, int rank, int i)
{
	return (unsigned char)(round * 31 + rank * 7 + i);
}

static void fill(unsigned char *to, int count, long round, int rank)
{
	for (int i = 0; i < count; i++)
		to[i] = byte_of(round, rank, i);
}

static bool is_right(const unsigned char *bytes, int count, long round, int rank)
{
	for (int i = 0; i < count; i++)
		if (bytes[i] != byte_of(round, rank, i))
			return false;
	return true;
}

/* From and to everyone's next rank, with the length of this round. */
static ls_status shift(ls_group *group, long round, int count, bool *right)
{
	int rank = ls_group_rank(group), size = ls_group_size(group);
	int before = (rank + size - 1) % size;
	const struct ls_call_options options = {.size = sizeof options,
						.tag = (int32_t)(round % 100)};
	ls_request *receive, *send;
	fill(buffers[0], count, round, rank);
	ls_status status =
		ls_irecv(group, buffers[1], (uint64_t)count, LS_UINT8, before, &options, &receive);
	if (status != LS_OK)
		return status;
	status = ls_isend(group, buffers[0], (uint64_t)count, LS_UINT8, (rank + 1) % size, &options,
			  &send);
	if (status == LS_OK) {
		status = ls_wait(send, 0);
		ls_request_free(send);
	}
	ls_status received = ls_wait(receive, 0);
	ls_request_free(receive);
	*right = is_right(buffers[1], count, round, before);
	return status != LS_OK ? status : received;
}

static ls_status share(ls_group *group, long round, int count, bool *right)
{
	int rank = ls_group_rank(group), root = (int)(round % ls_group_size(group));
	if (rank == root)
		fill(buffers[0], count, round, root);
	else
		memset(buffers[0], 0, (size_t)count);
	ls_status status =
		ls_broadcast(group, buffers[0], buffers[0], (uint64_t)count, LS_UINT8, root, NULL);
	*right = is_right(buffers[0], count, round, root);
	return status;
}

static ls_status add(ls_group *group, long round, int count, bool *right)
{
	int size = ls_group_size(group), rank = ls_group_rank(group);
	for (int i = 0; i < count; i++)
		buffers[0][i] = (unsigned char)(byte_of(round, 0, i) + rank);
	ls_status status = ls_allreduce(group, buffers[0], buffers[1], (uint64_t)count, LS_UINT8,
					LS_SUM, NULL);
	for (int i = 0; i < count; i++)
		*right &= buffers[1][i] ==
			  (unsigned char)(byte_of(round, 0, i) * size + size * (size - 1) / 2);
	return status;
}

static ls_status split(ls_group *group, long round, bool *right)
{
	ls_group *half;
	int rank = ls_group_rank(group), bit = (int)(round / KINDS % 2);
	ls_status status = ls_group_split(group, rank >> bit & 1, 0, &half);
	if (status != LS_OK)
		return status;
	status = add(half, round, 1000, right);
	ls_group_close(half);
	return status;
}

static ls_status play(ls_group *group, long round, bool *right)
{
	static const int counts[] = {1, 100, 3000, 20000, 50000, LONG};
	int count = counts[round / KINDS % 6];
	switch (round % KINDS) {
	case 0:
		return shift(group, round, count, right);
	case 1:
		return share(group, round, count, right);
	case 2:
		return add(group, round, count, right);
	case 3:
		return split(group, round, right);
	case 4:
		return ls_barrier(group, NULL);
	default:
		return add(group, round, 8, right);
	}
}

int main(int count, char **words)
{
	ls_group *group;
	struct ls_failure failure = {.size = sizeof failure};
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 2 || ls_group_open(NULL, &group) != LS_OK)
		return 1;
	int rank = ls_group_rank(group);
	int32_t ends = 0;
	bool right = true;
	long round = 0;
	ls_status status = LS_OK;
	while (status == LS_OK && right && !ends) {
		status = play(group, round++, &right);
		if (status != LS_OK || !right)
			break;
		ends = rank == 0 && has_file(words[1], "stop");
		status = ls_allreduce(group, &ends, &ends, 1, LS_INT32, LS_MAX, NULL);
		if (rank == 0 && round == 1)
			make_file(words[1], "going");
	}
	if (status != LS_OK && ls_group_failure(group, &failure) == LS_OK)
		printf("rank %d got %s: %s\n", rank, ls_status_name(status), failure.text);
	else if (!right)
		printf("rank %d: wrong data in round %ld\n", rank, round - 1);
	else
		printf("rank %d went on for %ld rounds\n", rank, round);
	ls_group_close(group);
	return status != LS_OK || !right;
}
