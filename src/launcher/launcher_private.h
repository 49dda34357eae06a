/* SPDX-License-Identifier: BSD-3-Clause
 * The parts of the launcher: one process, one thread, one loop (loop.c) over signals, processes,
 * pipes and the rendezvous. child.c starts a rank; output.c moves the output of ranks; input.c
 * moves the terminal's input to rank 0; monitor.c holds what explains a failure; end_text.c
 * and outcome.c report how ranks and the job ended; guard.c cleans up after kill -9. */
#ifndef LAUNCHER_PRIVATE_H
#define LAUNCHER_PRIVATE_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <lockstep/status.h>

#include "base/ranks.h"
#include "base/settings.h"
#include "inspect/inspect.h"
#include "launcher/launcher.h"
#include "rendezvous/rendezvous.h"

enum {
	/* For a job on this host. A job on several has for each a channel, and the words of ssh. */
	LAUNCHER_FDS = 3 * RANKS_HOST_MAX + RENDEZVOUS_FDS_MAX + 8,
	LAUNCHER_LINE_MAX = 1 << 20,  /* a longer line is cut into several */
	LAUNCHER_QUEUE_MAX = 1 << 20, /* above this the launcher stops reading the ranks' pipes */
	LAUNCHER_READ_BYTES = 1 << 16,
	LAUNCHER_GRACE_MS = 3000, /* from the first failure to SIGTERM */
	LAUNCHER_TERM_MS = 2000,  /* from SIGTERM to SIGKILL */
	/* A failure within this time after a signal that asked the job to end counts as an effect
	 * of the signal. */
	LAUNCHER_SIGNAL_MS = LAUNCHER_GRACE_MS + LAUNCHER_TERM_MS,
	/* After the first news of a failure, how long news of another failure may come late from
	 * another host, which failed first. */
	LAUNCHER_ROUND_MS = 200,
	/* from SIGKILL until the launcher gives up pipes that other processes hold open */
	LAUNCHER_DRAIN_MS = 1000,
	/* after so many times LAUNCHER_DRAIN_MS the launcher gives up hosts whose ranks have not
	 * ended */
	LAUNCHER_KILL_ROUNDS = 5,
	/* What the report of a failure takes is less than half of it. */
	LAUNCHER_STACK_BYTES = 512 << 10,
};

_Static_assert(RANKS_HOSTS_MAX <= RANKS_HOST_MAX, "room for the descriptors of hosts");

/* Descriptors to poll. Code that adds one keeps its index until the next round. */
struct launcher_poll {
	struct pollfd fds[LAUNCHER_FDS];
	int count;
};

/* ---- output.c ---- */

/* The launcher's standard output or standard error. Text is in data[start, end); start <= end <=
 * capacity. */
struct launcher_sink {
	int fd;
	int poll;
	bool regular; /* a file: can always be written */
	bool closed;  /* its reader has closed it, or it cannot be written */
	bool lost;    /* it could not be written, such as on a full disk */
	bool color;
	char *data;
	size_t start, end, capacity;
};

/* One pipe from a rank. line[0, used) is an incomplete line; used <= capacity <=
 * LAUNCHER_LINE_MAX. */
struct launcher_stream {
	int fd; /* -1 after its end */
	int log_fd;
	int rank;
	int poll;
	bool prefix;
	bool lost;         /* some of its text could not be written */
	bool fed;          /* gets its text by launcher_output_feed, and has not ended */
	const char *label; /* stands for the rank in the prefix, NULL: nothing does */
	struct launcher_sink *sink;
	char *line;
	size_t used, capacity;
};

struct launcher_output {
	struct launcher_sink sinks[2];
	struct launcher_stream streams[RANKS_WORLD_MAX][2];
	int ranks;
};

/* Opens the log files, if `log_dir` is not NULL. Streams have no descriptors yet. LS_SYSTEM and
 * LS_OUT_OF_MEMORY come with a message. */
LS_CHECKED ls_status launcher_output_init(struct launcher_output *output,
					  const struct settings *settings, int ranks, bool prefix,
					  const char *log_dir);
void launcher_output_fini(struct launcher_output *output);
void launcher_output_poll(struct launcher_output *output, struct launcher_poll *set);
/* Moves what can be moved without blocking. */
void launcher_output_step(struct launcher_output *output, const struct launcher_poll *set);
/* Takes text of a stream without a descriptor; no bytes: its end. False: nobody reads the stream
 * any more. */
bool launcher_output_feed(struct launcher_stream *stream, const char *data, size_t bytes);
/* Whether so little text waits for its reader that more may come. */
bool launcher_output_has_room(const struct launcher_output *output);
/* Whether all pipes are at their end; whether all text has been written. */
bool launcher_output_ended(const struct launcher_output *output);
bool launcher_output_written(const struct launcher_output *output);
/* Whether text is lost although its reader has not gone away. A message has said so. */
bool launcher_output_lost(const struct launcher_output *output);
/* close: gives up pipes that other processes hold open. drop: gives up text that could not be
 * written. */
void launcher_output_close(struct launcher_output *output);
void launcher_output_drop(struct launcher_output *output);

/* ---- input.c ---- */

/* A terminal's input on its way to rank 0. Ranks are process groups of their own, and so in the
 * background of the terminal, where reading would stop them. data[start, end) is on its way. */
struct launcher_input {
	int fd;  /* the terminal, -1: rank 0 has the launcher's standard input itself */
	int out; /* the pipe to rank 0, -1 after its end */
	int poll_in, poll_out;
	bool at_end;
	size_t start, end;
	char data[4096];
};

/* *child: the standard input of rank 0; the caller closes it if it is not STDIN_FILENO. */
LS_CHECKED ls_status launcher_input_init(struct launcher_input *input, int *child);
void launcher_input_fini(struct launcher_input *input);
void launcher_input_poll(struct launcher_input *input, struct launcher_poll *set);
void launcher_input_step(struct launcher_input *input, const struct launcher_poll *set);

/* ---- guard.c ---- */

struct launcher_guard {
	pid_t pid;
	int pidfd;
	int fd; /* ranks write their process ids to it before they become the program */
};

LS_CHECKED ls_status launcher_guard_start(struct launcher_guard *guard);
/* Ends the guard; afterwards no process cleans up after the launcher. */
void launcher_guard_stop(struct launcher_guard *guard);

/* ---- child.c ---- */

struct launcher_rank {
	pid_t pid; /* its process and its process group; a zombie until the job is over */
	int pidfd;
	int poll;
	bool ended;
	int order;             /* in which the ends were found, from 0 */
	bool ended_after_term; /* the launcher had sent it SIGTERM or SIGKILL before it ended */
	bool dumped;           /* core */
	bool lost;             /* its host is lost; then exit_code is 1 */
	bool news;             /* on several hosts: it has ended, and the loop does not know yet */
	bool told;             /* on several hosts: all ranks were told that it has ended */
	pid_t remote_pid;      /* on several hosts; pid is unused there */
	int exit_code;         /* -1 if a signal ended it */
	int signal;            /* 0 if none did */
};

struct launcher_start {
	char *const *command;
	int ranks;       /* of this host: first to first + ranks - 1 of size */
	int first, size; /* first + ranks <= size */
	int host, hosts;
	char rendezvous[RENDEZVOUS_ADDRESS_BYTES * 2]; /* abstract name; "": at the master's port */
	char run_id[32];
	char master_addr[RENDEZVOUS_ADDRESS_BYTES];
	uint16_t master_port;
	int secret_fd;                /* without a rendezvous: a file with the secret of the job */
	int notes_fd;                 /* a file for notes of its ranks (failure/run_notes.h) */
	sigset_t mask;                /* the launcher's own, when it was started */
	struct sigaction broken_pipe; /* that of SIGPIPE, when the launcher was started */
	struct sigaction file_limit;  /* that of SIGXFSZ */
	struct sigaction child_end;   /* that of SIGCHLD */
	struct rlimit stack;          /* the limit of the stack, when the launcher was started */
	int guard_fd;
};

/* Sets what this process does with these three signals, and keeps what its caller had set. False,
 * with errno. */
bool launcher_start_signals(struct launcher_start *start);
/* Sees to it that this process has LAUNCHER_STACK_BYTES of stack, and keeps the limit that its
 * caller had set. Errors, with a message: LS_SYSTEM. */
LS_CHECKED ls_status launcher_start_stack(struct launcher_start *start);
/* In a new process, before its program begins: sets signals, the mask and the limit as the caller
 * had. False, with errno. */
bool launcher_start_restore(const struct launcher_start *start);
/* Fills in a new run_id, rendezvous, master_addr, master_port and notes_fd. */
LS_CHECKED ls_status launcher_start_init(struct launcher_start *start);
/* A port that is free now at this address of this host, for programs that open a store of their own
 * at MASTER_PORT. Nobody can keep it free for them; that another program takes it in between is
 * unlikely, and they will say so. Errors come with a message. */
LS_CHECKED ls_status launcher_find_port(const char *address, uint16_t *out);
/* The value of an environment variable of this process; NULL: it has none. */
const char *launcher_variable(const char *name);
/* Whether the program of start->command is there and may be run, as launcher_child_start would find
 * it. If not, a message was said, and *exit_status is what the launcher shall return. */
LS_CHECKED ls_status launcher_program_check(const struct launcher_start *start, int *exit_status);

/* Starts one rank: fills *out and the descriptors of streams[0] and [1]. LS_OK: the program runs.
 * Otherwise nothing runs, a message was said, and *exit_status is what the launcher shall
 * return. */
LS_CHECKED ls_status launcher_child_start(const struct launcher_start *start, int rank,
					  int stdin_fd, struct launcher_rank *out,
					  struct launcher_stream streams[2], int *exit_status);
/* Whether the rank has ended; then fills in how. It stays a zombie until launcher_bury. */
bool launcher_child_ended(struct launcher_rank *rank);
/* Kills what is left of the ranks' process groups, stops the guard and reaps the ranks. */
void launcher_bury(struct launcher_rank *ranks, int started, struct launcher_guard *guard);

/* ---- loop.c ---- */

enum launcher_ending {
	LAUNCHER_NORMAL, /* the job is not ending */
	LAUNCHER_GRACE,  /* a rank has failed; or all have ended, and a process holds their pipes */
	LAUNCHER_TERM,
	LAUNCHER_KILL,
};

struct launcher_job {
	struct settings settings;
	struct launcher_hosts *hosts; /* NULL: all ranks are children of this process */
	uint64_t round_end_ns;        /* see LAUNCHER_ROUND_MS */
	int kill_rounds;              /* see LAUNCHER_KILL_ROUNDS */
	struct launcher_start start;
	struct launcher_output output;
	struct launcher_input input;
	struct launcher_guard guard;
	struct launcher_rank ranks[RANKS_WORLD_MAX];
	int count; /* how many to start */
	int started;
	int ended;
	int first; /* the rank that failed first, -1 */
	uint64_t timeout_ms;
	enum launcher_ending ending;
	uint64_t ending_until_ns; /* when its next stage begins by itself */
	uint64_t timeout_ns;      /* CLOCK_NEVER: none */
	bool timed_out;
	bool killed;    /* by a second SIGINT */
	int interrupts; /* SIGINTs so far */
	int forwarded;  /* the last signal that asks to end and was passed on, 0: none */
	bool hurried;   /* a signal that asks to end has come */
	/* when the job counts as having survived the last such signal, CLOCK_NEVER: none came */
	uint64_t signal_end_ns;
	int signal_fd, signal_poll;
	struct rendezvous_server *server;
	bool met; /* all ranks have come to the rendezvous */
	int server_poll, server_fds;
	/* The job's memory, as other processes see it. Held so that it can be read after the ranks
	 * have ended. */
	struct inspect_view *view; /* NULL before the ranks have met, and on several hosts */
	uint64_t look_ns;          /* when to look for segments again, CLOCK_NEVER: all are there */
	uint64_t look_pause_ns;
	struct inspect_report *report; /* the state at the time of the failure, NULL: none taken */
	bool frozen;                   /* nothing is added to the report any more */
	const char *log_dir;
	bool phases; /* (ls_phase) print at the end on what ranks spent their time */
	/* The file for the traces, however the job ends; NULL and -1: none. It is opened before the
	 * job begins: a file that cannot be written shall not cost a run. */
	const char *trace_path;
	int trace_fd;
};

/* Runs until all ranks have ended and what they wrote is written. */
LS_CHECKED ls_status launcher_loop(struct launcher_job *job);
/* Kills all ranks; the loop is still needed to see them end. */
void launcher_loop_kill(struct launcher_job *job);

/* ---- daemon_check.c ---- */

/* Whether ranks that start now would find UCX and libsodium. If not, a message was said. */
bool launcher_has_libraries(void);

/* ---- daemons.c; hosts_start.c, hosts_end.c: how a job on several hosts begins and ends ---- */

/* Starts a daemon on each host, lets all check what they need, and then start their ranks. If one
 * cannot, nothing is started, all errors are said, and *exit_status is the launcher's. */
LS_CHECKED ls_status launcher_hosts_start(struct launcher_job *job,
					  const struct launcher_options *options, int *exit_status);
/* Ends the daemons and with them what their ranks have left; then frees. NULL is allowed. */
void launcher_hosts_free(struct launcher_hosts *hosts);
/* The functions from here on do nothing without hosts. */
void launcher_hosts_poll(struct launcher_job *job, struct launcher_poll *set);
void launcher_hosts_step(struct launcher_job *job, const struct launcher_poll *set);
void launcher_hosts_signal(struct launcher_job *job, int number, bool groups);
/* Tells all hosts that this rank has ended; only with hosts. */
void launcher_hosts_tell_ended(struct launcher_job *job, int rank);
/* Hosts that have not told the end of all their ranks count as lost. */
void launcher_hosts_give_up(struct launcher_job *job);
/* hosts_silence.c. Call after launcher_hosts_step, at this time at the latest. */
uint64_t launcher_hosts_deadline(const struct launcher_job *job);
void launcher_hosts_watch(struct launcher_job *job, uint64_t now_ns);
/* hosts_gather.c; only with hosts. Has each host copy the state of its ranks, unless it has (last:
 * ranks are about to be told to end), or drop the copy. */
void launcher_hosts_copy(struct launcher_job *job, bool last);
void launcher_hosts_forget(struct launcher_job *job);
/* Fetches these copies and the traces, and makes job->report of them; NULL if no ranks have met.
 * Blocks for at most 20 s, or until a signal comes. Call when all ranks have ended, once. */
void launcher_hosts_gather(struct launcher_job *job);
/* What the user calls the host of this rank. */
const char *launcher_hosts_name(const struct launcher_job *job, int rank);

/* ---- notes.c ---- */

/* A file for notes of ranks (failure/run_notes.h), for the launcher or a daemon; -1, with errno. */
int launcher_notes_open(void);
/* The ranks of which ls_group_open failed because of another rank. On several hosts a host's notes
 * come when its last rank has ended. */
void launcher_notes_followers(const struct launcher_job *job, struct ranks *out);
/* A rank that noted what report_unreturned (outcome.c) tells; -1: none. Only with hosts. */
int launcher_notes_find_unreturned(const struct launcher_job *job);

/* ---- monitor.c ---- */

/* Serves the rendezvous, and keeps what is needed to explain a failure later. */
void launcher_monitor_poll(struct launcher_job *job, struct launcher_poll *set);
void launcher_monitor_step(struct launcher_job *job, uint64_t now_ns);
uint64_t launcher_monitor_deadline(const struct launcher_job *job);
/* A rank has ended: if the others still wait for it in the rendezvous, they get an error. */
void launcher_monitor_ended(struct launcher_job *job, int rank);
/* Takes the state of all ranks, the first time it is called. */
void launcher_monitor_collect(struct launcher_job *job);
/* Call before telling ranks to end: what they report from then on is about their end, and not about
 * what was wrong before. Takes the state, unless that was done before, with the lines of Python at
 * which late ranks are. For these lines it blocks for at most 400 ms, as a rule for 10. */
void launcher_monitor_freeze(struct launcher_job *job);
/* Drops the state, so that it can be taken anew. */
void launcher_monitor_thaw(struct launcher_job *job);

/* ---- end_text.c ---- */

enum { LAUNCHER_HOW_BYTES = 96 };

/* Whether a rank that has ended did so by a signal or with another status than 0. */
bool launcher_has_failed(const struct launcher_rank *rank);
/* "was killed by SIGKILL (9)", "then exited with 1". several: of several ranks that ended alike.
 * then: after something else that the sentence tells. */
void launcher_how_ended(const struct launcher_rank *rank, bool several, bool then, char *out,
			size_t bytes);
/* "rank 2 (pid 123) was killed by SIGKILL (9)" */
void launcher_end_text(const struct launcher_job *job, int rank, char *out, size_t bytes);

/* ---- outcome.c ---- */

/* Takes the rank that the survivors blame as the one that failed first. */
void launcher_note_cause(struct launcher_job *job);
/* Opens and empties the file for the traces, if there is to be one. */
LS_CHECKED ls_status launcher_end_prepare(struct launcher_job *job);
/* Says how the job ended, if it ended badly, and on what it spent its time, if the user asked for
 * that. Writes the snapshot and the traces. Returns the exit status. */
int launcher_end_report(struct launcher_job *job);

#endif
