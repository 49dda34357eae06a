/* SPDX-License-Identifier: BSD-3-Clause
 * How long survivors wait for the verdict: lockstep run -n N ./verdict kill|leave|mismatch The last
 * rank does what is wrong. Lines "cause NS" and "error NS" hold moments of one clock for all; the
 * latency is the last error minus the last cause. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { COUNT = 1000, WARM = 20 };

static float data[COUNT + 1];

/* At once and whole, as the next thing may be the end of this process. */
static void tell(const char *what)
{
	struct timespec time;
	if (clock_gettime(CLOCK_MONOTONIC, &time) != 0 ||
	    dprintf(STDOUT_FILENO, "%s %lld\n", what,
		    (long long)time.tv_sec * 1000000000 + time.tv_nsec) < 0)
		exit(2);
}

static ls_status sum(ls_group *group, uint64_t count)
{
	return ls_allreduce(group, data, data, count, LS_FLOAT32, LS_SUM, NULL);
}

static int expect(ls_status status, ls_status wanted)
{
	tell("error");
	if (status == wanted)
		return 0;
	fprintf(stderr, "verdict: %s instead of %s\n", ls_status_name(status),
		ls_status_name(wanted));
	return 1;
}

int main(int argc, char **argv)
{
	ls_group *group;
	if (argc != 2) {
		fprintf(stderr, "usage: verdict kill|leave|mismatch\n");
		return 2;
	}
	if (ls_group_open(NULL, &group) != LS_OK)
		return 1;
	bool culprit = ls_group_rank(group) == ls_group_size(group) - 1;
	for (int i = 0; i < WARM; i++)
		if (sum(group, COUNT) != LS_OK)
			return 1;
	int result = 0;
	if (strcmp(argv[1], "mismatch") == 0) {
		tell("cause"); /* there is none before the last rank has come */
		result = expect(sum(group, culprit ? COUNT + 1 : COUNT), LS_MISMATCH);
	} else if (culprit) {
		tell("cause");
		if (strcmp(argv[1], "kill") == 0)
			kill(getpid(), SIGKILL);
	} else {
		result = expect(sum(group, COUNT),
				strcmp(argv[1], "kill") == 0 ? LS_PEER_DIED : LS_PEER_LEFT);
	}
	ls_group_close(group);
	return result;
}
