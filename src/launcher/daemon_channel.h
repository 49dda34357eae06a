/* SPDX-License-Identifier: BSD-3-Clause
 * What a launcher and its daemons on the hosts of a job send to each other, over standard input and
 * output of the daemon: first a line of the daemon in plain text, with its version, and then
 * frames. Then both ends have the same version, and so the same structs. Yet every length and every
 * number is checked. */
#ifndef LAUNCHER_DAEMON_CHANNEL_H
#define LAUNCHER_DAEMON_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "launcher/launcher_private.h"

enum {
	CHANNEL_FRAME_MAX = 8 << 20, /* an order has the arguments of the program */
	CHANNEL_NOISE_MAX = 1 << 16, /* what a login script may write before the daemon's line */
	CHANNEL_VERSION_BYTES = 32,
	/* Output of ranks that a daemon may send before the launcher has asked for more. So a
	 * frame that tells the end of a rank never waits behind output that nobody reads. */
	CHANNEL_CREDIT_BYTES = 1 << 20,
	CHANNEL_INPUT_BYTES = 1 << 16, /* of input that rank 0 has not taken yet */
	CHANNEL_NOTES_MAX = 1 << 16,   /* of one host */
};

enum channel_type {
	/* to the daemon */
	CHANNEL_ORDER = 1, /* struct channel_order, then its strings */
	CHANNEL_GO,        /* struct channel_go: start the ranks */
	CHANNEL_SIGNAL,    /* struct channel_signal */
	CHANNEL_CREDIT,    /* struct channel_credit */
	CHANNEL_SHUT,      /* struct channel_output: nobody reads this stream any more */
	CHANNEL_INPUT,     /* bytes for rank 0; none: the end */
	CHANNEL_END,       /* nothing; all ranks have ended, clean up */
	CHANNEL_COPY,      /* struct channel_copy: copy the state of the ranks, evidence.c */
	CHANNEL_FORGET,    /* nothing; drop that copy */
	CHANNEL_ASK,       /* nothing; send it, and the traces */
	CHANNEL_GONE,      /* struct channel_ended: of a rank of any host; tell ranks that meet */
	CHANNEL_PING,      /* nothing; send CHANNEL_ALIVE at once */
	/* from the daemon */
	CHANNEL_READY,   /* struct channel_ready: all that the order needs is here */
	CHANNEL_REFUSED, /* struct channel_refused; the daemon has said why on standard error */
	CHANNEL_STARTED, /* struct channel_started */
	CHANNEL_OUTPUT,  /* struct channel_output, then bytes; none: the end */
	CHANNEL_ENDED,   /* struct channel_ended */
	CHANNEL_TAKEN,   /* struct channel_credit: bytes of input; 0: rank 0 takes no more */
	CHANNEL_NOTES,   /* structs failure_run_note, before the end of the host's last rank */
	CHANNEL_STATE,   /* struct channel_state, at once after CHANNEL_ASK */
	CHANNEL_PART,    /* then the bytes of inspect_part_pack; none: the end */
	CHANNEL_ALIVE,   /* nothing */
	CHANNEL_LAST = CHANNEL_ALIVE,
};

enum { CHANNEL_SECRET_BYTES = 32, CHANNEL_ADDRESS_BYTES = 64, CHANNEL_RUN_ID_BYTES = 32 };

/* The strings that follow, each with its NUL: the working directory, `variables` entries of the
 * environment, `words` words of the command. */
struct channel_order {
	int32_t first, count, size; /* the ranks of this host, and how many there are in all */
	int32_t host, hosts;
	uint32_t variables, words;
	unsigned char secret[CHANNEL_SECRET_BYTES];
	char address[CHANNEL_ADDRESS_BYTES]; /* of the first host */
	char run_id[CHANNEL_RUN_ID_BYTES];
};

struct channel_go {
	uint32_t port;
};

struct channel_signal {
	int32_t number;
	uint32_t groups; /* 1: to all processes of the ranks, 0: to the ranks alone */
};

struct channel_credit {
	uint64_t bytes;
};

struct channel_ready {
	uint64_t host_key;
	uint32_t port; /* of the first host: free there; else 0 */
};

struct channel_refused {
	int32_t exit_status; /* what the launcher shall return */
};

struct channel_copy {
	uint32_t last; /* ranks are about to be told to end */
};

struct channel_state {
	uint64_t now_ns; /* clock_now_ns */
};

struct channel_started {
	int32_t pids[RANKS_HOST_MAX]; /* of the order's ranks in turn */
};

struct channel_output {
	int32_t rank;
	uint32_t stream; /* 0: standard output, 1: standard error */
};

struct channel_ended {
	int32_t rank, exit_code, signal;
	uint32_t dumped;
};

/* data[start, end) is on its way; start <= end <= capacity. */
struct channel_queue {
	char *data;
	size_t start, end, capacity;
};

struct launcher_channel {
	int in, out; /* the caller closes them; neither blocks */
	int poll_in, poll_out;
	bool ended;        /* the other side is gone, or has sent nonsense */
	bool wrong;        /* the other side has sent nonsense */
	uint64_t received; /* bytes so far */
	struct channel_queue from, to;
};

/* One whole frame. The payload is valid until the channel is read or stepped again. */
struct channel_frame {
	uint32_t type;
	uint32_t bytes;
	const char *payload;
};

/* Appends; false: no memory. */
bool launcher_channel_put(struct channel_queue *queue, const void *bytes, size_t count);
void launcher_channel_init(struct launcher_channel *channel, int in, int out);
void launcher_channel_fini(struct launcher_channel *channel);
void launcher_channel_poll(struct launcher_channel *channel, struct launcher_poll *set);
/* Reads and writes what can be without blocking. */
void launcher_channel_step(struct launcher_channel *channel, const struct launcher_poll *set);
/* Queues a frame of two parts, of which the second may be empty. Without memory the channel
 * ends. */
void launcher_channel_send(struct launcher_channel *channel, enum channel_type type,
			   const void *head, size_t head_bytes, const void *tail, size_t tail_bytes);
/* Writes what can be without blocking. */
void launcher_channel_flush(struct launcher_channel *channel);
/* Takes the next whole frame. False: none has come yet, or something else came (ended, wrong). */
bool launcher_channel_next(struct launcher_channel *channel, struct channel_frame *out);
/* Copies the fixed part of a payload; false if there is less of it. */
bool launcher_channel_copy(const struct channel_frame *frame, void *out, size_t bytes);

/* The daemon's first line. */
void launcher_channel_greet(struct launcher_channel *channel);
/* Takes that line, and what a login script wrote before it. 1: version[] is the other side's; 0:
 * the line has not come yet; -1: something else came, and the channel has ended. */
int launcher_channel_hear_greeting(struct launcher_channel *channel,
				   char version[CHANNEL_VERSION_BYTES]);

#endif
