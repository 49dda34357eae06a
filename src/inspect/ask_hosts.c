/* SPDX-License-Identifier: BSD-3-Clause
 * Asks the ranks of this host for those of other hosts. Other processes write the answers: each is
 * copied, and every number is checked. */
#include "inspect/ask_hosts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/seqlock.h"
#include "base/wait.h"
#include "detector/detector.h"
#include "engine/engine.h"
#include "failure/shown.h"
#include "transport/observe.h"

enum {
	LIMIT_MS = 3000,
	COPY_LIMIT_MS = 5000,
	LOOK_AGAIN_MS = 2,
	ANSWER_BYTES_MAX = 1 << 30,
	TRACE_ALIGN = 64
};

/* ---- what this host shows without asking ---- */

/* Some rank of this host, whose segment says where all ranks are; -1: there is none. */
static int find_segment(const struct inspect_view *view)
{
	for (int q = 0; q < view->size; q++)
		if (view->ranks[q].segment)
			return q;
	return -1;
}

static bool copy_places(const struct transport_segment *segment, int size,
			struct inspect_hosts *hosts)
{
	bool several = false;
	for (int q = 0; q < size; q++) {
		struct transport_location *location = &hosts->locations[q];
		memcpy(location, transport_location_of(segment, size, q), sizeof *location);
		location->host[sizeof location->host - 1] = '\0';
		if (location->first < 0 || location->first > q)
			location->first = q;
		several = several || location->first != hosts->locations[0].first;
	}
	return several;
}

/* Writes for each rank the number of its host, as the ranks number hosts. */
static void number_hosts(const struct inspect_hosts *hosts, int size, int *number)
{
	for (int q = 0, count = 0; q < size; q++) {
		int first = hosts->locations[q].first;
		number[q] = first == q ? count++ : number[first];
	}
}

static void copy_silence(const struct transport_agent *agent, int size, struct inspect_hosts *hosts)
{
	int number[INSPECT_RANK_MAX];
	number_hosts(hosts, size, number);
	for (int q = 0; q < size; q++)
		if (number[q] < RANKS_HOSTS_MAX)
			hosts->unheard_ns[q] = atomic_load(&agent->hosts[number[q]].unheard_ns);
}

/* The newest collective in the mirror of rank q that rank r has. */
static void read_last(const struct inspect_view *view, int r, int q, struct trace_record *last)
{
	size_t bytes = transport_mirror_bytes(), at = transport_mirror_at(view->size, q);
	const struct inspect_held *held = &view->ranks[r];
	struct transport_entered entered;
	struct engine_signature signature;
	if (held->segment_bytes < at + bytes)
		return;
	const void *mirror = (const char *)held->segment + at;
	const struct transport_area *area = transport_mirror_area(mirror, 0);
	for (int i = 0; i < TRANSPORT_ENTRIES; i++) {
		uint64_t signal = atomic_load(&area->entries[i].signal);
		uint64_t seq = signal >> TRANSPORT_PHASE_BITS;
		if (seq > last->seq && transport_read_entry(area, seq, &entered) &&
		    engine_signature_read(entered.signature, view->size, &signature))
			*last = (struct trace_record){.seq = seq,
						      .group = TRACE_GROUP_WORLD,
						      .count = entered.count,
						      .kind = (uint16_t)signature.kind,
						      .dtype = signature.dtype,
						      .reduce_op = signature.reduce,
						      .peer = signature.root};
	}
}

struct inspect_hosts *inspect_hosts_new(const struct inspect_view *view)
{
	int some = find_segment(view);
	struct inspect_hosts *hosts = some >= 0 ? calloc(1, sizeof *hosts) : NULL;
	if (!hosts || !copy_places(view->ranks[some].segment, view->size, hosts)) {
		free(hosts);
		return NULL;
	}
	hosts->here = hosts->locations[some].first;
	const struct transport_segment *first = view->ranks[hosts->here].segment;
	if (first)
		copy_silence(&first->agent, view->size, hosts);
	for (int q = 0; q < view->size; q++)
		for (int r = 0; r < view->size; r++)
			if (view->ranks[r].segment &&
			    hosts->locations[r].first != hosts->locations[q].first)
				read_last(view, r, q, &hosts->last[q]);
	return hosts;
}

void inspect_hosts_free(struct inspect_hosts *hosts)
{
	if (!hosts)
		return;
	free(hosts->memory);
	free(hosts);
}

struct ranks inspect_hosts_ranks(const struct inspect_hosts *hosts, int first, int size)
{
	struct ranks ranks = {{0}};
	for (int q = 0; q < size; q++)
		if (hosts->locations[q].first == first)
			ranks_add(&ranks, q);
	return ranks;
}

/* ---- asking ---- */

/* Maps the same memory for writing; NULL: this user may not write it. */
static struct transport_segment *map_again(const struct inspect_held *held)
{
	char path[48];
	snprintf(path, sizeof path, "/proc/self/fd/%d", held->segment_fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	void *memory = mmap(NULL, transport_areas_at(0), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Whether all ranks that could answer have left. */
static bool have_left(const struct inspect_view *view, const struct inspect_hosts *hosts)
{
	for (int q = 0; q < view->size; q++)
		if (hosts->locations[q].first == hosts->here && view->ranks[q].trace.header &&
		    !atomic_load(&view->ranks[q].trace.header->left_ns))
			return false;
	return true;
}

/* Asks, and waits for an answer. *number: the number of the question. */
static bool ask_question(const struct inspect_view *view, const struct inspect_hosts *hosts,
			 unsigned question, uint64_t *number, uint64_t *waited_ms)
{
	const struct inspect_held *held = &view->ranks[hosts->here];
	struct transport_segment *segment = held->segment ? map_again(held) : NULL;
	uint64_t begin_ns = clock_now_ns();
	uint64_t deadline_ns =
		clock_deadline_ns(question == TRANSPORT_QUESTION_JOB ? LIMIT_MS : COPY_LIMIT_MS);
	*waited_ms = 0;
	bool given = false;
	if (!segment)
		return false;
	*number = atomic_fetch_add(&segment->agent.asked[question], 1) + 1;
	while (!given && clock_now_ns() < deadline_ns && !have_left(view, hosts)) {
		ls_status status = wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(LOOK_AGAIN_MS));
		(void)status; /* the wait only sleeps */
		given = atomic_load(&segment->agent.given[question]) >= *number;
	}
	*waited_ms = (clock_now_ns() - begin_ns) / 1000000;
	munmap(segment, transport_areas_at(0));
	return given;
}

static bool is_inside(const struct failure_shown_part *part, size_t bytes)
{
	return part->offset >= sizeof(struct failure_shown) && part->offset <= bytes &&
	       part->bytes <= bytes - part->offset;
}

/* A copy of the answer on the heap; NULL: there is none, or it is damaged. */
static struct failure_shown *read_answer(const struct inspect_view *view, unsigned question,
					 uint64_t number)
{
	int fd = inspect_find_shown(view->job, question, number);
	struct stat status;
	struct failure_shown *shown = NULL;
	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof *shown &&
	    status.st_size <= ANSWER_BYTES_MAX)
		shown = aligned_alloc(TRACE_ALIGN, ((size_t)status.st_size + TRACE_ALIGN - 1) /
							   TRACE_ALIGN * TRACE_ALIGN);
	size_t got = 0;
	while (shown && got < (size_t)status.st_size) {
		ssize_t part =
			pread(fd, (char *)shown + got, (size_t)status.st_size - got, (off_t)got);
		if (part <= 0)
			break;
		got += (size_t)part;
	}
	close(fd);
	if (shown && got == (size_t)status.st_size && shown->bytes == got &&
	    shown->size == view->size)
		return shown;
	free(shown);
	return NULL;
}

static struct failure_shown *ask_for(const struct inspect_hosts *hosts,
				     const struct inspect_view *view, unsigned question,
				     uint64_t *waited_ms)
{
	uint64_t number;
	if (!ask_question(view, hosts, question, &number, waited_ms))
		return NULL;
	struct failure_shown *shown = read_answer(view, question, number);
	if (shown)
		*waited_ms = shown->waited_ms;
	return shown;
}

struct diagnose_snapshot *inspect_hosts_ask(struct inspect_hosts *hosts,
					    const struct inspect_view *view)
{
	struct failure_shown *shown =
		ask_for(hosts, view, TRANSPORT_QUESTION_JOB, &hosts->waited_ms);
	struct diagnose_traffic *traffic = calloc((size_t)view->size, sizeof *traffic);
	struct diagnose_snapshot *snapshot =
		shown && traffic ? diagnose_snapshot_new(view->size) : NULL;
	const struct ranks none = {{0}};
	if (snapshot) {
		snapshot->job = view->job;
		if (!is_inside(&shown->block, shown->bytes) ||
		    !diagnose_unpack(snapshot, &none, (const char *)shown + shown->block.offset,
				     shown->block.bytes, traffic)) {
			free(snapshot);
			snapshot = NULL;
		}
	}
	hosts->has_told = snapshot != NULL;
	hosts->answered =
		snapshot ? ranks_of_words(shown->answered, RANKS_WORLD_WORDS) : (struct ranks){{0}};
	free(traffic);
	free(shown);
	return snapshot;
}

/* Returns by how much the offset that was known at at_ns may be wrong by now. */
static uint64_t error_now(const struct transport_remote_clock *clock, uint64_t now_ns)
{
	uint64_t age_ns = now_ns > clock->at_ns ? now_ns - clock->at_ns : 0;
	return clock->error_ns + age_ns / 1000000 * DETECTOR_DRIFT_PPM;
}

/* Reads the clock offset of rank q's host. asked_ns: when this process asked, by the clock here. */
static void read_clock(struct inspect_hosts *hosts, const struct inspect_view *view, int q,
		       uint64_t asked_ns, const struct failure_shown *shown)
{
	const struct transport_segment *first = view->ranks[hosts->here].segment;
	struct transport_remote_clock clock = {0};
	int number[INSPECT_RANK_MAX];
	uint32_t epoch;
	number_hosts(hosts, view->size, number);
	const struct transport_remote_host *host =
		&first->agent.hosts[number[q] < RANKS_HOSTS_MAX ? number[q] : 0];
	hosts->offset_ns[q] = 0;
	hosts->error_ns[q] = 0;
	if (hosts->locations[q].first == hosts->here)
		return;
	/* The copy was made between the question and its answer. */
	if (shown->copied_ns[q] && asked_ns < shown->now_ns) {
		hosts->error_ns[q] = (shown->now_ns - asked_ns) / 2 + 1;
		hosts->offset_ns[q] =
			(int64_t)(shown->copied_ns[q] - (asked_ns + hosts->error_ns[q]));
	}
	if (!seqlock_read(&host->clock_epoch, &clock, &host->clock, sizeof clock, &epoch) ||
	    !clock.error_ns)
		return;
	clock.error_ns = error_now(&clock, clock_now_ns());
	if (!hosts->error_ns[q] || clock.error_ns < hosts->error_ns[q]) {
		hosts->error_ns[q] = clock.error_ns;
		hosts->offset_ns[q] = clock.offset_ns;
	}
}

bool inspect_hosts_copy(struct inspect_hosts *hosts, const struct inspect_view *view)
{
	uint64_t waited_ms, asked_ns = clock_now_ns();
	struct failure_shown *shown = ask_for(hosts, view, TRANSPORT_QUESTION_TRACES, &waited_ms);
	const char *why;
	hosts->has_copied = shown != NULL;
	if (!shown)
		return false;
	free(hosts->memory);
	hosts->memory = shown;
	hosts->copied = ranks_of_words(shown->answered, RANKS_WORLD_WORDS);
	for (int q = 0; q < view->size; q++)
		read_clock(hosts, view, q, asked_ns, shown);
	for (int q = 0; q < view->size; q++) {
		const struct failure_shown_part *part = &shown->traces[q];
		hosts->traces[q] = (struct trace_view){0};
		hosts->copied_ns[q] = shown->copied_ns[q];
		if (part->bytes && is_inside(part, shown->bytes) && part->offset % TRACE_ALIGN == 0 &&
		    trace_check((const char *)shown + part->offset, part->bytes, &hosts->traces[q],
				&why) &&
		    hosts->traces[q].header->rank != q)
			hosts->traces[q] = (struct trace_view){0};
	}
	return true;
}
