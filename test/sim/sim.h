/* SPDX-License-Identifier: BSD-3-Clause
 * A device in software: for machines without a device, and for programs that show how one
 * deadlocks. Its calls are a subset of what CUDA's and HIP's drivers offer, and it does what
 * surprises their callers (README.md has the list). Kernels are C functions.
 *
 *   host threads   sim_launch ── driver lock ──> hardware queue ──> device thread: kernels
 *   host threads   sim_stream_sync, sim_free  <── progress ───────────────┘
 *
 * Threads: any, except as said. Calls take the driver lock, a plain mutex: those marked BLOCKS hold
 * it while they wait for the device, as drivers do. A caller that holds a lock of its own, or whose
 * kernel waits for what another thread has yet to launch, can deadlock; that is what this is for.
 * All calls return SIM_FAILED once a device of the process has failed, and SIM_NOT_PERMITTED in a
 * host function. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wait.h"
#include "device/driver.h"

enum {
	SIM_DEVICES = 8,   /* of one process */
	SIM_STREAMS = 32,  /* of one device */
	SIM_QUEUES = 8,    /* hardware queues of one device */
	SIM_DEPTH = 64,    /* operations in one hardware queue */
	SIM_RESIDENT = 16, /* kernels that run at once on one device */
	SIM_KERNELS = 32,  /* different kernels of one process */
	SIM_ARGUMENT_BYTES = 64,
	SIM_BOARD_DEVICES = 64, /* devices of all processes that use one board */
};

enum sim_error {
	SIM_OK,
	SIM_NOT_READY,
	SIM_OUT_OF_MEMORY,
	SIM_BAD_VALUE,     /* no such address, device, stream; or too many of something */
	SIM_CAPTURED,      /* not while a stream is captured; the capture has become invalid */
	SIM_NOT_PERMITTED, /* a host function has called */
	SIM_FAILED,        /* a kernel has failed, or this call was to fail */
};
const char *sim_error_name(enum sim_error error);

/* Memory that all ranks share. Devices see stores to words anywhere by it: each store of a device
 * raises `news` and wakes the devices that sleep. Zero at first. */
struct sim_board {
	_Alignas(64) _Atomic uint64_t news;
	_Atomic uint32_t devices; /* how many have taken a bell */
	struct wait_bell bells[SIM_BOARD_DEVICES];
};

struct sim;
struct sim_stream;
struct sim_event;

enum sim_step {
	SIM_STEP_DONE,
	SIM_STEP_SPINS, /* it waits for another rank or kernel: called again later */
	SIM_STEP_FAILED,
};

/* A kernel. `step` runs on the device's thread, and may touch device memory by sim_where, and words
 * of other ranks. It must not block, and stores words that others await by sim_board_store. */
struct sim_kernel {
	const char *name;
	enum sim_step (*step)(struct sim *sim, void *argument);
};

enum sim_free_mode {
	SIM_FREE_WAITS,   /* until all devices of the process are idle, as cudaFree may */
	SIM_FREE_AT_ONCE, /* and the content is destroyed, as with memory of a driver's pool */
	SIM_FREE_DRAWN,   /* at each call the seed draws one of the two */
};

enum sim_launch_mode {
	SIM_LAUNCH_QUEUES, /* a launch returns at once, or waits for room in its hardware queue */
	SIM_LAUNCH_WAITS,  /* it returns when the work is done (CUDA_LAUNCH_BLOCKING=1) */
};

struct sim_options {
	uint64_t seed;           /* draws which ready work a device does next */
	struct sim_board *board; /* NULL: one of this process alone */
	int devices;             /* 1 to SIM_DEVICES */
	size_t bytes;            /* memory of each device */
	int resident;            /* 1 to SIM_RESIDENT; 0: SIM_RESIDENT */
	int queues;              /* 1 to SIM_QUEUES; 0: SIM_QUEUES; streams share them */
	int depth;               /* 1 to SIM_DEPTH; 0: SIM_DEPTH */
	enum sim_free_mode free;
	enum sim_launch_mode launch;
	/* BLOCKS: the first launch of each kernel waits until the device is idle, to load it. */
	bool loads_lazily;
	uint64_t fail_at; /* the call that fails, from 1; 0: none. That one has no effect */
};

/* Starts the devices and their threads. NULL: no memory, or no thread, or bad options. */
struct sim *sim_open(const struct sim_options *options);
/* Ends the threads; what was not done yet is dropped. No other thread is in a call, or only in one
 * that BLOCKS: it returns SIM_FAILED. Call it once all of those have returned. */
void sim_close(struct sim *sim);
/* Lets every blocked call return SIM_FAILED, and stops all devices. */
void sim_stop(struct sim *sim);
/* How many calls there were: for fail_at. */
uint64_t sim_calls(const struct sim *sim);
/* Instead of fail_at: the n-th call from now fails, from 1. Not in a host function. */
void sim_fail_next(struct sim *sim, uint64_t n);
/* When a device of the process fails: *word = value, then the sleepers of *bell, as it is at
 * that time, are woken. At once, if one has failed. False: too many have asked. */
bool sim_tell_failure(struct sim *sim, _Atomic uint64_t *word, uint64_t value,
		      struct wait_bell *const *bell);
/* When it returns, the word is not stored to any more. */
void sim_tell_no_more(struct sim *sim, const _Atomic uint64_t *word);

/* Tells the watch of copies, events and awaits of this device's streams, which stays until it gets
 * another one, or NULL; after that no thread is in one of its calls. Not of what the driver "sim"
 * does for Lockstep. Takes the driver lock. */
void sim_watch(struct sim *sim, int device, const struct driver_watch *watch);

/* ---- memory ---- */

/* *out is an address of the device, at which the processor faults; a multiple of 512. */
enum sim_error sim_alloc(struct sim *sim, int device, size_t bytes, void **out);
/* BLOCKS if it waits (enum sim_free_mode). NULL is allowed. */
enum sim_error sim_free(struct sim *sim, void *address);
/* The memory itself, for kernels and for tests; host addresses stay as they are. Takes no lock. */
void *sim_where(const struct sim *sim, const void *address);
/* The range in which all memory of this device lies. Takes no lock. */
void *sim_addresses(const struct sim *sim, int device, size_t *bytes);
/* Whether sim_free may wait for the devices. */
bool sim_free_may_wait(const struct sim *sim);
/* For tests; not in a host function. */
size_t sim_bytes_used(struct sim *sim, int device);

/* ---- streams ---- */

enum sim_error sim_stream_open(struct sim *sim, int device, struct sim_stream **out);
/* BLOCKS until its work is done. */
enum sim_error sim_stream_close(struct sim_stream *stream);

/* The number of its hardware queue, and how many operations that holds; 0: a call waits until its
 * own operation is done. Take no lock. */
int sim_queue_of(const struct sim_stream *stream);
int sim_depth_of(const struct sim_stream *stream);
/* How many calls have waited so far, with the driver lock held, for work that awaited a word.
 * Takes no lock. */
uint64_t sim_held_calls(const struct sim *sim);

/* Whether it is an open stream of this device. Takes no lock. */
bool sim_is_stream(const struct sim *sim, int device, const void *stream);

/* Each puts something behind what the stream has. All BLOCK while the hardware queue is full, and
 * until the work is done with SIM_LAUNCH_WAITS. `argument` is copied. */
enum sim_error sim_launch(struct sim_stream *stream, const struct sim_kernel *kernel,
			  const void *argument, size_t bytes);
enum sim_error sim_copy(struct sim_stream *stream, void *to, const void *from, size_t bytes);
/* *word = value, and all devices of the board look; sleepers of `bell` are woken, if it is not
 * NULL. */
enum sim_error sim_store(struct sim_stream *stream, _Atomic uint64_t *word, uint64_t value,
			 struct wait_bell *bell);
/* The stream waits until (int64_t)(*word - value) >= 0. */
enum sim_error sim_await(struct sim_stream *stream, const _Atomic uint64_t *word, uint64_t value);
/* The stream waits for the function, which runs on a thread of the process that runs all of them,
 * one after the other. It must not call sim. */
enum sim_error sim_host(struct sim_stream *stream, void (*function)(void *data), void *data);

/* A kernel's or a host's own store of a word that devices await. Takes no lock. */
void sim_board_store(struct sim *sim, _Atomic uint64_t *word, uint64_t value);

/* BLOCK. */
enum sim_error sim_stream_sync(struct sim_stream *stream);
enum sim_error sim_device_sync(struct sim *sim, int device);
/* SIM_NOT_READY while the stream has work. */
enum sim_error sim_stream_query(struct sim_stream *stream);

/* ---- events ---- */

enum sim_error sim_event_open(struct sim *sim, struct sim_event **out);
enum sim_error sim_event_close(struct sim_event *event);
/* The event is complete once what the stream has now is done. A later record replaces this one. */
enum sim_error sim_record(struct sim_event *event, struct sim_stream *stream);
/* The stream waits for the newest record before this call; if there is none, for nothing. */
enum sim_error sim_follow(struct sim_stream *stream, const struct sim_event *event);
/* SIM_OK: complete, or never recorded. */
enum sim_error sim_event_query(const struct sim_event *event);
/* BLOCKS. */
enum sim_error sim_event_sync(const struct sim_event *event);

/* ---- capture ---- */

/* What is put behind the stream until sim_capture_end is kept for a graph, and not done. Meanwhile
 * alloc, free, queries and the calls that wait fail, and make the capture invalid. One at a time.
 */
enum sim_error sim_capture_begin(struct sim_stream *stream);
/* *count: the operations that were captured. SIM_CAPTURED: the capture has become invalid. */
enum sim_error sim_capture_end(struct sim_stream *stream, uint64_t *count);
enum sim_error sim_is_captured(const struct sim_stream *stream, bool *out);

#endif
