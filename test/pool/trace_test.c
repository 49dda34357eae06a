/* SPDX-License-Identifier: BSD-3-Clause
 * trace_test FILE…: how much the pool takes from the driver for a program that needs so much at its
 * peak. The files are allocations that training programs made (record.py); all are of one stream,
 * and the driver only hands out addresses. torch_policy.py gives the same for PyTorch's rules. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "pool/pool.h"

enum { SLOTS = 1 << 16, MIB = 1 << 20 };

#define MOST 1.15 /* reserved ÷ peak */

struct device {
	struct driver driver;
	struct driver_ops ops;
	struct pool_gate gate;
	struct wait_bell bell;
	struct waiter waiter;
	struct pool *pool;
	unsigned char *next; /* no address is handed out twice */
	size_t taken;
	/* It stores a mark, of which one at most is under way, this many events later. */
	int late, events, due;
	_Atomic uint64_t *word;
	uint64_t value;
};

static ls_status take(struct driver *driver, size_t bytes, struct driver_segment *out)
{
	struct device *device = driver->state;
	*out = (struct driver_segment){.address = device->next, .bytes = bytes};
	device->next += bytes;
	device->taken += bytes;
	return LS_OK;
}

static ls_status give(struct driver *driver, const struct driver_segment *segment)
{
	struct device *device = driver->state;
	device->taken -= segment->bytes;
	return LS_OK;
}

static ls_status store(struct driver *driver, void *stream, _Atomic uint64_t *word, uint64_t value)
{
	struct device *device = driver->state;
	(void)stream;
	if (device->late == 0) {
		driver_stored(driver, word, value);
		return LS_OK;
	}
	device->word = word;
	device->value = value;
	device->due = device->events + device->late;
	return LS_OK;
}

static void go_on(struct device *device, int events)
{
	_Atomic uint64_t *word = device->word;
	device->events += events;
	if (!word || device->events < device->due)
		return;
	device->word = NULL;
	driver_stored(&device->driver, word, device->value);
}

static ls_status capturing(struct driver *driver, void *stream, bool *out)
{
	(void)driver, (void)stream;
	*out = false;
	return LS_OK;
}

static bool open_device(struct device *device, int late)
{
	*device = (struct device){.late = late,
				  .next = (unsigned char *)(uintptr_t)(UINT64_C(1) << 40),
				  .ops = {.take = take,
					  .give = give,
					  .store = store,
					  .capturing = capturing,
					  .take_call = "take",
					  .give_call = "give"}};
	device->waiter = (struct waiter){.bell = &device->bell, .look_fd = -1};
	device->driver =
		(struct driver){.ops = &device->ops, .bell = &device->bell, .state = device};
	pool_gate_init(&device->gate);
	struct pool_options options = {.driver = &device->driver,
				       .gate = &device->gate,
				       .waiter = &device->waiter,
				       .name = "trace"};
	return pool_open(&device->pool, &options) == LS_OK;
}

/* ---- the program ---- */

struct replay {
	struct device device;
	void *blocks[SLOTS];
	size_t bytes[SLOTS];
	size_t live, peak; /* as requested */
};

/* One line; false: it is no event, or the pool refuses. */
static bool step(struct replay *replay, const char *line)
{
	struct pool *pool = replay->device.pool;
	char what;
	unsigned slot;
	size_t bytes = 0;
	int fields = sscanf(line, "%c %u %zu", &what, &slot, &bytes);
	if (fields < 2 || slot >= SLOTS || (what == 'a') != (fields == 3))
		return false;
	go_on(&replay->device, 1);
	if (what == 'f') {
		replay->live -= replay->bytes[slot];
		return pool_free(pool, replay->blocks[slot], NULL) == LS_OK;
	}
	replay->bytes[slot] = bytes;
	replay->live += bytes;
	if (replay->live > replay->peak)
		replay->peak = replay->live;
	return pool_alloc(pool, bytes, NULL, CLOCK_NEVER, &replay->blocks[slot]) == LS_OK;
}

static bool run(struct replay *replay, FILE *file)
{
	char line[128];
	while (fgets(line, sizeof line, file))
		if (line[0] != '#' && !step(replay, line))
			return false;
	return pool_is_valid(replay->device.pool);
}

static bool report(const struct replay *replay, const char *path)
{
	const struct device *device = &replay->device;
	struct pool_stats stats;
	pool_stats(device->pool, &stats);
	double ratio = (double)stats.peak_reserved / (double)replay->peak;
	printf("%s: %d events, device %d behind: peak %zu MiB, reserved %zu MiB, ratio %.3f; at the "
	       "end %zu MiB in %zu segments, largest block %zu MiB; hits %zu, misses %zu\n",
	       path, device->events, device->late, replay->peak / MIB, stats.peak_reserved / MIB,
	       ratio, stats.reserved / MIB, (size_t)stats.segments, stats.largest_cached / MIB,
	       (size_t)stats.hits, (size_t)stats.misses);
	return stats.live == 0 && replay->peak > 0 && (device->late > 0 || ratio <= MOST);
}

static bool test(const char *path, int late)
{
	static struct replay replay;
	struct device *device = &replay.device;
	replay = (struct replay){0};
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool good = open_device(device, late) && run(&replay, file);
	fclose(file);
	if (!good) {
		printf("%s: after %d events the pool refuses, or the line is no event\n", path,
		       device->events);
		return false;
	}
	good = report(&replay, path);
	go_on(device, late);
	device->late = 0;
	good &= pool_close(device->pool, CLOCK_NEVER) == LS_OK && device->taken == 0;
	pool_gate_fini(&device->gate);
	return good;
}

int main(int argc, char **argv)
{
	static const int behind[] = {0, 100, 1000};
	enum { TIMES = sizeof behind / sizeof *behind };
	int passed = 0, count = TIMES * (argc - 1);
	for (int i = 0; i < count; i++)
		passed += test(argv[1 + i / TIMES], behind[i % TIMES]);
	printf("%d passed, %d failed\n", passed, count - passed);
	return passed == 0 || passed < count;
}
