/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this folder share. There are two locks: `driver` of the process, which every
 * call takes and some hold while they wait; and `lock` of each device, which callers and the
 * device's thread hold for a moment. That thread never takes the driver lock. */
#ifndef SIM_SIM_PRIVATE_H
#define SIM_SIM_PRIVATE_H

#include <pthread.h>

#include "sim.h"

enum { SIM_BLOCKS = 1024, SIM_EVENTS = 256, SIM_TELLS = 32 };

enum sim_kind { SIM_KERNEL, SIM_COPY, SIM_STORE, SIM_AWAIT, SIM_FOLLOW, SIM_HOST };

struct sim_op {
	enum sim_kind kind;
	struct sim_stream *stream;
	uint64_t number; /* in its stream, from 1 */
	union {
		struct {
			const struct sim_kernel *kernel;
			_Alignas(16) unsigned char argument[SIM_ARGUMENT_BYTES];
		};
		struct {
			void *to;
			const void *from;
			size_t bytes;
		} copy;
		struct {
			_Atomic uint64_t *word;
			uint64_t value;
			struct wait_bell *bell;
		} store;
		struct {
			const _Atomic uint64_t *word;
			uint64_t value;
		} await;
		struct {
			const struct sim_stream *stream;
			uint64_t number;
		} follow;
		struct {
			void (*function)(void *data);
			void *data;
		} host;
	};
};

struct sim_stream {
	struct sim_device *device;
	int queue;
	bool open;    /* under the driver lock */
	uint64_t put; /* under the driver lock: operations so far */
	/* of those, done; written by the device's thread, or that of host functions */
	_Atomic uint64_t done;
};

struct sim_event {
	struct sim *sim;
	bool open;
	const struct sim_stream *stream; /* NULL: never recorded */
	uint64_t number; /* complete when the stream has done this many operations */
};

struct sim_tell {
	_Atomic uint64_t *word; /* NULL: the entry is free */
	uint64_t value;
	struct wait_bell *const *bell;
};

struct sim_queue {
	struct sim_op ops[SIM_DEPTH];
	unsigned head, count;
};

struct sim_block {
	size_t offset, bytes; /* bytes 0: the entry is free */
};

struct sim_device {
	struct sim *sim;
	pthread_t thread;
	pthread_mutex_t lock; /* of the queues */
	struct sim_queue queues[SIM_QUEUES];
	struct sim_stream streams[SIM_STREAMS];
	/* For the device's thread alone. */
	struct sim_op running[SIM_RESIDENT];
	int running_count;
	uint64_t random;

	_Atomic uint64_t work;         /* raised when the device has more to do */
	_Atomic uint64_t awaited_work; /* wakes its thread */
	_Atomic uint64_t progress; /* raised when it has done something; callers wait for that */
	_Atomic bool is_storing;   /* its thread is in a store, and may have yet to wake sleepers */
	const struct driver_observer *observer; /* under the driver lock; NULL: none */
	_Atomic uint64_t telling;               /* threads that are in a call of the observer */
	_Atomic uint64_t told;                  /* raised after each such call */
	struct wait_bell told_bell;
	struct wait_bell *bell;     /* on the board; the device sleeps on it */
	struct wait_bell host_bell; /* callers sleep on it */
	/* For callers that wait for room in a queue: raised when there may be some. */
	_Atomic uint64_t room;
	_Atomic uint64_t awaited_room; /* wakes these callers */
	struct wait_bell room_bell;

	/* Under the driver lock. Block 0 to block_count - 1, by their offsets. */
	unsigned char *base;   /* the device's addresses, which fault */
	unsigned char *memory; /* the bytes behind them */
	struct sim_block blocks[SIM_BLOCKS];
	int block_count;
};

struct sim {
	struct sim_options options;
	pthread_mutex_t driver;
	_Atomic uint64_t calls, held_calls;
	_Atomic bool stopped, failed;
	struct sim_board *board, own_board;
	int started; /* devices whose threads run */
	int ended;   /* of those, failed; under tell_lock */
	struct sim_device devices[SIM_DEVICES];
	const struct sim_kernel *loaded[SIM_KERNELS];
	int loaded_count;
	struct sim_event events[SIM_EVENTS];
	uint64_t random;
	pthread_mutex_t tell_lock;
	struct sim_tell tells[SIM_TELLS]; /* under tell_lock */
	/* Capture, under the driver lock. */
	struct sim_stream *captured;
	uint64_t captured_count;
	bool capture_is_invalid;
	/* The thread of host functions, which runs one function at a time. */
	pthread_t host_thread;
	bool host_started;
	_Atomic bool host_busy; /* a device has claimed the thread until host_op is done */
	_Atomic uint64_t host_put, host_done;
	struct sim_op host_op;
	struct wait_bell host_bell;
};

/* ---- sim.c ---- */

uint64_t sim_draw(uint64_t *random, uint64_t limit);
static inline bool sim_is_over(const struct sim *sim)
{
	return atomic_load(&sim->stopped) || atomic_load(&sim->failed);
}
/* The thread of a device ends. The last one reports a failure, because from then on no device
 * touches memory. */
void sim_device_ends(struct sim *sim);
/* Raises the word, and wakes its sleepers. */
void sim_raise(_Atomic uint64_t *word, struct wait_bell *bell);
/* Blocks until *word is not `seen`, or, if `other` is not NULL, until *other is not
 * `other_seen`. */
void sim_sleep(struct wait_bell *bell, const _Atomic uint64_t *word, uint64_t seen,
	       const _Atomic uint64_t *other, uint64_t other_seen);

/* ---- queue.c ---- */

/* The device has more to do. */
void sim_call(struct sim_device *device);

/* Enqueues the operation on its stream; op->number is set. The caller holds the driver lock. */
enum sim_error sim_put(struct sim_stream *stream, struct sim_op *op);
/* Waits until this many operations of the stream are done. */
enum sim_error sim_await_done(const struct sim_stream *stream, uint64_t number);
enum sim_error sim_await_idle(struct sim_device *device);
/* Waits until the device's thread has ended the store that it is in, if any. */
void sim_await_store(struct sim_device *device);
/* Call when the operation is done, so that threads that wait for it look again. */
void sim_complete(struct sim_stream *stream);
void *sim_device_main(void *device);
void *sim_host_main(void *sim);

/* ---- calls.c ---- */

/* Takes the driver lock, unless it returns something else than SIM_OK. `waits`: not allowed in a
 * capture. */
enum sim_error sim_enter(struct sim *sim, bool waits);
enum sim_error sim_leave(struct sim *sim, enum sim_error error);
/* sim_copy, sim_await and sim_launch, of which the observer is not told. In a capture they put
 * nothing there, and return SIM_CAPTURED; the capture goes on. `argument` has at most
 * SIM_ARGUMENT_BYTES. */
enum sim_error sim_copy_unseen(struct sim_stream *stream, void *to, const void *from, size_t bytes);
enum sim_error sim_await_unseen(struct sim_stream *stream, const _Atomic uint64_t *word,
				uint64_t value);
enum sim_error sim_launch_unseen(struct sim_stream *stream, const struct sim_kernel *kernel,
				 const void *argument, size_t bytes);
/* sim_alloc and sim_free, also while a stream is captured; the capture stays valid. */
enum sim_error sim_alloc_relaxed(struct sim *sim, int device, size_t bytes, void **out);
enum sim_error sim_free_relaxed(struct sim *sim, void *address);
/* Set on the thread of host functions. */
extern _Thread_local bool sim_in_host_function;

/* ---- blocks.c ---- */

bool sim_blocks_open(struct sim_device *device, size_t bytes);
void sim_blocks_close(struct sim_device *device, size_t bytes);

#endif
