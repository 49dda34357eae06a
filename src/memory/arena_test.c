/* SPDX-License-Identifier: BSD-3-Clause
 * What other ranks see of an arena: views, their bounds, and how it takes memory away from them
 * while they still write. A second mapping of the file in this process stands for a peer. */
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/wait.h"
#include "memory/arena.h"
#include "memory/memory.h"

enum { MIB = 1 << 20, PAGE = 4096 };

static void open_both(struct memory *memory, struct memory_view *peer)
{
	assert_int_equal(memory_init(memory, 16 * MIB, 0xabc, 3), LS_OK);
	assert_int_equal(memory_view_open(peer, memory->fd, 1), LS_OK);
	assert_int_equal(memory->page_bytes, PAGE);
}

static void close_both(struct memory *memory, struct memory_view *peer)
{
	assert_true(memory_is_valid(memory));
	memory_view_close(peer);
	assert_null(peer->base);
	memory_view_close(peer);
	memory_fini(memory);
}

static unsigned char *alloc(struct memory *memory, struct memory_view *peer, size_t bytes,
			    unsigned char **seen_by_peer)
{
	void *block = NULL;
	uint64_t offset;
	assert_int_equal(memory_alloc(memory, bytes, &block), LS_OK);
	assert_true(memory_offset(memory, block, bytes, &offset));
	*seen_by_peer = memory_view_at(peer, offset, bytes);
	assert_non_null(*seen_by_peer);
	return block;
}

static bool is_filled(const unsigned char *bytes, size_t count, unsigned char value)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

static void peer_sees_what_is_written(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	unsigned char *there, *here = alloc(&memory, &peer, 100000, &there);
	assert_ptr_not_equal(here, there);
	memset(here, 5, 100000);
	assert_true(is_filled(there, 100000, 5));
	memset(there, 6, 100000);
	assert_true(is_filled(here, 100000, 6));
	close_both(&memory, &peer);
}

static void views_have_bounds(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	assert_int_equal(peer.bytes, 16 * MIB);
	assert_ptr_equal(memory_view_at(&peer, 0, 0), peer.base);
	assert_ptr_equal(memory_view_at(&peer, 0, peer.bytes), peer.base);
	assert_ptr_equal(memory_view_at(&peer, peer.bytes - 8, 8), peer.base + peer.bytes - 8);
	assert_non_null(memory_view_at(&peer, peer.bytes, 0));
	assert_null(memory_view_at(&peer, peer.bytes, 1));
	assert_null(memory_view_at(&peer, peer.bytes - 8, 9));
	assert_null(memory_view_at(&peer, peer.bytes + 1, 0));
	assert_null(memory_view_at(&peer, 8, UINT64_MAX));
	assert_null(memory_view_at(&peer, UINT64_MAX, 8));
	assert_null(memory_view_at(&peer, UINT64_MAX - 7, 8));
	close_both(&memory, &peer);
}

/* A view grows with what is asked of it; what was handed out before stays, and is the same
 * memory. */
static void views_grow(void **state)
{
	(void)state;
	const uint64_t gib = UINT64_C(1) << 30,
		       places[] = {7, gib / 4 - 4, gib / 4 + 8, gib, 40 * gib};
	enum { PLACES = sizeof places / sizeof *places };
	struct memory memory;
	struct memory_view peer;
	unsigned char *seen[PLACES];
	assert_int_equal(memory_init(&memory, 64 * gib, 1, 0), LS_OK);
	assert_int_equal(memory_view_open(&peer, memory.fd, 1), LS_OK);
	assert_true(atomic_load(&peer.mapped) <= gib / 4);
	for (int i = 0; i < PLACES; i++) {
		seen[i] = memory_view_at(&peer, places[i], 8);
		assert_non_null(seen[i]);
		memset(seen[i], 1 + i, 8);
	}
	assert_int_equal(atomic_load(&peer.mapped), 64 * gib);
	for (int i = 0; i < PLACES; i++) {
		assert_true(is_filled(seen[i], 8, (unsigned char)(1 + i)));
		assert_true(is_filled(memory.base + places[i], 8, (unsigned char)(1 + i)));
		assert_ptr_equal(memory_view_at(&peer, places[i], 8),
				 atomic_load(&peer.base) + places[i]);
	}
	assert_null(memory_view_at(&peer, 64 * gib, 1));
	memory_view_close(&peer);
	memory_fini(&memory);
}

/* Those of a sanitizer among them. */
static size_t addresses_in_use(void)
{
	size_t pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%zu", &pages), 1);
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Where the system gives no more addresses the view stays as it is. */
static void views_that_cannot_grow(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	struct rlimit before, limit;
	const size_t bytes = (size_t)64 << 30;
	assert_int_equal(memory_init(&memory, bytes, 1, 0), LS_OK);
	assert_int_equal(memory_view_open(&peer, memory.fd, 1), LS_OK);
	unsigned char *first = memory_view_at(&peer, 0, 8);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	limit = before;
	limit.rlim_cur = addresses_in_use() + bytes / 4;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_null(memory_view_at(&peer, bytes - 8, 8));
	assert_ptr_equal(memory_view_at(&peer, 0, 8), first);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_non_null(memory_view_at(&peer, bytes - 8, 8));
	memory_view_close(&peer);
	memory_fini(&memory);
}

static void file_is_named_sealed_and_sparse(void **state)
{
	(void)state;
	struct memory memory;
	assert_int_equal(memory_init(&memory, (size_t)1 << 36, 0xabc, 3), LS_OK);
	char path[64], name[64] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", memory.fd);
	assert_true(readlink(path, name, sizeof name - 1) > 0);
	assert_string_equal(name, "/memfd:lockstep-arena:0000000000000abc:3 (deleted)");
	assert_int_not_equal(ftruncate(memory.fd, 4096), 0);
	assert_int_not_equal(ftruncate(memory.fd, (off_t)memory.bytes + 4096), 0);
	assert_true(fcntl(memory.fd, F_GETFD) & FD_CLOEXEC);
	struct stat stat;
	assert_int_equal(fstat(memory.fd, &stat), 0);
	assert_int_equal(stat.st_blocks, 0);
	void *block;
	assert_int_equal(memory_alloc(&memory, 3 * MIB, &block), LS_OK);
	assert_int_equal(fstat(memory.fd, &stat), 0);
	assert_true(stat.st_blocks * 512 >= 3 * MIB && stat.st_blocks * 512 <= 4 * MIB);
	assert_true(memory_is_valid(&memory));
	memory_fini(&memory);
}

static void others_files_are_refused(void **state)
{
	(void)state;
	struct memory_view view;
	assert_int_equal(memory_view_open(&view, -1, 0), LS_UNTRUSTED_PEER);
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(memory_view_open(&view, fd, 0), LS_UNTRUSTED_PEER); /* could be shrunk */
	assert_null(view.base);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(memory_view_open(&view, fd, 0), LS_OK);
	assert_int_equal(view.bytes, 8192);
	memory_view_close(&view);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(memory_view_open(&view, fd, 0), LS_SYSTEM);
	assert_null(view.base);
	close(fd);
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(memory_view_open(&view, fd, 0), LS_UNTRUSTED_PEER); /* empty */
	close(fd);
}

static void errors_of_the_system_come_back(void **state)
{
	(void)state;
	struct memory memory;
	assert_int_equal(memory_init(&memory, (size_t)1 << 62, 1, 1), LS_OUT_OF_MEMORY);
	assert_null(memory.base);
	assert_int_equal(memory_init(&memory, 100, 1, 1), LS_SYSTEM); /* less than a page */
	struct rlimit old, none;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ls_status status = memory_init(&memory, MIB, 1, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(status, LS_OUT_OF_MEMORY);
	/* The pages of a block cannot be had: an error and no SIGBUS, and the arena stays whole. */
	assert_int_equal(memory_init(&memory, 16 * MIB, 1, 1), LS_OK);
	void *block, *kept;
	assert_int_equal(memory_alloc(&memory, MIB, &kept), LS_OK);
	int real = memory.fd;
	memory.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_int_equal(memory_alloc(&memory, MIB, &block), LS_OUT_OF_MEMORY);
	assert_null(block);
	memset(kept, 1, MIB);
	assert_int_not_equal(memory_revoke(&memory, kept, MIB), LS_OK);
	assert_true(is_filled(kept, MIB, 1));
	close(memory.fd);
	memory.fd = real;
	assert_true(memory_is_valid(&memory));
	memory_fini(&memory);
}

static void revoked_memory_is_the_owners_alone(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	unsigned char *there, *here = alloc(&memory, &peer, 10 * PAGE, &there);
	uint64_t offset;
	memset(here, 1, 10 * PAGE);
	/* From the middle of page 2 to the middle of page 5. */
	unsigned char *from = here + 2 * PAGE + 100;
	assert_int_equal(memory_revoke(&memory, from, 3 * PAGE), LS_OK);
	assert_true(memory_is_valid(&memory));
	assert_true(is_filled(here, 10 * PAGE, 1));
	memset(there, 2, 10 * PAGE); /* a late store */
	assert_true(is_filled(here, 2 * PAGE, 2));
	assert_true(is_filled(here + 2 * PAGE, 4 * PAGE, 1));
	assert_true(is_filled(here + 6 * PAGE, 4 * PAGE, 2));
	memset(here, 3, 10 * PAGE);
	assert_true(is_filled(there, 2 * PAGE, 3));
	assert_true(is_filled(there + 2 * PAGE, 4 * PAGE, 2));

	assert_false(memory_offset(&memory, from, 8, &offset));
	assert_false(memory_offset(&memory, here, 10 * PAGE, &offset));
	assert_true(memory_offset(&memory, here, 2 * PAGE, &offset));
	assert_false(memory_offset(&memory, here, 2 * PAGE + 1, &offset));
	assert_true(memory_offset(&memory, here + 6 * PAGE, 4 * PAGE, &offset));

	/* Again, and more of it: what was private keeps its content. */
	memset(there, 4, 10 * PAGE);
	assert_int_equal(memory_revoke(&memory, here, 10 * PAGE), LS_OK);
	memset(there, 5, 10 * PAGE);
	assert_true(is_filled(here, 2 * PAGE, 4));
	assert_true(is_filled(here + 2 * PAGE, 4 * PAGE, 3));
	assert_true(is_filled(here + 6 * PAGE, 4 * PAGE, 4));

	struct memory_stats stats;
	memory_stats(&memory, &stats);
	assert_int_equal(stats.live, 0);
	assert_int_equal(stats.revoked, 10 * PAGE);
	assert_int_equal(memory_free(&memory, here, NULL), LS_OK);
	assert_int_equal(memory_free(&memory, here, NULL), LS_BAD_ARGUMENT);
	unsigned char *next_there, *next = alloc(&memory, &peer, 10 * PAGE, &next_there);
	assert_ptr_not_equal(next, here);
	close_both(&memory, &peer);
}

static void neighbours_are_left_alone(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	unsigned char *there[3], *here[3];
	for (int i = 0; i < 3; i++) {
		here[i] = alloc(&memory, &peer, 100, &there[i]);
		memset(here[i], i, 100);
	}
	assert_int_equal(memory_revoke(&memory, here[1] + 50, 50), LS_OK);
	for (int i = 0; i < 3; i++) {
		uint64_t offset;
		memset(there[i], 9, 100);
		assert_int_equal(memory_offset(&memory, here[i], 100, &offset), i != 1);
		assert_true(is_filled(here[i], 100, i == 1 ? 1 : 9));
	}
	close_both(&memory, &peer);
}

static void only_memory_in_use_is_revoked(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	unsigned char *there, *here = alloc(&memory, &peer, PAGE, &there);
	unsigned char *freed = alloc(&memory, &peer, PAGE, &there);
	int on_stack;
	assert_int_equal(memory_free(&memory, freed, NULL), LS_OK);
	assert_int_equal(memory_revoke(&memory, &on_stack, 4), LS_BAD_ARGUMENT);
	assert_int_equal(memory_revoke(&memory, freed, 4), LS_BAD_ARGUMENT);
	assert_int_equal(memory_revoke(&memory, here, 2 * PAGE), LS_BAD_ARGUMENT);
	assert_int_equal(memory_revoke(&memory, here, SIZE_MAX), LS_BAD_ARGUMENT);
	assert_int_equal(memory_revoke(&memory, here, 0), LS_OK);
	struct memory_stats stats;
	memory_stats(&memory, &stats);
	assert_int_equal(stats.revoked, 0);
	close_both(&memory, &peer);
}

/* ---- revoking beside writers ---- */

struct writer {
	_Atomic uint64_t *words;
	size_t count, stride;
	_Atomic bool stop;
	uint64_t rounds;
	pthread_t id;
};

static void *write_on(void *context)
{
	struct writer *writer = context;
	while (!atomic_load(&writer->stop)) {
		writer->rounds++;
		for (size_t i = 0; i < writer->count; i += writer->stride)
			atomic_store_explicit(&writer->words[i], writer->rounds,
					      memory_order_relaxed);
	}
	return NULL;
}

/* A peer stores to the first word of each page while the owner's other thread stores to the last
 * one: none of the owner's stores may be lost, and none of the peer's may arrive afterwards. */
static void revoke_beside_writers(void **state)
{
	(void)state;
	enum { PAGES = 64, WORDS = PAGE / 8 };
	struct memory memory;
	struct memory_view peer;
	open_both(&memory, &peer);
	for (int repeat = 0; repeat < 20; repeat++) {
		unsigned char *there, *here = alloc(&memory, &peer, PAGES * PAGE, &there);
		struct writer late = {.words = (_Atomic uint64_t *)(void *)there,
				      .count = PAGES * WORDS,
				      .stride = WORDS};
		struct writer own = {.words = (_Atomic uint64_t *)(void *)here + WORDS - 1,
				     .count = (PAGES - 1) * WORDS + 1,
				     .stride = WORDS};
		assert_int_equal(pthread_create(&late.id, NULL, write_on, &late), 0);
		assert_int_equal(pthread_create(&own.id, NULL, write_on, &own), 0);
		ls_status status = memory_revoke(&memory, here, PAGES * PAGE);
		uint64_t seen[PAGES], again[PAGES];
		_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)here;
		for (int i = 0; i < PAGES; i++)
			seen[i] = atomic_load(&words[i * WORDS]);
		atomic_store(&own.stop, true);
		wait_join(own.id);
		atomic_store(&late.stop, true);
		wait_join(late.id);
		assert_int_equal(status, LS_OK);
		for (int i = 0; i < PAGES; i++) {
			again[i] = atomic_load(&words[i * WORDS]);
			assert_int_equal(atomic_load(&words[i * WORDS + WORDS - 1]), own.rounds);
		}
		assert_memory_equal(seen, again, sizeof seen);
		assert_int_equal(memory_free(&memory, here, NULL), LS_OK);
	}
	close_both(&memory, &peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer_sees_what_is_written),
		cmocka_unit_test(views_have_bounds),
		cmocka_unit_test(views_grow),
		cmocka_unit_test(views_that_cannot_grow),
		cmocka_unit_test(file_is_named_sealed_and_sparse),
		cmocka_unit_test(others_files_are_refused),
		cmocka_unit_test(errors_of_the_system_come_back),
		cmocka_unit_test(revoked_memory_is_the_owners_alone),
		cmocka_unit_test(neighbours_are_left_alone),
		cmocka_unit_test(only_memory_in_use_is_revoked),
		cmocka_unit_test(revoke_beside_writers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
