/* SPDX-License-Identifier: BSD-3-Clause
 * The flight recorder of one rank: fixed-size records in a memfd that only its owner can write.
 * Every local rank and the launcher hold it open, so it outlives its process.
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

#include "base/bias.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/ranks.h"
#include "base/wait.h"
#include "coll/coll.h"
#include "trace/trace_memory.h"
#include "trace/trace_stream.h"

#define TRACE_MAGIC UINT64_C(0x31454341525453) /* "STRACE1" */
enum {
	TRACE_VERSION = 15 << 8 | COLL_KIND_COUNT, /* older programs would not know a new kind */
	TRACE_GROUP_MAX = 513, /* the groups that a rank may be a member of: TRANSPORT_AREAS */
	TRACE_MEMBER_MAX = RANKS_WORLD_MAX,
	TRACE_GROUP_WORLD = 1, /* the id of the world group, which has the first entry */
	TRACE_MODULE_MAX = 64,
	TRACE_LABEL_MAX = 256,
	TRACE_LABEL_BYTES = 96,
	TRACE_TEXT_BYTES = 64,
	TRACE_PATH_BYTES = 256,
	TRACE_BUILD_ID_BYTES = 32,
	TRACE_PHASE_MAX = 64,
	TRACE_PHASE_BYTES = 64,      /* of a name, with its NUL */
	TRACE_PHASE_DEPTH = 8,       /* nested phases */
	TRACE_PHASE_THREAD_MAX = 64, /* threads in phases at once */
	TRACE_REPORT_BYTES = 2048,
};

/* The numbers of kinds are part of the format: coll/coll.h. */
enum trace_kind {
	TRACE_NONE = COLL_KIND_NONE,
#define X(id, ...) TRACE_##id = COLL_KIND_##id,
	COLL_KINDS(X)
#undef X
		TRACE_KIND_COUNT = COLL_KIND_COUNT
};
/* "all-reduce", "send", …; "?" outside the range. */
const char *trace_kind_name(uint32_t kind);
/* What operations of this kind have; all false outside the range. */
struct trace_kind_facts {
	bool collective;
	bool rooted;   /* peer is the root */
	bool reduces;  /* reduce_op means something */
	bool typed;    /* count and dtype mean something */
	bool per_rank; /* a count for each rank: count is their sum, shape their hash */
	/* per_rank, and each rank passes its own list: count and shape may differ between ranks */
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
	/* its number, from 1: among the collectives of the group, or among the messages to or from
	 * peer; 0 for a probe */
	uint64_t seq;
	uint64_t count;       /* elements */
	uint64_t begin_ticks; /* clock_ticks */
	uint64_t end_ticks;   /* 0 while it runs */
	uint64_t site;        /* the caller's return address, 0 if unknown; TRACE_NO_SITE */
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
	/* enum trace_wildcard of a receive or probe; it stays after the match */
	uint32_t wildcards;
	uint32_t stream; /* enum trace_stream, of an operation on a stream of a device */
	/* On a stream: the record of the operation right in front of it there; 0: none, as far as
	 * is known. */
	uint64_t behind;
	uint64_t follows; /* that of one on another stream, which its stream waits for, too */
	uint64_t reserved;
};
/* The site of an operation that its rank had not recorded yet; no code lies at this address. */
enum { TRACE_NO_SITE = 1 };
/* "all-reduce #58"; "probe", which has no number. The text is cut to fit. */
enum { TRACE_NAME_BYTES = 48 };
void trace_name(const struct trace_record *record, char *out, size_t bytes);

struct trace_slot {
	_Atomic uint32_t epoch;
	/* the cursor: the current step of the plan; written without the lock */
	_Atomic uint32_t step;
	struct trace_record record;
};
_Static_assert(sizeof(struct trace_slot) == 128, "a trace slot is two cache lines");

/* A group that the trace's owner is or was a member of. Its area in the owner's segment has the
 * same number as this entry. The entry is reused some time after all members have closed the
 * group. */
struct trace_group {
	/* the same on all members, unique in the job; 0: not used */
	_Atomic uint32_t id;
	uint32_t size;
	int32_t rank;           /* of the trace's owner in this group */
	_Atomic uint32_t state; /* enum trace_group_state */
	uint32_t parent;        /* id of the group it was made from, 0: none */
	uint32_t first_area;    /* the area of its first member, which has the group's cause */
	/* Offsets in that member's segment of the group's claim (lower half: 1 + world rank of the
	 * rank that is working out the cause) and cause (lower half not 0: the group has failed);
	 * 0: unknown. */
	uint64_t claim_offset, cause_offset;
	/* Collectives entered and finished: entered - 1 <= finished <= entered. */
	_Atomic uint64_t entered;
	_Atomic uint64_t finished;
	/* Nonblocking sends and receives in progress. callbacks: those whose end may wake a thread,
	 * by a callback or in a stream, until the callback has returned. limits: those with a time
	 * limit of their own. Raised before any other thread can find the operation. */
	_Atomic uint32_t callbacks, limits;
	/* Members that are dead or have left (ranks_bit of the group rank), but that no operation
	 * with a callback needs. */
	_Atomic uint64_t spared[RANKS_WORLD_WORDS];
};
enum trace_group_state { TRACE_GROUP_OPEN = 1, TRACE_GROUP_CLOSED = 2, TRACE_GROUP_FAILED = 3 };

struct trace_module {
	uint64_t base; /* the mapped address of the page of its first segment */
	uint64_t end;  /* one past its last mapped byte */
	uint8_t build_id[TRACE_BUILD_ID_BYTES];
	uint32_t build_id_bytes;
	uint32_t reserved;
	char path[TRACE_PATH_BYTES];
};

/* A phase of a training step, such as "data/image". Found in the table by hash. */
struct trace_phase {
	_Atomic uint64_t hash;  /* of its name, never 0, stored last; 0: not used */
	_Atomic uint64_t count; /* how many times it has ended */
	/* Time that all threads spent in it, and not in a nested phase; without the current stay of
	 * threads that are in it now. */
	_Atomic uint64_t ticks;
	_Atomic uint64_t waited_ticks; /* of these, blocked in operations */
	uint32_t length;
	uint32_t reserved;
	char name[TRACE_PHASE_BYTES];
};

/* The phases that one thread is in. Written by that thread under its sequence lock. */
struct trace_phase_thread {
	_Alignas(64) _Atomic uint32_t epoch;
	/* 2 * the thread's number, + 1 while it is in a phase; no other thread may then take this
	 * struct */
	_Atomic uint32_t owner;
	_Atomic uint64_t since_ticks; /* when the innermost phase began, or was resumed */
	/* byte i: 1 + index in the table of the i-th phase, outermost first */
	_Atomic uint64_t stack;
	/* How much of the time since since_ticks the thread was blocked in operations. Added to
	 * waited_ticks of the phase when the phase ends. Outside of all phases it is added to
	 * outside_ticks when the next phase begins: waits after the last phase, such as a final
	 * barrier, do not belong to the span. */
	_Atomic uint64_t waited_ticks;
};

struct trace_phase_table {
	_Atomic uint64_t first_ticks, last_ticks; /* first begin and last end, 0 before */
	/* Time blocked in operations between phases, by threads that have begun another phase
	 * since. */
	_Atomic uint64_t outside_ticks;
	struct trace_phase phases[TRACE_PHASE_MAX];
	struct trace_phase_thread threads[TRACE_PHASE_THREAD_MAX];
};

/* The cause of a group's failure that the trace's owner has published. The trace has this copy
 * because a job of a few milliseconds may end before the launcher has found the segments. Then the
 * launcher has only the traces. */
struct trace_report {
	_Atomic uint32_t status; /* a status with scope GROUP, written last; 0: none is published */
	int32_t culprit;         /* a world rank, or -1 */
	uint64_t operation;
	uint32_t group; /* its id */
	/* 1: found when the owner closed the group, so none of its calls returned it */
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
	uint32_t pid_space;     /* the PID namespace of `pid`: fork_pid_space */
	uint32_t serial;        /* 1: its sends begin one after the other (setting P2P=serial) */
	uint64_t start_ns;      /* clock_now_ns at open */
	uint64_t start_epoch_s; /* wall clock */
	struct clock_rate rate;
	char host[TRACE_TEXT_BYTES];
	char program[TRACE_PATH_BYTES]; /* path of the executable */
	char library[TRACE_TEXT_BYTES]; /* version */
	uint64_t wait_table_offset;     /* struct wait_table */
	uint64_t group_offset;          /* struct trace_group [TRACE_GROUP_MAX] */
	uint64_t member_offset;  /* uint16_t [TRACE_GROUP_MAX][member_max]: members' world ranks */
	uint64_t member_max;     /* the world size, made a multiple of 4 */
	uint64_t module_offset;  /* struct trace_module [TRACE_MODULE_MAX] */
	uint64_t label_offset;   /* char [TRACE_LABEL_MAX][TRACE_LABEL_BYTES] */
	uint64_t phase_offset;   /* struct trace_phase_table */
	uint64_t device_offset;  /* struct trace_device */
	uint64_t ring_offset;    /* struct trace_slot [ring_records] */
	uint64_t ring_records;   /* a power of two */
	_Atomic uint64_t newest; /* index of the newest record */
	_Atomic uint32_t module_count;
	_Atomic uint32_t label_count;
	_Atomic uint64_t left_ns; /* clock_now_ns when the owner closed the world group; 0 before */
	struct trace_report report;
};

/* ---- writing: the owner ---- */

struct trace {
	struct trace_header *header; /* the mapping; NULL before init */
	struct wait_table *wait_table;
	struct trace_group *groups;
	uint16_t *members;
	uint32_t member_max;
	struct trace_slot *ring;
	char (*labels)[TRACE_LABEL_BYTES];
	struct trace_module *modules;
	struct trace_phase_table *phases;
	struct trace_device *device;
	uint32_t fork_generation; /* of the process that made it */
	uint64_t mask;
	size_t bytes;
	/* The thread that begins records, as long as no other thread has begun one: then its
	 * records take no locked instruction. */
	struct bias writer;
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

/* Creates, maps, fills and seals the memfd. Errors: LS_SYSTEM, LS_OUT_OF_MEMORY, with a message. */
LS_CHECKED ls_status trace_init(struct trace *trace, const struct trace_options *options);
void trace_fini(struct trace *trace);

/* The job id is known only after the trace was created: write it once, before any other process
 * reads it. */
void trace_set_job(struct trace *trace, uint64_t job, int world_size);

/* Records the loaded modules (again after dlopen). */
void trace_update_modules(struct trace *trace);

/* The fields of struct trace_group that are known when a group is made. */
struct trace_membership {
	uint32_t id, parent, size, first_area;
	int32_t rank;
	uint64_t claim_offset, cause_offset;
	const uint16_t *members;
};

/* The fields of a record that are known when an operation begins. */
struct trace_begin {
	uint64_t seq, count, shape, site;
	uint32_t label, group;
	int32_t peer, tag;
	uint16_t kind;
	uint8_t dtype, reduce_op;
	uint32_t wildcards, stream;
	uint16_t algorithm, step_count; /* as trace_plan, where it is known by then */
};

/* Any thread; never blocks, never fails; about 10 ns. Returns the record's index, which names the
 * record until trace_end. The ring skips records of running operations and never overwrites them.
 * If all records of the ring are running, the new operation is not recorded, and the index is 0. */
uint64_t trace_begin(struct trace *trace, const struct trace_begin *begin);
void trace_end(struct trace *trace, uint64_t index, ls_status status);
/* trace_begin and trace_end for an operation that completes at once. First reserve the index, which
 * may be sent to peers; then write the whole record, which begins and ends now. If a running
 * operation has that slot of the ring, or a record one lap later, the operation is recorded under
 * another index, and the reserved one names no record. */
uint64_t trace_reserve(struct trace *trace);
void trace_add(struct trace *trace, uint64_t index, const struct trace_begin *begin);
/* Records the plan that the operation runs. */
void trace_plan(struct trace *trace, uint64_t index, uint16_t algorithm, uint16_t step_count);
/* Notes the source and tag of the message that a receive with a wildcard has matched. */
void trace_matched(struct trace *trace, uint64_t index, int peer, int tag);
/* Notes `behind` and `follows` of the record, before the operation is put on its stream. */
void trace_behind(struct trace *trace, uint64_t index, uint64_t behind, uint64_t follows);
/* Notes how far an operation on a stream has come. */
void trace_stream(struct trace *trace, uint64_t index, enum trace_stream seen);
static inline void trace_step(struct trace *trace, uint64_t index, uint32_t step)
{
	if (index)
		atomic_store_explicit(&trace->ring[index & trace->mask].step, step,
				      memory_order_relaxed);
}

/* The id of a label (cut to TRACE_LABEL_BYTES - 1); 0 for NULL, or if the table is full. */
uint32_t trace_label(struct trace *trace, const char *text);

/* Keeps the report that the owner is about to publish on a group, and cuts its text to fit. LS_OK
 * removes that report again, because another rank was first. A report on the world group replaces
 * one on another group, and no report on another group replaces it. */
void trace_report(struct trace *trace, uint32_t group, ls_status status, int culprit,
		  uint64_t operation, const char *text) LOCK_AVOIDS(trace);
/* Notes that no call of the owner has returned the report on this group. Returns its status; LS_OK:
 * there is none. */
ls_status trace_report_unreturned(struct trace *trace, uint32_t group) LOCK_AVOIDS(trace);

/* Fills entry `at` < TRACE_GROUP_MAX of the table of groups; no collective has been entered yet.
 * The entry's last group must be closed. */
struct trace_group *trace_group_fill(struct trace *trace, int at,
				     const struct trace_membership *membership);

/* The kernel's id of the calling thread. */
extern _Thread_local uint32_t trace_thread;
uint32_t trace_thread_first(void);
static inline uint32_t trace_thread_id(void)
{
	return __builtin_expect(trace_thread != 0, 1) ? trace_thread : trace_thread_first();
}

/* Phases: what a thread spends its time on. Any thread; no lock, except for a new name. */
enum trace_phase_answer {
	TRACE_PHASE_DONE,
	TRACE_PHASE_FORKED,   /* in a forked child; nothing was written */
	TRACE_PHASE_BAD_NAME, /* empty, too long, a blank or control character, an empty part */
	/* begin: the thread is in a phase, and this one is not nested in it */
	TRACE_PHASE_OUTSIDE,
	/* end: it is not the thread's innermost phase */
	TRACE_PHASE_NOT_INSIDE,
	TRACE_PHASE_MANY_NAMES, /* there are TRACE_PHASE_MAX other names */
	TRACE_PHASE_MANY_THREADS,
	TRACE_PHASE_DEEP,
};
/* *inside is the name of the innermost phase the thread was in before the call, NULL if none. It
 * stays valid as long as the trace. */
enum trace_phase_answer trace_phase_begin(struct trace *trace, const char *name,
					  const char **inside);
enum trace_phase_answer trace_phase_end(struct trace *trace, const char *name, const char **inside);

/* The calling thread was blocked in an operation for this many ticks, until now. Costs nothing in
 * programs without phases. */
void trace_waited_inside(struct trace *trace, uint64_t ticks);
static inline void trace_waited(struct trace *trace, uint64_t ticks)
{
	if (atomic_load_explicit(&trace->phases->first_ticks, memory_order_relaxed))
		trace_waited_inside(trace, ticks);
}

/* ---- reading: any process ---- */

/* A trace mapped read-only and checked. */
struct trace_view {
	const struct trace_header *header;
	const struct wait_table *wait_table;
	const struct trace_group *groups;
	const uint16_t *members;
	uint32_t member_max; /* the checked copy, <= TRACE_MEMBER_MAX */
	const struct trace_module *modules;
	const char (*labels)[TRACE_LABEL_BYTES];
	const struct trace_phase_table *phases;
	const struct trace_device *device;
	const struct trace_slot *ring;
	/* the checked copy; the header's own field may change at any time */
	uint64_t ring_records;
	size_t bytes;
	uint32_t module_count;
	bool mapped; /* trace_unmap has something to unmap */
};

/* Checks `bytes` at `memory` (which must stay valid and be aligned to 64) and fills *out. false
 * with the reason in `why` (static text) when it is no trace of this version. */
bool trace_check(const void *memory, size_t bytes, struct trace_view *out, const char **why);
/* As trace_check, for a memfd, which it maps read-only. Refuses a file that its owner could still
 * shrink, because reading it could then end in SIGBUS. A snapshot in a file is read into memory and
 * passed to trace_check. */
bool trace_map(int fd, struct trace_view *out, const char **why);
void trace_unmap(struct trace_view *view);

/* Writes a copy for another host to `out`, of view->bytes, aligned to 64. Its records are whole;
 * records without a label get one that says their call site, as far as sites can be looked up until
 * sites_until_ns. The copy has the rate of trace_rate_now. Not for two threads at once. */
void trace_copy(const struct trace_view *view, void *out, uint64_t sites_until_ns);

/* Copies the members of entry `at` of the table of groups to out[TRACE_MEMBER_MAX]; returns how
 * many: none, if there are more than have room. The members belong to the group if the entry has
 * the group's id before and after. */
uint32_t trace_read_members(const struct trace_view *view, int at, uint16_t *out);

/* The rate of ticks on this host, of which the trace is, with a reading of now: a rate that was
 * measured in some milliseconds is wrong by microseconds for each second since then. */
struct clock_rate trace_rate_now(const struct trace_view *view);

/* The newest index with these lowest bits, as messages carry them; 0 for 0. That record need not
 * exist. */
uint64_t trace_index(const struct trace_view *view, uint32_t low);
/* Copies record `index` (false: gone, torn or never written) and its step cursor. */
bool trace_read(const struct trace_view *view, uint64_t index, struct trace_record *out,
		uint32_t *step);
/* Whether record `index` was reserved and may still be written: its slot has an older record of a
 * complete operation, or no record, or is being written. */
bool trace_is_due(const struct trace_view *view, uint64_t index);
/* Copies the record at a position of the ring, 0 to ring_records - 1. A reader that visits all
 * positions finds every record, also that of an operation which has run for more than a lap of the
 * ring. */
bool trace_read_at(const struct trace_view *view, uint64_t position, struct trace_record *out,
		   uint32_t *step);

/* Copies the report; false: the owner has published none. The text is complete and ends with
 * NUL. */
bool trace_read_report(const struct trace_view *view, struct trace_report *out);

/* Copies wait slot i (false: torn). *epoch tells whether a later copy shows the same wait. The name
 * of a foreign call ends with NUL, and is empty in other states; its text is the writer's. */
bool trace_read_slot(const struct trace_view *view, int i, struct wait_slot_body *out,
		     uint32_t *epoch);
/* Whether slot i still shows that wait. */
bool trace_slot_is(const struct trace_view *view, int i, uint32_t epoch);
/* Copies words of a wait to out[WAIT_EDGE_MAX]: page 0 is those of the slot, later pages the wait's
 * further ones. Returns their number, 0 after the last page. They belong to the wait if the slot
 * still shows it afterwards. */
int trace_read_words(const struct trace_view *view, const struct wait_slot_body *wait, int page,
		     struct wait_edge *out);
/* Whether the slot and its pages have all words of the wait. */
bool trace_shows_all(const struct wait_slot_body *wait);

/* The phases of one rank at one moment. */
struct trace_phases {
	/* From the first begin to the last end, or to now if a thread is in a phase. */
	uint64_t span_ns;
	uint64_t outside_ns; /* of that time, blocked in operations between phases */
	uint32_t count;
	struct {
		char name[TRACE_PHASE_BYTES]; /* ends with NUL, and may be shown */
		uint64_t count;
		uint64_t ns;        /* in it, without nested phases */
		uint64_t waited_ns; /* of these, blocked in operations; at most ns */
		uint32_t running;   /* threads whose innermost phase it is */
		uint32_t reserved;
	} phases[TRACE_PHASE_MAX];
};
/* Copies the phases, in no order. Running phases count up to now_ns (clock_now_ns); 0: they do not
 * count, as for a rank that ended at an unknown time. Never fails; from a torn copy it takes what
 * it could read. */
void trace_read_phases(const struct trace_view *view, uint64_t now_ns, struct trace_phases *out);

/* Writes the call site of a record: "file.c:123", "module+0x1234 (function)" or the record's label;
 * "" if it has neither, or if the address is in code that calls for an interpreter; "(not
 * recorded)" for TRACE_NO_SITE. Never fails. It opens the module's file, so call it only for
 * reports. It needs no running process. Not for two threads at once. */
void trace_site(const struct trace_view *view, const struct trace_record *record, char *out,
		size_t bytes);

/* As trace_site, for an address in this module; bytes is not 0. */
void trace_place(const struct trace_module *module, uint64_t site, char *out, size_t bytes);
/* The file of this process in which an address lies; false: in none. */
bool trace_find_module(uint64_t address, struct trace_module *out);

/* ", called from file.c:123" for a return address in this process; "" if it is 0, or is in code
 * that calls for an interpreter. */
void trace_caller_text_at(const void *site, char *out, size_t bytes);
/* As trace_caller_text_at, for the program's call that this thread is in; "" if it is unknown, as
 * in a program that contains the library. It takes milliseconds, so only for errors. */
enum { TRACE_CALLER_BYTES = 160 };
void trace_caller_text(char *out, size_t bytes);

#endif
