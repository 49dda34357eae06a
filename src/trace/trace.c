/* SPDX-License-Identifier: BSD-3-Clause
 * The writing side of the flight recorder: makes the memfd, and records what operations do. The
 * data path (trace_begin, trace_end) takes no lock: a record is claimed with one compare-and-swap
 * on its sequence lock, so that two threads never write one record, however far apart their indices
 * are. */
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/fork.h"
#include "base/messages.h"
#include "base/seqlock.h"

/* Missing from older C libraries; the kernel has it since 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
	PAGE_BYTES = 4096,
	RECORDS_MIN = 16,
	RECORDS_MAX = 1 << 20,
	LABEL_PROBES = 16,
	END_WORD = offsetof(struct trace_record, end_ticks) / 8,
	STATE_WORD = offsetof(struct trace_record, state) / 8,
	PEER_WORD = offsetof(struct trace_record, peer) / 8,
};
_Static_assert(offsetof(struct trace_record, label) % 8 == 0 &&
		       offsetof(struct trace_record, peer) % 8 == 0 &&
		       offsetof(struct trace_record, tid) % 8 == 0 &&
		       offsetof(struct trace_record, state) % 8 == 0 &&
		       offsetof(struct trace_record, shape) % 8 == 0,
	       "a record is stored word by word");
_Static_assert(sizeof(struct wait_slot_body) % 8 == 0, "a wait is copied in words");

/* The word that changes while an operation runs, as a word and as what it means. */
union state_word {
	uint64_t word;
	struct {
		uint16_t state, status, algorithm, step_count;
	} field;
};

static uint64_t align_up(uint64_t offset, uint64_t to)
{
	return (offset + to - 1) & ~(to - 1);
}

static void lay_out(struct trace_header *header, uint64_t records)
{
	uint64_t offset = align_up(sizeof(*header), 64);
	header->wait_table_offset = offset;
	offset = align_up(offset + sizeof(struct wait_table), 64);
	header->group_offset = offset;
	offset = align_up(offset + TRACE_GROUP_MAX * sizeof(struct trace_group), 64);
	header->module_offset = offset;
	offset = align_up(offset + TRACE_MODULE_MAX * sizeof(struct trace_module), 64);
	header->label_offset = offset;
	offset = align_up(offset + TRACE_LABEL_MAX * TRACE_LABEL_BYTES, 64);
	header->phase_offset = offset;
	offset = align_up(offset + sizeof(struct trace_phase_table), PAGE_BYTES);
	header->ring_offset = offset;
	header->ring_records = records;
	header->total_bytes = align_up(offset + records * sizeof(struct trace_slot), PAGE_BYTES);
}

static uint64_t round_records(uint64_t wanted)
{
	uint64_t records = RECORDS_MIN;
	while (records < wanted && records < RECORDS_MAX)
		records *= 2;
	return records;
}

static ls_status say_failed(const char *call)
{
	int error = errno;
	MESSAGE_SAY(MESSAGE_TRACE_FAILED, call, strerror(error));
	bool exhausted = error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE;
	return exhausted ? LS_OUT_OF_MEMORY : LS_SYSTEM;
}

/* Memory for the whole file is taken here, so that recording can never end in SIGBUS. */
static ls_status make_file(struct trace *trace, const struct trace_options *options)
{
	char name[64];
	snprintf(name, sizeof(name), "lockstep-trace:%016" PRIx64 ":%d", options->job,
		 options->rank);
	trace->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (trace->fd < 0)
		return say_failed("memfd_create");
	if (ftruncate(trace->fd, (off_t)trace->bytes) != 0)
		return say_failed("ftruncate");
	if (fallocate(trace->fd, 0, 0, (off_t)trace->bytes) != 0)
		return say_failed("fallocate");
	void *memory = mmap(NULL, trace->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    trace->fd, 0);
	if (memory == MAP_FAILED)
		return say_failed("mmap");
	trace->header = memory;
	return LS_OK;
}

static ls_status seal(struct trace *trace)
{
	int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	if (fcntl(trace->fd, F_ADD_SEALS, seals) == 0)
		return LS_OK;
	if (errno == EINVAL) {
		MESSAGE_SAY(MESSAGE_TRACE_UNSEALED);
		return LS_UNSUPPORTED;
	}
	return say_failed("F_ADD_SEALS");
}

static void fill_header(struct trace_header *header, const struct trace_options *options)
{
	header->magic = TRACE_MAGIC;
	header->version = TRACE_VERSION;
	header->header_bytes = sizeof(*header);
	header->job = options->job;
	header->rank = options->rank;
	header->world_size = options->world_size;
	header->pid = getpid();
	header->uid = getuid();
	header->pid_space = fork_pid_space();
	header->serial = options->serial;
	header->start_ns = clock_now_ns();
	struct timespec wall = {0};
	if (clock_gettime(CLOCK_REALTIME, &wall) == 0)
		header->start_epoch_s = (uint64_t)wall.tv_sec;
	clock_calibrate(&header->rate);
	if (gethostname(header->host, sizeof(header->host) - 1) != 0)
		header->host[0] = 0;
	if (readlink("/proc/self/exe", header->program, sizeof(header->program) - 1) < 0)
		header->program[0] = 0;
	snprintf(header->library, sizeof(header->library), "%s", LOCKSTEP_VERSION);
}

static void release(struct trace *trace)
{
	if (trace->header && munmap(trace->header, trace->bytes) != 0)
		MESSAGE_SAY(MESSAGE_TRACE_FAILED, "munmap", strerror(errno));
	if (trace->fd >= 0)
		close(trace->fd);
	lock_trace_fini(&trace->lock);
	*trace = (struct trace){.fd = -1};
}

ls_status trace_init(struct trace *trace, const struct trace_options *options)
{
	struct trace_header layout = {0};
	lay_out(&layout, round_records(options->records));
	*trace = (struct trace){
		.fd = -1, .bytes = layout.total_bytes, .fork_generation = fork_generation()};
	lock_trace_init(&trace->lock);

	ls_status status = make_file(trace, options);
	if (status == LS_OK) {
		unsigned char *base = (unsigned char *)trace->header;
		lay_out(trace->header, layout.ring_records);
		fill_header(trace->header, options);
		trace->wait_table = (struct wait_table *)(base + layout.wait_table_offset);
		trace->groups = (struct trace_group *)(base + layout.group_offset);
		trace->modules = (struct trace_module *)(base + layout.module_offset);
		trace->labels = (char(*)[TRACE_LABEL_BYTES])(base + layout.label_offset);
		trace->phases = (struct trace_phase_table *)(base + layout.phase_offset);
		trace->ring = (struct trace_slot *)(base + layout.ring_offset);
		trace->mask = layout.ring_records - 1;
		trace_update_modules(trace);
		status = seal(trace);
	}
	if (status != LS_OK)
		release(trace);
	return status;
}

void trace_fini(struct trace *trace)
{
	if (trace->header)
		release(trace);
}

void trace_set_job(struct trace *trace, uint64_t job, int world_size)
{
	trace->header->job = job;
	trace->header->world_size = world_size;
}

static void write_report(struct trace_report *report, uint32_t group, ls_status status, int blamed,
			 uint64_t operation, const char *text)
{
	atomic_store_explicit(&report->status, 0, memory_order_release);
	report->group = group;
	atomic_store_explicit(&report->unreturned, 0, memory_order_relaxed);
	report->blamed = blamed;
	report->operation = operation;
	snprintf(report->text, sizeof report->text, "%s", text);
	atomic_store_explicit(&report->status, (uint32_t)status, memory_order_release);
}

void trace_report(struct trace *trace, uint32_t group, ls_status status, int blamed,
		  uint64_t operation, const char *text)
{
	struct trace_report *report = &trace->header->report;
	lock_trace_acquire(&trace->lock);
	bool there = atomic_load_explicit(&report->status, memory_order_relaxed) != 0;
	bool mine = there && report->group == group;
	if (status != LS_OK && !(there && !mine && report->group == TRACE_GROUP_WORLD))
		write_report(report, group, status, blamed, operation, text);
	else if (status == LS_OK && mine)
		atomic_store_explicit(&report->status, 0, memory_order_release);
	lock_trace_release(&trace->lock);
}

void trace_report_unreturned(struct trace *trace, uint32_t group)
{
	struct trace_report *report = &trace->header->report;
	lock_trace_acquire(&trace->lock);
	if (atomic_load_explicit(&report->status, memory_order_relaxed) != 0 &&
	    report->group == group)
		atomic_store_explicit(&report->unreturned, 1, memory_order_release);
	lock_trace_release(&trace->lock);
}

/* A cache of a constant, not state: the system call would cost more than the whole record. */
uint32_t trace_thread_id(void)
{
	static _Thread_local uint32_t id;
	if (!id)
		id = (uint32_t)gettid();
	return id;
}

static _Atomic uint64_t *record_word(struct trace_slot *slot, int word)
{
	return (_Atomic uint64_t *)&slot->record + word;
}

/* Makes the epoch odd if nobody else writes this record, no running operation has it, and none that
 * came after `index`: a thread that is held up between taking its number and coming here may be
 * overtaken by a whole lap of others, more easily than one thinks, as 1024 short messages take less
 * time than a thread is off its core. Between the look and the swap nothing can change unseen, for
 * every change of a record moves the epoch. */
static bool claim(struct trace_slot *slot, uint64_t index)
{
	uint32_t epoch = atomic_load_explicit(&slot->epoch, memory_order_acquire);
	union state_word now = {
		.word = atomic_load_explicit(record_word(slot, STATE_WORD), memory_order_acquire)};
	if (epoch & 1u || now.field.state == TRACE_RUNNING ||
	    atomic_load_explicit(record_word(slot, 0), memory_order_acquire) > index)
		return false;
	return atomic_compare_exchange_strong_explicit(&slot->epoch, &epoch, epoch + 1,
						       memory_order_acquire, memory_order_relaxed);
}

/* Two halves of a word in their order in memory, made in a register: a record that is written field
 * by field to the stack and copied from there word by word stalls the loads, a third of the whole
 * cost. */
static uint64_t word_of(uint32_t first, uint32_t second)
{
	bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
	return little ? first | (uint64_t)second << 32 : second | (uint64_t)first << 32;
}

static uint32_t half_of(uint16_t kind, uint8_t dtype, uint8_t reduce_op)
{
	struct {
		uint16_t kind;
		uint8_t dtype, reduce_op;
	} half = {kind, dtype, reduce_op};
	uint32_t word;
	memcpy(&word, &half, sizeof(word));
	return word;
}

/* Release, as in seqlock_store: whoever sees this word also sees the odd epoch that was stored
 * before. */
#define STORE(slot, field, value)                                                                 \
	atomic_store_explicit(record_word(slot, offsetof(struct trace_record, field) / 8), value, \
			      memory_order_release)

/* What is reserved stays zero. */
static void store_all(struct trace_slot *slot, uint64_t index, const struct trace_begin *begin,
		      uint64_t begin_ticks, uint64_t end_ticks)
{
	const union state_word now = {.field = {.state = end_ticks ? TRACE_DONE : TRACE_RUNNING,
						.algorithm = begin->algorithm,
						.step_count = begin->step_count}};
	atomic_store_explicit(&slot->step, 0, memory_order_release);
	STORE(slot, index, index);
	STORE(slot, seq, begin->seq);
	STORE(slot, count, begin->count);
	STORE(slot, begin_ticks, begin_ticks);
	STORE(slot, end_ticks, end_ticks);
	STORE(slot, site, begin->site);
	STORE(slot, label, word_of(begin->label, begin->group));
	STORE(slot, peer, word_of((uint32_t)begin->peer, (uint32_t)begin->tag));
	STORE(slot, tid,
	      word_of(trace_thread_id(), half_of(begin->kind, begin->dtype, begin->reduce_op)));
	STORE(slot, state, now.word);
	STORE(slot, shape, begin->shape);
	STORE(slot, wildcards, word_of(begin->wildcards, 0));
}

/* The ring is longer than the nearest caches: the next record is fetched before it is needed, as a
 * locked instruction would wait for the stores to it. */
static void fetch_next(const struct trace *trace, uint64_t index)
{
	const char *next = (const char *)&trace->ring[(index + 1) & trace->mask];
	__builtin_prefetch(next, 1);
	__builtin_prefetch(next + 64, 1);
}

uint64_t trace_reserve(struct trace *trace)
{
	return 1 + atomic_fetch_add_explicit(&trace->header->newest, 1, memory_order_relaxed);
}

uint64_t trace_begin(struct trace *trace, const struct trace_begin *begin)
{
	for (uint64_t tries = 0; tries <= trace->mask; tries++) {
		uint64_t index = trace_reserve(trace);
		struct trace_slot *slot = &trace->ring[index & trace->mask];
		if (!claim(slot, index))
			continue;
		store_all(slot, index, begin, clock_ticks(), 0);
		seqlock_end(&slot->epoch);
		fetch_next(trace, index);
		return index;
	}
	return 0;
}

void trace_add(struct trace *trace, uint64_t index, const struct trace_begin *begin)
{
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (!claim(slot, index)) {
		trace_end(trace, trace_begin(trace, begin), LS_OK);
		return;
	}
	uint64_t ticks = clock_ticks();
	store_all(slot, index, begin, ticks, ticks);
	seqlock_end(&slot->epoch);
	fetch_next(trace, index);
}

/* The slot of an operation that runs; NULL if it was not recorded. Until trace_end nobody else
 * writes to it. */
static struct trace_slot *running_slot(struct trace *trace, uint64_t index, union state_word *now)
{
	if (!index)
		return NULL;
	struct trace_slot *slot = &trace->ring[index & trace->mask];
	if (atomic_load_explicit(record_word(slot, 0), memory_order_relaxed) != index)
		return NULL;
	now->word = atomic_load_explicit(record_word(slot, STATE_WORD), memory_order_relaxed);
	return now->field.state == TRACE_RUNNING ? slot : NULL;
}

void trace_end(struct trace *trace, uint64_t index, ls_status status)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	uint64_t ticks = clock_ticks();
	now.field.state = status == LS_OK ? TRACE_DONE : TRACE_FAILED;
	now.field.status = (uint16_t)status;
	seqlock_begin(&slot->epoch);
	atomic_store_explicit(record_word(slot, END_WORD), ticks, memory_order_release);
	atomic_store_explicit(record_word(slot, STATE_WORD), now.word, memory_order_release);
	seqlock_end(&slot->epoch);
}

void trace_plan(struct trace *trace, uint64_t index, uint16_t algorithm, uint16_t step_count)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	if (!slot)
		return;
	/* One word, so it cannot be torn, and the epoch may stay. */
	now.field.algorithm = algorithm;
	now.field.step_count = step_count;
	atomic_store_explicit(record_word(slot, STATE_WORD), now.word, memory_order_release);
}

void trace_matched(struct trace *trace, uint64_t index, int peer, int tag)
{
	union state_word now;
	struct trace_slot *slot = running_slot(trace, index, &now);
	union {
		struct {
			int32_t peer, tag;
		} field;
		uint64_t word;
	} who = {.field = {peer, tag}};
	_Static_assert(PEER_WORD * 8 == offsetof(struct trace_record, peer) &&
			       offsetof(struct trace_record, tag) ==
				       offsetof(struct trace_record, peer) + 4,
		       "one word");
	if (slot)
		atomic_store_explicit(record_word(slot, PEER_WORD), who.word, memory_order_release);
}

static uint32_t hash_text(const char *text, size_t length)
{
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

uint32_t trace_label(struct trace *trace, const char *text)
{
	if (!text || !text[0])
		return 0;
	size_t length = strnlen(text, TRACE_LABEL_BYTES - 1);
	uint32_t first = hash_text(text, length);
	uint32_t label = 0;
	lock_trace_acquire(&trace->lock);
	for (uint32_t i = 0; i < LABEL_PROBES && !label; i++) {
		uint32_t position = (first + i) % TRACE_LABEL_MAX;
		char *entry = trace->labels[position];
		if (!entry[0]) {
			memcpy(entry, text, length);
			atomic_fetch_add_explicit(&trace->header->label_count, 1,
						  memory_order_relaxed);
			label = position + 1;
		} else if (strncmp(entry, text, length) == 0 && !entry[length]) {
			label = position + 1;
		}
	}
	lock_trace_release(&trace->lock);
	return label;
}

_Static_assert(offsetof(struct trace_group, members) % 8 == 0 && TRACE_MEMBER_MAX % 8 == 0,
	       "members are copied in words");

/* Release: whoever sees one of these also sees that the entry had no id before. */
#define PUT(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

struct trace_group *trace_group_fill(struct trace *trace, int at,
				     const struct trace_membership *membership)
{
	struct trace_group *entry = &trace->groups[at];
	uint32_t size = membership->size < TRACE_MEMBER_MAX ? membership->size : TRACE_MEMBER_MAX;
	uint8_t members[TRACE_MEMBER_MAX] = {0};
	memcpy(members, membership->members, size);
	/* Whoever reads the same id before and after has read one group's. */
	atomic_store(&entry->id, 0);
	PUT(entry->size, membership->size);
	PUT(entry->rank, membership->rank);
	atomic_store_explicit(&entry->state, TRACE_GROUP_OPEN, memory_order_release);
	PUT(entry->parent, membership->parent);
	PUT(entry->first_area, membership->first_area);
	PUT(entry->claim_offset, membership->claim_offset);
	PUT(entry->cause_offset, membership->cause_offset);
	atomic_store_explicit(&entry->entered, 0, memory_order_release);
	atomic_store_explicit(&entry->finished, 0, memory_order_release);
	atomic_store(&entry->callbacks, 0);
	atomic_store(&entry->limits, 0);
	atomic_store(&entry->spared, 0);
	seqlock_store(entry->members, members, sizeof members);
	atomic_store_explicit(&entry->id, membership->id, memory_order_release);
	return entry;
}
