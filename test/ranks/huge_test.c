/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of more bytes than 32 bits can count. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ---- in little memory ---- */

enum { PIECE_BYTES = 16 << 20 };
#define TWO_GIGABYTES (UINT64_C(1) << 31)

/* The same memory again and again. */
static signed char *map_pieces(uint64_t count)
{
	int fd = memfd_create("piece", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, PIECE_BYTES) == 0);
	signed char *all = mmap(NULL, count * PIECE_BYTES, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(all != MAP_FAILED);
	for (uint64_t i = 0; i < count; i++)
		CHECK(mmap(all + i * PIECE_BYTES, PIECE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	close(fd);
	return all;
}

/* Of as many bytes as no signed number of 32 bits can count. What came last is seen at the target:
 * the five bytes from 2 GiB on in front, and behind them the rest of the piece before. */
void a_message_of_two_gigabytes(struct runner_rank *self)
{
	enum { MORE = 5 };
	const uint64_t count = TWO_GIGABYTES / PIECE_BYTES + 1, bytes = TWO_GIGABYTES + MORE;
	struct ls_call_options patient = {.size = sizeof patient, .timeout_ms = RUNNER_TIMEOUT_MS};
	ls_group *group = runner_open(self);
	signed char *memory = map_pieces(count);
	OK(ls_barrier(group, NULL)); /* as above */
	if (self->rank == 0) {
		memset(memory, 1, PIECE_BYTES);
		CHECK(mmap(memory + TWO_GIGABYTES, PIECE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
		memset(memory + TWO_GIGABYTES, 2, MORE);
		OK(ls_send(group, memory, bytes, LS_INT8, 1, &patient));
	} else {
		OK(ls_recv(group, memory, bytes, LS_INT8, 0, &patient));
		for (int i = 0; i < PIECE_BYTES; i++)
			CHECK_THAT(memory[i] == (i < MORE ? 2 : 1), "byte %d is %d", i, memory[i]);
	}
	munmap(memory, count * PIECE_BYTES);
	ls_group_close(group);
}
