/* SPDX-License-Identifier: BSD-3-Clause
 * The exhibits as training programs that do it the old way. Each rank is a process, which uses
 * Lockstep for everything else: old_ways EXHIBIT FILE [N]. They hang under every schedule: a thread
 * goes to the lock or call in which it will stay only when the other threads hold what it needs,
 * and says so first ("at the edge"). Ranks that take no part wait in a barrier, as in the next step
 * of a training. FILE: where the devices of the ranks meet. N: which launch of failed-launch fails,
 * from 1. */
#include "old_ways.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS_BEFORE = STREAMS + 1 }; /* calls of the driver before an exhibit begins */

struct shared *shared;
ls_group *world;
int my_rank;
struct sim *sim;
struct sim_stream *streams[STREAMS];
void *cached;
int failing_launch;
pthread_mutex_t allocator_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_barrier_t both;

void meet(void)
{
	pthread_barrier_wait(&both);
}

void edge(void)
{
	puts("at the edge");
	fflush(stdout);
}

void must(enum sim_error error)
{
	if (error == SIM_OK)
		return;
	fprintf(stderr, "old_ways: a call to the device failed: %s\n", sim_error_name(error));
	exit(2);
}

void must_status(ls_status status)
{
	if (status == LS_OK)
		return;
	printf("rank %d: %s\n", my_rank, ls_status_name(status));
	exit(3);
}

/* ---- the table ---- */

struct old_way {
	const char *name;
	int ranks;
	struct sim_options options;
	void (*run)(void);
	void *(*second)(void *unused); /* NULL: no second thread */
};

static const struct old_way old_ways[] = {
	{"allocator-lock", 1, {.devices = 1}, all_reduce_then_record, empty_cache},
	{"allocator-retry", 1, {.devices = 1}, all_reduce_then_record, malloc_with_retry},
	{"free-between-launches", 1, {.devices = 2}, launch_on_both, garbage_collect},
	{"launch-excludes-free", 2, {.devices = 1}, exchange, free_with_lock},
	{"retry-synchronises", 2, {.devices = 1}, retry_synchronises, NULL},
	{"lazy-pairs", 3, {.devices = 1}, lazy_pairs, NULL},
	{"serial-lane", 3, {.devices = 1}, serial_lane, NULL},
	{"opposite-order", 2, {.devices = 1, .resident = 1}, opposite_order, NULL},
	{"opposite-groups", 2, {.devices = 1}, opposite_groups, NULL},
	{"failed-launch", 2, {.devices = 1}, failed_launch, NULL},
	{"abort-in-error-path", 2, {.devices = 1}, abort_in_error_path, NULL},
	{"lazy-loading", 2, {.devices = 1, .loads_lazily = true}, lazy_loading, NULL},
	{"callback-lock", 1, {.devices = 1}, callback_lock, NULL},
	{"fork-with-lock", 1, {.devices = 1}, allocate, NULL},
	{"fork-on-lockstep", 1, {.devices = 1}, fork_on_lockstep, NULL},
};

static const struct old_way *find(const char *name)
{
	for (size_t i = 0; i < sizeof old_ways / sizeof *old_ways; i++)
		if (strcmp(old_ways[i].name, name) == 0)
			return &old_ways[i];
	fprintf(stderr, "old_ways: there is no exhibit '%s'\n", name);
	exit(2);
}

static void open_device(const struct old_way *way, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof *shared) != 0)
		exit(2);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		exit(2);
	close(fd);
	struct sim_options options = way->options;
	options.board = &shared->board;
	options.bytes = DEVICE_BYTES;
	options.free = SIM_FREE_WAITS;
	if (my_rank == 1 && failing_launch > 0)
		options.fail_at = (uint64_t)(CALLS_BEFORE + 2 * failing_launch - 1);
	sim = sim_open(&options);
	if (!sim)
		exit(2);
	for (int i = 0; i < STREAMS; i++)
		must(sim_stream_open(sim, i < options.devices ? i : options.devices - 1,
				     &streams[i]));
	must(sim_alloc(sim, 0, HALF, &cached));
}

static void run(const struct old_way *way)
{
	pthread_t thread;
	if (!way->second) {
		way->run();
		return;
	}
	if (pthread_create(&thread, NULL, way->second, NULL) != 0)
		exit(2);
	pthread_setname_np(thread, "second");
	way->run();
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	const struct old_way *way = find(argv[1]);
	const char *number = getenv("RANK");
	my_rank = number ? (int)strtol(number, NULL, 10) : 0;
	failing_launch = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0;
	pthread_barrier_init(&both, NULL, 2);
	if (way->run == allocate && my_rank == 0)
		fork_with_lock_held();
	struct ls_group_options options = {
		.size = sizeof options,
		.device = way->run == fork_on_lockstep ? "sim:0,devices=1" : NULL};
	must_status(ls_group_open(&options, &world));
	open_device(way, argv[2]);
	must_status(ls_barrier(world, NULL)); /* all ranks are there */
	if (my_rank < way->ranks)
		run(way);
	must_status(ls_barrier(world, NULL)); /* the next step of the training */
	puts("finished");
	ls_group_close(world);
	return 0;
}
