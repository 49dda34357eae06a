/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a rank that its peers write: made here, and sealed so that nobody can shrink it
 * under the ranks that map it. Its pages are there before anybody touches them, so that no access
 * can end in SIGBUS: most from the beginning, those of inboxes and cells once they are opened. */
#include "transport/segment.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/own_fd.h"
#include "base/ranks.h"
#include "base/seqlock.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 has it; not all headers of the C library do */
#define MADV_POPULATE_WRITE 23
#endif

void transport_close_fds(int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Shared memory is not copied on fork, so a child must not see it. NULL on failure, with errno. */
static void *map_file(int fd, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (memory == MAP_FAILED)
		return NULL;
	/* A core file would make the system allocate all that nobody has touched. */
	(void)madvise(memory, bytes, MADV_DONTDUMP);
	if (madvise(memory, bytes, MADV_DONTFORK) != 0) {
		int error = errno;
		munmap(memory, bytes);
		errno = error;
		return NULL;
	}
	return memory;
}

static int allocate_pages(int fd, size_t at, size_t bytes)
{
	int rc;
	if (!own_fd_is_memory(fd)) {
		errno = EBADF;
		return -1;
	}
	do
		rc = fallocate(fd, 0, (off_t)at, (off_t)bytes);
	while (rc != 0 && errno == EINTR);
	return rc;
}

/* Allocates memory for area `index`, for a group of `members`. */
static int allocate_area(int fd, int size, unsigned index, int members, bool reports, bool populates)
{
	size_t area = transport_area_bytes(size), told = transport_area_reports_at(size);
	size_t at = transport_areas_at(size) + index * area;
	size_t bytes = populates ? offsetof(struct transport_area, cells)
				 : transport_area_reports_at(members);
	int rc = allocate_pages(fd, at, bytes);
	return rc != 0 || !reports ? rc : allocate_pages(fd, at + told, area - told);
}

/* Without MADV_POPULATE_WRITE all inboxes have their memory from the beginning. */
static void open_all(struct transport_area *area)
{
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_store(&area->inboxes[w], UINT64_MAX);
}

struct transport_segment *transport_mirror_create(const struct transport *transport, int rank)
{
	size_t at = transport_mirror_at(transport->size, rank);
	size_t bytes = transport_areas_at(0) + (transport->populates
							? offsetof(struct transport_area, payloads)
							: transport_mirror_area_bytes());
	struct transport_segment *mirror =
		(struct transport_segment *)((uintptr_t)transport->segment + at);
	if (at >= transport->file_bytes || allocate_pages(transport->segment_fd, at, bytes) != 0)
		return NULL;
	if (!transport->populates)
		open_all(transport_mirror_area(mirror, 0));
	return mirror;
}

struct transport_segment *transport_segment_create(uint64_t job, int rank, int size, bool mirrors,
						   bool populates, int *fd, const char **step)
{
	size_t bytes = transport_file_bytes(size, mirrors);
	char name[64];
	snprintf(name, sizeof name, "lockstep-segment:%016" PRIx64 ":%d", job, rank);
	*step = "memfd_create";
	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	struct transport_segment *segment = NULL;
	*step = FILE_LIMIT_NAME;
	int rc = file_limit_allows(bytes) ? 0 : -1;
	if (rc == 0) {
		*step = "ftruncate";
		rc = ftruncate(*fd, (off_t)bytes);
	}
	if (rc == 0) {
		*step = "fallocate";
		rc = allocate_pages(*fd, 0, transport_areas_at(size));
		if (rc == 0)
			rc = allocate_area(*fd, size, 0, size, rank == 0, populates);
	}
	if (rc == 0) {
		*step = "fcntl(F_ADD_SEALS)";
		if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
			*step = "mmap";
			segment = map_file(*fd, bytes);
		}
	}
	if (!segment) {
		int error = errno;
		transport_close_fds(fd, 1);
		errno = error;
	} else if (!populates) {
		open_all(transport_area_at(segment, size, 0));
	}
	return segment;
}

int transport_populate(void *from, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)from / page * page;
	uintptr_t end = ((uintptr_t)from + bytes + page - 1) / page * page;
	return madvise((void *)first, end - first, MADV_POPULATE_WRITE);
}

static bool can_populate(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	bool can = transport_populate(memory, page) == 0;
	munmap(memory, page);
	return can;
}

static ls_status init_transport(struct transport *transport, uint64_t job, int rank, int size,
				bool mirrors)
{
	*transport = (struct transport){.segment_fd = -1};
	if (size < 1 || size > RANKS_WORLD_MAX || rank < 0 || rank >= size) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_SIZE, rank, size, RANKS_WORLD_MAX);
		return LS_BAD_ARGUMENT;
	}
	size_t bytes = transport_file_bytes(size, mirrors);
	const char *step = "calloc";
	struct transport_peer *peers = calloc((size_t)size, sizeof *peers);
	int fd = -1;
	bool populates = can_populate();
	struct transport_segment *segment =
		peers ? transport_segment_create(job, rank, size, mirrors, populates, &fd, &step)
		      : NULL;
	if (!segment) {
		int error = errno;
		MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, rank, bytes, step, OPEN_LIMIT_TEXT(error));
		free(peers);
		return transport_errno_status(error);
	}
	for (int i = 0; i < size; i++) {
		peers[i].rank = i;
		peers[i].segment_fd = peers[i].trace_fd = -1;
		peers[i].edge_segment = WAIT_SEGMENT_MAPPED;
	}
	segment->header = (struct transport_header){
		.bytes = bytes,
		.job = job,
		.rank = rank,
		.size = size,
	};
	/* Last: a rank that sees the magic sees all the rest. */
	__atomic_store_n(&segment->header.magic, TRANSPORT_MAGIC, __ATOMIC_RELEASE);
	peers[rank].segment = segment;
	peers[rank].segment_bytes = bytes;
	peers[rank].segment_fd = fd;
	*transport = (struct transport){
		.rank = rank,
		.size = size,
		.job = job,
		.pid = getpid(),
		.segment_fd = fd,
		.file_bytes = bytes,
		.segment = segment,
		.peers = peers,
		.populates = populates,
	};
	transport_cma_init(transport);
	return LS_OK;
}

ls_status transport_init(struct transport *transport, uint64_t job, int rank, int size)
{
	return init_transport(transport, job, rank, size, false);
}

ls_status transport_init_mirrors(struct transport *transport, uint64_t job, int rank, int size)
{
	return init_transport(transport, job, rank, size, true);
}

void transport_hold(struct transport *transport)
{
	for (int distance = TRANSPORT_HELD + 1; distance < transport->size; distance++) {
		int rank = (transport->rank + transport->size - distance) % transport->size;
		transport_close_fds(&transport->peers[rank].segment_fd, 1);
		transport_close_fds(&transport->peers[rank].trace_fd, 1);
	}
}

void transport_fini(struct transport *transport)
{
	/* In a forked child these addresses may belong to something else by now. */
	bool mapped = transport->pid == getpid();
	if (mapped)
		transport_cma_fini(transport);
	for (int i = 0; transport->peers && i < transport->size; i++) {
		struct transport_peer *peer = &transport->peers[i];
		bool stays = transport->keeps_segment && i == transport->rank;
		if (mapped && peer->segment && !peer->mirror && !stays)
			munmap(peer->segment, peer->segment_bytes);
		if (mapped && peer->arena.base)
			memory_view_close(&peer->arena);
		own_fd_close(&peer->segment_fd, own_fd_is_memory);
		if (i != transport->rank)
			own_fd_close(&peer->trace_fd, own_fd_is_memory);
		free(peer->mirror);
	}
	free(transport->peers);
	*transport = (struct transport){.segment_fd = -1};
}

/* ---- areas ---- */

ls_status transport_area_grow(struct transport *transport, unsigned index, int members, bool reports)
{
	if (allocate_area(transport->segment_fd, transport->size, index, members, reports,
			  transport->populates) == 0) {
		if (!transport->populates)
			open_all(transport_area_at(transport->segment, transport->size, index));
		return LS_OK;
	}
	int error = errno;
	MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, transport->rank, transport_area_reports_at(members),
		    "fallocate", strerror(error));
	return transport_errno_status(error);
}

bool transport_inbox_open(const struct transport_team *team, int owner, int source)
{
	struct transport_area *area = transport_area_of(team, owner);
	struct transport_inbox *inbox = transport_inbox_of(team, owner, source);
	if (transport_inbox_is_open(area, source))
		return true;
	if (transport_populate(inbox, sizeof *inbox) != 0) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, team->members[owner].world, sizeof *inbox,
			    "madvise(MADV_POPULATE_WRITE)", strerror(errno));
		return false;
	}
	atomic_fetch_or(&area->inboxes[source / 64], ranks_bit(source));
	return true;
}

bool transport_cells_open(const struct transport_team *team)
{
	struct mail_cells *cells = &transport_area_of(team, team->rank)->cells;
	return !team->transport->populates || transport_populate(cells, sizeof *cells) == 0;
}

void transport_channel_reset(struct transport_channel *channel)
{
	if (atomic_load_explicit(&channel->posted, memory_order_relaxed) == 0)
		return; /* nobody has used it */
	for (int i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++)
		atomic_store_explicit(&channel->slots[i].state, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->posted, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->taken, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->refused, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->matched, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->begun, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->ended, 0, memory_order_relaxed);
}

/* Relaxed: the next members learn of the area by messages that this rank sends afterwards. */
void transport_area_reset(struct transport *transport, unsigned index, int members,
			  uint64_t collectives)
{
	struct transport_area *area = transport_area_at(transport->segment, transport->size, index);
	_Atomic uint64_t *words[] = {&area->finished, &area->completed_seq, &area->ended,
				     &area->history,  &area->members_ended, &area->mail_ended,
				     &area->claim,    &area->cause,         &area->looked_ns,
				     &area->reported};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		atomic_store_explicit(words[i], 0, memory_order_relaxed);
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_store_explicit(&area->stopped[w], 0, memory_order_relaxed);
	for (uint64_t seq = 1; seq <= collectives && seq <= TRANSPORT_ENTRIES; seq++)
		atomic_store_explicit(&area->entries[transport_entry_index(seq)].signal, 0,
				      memory_order_relaxed);
	for (int q = 0; q < members; q++) {
		if (!transport_inbox_is_open(area, q))
			continue;
		struct transport_channel *channel = &transport_inbox(area, q)->channel;
		transport_channel_reset(channel);
		for (int i = 0; i < TRANSPORT_CHANNEL_SLOTS && transport->hosts; i++)
			atomic_store_explicit(&channel->slots[i].freed, 0, memory_order_relaxed);
		transport_mail_reset(&transport_inbox(area, q)->mail);
	}
	for (int w = 0; w < RANKS_WORLD_WORDS && transport->populates; w++)
		atomic_store_explicit(&area->inboxes[w], 0, memory_order_relaxed);
}

/* ---- teams ---- */

ls_status transport_team_init(struct transport_team *team, struct transport *transport)
{
	*team = (struct transport_team){.transport = transport};
	team->channels = calloc((size_t)transport->size, sizeof *team->channels);
	if (!team->channels)
		return LS_OUT_OF_MEMORY;
	for (int i = 0; i < transport->size; i++)
		lock_peer_init(&team->channels[i].lock);
	return LS_OK;
}

void transport_team_fini(struct transport_team *team)
{
	for (int i = 0; team->channels && i < team->transport->size; i++)
		lock_peer_fini(&team->channels[i].lock);
	free(team->channels);
	*team = (struct transport_team){0};
}

/* `messages` keeps its content: each is written before it is read. */
static void clear_channel_state(struct transport_channel_state *state)
{
	lock_peer_acquire(&state->lock);
	memset(&state->cursor, 0, offsetof(struct transport_cursor, messages));
	lock_peer_release(&state->lock);
}

/* Numbers the hosts in the order of the members, so that each host has the same number on all
 * ranks. */
static void place_members(struct transport_team *team)
{
	memset(team->here, 0, sizeof team->here);
	team->first_here = -1;
	team->host_count = 0;
	for (int q = 0; q < team->size; q++) {
		const struct transport_peer *peer = team->members[q].peer;
		int first = 0;
		while (team->members[first].peer->host != peer->host)
			first++;
		team->hosts[q] = first < q ? team->hosts[first] : (uint16_t)team->host_count++;
		if (peer->mirror)
			continue;
		team->here[q / 64] |= ranks_bit(q);
		if (team->first_here < 0)
			team->first_here = q;
	}
}

void transport_team_set(struct transport_team *team, int rank, int size, const uint16_t *members,
			const uint16_t *areas)
{
	struct transport *transport = team->transport;
	team->rank = rank;
	team->size = size;
	for (int q = 0; q < size; q++) {
		struct transport_peer *peer = &transport->peers[members[q]];
		team->members[q] = (struct transport_member){
			.world = members[q],
			.peer = peer,
			.area = transport_peer_area(transport, peer, areas[q]),
			.topic = transport_topic(members[q], areas[q]),
		};
		clear_channel_state(&team->channels[q]);
	}
	place_members(team);
	atomic_store(&team->reads_me,
		     transport->no_cma ? TRANSPORT_READS_NO : TRANSPORT_READS_UNKNOWN);
}

void transport_team_set_world(struct transport_team *team)
{
	uint16_t members[RANKS_WORLD_MAX];
	uint16_t areas[RANKS_WORLD_MAX] = {0};
	for (int q = 0; q < team->transport->size; q++)
		members[q] = (uint16_t)q;
	transport_team_set(team, team->transport->rank, team->transport->size, members, areas);
}

/* ---- mapping ---- */

/* NULL if fd is what a segment has to be before a rank may touch it; else the reason. */
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

static const char *refuse_header(const struct transport *transport, int rank,
				 const struct transport_segment *segment)
{
	struct transport_header header;
	seqlock_load(&header, &segment->header, sizeof header);
	if (header.magic != TRANSPORT_MAGIC || header.bytes != transport->file_bytes)
		return "its segment is of another version";
	if (header.job != transport->job || header.rank != rank || header.size != transport->size)
		return "its segment belongs to another job or rank";
	return NULL;
}

static ls_status map_peer(const struct transport *transport, int rank, int fd,
			  struct transport_segment **out)
{
	size_t bytes = transport->file_bytes;
	struct transport_segment *segment = NULL;
	ls_status status = LS_UNTRUSTED_PEER;
	*out = NULL;
	const char *why = refuse_file(fd, bytes);
	if (!why) {
		segment = map_file(fd, bytes);
		if (!segment) {
			status = transport_errno_status(errno);
			why = strerror(errno);
		} else {
			why = refuse_header(transport, rank, segment);
		}
	}
	if (why) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_MAP, rank, why);
		if (segment)
			munmap(segment, bytes);
		return status;
	}
	*out = segment;
	return LS_OK;
}

ls_status transport_peer_open(struct transport *transport, int rank, int fds[TRANSPORT_FDS])
{
	struct transport_peer *peer = &transport->peers[rank];
	struct transport_segment *segment;
	ls_status status = map_peer(transport, rank, fds[TRANSPORT_FD_SEGMENT], &segment);
	if (status == LS_OK) {
		status = memory_view_open(&peer->arena, fds[TRANSPORT_FD_ARENA], rank);
		if (status != LS_OK)
			munmap(segment, transport->file_bytes);
	}
	if (status != LS_OK) {
		transport_close_fds(fds, TRANSPORT_FDS);
		return status;
	}
	peer->segment = segment;
	peer->segment_bytes = transport->file_bytes;
	peer->segment_fd = fds[TRANSPORT_FD_SEGMENT];
	peer->trace_fd = fds[TRANSPORT_FD_TRACE];
	fds[TRANSPORT_FD_SEGMENT] = fds[TRANSPORT_FD_TRACE] = -1;
	transport_close_fds(fds, TRANSPORT_FDS);
	return LS_OK;
}

ls_status transport_peer_open_own(struct transport *transport, int arena_fd, int trace_fd)
{
	struct transport_peer *peer = &transport->peers[transport->rank];
	peer->trace_fd = trace_fd;
	return memory_view_open(&peer->arena, arena_fd, transport->rank);
}

struct mail_ring *transport_mail(const struct transport_team *team, int owner, int source)
{
	return &transport_inbox_of(team, owner, source)->mail;
}
