/* SPDX-License-Identifier: BSD-3-Clause
 * The writing side of the flight recorder: makes the memfd, and writes everything but the records
 * of operations: labels, modules, groups and reports. */
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

#include "base/file_limit.h"
#include "base/fork.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/own_fd.h"
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
	LABEL_NOWHERE = TRACE_LABEL_MAX,
};
_Static_assert(sizeof(struct wait_slot_body) % 8 == 0, "a wait is copied in words");

static uint64_t align_up(uint64_t offset, uint64_t to)
{
	return (offset + to - 1) & ~(to - 1);
}

static void lay_out(struct trace_header *header, int world_size, uint64_t records)
{
	uint64_t members = world_size > 0 && world_size <= TRACE_MEMBER_MAX ? (uint64_t)world_size
									    : TRACE_MEMBER_MAX;
	uint64_t offset = align_up(sizeof *header, 64);
	header->wait_table_offset = offset;
	offset = align_up(offset + sizeof(struct wait_table), 64);
	header->group_offset = offset;
	offset = align_up(offset + TRACE_GROUP_MAX * sizeof(struct trace_group), 64);
	header->member_offset = offset;
	header->member_max = align_up(members, 4);
	offset = align_up(offset + TRACE_GROUP_MAX * header->member_max * sizeof(uint16_t), 64);
	header->module_offset = offset;
	offset = align_up(offset + TRACE_MODULE_MAX * sizeof(struct trace_module), 64);
	header->label_offset = offset;
	offset = align_up(offset + TRACE_LABEL_MAX * TRACE_LABEL_BYTES, 64);
	header->phase_offset = offset;
	offset = align_up(offset + sizeof(struct trace_phase_table), 64);
	header->device_offset = offset;
	offset = align_up(offset + sizeof(struct trace_device), PAGE_BYTES);
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
	MESSAGE_SAY(MESSAGE_TRACE_FAILED, call, OPEN_LIMIT_TEXT(error));
	bool exhausted = error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE;
	return exhausted ? LS_OUT_OF_MEMORY : LS_SYSTEM;
}

/* Allocates memory for the whole file, so that recording can never end in SIGBUS. */
static ls_status make_file(struct trace *trace, const struct trace_options *options)
{
	char name[64];
	snprintf(name, sizeof name, "lockstep-trace:%016" PRIx64 ":%d", options->job, options->rank);
	trace->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (trace->fd < 0)
		return say_failed("memfd_create");
	if (!file_limit_allows(trace->bytes))
		return say_failed(FILE_LIMIT_NAME);
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

static ls_status seal_file(struct trace *trace)
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
	header->version = TRACE_VERSION;
	header->header_bytes = sizeof *header;
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
	if (gethostname(header->host, sizeof header->host - 1) != 0)
		header->host[0] = 0;
	if (readlink("/proc/self/exe", header->program, sizeof header->program - 1) < 0)
		header->program[0] = 0;
	snprintf(header->library, sizeof header->library, "%s", LOCKSTEP_VERSION);
	/* Last: a reader that sees the magic sees all the rest. */
	__atomic_store_n(&header->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
}

static void release_trace(struct trace *trace)
{
	if (trace->header && munmap(trace->header, trace->bytes) != 0)
		MESSAGE_SAY(MESSAGE_TRACE_FAILED, "munmap", strerror(errno));
	own_fd_close(&trace->fd, own_fd_is_memory);
	lock_trace_fini(&trace->lock);
	*trace = (struct trace){.fd = -1};
}

ls_status trace_init(struct trace *trace, const struct trace_options *options)
{
	struct trace_header layout = {0};
	lay_out(&layout, options->world_size, round_records(options->records));
	*trace = (struct trace){
		.fd = -1, .bytes = layout.total_bytes, .fork_generation = fork_generation()};
	lock_trace_init(&trace->lock);
	bias_init(&trace->writer);
	bias_offer(&trace->writer);

	ls_status status = make_file(trace, options);
	if (status == LS_OK) {
		unsigned char *base = (unsigned char *)trace->header;
		lay_out(trace->header, options->world_size, layout.ring_records);
		fill_header(trace->header, options);
		trace->wait_table = (struct wait_table *)(base + layout.wait_table_offset);
		trace->groups = (struct trace_group *)(base + layout.group_offset);
		trace->members = (uint16_t *)(base + layout.member_offset);
		trace->member_max = (uint32_t)layout.member_max;
		trace->modules = (struct trace_module *)(base + layout.module_offset);
		trace->labels = (char(*)[TRACE_LABEL_BYTES])(base + layout.label_offset);
		trace->phases = (struct trace_phase_table *)(base + layout.phase_offset);
		trace->device = (struct trace_device *)(base + layout.device_offset);
		trace->ring = (struct trace_slot *)(base + layout.ring_offset);
		trace->mask = layout.ring_records - 1;
		trace_update_modules(trace);
		status = seal_file(trace);
	}
	if (status != LS_OK)
		release_trace(trace);
	return status;
}

void trace_fini(struct trace *trace)
{
	if (trace->header)
		release_trace(trace);
}

void trace_set_job(struct trace *trace, uint64_t job, int world_size)
{
	__atomic_store_n(&trace->header->world_size, world_size, __ATOMIC_RELAXED);
	/* Last: a reader that sees the job sees its size. */
	__atomic_store_n(&trace->header->job, job, __ATOMIC_RELEASE);
}

static void write_report(struct trace_report *report, uint32_t group, ls_status status, int culprit,
			 uint64_t operation, const char *text)
{
	atomic_store_explicit(&report->status, 0, memory_order_release);
	report->group = group;
	atomic_store_explicit(&report->unreturned, 0, memory_order_relaxed);
	report->culprit = culprit;
	report->operation = operation;
	snprintf(report->text, sizeof report->text, "%s", text);
	atomic_store_explicit(&report->status, (uint32_t)status, memory_order_release);
}

void trace_report(struct trace *trace, uint32_t group, ls_status status, int culprit,
		  uint64_t operation, const char *text)
{
	struct trace_report *report = &trace->header->report;
	lock_trace_acquire(&trace->lock);
	bool there = atomic_load_explicit(&report->status, memory_order_relaxed) != 0;
	bool mine = there && report->group == group;
	if (status != LS_OK && !(there && !mine && report->group == TRACE_GROUP_WORLD))
		write_report(report, group, status, culprit, operation, text);
	else if (status == LS_OK && mine)
		atomic_store_explicit(&report->status, 0, memory_order_release);
	lock_trace_release(&trace->lock);
}

ls_status trace_report_unreturned(struct trace *trace, uint32_t group)
{
	struct trace_report *report = &trace->header->report;
	lock_trace_acquire(&trace->lock);
	uint32_t status = atomic_load_explicit(&report->status, memory_order_relaxed);
	if (report->group != group)
		status = 0;
	if (status != 0)
		atomic_store_explicit(&report->unreturned, 1, memory_order_release);
	lock_trace_release(&trace->lock);
	return (ls_status)status;
}

void trace_set_device(struct trace *trace, const char *name)
{
	struct trace_device *device = trace->device;
	snprintf(device->name, sizeof device->name, "%s", name);
	atomic_store_explicit(&device->present, 1, memory_order_release);
}

static uint32_t hash_text(const char *text, size_t length)
{
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

/* Where the label stands, or the first free place for it, among the places that it may have;
 * LABEL_NOWHERE: neither. Labels are never taken out, and their first byte is written last, so this
 * needs no lock. */
static uint32_t label_place(const struct trace *trace, const char *text, size_t length,
			    bool *is_there)
{
	uint32_t first = hash_text(text, length);
	for (uint32_t i = 0; i < LABEL_PROBES; i++) {
		uint32_t position = (first + i) % TRACE_LABEL_MAX;
		const char *entry = trace->labels[position];
		*is_there = __atomic_load_n(entry, __ATOMIC_ACQUIRE) != 0;
		if (!*is_there || (strncmp(entry, text, length) == 0 && !entry[length]))
			return position;
	}
	*is_there = false;
	return LABEL_NOWHERE;
}

uint32_t trace_label(struct trace *trace, const char *text)
{
	bool is_there;
	if (!text || !text[0])
		return 0;
	size_t length = strnlen(text, TRACE_LABEL_BYTES - 1);
	uint32_t place = label_place(trace, text, length, &is_there);
	if (is_there)
		return place + 1;
	lock_trace_acquire(&trace->lock);
	place = label_place(trace, text, length, &is_there);
	if (!is_there && place != LABEL_NOWHERE) {
		char *entry = trace->labels[place];
		memcpy(entry + 1, text + 1, length - 1);
		__atomic_store_n(entry, text[0], __ATOMIC_RELEASE);
		atomic_fetch_add_explicit(&trace->header->label_count, 1, memory_order_relaxed);
	}
	lock_trace_release(&trace->lock);
	return place == LABEL_NOWHERE ? 0 : place + 1;
}

_Static_assert(TRACE_MEMBER_MAX % 4 == 0 && TRACE_MEMBER_MAX <= UINT16_MAX,
	       "members are copied in words");

/* Release: a reader that sees one of these also sees that the entry had no id before. */
#define PUT(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

struct trace_group *trace_group_fill(struct trace *trace, int at,
				     const struct trace_membership *membership)
{
	struct trace_group *entry = &trace->groups[at];
	uint32_t size = membership->size < trace->member_max ? membership->size : trace->member_max;
	uint16_t members[TRACE_MEMBER_MAX] = {0};
	memcpy(members, membership->members, size * sizeof members[0]);
	/* A reader that finds the same id before and after has read the fields of one group. */
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
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_store(&entry->spared[w], 0);
	seqlock_store(trace->members + (size_t)at * trace->member_max, members,
		      trace->member_max * sizeof members[0]);
	atomic_store_explicit(&entry->id, membership->id, memory_order_release);
	return entry;
}
