/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: one rank of several processes on the link. They exchange addresses, and agree on what
 * has happened, through memory that they share. Every wait is a loop that makes progress on the
 * link; a test that waits too long ends its process. */
#ifndef NET_RANK_FIXTURE_H
#define NET_RANK_FIXTURE_H

#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"

enum { RANK_MAX = 8, RANK_LIMIT_MS = 30000, RANK_KEPT = 8 };

#define MUST(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, \
				#condition);                                             \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

struct shared {
	struct net_address addresses[RANK_MAX];
	_Atomic uint32_t has_address[RANK_MAX], step[RANK_MAX];
	unsigned peers[RANK_MAX]; /* bit q: rank q is one; 0: all others are */
	bool late[RANK_MAX];      /* connects once rank 1 has come to step 2 */
	/* Called when the rank has opened its link, before it connects; NULL: nothing. */
	void (*opened)(int rank);
	_Atomic uint64_t at_ns; /* when something happened that is timed */
};

struct rank {
	struct link *link;
	struct shared *shared;
	int rank, size;
	unsigned peers;          /* bit q: rank q is one */
	uint64_t told[RANK_MAX]; /* notes and words of each peer; note i has the number i */
	int done, lost[RANK_MAX];
	int kept_count, kept_from[RANK_KEPT];
	struct link_message kept[RANK_KEPT];
	uint64_t deadline_ns;
};

static inline unsigned char rank_byte(int from, uint64_t number, uint64_t i)
{
	return (unsigned char)((uint64_t)from * 101 + number * 31 + i * 7 + i / 251);
}

static inline void rank_fill(unsigned char *out, int from, uint64_t number, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		out[i] = rank_byte(from, number, i);
}

static inline void rank_check(const unsigned char *in, int from, uint64_t number, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		MUST(in[i] == rank_byte(from, number, i));
}

static inline void rank_arrived(void *context, int peer, const struct link_message *message)
{
	struct rank *rank = context;
	MUST(message->note.words[0] == rank->told[peer]);
	if (message->handle) {
		MUST(rank->kept_count < RANK_KEPT);
		rank->kept_from[rank->kept_count] = peer;
		rank->kept[rank->kept_count++] = *message;
	} else if (message->bytes) {
		rank_check(message->payload, peer, rank->told[peer], message->bytes);
	}
	rank->told[peer]++;
}

static inline void rank_word(void *context, int peer, uint64_t index, uint64_t value)
{
	struct rank *rank = context;
	MUST(value == rank->told[peer] && index == ~value);
	rank->told[peer]++;
}

static inline void rank_done(void *context, struct link_transfer *transfer)
{
	(void)transfer;
	((struct rank *)context)->done++;
}

static inline void rank_lost(void *context, int peer)
{
	((struct rank *)context)->lost[peer]++;
}

/* ---- progress ---- */

static inline void rank_progress(struct rank *rank)
{
	if (!rank->link->ops->advance(rank->link))
		sched_yield();
	if (clock_now_ns() < rank->deadline_ns)
		return;
	fprintf(stderr, "rank %d of %d hangs:", rank->rank, rank->size);
	for (int q = 0; q < rank->size; q++)
		fprintf(stderr, " step %u, told %llu, lost %d;", atomic_load(&rank->shared->step[q]),
			(unsigned long long)rank->told[q], rank->lost[q]);
	fprintf(stderr, " %d transfers done\n", rank->done);
	_exit(1);
}

#define RANK_UNTIL(rank, condition)          \
	do {                                 \
		while (!(condition))         \
			rank_progress(rank); \
	} while (0)

static inline void rank_step(struct rank *rank, uint32_t step)
{
	atomic_store(&rank->shared->step[rank->rank], step);
}

/* Until all ranks have come here. A rank that leaves cuts its peers off, and without a flush what
 * it has sent last may be lost. */
static inline void rank_meet(struct rank *rank, uint32_t step)
{
	rank_step(rank, step);
	for (int q = 0; q < rank->size; q++)
		RANK_UNTIL(rank, atomic_load(&rank->shared->step[q]) >= step);
}

/* ---- life ---- */

static inline void rank_connect(struct rank *out, struct shared *shared, int rank, int size,
				const char *host, unsigned peers)
{
	const struct net_options options = {
		.rank = rank, .size = size, .job = 5, .epoch = 2, .host = host, .transports = "tcp"};
	bool done = false;
	*out = (struct rank){.shared = shared,
			     .rank = rank,
			     .size = size,
			     .peers = peers,
			     .deadline_ns = clock_deadline_ns(RANK_LIMIT_MS)};
	MUST(net_open(&options, &out->link) == LS_OK);
	out->link->events = (struct link_events){out, rank_arrived, rank_word, rank_done, rank_lost};
	net_address(out->link, &shared->addresses[rank]);
	if (shared->opened)
		shared->opened(rank);
	atomic_store(&shared->has_address[rank], 1);
	for (int q = 0; q < size; q++) {
		while (!atomic_load(&shared->has_address[q]))
			sched_yield();
		if (peers >> q & 1)
			MUST(net_set_address(out->link, q, &shared->addresses[q]) == LS_OK);
	}
	while (shared->late[rank] && atomic_load(&shared->step[1]) < 2)
		sched_yield();
	while (!done) {
		MUST(out->link->ops->connect(out->link, &done) == LS_OK);
		rank_progress(out);
	}
}

static inline void rank_open(struct rank *out, struct shared *shared, int rank, int size,
			     const char *host, unsigned peers)
{
	rank_connect(out, shared, rank, size, host, peers);
	rank_meet(out, 1);
}

static inline void rank_flush(struct rank *rank)
{
	for (int q = 0; q < rank->size; q++)
		if (rank->peers >> q & 1)
			RANK_UNTIL(rank, rank->link->ops->flush(rank->link, q));
}

static inline void rank_close(struct rank *rank)
{
	for (int q = 0; q < rank->size; q++)
		rank->link->ops->cut(rank->link, q);
	rank->link->ops->close(rank->link);
}

/* ---- traffic ---- */

static inline void rank_post(struct rank *rank, int to, uint64_t number, const void *payload,
			     uint64_t bytes, struct link_transfer *transfer)
{
	const struct link_note note = {.words = {number}};
	RANK_UNTIL(rank, rank->link->ops->post(rank->link, to, &note, payload, bytes, transfer));
	rank->link->ops->push(rank->link, to);
}

/* `count` short payloads of all lengths to each of some peers, a bit for each, and as many back.
 * They are numbered from `first`. */
static inline void rank_exchange(struct rank *rank, unsigned peers, uint64_t first, uint64_t count)
{
	unsigned char payload[LINK_SHORT_BYTES];
	for (uint64_t n = first; n < first + count; n++) {
		uint64_t bytes = n * 97 % (LINK_SHORT_BYTES + 1);
		rank_fill(payload, rank->rank, n, bytes);
		for (int q = 0; q < rank->size; q++)
			if (peers >> q & 1 && n % 3)
				rank_post(rank, q, n, payload, bytes, NULL);
			else if (peers >> q & 1)
				RANK_UNTIL(rank, rank->link->ops->store(rank->link, q, ~n, n));
		for (int q = 0; q < rank->size; q++)
			if (peers >> q & 1 && n % 5)
				rank->link->ops->push(rank->link, q);
	}
	for (int q = 0; q < rank->size; q++)
		if (peers >> q & 1)
			rank->link->ops->push(rank->link, q);
	for (int q = 0; q < rank->size; q++)
		RANK_UNTIL(rank, !(peers >> q & 1) || rank->told[q] >= first + count);
}

/* A long payload to every peer, with note `number`, and one from every peer. */
static inline void rank_exchange_long(struct rank *rank, uint64_t number, uint64_t bytes)
{
	struct link_transfer sent[RANK_MAX] = {{.status = LS_PENDING}};
	struct link_transfer fetched[RANK_MAX] = {{.status = LS_PENDING}};
	unsigned char *from = malloc(bytes), *to[RANK_MAX];
	int done = rank->done, peers = __builtin_popcount(rank->peers);
	MUST(from);
	rank_fill(from, rank->rank, number, bytes);
	for (int q = 0; q < rank->size; q++)
		if (rank->peers >> q & 1)
			rank_post(rank, q, number, from, bytes, &sent[q]);
	for (int i = 0; i < peers; i++) {
		RANK_UNTIL(rank, rank->kept_count > i);
		MUST((to[i] = malloc(bytes)));
		rank->link->ops->fetch(rank->link, rank->kept_from[i], &rank->kept[i], to[i],
				       &fetched[i]);
	}
	RANK_UNTIL(rank, rank->done == done + 2 * peers);
	for (int i = 0; i < peers; i++) {
		MUST(fetched[i].status == LS_OK);
		rank_check(to[i], rank->kept_from[i], number, bytes);
		free(to[i]);
	}
	for (int q = 0; q < rank->size; q++)
		MUST(!(rank->peers >> q & 1) || sent[q].status == LS_OK);
	rank->kept_count -= peers; /* a peer may have sent its next one */
	memmove(rank->kept, rank->kept + peers, (size_t)rank->kept_count * sizeof rank->kept[0]);
	memmove(rank->kept_from, rank->kept_from + peers,
		(size_t)rank->kept_count * sizeof rank->kept_from[0]);
	free(from);
}

/* Whether the socket of this process listens, as out says. */
static inline bool rank_listens(int fd, struct sockaddr_in *out)
{
	socklen_t bytes = sizeof *out, listens_bytes = sizeof(int);
	int listens = 0;
	*out = (struct sockaddr_in){.sin_family = AF_UNSPEC};
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) == 0 && listens &&
	       getsockname(fd, (struct sockaddr *)out, &bytes) == 0 && out->sin_family == AF_INET;
}

/* Sockets of this process to networks. None has the kernel look whether its peer lives. UCX also
 * asks the kernel for routes, through others. */
static inline int rank_sockets(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;
	MUST(folder);
	for (struct dirent *entry; (entry = readdir(folder));) {
		struct sockaddr_storage name = {.ss_family = AF_UNSPEC};
		socklen_t bytes = sizeof name;
		int fd = (int)strtol(entry->d_name, NULL, 10);
		if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 ||
		    (name.ss_family != AF_INET && name.ss_family != AF_INET6))
			continue;
		int kept_alive = 0;
		bytes = sizeof kept_alive;
		MUST(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kept_alive, &bytes) == 0);
		MUST(!kept_alive);
		count++;
	}
	closedir(folder);
	return count;
}

#endif
