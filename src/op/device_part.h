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
	struct driver *driver; /* the one that was called last */
	/* The device counts completed copies here. For a collective it is engine->device_done,
	 * because the progress thread may read it after the operation, on a caller's stack, has
	 * ended; otherwise own_done. */
	_Atomic uint64_t *done, own_done;
	uint64_t issued, stored; /* copies issued; those of them that a store to `done` follows */
};

/* Read by streams, and by threads that wait for them. A thread may read one once more after the
 * operation has ended, the progress thread also when the group is closed. So they stay until the
 * device is closed. */
struct op_stream_words {
	struct op_stream_words *next; /* of those that are in no operation */
	_Atomic uint64_t claimed;     /* 1: a thread puts it behind the stream, or none will */
	_Atomic uint64_t launched;    /* 0 until all is behind the stream, then 1 + status */
	_Atomic uint64_t fetched;     /* 1: the device has copied this rank's input */
	_Atomic uint64_t arrived;     /* 1: the stream continues */
	_Atomic uint64_t own_done;    /* 1: as *done, if that store was refused */
};

/* The part of an operation that takes its turn in a stream of the program's: see stream.h. */
struct op_stream {
	bool on;               /* from op_stream_prepare to op_stream_end */
	struct driver *driver; /* stays, as the words do */
	void *handle;          /* the stream's */
	struct trace *trace;   /* of the rank */
	struct op_stream_words *words;
	/* Written before `launched`. The device is done when *done >= number. has_put: the stream
	 * has at least a part; stored: it has the last store. */
	_Atomic uint64_t *done;
	uint64_t number;
	bool has_put, stored;
	bool own_stored; /* after that store was refused: one to own_done is there */
	bool lost; /* peers may still touch the blocks, which therefore are never used again */
};

#endif
