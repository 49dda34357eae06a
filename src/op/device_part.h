/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of an operation that concern its device. For op.h. */
#ifndef OP_DEVICE_PART_H
#define OP_DEVICE_PART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/buffer.h"

struct driver;
struct op_workspace;
struct trace;

/* The part of an operation that uses memory of a device: see device.c. */
enum op_device_state {
	OP_DEVICE_NONE, /* all buffers are host memory */
	OP_DEVICE_FETCHING,
	OP_DEVICE_RUNNING,
	OP_DEVICE_DELIVERING,
};
struct op_device {
	enum op_device_state state;
	struct buffer send, recv; /* the caller's; op->call has their copies in host memory */
	void *send_block, *recv_block;
	struct op_workspace *workspace;
	struct driver *driver; /* the driver that was called last */
	/* The device counts completed copies here. For a collective it is engine->device_done,
	 * because the progress thread may read it after the operation, on a caller's stack, has
	 * ended; otherwise own_done. */
	_Atomic uint64_t *done, own_done;
	uint64_t issued, stored; /* copies issued; how many of these a store to `done` follows */
};

/* Words that streams read, and threads that wait for streams. A thread may read a word once more
 * after the operation has ended; the progress thread, also after the group is closed. So the words
 * stay until the device is closed. */
struct op_stream_words {
	struct op_stream_words *next; /* in the list of words that no operation uses */
	_Atomic uint64_t launching;   /* 1: a thread enqueues the operation, or none will */
	_Atomic uint64_t launched;    /* 0 until all is enqueued on the stream, then 1 + status */
	_Atomic uint64_t fetched;     /* 1: the device has copied this rank's input */
	_Atomic uint64_t arrived;     /* 1: the stream continues */
	_Atomic uint64_t own_done;    /* 1: as *done, if the store to *done was refused */
};

/* The part of an operation that a stream of the program runs: see stream.h. */
struct op_stream {
	bool on;               /* from op_stream_prepare to op_stream_end */
	struct driver *driver; /* stays, as the words do */
	void *handle;          /* the stream's */
	struct trace *trace;   /* of the rank */
	struct op_stream_words *words;
	/* Written before `launched`. The device is done when *done >= number. has_enqueued: the
	 * stream has at least a part; stored: it has the last store. */
	_Atomic uint64_t *done;
	uint64_t number;
	bool has_enqueued, stored;
	bool own_stored; /* the stream has a store to own_done, after the last store was refused */
	bool lost; /* peers may still touch the blocks, which therefore are never used again */
	/* An engine has put it there, where its buffers are (engine/engine_ops.h). After a failure:
	 * what it has put there will end. */
	bool by_engine, withdrawn;
};

#endif
