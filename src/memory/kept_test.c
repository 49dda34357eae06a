/* SPDX-License-Identifier: BSD-3-Clause
 * Blocks that outlive their arena: their content, what goes back to the system, wrong frees,
 * children, threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/capture.h"
#include "base/wait.h"
#include "memory/memory.h"

/* After base/wait.h, which does not get along with it the other way round. */
#include <sys/wait.h>

enum { MIB = 1 << 20, ARENA = 16 * MIB, LENGTH = 10000 };

static void open_arena(struct memory *memory)
{
	assert_int_equal(memory_init(memory, ARENA, 0xabc, 3), LS_OK);
}

static unsigned char *alloc(struct memory *memory, int fill)
{
	void *block = NULL;
	assert_int_equal(memory_alloc_for_user(memory, LENGTH, &block), LS_OK);
	memset(block, fill, LENGTH);
	return block;
}

static bool is_mapped(void *address)
{
	unsigned char resident;
	return mincore(address, 1, &resident) == 0 || errno != ENOMEM;
}

/* Resident pages of a block that begins there. */
static int count_pages(void *address)
{
	unsigned char resident[3];
	assert_int_equal(mincore(address, LENGTH, resident), 0);
	return (resident[0] & 1) + (resident[1] & 1) + (resident[2] & 1);
}

static bool holds(const unsigned char *block, int fill)
{
	for (int i = 0; i < LENGTH; i++)
		if (block[i] != fill)
			return false;
	return true;
}

static void what_is_in_use_stays(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory);
	unsigned char *first = alloc(&memory, 1), *freed = alloc(&memory, 2),
		      *revoked = alloc(&memory, 3);
	assert_int_equal(memory_revoke(&memory, revoked, LENGTH), LS_OK);
	unsigned char *given = alloc(&memory, 5), *checked = alloc(&memory, 6);
	void *inner;
	assert_int_equal(memory_alloc(&memory, LENGTH, &inner), LS_OK);
	memset(inner, 7, LENGTH);
	assert_int_equal(memory_free(&memory, freed, NULL), LS_OK);
	assert_true(memory_has_block(&memory, given, LENGTH));
	assert_true(memory_has_block(&memory, checked, LENGTH));
	memory_give_block(&memory, given);
	assert_false(memory_has_block(&memory, given, LENGTH));
	memory_keep(&memory);
	assert_null(memory.base);
	assert_true(holds(first, 1) && holds(revoked, 3) && holds(checked, 6));
	assert_int_equal(count_pages(freed) + count_pages(given) + count_pages(inner), 0);
	assert_int_equal(memory_free_kept(checked, NULL), LS_OK);
	memset(first, 4, LENGTH);
	assert_int_equal(memory_free_kept(revoked, NULL), LS_OK);
	assert_true(holds(first, 4));
	assert_int_equal(memory_free_kept(first, NULL), LS_OK);
	assert_false(is_mapped(first));
}

static void nothing_stays_if_nothing_is_in_use(void **state)
{
	(void)state;
	struct memory memory;
	open_arena(&memory);
	unsigned char *block = alloc(&memory, 1);
	assert_int_equal(memory_free(&memory, block, NULL), LS_OK);
	memory_keep(&memory);
	assert_false(is_mapped(block));
	memory_keep(&memory); /* as memory_fini: nothing is there */
}

static void expect_refusal(void *block, const char *id)
{
	struct capture capture;
	capture_begin(&capture);
	ls_status status = memory_free_kept(block, NULL);
	const char *text = capture_end(&capture);
	assert_int_equal(status, LS_BAD_ARGUMENT);
	assert_non_null(strstr(text, id));
}

static void wrong_frees_are_refused(void **state)
{
	(void)state;
	struct memory memory, other;
	int value;
	expect_refusal(&value, "LS-MEMORY-NO-BLOCK");
	open_arena(&memory);
	open_arena(&other);
	unsigned char *block = alloc(&memory, 1), *second = alloc(&memory, 2),
		      *open = alloc(&other, 3);
	memory_keep(&memory);
	expect_refusal(&value, "LS-MEMORY-NO-BLOCK");
	expect_refusal(open, "LS-MEMORY-NO-BLOCK");
	expect_refusal(block + 1, "LS-MEMORY-NO-BLOCK");
	expect_refusal(block + ARENA - 4096, "LS-MEMORY-NO-BLOCK");
	assert_int_equal(memory_free_kept(block, NULL), LS_OK);
	expect_refusal(block, "LS-MEMORY-FREED-TWICE");
	assert_int_equal(memory_free_kept(second, NULL), LS_OK);
	memory_fini(&other);
}

static void a_child_has_none_of_it(void **state)
{
	(void)state;
	struct memory memory;
	int status;
	open_arena(&memory);
	unsigned char *block = alloc(&memory, 1);
	memory_keep(&memory);
	pid_t child = fork();
	if (child == 0)
		_exit(is_mapped(block) || memory_free_kept(block, NULL) != LS_OK);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(holds(block, 1));
	assert_int_equal(memory_free_kept(block, NULL), LS_OK);
	assert_false(is_mapped(block));
}

enum { THREADS = 4, BLOCKS = 200 };

/* Closes an arena of its own, and frees what the one before has kept. */
struct closer {
	pthread_t id;
	unsigned char *blocks[BLOCKS];
	struct closer *before;
	_Atomic int kept;
	int failures;
};

static void *close_and_free(void *argument)
{
	struct closer *self = argument;
	struct memory memory;
	open_arena(&memory);
	for (int i = 0; i < BLOCKS; i++)
		self->blocks[i] = alloc(&memory, i);
	memory_keep(&memory);
	atomic_store(&self->kept, 1);
	while (atomic_load(&self->before->kept) == 0)
		;
	for (int i = 0; i < BLOCKS; i++)
		self->failures += !holds(self->before->blocks[i], i) ||
				  memory_free_kept(self->before->blocks[i], NULL) != LS_OK;
	return NULL;
}

static void threads_close_and_free(void **state)
{
	(void)state;
	static struct closer closers[THREADS];
	for (int i = 0; i < THREADS; i++)
		closers[i].before = &closers[(i + THREADS - 1) % THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&closers[i].id, NULL, close_and_free, &closers[i]),
				 0);
	for (int i = 0; i < THREADS; i++)
		wait_join(closers[i].id);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(closers[i].failures, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(nothing_stays_if_nothing_is_in_use),
		cmocka_unit_test(wrong_frees_are_refused),
		cmocka_unit_test(a_child_has_none_of_it),
		cmocka_unit_test(threads_close_and_free),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
