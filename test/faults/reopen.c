/* SPDX-License-Identifier: BSD-3-Clause
 * Opens and closes a world of two ranks again and again: reopen threads|processes TIMES. After the
 * first WARM_UP times the number of descriptors, threads, mappings and bytes must stay the same. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum {
	WARM_UP = 10,
	COUNT = 100000,
	SETTLE_S = 5,
	/* What the C library keeps for threads counts as in use, and varies. The smallest leak in
	 * each of 190 worlds is 32 bytes. */
	SLACK_BYTES = 3000,
};

struct holdings {
	long descriptors, threads, mappings, bytes;
};

struct rank {
	int rank;
	char place[64];
	int result; /* 0: no failure */
};

static long entries_of(const char *folder)
{
	long count = 0;
	DIR *directory = opendir(folder);
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}

static long lines_of(const char *path)
{
	char buffer[16384];
	long count = 0;
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	for (size_t got; (got = fread(buffer, 1, sizeof buffer, file)) > 0;)
		for (size_t i = 0; i < got; i++)
			count += buffer[i] == '\n';
	fclose(file);
	return count;
}

static struct holdings look(void)
{
	struct holdings now = {.descriptors = entries_of("/proc/self/fd"),
			       .threads = entries_of("/proc/self/task"),
			       .mappings = lines_of("/proc/self/maps")};
	now.bytes = (long)mallinfo2().uordblks;
	return now;
}

static bool equal(const struct holdings *a, const struct holdings *b)
{
	return a->descriptors == b->descriptors && a->threads == b->threads &&
	       a->mappings == b->mappings && labs(a->bytes - b->bytes) < SLACK_BYTES;
}

/* A joined thread is still listed for a moment, with its stack. */
static struct holdings look_at_rest(long threads)
{
	time_t end = time(NULL) + SETTLE_S;
	struct holdings now = look();
	while (now.threads != threads && time(NULL) < end) {
		sched_yield();
		now = look();
	}
	return now;
}

static struct holdings look_until(const struct holdings *wanted)
{
	time_t end = time(NULL) + SETTLE_S;
	struct holdings now = look();
	while (!equal(&now, wanted) && time(NULL) < end) {
		sched_yield();
		now = look();
	}
	return now;
}

static void print(const char *when, const struct holdings *is)
{
	printf("%s: %ld descriptors, %ld threads, %ld mappings, %ld bytes\n", when, is->descriptors,
	       is->threads, is->mappings, is->bytes);
}

/* Uses everything that a group can hold: blocks, staged buffers, records, messages. */
static ls_status use(ls_group *group)
{
	static float plain[2][COUNT];
	int rank = ls_group_rank(group);
	void *block;
	ls_status status = ls_alloc(group, COUNT * sizeof(float), &block);
	if (status != LS_OK)
		return status;
	memset(block, 0, COUNT * sizeof(float));
	status = ls_allreduce(group, plain[rank], block, COUNT, LS_FLOAT32, LS_SUM, NULL);
	if (status == LS_OK)
		status = ls_broadcast(group, plain[rank], plain[rank], COUNT, LS_FLOAT32, 0, NULL);
	if (status == LS_OK)
		status = rank ? ls_recv(group, plain[1], COUNT, LS_FLOAT32, 0, NULL)
			      : ls_send(group, plain[0], COUNT, LS_FLOAT32, 1, NULL);
	return status;
}

static void *be_rank(void *argument)
{
	struct rank *self = argument;
	struct ls_group_options options = {.size = sizeof options,
					   .rank = self->rank,
					   .world_size = 2,
					   .rendezvous = self->place};
	ls_group *group;
	self->result = 1;
	if (ls_group_open(&options, &group) != LS_OK)
		return NULL;
	ls_status status = use(group);
	/* No rank leaves while the other one still works. */
	if (status == LS_OK)
		status = ls_barrier(group, NULL);
	ls_group_close(group);
	self->result = status != LS_OK;
	return NULL;
}

/* One world. `here`: the rank of this process; -1: both ranks are threads. */
static bool once(int here, int owner, int number)
{
	struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
	pthread_t other;
	for (int r = 0; r < 2; r++)
		snprintf(ranks[r].place, sizeof ranks[r].place, "unix:reopen-%d-%d", owner, number);
	if (here >= 0) {
		be_rank(&ranks[here]);
		return ranks[here].result == 0;
	}
	if (pthread_create(&other, NULL, be_rank, &ranks[1]) != 0)
		return false;
	be_rank(&ranks[0]);
	pthread_join(other, NULL);
	return ranks[0].result == 0 && ranks[1].result == 0;
}

static int reopen(int here, int owner, int times)
{
	struct holdings warm = {0};
	long threads = entries_of("/proc/self/task"); /* with no world open yet */
	for (int number = 0; number < times; number++) {
		if (number == WARM_UP)
			warm = look_at_rest(threads);
		if (!once(here, owner, number)) {
			printf("failed the %d. time\n", number + 1);
			return 1;
		}
	}
	struct holdings now = look_until(&warm);
	print("after warming up", &warm);
	print("at the end", &now);
	return equal(&warm, &now) ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int times = (int)strtol(argv[2], NULL, 10), status = 0, owner = getpid();
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* so that no new thread makes a heap of its own in the C library */
	mallopt(M_ARENA_MAX, 1);
	if (strcmp(argv[1], "threads") == 0)
		return reopen(-1, owner, times);
	pid_t child = fork();
	if (child == 0)
		exit(reopen(1, owner, times));
	int result = reopen(0, owner, times);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		return 1;
	return result;
}
