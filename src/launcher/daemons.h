/* SPDX-License-Identifier: BSD-3-Clause
 * The hosts of a job as its launcher sees them: a daemon on each (daemon.c), started by ssh or as a
 * child, and a channel to it. For daemons.c and hosts_start.c. */
#ifndef LAUNCHER_DAEMONS_H
#define LAUNCHER_DAEMONS_H

#include "launcher/daemon_channel.h"
#include "launcher/launcher_private.h"

enum {
	LAUNCHER_HOST_WORDS_BYTES = 4096, /* what a daemon and ssh write before the ranks begin */
	LAUNCHER_HOST_START_MS = 60000,   /* until all daemons have answered */
	LAUNCHER_HOST_END_MS = 3000,      /* until all daemons have ended */
};

enum launcher_host_state {
	LAUNCHER_HOST_BAD,     /* its name cannot be used, or no process could be started */
	LAUNCHER_HOST_STARTED, /* the daemon's first line is awaited */
	LAUNCHER_HOST_ASKED,   /* the daemon has the order */
	LAUNCHER_HOST_READY,   /* the host has all that the order needs */
	LAUNCHER_HOST_REFUSED, /* it lacks something, or could not start its ranks */
	LAUNCHER_HOST_OTHER,   /* its daemon has another version */
	LAUNCHER_HOST_RUNS,    /* its ranks run, or are about to */
	LAUNCHER_HOST_GONE,    /* the channel has ended */
};

struct launcher_host {
	const char *name; /* as the user gave it; points into the options */
	int first, count; /* its ranks */
	char address[RENDEZVOUS_ADDRESS_BYTES];
	bool is_here; /* the address is one of this host: no ssh */
	enum launcher_host_state state;
	pid_t pid; /* ssh, or the daemon itself; leads a process group; 0: none */
	int pidfd;
	struct launcher_channel channel;
	char version[CHANNEL_VERSION_BYTES];
	uint64_t host_key;
	uint32_t port;
	int exit_status;            /* REFUSED: what the launcher shall return */
	struct channel_queue notes; /* structs failure_run_note */
	/* What it told of its ranks at the end, has_told: all of it. asked_ns: when it was asked,
	 * 0: not yet. Its clock as in struct inspect_part; error_ns 0: it has not answered. */
	struct channel_queue part;
	bool has_told;
	uint64_t asked_ns, error_ns;
	int64_t offset_ns;
	bool has_started; /* it has told the processes of its ranks */
	/* hosts_silence.c: whether it owes an answer; how long nothing has come since; whether that
	 * was reported; channel.received at the last look. */
	bool is_pinged, is_silent;
	uint64_t silent_ns, received;
	uint64_t owed; /* bytes of output that were taken, and not yet credited to the daemon */
	/* Standard error of ssh and the daemon: kept until the ranks begin, then passed on. */
	int words_fd, words_poll;
	char words[LAUNCHER_HOST_WORDS_BYTES];
	size_t words_used; /* < LAUNCHER_HOST_WORDS_BYTES */
	struct launcher_stream stream;
};

struct launcher_hosts {
	int count;
	/* What rank 0 is to read, -1 after its end, and how much of it may be sent. */
	int input_fd, input_poll;
	uint64_t input_room;
	uint64_t ping_ns, watched_ns; /* hosts_silence.c: of the next ping and the last look */
	struct launcher_host hosts[RANKS_HOSTS_MAX];
};

/* ---- hosts_call.c ---- */

/* Starts the daemon of a host, by ssh if it is another one. False, with a message: that failed. */
bool launcher_host_call(const struct launcher_job *job, struct launcher_host *host,
			const struct launcher_options *options);
/* The strings of the order, on the heap, and how many variables and words they have. NULL, with a
 * message: no memory, or the folder of this process has no name any more. */
char *launcher_order_strings(const struct launcher_options *options, struct channel_order *order,
			     size_t *bytes);

/* ---- daemons.c ---- */

/* Gives up what rank 0 is to read. */
void launcher_hosts_end_input(struct launcher_hosts *hosts);
/* Reads the host's words that have come; closes words_fd at their end. */
void launcher_host_read_words(struct launcher_host *host);
/* Says each line of its words by itself, with the host's name, and forgets them. */
void launcher_host_say_words(struct launcher_host *host);
/* Waits up to `limit_ms` until the process has ended and all its words are read. */
void launcher_host_await(struct launcher_host *host, uint64_t limit_ms);
/* "ranks 2-3" */
void launcher_host_ranks_text(const struct launcher_host *host, char *out, size_t bytes);
/* Closes the connection to a silent host; its ranks count as lost. Its daemon ends those that it
 * still has as soon as it learns of that. */
void launcher_host_give_up(struct launcher_job *job, struct launcher_host *host);
/* "ssh ended with 255", of a process that launcher_host_await has awaited. */
void launcher_host_end_text(const struct launcher_host *host, char *out, size_t bytes);

#endif
