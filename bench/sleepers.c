/* SPDX-License-Identifier: BSD-3-Clause
 * What operations of one thread cost while other threads of the same ranks sleep until a message
 * comes: lockstep run -n 2 ./sleepers [CALLS] prints a line for each number of such threads. The
 * time is the median of several rounds, also as a multiple of that without them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <lockstep/lockstep.h>

enum { ROUNDS = 15, SLEEPERS = 15, TAG = 1, FIRST_TAG = 100 };

struct sleeper {
	pthread_t thread;
	int tag;
};

static ls_group *group;
static int peer;

static void must(ls_status status)
{
	if (status != LS_OK)
		exit(1); /* Lockstep has said why */
}

static void *sleep_until_message(void *argument)
{
	const struct sleeper *sleeper = argument;
	struct ls_call_options options = {.size = sizeof options, .tag = sleeper->tag};
	float value;
	must(ls_recv(group, &value, 1, LS_FLOAT32, peer, &options));
	return NULL;
}

static void all_reduce(void)
{
	float value = 0;
	must(ls_allreduce(group, &value, &value, 1, LS_FLOAT32, LS_SUM, NULL));
}

static void ping_pong(void)
{
	struct ls_call_options options = {.size = sizeof options, .tag = TAG};
	float value = 0;
	if (peer == 1)
		must(ls_send(group, &value, 1, LS_FLOAT32, peer, &options));
	must(ls_recv(group, &value, 1, LS_FLOAT32, peer, &options));
	if (peer == 0)
		must(ls_send(group, &value, 1, LS_FLOAT32, peer, &options));
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static double median_us(void (*operation)(void), long calls)
{
	double rounds[ROUNDS];
	must(ls_barrier(group, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		double begin = now_us();
		for (long call = 0; call < calls; call++)
			operation();
		rounds[i] = (now_us() - begin) / (double)calls;
	}
	qsort(rounds, ROUNDS, sizeof *rounds, compare);
	return rounds[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	static const int counts[] = {0, 1, 4, SLEEPERS};
	static struct sleeper sleepers[SLEEPERS];
	double first[2] = {0};
	int made = 0;
	long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
	if (calls < 1 || ls_group_open(NULL, &group) != LS_OK)
		return 1;
	if (ls_group_size(group) != 2) {
		fprintf(stderr, "sleepers: start it with 2 ranks\n");
		return 2;
	}
	peer = 1 - ls_group_rank(group);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		for (; made < counts[i]; made++) {
			sleepers[made].tag = FIRST_TAG + made;
			if (pthread_create(&sleepers[made].thread, NULL, sleep_until_message,
					   &sleepers[made]) != 0)
				return 1;
		}
		double us[] = {median_us(all_reduce, calls), median_us(ping_pong, calls)};
		for (int what = 0; what < 2; what++)
			first[what] = i == 0 ? us[what] : first[what];
		if (peer == 1)
			printf("%2d threads sleep: all-reduce of 4 B %.2f us (x %.2f), ping-pong "
			       "%.2f us (x %.2f)\n",
			       made, us[0], us[0] / first[0], us[1], us[1] / first[1]);
	}
	for (int i = 0; i < made; i++) {
		struct ls_call_options options = {.size = sizeof options, .tag = sleepers[i].tag};
		float value = 0;
		must(ls_send(group, &value, 1, LS_FLOAT32, peer, &options));
	}
	for (int i = 0; i < made; i++)
		pthread_join(sleepers[i].thread, NULL);
	ls_group_close(group);
	return 0;
}
