/* SPDX-License-Identifier: BSD-3-Clause
 * A rank that start_test.py starts by hand. It opens a group as its environment says, and prints
 * "rank R: STATUS after M ms". It all-reduces its argument, and prints "sum S of N ranks". Once
 * standard input ends, it prints "again S", so that another job can run in between. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("RANK");
	int32_t mine = argc == 2 ? (int32_t)strtol(argv[1], NULL, 10) : 0, sum = 0, again = 0;
	ls_group *group;
	char byte;
	setvbuf(stdout, NULL, _IOLBF, 0);
	double start = now_ms();
	ls_status status = ls_group_open(NULL, &group);
	printf("rank %s: %s after %.0f ms\n", rank ? rank : "?", ls_status_name(status),
	       now_ms() - start);
	if (status != LS_OK)
		return 1;
	status = ls_allreduce(group, &mine, &sum, 1, LS_INT32, LS_SUM, NULL);
	printf("sum %d of %d ranks\n", sum, ls_group_size(group));
	if (read(STDIN_FILENO, &byte, 1) != 0)
		return 2;
	if (status == LS_OK)
		status = ls_allreduce(group, &mine, &again, 1, LS_INT32, LS_SUM, NULL);
	printf("again %d\n", again);
	ls_group_close(group);
	return status == LS_OK && sum == again ? 0 : 1;
}
