/* SPDX-License-Identifier: BSD-3-Clause
 * Writing the flight recorder: which thread may write it, what a record says after each call, and
 * many writers beside a reader. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace/trace.h"
#include "trace/trace_fixture.h"

#include <sys/wait.h>

/* 0 if nobody can write what lies behind `path`, else which attempt succeeded. */
static int try_to_write(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 1;
	if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ||
	    errno != EPERM)
		return 2;
	void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return 3;
	if (mprotect(memory, 4096, PROT_READ | PROT_WRITE) == 0)
		return 4;
	if (write(fd, "x", 1) != -1 || errno != EPERM)
		return 5;
	if (ftruncate(fd, 0) == 0)
		return 6;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
		return 7;
	munmap(memory, 4096);
	close(fd);
	return 0;
}

static void only_its_owner_writes_it(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	char path[64], name[64] = "";
	snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), trace.fd);
	assert_true(readlink(path, name, sizeof name - 1) > 0);
	assert_string_equal(name, "/memfd:lockstep-trace:0000000000000abc:3 (deleted)");
	assert_int_equal(try_to_write(path), 0);
	pid_t child = fork();
	if (child == 0)
		_exit(try_to_write(path));
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The owner still can, and its reader sees it. */
	uint64_t index = trace_begin(&trace, &(struct trace_begin){.seq = 1});
	struct trace_record record;
	uint32_t step;
	assert_true(trace_read(&view, index, &record, &step));
	close_trace(&trace, &view);
}

static void header_says_who_it_is(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 100, &view);
	trace_set_job(&trace, 77, 8);
	char host[TRACE_TEXT_BYTES] = "";
	assert_int_equal(gethostname(host, sizeof host - 1), 0);
	const struct trace_header *header = view.header;
	assert_int_equal(header->job, 77);
	assert_int_equal(header->world_size, 8);
	assert_int_equal(header->rank, 3);
	assert_int_equal(header->pid, getpid());
	assert_int_equal(header->uid, getuid());
	assert_string_equal(header->host, host);
	assert_non_null(strstr(header->program, "trace_test"));
	assert_true(header->rate.ns_per_tick > 0);
	assert_true(header->start_ns <= clock_now_ns());
	assert_int_equal(header->ring_records, 128); /* the next power of two */
	assert_int_equal(view.ring_records, 128);
	assert_int_equal(header->total_bytes, trace.bytes);
	close_trace(&trace, &view);
}

static void record_goes_from_begin_to_end(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	struct trace_begin begin = {.seq = 9,
				    .count = 1000,
				    .shape = 0x5678,
				    .site = 0x1234,
				    .label = 2,
				    .group = 5,
				    .peer = -1,
				    .tag = 7,
				    .kind = TRACE_SEND,
				    .dtype = LS_FLOAT64,
				    .reduce_op = LS_MAX};
	uint64_t ticks = clock_ticks();
	uint64_t index = trace_begin(&trace, &begin);
	assert_int_equal(index, 1);
	struct trace_record r;
	uint32_t step = 9;
	assert_true(trace_read(&view, index, &r, &step));
	assert_int_equal(step, 0);
	assert_true(r.index == 1 && r.seq == 9 && r.count == 1000 && r.site == 0x1234 &&
		    r.shape == 0x5678);
	assert_true(r.label == 2 && r.group == 5 && r.peer == -1 && r.tag == 7);
	assert_true(r.kind == TRACE_SEND && r.dtype == LS_FLOAT64 && r.reduce_op == LS_MAX);
	assert_true(r.begin_ticks >= ticks && r.end_ticks == 0 && r.tid == (uint32_t)gettid());
	assert_true(r.state == TRACE_RUNNING && r.algorithm == 0 && r.step_count == 0);
	assert_int_equal(atomic_load(&view.header->newest), 1);

	trace_plan(&trace, index, 3, 14);
	trace_step(&trace, index, 6);
	assert_true(trace_read(&view, index, &r, &step));
	assert_true(step == 6 && r.algorithm == 3 && r.step_count == 14);
	assert_int_equal(r.state, TRACE_RUNNING);

	trace_end(&trace, index, LS_PEER_DIED);
	assert_true(trace_read(&view, index, &r, &step));
	assert_true(r.state == TRACE_FAILED && r.status == LS_PEER_DIED && r.algorithm == 3);
	assert_true(r.end_ticks >= r.begin_ticks && step == 6 && r.count == 1000 &&
		    r.shape == 0x5678);

	/* It has ended: nothing changes it any more. */
	trace_end(&trace, index, LS_OK);
	trace_plan(&trace, index, 1, 1);
	struct trace_record again;
	assert_true(trace_read(&view, index, &again, &step));
	assert_memory_equal(&again, &r, sizeof r);

	index = trace_begin(&trace, &begin);
	trace_end(&trace, index, LS_OK);
	assert_true(trace_read(&view, index, &r, &step));
	assert_true(r.index == 2 && r.state == TRACE_DONE && r.status == LS_OK && step == 0);
	close_trace(&trace, &view);
}

enum { LABELLERS = 4, LABELS = 300, ROUNDS = 300 };
static struct labeller {
	struct trace *trace;
	pthread_barrier_t *start;
	pthread_t thread;
	uint32_t ids[LABELS];
} labellers[LABELLERS];

static void *add_labels(void *data)
{
	struct labeller *labeller = data;
	char text[32];
	pthread_barrier_wait(labeller->start);
	for (int i = 0; i < LABELS; i++) {
		snprintf(text, sizeof text, "train.py:%d", i);
		labeller->ids[i] = trace_label(labeller->trace, text);
	}
	return NULL;
}

/* All add the same ones at once, more than there is room for. */
static void labels_of_threads_are_kept_once(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	pthread_barrier_t start;
	assert_int_equal(pthread_barrier_init(&start, NULL, LABELLERS), 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t kept = 0;
		open_trace(&trace, 16, &view);
		for (int t = 0; t < LABELLERS; t++) {
			struct labeller *labeller = &labellers[t];
			labeller->trace = &trace;
			labeller->start = &start;
			assert_int_equal(
				pthread_create(&labeller->thread, NULL, add_labels, labeller), 0);
		}
		for (int t = 0; t < LABELLERS; t++)
			pthread_join(labellers[t].thread, NULL);
		for (int i = 0; i < LABELS; i++) {
			for (int t = 1; t < LABELLERS; t++)
				assert_int_equal(labellers[t].ids[i], labellers[0].ids[i]);
			kept += labellers[0].ids[i] != 0;
		}
		assert_int_equal(kept, atomic_load(&view.header->label_count));
		assert_true(kept > TRACE_LABEL_MAX / 2);
		close_trace(&trace, &view);
	}
	pthread_barrier_destroy(&start);
}

static void labels_are_kept_once(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	assert_int_equal(trace_label(&trace, NULL), 0);
	assert_int_equal(trace_label(&trace, ""), 0);
	uint32_t a = trace_label(&trace, "train.py:42"), b = trace_label(&trace, "train.py:4");
	assert_true(a && b && a != b);
	assert_int_equal(trace_label(&trace, "train.py:42"), a);
	assert_int_equal(trace_label(&trace, "train.py:4"), b);
	assert_string_equal(view.labels[a - 1], "train.py:42");
	char longer[200];
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	uint32_t c = trace_label(&trace, longer);
	assert_int_equal(strlen(view.labels[c - 1]), TRACE_LABEL_BYTES - 1);
	assert_int_equal(trace_label(&trace, longer), c);
	assert_int_equal(atomic_load(&view.header->label_count), 3);
	uint32_t refused = 0;
	for (int i = 0; i < 1000; i++) {
		snprintf(longer, sizeof longer, "file%d.py:%d", i % 7, i);
		uint32_t label = trace_label(&trace, longer);
		assert_true(label <= TRACE_LABEL_MAX);
		refused += !label;
	}
	assert_true(refused >= 1000 - TRACE_LABEL_MAX && refused < 900);
	assert_int_equal(trace_label(&trace, "train.py:42"), a);
	close_trace(&trace, &view);
}

static void groups_take_turns(void **state)
{
	uint16_t members[] = {5, 0, 7, 3};
	struct trace_membership membership = {
		.id = 11, .parent = 1, .size = 4, .first_area = 9, .rank = 2, .members = members};
	(void)state;
	struct trace trace;
	struct trace_view view;
	open_trace(&trace, 16, &view);
	for (int at = 0; at < TRACE_GROUP_MAX; at += TRACE_GROUP_MAX - 1) {
		struct trace_group *group = trace_group_fill(&trace, at, &membership);
		const struct trace_group *seen = &view.groups[at];
		atomic_store(&group->entered, 6);
		assert_int_equal(seen->id, 11);
		assert_int_equal(seen->parent, 1);
		assert_int_equal(seen->size, 4);
		assert_int_equal(seen->rank, 2);
		assert_int_equal(seen->first_area, 9);
		assert_int_equal(seen->state, TRACE_GROUP_OPEN);
		uint16_t found[TRACE_MEMBER_MAX];
		assert_int_equal(trace_read_members(&view, at, found), 4);
		assert_memory_equal(found, members, sizeof members);
		assert_int_equal(atomic_load(&seen->entered), 6);
		/* The next group of the entry begins anew. */
		atomic_store(&group->state, TRACE_GROUP_CLOSED);
		membership.id++;
		trace_group_fill(&trace, at, &membership);
		assert_int_equal(seen->id, 12);
		assert_int_equal(seen->state, TRACE_GROUP_OPEN);
		assert_int_equal(atomic_load(&seen->entered), 0);
		membership.id--;
	}
	close_trace(&trace, &view);
}

/* ---- many writers, one reader ---- */

enum { WRITERS = 4, FRESH_COPIES = 30000, SALT = 0x5a5a };

struct writer {
	struct trace *trace;
	uint64_t thread, operations;
	_Atomic bool *stop;
	pthread_t id;
};

static void *write_on(void *context)
{
	struct writer *writer = context;
	uint64_t i = 0;
	for (; !atomic_load(writer->stop); i++) {
		uint64_t seq = writer->thread << 32 | i;
		struct trace_begin begin = {.seq = seq,
					    .count = seq * 3,
					    .shape = seq * 5,
					    .site = seq ^ SALT,
					    .group = (uint32_t)i,
					    .tag = (int32_t)i,
					    .kind = (uint16_t)(i % TRACE_KIND_COUNT)};
		uint64_t index = trace_begin(writer->trace, &begin);
		trace_plan(writer->trace, index, (uint16_t)(i % 5), (uint16_t)i);
		trace_step(writer->trace, index, (uint32_t)i);
		trace_end(writer->trace, index, i % 2 ? LS_OK : LS_TIMED_OUT);
	}
	writer->operations = i;
	return NULL;
}

static bool is_whole(const struct trace_record *r, uint32_t step)
{
	uint64_t i = r->seq & UINT32_MAX;
	if (r->count != r->seq * 3 || r->shape != r->seq * 5 || r->site != (r->seq ^ SALT) ||
	    r->group != i || r->tag != (int32_t)i || r->kind != i % TRACE_KIND_COUNT ||
	    (step != 0 && step != i))
		return false;
	if (r->state == TRACE_RUNNING)
		return r->end_ticks == 0;
	return r->end_ticks != 0 && r->step_count == (uint16_t)i && step == i &&
	       r->state == (i % 2 ? TRACE_DONE : TRACE_FAILED) &&
	       r->status == (i % 2 ? LS_OK : LS_TIMED_OUT);
}

static void copies_are_whole_beside_writers(void **state)
{
	(void)state;
	struct trace trace;
	struct trace_view mapped, view;
	open_trace(&trace, 16, &mapped);
	/* At the writers' own addresses, so that ThreadSanitizer sees both sides. */
	const char *why;
	assert_true(trace_check(trace.header, trace.bytes, &view, &why));
	struct writer writers[WRITERS];
	_Atomic bool stop = false;
	for (uint64_t i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.trace = &trace, .thread = i, .stop = &stop};
		assert_int_equal(pthread_create(&writers[i].id, NULL, write_on, &writers[i]), 0);
	}
	/* So many copies of records that have changed in between: the writers are really
	 * running. */
	uint64_t last[16] = {0}, fresh = 0, torn = 0;
	struct trace_record r;
	uint32_t step;
	for (uint64_t i = 0; fresh < FRESH_COPIES; i = (i + 1) % 16) {
		if (!trace_read_at(&view, i, &r, &step))
			continue;
		fresh += r.index != last[i];
		last[i] = r.index;
		torn += !is_whole(&r, step);
	}
	atomic_store(&stop, true);
	uint64_t operations = 0;
	for (int i = 0; i < WRITERS; i++) {
		wait_join(writers[i].id);
		operations += writers[i].operations;
	}
	assert_int_equal(torn, 0);
	/* Each index was given out once: newest counts the claims, and some slots were passed
	 * over. */
	assert_true(atomic_load(&trace.header->newest) >= operations);
	for (uint64_t i = 0; i < 16; i++) {
		assert_true(trace_read_at(&view, i, &r, &step));
		assert_true(is_whole(&r, step));
		assert_int_not_equal(r.state, TRACE_RUNNING);
	}
	close_trace(&trace, &mapped);
}

/* A group may have as many members as a job has ranks; more than the trace has room for are
 * refused. */
static void groups_have_many_members(void **state)
{
	(void)state;
	struct trace_options options = {.job = 1, .world_size = RANKS_WORLD_MAX, .records = 16};
	uint16_t members[RANKS_WORLD_MAX + 1], found[TRACE_MEMBER_MAX];
	struct trace_membership membership = {.id = 5, .size = RANKS_WORLD_MAX, .members = members};
	struct trace trace;
	struct trace_view view;
	const char *why = NULL;
	for (int q = 0; q <= RANKS_WORLD_MAX; q++)
		members[q] = (uint16_t)(RANKS_WORLD_MAX - 1 - q);
	assert_int_equal(trace_init(&trace, &options), LS_OK);
	assert_true(trace_map(trace.fd, &view, &why));
	for (int at = 0; at < TRACE_GROUP_MAX; at += TRACE_GROUP_MAX - 1) {
		trace_group_fill(&trace, at, &membership);
		assert_int_equal(trace_read_members(&view, at, found), RANKS_WORLD_MAX);
		assert_memory_equal(found, members, sizeof found);
	}
	trace.groups[0].size = RANKS_WORLD_MAX + 1;
	assert_int_equal(trace_read_members(&view, 0, found), 0);
	trace.header->member_max = 2 * RANKS_WORLD_MAX;
	struct trace_view other;
	assert_false(trace_check(trace.header, trace.bytes, &other, &why));
	close_trace(&trace, &view);
}

static void report_is_kept_and_taken_back(void **state)
{
	struct trace trace;
	struct trace_view view;
	struct trace_report report;
	char text[TRACE_REPORT_BYTES + 100];
	(void)state;

	open_trace(&trace, 64, &view);
	assert_false(trace_read_report(&view, &report));
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	trace_report(&trace, TRACE_GROUP_WORLD, LS_PEER_LEFT, 2, 6, text);
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.status, LS_PEER_LEFT);
	assert_int_equal(report.culprit, 2);
	assert_int_equal(report.operation, 6);
	assert_int_equal(strlen(report.text), TRACE_REPORT_BYTES - 1);
	/* What a damaged trace says is no status. */
	atomic_store(&trace.header->report.status, 9999);
	assert_false(trace_read_report(&view, &report));
	trace_report(&trace, TRACE_GROUP_WORLD, LS_OK, -1, 0, "");
	assert_false(trace_read_report(&view, &report));
	/* Of other groups the last one is kept, until one of all ranks comes. */
	trace_report(&trace, 7, LS_TIMED_OUT, 1, 4, "seven");
	trace_report(&trace, 8, LS_MISMATCH, 3, 5, "eight");
	trace_report(&trace, 7, LS_OK, -1, 0, "");
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.group, 8);
	assert_string_equal(report.text, "eight");
	trace_report(&trace, TRACE_GROUP_WORLD, LS_PEER_DIED, 2, 6, "all");
	trace_report(&trace, 8, LS_MISMATCH, 3, 5, "eight");
	trace_report(&trace, 8, LS_OK, -1, 0, "");
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.group, TRACE_GROUP_WORLD);
	assert_string_equal(report.text, "all");
	/* That nobody was told of it belongs to the one that is kept, and ends with it. */
	assert_int_equal(trace_report_unreturned(&trace, 8), LS_OK);
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.unreturned, 0);
	assert_int_equal(trace_report_unreturned(&trace, TRACE_GROUP_WORLD), LS_PEER_DIED);
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.unreturned, 1);
	trace_report(&trace, TRACE_GROUP_WORLD, LS_MISMATCH, 2, 6, "another");
	assert_true(trace_read_report(&view, &report));
	assert_int_equal(report.unreturned, 0);
	close_trace(&trace, &view);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_its_owner_writes_it),
		cmocka_unit_test(header_says_who_it_is),
		cmocka_unit_test(record_goes_from_begin_to_end),
		cmocka_unit_test(labels_are_kept_once),
		cmocka_unit_test(labels_of_threads_are_kept_once),
		cmocka_unit_test(groups_take_turns),
		cmocka_unit_test(groups_have_many_members),
		cmocka_unit_test(report_is_kept_and_taken_back),
		cmocka_unit_test(copies_are_whole_beside_writers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
