/* SPDX-License-Identifier: BSD-3-Clause
 * The devices of one process: their threads, and how these and callers sleep. */
#include "sim.h"

#include <stdlib.h>

#include "base/clock.h"
#include "sim_private.h"

const char *sim_error_name(enum sim_error error)
{
	static const char *const names[] = {
		"ok",           "not ready",          "out of memory",
		"bad value",    "refused in capture", "not permitted in a host function",
		"device failed"};
	return names[error];
}

/* splitmix64 */
uint64_t sim_draw(uint64_t *random, uint64_t limit)
{
	uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % limit;
}

void sim_raise(_Atomic uint64_t *word, struct wait_bell *bell)
{
	atomic_fetch_add(word, 1);
	wait_wake(bell);
}

/* Without record, edge or time limit: nobody outside sees what happens in a driver. */
void sim_sleep(struct wait_bell *bell, const _Atomic uint64_t *word, uint64_t seen,
	       const _Atomic uint64_t *other, uint64_t other_seen)
{
	struct waiter waiter = {.bell = bell, .look_fd = -1};
	struct wait_word words[2] = {{.word = word, .edge = {.value = seen + 1, .peer = -1}},
				     {.word = other, .edge = {.value = other_seen + 1, .peer = -1}}};
	struct wait_call call = {
		.words = words, .count = other ? 2 : 1, .any = true, .deadline_ns = CLOCK_NEVER};
	int peer;
	ls_status status = wait_words(&waiter, &call, &peer);
	(void)status; /* the caller looks again in any case */
}

void sim_board_store(struct sim *sim, _Atomic uint64_t *word, uint64_t value)
{
	struct sim_board *board = sim->board;
	wait_store(word, value);
	atomic_fetch_add(&board->news, 1);
	uint32_t devices = atomic_load(&board->devices);
	for (uint32_t i = 0; i < devices && i < SIM_BOARD_DEVICES; i++)
		wait_wake(&board->bells[i]);
}

static bool are_good(const struct sim_options *options)
{
	return options->devices >= 1 && options->devices <= SIM_DEVICES && options->bytes > 0 &&
	       options->resident >= 0 && options->resident <= SIM_RESIDENT && options->queues >= 0 &&
	       options->queues <= SIM_QUEUES && options->depth >= 0 && options->depth <= SIM_DEPTH;
}

static bool start_device(struct sim *sim, int index)
{
	struct sim_device *device = &sim->devices[index];
	uint32_t bell = atomic_fetch_add(&sim->board->devices, 1);
	if (bell >= SIM_BOARD_DEVICES)
		return false;
	device->sim = sim;
	device->bell = &sim->board->bells[bell];
	device->random = sim->options.seed + (uint64_t)index;
	pthread_mutex_init(&device->lock, NULL);
	if (!sim_blocks_open(device, sim->options.bytes))
		return false;
	if (pthread_create(&device->thread, NULL, sim_device_main, device) != 0) {
		sim_blocks_close(device, sim->options.bytes);
		return false;
	}
	sim->started++;
	return true;
}

static bool start(struct sim *sim)
{
	for (int i = 0; i < sim->options.devices; i++)
		if (!start_device(sim, i))
			return false;
	sim->host_started = pthread_create(&sim->host_thread, NULL, sim_host_main, sim) == 0;
	return sim->host_started;
}

struct sim *sim_open(const struct sim_options *options)
{
	struct sim *sim = are_good(options) ? calloc(1, sizeof *sim) : NULL;
	if (!sim)
		return NULL;
	sim->options = *options;
	if (!options->resident)
		sim->options.resident = SIM_RESIDENT;
	if (!options->queues)
		sim->options.queues = SIM_QUEUES;
	if (!options->depth)
		sim->options.depth = SIM_DEPTH;
	sim->board = options->board ? options->board : &sim->own_board;
	sim->random = options->seed;
	pthread_mutex_init(&sim->driver, NULL);
	pthread_mutex_init(&sim->tell_lock, NULL);
	if (!start(sim)) {
		sim_close(sim);
		return NULL;
	}
	return sim;
}

void sim_stop(struct sim *sim)
{
	atomic_store(&sim->stopped, true);
	for (int i = 0; i < sim->started; i++) {
		struct sim_device *device = &sim->devices[i];
		sim_call(device);
		sim_raise(&device->progress, &device->host_bell);
		sim_raise(&device->room, &device->room_bell);
	}
	sim_raise(&sim->host_put, &sim->host_bell);
}

void sim_close(struct sim *sim)
{
	sim_stop(sim);
	for (int i = 0; i < sim->started; i++) {
		pthread_join(sim->devices[i].thread, NULL);
		sim_blocks_close(&sim->devices[i], sim->options.bytes);
	}
	if (sim->host_started)
		pthread_join(sim->host_thread, NULL);
	free(sim);
}

/* ---- failures ---- */

static void tell(const struct sim_tell *tell)
{
	wait_store(tell->word, tell->value);
	if (*tell->bell)
		wait_wake(*tell->bell);
}

/* From then on the device touches nothing. */
static bool has_failed(const struct sim *sim)
{
	return atomic_load(&sim->failed) && sim->ended == sim->options.devices;
}

bool sim_tell_failure(struct sim *sim, _Atomic uint64_t *word, uint64_t value,
		      struct wait_bell *const *bell)
{
	int at = 0;
	pthread_mutex_lock(&sim->tell_lock);
	while (at < SIM_TELLS && sim->tells[at].word)
		at++;
	if (at < SIM_TELLS) {
		sim->tells[at] = (struct sim_tell){word, value, bell};
		if (has_failed(sim))
			tell(&sim->tells[at]);
	}
	pthread_mutex_unlock(&sim->tell_lock);
	return at < SIM_TELLS;
}

void sim_tell_no_more(struct sim *sim, const _Atomic uint64_t *word)
{
	pthread_mutex_lock(&sim->tell_lock);
	for (int i = 0; i < SIM_TELLS; i++)
		if (sim->tells[i].word == word)
			sim->tells[i].word = NULL;
	pthread_mutex_unlock(&sim->tell_lock);
}

void sim_device_ends(struct sim *sim)
{
	pthread_mutex_lock(&sim->tell_lock);
	sim->ended++;
	for (int i = 0; i < SIM_TELLS && has_failed(sim); i++)
		if (sim->tells[i].word)
			tell(&sim->tells[i]);
	pthread_mutex_unlock(&sim->tell_lock);
}

uint64_t sim_calls(const struct sim *sim)
{
	return atomic_load(&sim->calls);
}

void sim_fail_next(struct sim *sim, uint64_t n)
{
	pthread_mutex_lock(&sim->driver);
	sim->options.fail_at = atomic_load(&sim->calls) + n;
	pthread_mutex_unlock(&sim->driver);
}
