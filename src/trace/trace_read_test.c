/* SPDX-License-Identifier: BSD-3-Clause
 * Reading a trace that is damaged, cut short, hostile, or whose writer died in the middle of a
 * store: every answer must come in bounded time and from inside the image. Run under
 * AddressSanitizer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/seqlock.h"
#include "trace/trace.h"

struct image {
	unsigned char *memory;
	size_t bytes;
	struct trace_header *header;
};

/* A private copy of a real trace with two records, one of which runs. */
static struct image make_image(void)
{
	struct trace trace;
	struct trace_options options = {.job = 1, .rank = 0, .world_size = 2, .records = 16};
	assert_int_equal(trace_init(&trace, &options), LS_OK);
	struct trace_begin begin = {
		.seq = 5, .kind = TRACE_ALLREDUCE, .label = trace_label(&trace, "train.py:1")};
	trace_end(&trace, trace_begin(&trace, &begin), LS_OK);
	trace_begin(&trace, &begin);
	struct image image = {.bytes = trace.bytes};
	image.memory = aligned_alloc(64, image.bytes);
	assert_non_null(image.memory);
	memcpy(image.memory, trace.header, image.bytes);
	image.header = (struct trace_header *)image.memory;
	trace_fini(&trace);
	return image;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Uses everything a view offers. */
static void read_all(const struct trace_view *view, uint64_t random)
{
	struct trace_record record;
	struct wait_slot_body wait;
	uint32_t step, epoch;
	char site[64];
	uint64_t records = view->ring_records < 64 ? view->ring_records : 64;
	for (uint64_t i = 0; i < records; i++)
		if (trace_read_at(view, i, &record, &step))
			trace_read(view, record.index, &record, &step);
	trace_read_at(view, random, &record, &step);
	trace_read(view, random, &record, &step);
	struct trace_phases phases;
	trace_read_phases(view, random, &phases);
	assert_true(phases.count <= TRACE_PHASE_MAX);
	if (trace_read_slot(view, (int)(random % WAIT_SLOT_MAX), &wait, &epoch))
		assert_true(wait.edge_count <= WAIT_EDGE_MAX);
	assert_false(trace_read_slot(view, WAIT_SLOT_MAX, &wait, &epoch));
	assert_false(trace_read_slot(view, -1, &wait, &epoch));
	record = (struct trace_record){.label = (uint32_t)random, .site = random};
	trace_site(view, &record, site, sizeof site);
	record.label = (uint32_t)random % TRACE_LABEL_MAX + 1;
	trace_site(view, &record, site, sizeof site);
	assert_true(strnlen(site, sizeof site) < sizeof site);
}

static void whole_image_is_accepted(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_view view;
	const char *why = "?";
	assert_true(trace_check(image.memory, image.bytes, &view, &why));
	assert_null(why);
	assert_false(view.mapped);
	read_all(&view, 1);
	struct trace_record record;
	uint32_t step;
	assert_true(trace_read(&view, 1, &record, &step));
	assert_int_equal(record.seq, 5);
	free(image.memory);
}

static void header_is_checked(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_header good = *image.header;
	const struct {
		size_t field, bytes;
		uint64_t value;
		const char *why;
	} cases[] = {
#define CASE(name, value, why) {offsetof(struct trace_header, name), sizeof good.name, value, why}
		CASE(magic, 0, "not a trace of Lockstep"),
		CASE(version, TRACE_VERSION + 1, "another version"),
		CASE(header_bytes, sizeof good - 8, "another version"),
		CASE(total_bytes, good.total_bytes + 1, "cut short"),
		CASE(total_bytes, UINT64_MAX, "cut short"),
		CASE(total_bytes, 8, "cut short"),
		CASE(total_bytes, good.ring_offset + 64, "outside"),
		CASE(ring_records, 0, "power of two"),
		CASE(ring_records, 3, "power of two"),
		CASE(ring_records, UINT64_MAX, "power of two"),
		CASE(ring_records, UINT64_C(1) << 63, "outside"),
		CASE(ring_records, UINT64_C(1) << 57, "outside"), /* times 128 is zero */
		CASE(ring_records, 64, "outside"),
		CASE(wait_table_offset, UINT64_MAX, "outside"),
		CASE(wait_table_offset, UINT64_MAX - 63, "outside"),
		CASE(phase_offset, good.total_bytes - 64, "outside"),
		CASE(phase_offset, 0, "outside"),      /* over the header */
		CASE(wait_table_offset, 0, "outside"), /* over the header */
		CASE(wait_table_offset, good.wait_table_offset + 8, "outside"), /* not aligned */
		CASE(group_offset, good.total_bytes, "outside"),
		CASE(module_offset, good.total_bytes - 64, "outside"),
		CASE(label_offset, good.total_bytes - TRACE_LABEL_MAX * TRACE_LABEL_BYTES + 64,
		     "outside"),
		CASE(ring_offset, good.ring_offset + 4096, "outside"),
		CASE(ring_offset, UINT64_C(1) << 63, "outside"),
#undef CASE
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trace_view view;
		const char *why = NULL;
		memcpy(image.memory + cases[i].field, &cases[i].value, cases[i].bytes);
		assert_false(trace_check(image.memory, image.bytes, &view, &why));
		assert_non_null(strstr(why, cases[i].why));
		assert_null(view.header);
		*image.header = good;
	}
	struct trace_view view;
	const char *why = NULL;
	assert_false(trace_check(image.memory + 8, image.bytes - 8, &view, &why));
	assert_non_null(strstr(why, "aligned"));
	/* Counts that are merely too large are cut. */
	atomic_store(&image.header->module_count, UINT32_MAX);
	assert_true(trace_check(image.memory, image.bytes, &view, &why));
	assert_int_equal(view.module_count, TRACE_MODULE_MAX);
	free(image.memory);
}

static void cut_images_are_refused(void **state)
{
	(void)state;
	struct image image = make_image();
	for (size_t bytes = 0; bytes < image.bytes; bytes += bytes < 2048 ? 8 : 4096) {
		void *cut = NULL;
		struct trace_view view;
		const char *why = NULL;
		assert_int_equal(posix_memalign(&cut, 64, bytes), 0);
		memcpy(cut, image.memory, bytes);
		assert_false(trace_check(cut, bytes, &view, &why));
		assert_non_null(why);
		free(cut);
	}
	free(image.memory);
}

/* Damages one field or many at random; whatever passes the check must be safe to read. */
static void random_images_are_safe(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_header good = *image.header;
	uint64_t random = 88172645463325252u;
	int accepted = 0, refused = 0;
	for (int i = 0; i < 100000; i++) {
		*image.header = good;
		uint64_t *words = (uint64_t *)(void *)image.header;
		uint64_t first = offsetof(struct trace_header, wait_table_offset) / 8;
		int hits = 1 + (int)(next_random(&random) % 3);
		for (int k = 0; k < hits; k++) {
			uint64_t r = next_random(&random);
			/* The offsets and counts most often, sometimes any word, near or far. */
			uint64_t word = r % 8 ? first + (r >> 8) % 6 : (r >> 8) % (sizeof good / 8);
			uint64_t value = next_random(&random) >> (r >> 32) % 64;
			words[word] = r % 3 ? value & ~UINT64_C(63) : value;
		}
		/* Nonsense in the body as well. */
		uint64_t at = sizeof good + next_random(&random) % (image.bytes - sizeof good - 8);
		uint64_t noise = next_random(&random);
		memcpy(image.memory + at, &noise, 8);
		struct trace_view view;
		const char *why = NULL;
		if (trace_check(image.memory, image.bytes, &view, &why)) {
			accepted++;
			read_all(&view, next_random(&random));
		} else {
			refused++;
			assert_non_null(why);
		}
	}
	assert_true(accepted > 1000 && refused > 1000);
	free(image.memory);
}

static void dead_writer_is_bounded(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_view view;
	const char *why;
	assert_true(trace_check(image.memory, image.bytes, &view, &why));
	struct trace_slot *ring = (struct trace_slot *)(image.memory + image.header->ring_offset);
	struct wait_table *wait_table =
		(struct wait_table *)(image.memory + image.header->wait_table_offset);
	struct trace_record record;
	struct wait_slot_body wait;
	uint32_t step, epoch;
	assert_true(trace_read(&view, 1, &record, &step));
	seqlock_begin(&ring[1].epoch);
	assert_false(trace_read(&view, 1, &record, &step));
	assert_int_equal(record.index, 0);
	assert_true(trace_read(&view, 2, &record, &step));
	assert_int_equal(record.state, TRACE_RUNNING);

	assert_true(trace_read_slot(&view, 4, &wait, &epoch));
	struct wait_slot_body body = {.state = WAIT_WORDS, .tid = 42, .edge_count = 9999};
	seqlock_begin(&wait_table->slots[4].epoch);
	seqlock_store(&wait_table->slots[4].body, &body, sizeof body);
	assert_false(trace_read_slot(&view, 4, &wait, &epoch));
	assert_int_equal(wait.state, WAIT_UNUSED);
	seqlock_end(&wait_table->slots[4].epoch);
	assert_true(trace_read_slot(&view, 4, &wait, &epoch));
	assert_int_equal(wait.tid, 42);
	assert_int_equal(wait.edge_count, WAIT_EDGE_MAX);
	assert_int_equal(epoch, 2);
	/* A foreign call's name ends within its place, and is of no other state. */
	memset(body.foreign, 'x', sizeof body.foreign);
	for (int foreign = 0; foreign < 2; foreign++) {
		struct wait_slot_body copy;
		body.state = foreign ? WAIT_FOREIGN : WAIT_WORDS;
		seqlock_store(&wait_table->slots[4].body, &body, sizeof body);
		assert_true(trace_read_slot(&view, 4, &copy, &epoch));
		assert_int_equal(strnlen(copy.foreign, sizeof copy.foreign),
				 foreign ? WAIT_FOREIGN_BYTES - 1 : 0);
	}
	/* Further words than any page can have: only what lies in pages is read. */
	struct wait_edge words[WAIT_EDGE_MAX];
	wait.further = 100;
	wait.pages = UINT64_C(1) << 63 | 2;
	assert_true(trace_shows_all(&wait));
	assert_int_equal(trace_read_words(&view, &wait, 0, words), WAIT_EDGE_MAX);
	assert_int_equal(trace_read_words(&view, &wait, 1, words), WAIT_EDGE_MAX);
	assert_int_equal(trace_read_words(&view, &wait, 2, words), 100 - WAIT_EDGE_MAX);
	assert_int_equal(trace_read_words(&view, &wait, 3, words), 0);
	wait.further = UINT32_MAX;
	assert_false(trace_shows_all(&wait));
	assert_int_equal(trace_read_words(&view, &wait, 2, words), WAIT_EDGE_MAX);
	assert_int_equal(trace_read_words(&view, &wait, 3, words), 0);
	free(image.memory);
}

static void header_may_change_after_the_check(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_view view;
	const char *why;
	assert_true(trace_check(image.memory, image.bytes, &view, &why));
	image.header->ring_records = UINT64_C(1) << 40;
	image.header->ring_offset = UINT64_C(1) << 50;
	atomic_store(&image.header->module_count, UINT32_MAX);
	read_all(&view, UINT64_C(1) << 39);
	struct trace_record record;
	uint32_t step;
	assert_true(trace_read(&view, 1, &record, &step));
	assert_false(trace_read(&view, 17, &record, &step));
	free(image.memory);
}

/* The lowest bits of an index name one of the last 2^32, whatever they are. */
static void lowest_bits_of_an_index(void **state)
{
	(void)state;
	static const struct {
		uint64_t newest;
		uint32_t low;
		uint64_t index;
	} table[] = {
		{5, 5, 5},           {5, 2, 2},
		{5, 0, 0},           {0x100000005, 5, 0x100000005},
		{0x100000005, 6, 6}, {0x100000005, UINT32_MAX, UINT32_MAX},
		{0x2ffffffff, 0, 0}, {0x2ffffffff, 1, 0x200000001},
	};
	struct image image = make_image();
	struct trace_view view;
	const char *why;
	assert_true(trace_check(image.memory, image.bytes, &view, &why));
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		atomic_store(&image.header->newest, table[i].newest);
		assert_int_equal(trace_index(&view, table[i].low), table[i].index);
	}
	struct trace_record record;
	uint32_t step;
	atomic_store(&image.header->newest, 2);
	assert_true(trace_read(&view, trace_index(&view, 2), &record, &step));
	/* before the first */
	assert_false(trace_read(&view, trace_index(&view, 3), &record, &step));
	free(image.memory);
}

static void only_sealed_memory_is_mapped(void **state)
{
	(void)state;
	struct image image = make_image();
	struct trace_view view;
	const char *why = NULL;
	assert_false(trace_map(-1, &view, &why));
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_false(trace_map(null, &view, &why));
	close(null);
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(write(fd, image.memory, image.bytes), (ssize_t)image.bytes);
	assert_false(trace_map(fd, &view, &why));
	assert_non_null(strstr(why, "sealed"));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_true(trace_map(fd, &view, &why));
	assert_true(view.mapped);
	read_all(&view, 3);
	trace_unmap(&view);
	close(fd);
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_false(trace_map(fd, &view, &why));
	assert_non_null(strstr(why, "shorter"));
	close(fd);
	free(image.memory);
}

static void names_are_total(void **state)
{
	(void)state;
	assert_int_equal(TRACE_ALLREDUCE, 1);
	assert_int_equal(TRACE_PROBE, 19); /* kinds are only appended */
	for (uint32_t i = 0; i < TRACE_KIND_COUNT; i++)
		assert_string_equal(trace_kind_name(i), coll_kinds[i].name);
	assert_string_equal(trace_kind_name(TRACE_KIND_COUNT), "?");
	assert_string_equal(trace_kind_name(UINT32_MAX), "?");
	for (uint32_t i = 0; i <= LS_COMPLEX128; i++)
		assert_string_not_equal(trace_dtype_name(i), "?");
	assert_string_equal(trace_dtype_name(LS_FLOAT32), "float32");
	assert_string_equal(trace_dtype_name(LS_COMPLEX128), "complex128");
	assert_string_equal(trace_dtype_name(LS_COMPLEX128 + 1), "?");
	for (uint32_t i = 0; i <= LS_PREMUL_SUM; i++)
		assert_string_not_equal(trace_reduce_name(i), "?");
	assert_string_equal(trace_reduce_name(LS_PRODUCT), "product");
	assert_string_equal(trace_reduce_name(LS_PREMUL_SUM), "premul-sum");
	assert_string_equal(trace_reduce_name(LS_PREMUL_SUM + 1), "?");
}

static void words_of_streams(void **state)
{
	enum { LAUNCHED = TRACE_ON_STREAM | TRACE_LAUNCHED };
	static const struct {
		uint32_t stream, kind;
		const char *word, *clause;
	} cases[] = {
		{TRACE_ON_STREAM, TRACE_SEND, "called", ", which is being enqueued on its stream"},
		{TRACE_ON_STREAM | TRACE_NO_ROOM, TRACE_SEND, "called",
		 ", for which the queue of its stream had no room"},
		{LAUNCHED | TRACE_NO_ROOM, TRACE_SEND, "launched",
		 ", to which its stream has not come yet"},
		{LAUNCHED, TRACE_SEND, "launched", ", to which its stream has not come yet"},
		{LAUNCHED, TRACE_RECV, "launched", ", on a stream"},
		{LAUNCHED | TRACE_REACHED, TRACE_BARRIER, "reached", ", on a stream"},
		/* the stream comes to it while the call still puts it there */
		{TRACE_ON_STREAM | TRACE_REACHED, TRACE_BARRIER, "reached", ", on a stream"},
		{LAUNCHED | TRACE_REACHED | TRACE_ARRIVED, TRACE_BARRIER, "arrived",
		 ", whose result its stream has not taken yet"},
		{LAUNCHED | TRACE_ARRIVED, TRACE_RECV, "arrived",
		 ", whose result its stream has not taken yet"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trace_record record = {.kind = (uint16_t)cases[i].kind,
					      .stream = cases[i].stream,
					      .state = TRACE_RUNNING};
		assert_string_equal(trace_stream_word(&record), cases[i].word);
		assert_string_equal(trace_stream_clause(&record), cases[i].clause);
		record.state = TRACE_FAILED; /* how far it has come is over */
		assert_string_equal(trace_stream_word(&record), cases[i].word);
		assert_string_equal(trace_stream_clause(&record), ", on a stream");
		record.stream = 0;
		assert_null(trace_stream_word(&record));
		assert_string_equal(trace_stream_clause(&record), "");
	}
}

/* One kind of each sort; a kind outside the table has no facts. */
static void facts_follow_the_table(void **state)
{
	(void)state;
	static const struct trace_kind_facts facts[TRACE_KIND_COUNT + 1] = {
		[TRACE_ALLREDUCE] = {.collective = true, .typed = true, .reduces = true},
		[TRACE_REDUCE] = {.collective = true, .typed = true, .reduces = true, .rooted = true},
		[TRACE_ALLGATHER] = {.collective = true, .typed = true},
		[TRACE_GATHERV] = {.collective = true, .typed = true, .rooted = true, .per_rank = true},
		[TRACE_ALLTOALLV] = {.collective = true,
				     .typed = true,
				     .per_rank = true,
				     .own_counts = true},
		[TRACE_BARRIER] = {.collective = true},
		[TRACE_GROUP_SPLIT] = {.collective = true},
		[TRACE_SEND] = {.typed = true},
	};
	static const uint32_t kinds[] = {
		TRACE_NONE,    TRACE_ALLREDUCE, TRACE_REDUCE,     TRACE_ALLGATHER,
		TRACE_GATHERV, TRACE_ALLTOALLV, TRACE_BARRIER,    TRACE_GROUP_SPLIT,
		TRACE_SEND,    TRACE_PROBE,     TRACE_KIND_COUNT,
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct trace_kind_facts found = trace_kind_facts(kinds[i]);
		assert_memory_equal(&found, &facts[kinds[i]], sizeof found);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_image_is_accepted),
		cmocka_unit_test(header_is_checked),
		cmocka_unit_test(cut_images_are_refused),
		cmocka_unit_test(random_images_are_safe),
		cmocka_unit_test(dead_writer_is_bounded),
		cmocka_unit_test(header_may_change_after_the_check),
		cmocka_unit_test(lowest_bits_of_an_index),
		cmocka_unit_test(only_sealed_memory_is_mapped),
		cmocka_unit_test(names_are_total),
		cmocka_unit_test(words_of_streams),
		cmocka_unit_test(facts_follow_the_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
