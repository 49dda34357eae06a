/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of `lockstep run`: one process, one thread, one loop (run_loop.c) over signals, processes,
 * pipes and the rendezvous. run_child.c starts a rank, run_output.c moves what ranks write, run_input.c
 * what the terminal says to rank 0, run_end.c says how it ended, run_guard.c cleans up after kill -9. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <lockstep/status.h>

#include "base/settings.h"
#include "inspect/inspect.h"
#include "rendezvous/rendezvous.h"

enum {
	RUN_RANK_MAX = RENDEZVOUS_SIZE_MAX,
	RUN_FDS = 3 * RUN_RANK_MAX + RENDEZVOUS_FDS_MAX + 8,
	RUN_LINE_MAX = 1 << 20,  /* a longer line is cut into several */
	RUN_QUEUE_MAX = 1 << 20, /* above this the ranks' pipes are left full */
	RUN_READ_BYTES = 1 << 16,
	RUN_GRACE_MS = 3000,    /* from the first failure to SIGTERM */
	RUN_TERM_MS = 2000,     /* from SIGTERM to SIGKILL */
	RUN_DRAIN_MS = 1000,    /* from SIGKILL until pipes that somebody else holds are given up */
	RUN_EXIT_TIMEOUT = 124, /* as timeout(1) */
	RUN_EXIT_CANNOT_EXECUTE = 126,
	RUN_EXIT_NOT_FOUND = 127,
};

/* Descriptors to poll. Whoever adds one keeps its index until the next round. */
struct run_poll {
	struct pollfd fds[RUN_FDS];
	int count;
};

/* ---- run_output.c ---- */

/* Where lines go: standard output or standard error of the launcher. Text lies in
 * data[start, end); start <= end <= capacity. */
struct run_sink {
	int fd;
	int poll;
	bool regular; /* a file: can always be written */
	bool closed;  /* its reader has gone */
	bool color;
	char *data;
	size_t start, end, capacity;
};

/* One pipe from a rank. line[0, used) is the beginning of a line whose end has not come;
 * used <= capacity <= RUN_LINE_MAX. */
struct run_stream {
	int fd; /* -1 after its end */
	int log_fd;
	int rank;
	int poll;
	bool prefix;
	struct run_sink *sink;
	char *line;
	size_t used, capacity;
};

struct run_output {
	struct run_sink sinks[2];
	struct run_stream streams[RUN_RANK_MAX][2];
	int ranks;
};

/* Opens the log files, if `log_dir` is not NULL. Streams have no descriptors yet. LS_SYSTEM and
 * LS_OUT_OF_MEMORY come with a message. */
LS_CHECKED ls_status cli_output_init(struct run_output *output, const struct settings *settings,
				     int ranks, bool prefix, const char *log_dir);
void cli_output_fini(struct run_output *output);
void cli_output_poll(struct run_output *output, struct run_poll *set);
/* Moves what can be moved without blocking. */
void cli_output_step(struct run_output *output, const struct run_poll *set);
/* All pipes are at their end; and everything has been written, too. */
bool cli_output_ended(const struct run_output *output);
bool cli_output_written(const struct run_output *output);
/* Gives up pipes that somebody still holds open; and what could not be written. */
void cli_output_close(struct run_output *output);
void cli_output_drop(struct run_output *output);

/* ---- run_input.c ---- */

/* A terminal's input on its way to rank 0. Ranks are process groups of their own, and so in the
 * background of the terminal, where reading would stop them. data[start, end) is on its way. */
struct run_input {
	int fd;  /* the terminal, -1: rank 0 has the launcher's standard input itself */
	int out; /* the pipe to rank 0, -1 after its end */
	int poll_in, poll_out;
	bool at_end;
	size_t start, end;
	char data[4096];
};

/* *child: what rank 0 gets as standard input; the caller closes it if it is not STDIN_FILENO. */
LS_CHECKED ls_status cli_input_init(struct run_input *input, int *child);
void cli_input_fini(struct run_input *input);
void cli_input_poll(struct run_input *input, struct run_poll *set);
void cli_input_step(struct run_input *input, const struct run_poll *set);

/* ---- run_guard.c ---- */

struct run_guard {
	pid_t pid;
	int pidfd;
	int fd; /* ranks write their process ids to it before they become the program */
};

LS_CHECKED ls_status cli_guard_start(struct run_guard *guard);
/* Ends the guard; from here on nobody cleans up after the launcher. */
void cli_guard_stop(struct run_guard *guard);

/* ---- run_child.c ---- */

struct run_rank {
	pid_t pid; /* its process and its process group; a zombie until the job is over */
	int pidfd;
	int poll;
	bool ended;
	int order;     /* in which the ends were found, from 0 */
	bool told;     /* the launcher had begun to end the job before this rank ended */
	bool dumped;   /* core */
	int exit_code; /* -1 if a signal ended it */
	int signal;    /* 0 if none did */
};

struct run_start {
	char *const *command;
	int ranks;
	char rendezvous[RENDEZVOUS_ADDRESS_BYTES * 2]; /* abstract name */
	char run_id[32];
	uint16_t master_port;
	sigset_t mask;                /* the launcher's own when it was started */
	struct sigaction broken_pipe; /* likewise */
	int guard_fd;
};

/* Fills run_id, rendezvous and master_port with fresh ones. */
LS_CHECKED ls_status cli_start_init(struct run_start *start);

/* Starts one rank: fills *out and the descriptors of streams[0] and [1]. LS_OK: the program runs.
 * Otherwise nothing runs, a message was said, and *exit_status is what the launcher shall return. */
LS_CHECKED ls_status cli_child_start(const struct run_start *start, int rank, int stdin_fd,
				     struct run_rank *out, struct run_stream streams[2],
				     int *exit_status);

/* ---- run_loop.c ---- */

enum run_phase {
	RUN_NORMAL,
	RUN_GRACE, /* a rank has failed, or all have ended and somebody holds their pipes */
	RUN_TERM,
	RUN_KILL,
};

struct run_job {
	struct settings settings;
	struct run_start start;
	struct run_output output;
	struct run_input input;
	struct run_guard guard;
	struct run_rank ranks[RUN_RANK_MAX];
	int count; /* how many to start */
	int started;
	int ended;
	int first; /* the rank that failed first, -1 */
	uint64_t timeout_ms;
	enum run_phase phase;
	uint64_t phase_end_ns; /* when the next phase begins by itself */
	uint64_t timeout_ns;   /* CLOCK_NEVER: none */
	bool timed_out;
	bool killed;    /* by a second SIGINT */
	int interrupts; /* SIGINTs so far */
	int forwarded;  /* the last signal that asks to end and was passed on, 0: none */
	bool hurried;   /* a signal that asks to end has come */
	int signal_fd, signal_poll;
	struct rendezvous_server *server;
	bool met; /* all ranks have come to it */
	int server_poll, server_fds;
	/* What others see of the job's memory, held so that it can be read after the ranks' end. */
	struct inspect_view *view; /* NULL before the ranks have met */
	uint64_t look_ns;          /* when to look for segments again, CLOCK_NEVER: all are there */
	uint64_t look_pause_ns;
	struct inspect_report *report; /* the state at the time of the failure, NULL: none taken */
	bool frozen;                   /* nothing is added to it any more */
	const char *log_dir;
	bool phases; /* what ranks spent their time on is said at the end */
	/* Where the traces are kept at the end, however it ends; NULL and -1: nowhere. It is opened before the
	 * job begins: a file that cannot be written shall not cost a run. */
	const char *trace_path;
	int trace_fd;
};

/* Runs until all ranks have ended and what they wrote is written. */
LS_CHECKED ls_status cli_loop(struct run_job *job);
/* Kills all ranks; the loop is still needed to see them end. */
void cli_loop_kill(struct run_job *job);

/* ---- run_watch.c ---- */

/* Serves the rendezvous, and keeps what is needed to explain a failure later. */
void cli_watch_poll(struct run_job *job, struct run_poll *set);
void cli_watch_step(struct run_job *job, uint64_t now_ns);
uint64_t cli_watch_deadline(const struct run_job *job);
/* A rank has ended: if the others still wait for it to come, they are told. */
void cli_watch_ended(struct run_job *job, int rank);
/* Takes the state of all ranks, the first time it is called. */
void cli_watch_collect(struct run_job *job);
/* Call before telling ranks to end: what they report from then on is about that and not about what was
 * wrong before. Takes the state if nobody has. */
void cli_watch_freeze(struct run_job *job);

/* ---- run_end.c ---- */

/* "rank 2 (pid 123) was killed by SIGKILL (9)" */
void cli_end_text(const struct run_job *job, int rank, char *out, size_t bytes);
/* Opens and empties the file for the traces, if there is to be one. */
LS_CHECKED ls_status cli_end_prepare(struct run_job *job);
/* Says how the job ended, if it ended badly, and what its time went into, if that was asked for; writes the
 * snapshot and the traces; returns the exit status. */
int cli_end_report(struct run_job *job);

#endif
