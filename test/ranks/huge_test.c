/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of more bytes than 32 bits can count. */
#include <string.h>
#include <sys/mman.h>

#include "tests.h"

enum { MARKS = 7, GUARD = 77 };

/* Zero but for some marks; of a source only these take memory. Large pages, where there are some,
 * are faster. */
static signed char *map(uint64_t bytes, bool target)
{
	void *memory = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	if (target)
		(void)madvise(memory, bytes + 1, MADV_HUGEPAGE);
	return memory;
}

/* The first byte, those around 2 and 4 GiB, and the last, in their order. */
static uint64_t mark_at(uint64_t bytes, int i)
{
	static const uint64_t places[MARKS] = {0,
					       UINT64_C(0x7fffffff),
					       UINT64_C(0x80000000),
					       UINT64_C(0xabcdef12),
					       UINT64_C(0xffffffff),
					       UINT64_C(0x100000000),
					       UINT64_MAX};
	return places[i] < bytes ? places[i] : bytes - 1;
}

static void check_zero(const signed char *memory, uint64_t from, uint64_t to)
{
	bool zero = from >= to || (memory[from] == 0 &&
				   memcmp(memory + from, memory + from + 1, to - from - 1) == 0);
	CHECK_THAT(zero, "not all is zero from %llu to %llu", (unsigned long long)from,
		   (unsigned long long)to);
}

/* Where marks of a short message fall on one byte the last one counts. */
static void check_marks(const signed char *memory, uint64_t bytes)
{
	uint64_t from = 0;
	for (int i = 0; i < MARKS && bytes > 0; i++) {
		uint64_t at = mark_at(bytes, i);
		if (i + 1 < MARKS && mark_at(bytes, i + 1) == at)
			continue;
		CHECK_THAT(memory[at] == i + 1, "byte %llu is %d, not %d", (unsigned long long)at,
			   memory[at], i + 1);
		check_zero(memory, from, at);
		from = at + 1;
	}
	check_zero(memory, from, bytes);
}

/* Between plain buffers. */
void huge_messages(struct runner_rank *self)
{
	static const uint64_t sizes[] = {0, 1, UINT64_C(0x100000005)};
	struct ls_call_options patient = {.size = sizeof patient, .timeout_ms = 100000};
	ls_group *group = runner_open(self);
	/* A rank that is ahead does not know yet whether it can be read, and copies. */
	OK(ls_barrier(group, NULL));
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
		uint64_t bytes = sizes[s];
		signed char *memory = map(bytes, self->rank == 1);
		if (self->rank == 0) {
			for (int i = 0; i < MARKS && bytes > 0; i++)
				memory[mark_at(bytes, i)] = (signed char)(i + 1);
			OK(ls_send(group, memory, bytes, LS_INT8, 1, &patient));
		} else {
			memory[bytes] = GUARD;
			OK(ls_recv(group, memory, bytes, LS_INT8, 0, &patient));
			CHECK(memory[bytes] == GUARD);
			check_marks(memory, bytes);
		}
		munmap(memory, bytes + 1);
	}
	ls_group_close(group);
}
