/* SPDX-License-Identifier: BSD-3-Clause
 * Looks at this process's own mappings: by a question for one address (PROCMAP_QUERY), or through
 * the list in /proc/self/maps. Either answer holds for a moment only: a thread that unmaps memory
 * meanwhile may make it wrong. */
#include "memory/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* struct procmap_query of <linux/fs.h>, which older headers lack. */
struct query {
	uint64_t size, flags, address; /* flags 0: the mapping that covers `address` */
	uint64_t begin, end, rights, page_bytes, offset, inode;
	uint32_t major, minor;
	uint32_t name_bytes, build_id_bytes;
	uint64_t name, build_id;
};

enum {
	RIGHT_READ = 1,
	RIGHT_WRITE = 2,
	RIGHT_SHARED = 8,
	LINE_BYTES = 128, /* all but the name of a file */
	READ_BYTES = 4096,
};
#define QUERY _IOWR('f', 17, struct query)

/* One mapping. */
struct piece {
	uint64_t begin, end, rights, offset, device, inode;
};

/* How many bytes from `at` on the piece shows to be the file's; 0: none of them. */
static uint64_t covered_by(const struct piece *piece, uint64_t at, uint64_t base,
			   const struct memory_maps_file *file)
{
	uint64_t wanted = RIGHT_SHARED | (file->writable ? RIGHT_READ | RIGHT_WRITE : 0);
	bool right = at >= piece->begin && at < piece->end && (piece->rights & wanted) == wanted &&
		     piece->device == file->device && piece->inode == file->inode &&
		     piece->offset + (at - piece->begin) == file->offset + (at - base);
	return right ? piece->end - at : 0;
}

static bool query_piece(int maps, uint64_t at, struct piece *out)
{
	struct query query = {.size = sizeof query, .address = at};
	if (ioctl(maps, QUERY, &query) != 0)
		return false;
	*out = (struct piece){query.begin,
			      query.end,
			      query.rights,
			      query.offset,
			      makedev(query.major, query.minor),
			      query.inode};
	return true;
}

int memory_maps_open(void)
{
	struct piece unused;
	int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (maps < 0 || query_piece(maps, (uintptr_t)&unused, &unused))
		return maps;
	close(maps);
	return -1;
}

/* ---- the list ---- */

static bool parse_line(const char *line, struct piece *out)
{
	char rights[5];
	unsigned major_number, minor_number;
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &out->begin,
		   &out->end, rights, &out->offset, &major_number, &minor_number, &out->inode) != 7)
		return false;
	out->rights = (rights[0] == 'r' ? RIGHT_READ : 0) | (rights[1] == 'w' ? RIGHT_WRITE : 0) |
		      (rights[3] == 's' ? RIGHT_SHARED : 0);
	out->device = makedev(major_number, minor_number);
	return true;
}

/* The list, line by line. Of a line only the beginning is kept. */
struct list {
	int fd;
	ssize_t next, filled;
	char text[READ_BYTES], line[LINE_BYTES];
};

static bool next_line(struct list *list)
{
	size_t length = 0;
	for (;;) {
		if (list->next == list->filled) {
			list->next = 0;
			do
				list->filled = read(list->fd, list->text, sizeof list->text);
			while (list->filled < 0 && errno == EINTR);
			if (list->filled <= 0)
				return false;
		}
		char c = list->text[list->next++];
		if (c == '\n')
			break;
		if (length < sizeof list->line - 1)
			list->line[length++] = c;
	}
	list->line[length] = '\0';
	return true;
}

/* Lines are sorted, so one pass finds a mapping that is in several pieces. */
static bool is_listed(uint64_t base, uint64_t bytes, const struct memory_maps_file *file)
{
	struct list list = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
	struct piece piece;
	uint64_t at = base;
	if (list.fd < 0)
		return false;
	while (at - base < bytes && next_line(&list))
		if (parse_line(list.line, &piece))
			at += covered_by(&piece, at, base, file);
	close(list.fd);
	return at - base >= bytes;
}

bool memory_maps_show(int maps, const void *address, size_t bytes,
		      const struct memory_maps_file *file)
{
	uint64_t base = (uintptr_t)address, at = base, covered = 1;
	struct piece piece;
	if (maps < 0)
		return is_listed(base, bytes, file);
	while (at - base < bytes && covered > 0) {
		covered = query_piece(maps, at, &piece) ? covered_by(&piece, at, base, file) : 0;
		at += covered;
	}
	return covered > 0;
}
