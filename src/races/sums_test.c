/* SPDX-License-Identifier: BSD-3-Clause
 * Whether the program has stored to memory that an operation reads. */
#include <stdlib.h>
#include <sys/mman.h>

#include "races/races_fixture.h"

static uint64_t begin_sending(struct fixture *fixture, void *at, uint64_t bytes, void *result)
{
	struct races_use use = {.who = {.name = "a"},
				.parts = {{.address = at, .bytes = bytes},
					  {.address = result, .bytes = bytes, .writes = true}}};
	uint64_t ticket;
	races_sum_up(&use);
	assert_true(races_begin(fixture->races, &use, &ticket, &fixture->conflict));
	return ticket;
}

/* Each byte counts, wherever it lies. */
static void a_changed_byte_is_seen(void **state)
{
	static const uint64_t sizes[] = {1, 7, 4096, 8192, 8193, 50001};
	struct fixture it;
	(void)state;
	begin_test(&it);
	unsigned char *memory = calloc(1, 100000), *result = memory + 50001;
	assert_non_null(memory);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint64_t ticket = begin_sending(&it, memory, sizes[i], result);
		for (uint64_t at = 0; at < sizes[i]; at += 1 + sizes[i] / 10) {
			assert_true(races_is_unchanged(it.races, ticket));
			memory[at] ^= 0x80;
			assert_false(races_is_unchanged(it.races, ticket));
			memory[at] ^= 0x80;
		}
		memory[sizes[i] - 1]++;
		assert_false(races_is_unchanged(it.races, ticket));
		memory[sizes[i] - 1]--;
		memory[sizes[i]]++; /* behind it */
		result[0]++;
		assert_true(races_is_unchanged(it.races, ticket));
		memory[0]++;
		races_end(it.races, ticket);
		assert_true(races_is_unchanged(it.races, ticket)); /* it is over */
	}
	free(memory);
	races_close(it.races);
}

static void words_that_are_swapped_are_seen(void **state)
{
	struct fixture it;
	uint64_t words[64];
	(void)state;
	begin_test(&it);
	for (uint64_t i = 0; i < 64; i++)
		words[i] = i;
	uint64_t ticket = begin_sending(&it, words, sizeof words, other);
	for (int i = 1; i < 64; i++) {
		words[0] = words[i];
		words[i] = 0;
		assert_false(races_is_unchanged(it.races, ticket));
		words[i] = words[0];
		words[0] = 0;
		assert_true(races_is_unchanged(it.races, ticket));
	}
	races_close(it.races);
}

static void what_is_unmapped_has_changed(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	void *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	uint64_t ticket = begin_sending(&it, memory, 8192, NULL);
	assert_true(races_is_unchanged(it.races, ticket));
	assert_int_equal(munmap(memory, 8192), 0);
	assert_false(races_is_unchanged(it.races, ticket));
	races_close(it.races);
}

/* Memory that the processor must not touch, and buffers that the operation itself writes. */
static void other_memory_is_not_compared(void **state)
{
	struct fixture it;
	(void)state;
	begin_test(&it);
	void *memory = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	uint64_t ticket = begin_sending(&it, memory, 8192, NULL);
	assert_true(races_is_unchanged(it.races, ticket));
	assert_int_equal(munmap(memory, 8192), 0);
	ticket = begin_sending(&it, buffer, 1000, buffer + 500);
	buffer[0]++;
	assert_true(races_is_unchanged(it.races, ticket));
	races_close(it.races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_changed_byte_is_seen),
		cmocka_unit_test(words_that_are_swapped_are_seen),
		cmocka_unit_test(what_is_unmapped_has_changed),
		cmocka_unit_test(other_memory_is_not_compared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
