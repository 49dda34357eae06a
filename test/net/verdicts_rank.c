/* SPDX-License-Identifier: BSD-3-Clause
 * verdicts_rank PLAYS CYCLE: a rank that calls small collectives of four kinds in turn until one
 * fails, and prints what it was told and when. It does so PLAYS times; if that is more than once,
 * each time in a further group of all ranks. SIGUSR1: its next call differs from that of all
 * others. SIGUSR2: it takes part in a cycle of receives, which begins when CYCLE ranks are to. At
 * the end it keeps its groups open until its standard input ends. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

/* HEARD_MS: by then all hosts have heard each other; a host that was never heard is not missed. */
enum { KINDS = 4, SOME = 8, HEARD_MS = 500, RANKS = 64 };

static volatile sig_atomic_t differs, cycles;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		differs = 1;
	else
		cycles = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* *cycle: a bit for each rank that is to take part in the cycle, from the all-reduce. */
static ls_status call(ls_group *group, long step, uint64_t *cycle)
{
	int rank = ls_group_rank(group), size = ls_group_size(group);
	uint64_t mine = (uint64_t)(cycles != 0) << rank, all[RANKS];
	switch (step % KINDS) {
	case 0:
		return ls_allreduce(group, &mine, cycle, 1, LS_UINT64, LS_SUM, NULL);
	case 1:
		return ls_barrier(group, NULL);
	case 2:
		return ls_broadcast(group, &mine, &mine, 1, LS_UINT64, (int)(step % size), NULL);
	default:
		return ls_allgather(group, &mine, all, 1, LS_UINT64, NULL);
	}
}

/* Another kind than that of all others. */
static ls_status differ(ls_group *group, long step)
{
	uint64_t word = 0;
	printf("rank %d begins at %" PRIu64 "\n", ls_group_rank(group), now_ns());
	if (step % KINDS == 1)
		return ls_allreduce(group, &word, &word, 1, LS_UINT64, LS_MAX, NULL);
	return ls_barrier(group, NULL);
}

/* From the next rank of the cycle. */
static ls_status receive(ls_group *group, uint64_t cycle)
{
	int rank = ls_group_rank(group), size = ls_group_size(group), from = rank;
	uint64_t word;
	do
		from = (from + 1) % size;
	while (!(cycle >> from & 1));
	printf("rank %d begins at %" PRIu64 "\n", rank, now_ns());
	return ls_recv(group, &word, 1, LS_UINT64, from, NULL);
}

static ls_status one_step(ls_group *group, long step, int ranks_in_cycle)
{
	uint64_t cycle = 0;
	if (differs) {
		differs = 0;
		return differ(group, step);
	}
	ls_status status = call(group, step, &cycle);
	if (status != LS_OK || __builtin_popcountll(cycle) < ranks_in_cycle || !cycles)
		return status;
	cycles = 0;
	return receive(group, cycle);
}

/* Until it fails. */
static void play(ls_group *group, int number, int ranks_in_cycle)
{
	struct ls_failure failure = {.size = sizeof failure};
	int rank = ls_group_rank(group);
	uint64_t heard_ns = now_ns() + (number == 0 ? HEARD_MS * UINT64_C(1000000) : 0);
	bool is_going = rank != 0;
	ls_status status = LS_OK;
	for (long step = 0; status == LS_OK; step++) {
		status = one_step(group, step, ranks_in_cycle);
		if (!is_going && step >= SOME && now_ns() >= heard_ns) {
			printf("rank 0 goes on, play %d\n", number);
			is_going = true;
		}
	}
	uint64_t told_ns = now_ns();
	if (ls_group_failure(group, &failure) != LS_OK)
		snprintf(failure.text, sizeof failure.text, "no reason");
	for (char *end = failure.text; (end = strchr(end, '\n'));)
		*end = '|';
	printf("rank %d got %s at %" PRIu64 ", play %d, blames %d, pid %d of '%s': %s\n", rank,
	       ls_status_name(status), told_ns, number, failure.rank, failure.pid, failure.host,
	       failure.text);
}

int main(int count, char **words)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	ls_group *world, *group;
	char byte;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 3 || sigaction(SIGUSR1, &action, NULL) != 0 ||
	    sigaction(SIGUSR2, &action, NULL) != 0 || ls_group_open(NULL, &world) != LS_OK ||
	    ls_group_size(world) > RANKS)
		return 1;
	int plays = (int)strtol(words[1], NULL, 10), cycle = (int)strtol(words[2], NULL, 10);
	int rank = ls_group_rank(world);
	printf("rank %d is there\n", rank);
	for (int i = 0; i < plays; i++) {
		group = world;
		if (plays > 1 && ls_group_split(world, 0, rank, &group) != LS_OK)
			return 1;
		play(group, i, cycle);
		if (group != world)
			ls_group_close(group);
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	ls_group_close(world);
	return 0;
}
