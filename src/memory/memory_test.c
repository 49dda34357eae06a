/* SPDX-License-Identifier: BSD-3-Clause
 * The allocator: alignment, warm reuse, wrong and double frees, exhaustion, threads, forked
 * children, and the invariants after 100,000 random operations. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/capture.h"
#include "base/wait.h"
#include "memory/memory.h"

/* After base/wait.h, which does not get along with it the other way round. */
#include <sys/wait.h>

enum { MIB = 1 << 20 };

static void open_arena(struct memory *memory, size_t bytes)
{
	assert_int_equal(memory_init(memory, bytes, 0xabc, 3), LS_OK);
	assert_true(memory_is_valid(memory));
}

static void *alloc(struct memory *memory, size_t bytes)
{
	void *block = NULL;
	assert_int_equal(memory_alloc(memory, bytes, &block), LS_OK);
	assert_non_null(block);
	return block;
}

static void say_place(char *out, size_t bytes)
{
	snprintf(out, bytes, ", called from here");
}

/* A refused block gives one message, with this id and the place. */
static void expect_refusal(struct memory *memory, void *block, const char *id)
{
	struct capture capture;
	capture_begin(&capture);
	ls_status status = memory_free(memory, block, say_place);
	const char *text = capture_end(&capture);
	assert_int_equal(status, LS_BAD_ARGUMENT);
	assert_non_null(strstr(text, id));
	assert_non_null(strstr(text, ", called from here ["));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void expect_exhaustion(struct memory *memory, size_t bytes, const char *part)
{
	struct capture capture;
	void *none = memory;
	capture_begin(&capture);
	ls_status status = memory_alloc(memory, bytes, &none);
	const char *text = capture_end(&capture);
	assert_int_equal(status, LS_OUT_OF_MEMORY);
	assert_null(none);
	assert_non_null(strstr(text, part));
	assert_non_null(strstr(text, "LS-MEMORY-EXHAUSTED"));
}

static struct memory_stats stats_of(struct memory *memory)
{
	struct memory_stats stats;
	memory_stats(memory, &stats);
	return stats;
}

static void blocks_are_aligned_and_apart(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 512 * (size_t)MIB);
	const size_t sizes[] = {0,
				1,
				63,
				64,
				65,
				4095,
				4096,
				4097,
				8192,
				12289,
				16385,
				5 * 4096,
				65536,
				65537,
				100000,
				MIB,
				MIB + 1,
				9 * MIB + 5,
				64 * (size_t)MIB};
	enum { COUNT = sizeof sizes / sizeof sizes[0] };
	unsigned char *blocks[COUNT];
	for (int i = 0; i < COUNT; i++) {
		blocks[i] = alloc(&memory, sizes[i]);
		assert_int_equal((uintptr_t)blocks[i] % memory.page_bytes, 0);
		memset(blocks[i], i, sizes[i]);
	}
	assert_true(memory_is_valid(&memory));
	for (int i = 0; i < COUNT; i++) {
		uint64_t offset;
		assert_true(memory_offset(&memory, blocks[i], sizes[i], &offset));
		assert_ptr_equal(memory.base + offset, blocks[i]);
		for (size_t k = 0; k < sizes[i]; k += 61)
			assert_int_equal(blocks[i][k], i);
	}
	struct memory_stats stats = stats_of(&memory);
	size_t asked = 0;
	for (int i = 0; i < COUNT; i++)
		asked += sizes[i] < 4096 ? 4096 : sizes[i];
	assert_true(stats.live >= asked && stats.live <= asked + asked / 4 + COUNT * 4096);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(memory_free(&memory, blocks[i], NULL), LS_OK);
	assert_true(memory_is_valid(&memory));
	assert_int_equal(stats_of(&memory).live, 0);
	memory_fini(&memory);
	assert_null(memory.base);
	memory_fini(&memory);
}

static void freed_blocks_come_back_warm(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 64 * MIB);
	unsigned char *first = alloc(&memory, 300000), *other = alloc(&memory, 300000);
	assert_ptr_not_equal(first, other);
	first[299999] = 42;
	assert_int_equal(memory_free(&memory, first, NULL), LS_OK);
	unsigned char *again = alloc(&memory, 299000); /* of the same class */
	assert_ptr_equal(again, first);
	assert_int_equal(again[299999], 42);
	struct memory_stats stats = stats_of(&memory);
	assert_int_equal(stats.hits, 1);
	assert_int_equal(stats.misses, 2);
	assert_int_equal(stats.cached, 0);
	size_t carved = stats.carved;
	for (int step = 0; step < 1000; step++) {
		void *blocks[3] = {alloc(&memory, 5000), alloc(&memory, MIB), alloc(&memory, 64)};
		if (step == 0)
			carved = stats_of(&memory).carved;
		for (int i = 0; i < 3; i++)
			assert_int_equal(memory_free(&memory, blocks[i], NULL), LS_OK);
	}
	assert_int_equal(stats_of(&memory).carved, carved);
	assert_true(memory_is_valid(&memory));
	memory_fini(&memory);
}

/* A cached block of up to twice the size is used before the arena grows. It comes back as what it
 * was. */
static void a_larger_block_is_used(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, MIB);
	void *eight = alloc(&memory, 8 * memory.page_bytes);
	assert_int_equal(memory_free(&memory, eight, NULL), LS_OK);
	void *three = alloc(&memory, 3 * memory.page_bytes);
	assert_ptr_not_equal(three, eight);
	assert_ptr_equal(alloc(&memory, 4 * memory.page_bytes), eight);
	assert_int_equal(memory_bytes_of(&memory, eight), 8 * memory.page_bytes);
	assert_int_equal(stats_of(&memory).hits, 1);
	void *five = alloc(&memory, 5 * memory.page_bytes);
	assert_int_equal(memory_free(&memory, eight, NULL), LS_OK);
	assert_ptr_equal(alloc(&memory, 8 * memory.page_bytes), eight);
	assert_true(memory_is_valid(&memory));
	assert_int_equal(memory_free(&memory, five, NULL), LS_OK);
	assert_ptr_equal(alloc(&memory, 5 * memory.page_bytes), five);
	assert_int_equal(memory_free(&memory, five, NULL), LS_OK);
	assert_ptr_not_equal(alloc(&memory, 2 * memory.page_bytes), five);
	memory_fini(&memory);
}

static void wrong_and_double_frees_are_refused(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 16 * MIB);
	unsigned char *block = alloc(&memory, 20000);
	int on_stack = 0;
	assert_int_equal(memory_free(&memory, NULL, NULL), LS_OK);
	expect_refusal(&memory, &on_stack, "LS-MEMORY-NO-BLOCK");
	expect_refusal(&memory, block + 64, "LS-MEMORY-NO-BLOCK");
	expect_refusal(&memory, block + 4096, "LS-MEMORY-NO-BLOCK");
	expect_refusal(&memory, memory.base + 8 * MIB, "LS-MEMORY-NO-BLOCK");
	expect_refusal(&memory, memory.base - 4096, "LS-MEMORY-NO-BLOCK");
	expect_refusal(&memory, memory.base + memory.bytes, "LS-MEMORY-NO-BLOCK");
	assert_true(memory_is_valid(&memory));
	assert_int_equal(memory_free(&memory, block, NULL), LS_OK);
	expect_refusal(&memory, block, "LS-MEMORY-FREED-TWICE");
	assert_true(memory_is_valid(&memory));
	/* Not in the list twice. */
	assert_ptr_not_equal(alloc(&memory, 20000), alloc(&memory, 20000));
	memory_fini(&memory);
}

static void small_arena_runs_out(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 4 * MIB);
	expect_exhaustion(&memory, 4 * MIB + 1, "the arena is smaller");
	expect_exhaustion(&memory, SIZE_MAX, "the arena is smaller");
	unsigned char *blocks[4];
	for (int i = 0; i < 4; i++) {
		blocks[i] = alloc(&memory, MIB);
		memset(blocks[i], i, MIB); /* the pages are there: no SIGBUS */
	}
	expect_exhaustion(&memory, 1, "of its 4096 KiB, 4096 are in use");
	assert_true(memory_is_valid(&memory));
	/* With nothing of its size left, a larger block serves; and comes back as what it was. */
	assert_int_equal(memory_free(&memory, blocks[2], NULL), LS_OK);
	assert_ptr_equal(alloc(&memory, 100), blocks[2]);
	expect_exhaustion(&memory, 1, "the arena is full");
	assert_int_equal(memory_free(&memory, blocks[2], NULL), LS_OK);
	assert_ptr_equal(alloc(&memory, MIB), blocks[2]);
	assert_true(memory_is_valid(&memory));
	memory_fini(&memory);
}

static void offsets_only_inside(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 16 * MIB);
	unsigned char *block = alloc(&memory, 4096), *next = alloc(&memory, 8192);
	uint64_t offset = 9;
	int on_stack;
	assert_true(memory_offset(&memory, next + 100, 8092, &offset));
	assert_int_equal(offset, (size_t)(next - block) + 100);
	assert_true(memory_offset(&memory, next, 0, &offset));
	/* past what was handed out */
	assert_false(memory_offset(&memory, next + 100, 8093, &offset));
	assert_int_equal(offset, 0);
	assert_false(memory_offset(&memory, &on_stack, 4, &offset));
	assert_false(memory_offset(&memory, block - 1, 1, &offset));
	assert_false(memory_offset(&memory, block, SIZE_MAX, &offset));
	assert_false(memory_offset(&memory, memory.base + 8 * MIB, 1, &offset));
	assert_false(memory_offset(&memory, NULL, 0, &offset));
	memory_fini(&memory);
}

/* Runs in a child. Returns 0 if all is as promised, else the number of what is not. */
static int use_in_child(struct memory *memory, unsigned char *block)
{
	void *out = memory;
	if (!memory_in_child(memory))
		return 1;
	if (memory_alloc(memory, 100, &out) != LS_FORKED || out)
		return 2;
	for (int i = 0; i < 2; i++)
		if (memory_free(memory, block, NULL) != LS_OK)
			return 3;
	if (memory_revoke(memory, block, 100) != LS_FORKED)
		return 4;
	memory_fini(memory);
	return memory->base || memory->fd != -1 ? 5 : 0;
}

static int open_in_child(void)
{
	struct memory memory;
	void *out;
	if (memory_init(&memory, MIB, 1, 1) != LS_OK || memory_in_child(&memory))
		return 1;
	if (memory_alloc(&memory, 100, &out) != LS_OK || !memory_is_valid(&memory))
		return 2;
	memory_fini(&memory);
	return 0;
}

static void forked_child_has_no_arena(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 16 * MIB);
	unsigned char *block = alloc(&memory, 5000);
	block[0] = 7;
	/* Another thread may hold the lock at the moment of the fork: the child must not want
	 * it. */
	lock_memory_acquire(&memory.lock);
	pid_t child = fork();
	if (child == 0)
		_exit(use_in_child(&memory, block));
	lock_memory_release(&memory.lock);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	child = fork();
	if (child == 0)
		_exit(open_in_child());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* And one that touches it after all dies alone. */
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile unsigned char *)block = 8;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_not_equal(status, 0);
	assert_int_equal(block[0], 7);
	assert_false(memory_in_child(&memory));
	assert_int_equal(memory_free(&memory, block, NULL), LS_OK);
	assert_true(memory_is_valid(&memory));
	memory_fini(&memory);
}

/* ---- random operations ---- */

enum { SLOTS = 64, OPERATIONS = 100000, THREADS = 4 };

struct worker {
	struct memory *memory;
	uint64_t random;
	int operations;
	bool check; /* the invariants now and then, and revoking */
	int failures;
	pthread_t id;
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Marks each block's ends with its owner, so that a block handed out twice is seen. */
static void *work(void *context)
{
	struct worker *worker = context;
	struct {
		uint64_t *block;
		size_t words;
	} held[SLOTS] = {0};
	for (int i = 0; i < worker->operations; i++) {
		uint64_t random = next_random(&worker->random);
		unsigned slot = (unsigned)(random % SLOTS);
		uint64_t mark = (uint64_t)(uintptr_t)held + slot;
		if (held[slot].block) {
			uint64_t *block = held[slot].block;
			worker->failures += block[0] != mark || block[held[slot].words - 1] != mark;
			if (worker->check && random >> 20 & 1 && random % 7 == 0)
				worker->failures += memory_revoke(worker->memory, block, 8) != LS_OK;
			worker->failures += memory_free(worker->memory, block, NULL) != LS_OK;
			held[slot].block = NULL;
			continue;
		}
		size_t words = 1 + (random >> 8) % ((size_t)1 << (random >> 32) % 14);
		void *out;
		if (memory_alloc(worker->memory, words * 8, &out) != LS_OK) {
			worker->failures++;
			continue;
		}
		held[slot].block = out;
		held[slot].words = words;
		held[slot].block[0] = held[slot].block[words - 1] = mark;
		if (worker->check && i % 1000 == 0)
			worker->failures += !memory_is_valid(worker->memory);
	}
	for (int i = 0; i < SLOTS; i++)
		worker->failures += memory_free(worker->memory, held[i].block, NULL) != LS_OK;
	return NULL;
}

static void random_operations_keep_the_invariants(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 1024 * (size_t)MIB);
	struct worker worker = {
		.memory = &memory, .random = 1234567, .operations = OPERATIONS, .check = true};
	work(&worker);
	assert_int_equal(worker.failures, 0);
	assert_true(memory_is_valid(&memory));
	struct memory_stats stats = stats_of(&memory);
	assert_int_equal(stats.live, 0);
	assert_true(stats.revoked > 0 && stats.hits > stats.misses);
	/* The check can fail. */
	memory.carved += memory.page_bytes;
	assert_false(memory_is_valid(&memory));
	memory_fini(&memory);
}

static void threads_share_an_arena(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory, 1024 * (size_t)MIB);
	struct worker workers[THREADS];
	for (uint64_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.memory = &memory, .random = 77 + i, .operations = OPERATIONS / 10};
		assert_int_equal(pthread_create(&workers[i].id, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		wait_join(workers[i].id);
		assert_int_equal(workers[i].failures, 0);
	}
	assert_true(memory_is_valid(&memory));
	assert_int_equal(stats_of(&memory).live, 0);
	memory_fini(&memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_aligned_and_apart),
		cmocka_unit_test(freed_blocks_come_back_warm),
		cmocka_unit_test(a_larger_block_is_used),
		cmocka_unit_test(wrong_and_double_frees_are_refused),
		cmocka_unit_test(small_arena_runs_out),
		cmocka_unit_test(offsets_only_inside),
		cmocka_unit_test(forked_child_has_no_arena),
		cmocka_unit_test(random_operations_keep_the_invariants),
		cmocka_unit_test(threads_share_an_arena),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
