/* SPDX-License-Identifier: BSD-3-Clause
 * A device in software: for machines without a device, and for programs that show how a device
 * deadlocks. <lockstep/sim.h> has the calls for programs; this file has what the driver "sim" and
 * the tests need in addition. The device does what surprises callers of real drivers (README.md has
 * the list).
 *
 *   host threads   sim_launch ── driver lock ──> hardware queue ──> device thread: kernels
 *   host threads   sim_stream_sync, sim_free  <── progress ───────────────┘
 *
 * Threads: any, except as said. A caller can deadlock that holds a lock of its own, or whose kernel
 * waits for what another thread has yet to launch. That is the purpose. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/sim.h>

#include "base/wait.h"
#include "device/driver.h"

enum { SIM_BOARD_DEVICES = 64 }; /* devices of all processes that use one board */

/* Memory that all ranks share. It shows devices that a word anywhere was stored: each store by a
 * device raises `news`, and wakes the devices that sleep. Zero at first. */
struct sim_board {
	_Alignas(64) _Atomic uint64_t news;
	_Atomic uint32_t devices; /* how many have taken a bell */
	struct wait_bell bells[SIM_BOARD_DEVICES];
};

enum sim_free_mode {
	SIM_FREE_WAITS, /* waits until all devices of the process are idle, as cudaFree may */
	/* the same, and the content is destroyed, as with memory of a driver's pool */
	SIM_FREE_AT_ONCE,
	SIM_FREE_DRAWN, /* at each call the seed draws one of these two */
};

enum sim_launch_mode {
	SIM_LAUNCH_QUEUES, /* a launch returns at once, or waits for room in its hardware queue */
	SIM_LAUNCH_WAITS,  /* a launch returns when the work is done (CUDA_LAUNCH_BLOCKING=1) */
};

struct sim_options {
	uint64_t seed;           /* draws which ready work a device does next */
	struct sim_board *board; /* NULL: a board of this process alone */
	int devices;             /* 1 to SIM_DEVICES */
	size_t bytes;            /* memory of each device */
	int resident;            /* 1 to SIM_RESIDENT; 0: SIM_RESIDENT */
	int queues;              /* 1 to SIM_QUEUES; 0: SIM_QUEUES; streams share them */
	int depth;               /* 1 to SIM_DEPTH; 0: SIM_DEPTH */
	enum sim_free_mode free;
	enum sim_launch_mode launch;
	/* BLOCKS: the first launch of each kernel waits until the device is idle, because it loads
	 * the kernel. */
	bool loads_lazily;
	uint64_t fail_at; /* the call that fails, from 1, without an effect; 0: none */
};

/* Starts the devices and their threads. NULL: no memory, no thread, or wrong options. */
struct sim *sim_open(const struct sim_options *options);
/* Ends the threads; what was not done yet is dropped. No other thread is in a call, or only in one
 * that BLOCKS: it returns SIM_FAILED. Call it once all of those have returned. */
void sim_close(struct sim *sim);
/* Makes every blocked call return SIM_FAILED, and stops all devices. */
void sim_stop(struct sim *sim);
/* How many calls there were, for fail_at. */
uint64_t sim_calls(const struct sim *sim);
/* In place of fail_at: the n-th call from now on fails, from 1. Not in a host function. */
void sim_fail_next(struct sim *sim, uint64_t n);
/* When a device of the process fails: *word = value, then wakes the sleepers of *bell as it is
 * then. At once, if a device has failed before. False: too many callers have asked. */
bool sim_tell_failure(struct sim *sim, _Atomic uint64_t *word, uint64_t value,
		      struct wait_bell *const *bell);
/* When this returns, the device stores to the word no more. */
void sim_tell_no_more(struct sim *sim, const _Atomic uint64_t *word);

/* Tells the observer of copies, named buffers of kernels, events and awaits on the streams of this
 * device, but not of what the driver "sim" does for Lockstep. The observer stays until the device
 * gets another one, or NULL; after that no thread is in one of its calls. Takes the driver lock. */
void sim_observe(struct sim *sim, int device, const struct driver_observer *observer);

/* The range that all memory of this device is in. Takes no lock. */
void *sim_addresses(const struct sim *sim, int device, size_t *bytes);
/* Whether sim_free may wait for the devices. */
bool sim_free_may_wait(const struct sim *sim);
/* For tests. Not in a host function. */
size_t sim_bytes_used(struct sim *sim, int device);

/* ---- streams ---- */

/* The number of the stream's hardware queue, and how many operations that can hold; 0: a call waits
 * until its own operation is done. They take no lock. */
int sim_queue_of(const struct sim_stream *stream);
int sim_depth_of(const struct sim_stream *stream);
/* How many calls have waited so far, while they held the driver lock, for work that awaits a word.
 * Takes no lock. */
uint64_t sim_held_calls(const struct sim *sim);

/* Whether this is an open stream of this device. Takes no lock. */
bool sim_is_stream(const struct sim *sim, int device, const void *stream);

/* *word = value; then all devices of the board look again. Wakes the sleepers of `bell`, if it is
 * not NULL. In a capture it puts nothing there, and returns SIM_CAPTURED. */
enum sim_error sim_store(struct sim_stream *stream, _Atomic uint64_t *word, uint64_t value,
			 struct wait_bell *bell);
/* The stream waits until (int64_t)(*word - value) >= 0. */
enum sim_error sim_await(struct sim_stream *stream, const _Atomic uint64_t *word, uint64_t value);
/* A store by a kernel or by the host to a word that devices or kernels await, perhaps those of
 * other ranks. Takes no lock. */
void sim_board_store(struct sim *sim, _Atomic uint64_t *word, uint64_t value);

#endif
