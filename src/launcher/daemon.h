/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of a daemon (daemon.c): what rank 0 reads, and what explains a failure later. */
#ifndef LAUNCHER_DAEMON_H
#define LAUNCHER_DAEMON_H

#include "inspect/inspect.h"
#include "launcher/daemon_channel.h"

/* ---- daemon_input.c ---- */

/* Standard input of rank 0, as the launcher sends it. */
struct launcher_daemon_input {
	int fd, poll;               /* a pipe to the rank; -1: its end has come */
	struct channel_queue queue; /* what is to be written to it */
	bool ends;                  /* after `queue` */
};

/* Makes the pipe. Returns its read end, which rank 0 gets; -1, with a message: there is none. */
int launcher_daemon_input_open(struct launcher_daemon_input *input);
/* Takes CHANNEL_INPUT. False: it is more than the launcher may send. */
bool launcher_daemon_input_hear(struct launcher_daemon_input *input,
				const struct channel_frame *frame);
void launcher_daemon_input_poll(struct launcher_daemon_input *input, struct launcher_poll *set);
/* Writes what can be without blocking, and tells the launcher how much rank 0 has taken. */
void launcher_daemon_input_step(struct launcher_daemon_input *input,
				const struct launcher_poll *set, struct launcher_channel *channel);

/* ---- daemon_silence.c ---- */

/* Whether the network to the launcher is cut, while ranks run. */
struct launcher_daemon_silence {
	bool knows; /* which connection leads to the launcher */
	uint8_t family;
	uint16_t near_port, far_port; /* as the network has them, like the addresses */
	uint32_t near[4], far[4];
	uint64_t limit_ms, looked_ns, silent_ns;
	uint64_t received; /* channel.received at the last look */
};

/* Call once the environment is that of the ranks. */
void launcher_daemon_silence_init(struct launcher_daemon_silence *silence);
/* When to look next. */
uint64_t launcher_daemon_silence_deadline(const struct launcher_daemon_silence *silence);
/* True, with a message: the launcher cannot be reached any more, so the ranks are to end. Sends
 * something if nothing has come. */
bool launcher_daemon_silence_look(struct launcher_daemon_silence *silence,
				  struct launcher_channel *channel);

/* ---- evidence.c ---- */

/* What a daemon keeps of the ranks of its host: it holds their traces and segments, copies their
 * state the moment something goes wrong, and at the end sends both to the launcher. On one host
 * monitor.c does the same, and gets the traces in the rendezvous; here ranks connect to the daemon
 * (failure/run_notes.h). */
struct launcher_evidence {
	const struct launcher_rank *ranks; /* of this host: first to first + count - 1 */
	int first, count;
	int listener, poll; /* ranks hand their memory over there; -1: they cannot */
	/* Connections over which nothing has come yet, the oldest first. As many as there may be
	 * ranks: one more closes the oldest. */
	struct launcher_caller {
		int fd, poll;
	} callers[RANKS_HOST_MAX];
	int caller_count;
	struct inspect_view *view;     /* NULL: nothing is held */
	struct inspect_report *report; /* NULL: nothing has gone wrong */
	bool frozen;                   /* nothing is added to the report any more */
	bool tells;                    /* the launcher has asked */
	char *part;                    /* what it gets, inspect_part_pack */
	size_t part_bytes, sent_bytes;
};

/* `ranks` must stay valid. notes_fd: the file of notes, which names the socket. Never fails: what
 * cannot be kept is missing in the report. */
void launcher_evidence_init(struct launcher_evidence *evidence, const struct launcher_rank *ranks,
			    int first, int count, int notes_fd);
void launcher_evidence_fini(struct launcher_evidence *evidence);
void launcher_evidence_poll(struct launcher_evidence *evidence, struct launcher_poll *set);
/* Holds the memory of ranks that have met. */
void launcher_evidence_step(struct launcher_evidence *evidence, const struct launcher_poll *set);
/* Copies the state of the ranks, unless that was done before. last: ranks are about to be told to
 * end, so what they report later is not added. */
void launcher_evidence_copy(struct launcher_evidence *evidence, bool last);
/* Drops the copy: what had gone wrong has not ended the job. */
void launcher_evidence_forget(struct launcher_evidence *evidence);
/* Answers CHANNEL_ASK. */
void launcher_evidence_tell(struct launcher_evidence *evidence, struct launcher_channel *channel);
/* Queues more of the answer while the channel's queue is short. */
void launcher_evidence_send(struct launcher_evidence *evidence, struct launcher_channel *channel);

#endif
