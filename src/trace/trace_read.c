/* SPDX-License-Identifier: BSD-3-Clause
 * The reading side of the flight recorder. The memory belongs to another process, which may be
 * broken or gone: this file checks every offset once and keeps it in the view, bounds every copy,
 * and uses no value that it has read as an index without a check. */
#include "trace/trace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/seqlock.h"

static const char *const dtype_names[] = {
#define X(name, value, bytes, text) [value] = (text),
	LS_DTYPES(X)
#undef X
};
static const char *const reduce_names[] = {
#define X(name, value, text) [value] = (text),
	LS_REDUCE_OPS(X)
#undef X
};

static const char *name_of(const char *const *names, size_t count, uint32_t i)
{
	return i < count && names[i] ? names[i] : "?";
}

const char *trace_kind_name(uint32_t kind)
{
	return coll_kinds[kind < COLL_KIND_COUNT ? kind : COLL_KIND_NONE].name;
}

void trace_name(const struct trace_record *record, char *out, size_t bytes)
{
	const char *name = trace_kind_name(record->kind);
	if (record->seq)
		snprintf(out, bytes, "%s #%" PRIu64, name, record->seq);
	else
		snprintf(out, bytes, "%s", name);
}

const char *trace_stream_word(const struct trace_record *record)
{
	uint32_t seen = record->stream;
	if (!(seen & TRACE_ON_STREAM))
		return NULL;
	return seen & TRACE_ARRIVED    ? "arrived"
	       : seen & TRACE_REACHED  ? "reached"
	       : seen & TRACE_LAUNCHED ? "launched"
				       : "called";
}

const char *trace_stream_clause(const struct trace_record *record)
{
	uint32_t seen = record->stream;
	if (!(seen & TRACE_ON_STREAM))
		return "";
	if (record->state != TRACE_RUNNING)
		return ", on a stream";
	if (!(seen & (TRACE_ARRIVED | TRACE_REACHED | TRACE_LAUNCHED)))
		return seen & TRACE_NO_ROOM ? ", for which the queue of its stream had no room"
					    : ", which is being enqueued on its stream";
	return seen & TRACE_ARRIVED         ? ", whose result its stream has not taken yet"
	       : seen & TRACE_REACHED       ? ", on a stream"
	       : record->kind == TRACE_RECV ? ", on a stream"
					    : ", to which its stream has not come yet";
}

struct trace_kind_facts trace_kind_facts(uint32_t number)
{
	const struct coll_kind *kind =
		&coll_kinds[number < COLL_KIND_COUNT ? number : COLL_KIND_NONE];
	const struct coll *coll = &coll_table[kind->collective];
	bool typed = kind->counts != COLL_UNCOUNTED;
	return (struct trace_kind_facts){
		.collective = kind->collective != COLL_NONE,
		.rooted = typed && coll->root != COLL_NO_ROOT,
		.reduces = typed && coll->reduces,
		.typed = typed,
		.per_rank = kind->counts == COLL_SAME_COUNTS || kind->counts == COLL_OWN_COUNTS,
		.own_counts = kind->counts == COLL_OWN_COUNTS,
	};
}

const char *trace_dtype_name(uint32_t dtype)
{
	return name_of(dtype_names, sizeof dtype_names / sizeof dtype_names[0], dtype);
}

const char *trace_reduce_name(uint32_t op)
{
	return name_of(reduce_names, sizeof reduce_names / sizeof reduce_names[0], op);
}

/* Read once: what is checked must be what is used. */
static uint64_t read_once(const uint64_t *field)
{
	return __atomic_load_n(field, __ATOMIC_RELAXED);
}

/* The address of an area of `count` items, NULL if it is not inside. */
static const void *area_at(const unsigned char *memory, uint64_t total,
			   const uint64_t *offset_field, uint64_t count, uint64_t item_bytes)
{
	uint64_t offset = read_once(offset_field);
	if (offset % 64 || offset < sizeof(struct trace_header) || offset > total)
		return NULL;
	if (count > (total - offset) / item_bytes)
		return NULL;
	return memory + offset;
}

static bool check_areas(const unsigned char *memory, uint64_t total, struct trace_view *view)
{
	const struct trace_header *header = view->header;
	uint64_t members = read_once(&header->member_max);
	if (members < 4 || members % 4 || members > TRACE_MEMBER_MAX)
		return false;
	view->wait_table =
		area_at(memory, total, &header->wait_table_offset, 1, sizeof *view->wait_table);
	view->groups = area_at(memory, total, &header->group_offset, TRACE_GROUP_MAX,
			       sizeof *view->groups);
	view->member_max = (uint32_t)members;
	view->members = area_at(memory, total, &header->member_offset, TRACE_GROUP_MAX,
				members * sizeof *view->members);
	view->modules = area_at(memory, total, &header->module_offset, TRACE_MODULE_MAX,
				sizeof *view->modules);
	view->labels = area_at(memory, total, &header->label_offset, TRACE_LABEL_MAX,
			       sizeof *view->labels);
	view->phases = area_at(memory, total, &header->phase_offset, 1, sizeof *view->phases);
	view->device = area_at(memory, total, &header->device_offset, 1, sizeof *view->device);
	view->ring = area_at(memory, total, &header->ring_offset, view->ring_records,
			     sizeof *view->ring);
	return view->wait_table && view->groups && view->members && view->modules && view->labels &&
	       view->phases && view->device && view->ring;
}

static const char *find_fault(const void *memory, size_t bytes, struct trace_view *view)
{
	const struct trace_header *header = memory;
	if ((uintptr_t)memory % 64)
		return "not aligned to 64 bytes";
	if (bytes < sizeof *header)
		return "shorter than a trace's header";
	if (__atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) != TRACE_MAGIC)
		return "not a trace of Lockstep";
	if (__atomic_load_n(&header->version, __ATOMIC_RELAXED) != TRACE_VERSION ||
	    __atomic_load_n(&header->header_bytes, __ATOMIC_RELAXED) != sizeof *header)
		return "a trace of another version of Lockstep";
	uint64_t total = read_once(&header->total_bytes);
	if (total > bytes || total < sizeof *header)
		return "cut short";
	uint64_t records = read_once(&header->ring_records);
	if (!records || records & (records - 1))
		return "damaged: the ring's length is no power of two";
	view->header = header;
	view->ring_records = records;
	view->bytes = (size_t)total;
	if (!check_areas(memory, total, view))
		return "damaged: a part lies outside of it";
	uint32_t modules = atomic_load_explicit(&header->module_count, memory_order_acquire);
	view->module_count = modules < TRACE_MODULE_MAX ? modules : TRACE_MODULE_MAX;
	return NULL;
}

bool trace_check(const void *memory, size_t bytes, struct trace_view *out, const char **why)
{
	struct trace_view view = {0};
	*why = find_fault(memory, bytes, &view);
	*out = *why ? (struct trace_view){0} : view;
	return !*why;
}

bool trace_map(int fd, struct trace_view *out, const char **why)
{
	*out = (struct trace_view){0};
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	if (fstat(fd, &stat) != 0 || seals < 0 || !(seals & F_SEAL_SHRINK)) {
		*why = "no sealed memory file";
		return false;
	}
	if (stat.st_size < (off_t)sizeof(struct trace_header)) {
		*why = "shorter than a trace's header";
		return false;
	}
	size_t bytes = (size_t)stat.st_size;
	void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		*why = "cannot be mapped";
		return false;
	}
	if (!trace_check(memory, bytes, out, why)) {
		munmap(memory, bytes);
		return false;
	}
	out->bytes = bytes;
	out->mapped = true;
	return true;
}

void trace_unmap(struct trace_view *view)
{
	if (view->mapped)
		munmap((void *)(uintptr_t)view->header, view->bytes);
	*view = (struct trace_view){0};
}

bool trace_read_at(const struct trace_view *view, uint64_t position, struct trace_record *out,
		   uint32_t *step)
{
	if (position < view->ring_records) {
		const struct trace_slot *slot = &view->ring[position];
		for (int i = 0; i < SEQLOCK_TRIES; i++) {
			uint32_t epoch;
			if (!seqlock_try_read(&slot->epoch, out, &slot->record, sizeof *out, &epoch))
				continue;
			*step = atomic_load_explicit(&slot->step, memory_order_acquire);
			/* The cursor must belong to the same operation. */
			if (atomic_load_explicit(&slot->epoch, memory_order_relaxed) != epoch)
				continue;
			if (!out->index || (out->index & (view->ring_records - 1)) != position)
				break;
			return true;
		}
	}
	*out = (struct trace_record){0};
	*step = 0;
	return false;
}

uint32_t trace_read_members(const struct trace_view *view, int at, uint16_t *out)
{
	uint32_t size = __atomic_load_n(&view->groups[at].size, __ATOMIC_ACQUIRE);
	if (size > view->member_max)
		return 0;
	seqlock_load(out, view->members + (size_t)at * view->member_max,
		     (size + 3) / 4 * 4 * sizeof *out);
	return size;
}

uint64_t trace_index(const struct trace_view *view, uint32_t low)
{
	uint64_t newest = atomic_load_explicit(&view->header->newest, memory_order_acquire);
	/* What was not recorded has the number 0. */
	return low ? newest - (uint32_t)((uint32_t)newest - low) : 0;
}

bool trace_read(const struct trace_view *view, uint64_t index, struct trace_record *out,
		uint32_t *step)
{
	if (index && trace_read_at(view, index & (view->ring_records - 1), out, step) &&
	    out->index == index)
		return true;
	*out = (struct trace_record){0};
	*step = 0;
	return false;
}

bool trace_is_due(const struct trace_view *view, uint64_t index)
{
	struct trace_record there;
	uint32_t step;
	uint64_t newest = atomic_load_explicit(&view->header->newest, memory_order_acquire);
	if (!index || index > newest)
		return false;
	if (!trace_read_at(view, index & (view->ring_records - 1), &there, &step))
		return true;
	return there.index < index && there.state != TRACE_RUNNING;
}

bool trace_read_slot(const struct trace_view *view, int i, struct wait_slot_body *out,
		     uint32_t *epoch)
{
	*epoch = 0;
	if (i >= 0 && i < WAIT_SLOT_MAX) {
		const struct wait_slot *slot = &view->wait_table->slots[i];
		if (seqlock_read(&slot->epoch, out, &slot->body, sizeof *out, epoch)) {
			if (out->edge_count > WAIT_EDGE_MAX)
				out->edge_count = WAIT_EDGE_MAX;
			out->foreign[out->state == WAIT_FOREIGN ? WAIT_FOREIGN_BYTES - 1 : 0] = 0;
			return true;
		}
	}
	*out = (struct wait_slot_body){0};
	return false;
}

bool trace_slot_is(const struct trace_view *view, int i, uint32_t epoch)
{
	const struct wait_slot *slot = &view->wait_table->slots[i];
	return atomic_load_explicit(&slot->epoch, memory_order_acquire) == epoch &&
	       atomic_load_explicit(&slot->taken, memory_order_acquire) != 0;
}

int trace_read_words(const struct trace_view *view, const struct wait_slot_body *wait, int page,
		     struct wait_edge *out)
{
	uint64_t pages = wait->pages;
	uint32_t left = wait->further;
	if (page == 0) {
		memcpy(out, wait->edges, wait->edge_count * sizeof *out);
		return (int)wait->edge_count;
	}
	for (int i = 1; i < page && pages; i++, pages &= pages - 1)
		left -= left < WAIT_EDGE_MAX ? left : WAIT_EDGE_MAX;
	if (!pages || left == 0)
		return 0;
	left = left < WAIT_EDGE_MAX ? left : WAIT_EDGE_MAX;
	seqlock_load(out, view->wait_table->pages[__builtin_ctzll(pages)], left * sizeof *out);
	return (int)left;
}

bool trace_shows_all(const struct wait_slot_body *wait)
{
	return wait->further <= WAIT_EDGE_MAX * (uint32_t)__builtin_popcountll(wait->pages);
}

bool trace_read_report(const struct trace_view *view, struct trace_report *out)
{
	const struct trace_report *report = &view->header->report;
	uint32_t status = atomic_load_explicit(&report->status, memory_order_acquire);

	*out = (struct trace_report){0};
	if (ls_status_scope((ls_status)status) != LS_SCOPE_GROUP)
		return false;
	atomic_init(&out->status, status);
	out->culprit = __atomic_load_n(&report->culprit, __ATOMIC_RELAXED);
	out->operation = read_once(&report->operation);
	out->group = __atomic_load_n(&report->group, __ATOMIC_RELAXED);
	atomic_init(&out->unreturned,
		    atomic_load_explicit(&report->unreturned, memory_order_relaxed) == 1);
	memcpy(out->text, report->text, sizeof out->text);
	out->text[sizeof out->text - 1] = '\0';
	return true;
}

/* ---- the device's memory ---- */

/* a - b, where the two may be any numbers. *fits becomes false if b is the larger one. */
static uint64_t subtract(uint64_t a, uint64_t b, bool *fits)
{
	*fits = *fits && a >= b;
	return a >= b ? a - b : 0;
}

/* The blocks of one bin have about one size, so it is their mean. */
static uint64_t largest_cached(const struct trace_memory *memory, uint64_t cached)
{
	uint64_t count = 0, bytes = 0;
	for (int i = TRACE_MEMORY_BINS; count == 0 && i > 0; i--)
		bytes = trace_memory_bin_bytes(&memory->bins[i - 1], &count);
	uint64_t mean = count ? bytes / count : 0;
	return mean < cached ? mean : cached;
}

/* Whether the figures fit together. */
static bool load_memory(const struct trace_memory *memory, struct trace_memory_seen *out)
{
	bool fits = true;
	uint64_t owned = trace_memory_get(&memory->owned);
	uint64_t allocs = trace_memory_get(&memory->allocs);
	out->live = trace_memory_get(&memory->live);
	out->pending = trace_memory_get(&memory->pending);
	out->put_off = trace_memory_get(&memory->put_off);
	out->peak_live = trace_memory_get(&memory->peak_live);
	out->peak_reserved = trace_memory_get(&memory->peak_reserved);
	out->segments = trace_memory_get(&memory->segments);
	out->misses = trace_memory_get(&memory->misses);
	out->failed = trace_memory_get(&memory->failed);
	out->cached = subtract(subtract(owned, out->live, &fits), out->pending, &fits);
	out->largest_cached = largest_cached(memory, out->cached);
	out->live_blocks = subtract(allocs, trace_memory_get(&memory->frees), &fits);
	out->hits = subtract(allocs, subtract(out->misses, out->failed, &fits), &fits);
	if (__builtin_add_overflow(owned, out->put_off, &out->reserved))
		out->reserved = UINT64_MAX;
	return fits && out->live <= out->peak_live && out->reserved <= out->peak_reserved;
}

bool trace_read_memory(const struct trace_view *view, struct trace_memory_seen *out)
{
	const struct trace_device *device = view->device;
	*out = (struct trace_memory_seen){0};
	if (atomic_load_explicit(&device->present, memory_order_acquire) != 1)
		return false;
	memcpy(out->name, device->name, sizeof out->name);
	out->name[sizeof out->name - 1] = '\0';
	for (int i = 0; i < SEQLOCK_TRIES && !out->consistent; i++)
		out->consistent = load_memory(&device->memory, out);
	return true;
}
