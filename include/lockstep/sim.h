/* SPDX-License-Identifier: BSD-3-Clause
 * A device in software: its driver's calls, for programs that try device memory and streams on a
 * machine without a device. They are a subset of what CUDA's and HIP's drivers offer. Not part of
 * lockstep.h; link with -llockstep-sim. See ls_device(3), and examples/device.c.
 *
 * A rank gets such a device with the option `device` of ls_group_open, such as "sim:0" or
 * "sim:1,bytes=1048576,free=at_once". What may follow the index:
 *
 *   bytes=N       memory of each device; 64 MiB if not given
 *   devices=N     how many devices there are, 1 to SIM_DEVICES; SIM_DEVICES if not given
 *   process=N     1 to 8: ranks of one process that give the same number share the devices, and the
 *                 driver lock; the first one's options count. If not given, each has its own
 *   queues=N      hardware queues of a device, 1 to SIM_QUEUES; its streams share them
 *   depth=N       operations that a hardware queue holds, 1 to SIM_DEPTH
 *   resident=N    kernels that run at once on a device, 1 to SIM_RESIDENT
 *   free=waits    sim_free waits until all devices of the process are idle, as cudaFree may
 *   free=at_once  it does not wait, and destroys the content
 *   free=drawn    at each call the seed draws one of the two
 *   launch=waits  a call that enqueues work on a stream returns when the device has done it, as
 *                 with CUDA_LAUNCH_BLOCKING=1
 *   loads_lazily  the first launch of each kernel waits until the device is idle
 *   fail_at=N     the N-th call fails
 *   seed=N        draws which ready work a device does next
 *
 * Threads: any thread may make these calls. They take the driver lock, a plain mutex. Those marked
 * BLOCKS hold it while they wait for the device, as drivers do: a caller that holds a lock of its
 * own can deadlock. All calls return SIM_FAILED once a device of the process has failed, and
 * SIM_NOT_PERMITTED in a host function. */
#ifndef LOCKSTEP_SIM_H
#define LOCKSTEP_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	SIM_DEVICES = 8,   /* of one process */
	SIM_STREAMS = 32,  /* of one device */
	SIM_QUEUES = 8,    /* hardware queues of one device */
	SIM_DEPTH = 64,    /* operations in one hardware queue */
	SIM_RESIDENT = 16, /* kernels that run at once on one device */
	SIM_KERNELS = 32,  /* different kernels of one process */
	SIM_ARGUMENT_BYTES = 64,
	SIM_USES = 8, /* buffers that sim_launch_using names */
};

enum sim_error {
	SIM_OK,
	SIM_NOT_READY,
	SIM_OUT_OF_MEMORY,
	SIM_BAD_VALUE,     /* no such address, device, stream; or too many of something */
	SIM_CAPTURED,      /* not while a stream is captured; the capture has become invalid */
	SIM_NOT_PERMITTED, /* a host function has called */
	SIM_FAILED,        /* a kernel has failed, or this is the call of fail_at */
};
LS_EXPORT const char *sim_error_name(enum sim_error error);

struct sim;
struct sim_stream;
struct sim_event;

enum sim_step {
	SIM_STEP_DONE,
	SIM_STEP_SPINS, /* called again when the device has done something else, or has new work */
	SIM_STEP_FAILED,
};

/* A kernel: a function that the device's thread calls until it is done. It reaches device memory
 * by sim_where, and must not block. `argument` is the copy that sim_launch has made. A kernel and
 * its name stay until the device is closed. */
struct sim_kernel {
	const char *name;
	enum sim_step (*step)(struct sim *sim, void *argument);
};

/* What the calls below need: the simulated process of the device that this thread has opened last
 * by ls_group_open. NULL: it has opened none. It ends when the rank's last group is closed. */
LS_EXPORT struct sim *lockstep_sim(void);

/* ---- memory ---- */

/* *out is an address of the device, at which the processor faults; a multiple of 512. */
LS_EXPORT enum sim_error sim_alloc(struct sim *sim, int device, size_t bytes, void **out);
/* BLOCKS if it waits (free=waits). NULL is allowed. */
LS_EXPORT enum sim_error sim_free(struct sim *sim, void *address);
/* Where the content of this address of a device really is: for kernels. Addresses of the host stay
 * as they are. Takes no lock. */
LS_EXPORT void *sim_where(const struct sim *sim, const void *address);

/* ---- streams ---- */

LS_EXPORT enum sim_error sim_stream_open(struct sim *sim, int device, struct sim_stream **out);
/* BLOCKS until its work is done. */
LS_EXPORT enum sim_error sim_stream_close(struct sim_stream *stream);

/* Each enqueues work on the stream. All BLOCK while the hardware queue is full, and with
 * launch=waits until the work is done. `argument` is copied: up to SIM_ARGUMENT_BYTES. Either side
 * of a copy may be memory of the device or of the host. */
LS_EXPORT enum sim_error sim_launch(struct sim_stream *stream, const struct sim_kernel *kernel,
				    const void *argument, size_t bytes);
/* The same, and names the `count` buffers that the kernel touches, at most SIM_USES. So
 * LOCKSTEP_CHECK=1 compares them with Lockstep's operations, as it does the buffers of sim_copy.
 * Do not name buffers if the kernel orders streams by words in memory, and no event does. */
struct sim_use {
	const void *address; /* memory of the device or of the host */
	size_t bytes;
	bool writes; /* else it only reads */
};
LS_EXPORT enum sim_error sim_launch_using(struct sim_stream *stream,
					  const struct sim_kernel *kernel, const void *argument,
					  size_t bytes, const struct sim_use *uses, int count);
LS_EXPORT enum sim_error sim_copy(struct sim_stream *stream, void *to, const void *from,
				  size_t bytes);
/* The stream waits for the host function. One thread of the process runs all host functions, one
 * after the other. A host function must not call the driver. */
LS_EXPORT enum sim_error sim_host(struct sim_stream *stream, void (*function)(void *data),
				  void *data);

/* BLOCKS until the stream has done all that it has now. */
LS_EXPORT enum sim_error sim_stream_sync(struct sim_stream *stream);
/* BLOCKS until the device is idle. */
LS_EXPORT enum sim_error sim_device_sync(struct sim *sim, int device);
/* SIM_NOT_READY while the stream has work. */
LS_EXPORT enum sim_error sim_stream_query(struct sim_stream *stream);

/* ---- events ---- */

LS_EXPORT enum sim_error sim_event_open(struct sim *sim, struct sim_event **out);
LS_EXPORT enum sim_error sim_event_close(struct sim_event *event);
/* The event is complete once what the stream has now is done. A later record replaces this one. */
LS_EXPORT enum sim_error sim_record(struct sim_event *event, struct sim_stream *stream);
/* The stream waits for the newest record before this call; if there is none, for nothing. */
LS_EXPORT enum sim_error sim_follow(struct sim_stream *stream, const struct sim_event *event);
/* SIM_OK: complete, or never recorded. */
LS_EXPORT enum sim_error sim_event_query(const struct sim_event *event);
/* BLOCKS. */
LS_EXPORT enum sim_error sim_event_sync(const struct sim_event *event);

/* ---- capture ---- */

/* Work that is enqueued on the stream until sim_capture_end is kept for a graph, and not done.
 * Meanwhile alloc, free, queries and the calls that wait fail, and make the capture invalid. One
 * capture at a time. */
LS_EXPORT enum sim_error sim_capture_begin(struct sim_stream *stream);
/* *count: the operations that were captured. SIM_CAPTURED: the capture has become invalid. */
LS_EXPORT enum sim_error sim_capture_end(struct sim_stream *stream, uint64_t *count);
LS_EXPORT enum sim_error sim_is_captured(const struct sim_stream *stream, bool *out);

#ifdef __cplusplus
}
#endif
#endif
