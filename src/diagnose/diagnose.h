/* SPDX-License-Identifier: BSD-3-Clause
 * From snapshots of all ranks to one verdict. diagnose_judge and diagnose_text are pure functions
 * over flat data: no I/O, no clock, no pointers. Only diagnose_collect reads the ranks: it copies
 * traces, evaluates what each thread waits for, and reads /proc.
 *
 * A deadlock is proved, never guessed. The collector reads all wait slots, then every awaited word,
 * then all slots again. Suppose the epochs of the slots are unchanged, no condition holds, and in
 * each rank of a set every thread that ever called Lockstep is blocked on ranks of the set. Then no
 * thread of the set can store anything, so nothing can change.
 *
 * A rank is not part of a proof if one of its threads may still act: a thread whose condition holds
 * already (it is stopped, or not yet scheduled); a thread whose call, or another message of its
 * group, has a time limit of its own; a main thread or another running thread that has not called
 * Lockstep yet (threads.c); a thread that a callback may wake (collect_callbacks.c). */
#ifndef DIAGNOSE_DIAGNOSE_H
#define DIAGNOSE_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/ranks.h"
#include "base/wait.h"
#include "trace/trace.h"

enum {
	DIAGNOSE_RECORD_MAX = 32, /* records of a rank that a snapshot holds */
	DIAGNOSE_GROUP_MAX = 64,  /* groups of a rank that a snapshot holds */
	DIAGNOSE_MESSAGE_MAX = 32,
	DIAGNOSE_SITE_BYTES = 96,
	DIAGNOSE_PYTHON_BYTES = 320,
	DIAGNOSE_TEXT_BYTES = 2048,
	DIAGNOSE_EXEC = -2, /* as an exit code */
};

enum diagnose_process {
	DIAGNOSE_PROCESS_UNKNOWN,
	DIAGNOSE_PROCESS_RUNNING,  /* on a core, or ready for one */
	DIAGNOSE_PROCESS_SLEEPING, /* its first thread is in a system call, interruptible or not */
	DIAGNOSE_PROCESS_STOPPED,  /* SIGSTOP, a debugger, a frozen cgroup */
	DIAGNOSE_PROCESS_DEAD,     /* gone, or a zombie */
};

struct diagnose_record {
	/* its peer is a world rank here; -1 if that is no longer known */
	struct trace_record record;
	uint32_t step;
	uint64_t begin_ns, end_ns;      /* on the scale of clock_now_ns; end_ns 0 while it runs */
	char site[DIAGNOSE_SITE_BYTES]; /* "train_digits.c:211"; "" if nobody asked for it */
};

struct diagnose_thread {
	struct wait_slot_body wait; /* the name of a foreign call ends with NUL */
	/* its index in the wait table; the slot's sequence lock, which identifies the wait */
	uint32_t slot, epoch;
	/* both reads found the same wait, and its group had not failed */
	bool stable;
	/* it is outside of Lockstep, and only threads of its process that wait, or are asleep like
	 * this one, can wake it */
	bool asleep;
	/* 1 + the rank that was about to end the wait by closing its group; 0: no rank was, or only
	 * the collector itself */
	uint32_t closing_rank;
	/* bit i: between the two reads edge i's condition held, or could not be evaluated */
	uint64_t satisfied;
	/* bit i: edge i is of an operation that a stream has to do before it comes to the thread's
	 * own, perhaps in another group */
	uint64_t behind;
	/* The peers that must write the words of operations of other threads, including words for
	 * which `wait` has no room. Words that only threads of this rank can write are left out. */
	struct ranks others;
	bool others_unclear; /* for some of these words the writer is unknown */
};

/* As struct trace_group. */
struct diagnose_group {
	uint32_t id, parent, size, state, first_area;
	int32_t rank;
	uint64_t claim_offset, cause_offset;
	uint64_t entered, finished;
	uint32_t closed; /* 1: this rank had closed it before any awaited word was read */
	int32_t first;   /* world rank of its first member; -1: unknown */
};

/* The members of a group other than the world group. */
struct diagnose_set {
	uint32_t group; /* its id; 0: this entry is free */
	uint32_t reserved;
	struct ranks members;
};

struct diagnose_rank {
	bool known; /* its trace could be read; otherwise only rank, pid and process are valid */
	/* more threads than slots, so `threads` lacks some and nothing is proved */
	bool incomplete;
	/* a thread that is not in `threads` may be about to call, so nothing is proved */
	bool awake;
	/* idle: a thread sleeps outside of any wait, so a callback may wake it. has_callbacks: some
	 * message in progress has a callback. calls_back: one of these callbacks may come without
	 * any peer, because of a time limit, because the group fails, or because a needed rank is
	 * dead or has left. */
	bool idle, has_callbacks, calls_back;
	bool serial; /* its sends begin one after the other */
	/* A hash of the threads that are in no wait table, and of their sleep, if they slept all
	 * the time. 0: that is not known; 1: these threads may belong to any of several ranks. */
	uint64_t sleep;
	/* proved: the thread that `python` is about waits forever for a mutex of the program */
	bool awaits_mutex;
	int32_t rank, pid;
	/* when its trace began (clock_now_ns); a younger process with this pid is another
	 * process */
	uint64_t start_ns;
	char host[TRACE_TEXT_BYTES];
	char program[TRACE_PATH_BYTES];
	enum diagnose_process process;
	/* If DIAGNOSE_PROCESS_DEAD, the signal that ended it; 0: none, -1: unknown. */
	int32_t signal;
	int32_t exit_code; /* -1: unknown; DIAGNOSE_EXEC: its process runs another program */
	bool left;         /* it closed the world group, and so every other group */
	/* "its main thread is in load at data.py:88", and for which mutex it waits; "" if not
	 * requested */
	char python[DIAGNOSE_PYTHON_BYTES];
	uint64_t left_ns;
	uint32_t group_count, thread_count, record_count;
	/* The world group, those in which threads of any rank wait, and others as far as there is
	 * room. */
	struct diagnose_group groups[DIAGNOSE_GROUP_MAX];
	struct diagnose_thread threads[WAIT_SLOT_MAX];
	/* Newest first: the operations in which a thread waits, the newest collectives, all others
	 * that are still running (among the newest 1024 places of the ring), and other new ones as
	 * far as there is room. */
	struct diagnose_record records[DIAGNOSE_RECORD_MAX];
};

/* A message that was sent and not received yet, and how many others like it there are. */
struct diagnose_message {
	uint32_t group;
	int32_t from, to; /* world ranks */
	int32_t tag;
	uint32_t dtype;
	int32_t total; /* unreceived messages from `from` to `to`, this one included */
	uint64_t count, position;
	uint64_t seq; /* number of the send, 0: not known */
	char site[DIAGNOSE_SITE_BYTES];
};

/* A job as it was at one moment. */
struct diagnose_snapshot {
	uint64_t job;
	uint64_t now_ns;
	int32_t size; /* ranks 0 to size - 1 are in `ranks` */
	int32_t message_count;
	uint32_t set_count, reserved;
	/* For each pair of waiting ranks the oldest unreceived message. The collector fills this
	 * in. */
	struct diagnose_message messages[DIAGNOSE_MESSAGE_MAX];
	/* Followed by a hash table, struct diagnose_set [diagnose_set_max(size)]: the members of
	 * the groups in which ranks wait, of those of records, and of others if there is room. */
	struct diagnose_rank ranks[];
};

/* The bytes of a snapshot of `size` ranks, 0 for an impossible size; and a new one on the heap,
 * zeroed, NULL without memory. Most of it is room that few jobs need, and its pages are not
 * touched. */
size_t diagnose_snapshot_bytes(int size);
int diagnose_set_max(int size);
struct diagnose_snapshot *diagnose_snapshot_new(int size);
/* Whether a snapshot that was read from a file is consistent, so that it can be judged and printed
 * safely. */
bool diagnose_snapshot_is_valid(const struct diagnose_snapshot *snapshot, size_t bytes);
/* The members of a group; NULL for the world group and for an unknown group. */
const struct ranks *diagnose_members(const struct diagnose_snapshot *snapshot, uint32_t id);
/* What some rank's trace says about a group; NULL: no trace has it. Its `first` is a valid rank of
 * the job. */
const struct diagnose_group *diagnose_find_group(const struct diagnose_snapshot *snapshot,
						 uint32_t id);

/* ---- ranks on other hosts ---- */

/* Each host looks at its own ranks, twice; the second time only after all hosts have looked once. A
 * thread that is in the same wait both times was in it at the moment between, which is the same for
 * the threads of all hosts. What a rank has stored by then for a rank on another host has arrived
 * there if nothing is under way from the one to the other (diagnose_traffic). Then the words that
 * the other rank sees are true. */

/* What one rank has exchanged with ranks on other hosts; see struct transport_traffic. Read
 * `arrived` before the words, and before `is_served`: what arrives may make the rank fetch a
 * payload, and until that has begun only `is_served` shows it. Read `fetched` before `begun`. */
struct diagnose_traffic {
	uint64_t posted[RANKS_WORLD_MAX], arrived[RANKS_WORLD_MAX];
	uint64_t begun[RANKS_WORLD_MAX], fetched[RANKS_WORLD_MAX], released[RANKS_WORLD_MAX];
	uint64_t copied[RANKS_WORLD_MAX], ahead[RANKS_WORLD_MAX], kept_back[RANKS_WORLD_MAX];
	bool is_served;             /* all that it has stored is posted */
	bool lost[RANKS_WORLD_MAX]; /* its connection has broken, and nothing comes from there */
};

/* Keeps as proved, of the ranks `here`, only what both looks show. */
void diagnose_confirm(struct diagnose_snapshot *second, const struct diagnose_snapshot *first,
		      const struct ranks *here);
/* The ranks `here` of a snapshot, for another host: a block on the heap; NULL without memory.
 * traffic: by rank. */
void *diagnose_pack(const struct diagnose_snapshot *snapshot, const struct ranks *here,
		    const struct diagnose_traffic *traffic, size_t *bytes);
/* Adds the ranks of a block to a snapshot, except those of `here`, with times as of this host's
 * clock. A snapshot without a time gets the time of the block, whose clock counts then. False: the
 * block is not one that diagnose_pack makes; then nothing of the snapshot may be used. */
LS_CHECKED bool diagnose_unpack(struct diagnose_snapshot *snapshot, const struct ranks *here,
				const void *block, size_t bytes, struct diagnose_traffic *traffic);
/* Call once the snapshot has all ranks: those to which something may be under way prove nothing.
 * hosts: the host of each rank. */
void diagnose_check_traffic(struct diagnose_snapshot *snapshot, const uint16_t *hosts,
			    const struct diagnose_traffic *traffic);

struct diagnose_verdict;

/* Where the collector finds one rank. */
struct diagnose_source {
	int rank, pid;
	const struct trace_view *trace; /* NULL: not readable */
	const void *segment;            /* its transport segment; NULL: not readable */
	size_t segment_bytes;
	const char *host; /* the rank's host, if that is another one; NULL: its trace says it */
	bool left; /* it has closed the world group, as its host has told; or its trace says it */
	/* What the launcher or a pidfd already knows; DIAGNOSE_PROCESS_UNKNOWN: read /proc. */
	enum diagnose_process process;
	int signal, exit_code;
};

/* Groups that the caller is about to close. */
struct diagnose_closing {
	int count;
	const uint32_t *ids;
};

/* Fills `snapshot` (made for `count` ranks), without call sites. Does not block. A wait in a group
 * that some rank is about to close will end, and so proves nothing. The thread that is about to
 * close the groups of `closing` (NULL: none) wants to know what would happen if they stayed open,
 * so waits in these count. The collector needs to know this, not only the judge, because it reads
 * other threads only of ranks that seem stuck. */
void diagnose_collect(const struct diagnose_source *sources, int count,
		      const struct diagnose_closing *closing, struct diagnose_snapshot *snapshot);
/* Looks up the call sites of a snapshot. Slow, because it reads debug information: call it only
 * when there is something to report. Not for two threads at once (trace_site). */
void diagnose_add_sites(const struct diagnose_source *sources, int count,
			struct diagnose_snapshot *snapshot);
/* Adds the record of `source` whose index has these lowest bits, which may come from a peer. If
 * there is no room it replaces the oldest record of the least interest. Returns the index; 0: the
 * ring no longer has that record, or all records in the snapshot matter more. */
uint64_t diagnose_add_record(const struct diagnose_source *source, uint32_t low,
			     struct diagnose_snapshot *snapshot);
/* Adds a collective that the rank of `source` has entered and has not recorded, as its newest
 * operation; without room it replaces the oldest record of the least interest. entered: its group,
 * seq, kind, and what else its entry tells; peer is a group rank. */
void diagnose_add_entered(const struct diagnose_source *source, const struct trace_record *entered,
			  struct diagnose_snapshot *snapshot);
/* Reads the state of process `pid` from /proc, and a zombie's signal and exit code. Writes the
 * three fields of the process. Reads rank->start_ns (0: accept any process with this pid). */
void diagnose_look_process(int pid, struct diagnose_rank *rank);
/* Whether /proc shows the processes of this PID namespace (0: of mine); /proc may be another
 * namespace's. */
bool diagnose_has_proc(uint32_t pid_space);

/* Whether the pid still belongs to this rank, as far as is known, and the process is alive. Then
 * its stack can be read from its memory. */
bool diagnose_may_look_into(const struct diagnose_source *source, const struct diagnose_rank *rank);

/* The value for wait_table.outside_sleep, for the watch of a rank: the sleep of those threads of
 * this process that are in no wait, without the calling thread. Also for other callers who ask
 * about their own rank. */
uint64_t diagnose_outside_sleep(const struct trace_view *trace);
/* Whether this thread of the rank is in its wait table, or is its watch. */
bool diagnose_has_slot(const struct trace_view *trace, uint32_t tid);
/* Whether some thread of this process that is in no wait table, other than the calling one, is
 * running, stopped or unreadable: it may be about to make its first call. */
bool diagnose_newcomer_runs(const struct trace_view *trace);

/* How the process of this pidfd ended, if its parent has reaped it and the kernel can tell (Linux
 * 6.15 and later): writes the three fields of the process. False: read /proc instead. */
bool diagnose_read_exit(int pidfd, struct diagnose_source *source);

enum diagnose_cause {
	DIAGNOSE_HEALTHY,  /* no rank waits for long, or those that wait can continue */
	DIAGNOSE_MISMATCH, /* different operations at one position: proved */
	DIAGNOSE_DIED,     /* a needed rank is dead: proved */
	DIAGNOSE_LEFT,     /* a needed rank has closed its group: proved */
	DIAGNOSE_DEADLOCK, /* proved */
	DIAGNOSE_STOPPED,  /* a needed rank is stopped: reported */
	/* a needed rank is alive but not in the operation: reported after LOCKSTEP_PATIENCE_MS */
	DIAGNOSE_ELSEWHERE,
	DIAGNOSE_TIMED_OUT, /* only with a hint: the time limit came before any of the others */
	DIAGNOSE_ABORTED,   /* only with a hint: ls_group_abort, or an interrupt */
};

enum { /* fields of a mismatch */
       DIAGNOSE_KIND = 1,
       DIAGNOSE_COUNT = 2,
       DIAGNOSE_DTYPE = 4,
       DIAGNOSE_REDUCE = 8,
       DIAGNOSE_ROOT = 16,
       DIAGNOSE_PAIR = 32, /* between a send and its receive */
       /* one rank sends another rank more or less than that rank expects, in an operation with
        * counts for each rank */
       DIAGNOSE_EXCHANGE = 64,
};

/* The message that a receive has matched, if it is not what the receive asked for. The call site
 * comes from the send's record, if the ring still has it; nothing else is taken from that
 * record. */
struct diagnose_matched {
	/* false: the verdict is not about a receive, and the other fields are not valid */
	bool known;
	int32_t tag;
	uint32_t sent_dtype, expected_dtype;
	uint64_t record; /* its index in the sender's trace; 0: unknown */
};

/* What the caller has seen itself, so that the verdict agrees with the status that its call
 * returns. */
struct diagnose_hint {
	/* LS_MISMATCH, LS_PEER_DIED, LS_PEER_LEFT, LS_TIMED_OUT, LS_ABORTED, …; LS_OK: the caller
	 * has seen nothing, and asks why threads wait in `group`. */
	ls_status status;
	int rank; /* the world rank that saw it */
	int peer; /* the world rank that it saw; -1: none */
	uint32_t group;
	uint64_t seq;           /* operation */
	bool seq_is_collective; /* true where no record identifies the operation */
	/* the operation's trace record in `rank`; 0: found by group and seq */
	uint64_t record;
	struct ranks needs; /* the peers it still waited for when it gave up; empty: unknown */
	const char *note;   /* e.g. the reason of ls_group_abort; may be NULL */
	/* LS_ABORTED, but not by the program: `rank` closed the group, and note says what is
	 * wrong */
	bool closes;
	/* setting P2P=serial: its sends, and most likely those of the others, begin one after the
	 * other */
	bool serial;
	/* LS_MISMATCH in an all-to-allv or of a receive: the elements that `peer` sends to `rank`,
	 * and those that `rank` expects; otherwise equal (both 0). */
	uint64_t sent, expected;
	struct diagnose_matched matched; /* LS_MISMATCH or LS_TRUNCATED of a receive */
};

struct diagnose_verdict {
	enum diagnose_cause cause;
	ls_status status; /* the status of operations that fail because of it; LS_OK for HEALTHY */
	int32_t culprit;  /* the one rank at fault; -1: none, or several */
	uint32_t fields;  /* of a mismatch: which fields differ */
	/* the ranks of the cause: they differ, are dead, stopped, elsewhere, or in the cycle */
	struct ranks culprits;
	struct ranks waiting; /* ranks that wait, directly or through others, for a culprit */
	uint32_t group;
	uint64_t seq;      /* the operation that cannot continue, from 1; 0: unknown */
	uint64_t since_ns; /* when the longest of these waits began; 0: unknown */
	/* a rank that waits directly for a culprit, the hint's before others; -1: none */
	int32_t witness;
	uint64_t record; /* index of the trace record of the witness's operation; 0: unknown */
	bool timed_out;  /* the hint's operation timed out; `cause` says why it waited */
	/* DIAGNOSE_EXCHANGE and DIAGNOSE_PAIR: rank `from` sends `sent` elements to rank `to`,
	 * which expects `expected`. */
	int32_t from, to;
	uint64_t sent, expected;
	struct diagnose_matched matched; /* DIAGNOSE_PAIR */
	bool closes, serial;             /* as in the hint */
	char note[256];                  /* the hint's */
};

/* The most important verdict: a proved one before a reported one, an earlier operation before a
 * later one. hint may be NULL. With a hint the verdict is about its group; other groups take part
 * only in a deadlock. A rank that only waits is never blamed. In a mismatch the minority is wrong;
 * without a minority (two ranks, a tie) culprit is -1 and all are culprits. */
void diagnose_judge(const struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
		    struct diagnose_verdict *out);

/* The number of the operation of this group that cannot continue: that of the verdict, or of the
 * culprit or waiting rank that has waited longest in the group. 0: none waits there. */
uint64_t diagnose_operation_in(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_verdict *verdict, uint32_t group);

/* What the report shows of a rank: the operation that matters for the verdict (NULL: unknown), and
 * since when the rank waits there (0: it does not). */
struct diagnose_part {
	const struct diagnose_record *record;
	uint64_t since_ns;
};
struct diagnose_part diagnose_part_of(const struct diagnose_snapshot *snapshot,
				      const struct diagnose_verdict *verdict, int rank);

/* The group of the operation for which a stream waits, if that is why the thread needs word i of
 * its wait; 0: it is not. */
uint32_t diagnose_group_in_front(const struct diagnose_rank *rank,
				 const struct diagnose_thread *thread, uint32_t i);

/* The report, of at most `bytes` (a line that does not fit is left out as a whole). The first line
 * is a summary, such as "rank 2 finished after all-reduce #57 while ranks 0, 1 and 3 wait in
 * all-reduce #58, called from train_digits.c:211". Then follow a line for each rank, and what to
 * do. No colors, and no newline at the end. */
void diagnose_text(const struct diagnose_snapshot *snapshot, const struct diagnose_verdict *verdict,
		   char *out, size_t bytes);
/* The first line alone. */
void diagnose_headline(const struct diagnose_snapshot *snapshot,
		       const struct diagnose_verdict *verdict, char *out, size_t bytes);

/* One operation in words: "send #1 to rank 0 (tag 7), called from a.c:10". `members` of its group,
 * empty: all ranks. */
void diagnose_operation_text(const struct diagnose_record *record, const struct ranks *members,
			     char *out, size_t bytes);
/* A message: "send #1 of 10 float32 from rank 0 to rank 1 (tag 7), called from a.c:10". `members`
 * of its group, empty: all ranks. */
void diagnose_message_text(const struct diagnose_message *message, const struct ranks *members,
			   char *out, size_t bytes);

/* The thread of a rank that has been longest in a foreign call (wait_foreign_call_begin); NULL:
 * none is in one. */
const struct diagnose_thread *diagnose_foreign_call(const struct diagnose_rank *rank);
/* "its thread 4711 has been in the foreign call cuMemFree for 12.3 s", the same of a second thread,
 * and how many more are in such calls; empty if none is. */
void diagnose_foreign_call_text(const struct diagnose_snapshot *snapshot, int rank, char *out,
				size_t bytes);
/* "cuMemFree for 12.3 s": of a thread in state WAIT_FOREIGN. */
void diagnose_named_call_text(const struct diagnose_snapshot *snapshot,
			      const struct wait_slot_body *wait, char *out, size_t bytes);

/* "mismatch", "died", …: stable words, for --json and tests. */
const char *diagnose_cause_name(unsigned cause);

#endif
