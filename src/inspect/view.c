/* SPDX-License-Identifier: BSD-3-Clause
 * Maps the memory of a job's ranks. Other processes wrote all of it, so every number is checked
 * before it is used. */
#include "inspect/inspect.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct inspect_view *inspect_view_new(uint64_t job, int size)
{
	struct inspect_view *view = calloc(1, sizeof *view);

	if (!view)
		return NULL;
	view->job = job;
	view->size = size;
	for (int i = 0; i < INSPECT_RANK_MAX; i++)
		view->ranks[i].trace_fd = view->ranks[i].segment_fd = -1;
	return view;
}

static void release_held(struct inspect_held *held)
{
	trace_unmap(&held->trace);
	if (held->segment)
		munmap((void *)(uintptr_t)held->segment, held->segment_bytes);
	if (held->trace_fd >= 0)
		close(held->trace_fd);
	if (held->segment_fd >= 0)
		close(held->segment_fd);
}

void inspect_view_free(struct inspect_view *view)
{
	if (!view)
		return;
	for (int i = 0; i < INSPECT_RANK_MAX; i++)
		release_held(&view->ranks[i]);
	free(view);
}

bool inspect_view_add_trace(struct inspect_view *view, int rank, int fd)
{
	const char *why;
	struct trace_view trace;
	struct stat status;

	if (rank < 0 || rank >= view->size || view->ranks[rank].trace.header ||
	    fstat(fd, &status) != 0 || !trace_map(fd, &trace, &why))
		return false;
	view->ranks[rank].trace = trace;
	view->ranks[rank].trace_fd = fd;
	view->ranks[rank].trace_inode = status.st_ino;
	return true;
}

/* A file that could shrink would end its reader with SIGBUS. */
static const struct transport_segment *map_segment(int fd, int size, size_t *bytes)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) != 0 ||
	    status.st_size < (off_t)transport_segment_bytes(size))
		return NULL;
	*bytes = (size_t)status.st_size;
	void *memory = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

bool inspect_view_add_segment(struct inspect_view *view, int rank, int fd)
{
	size_t bytes;

	if (rank < 0 || rank >= view->size || view->ranks[rank].segment)
		return false;
	const struct transport_segment *segment = map_segment(fd, view->size, &bytes);
	if (!segment)
		return false;
	const struct transport_header *header = &segment->header;
	if (__atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) != TRANSPORT_MAGIC ||
	    header->job != view->job || header->rank != rank || header->size != view->size) {
		munmap((void *)(uintptr_t)segment, bytes);
		return false;
	}
	view->ranks[rank].segment = segment;
	view->ranks[rank].segment_bytes = bytes;
	view->ranks[rank].segment_fd = fd;
	return true;
}

bool inspect_view_has_segments(const struct inspect_view *view)
{
	for (int i = 0; i < view->size; i++)
		if (!view->ranks[i].segment)
			return false;
	return true;
}
