/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a rank that its peers write: made here, sealed so that nobody can shrink it under
 * those who map it, and with all pages there from the beginning, so that no access can end in
 * SIGBUS. */
#include "segment.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/seqlock.h"

static size_t segment_bytes(int size)
{
	return sizeof(struct transport_segment) +
	       TRANSPORT_LANES * (size_t)size * sizeof(struct transport_channel);
}

void transport_close_fds(int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Shared memory is not copied on fork, so a child must not see it. NULL on failure, with errno. */
static void *map(int fd, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return NULL;
	if (madvise(memory, bytes, MADV_DONTFORK) != 0) {
		int error = errno;
		munmap(memory, bytes);
		errno = error;
		return NULL;
	}
	return memory;
}

static int allocate(int fd, size_t bytes)
{
	int rc;
	do
		rc = fallocate(fd, 0, 0, (off_t)bytes);
	while (rc != 0 && errno == EINTR);
	return rc;
}

/* NULL on failure, with errno, and *step names the call. */
static struct transport_segment *create(uint64_t job, int rank, size_t bytes, int *fd,
					const char **step)
{
	char name[64];
	snprintf(name, sizeof(name), "lockstep-segment:%016" PRIx64 ":%d", job, rank);
	*step = "memfd_create";
	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	struct transport_segment *segment = NULL;
	*step = "fallocate";
	if (allocate(*fd, bytes) == 0) {
		*step = "fcntl(F_ADD_SEALS)";
		if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
			*step = "mmap";
			segment = map(*fd, bytes);
		}
	}
	if (!segment) {
		int error = errno;
		transport_close_fds(fd, 1);
		errno = error;
	}
	return segment;
}

ls_status transport_init(struct transport *transport, uint64_t job, int rank, int size)
{
	*transport = (struct transport){.segment_fd = -1};
	if (size < 1 || size > TRANSPORT_SIZE_MAX || rank < 0 || rank >= size) {
		MESSAGE_SAY(MESSAGE_LINK_SIZE, rank, size, TRANSPORT_SIZE_MAX);
		return LS_BAD_ARGUMENT;
	}
	size_t bytes = segment_bytes(size);
	const char *step = "calloc";
	struct transport_link *links = calloc((size_t)size, sizeof(*links));
	int fd = -1;
	struct transport_segment *segment = links ? create(job, rank, bytes, &fd, &step) : NULL;
	if (!segment) {
		int error = errno;
		MESSAGE_SAY(MESSAGE_LINK_SEGMENT, rank, bytes, step, transport_errno_text(error));
		free(links);
		return transport_errno_status(error);
	}
	for (int i = 0; i < size; i++) {
		links[i].peer = i;
		links[i].segment_fd = links[i].trace_fd = -1;
		lock_link_init(&links[i].lock);
	}
	segment->head = (struct transport_head){
		.magic = TRANSPORT_MAGIC,
		.bytes = bytes,
		.job = job,
		.rank = rank,
		.size = size,
	};
	links[rank].segment = segment;
	links[rank].segment_bytes = bytes;
	links[rank].segment_fd = fd;
	*transport = (struct transport){
		.rank = rank,
		.size = size,
		.job = job,
		.pid = getpid(),
		.segment_fd = fd,
		.segment = segment,
		.links = links,
	};
	transport_remote_init(transport);
	return LS_OK;
}

void transport_fini(struct transport *transport)
{
	/* In a forked child these addresses may belong to something else by now. */
	bool mapped = transport->pid == getpid();
	if (mapped)
		transport_remote_fini(transport);
	for (int i = 0; transport->links && i < transport->size; i++) {
		struct transport_link *link = &transport->links[i];
		if (mapped && link->segment)
			munmap(link->segment, link->segment_bytes);
		if (mapped && link->arena.base)
			memory_view_close(&link->arena);
		transport_close_fds(&link->segment_fd, 1);
		if (i != transport->rank)
			transport_close_fds(&link->trace_fd, 1);
		lock_link_fini(&link->lock);
	}
	free(transport->links);
	*transport = (struct transport){.segment_fd = -1};
}

/* NULL if fd is what a segment of rank `rank` has to be before it can be touched; else the
 * reason. */
static const char *refuse_file(int fd, size_t bytes)
{
	struct stat stat;
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
		return "its segment is not a file in memory";
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "its segment is not sealed, so it could shrink under the reader";
	if (stat.st_size < 0 || (uint64_t)stat.st_size != bytes)
		return "its segment has another size: other version, or other number of ranks";
	return NULL;
}

static const char *refuse_head(const struct transport *transport, int rank,
			       const struct transport_segment *segment)
{
	struct transport_head head;
	seqlock_load(&head, &segment->head, sizeof(head));
	if (head.magic != TRANSPORT_MAGIC || head.bytes != segment_bytes(transport->size))
		return "its segment is none of this version";
	if (head.job != transport->job || head.rank != rank || head.size != transport->size)
		return "its segment belongs to another job or rank";
	return NULL;
}

static ls_status map_peer(const struct transport *transport, int rank, int fd,
			  struct transport_segment **out)
{
	size_t bytes = segment_bytes(transport->size);
	struct transport_segment *segment = NULL;
	ls_status status = LS_STRANGER;
	*out = NULL;
	const char *why = refuse_file(fd, bytes);
	if (!why) {
		segment = map(fd, bytes);
		if (!segment) {
			status = transport_errno_status(errno);
			why = transport_errno_text(errno);
		} else {
			why = refuse_head(transport, rank, segment);
		}
	}
	if (why) {
		MESSAGE_SAY(MESSAGE_LINK_MAP, rank, why);
		if (segment)
			munmap(segment, bytes);
		return status;
	}
	*out = segment;
	return LS_OK;
}

ls_status transport_link_open(struct transport *transport, int rank, int fds[TRANSPORT_FDS])
{
	struct transport_link *link = &transport->links[rank];
	struct transport_segment *segment;
	ls_status status = map_peer(transport, rank, fds[TRANSPORT_FD_SEGMENT], &segment);
	if (status == LS_OK) {
		status = memory_view_open(&link->arena, fds[TRANSPORT_FD_ARENA], rank);
		if (status != LS_OK)
			munmap(segment, segment_bytes(transport->size));
	}
	if (status != LS_OK) {
		transport_close_fds(fds, TRANSPORT_FDS);
		return status;
	}
	link->segment = segment;
	link->segment_bytes = segment_bytes(transport->size);
	link->segment_fd = fds[TRANSPORT_FD_SEGMENT];
	link->trace_fd = fds[TRANSPORT_FD_TRACE];
	fds[TRANSPORT_FD_SEGMENT] = fds[TRANSPORT_FD_TRACE] = -1;
	transport_close_fds(fds, TRANSPORT_FDS);
	return LS_OK;
}

ls_status transport_link_open_own(struct transport *transport, int arena_fd, int trace_fd)
{
	struct transport_link *link = &transport->links[transport->rank];
	link->trace_fd = trace_fd;
	return memory_view_open(&link->arena, arena_fd, transport->rank);
}
