/* SPDX-License-Identifier: BSD-3-Clause
 * The flight recorder of one rank: fixed-size facts in a memfd that only its owner can write, that
 * every local rank and the launcher hold open, and that therefore outlives its process.
 *
 * Layout (version TRACE_VERSION, native byte order): struct trace_header at offset 0, then the
 * areas at the offsets it names. Readers trust nothing: trace_map checks every offset and count
 * against the length, and copies under sequence locks with bounded retries. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>
#include <lockstep/types.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/wait.h"
#include "coll/coll.h"

#define TRACE_MAGIC UINT64_C(0x31454341525453) /* "STRACE1" */
enum {
	TRACE_VERSION = 8,
	TRACE_GROUP_MAX = 513, /* as many as a rank may be a member of: TRANSPORT_AREAS */
	TRACE_MEMBER_MAX = 64,
	TRACE_GROUP_WORLD = 1, /* the id of the group of all ranks, whose entry is the first */
	TRACE_MODULE_MAX = 64,
	TRACE_LABEL_MAX = 256,
	TRACE_LABEL_BYTES = 96,
	TRACE_TEXT_BYTES = 64,
	TRACE_PATH_BYTES = 256,
	TRACE_BUILD_ID_BYTES = 32,
	TRACE_PHASE_MAX = 64,
	TRACE_PHASE_BYTES = 64,      /* of a name, with its NUL */
	TRACE_PHASE_DEPTH = 8,       /* phases inside of each other */
	TRACE_PHASE_THREAD_MAX = 64, /* threads in phases at once */
	TRACE_REPORT_BYTES = 2048,
};

/* Its numbers are part of the format: coll/coll.h. */
enum trace_kind {
	TRACE_NONE = COLL_KIND_NONE,
#define X(id, ...) TRACE_##id = COLL_KIND_##id,
	COLL_KINDS(X)
#undef X
		TRACE_KIND_COUNT = COLL_KIND_COUNT
};
/* "all-reduce", "send", …; "?" outside the range. */
const char *trace_kind_name(uint32_t kind);
/* What its operations have: all false outside the range. */
struct trace_kind_facts {
	bool collective;
	bool rooted;   /* peer is the root */
	bool reduces;  /* reduce_op means something */
	bool typed;    /* count and dtype mean something */
	bool per_rank; /* a count for each rank: count is their sum, shape their hash */
	/* and each rank has a list of its own: neither need be the same on two ranks */
	bool own_counts;
};
struct trace_kind_facts trace_kind_facts(uint32_t kind);
const char *trace_dtype_name(uint32_t dtype);
const char *trace_reduce_name(uint32_t op);

enum trace_wildcard { TRACE_ANY_SOURCE = 1, TRACE_ANY_TAG = 2 };
enum trace_state { TRACE_RUNNING = 1, TRACE_DONE = 2, TRACE_FAILED = 3 };

/* One operation. 120 bytes + its sequence lock = two cache lines. */
struct trace_record {
	uint64_t index; /* 1, 2, … over all operations of the rank; 0: never written */
	/* number in its lane: collectives of the group, or messages to/from peer; from 1; of a
	 * probe 0 */
	uint64_t seq;
	uint64_t count;       /* elements */
	uint64_t begin_ticks; /* clock_ticks */
	uint64_t end_ticks;   /* 0 while it runs */
	uint64_t site;        /* the caller's return address, 0 if unknown */
	uint32_t label;       /* 1 + position of its label, 0: none */
	uint32_t group;       /* trace group id */
	int32_t peer;         /* root, destination or source, as group rank; -1: none */
	int32_t tag;
	uint32_t tid;
	uint16_t kind; /* enum trace_kind */
	uint8_t dtype;
	uint8_t reduce_op;
	uint16_t state;     /* enum trace_state */
	uint16_t status;    /* ls_status once it has ended */
	uint16_t algorithm; /* enum plan_algorithm of the plan, 0 if none */
	uint16_t step_count;
	uint64_t shape; /* hash of the counts of all ranks, where each has its own; 0 elsewhere */
	/* enum trace_wildcard: what a receive or probe left open, also once it has matched one */
	uint32_t wildcards;
	uint32_t reserved32;
	uint64_t reserved[3];
};
/* "all-reduce #58"; "probe", as these have no number. What does not fit is cut. */
enum { TRACE_NAME_BYTES = 48 };
void trace_name(const struct trace_record *record, char *out, size_t bytes);

struct trace_slot {
	_Atomic uint32_t epoch;
	_Atomic uint32_t step; /* the cursor: which step of the plan is being run; written alone */
	struct trace_record record;
};
_Static_assert(sizeof(struct trace_slot) == 128, "a trace slot is two cache lines");

/* A group that the trace's owner is, or was, a member of; its area in the owner's segment has the
 * number of the entry. An entry is used again some time after its group was closed by all. */
struct trace_group {
	/* the same on all members, and of no other group of the job; 0: not used */
	_Atomic uint32_t id;
	uint32_t size;
	int32_t rank;           /* of the trace's owner in this group */
	_Atomic uint32_t state; /* enum trace_group_state */
	uint32_t parent;        /* id of the group it was made from, 0: none */
	uint32_t first_area;    /* of its first member, where the group's cause is published */
	/* Of the words in that member's segment that tell who explains why the group ends (lower
	 * half: 1 + world rank), and that it has (lower half not 0); 0: not known. */
	uint64_t claim_offset, cause_offset;
	/* Collectives entered and finished: entered - 1 <= finished <= entered. */
	_Atomic uint64_t entered;
	_Atomic uint64_t finished;
	/* Sends and receives beside their callers that are under way: how many have a callback,
	 * which has not returned, and how many a time limit of their own. Raised before anybody
	 * else finds the operation. */
	_Atomic uint32_t callbacks, limits;
	/* Members, bit q: rank q of the group, without whom none of those with a callback is stuck,
	 * though they are gone. */
	_Atomic uint64_t spared;
	uint8_t members[TRACE_MEMBER_MAX]; /* world ranks, in the order of the group */
};
enum trace_group_state { TRACE_GROUP_OPEN = 1, TRACE_GROUP_CLOSED = 2, TRACE_GROUP_FAILED = 3 };

struct trace_module {
	uint64_t base; /* where the page of its first segment was mapped */
	uint64_t end;  /* one past its last mapped byte */
	uint8_t build_id[TRACE_BUILD_ID_BYTES];
	uint32_t build_id_bytes;
	uint32_t reserved;
	char path[TRACE_PATH_BYTES];
};

/* A phase of a training step, such as "data/image". Its place in the table is found by hash. */
struct trace_phase {
	_Atomic uint64_t hash;  /* of its name, stored last and never 0; 0: not used */
	_Atomic uint64_t count; /* how often it has ended */
	/* Spent in it and not in one inside of it, by all threads, up to where the running ones
	 * begin. */
	_Atomic uint64_t ticks;
	_Atomic uint64_t waited_ticks; /* of these, blocked in operations */
	uint32_t length;
	uint32_t reserved;
	char name[TRACE_PHASE_BYTES];
};

/* The phases that one thread is in. Written by that thread under its sequence lock. */
struct trace_phase_thread {
	_Alignas(64) _Atomic uint32_t epoch;
	/* 2 * its number, + 1 while it is in a phase: then nobody takes this */
	_Atomic uint32_t owner;
	_Atomic uint64_t since_ticks; /* when the innermost one began or went on */
	_Atomic uint64_t stack; /* byte i: 1 + place of the i-th in the table, outermost first */
	/* Of the time since then blocked in operations. It is added to the phase's once that is
	 * over; or, in no phase, to outside_ticks once the next one begins: what comes after the
	 * last phase, such as a barrier at the end, is no part of the span. */
	_Atomic uint64_t waited_ticks;
};

struct trace_phase_table {
	_Atomic uint64_t first_ticks, last_ticks; /* first begin and last end, 0 before */
	/* Blocked in operations between phases, by threads that have begun another one since. */
	_Atomic uint64_t outside_ticks;
	struct trace_phase phases[TRACE_PHASE_MAX];
	struct trace_phase_thread threads[TRACE_PHASE_THREAD_MAX];
};

/* The cause of the group's end that the trace's owner has published. It stands here too because a
 * job of a few milliseconds is over before the launcher has found the segments, and the trace is
 * all it holds. */
struct trace_report {
	_Atomic uint32_t status; /* of the scope of a group, written last; 0: none is published */
	int32_t blamed;          /* a world rank, or -1 */
	uint64_t operation;
	uint32_t group; /* its id */
	/* 1: found when the owner closed the group, so that no call of its own has returned it. */
	_Atomic uint32_t unreturned;
	char text[TRACE_REPORT_BYTES];
};

struct trace_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint64_t job; /* the same on all ranks */
	int32_t rank;
	int32_t world_size;
	int32_t pid;
	uint32_t uid;
	uint32_t pid_space;     /* in which `pid` is a number: fork_pid_space */
	uint32_t serial;        /* 1: its sends begin one after the other (setting P2P=serial) */
	uint64_t start_ns;      /* clock_now_ns at open */
	uint64_t start_epoch_s; /* wall clock */
	struct clock_rate rate;
	char host[TRACE_TEXT_BYTES];
	char program[TRACE_PATH_BYTES]; /* path of the executable */
	char library[TRACE_TEXT_BYTES]; /* version */
	uint64_t wait_table_offset;     /* struct wait_table */
	uint64_t group_offset;          /* struct trace_group [TRACE_GROUP_MAX] */
	uint64_t module_offset;         /* struct trace_module [TRACE_MODULE_MAX] */
	uint64_t label_offset;          /* char [TRACE_LABEL_MAX][TRACE_LABEL_BYTES] */
	uint64_t phase_offset;          /* struct trace_phase_table */
	uint64_t ring_offset;           /* struct trace_slot [ring_records] */
	uint64_t ring_records;          /* a power of two */
	_Atomic uint64_t newest;        /* index of the newest record */
	_Atomic uint32_t module_count;
	_Atomic uint32_t label_count;
	_Atomic uint64_t left_ns; /* clock_now_ns at ls_group_close of the world, 0 before */
	struct trace_report report;
};

/* ---- writing: the owner ---- */

struct trace {
	struct trace_header *header; /* the mapping; NULL before init */
	struct wait_table *wait_table;
	struct trace_group *groups;
	struct trace_slot *ring;
	char (*labels)[TRACE_LABEL_BYTES];
	struct trace_module *modules;
	struct trace_phase_table *phases;
	uint32_t fork_generation; /* of the process that made it */
	uint64_t mask;
	size_t bytes;
	int fd; /* the memfd, named "lockstep-trace:JOB:RANK", sealed against other writers */
	struct lock_trace lock;
};

struct trace_options {
	uint64_t job;
	int rank;
	int world_size;
	bool serial;
	uint64_t records;
};

/* Creates, maps, fills and seals. Errors: LS_SYSTEM, LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status trace_init(struct trace *trace, const struct trace_options *options);
void trace_fini(struct trace *trace);

/* The job id is learned after the trace has been made: written once, before anybody reads it. */
void trace_set_job(struct trace *trace, uint64_t job, int world_size);

/* Records the loaded modules (again after dlopen). */
void trace_update_modules(struct trace *trace);

/* What is known of a group when it is made, as in struct trace_group. */
struct trace_membership {
	uint32_t id, parent, size, first_area;
	int32_t rank;
	uint64_t claim_offset, cause_offset;
	const uint8_t *members;
};

/* What is known of an operation when it begins. */
struct trace_begin {
	uint64_t seq, count, shape, site;
	uint32_t label, group;
	int32_t peer, tag;
	uint16_t kind;
	uint8_t dtype, reduce_op;
	uint32_t wildcards;
};

/* Any thread; never blocks, never fails; about 10 ns. Returns the record's index, its name until
 * trace_end. A record of a running operation is never overwritten: the ring goes round it. When
 * every record of the ring is running the new operation is not recorded, and the index is 0. */
uint64_t trace_begin(struct trace *trace, const struct trace_begin *begin);
void trace_end(struct trace *trace, uint64_t index, ls_status status);
/* The same in two steps for an operation that is over at once: the number first, which peers may be
 * told, then all of it; it begins and ends now. If a running operation has that record, or one that
 * came a whole lap of the ring later, the number leads nowhere, and another one is taken. */
uint64_t trace_reserve(struct trace *trace);
void trace_add(struct trace *trace, uint64_t index, const struct trace_begin *begin);
/* Says which plan the operation runs. */
void trace_plan(struct trace *trace, uint64_t index, uint16_t algorithm, uint16_t step_count);
/* A receive of any source or tag has matched a message: whose, and with which tag. */
void trace_matched(struct trace *trace, uint64_t index, int peer, int tag);
static inline void trace_step(struct trace *trace, uint64_t index, uint32_t step)
{
	if (index)
		atomic_store_explicit(&trace->ring[index & trace->mask].step, step,
				      memory_order_relaxed);
}

/* Id of a label text (cut to TRACE_LABEL_BYTES - 1), 0 for NULL or when the table is full. */
uint32_t trace_label(struct trace *trace, const char *text);

/* Keeps what the owner is about to publish on a group (text is cut to TRACE_REPORT_BYTES - 1);
 * LS_OK takes that back, as somebody else was first. What concerns a group that is not of all ranks
 * gives way to what concerns that one. */
void trace_report(struct trace *trace, uint32_t group, ls_status status, int blamed,
		  uint64_t operation, const char *text) LOCK_AVOIDS(trace);
/* What is kept on the group, if anything is, has been returned by no call of the owner. */
void trace_report_unreturned(struct trace *trace, uint32_t group) LOCK_AVOIDS(trace);

/* Entry `at` < TRACE_GROUP_MAX of the table of groups, filled; nothing has been entered yet. The
 * entry's last group is closed. */
struct trace_group *trace_group_fill(struct trace *trace, int at,
				     const struct trace_membership *membership);

/* The calling thread's number, as the kernel counts. */
uint32_t trace_thread_id(void);

/* Phases: what a thread spends its time on. Any thread; no lock, except for a new name. */
enum trace_phase_answer {
	TRACE_PHASE_DONE,
	TRACE_PHASE_FORKED,   /* in a forked child; nothing was written */
	TRACE_PHASE_BAD_NAME, /* empty, too long, a blank or control character, an empty part */
	TRACE_PHASE_OUTSIDE,  /* begin: the thread is in a phase of which this is no part */
	/* end: the thread's innermost phase is another one, or it is in none */
	TRACE_PHASE_NOT_INSIDE,
	TRACE_PHASE_MANY_NAMES, /* TRACE_PHASE_MAX others are there */
	TRACE_PHASE_MANY_THREADS,
	TRACE_PHASE_DEEP,
};
/* *inside is the name of the innermost phase the thread was in before the call, NULL if none. It
 * stays valid as long as the trace. */
enum trace_phase_answer trace_phase_begin(struct trace *trace, const char *name,
					  const char **inside);
enum trace_phase_answer trace_phase_end(struct trace *trace, const char *name, const char **inside);

/* The calling thread has been blocked in an operation for so long, until just now. Costs nothing in
 * programs without phases. */
void trace_waited_inside(struct trace *trace, uint64_t ticks);
static inline void trace_waited(struct trace *trace, uint64_t ticks)
{
	if (atomic_load_explicit(&trace->phases->first_ticks, memory_order_relaxed))
		trace_waited_inside(trace, ticks);
}

/* ---- reading: anybody ---- */

/* A trace mapped read-only and checked. */
struct trace_view {
	const struct trace_header *header;
	const struct wait_table *wait_table;
	const struct trace_group *groups;
	const struct trace_module *modules;
	const char (*labels)[TRACE_LABEL_BYTES];
	const struct trace_phase_table *phases;
	const struct trace_slot *ring;
	/* as it was checked: the header's may change under a reader's feet */
	uint64_t ring_records;
	size_t bytes;
	uint32_t module_count;
	bool mapped; /* trace_unmap has something to unmap */
};

/* Checks `bytes` at `memory` (which must stay valid and be aligned to 64) and fills *out. false
 * with the reason in `why` (static text) when it is no trace of this version. */
bool trace_check(const void *memory, size_t bytes, struct trace_view *out, const char **why);
/* The same for a memfd, which it maps read-only. One that its owner could still shrink is refused,
 * for then reading it could end in SIGBUS. A snapshot in a file is read into memory and given to
 * trace_check. */
bool trace_map(int fd, struct trace_view *out, const char **why);
void trace_unmap(struct trace_view *view);

/* The newest index with these lowest bits, as messages carry them; 0 for 0. There need be no such
 * record. */
uint64_t trace_index(const struct trace_view *view, uint32_t low);
/* Copies record `index` (false: gone, torn or never written) and its step cursor. */
bool trace_read(const struct trace_view *view, uint64_t index, struct trace_record *out,
		uint32_t *step);
/* Whether record `index` has been reserved and may still be written: its place has an older one
 * that is over, none, or one that is being written. */
bool trace_is_due(const struct trace_view *view, uint64_t index);
/* Copies the record at a position of the ring, 0 to ring_records - 1. This way a reader meets every
 * record, also that of an operation which has run for longer than the ring is long. */
bool trace_read_at(const struct trace_view *view, uint64_t position, struct trace_record *out,
		   uint32_t *step);

/* Copies the report; false: the owner has published none. The text is whole and ends with NUL. */
bool trace_read_report(const struct trace_view *view, struct trace_report *out);

/* Copies wait slot i (false: torn). *epoch tells whether a later copy shows the same wait. */
bool trace_read_slot(const struct trace_view *view, int i, struct wait_slot_body *out,
		     uint32_t *epoch);
/* Whether slot i still shows that wait. */
bool trace_slot_is(const struct trace_view *view, int i, uint32_t epoch);
/* Copies words of a wait to out[WAIT_EDGE_MAX]: with page 0 those of the slot, then those of its
 * pages; returns how many, 0 after the last page. They are the wait's if the slot still shows it
 * afterwards. */
int trace_read_words(const struct trace_view *view, const struct wait_slot_body *wait, int page,
		     struct wait_edge *out);
/* Whether these are all its words. */
bool trace_shows_all(const struct wait_slot_body *wait);

/* The phases of one rank at one moment. */
struct trace_phases {
	/* From the first begin to the last end, or to now if a thread is in one. */
	uint64_t span_ns;
	uint64_t outside_ns; /* blocked in operations in that time, between phases */
	uint32_t count;
	struct {
		char name[TRACE_PHASE_BYTES]; /* ends, and may be shown */
		uint64_t count;
		uint64_t ns;        /* in it and in none inside of it */
		uint64_t waited_ns; /* of these, blocked in operations; at most ns */
		uint32_t running;   /* threads whose innermost one it is */
		uint32_t reserved;
	} phases[TRACE_PHASE_MAX];
};
/* Copies them, in no order. What runs is counted up to now_ns (clock_now_ns), 0: not at all, as for
 * a rank that has ended at a time unknown. Never fails; of a torn copy it gives what it could
 * read. */
void trace_read_phases(const struct trace_view *view, uint64_t now_ns, struct trace_phases *out);

/* Writes the call site of a record as "file.c:123", "module+0x1234 (function)" or its label, "" if
 * it has none, or lies in what calls for an interpreter; never fails. Opens the module's file, so
 * only for reports. Needs no running process. Not for two threads at once. */
void trace_site(const struct trace_view *view, const struct trace_record *record, char *out,
		size_t bytes);

/* The same of an address in a file of this kind; bytes is not 0. */
void trace_place(const struct trace_module *module, uint64_t site, char *out, size_t bytes);
/* The file of this process in which an address lies; false: in none. */
bool trace_find_module(uint64_t address, struct trace_module *out);

/* ", called from file.c:123" of a return address in this process; "" if it is 0, or in what calls
 * for an interpreter. */
void trace_called_at(const void *site, char *out, size_t bytes);
/* The same of the call of the program that this thread is in; "" where it cannot be told, as in a
 * program that contains the library. It takes milliseconds, so only for errors. */
enum { TRACE_CALLED_BYTES = 160 };
void trace_called(char *out, size_t bytes);

#endif
