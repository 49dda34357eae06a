/* SPDX-License-Identifier: BSD-3-Clause
 * From snapshots of all ranks to one verdict. diagnose_judge and diagnose_text are pure functions
 * over flat data: no I/O, no clock, no pointers into anybody's memory. diagnose_collect is the one
 * part that looks at the world: it copies traces, evaluates what each thread waits for, and looks
 * into /proc.
 *
 * A deadlock is proved, never guessed: all wait slots are read, then every awaited word, then all
 * slots again. Same epochs, all conditions false, and every thread that ever called Lockstep in
 * each rank of the set blocked on the set: then nobody in it can store anything, so nothing can
 * change. A thread that is merely stopped or not yet scheduled has a condition that is already
 * true, and a thread whose call has a time limit of its own, or another message of its group under
 * way that has, may go on by itself; neither is part of a proof. Nor is a rank whose main thread
 * has made no call and may make one, or with another such thread that runs: see threads.c; or one
 * that a callback may wake: see collect_callbacks.c. */
#ifndef DIAGNOSE_DIAGNOSE_H
#define DIAGNOSE_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/wait.h"
#include "trace/trace.h"

enum {
	DIAGNOSE_RANK_MAX = 64,
	DIAGNOSE_RECORD_MAX = 32, /* records of a rank that are looked at */
	DIAGNOSE_GROUP_MAX = 64,  /* groups of a rank that are looked at */
	DIAGNOSE_MESSAGE_MAX = 32,
	DIAGNOSE_SITE_BYTES = 96,
	DIAGNOSE_PYTHON_BYTES = 224,
	DIAGNOSE_TEXT_BYTES = 2048,
};

enum diagnose_process {
	DIAGNOSE_UNKNOWN,
	DIAGNOSE_RUNNING,  /* on a core, or ready for one */
	DIAGNOSE_SLEEPING, /* its first thread is in a system call, interruptible or not */
	DIAGNOSE_STOPPED,  /* SIGSTOP, a debugger, a frozen cgroup */
	DIAGNOSE_DEAD,     /* gone, or a zombie */
};

struct diagnose_record {
	/* but its peer is a world rank, -1 if it cannot be told any more */
	struct trace_record record;
	uint64_t members; /* bit r: rank r is in its group; 0: all are, or it is not known */
	uint32_t step;
	uint64_t begin_ns, end_ns;      /* clock_now_ns scale; end 0 while it runs */
	char site[DIAGNOSE_SITE_BYTES]; /* "train_digits.c:211"; "" if nobody asked for it */
};

struct diagnose_thread {
	struct wait_slot_body wait;
	/* where in the wait table, and which wait: the sequence lock's value */
	uint32_t slot, epoch;
	/* the same wait in the first and in the second look, and its group had not failed */
	bool stable;
	/* outside, and only a thread of its process that waits could wake it, or one like it */
	bool asleep;
	/* 1 + rank that was about to end the wait, by closing its group; 0: none, or whoever
	 * collected was to close it. */
	uint32_t explainer;
	/* bit i: edge i's condition held in between (or could not be evaluated) */
	uint64_t satisfied;
	/* Of all words of others' operations, also of those that `wait` has no room for: the peers
	 * that have to make them true, a word of which nobody else than this rank's threads has to
	 * being left out. */
	uint64_t others;
	bool others_unclear; /* of some of them it is not known who has to */
};

/* As struct trace_group. */
struct diagnose_group {
	uint32_t id, parent, size, state, first_area;
	int32_t rank;
	uint64_t claim_offset, cause_offset;
	uint64_t entered, finished;
	uint32_t closed; /* 1: by this rank, before any awaited word was looked at */
	uint32_t reserved;
	uint8_t members[TRACE_MEMBER_MAX];
};

struct diagnose_rank {
	bool known; /* its trace could be read; if not, only rank, pid and process mean anything */
	/* more threads than slots: `threads` does not show all, so nothing is proved */
	bool incomplete;
	/* a thread of its process that is not in `threads` may be about to call: the same */
	bool awake;
	/* A thread of its process may sleep in no wait, so that a callback may wake it; there are
	 * messages under way that have one; and one of these may come by itself: there is a time
	 * limit, or the group fails, or who is needed is gone. */
	bool idle, has_callbacks, calls_back;
	bool serial; /* its sends begin one after the other */
	int32_t rank, pid;
	/* when its trace began (clock_now_ns); a process that is younger is another */
	uint64_t start_ns;
	char host[TRACE_TEXT_BYTES];
	char program[TRACE_PATH_BYTES];
	enum diagnose_process process;
	int32_t signal;    /* that ended it, 0 none, -1 unknown; for DIAGNOSE_DEAD */
	int32_t exit_code; /* -1 unknown */
	bool left;         /* it closed the group of all ranks, and so every other */
	/* "its main thread is in load at data.py:88"; "" if nobody asked for it */
	char python[DIAGNOSE_PYTHON_BYTES];
	uint64_t left_ns;
	uint32_t group_count, thread_count, record_count;
	/* That of all ranks, those in which threads of any rank wait, and others as far as there is
	 * room. */
	struct diagnose_group groups[DIAGNOSE_GROUP_MAX];
	struct diagnose_thread threads[WAIT_SLOT_MAX];
	/* Newest first. Those that a thread waits in, the newest collectives, all others that still
	 * run (of the ring's newest 1024 places), and whatever else is newest, as far as there is
	 * room. */
	struct diagnose_record records[DIAGNOSE_RECORD_MAX];
};

/* A message that has been sent and not received yet, with how many others there are like it. */
struct diagnose_message {
	uint32_t group;
	int32_t from, to; /* world ranks */
	int32_t tag;
	uint32_t dtype;
	int32_t total; /* messages from this rank to that, this one included */
	uint64_t count, position;
	uint64_t seq; /* number of the send, 0: not known */
	char site[DIAGNOSE_SITE_BYTES];
};

struct diagnose_job {
	uint64_t job;
	uint64_t now_ns;
	int32_t size; /* ranks 0 to size - 1 are in `ranks` */
	int32_t message_count;
	/* Of those between ranks that wait: the oldest of each pair. Whoever collects fills them
	 * in. */
	struct diagnose_message messages[DIAGNOSE_MESSAGE_MAX];
	struct diagnose_rank ranks[];
};

/* Bytes of a job of `size` ranks; and one on the heap, zeroed, NULL without memory. */
size_t diagnose_job_bytes(int size);
struct diagnose_job *diagnose_job_new(int size);
/* Whether a job that was kept somewhere (a file) can be judged and told without going astray. */
bool diagnose_job_is_valid(const struct diagnose_job *job, size_t bytes);
/* What any rank knows of a group, NULL if none does. Its first `size` members are ranks of the
 * job. */
const struct diagnose_group *diagnose_find_group(const struct diagnose_job *job, uint32_t id);

struct diagnose_verdict;

/* Where to look for one rank. */
struct diagnose_source {
	int rank, pid;
	const struct trace_view *trace; /* NULL: not readable */
	const void *segment;            /* its transport segment, NULL: not readable */
	size_t segment_bytes;
	/* What the launcher or a pidfd already knows; process DIAGNOSE_UNKNOWN: look into /proc. */
	enum diagnose_process process;
	int signal, exit_code;
};

/* Groups that the caller is about to close. */
struct diagnose_closing {
	int count;
	const uint32_t *ids;
};

/* Fills `job` (made for `count` ranks), without call sites. Does not block. A wait in a group that
 * somebody is about to close will end; but who explains why asks what there would be if the groups
 * of `closing` (NULL: none) stayed open. It is said here and not to the judge, since of ranks that
 * do not seem stuck other threads of the process are not looked at. */
void diagnose_collect(const struct diagnose_source *sources, int count,
		      const struct diagnose_closing *closing, struct diagnose_job *job);
/* Looks up the call sites of a job that was collected without. Reads debug information, so it takes
 * its time: only once something is to be reported. Not for two threads at once (trace_site). */
void diagnose_add_sites(const struct diagnose_source *sources, int count, struct diagnose_job *job);
/* Adds the record of `source` whose index has these lowest bits, which may come from a peer, in
 * place of the oldest that says least if there is no room. Returns its index, 0: it is not in the
 * ring, or all others say more. */
uint64_t diagnose_add_record(const struct diagnose_source *source, uint32_t low,
			     struct diagnose_job *job);
/* State of process `pid` from /proc; signal and exit code of a zombie. Writes the three fields of
 * the process, reads start_ns (0: any process of this number is the right one). */
void diagnose_look_process(int pid, struct diagnose_rank *rank);
/* Whether /proc speaks of processes as those of this PID namespace (0: of mine) number them; it may
 * be another's. */
bool diagnose_has_proc(uint32_t pid_space);

/* For the watch of a rank: the sleep of those threads of this process that are in no wait, as
 * wait_table.rest_sleep wants it, without the calling thread; also for others who ask about their
 * own rank. */
uint64_t diagnose_rest_sleep(const struct trace_view *trace);
/* Whether this thread of the rank is in its wait table, or is its watch. */
bool diagnose_has_slot(const struct trace_view *trace, uint32_t tid);
/* Whether a thread of this process that is in no wait table, but for the calling one, runs, or is
 * stopped meanwhile, or cannot be seen now: it may be about to make its first call. */
bool diagnose_newcomer_runs(const struct trace_view *trace);

/* How the process of this descriptor ended, if its parent has fetched that and the kernel tells
 * (Linux 6.15 and later): writes the three fields of the process. False: it is to be asked of
 * /proc. */
bool diagnose_look_end(int pidfd, struct diagnose_source *source);

enum diagnose_cause {
	DIAGNOSE_HEALTHY,    /* nobody waits for long, or those who wait can go on */
	DIAGNOSE_MISMATCH,   /* different operations at one position: proved */
	DIAGNOSE_DIED,       /* somebody is needed and dead: proved */
	DIAGNOSE_LEFT,       /* somebody is needed and has closed its group: proved */
	DIAGNOSE_DEADLOCK,   /* proved */
	DIAGNOSE_IS_STOPPED, /* somebody is needed and stopped: reported at once */
	/* somebody is needed, alive, and not in the operation: reported after patience */
	DIAGNOSE_ELSEWHERE,
	DIAGNOSE_TIMED_OUT,   /* only with a hint: the time limit came before any of the others */
	DIAGNOSE_WAS_ABORTED, /* only with a hint: ls_group_abort, or an interrupt */
};

enum { /* fields of a mismatch */
       DIAGNOSE_KIND = 1,
       DIAGNOSE_COUNT = 2,
       DIAGNOSE_DTYPE = 4,
       DIAGNOSE_REDUCE = 8,
       DIAGNOSE_ROOT = 16,
       DIAGNOSE_PAIR = 32,     /* not of a collective, but between a send and its receive */
       DIAGNOSE_EXCHANGE = 64, /* one rank sends another more or less than that one expects, in an
				* operation in which each has counts of its own */
};

/* What the message that a receive has matched says of itself, where that is not what was asked for.
 * The record of the send tells from where it was called, if it is still there; nothing else is
 * taken from it. */
struct diagnose_matched {
	bool known; /* false: it is not about a receive, and the rest means nothing */
	int32_t tag;
	uint32_t sent_dtype, expected_dtype;
	uint64_t record; /* its index in the sender's trace, as the judge is told it; 0: unknown */
};

/* What the caller has seen itself, so that the verdict does not contradict what its call
 * returns. */
struct diagnose_hint {
	/* LS_MISMATCH, LS_PEER_DIED, LS_PEER_LEFT, LS_TIMED_OUT, LS_ABORTED, …; LS_OK: it has seen
	 * nothing, and only asks why threads wait in `group`. */
	ls_status status;
	int rank; /* who saw it; ranks are those of the world */
	int peer; /* whom it saw, -1 */
	uint32_t group;
	uint64_t seq;    /* operation */
	bool collective; /* seq is that of one; else it may also be that of a message */
	/* index of the operation's trace record in `rank`; 0: found by group and seq */
	uint64_t record;
	uint64_t needs;   /* bit q: it still waited for peer q when it gave up; 0: not known */
	const char *note; /* e.g. the reason of ls_group_abort; may be NULL */
	/* LS_ABORTED: the program has not asked for it; `rank` closed the group, and note says what
	 * is wrong */
	bool closes;
	/* its sends, and most likely those of the others, begin one after the other: setting
	 * P2P=serial */
	bool serial;
	/* LS_MISMATCH in an all-to-allv, and of a receive: elements that `peer` sends to `rank`,
	 * and that `rank` expects of it; equal (both 0) elsewhere. */
	uint64_t sent, expected;
	struct diagnose_matched matched; /* LS_MISMATCH or LS_TRUNCATED of a receive */
};

struct diagnose_verdict {
	enum diagnose_cause cause;
	ls_status status; /* what an operation that fails for this returns; LS_OK for HEALTHY */
	int32_t blamed;   /* the one rank to blame, -1: none, or several */
	uint32_t fields;  /* of a mismatch */
	/* bit r: rank r is part of the cause (differs, is dead, stopped, away, in the cycle) */
	uint64_t culprits;
	uint64_t waiting; /* bit r: rank r waits, directly or not, for a culprit */
	uint32_t group;
	uint64_t seq;      /* operation that cannot go on, from 1; 0: unknown */
	uint64_t since_ns; /* since when the longest of them waits; 0: unknown */
	/* a rank that waits directly for a culprit, the hint's before others; -1: none */
	int32_t witness;
	uint64_t record; /* index of the trace record of the witness' operation; 0: unknown */
	bool timed_out;  /* the hint's operation has timed out; `cause` says what it waited for */
	/* DIAGNOSE_EXCHANGE and DIAGNOSE_PAIR: rank `from` sends so many elements to rank `to`,
	 * which expects others. */
	int32_t from, to;
	uint64_t sent, expected;
	struct diagnose_matched matched; /* DIAGNOSE_PAIR */
	bool closes, serial;             /* as in the hint */
	char note[256];                  /* the hint's */
};

/* The chief verdict: a proved one before a reported one, an earlier operation before a later one.
 * hint may be NULL; with one, the verdict is on its group, of which other groups are part only in a
 * deadlock. A rank that only waits is never blamed: with a mismatch the minority differs, without a
 * minority (two ranks, a tie) blamed is -1 and all are culprits. */
void diagnose_judge(const struct diagnose_job *job, const struct diagnose_hint *hint,
		    struct diagnose_verdict *out);

/* What a rank is shown with: the operation in which it plays its part in the verdict, NULL if
 * unknown, and since when it waits there, 0 if it does not. */
struct diagnose_part {
	const struct diagnose_record *record;
	uint64_t since_ns;
};
struct diagnose_part diagnose_part_of(const struct diagnose_job *job,
				      const struct diagnose_verdict *verdict, int rank);

/* The report, at most `bytes` (lines that do not fit are left out whole): a first line that says it
 * all, such as "rank 2 finished after all-reduce #57 while ranks 0, 1 and 3 wait in all-reduce #58,
 * called from train_digits.c:211", then a line per rank, then what to do. No colours, ends without
 * a newline. */
void diagnose_text(const struct diagnose_job *job, const struct diagnose_verdict *verdict,
		   char *out, size_t bytes);
/* The first line alone. */
void diagnose_headline(const struct diagnose_job *job, const struct diagnose_verdict *verdict,
		       char *out, size_t bytes);

/* One operation in words: "send #1 to rank 0 (tag 7), called from a.c:10". */
void diagnose_operation_text(const struct diagnose_record *record, char *out, size_t bytes);
/* A message: "send #1 of 10 float32 from rank 0 to rank 1 (tag 7), called from a.c:10". `members`
 * of its group, 0: all ranks. */
void diagnose_message_text(const struct diagnose_message *message, uint64_t members, char *out,
			   size_t bytes);

/* "mismatch", "died", …: stable words, for --json and tests. */
const char *diagnose_cause_name(unsigned cause);

#endif
