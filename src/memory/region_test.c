/* SPDX-License-Identifier: BSD-3-Clause
 * Regions: what may be registered, where its buffers lie, and what a peer may claim of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/capture.h"
#include "memory/memory.h"

enum { PAGES = 260 }; /* more than MEMORY_LONG_LOOK_BYTES, also without the first two */

/* A file of PAGES pages, mapped from its page `first` on. */
struct file {
	size_t page, bytes;
	int fd;
	unsigned char *base;
};

static struct file make_file(size_t first)
{
	struct file file = {.page = (size_t)sysconf(_SC_PAGESIZE)};
	file.bytes = (PAGES - first) * file.page;
	file.fd = memfd_create("region", MFD_CLOEXEC);
	assert_true(file.fd >= 0);
	assert_int_equal(ftruncate(file.fd, (off_t)(PAGES * file.page)), 0);
	file.base = mmap(NULL, file.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd,
			 (off_t)(first * file.page));
	assert_true(file.base != MAP_FAILED);
	return file;
}

static void drop_file(struct file *file)
{
	munmap(file->base, file->bytes);
	close(file->fd);
}

static void wrong_ranges_are_refused(void **state)
{
	(void)state;
	struct file file = make_file(1);
	size_t page = file.page;
	struct memory_region_name name;
	int read_only = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), pipes[2];
	unsigned char *private =
		mmap(NULL, file.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, (off_t)page);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_true(read_only >= 0 && private != MAP_FAILED);
	const struct {
		void *address;
		size_t bytes;
		int fd;
		uint64_t offset;
		const char *why;
	} cases[] = {
		{file.base, file.bytes, -1, page, "no open descriptor"},
		{file.base, page, pipes[0], 0, "not shared memory"},
		{file.base, page, read_only, 0, "reading and writing"},
		{file.base + 8, page, file.fd, page, "page size"},
		{file.base, page, file.fd, page + 8, "page size"},
		{file.base, file.bytes + 1, file.fd, page, "the file ends"},
		{file.base, 2, file.fd, UINT64_MAX - page + 1, "the file ends"},
		{file.base, page, file.fd, 0, "not a shared mapping"},           /* another part */
		{file.base + page, page, file.fd, page, "not a shared mapping"}, /* another part */
		{private, page, file.fd, page, "not a shared mapping"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct capture capture;
		capture_begin(&capture);
		assert_int_equal(memory_region_check(cases[i].address, cases[i].bytes, cases[i].fd,
						     cases[i].offset, &name),
				 LS_BAD_ARGUMENT);
		assert_non_null(strstr(capture_end(&capture), cases[i].why));
	}
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, page, &name), LS_OK);
	/* In two pieces with other rights between them it is not all there. */
	assert_int_equal(mprotect(file.base + page, page, PROT_READ), 0);
	struct capture capture;
	capture_begin(&capture);
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, page, &name),
			 LS_BAD_ARGUMENT);
	capture_end(&capture);
	assert_int_equal(memory_region_check(file.base, page, file.fd, page, &name), LS_OK);
	munmap(private, file.bytes);
	close(read_only);
	close(pipes[0]);
	close(pipes[1]);
	drop_file(&file);
}

static void buffers_are_found_and_seen(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view view;
	struct memory_region_name name;
	struct file file = make_file(2);
	uint64_t offset;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	assert_int_equal(memory_view_open(&view, memory.fd, 0), LS_OK);
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, 2 * file.page, &name),
			 LS_OK);
	struct memory_region *region = memory_region_add(&memory, file.base, &name);
	assert_non_null(region);
	assert_false(memory_offset(&memory, file.base, 1, &offset)); /* peers do not know it yet */
	assert_null(memory_region_find(&memory, file.base, &name));
	assert_int_equal(memory_view_add(&view, 0, &region->name), LS_OK);
	memory_region_show(region, NULL);
	assert_ptr_equal(memory_region_find(&memory, file.base, &name), region);

	assert_true(memory_offset(&memory, file.base + 100, file.bytes - 100, &offset));
	unsigned char *seen = memory_view_at(&view, offset, file.bytes - 100);
	assert_non_null(seen);
	assert_true(seen != file.base + 100);
	file.base[100] = 42;
	assert_int_equal(seen[0], 42);
	assert_null(memory_view_at(&view, offset, file.bytes - 99));
	assert_null(memory_view_at(&view, offset - 101, 1));
	assert_null(memory_view_at(&view, UINT64_MAX, 2));
	assert_false(memory_offset(&memory, file.base + 100, file.bytes - 99, &offset));
	assert_false(memory_offset(&memory, file.base - 1, 1, &offset));

	/* It is not the arena's to take away. */
	struct capture capture;
	capture_begin(&capture);
	assert_int_equal(memory_revoke(&memory, file.base, 10), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture_end(&capture), "shared with others"));

	assert_true(memory_region_remove(&memory, file.base));
	assert_false(memory_region_remove(&memory, file.base));
	assert_false(memory_offset(&memory, file.base, 1, &offset));
	memory_view_close(&view);
	memory_fini(&memory);
	drop_file(&file);
}

/* A region of a part of the ranks is as much the program's as one of all. */
static void a_region_of_some_is_not_revoked(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_region_name name;
	struct file file = make_file(1);
	struct ranks some = ranks_of(1), both = ranks_below(2);
	struct capture capture;
	uint64_t offset;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, file.page, &name),
			 LS_OK);
	struct memory_region *region = memory_region_add(&memory, file.base, &name);
	assert_non_null(region);
	memory_region_show(region, &some);
	assert_true(memory_offset_for(&memory, file.base, 10, &some, &offset));
	assert_false(memory_offset_for(&memory, file.base, 10, &both, &offset));
	capture_begin(&capture);
	assert_int_equal(memory_revoke(&memory, file.base, 10), LS_BAD_ARGUMENT);
	assert_non_null(strstr(capture_end(&capture), "shared with others"));
	memory_fini(&memory);
	drop_file(&file);
}

static void places_run_out_and_never_overlap(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_region_name name;
	struct file file = make_file(0);
	uint64_t end = 0, count, bytes;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, 0, &name), LS_OK);
	for (int i = 0; i < MEMORY_REGIONS; i++) {
		assert_int_equal(memory_regions_left(&memory), MEMORY_REGIONS - i);
		struct memory_region *region = memory_region_add(&memory, file.base, &name);
		assert_non_null(region);
		assert_true(region->name.offset > end && region->name.offset > memory.bytes);
		end = region->name.offset + region->name.bytes;
		memory_region_show(region, NULL);
		memory_regions(&memory, &count, &bytes);
		assert_int_equal(count, 1);
		assert_int_equal(bytes, file.bytes);
		assert_true(memory_region_remove(&memory, file.base));
	}
	assert_int_equal(memory_regions_left(&memory), 0);
	struct capture capture;
	capture_begin(&capture);
	assert_null(memory_region_add(&memory, file.base, &name));
	assert_non_null(strstr(capture_end(&capture), "64 ranges"));
	memory_fini(&memory);
	drop_file(&file);
}

/* A file that a peer names is checked when it is opened; a file that is no region is not mapped. */
static void what_a_peer_names_is_checked(void **state)
{
	(void)state;
	struct memory memory;
	struct memory_view view;
	struct memory_region_name good;
	struct file file = make_file(0);
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	assert_int_equal(memory_view_open(&view, memory.fd, 0), LS_OK);
	assert_int_equal(memory_region_check(file.base, file.bytes, file.fd, 0, &good), LS_OK);
	good.offset = memory.bytes + file.page;
	struct memory_region_name bad[8];
	for (size_t i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].inode++;
	bad[1].device++;
	bad[2].bytes++;
	bad[3].bytes = 0;
	bad[4].file_offset = UINT64_MAX;
	bad[5].offset = memory.bytes - 1; /* would lie in the arena */
	bad[6].offset = UINT64_MAX;
	bad[7].fd = 99999;
	for (size_t i = 0; i < 8; i++) {
		struct capture capture;
		capture_begin(&capture);
		assert_true(memory_view_add(&view, 3, &bad[i]) != LS_OK);
		assert_non_null(strstr(capture_end(&capture), "rank 3"));
		assert_int_equal(view.region_count, 0);
	}
	assert_int_equal(memory_view_add(&view, 3, &good), LS_OK);
	memory_view_close(&view);
	memory_fini(&memory);
	drop_file(&file);
}

/* ---- mappings that the program takes away without a word ---- */

static void map_over(void *address, size_t bytes, int flags, int fd, size_t offset)
{
	assert_ptr_equal(
		mmap(address, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, (off_t)offset),
		address);
}

static void unmap(struct file *file)
{
	assert_int_equal(munmap(file->base, file->bytes), 0);
}

static void map_nothing_over_it(struct file *file)
{
	map_over(file->base, file->bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void map_another_file(struct file *file)
{
	struct file other = make_file(0);
	map_over(file->base, file->bytes, MAP_SHARED, other.fd, file->page);
	drop_file(&other);
}

static void map_a_copy(struct file *file)
{
	map_over(file->base, file->bytes, MAP_PRIVATE, file->fd, file->page);
}

static void map_another_part(struct file *file)
{
	map_over(file->base, file->bytes, MAP_SHARED, file->fd, 0);
}

static void replace_a_page(struct file *file)
{
	map_over(file->base + 5 * file->page, file->page, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void replace_the_last_page(struct file *file)
{
	map_over(file->base + file->bytes - file->page, file->page, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
}

static void move(struct file *file)
{
	struct file other = make_file(1);
	assert_ptr_equal(mremap(file->base, file->bytes, file->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
				other.base),
			 other.base);
	drop_file(&other);
}

static void map_it_again(struct file *file)
{
	unmap(file);
	map_over(file->base, file->bytes, MAP_SHARED, file->fd, file->page);
}

static void split(struct file *file)
{
	assert_int_equal(mprotect(file->base + 3 * file->page, file->page, PROT_READ), 0);
	assert_int_equal(madvise(file->base + 9 * file->page, file->page, MADV_DONTFORK), 0);
}

static const struct {
	void (*change)(struct file *file);
	size_t unused_pages; /* at the end of the buffer that is used afterwards */
	bool there;
} changes[] = {
	{unmap, 0, false},
	{map_nothing_over_it, 0, false},
	{map_another_file, 0, false},
	{map_a_copy, 0, false},
	{map_another_part, 0, false},
	{replace_a_page, 0, false},
	{replace_the_last_page, 0, false},
	{replace_the_last_page, 1, true},
	{move, 0, false},
	{map_it_again, 0, true},
	{split, 0, true},
};

static struct memory_region *add_region(struct memory *memory, const struct file *file,
					size_t offset)
{
	struct memory_region_name name;
	assert_int_equal(memory_region_check(file->base, file->bytes, file->fd, offset, &name),
			 LS_OK);
	struct memory_region *region = memory_region_add(memory, file->base, &name);
	assert_non_null(region);
	memory_region_show(region, NULL);
	return region;
}

/* listed: as on a system that gives no answer but the whole list. */
static void change_and_look(size_t i, bool listed)
{
	struct memory memory;
	struct file file = make_file(1);
	struct capture capture;
	uint64_t offset, count, bytes;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	add_region(&memory, &file, file.page);
	if (listed && memory.maps >= 0) {
		close(memory.maps);
		memory.maps = -1;
	}
	size_t used = file.bytes - changes[i].unused_pages * file.page;
	assert_true(memory_offset(&memory, file.base, used, &offset));
	changes[i].change(&file);
	capture_begin(&capture);
	assert_int_equal(memory_offset(&memory, file.base, used, &offset), changes[i].there);
	assert_int_equal(memory_offset(&memory, file.base, used, &offset), changes[i].there);
	const char *said = strstr(capture_end(&capture), "no longer mapped");
	assert_int_equal(said == NULL, changes[i].there);
	assert_true(!said || !strstr(said + 1, "no longer mapped")); /* once */
	memory_regions(&memory, &count, &bytes);
	assert_int_equal(count, changes[i].there);
	memory_fini(&memory);
	drop_file(&file);
}

static void a_region_ends_with_its_mapping(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		change_and_look(i, false);
		change_and_look(i, true);
	}
}

static void short_buffers_are_plain_where_a_look_is_long(void **state)
{
	(void)state;
	struct memory memory;
	struct file file = make_file(1);
	uint64_t offset, count, bytes;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	add_region(&memory, &file, file.page);
	if (memory.maps >= 0)
		close(memory.maps);
	memory.maps = -1;
	assert_false(memory_offset(&memory, file.base, MEMORY_LONG_LOOK_BYTES - 1, &offset));
	assert_true(memory_offset(&memory, file.base, MEMORY_LONG_LOOK_BYTES, &offset));
	memory_regions(&memory, &count, &bytes);
	assert_int_equal(count, 1);
	memory_fini(&memory);
	drop_file(&file);
}

/* The new one is found, whether a look has ended the old one or not, and no trace of either is
 * left. */
static void a_new_region_lies_where_one_was(void **state)
{
	(void)state;
	struct memory memory;
	struct file file = make_file(0), other = make_file(0);
	struct capture capture;
	uint64_t offset, count, bytes;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	uint64_t first = add_region(&memory, &file, 0)->name.offset;
	map_over(file.base, file.bytes, MAP_SHARED, other.fd, 0);
	int fd = file.fd;
	file.fd = other.fd;
	uint64_t second = add_region(&memory, &file, 0)->name.offset;
	file.fd = fd;
	capture_begin(&capture);
	assert_true(memory_offset(&memory, file.base + 8, 8, &offset));
	capture_end(&capture);
	assert_true(offset == second + 8 && second != first);
	memory_regions(&memory, &count, &bytes);
	assert_int_equal(count, 1);

	map_over(file.base, file.bytes, MAP_SHARED, file.fd, 0);
	add_region(&memory, &file, 0);
	assert_true(memory_region_remove(&memory, file.base));
	memory_regions(&memory, &count, &bytes);
	assert_int_equal(count, 0);
	memory_fini(&memory);
	drop_file(&file);
	drop_file(&other);
}

/* Peers never reach it, and it is none of what ls_register counts. */
static void memory_of_a_device_is_found_and_not_shown(void **state)
{
	(void)state;
	static unsigned char device[4096]; /* not touched */
	struct memory memory;
	struct driver *driver = (struct driver *)(void *)&memory; /* not looked at */
	uint64_t offset, count, bytes;
	assert_int_equal(memory_init(&memory, 1 << 20, 7, 0), LS_OK);
	assert_false(memory_inspects_buffers(&memory));
	struct memory_region *region =
		memory_region_add_device(&memory, device, sizeof device, driver);
	assert_true(memory_inspects_buffers(&memory) && region->driver == driver);
	assert_ptr_equal(memory_region_hold(&memory, device, sizeof device), region);
	assert_ptr_equal(memory_region_hold(&memory, device + 4095, 1), region);
	assert_null(memory_region_hold(&memory, device + 4095, 2));
	assert_null(memory_region_hold(&memory, device + 4096, 0));
	struct buffer buffer = buffer_host(device, 8), other = buffer_host(&memory, 8);
	struct ranks first = ranks_of(0), nobody = {{0}};
	assert_true(memory_region_any_device(&memory, &buffer, &other));
	assert_true(memory_region_any_device(&memory, &other, &buffer));
	assert_false(memory_region_any_device(&memory, &other, &other));
	buffer.bytes = 0;
	assert_false(memory_region_any_device(&memory, &buffer, &buffer));
	assert_false(memory_offset_for(&memory, device, 8, &first, &offset));
	assert_false(memory_offset_for(&memory, device, 8, &nobody, &offset));
	struct ranks peers = memory_region_peers(region);
	assert_false(ranks_any(&peers));
	memory_regions(&memory, &count, &bytes);
	assert_true(count == 0 && bytes == 0);
	memory_region_release(region);
	assert_false(memory_region_remove(&memory, device)); /* one still holds it */
	assert_ptr_equal(memory_region_hold(&memory, device, 8), region);
	memory_region_release(region);
	memory_region_release(region);
	memory_region_release(NULL);
	assert_true(memory_region_remove(&memory, device));
	assert_null(memory_region_hold(&memory, device, 8));
	assert_false(memory_region_remove(&memory, device));
	memory_fini(&memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_ranges_are_refused),
		cmocka_unit_test(buffers_are_found_and_seen),
		cmocka_unit_test(a_region_of_some_is_not_revoked),
		cmocka_unit_test(places_run_out_and_never_overlap),
		cmocka_unit_test(what_a_peer_names_is_checked),
		cmocka_unit_test(a_region_ends_with_its_mapping),
		cmocka_unit_test(short_buffers_are_plain_where_a_look_is_long),
		cmocka_unit_test(a_new_region_lies_where_one_was),
		cmocka_unit_test(memory_of_a_device_is_found_and_not_shown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
