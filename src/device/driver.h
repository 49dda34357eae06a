/* SPDX-License-Identifier: BSD-3-Clause
 * What Lockstep needs of a device's driver: to get memory, to copy and to reduce it where the
 * processor does not touch it, and to learn when that is done. A plugin is an implementation of
 * this table (struct driver_ops) for one kind of device. device_driver_cpu is the processor itself.
 * doc/decisions/023 and 028 say why the table has these functions, and which will follow.
 *
 *   caller   copy ── reduce ── … ── store(word, n)      returns at once
 *   device        does them in this order, later, then stores n and wakes the sleepers
 *   caller   waits for word >= n, through base/wait as for any other word
 *
 * Streams are the plugin's handles. The device does in order what was put behind one stream. A
 * stream waits for words (await), and for no other stream. Any thread may call; calls on one stream
 * by several threads at once take some order. No lock of Lockstep is held in a call. The watch
 * makes no calls; the progress thread makes those of nonblocking operations on the plugin's own
 * stream, so a plugin whose device can make a call wait enqueues these by a thread of its own. */
#ifndef DEVICE_DRIVER_H
#define DEVICE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/messages.h"
#include "base/wait.h"
#include "kernel/kernel.h"

enum { DRIVER_VERSION = 5 }; /* of the structs here */

struct driver_ops;

/* One device as one rank uses it. The opener fills ops, index, options, say, bell and waiter; open
 * fills the rest, which is constant until close. A driver is closed when no region names it any
 * more, but stays in memory until the group of all ranks is closed: the progress thread may look at
 * `broken` once more. */
struct driver {
	const struct driver_ops *ops;
	int index;           /* which device of this plugin */
	const char *options; /* of this plugin, such as "bytes=1048576"; valid in open only */
	/* message_say of the library. A plugin in a file of its own has a copy of message_say,
	 * which does not know the rank, and what it says does not get into ls_last_error. */
	void (*say)(const char *id, enum setting_log level, const char *format, ...)
		__attribute__((format(printf, 3, 4)));
	struct wait_bell *bell; /* of the rank: wait_wake follows each store; NULL: nobody sleeps */
	struct waiter *waiter;  /* of the rank, to show calls of the driver; not for plugins */
	void *state;            /* the plugin's own */
	void *stream;           /* for what Lockstep does of its own accord */
	/* All memory that `take` returns lies in this range, which has nothing else. bytes 0: such
	 * memory lies anywhere, because the processor may touch it. */
	void *address;
	size_t bytes;
	/* While one device waits to let go of memory (give_waits), nothing must be launched on
	 * others of the same domain. NULL: no other device matters. */
	const void *domain;
	/* 0; or the status with which the device has stopped for good: it touches no memory any
	 * more, and what it had not done will never be done or stored. A plugin whose calls can
	 * only fail from now on says so here, as a failed store is tried again. */
	_Atomic uint64_t broken;
};

/* Memory that the driver has handed out. */
struct driver_segment {
	void *address; /* of the device: the processor need not be able to touch it */
	size_t bytes;
	uint64_t handle; /* the plugin's own */
};

/* The queue into which a stream puts work. Streams may share a queue. */
struct driver_queue {
	uint64_t id; /* the same for streams that share one */
	/* How many entries that are not done the queue certainly holds. A call that finds it full
	 * waits for room, perhaps with locks of the driver held, so that calls on other streams
	 * wait as well. Each call adds one entry. 0: unknown, or a call waits for its own entry
	 * (CUDA_LAUNCH_BLOCKING=1). */
	uint32_t depth;
};

/* Memory that work on a stream reads, or writes. */
struct driver_range {
	const void *address;
	size_t bytes;
	bool writes;
};

/* A call of the program has enqueued a copy or a kernel on a stream. It is done when *done >=
 * number; the word stays until the device is closed. */
struct driver_touch {
	const char *call;   /* "sim_copy" */
	const char *kernel; /* its name, which stays until the device is closed; NULL: none */
	const void *stream; /* never NULL: the default stream has a handle as well */
	const void *site;   /* the return address of the call */
	const struct driver_range *ranges;
	int count;
	const _Atomic uint64_t *done;
	uint64_t number;
};

/* What the program does on a device by calls of the driver, as far as a plugin sees it. The plugin
 * calls each of these functions in the program's thread, after the call that it tells of has done
 * its work, before that call returns, and with no lock of the plugin held. See races/races.h. */
struct driver_observer {
	void *data;
	/* There is a new stream or event. One that was destroyed may have had the same handle. */
	void (*makes)(void *data, const void *handle);
	/* A copy, or a kernel of which the plugin knows what it touches. */
	void (*touches)(void *data, const struct driver_touch *touch);
	void (*records)(void *data, const void *event, const void *stream);
	void (*follows)(void *data, const void *event, const void *stream);
	/* The stream waits for what the plugin does not tell of: a word, a host function, or a
	 * stream of another device. */
	void (*awaits)(void *data, const void *stream);
};

/* copy, reduce, store and await put something behind what the stream has, and return. An error says
 * that the call has put nothing there, while what was there before goes on; the plugin has said why
 * in a message. Once the device is broken the four return that status. None waits for the device,
 * except for room in a full queue. So callers look at `queue` first, and wait themselves
 * (pool/launch.h).
 *
 * The program may begin to capture a stream at any time, also between a look (capturing) and one of
 * these calls. A call on a stream that is being captured puts nothing there, leaves the capture as
 * it is, and returns LS_UNSUPPORTED without a message. In a graph a store would come late, or again
 * and again with an old number.
 *
 * open, close, take and give may block, for as long as the driver wants; the others, too, if the
 * program has filled the queue. So all are called with no lock held, as calls that the wait table
 * shows (wait_foreign_call_begin); take and give under the names that the plugin gives. */
struct driver_ops {
	/* Loads kernels and makes the stream, so that no later call has to. May block. Errors:
	 * LS_UNSUPPORTED, LS_OUT_OF_MEMORY, LS_SYSTEM, with a message; then there is nothing to
	 * close. */
	LS_CHECKED ls_status (*open)(struct driver *driver);
	/* Called when nothing is under way. May block. When it returns, the plugin stores to no
	 * word and wakes no sleeper any more: it waits for a thread that has stored a word, and so
	 * ended the caller's wait, but has not woken the sleepers yet. */
	void (*close)(struct driver *driver);
	/* memcpy. Either side may be memory of the device, or host memory of this process; both
	 * stay as they are until a later store has been seen. Errors: LS_SYSTEM. */
	LS_CHECKED ls_status (*copy)(struct driver *driver, void *stream, void *to,
				     const void *from, size_t bytes);
	/* kernel_reduce, with the same bits as a result, on operands as in copy. *reduce and its
	 * lists belong to the caller again after the call. Errors: LS_SYSTEM, LS_OUT_OF_MEMORY. */
	LS_CHECKED ls_status (*reduce)(struct driver *driver, void *stream,
				       const struct kernel_reduce *reduce);
	/* Stores this value to a word in host memory once all before it is done and can be seen by
	 * any thread; then wait_wake follows. The word must stay until then. Errors: LS_SYSTEM. */
	LS_CHECKED ls_status (*store)(struct driver *driver, void *stream, _Atomic uint64_t *word,
				      uint64_t value);
	/* All that is enqueued on the stream from now on waits until (int64_t)(*word - value) >= 0.
	 * The word is in host memory, is written by `signal` or by stores of streams, and must stay
	 * until a later store has been seen. Errors: LS_SYSTEM. */
	LS_CHECKED ls_status (*await)(struct driver *driver, void *stream,
				      const _Atomic uint64_t *word, uint64_t value);
	/* The processor stores to a word that streams await. This calls no driver: it never blocks,
	 * and locks may be held. */
	void (*signal)(struct driver *driver, _Atomic uint64_t *word, uint64_t value);
	/* At least this many bytes, aligned to 512; the content is undefined. Waits for no stream.
	 * A thread of the program may be capturing a stream: take and give leave the capture valid
	 * (CUDA: cuThreadExchangeStreamCaptureMode with CU_STREAM_CAPTURE_MODE_RELAXED around).
	 * Errors: LS_OUT_OF_MEMORY, without a message, as the caller can try something else;
	 * LS_SYSTEM, with one. */
	LS_CHECKED ls_status (*take)(struct driver *driver, size_t bytes,
				     struct driver_segment *out);
	/* Gives memory back that nothing uses any more. With `give_waits` the driver may wait here
	 * until the device, and those whose memory it maps, are idle, and keep all other calls
	 * waiting meanwhile. So pool/gate.h decides when to call it. Errors: LS_SYSTEM, with a
	 * message; then the memory is still the caller's. */
	LS_CHECKED ls_status (*give)(struct driver *driver, const struct driver_segment *segment);
	/* Whether the driver does not do what is enqueued on the stream now, but keeps it for a
	 * graph. Errors: LS_BAD_ARGUMENT, without a message (the device has no such stream);
	 * LS_SYSTEM, with one. */
	LS_CHECKED ls_status (*capturing)(struct driver *driver, void *stream, bool *out);
	/* Finds the queue of a stream. This calls no driver: it never blocks, and locks may be
	 * held. NULL: the plugin knows nothing of queues. */
	void (*queue)(const struct driver *driver, const void *stream, struct driver_queue *out);
	/* Tells the observer of what the program does from now on, and of all events; NULL: tells
	 * nothing any more, and no thread is in a function of the former observer when this
	 * returns. A plugin without this function sees nothing of the program. */
	void (*observe)(struct driver *driver, const struct driver_observer *observer);
	bool give_waits;
	const char *take_call, *give_call; /* "cuMemCreate", for reports */
};

/* The processor as a device: everything is done when the call returns. Its stream is NULL, and its
 * calls never fail. It has no `await`, which would have to block. */
extern const struct driver_ops device_driver_cpu;

/* A plugin, found by its name. "sim" is the symbol lockstep_driver_sim of the program, or else of
 * liblockstep-sim.so, which device_driver_find then loads, and which stays: from the folder of the
 * library, or where the system's loader looks. */
struct driver_plugin {
	uint32_t version; /* DRIVER_VERSION */
	uint32_t bytes;   /* sizeof(struct driver_ops) */
	const struct driver_ops *ops;
};

/* Finds the plugin, and fills ops and index, for a device such as "sim:1" or "sim:1,bytes=1048576";
 * driver->options is what follows the comma. May block. Errors: LS_BAD_ARGUMENT (no such name is
 * possible), LS_UNSUPPORTED (no such library, or one of another version), with a message. */
LS_CHECKED ls_status device_driver_find(const char *device, struct driver *out);

/* What every plugin does when it stores. */
static inline void driver_stored(const struct driver *driver, _Atomic uint64_t *word, uint64_t value)
{
	wait_store(word, value);
	if (driver->bell)
		wait_wake(driver->bell);
}

static inline void driver_broke(struct driver *driver, ls_status status)
{
	driver_stored(driver, &driver->broken, (uint64_t)status);
}

#endif
