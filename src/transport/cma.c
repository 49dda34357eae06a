/* SPDX-License-Identifier: BSD-3-Clause
 * Reading a peer's plain memory through the system (process_vm_readv), which works between
 * processes of one user unless a security module, a filter of system calls or a container refuses
 * the call. The ranks try it when they connect. A process number alone proves nothing: some time
 * after its owner has ended, the system gives it to another process. So every read also reads the
 * owner's word. */
#include "transport/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"

/* The word that rank `rank` has in its private memory. It differs between jobs and ranks, so that
 * the same program in another process does not have the same word at the same place. */
static uint64_t word_of(const struct transport *transport, int rank)
{
	return transport->job ^ UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(rank + 1);
}

/* ---- being read ---- */

void transport_cma_init(struct transport *transport)
{
	struct transport_cma *cma = &transport->segment->cma;
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	atomic_store(&cma->pid, (uint64_t)transport->pid);
	if (page == MAP_FAILED)
		return;
	/* A forked child has all other memory of its parent. Without the word it cannot pass for
	 * its parent. */
	if (madvise(page, bytes, MADV_DONTFORK) != 0) {
		munmap(page, bytes);
		return;
	}
	transport->word = page;
	*transport->word = word_of(transport, transport->rank);
	atomic_store(&cma->address, (uint64_t)(uintptr_t)transport->word);
}

void transport_cma_fini(struct transport *transport)
{
	if (transport->word)
		munmap(transport->word, (size_t)sysconf(_SC_PAGESIZE));
	transport->word = NULL;
}

void transport_allow_tracer(int launcher)
{
	/* PR_SET_PTRACER_ANY would open this process to all processes of the user, and the ranks
	 * need less. The system keeps one tracer and does not say which; so a tracer that the
	 * program has set itself is lost. Without Yama this is EINVAL, and no tracer is needed. */
	if (launcher > 0)
		(void)prctl(PR_SET_PTRACER, (unsigned long)launcher, 0, 0, 0);
}

/* ---- reading ---- */

/* Reads the bytes and then the word, in one call, which sees one process from beginning to end.
 * Returns how many bytes could be read, from byte `done` on. */
static ssize_t read_on(const struct transport_peer *mapped, uint64_t address, void *to,
		       uint64_t bytes, uint64_t done, uint64_t *word)
{
	uint64_t rest = done < bytes ? bytes - done : 0;
	struct iovec into[] = {{.iov_base = (char *)to + done, .iov_len = rest},
			       {.iov_base = word, .iov_len = sizeof *word}};
	struct iovec from[] = {
		{.iov_base = (void *)(uintptr_t)(address + done), .iov_len = rest},
		{.iov_base = (void *)(uintptr_t)mapped->word_address, .iov_len = sizeof *word}};
	return process_vm_readv(mapped->pid, into, 2, from, 2, 0);
}

/* 0, or the errno; ESRCH: it is not, or no longer, the peer's process. */
static int read_all(const struct transport *transport, int peer, uint64_t address, void *to,
		    uint64_t bytes)
{
	const struct transport_peer *mapped = &transport->peers[peer];
	uint64_t word = 0, done = 0;
	while (done < bytes || done - bytes < sizeof word) {
		ssize_t got = read_on(mapped, address, to, bytes, done, &word);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EFAULT && done >= bytes)
			return ESRCH;
		if (got <= 0)
			return got < 0 ? errno : EFAULT;
		done += (uint64_t)got;
	}
	return word == word_of(transport, peer) ? 0 : ESRCH;
}

ls_status transport_read(const struct transport_team *team, int member, uint64_t address, void *to,
			 uint64_t bytes)
{
	const struct transport *transport = team->transport;
	const struct transport_peer *mapped = team->members[member].peer;
	int peer = mapped->rank;
	if (bytes == 0)
		return LS_OK;
	int error = read_all(transport, peer, address, to, bytes);
	/* A filter of system calls may refuse the call for this rank's own memory, too. */
	if (error && error != EFAULT && peer == transport->rank) {
		memmove(to, (const void *)(uintptr_t)address, bytes);
		error = 0;
	}
	if (error == 0)
		return LS_OK;
	/* The memory is not there, because the peer is not. */
	if (error == EFAULT && read_all(transport, peer, 0, NULL, 0) == ESRCH)
		error = ESRCH;
	if (error == ESRCH)
		return LS_PEER_DIED;
	MESSAGE_SAY(MESSAGE_TRANSPORT_READ, (unsigned long long)bytes, (unsigned long long)address,
		    peer, mapped->pid, strerror(error));
	return transport_errno_status(error);
}

/* ---- which rank can read which ---- */

/* 0, or the errno. */
static int try_peer(struct transport *transport, int peer, bool allowed)
{
	struct transport_peer *mapped = &transport->peers[peer];
	struct transport_cma *cma = &mapped->segment->cma;
	mapped->pid = (int)atomic_load_explicit(&cma->pid, memory_order_relaxed);
	mapped->word_address = atomic_load_explicit(&cma->address, memory_order_relaxed);
	if (peer == transport->rank)
		return 0;
	return allowed ? read_all(transport, peer, 0, NULL, 0) : EPERM;
}

void transport_probe(struct transport *transport, bool allowed)
{
	struct transport_cma *mine = &transport->segment->cma;
	uint64_t readable[RANKS_WORLD_WORDS] = {0}, unwarned = 0;
	int refused = -1, why = 0, first = -1;
	for (int q = 0; q < transport->size; q++) {
		if (transport->peers[q].mirror)
			continue;
		first = first < 0 ? q : first;
		int error = try_peer(transport, q, allowed);
		if (error == 0) {
			readable[q / 64] |= ranks_bit(q);
		} else if (refused < 0) {
			refused = q;
			why = error;
		}
	}
	transport->no_cma = !allowed;
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		atomic_store_explicit(&mine->readable[w], readable[w], memory_order_relaxed);
	atomic_store_explicit(&mine->probed, 1, memory_order_release);
	if (allowed && refused >= 0 &&
	    atomic_compare_exchange_strong(&transport->peers[first].segment->cma.warned, &unwarned,
					   1))
		MESSAGE_SAY(MESSAGE_TRANSPORT_CMA, refused, strerror(why));
}

/* Tries the first and the last byte. If this process itself may not make the call, that says
 * nothing: its peers may, as they have tried. */
static bool can_be_read(const struct transport *transport, const unsigned char *buffer,
			uint64_t bytes)
{
	unsigned char got[2];
	struct iovec into = {.iov_base = got, .iov_len = sizeof got};
	struct iovec from[] = {
		{.iov_base = (void *)(uintptr_t)buffer, .iov_len = 1},
		{.iov_base = (void *)(uintptr_t)(buffer + bytes - 1), .iov_len = 1},
	};
	ssize_t done = process_vm_readv(transport->pid, &into, 1, from, 2, 0);
	return done == sizeof got || (done < 0 && errno != EFAULT);
}

/* A long buffer has a mapping of its own. So once the program has unmapped it, other memory may be
 * at its place. Another try takes a hundredth of the time of the read. */
enum { LONG_BUFFER_BYTES = 1 << 20 };

bool transport_reads_buffer(struct transport_team *team, const void *buffer, uint64_t bytes)
{
	struct transport *transport = team->transport;
	uint64_t key = ((uint64_t)(uintptr_t)buffer ^ bytes << 48) * UINT64_C(0x9e3779b97f4a7c15);
	_Atomic uint64_t *known = &transport->readable_buffers[key >> 59];
	if (bytes == 0 || !transport_reads_me(team))
		return false;
	key = (key ^ bytes) | 1;
	if (bytes < LONG_BUFFER_BYTES && atomic_load_explicit(known, memory_order_relaxed) == key)
		return true;
	if (!can_be_read(transport, buffer, bytes))
		return false;
	atomic_store_explicit(known, key, memory_order_relaxed);
	return true;
}

/* ---- whether to read ---- */

/* A payload that is not read is copied twice, from one processor's cache to the other's, and mostly
 * both ranks copy at the same time. See decision 037. */
bool transport_is_fast_read(uint64_t read, uint64_t copy)
{
	enum { COPIES = 3 };
	return read <= COPIES * copy;
}

/* The least of several times: other programs can only add to it. False: the system does not let
 * this process read its own memory, which says nothing about its peers. */
static bool time_read(int pid, char *from, char *to, size_t bytes, uint64_t *read, uint64_t *copy)
{
	enum { TRIES = 8 };
	struct iovec into = {.iov_base = to, .iov_len = bytes};
	struct iovec of = {.iov_base = from, .iov_len = bytes};
	*read = *copy = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t begin = clock_ticks();
		if (process_vm_readv(pid, &into, 1, &of, 1, 0) != (ssize_t)bytes)
			return false;
		uint64_t middle = clock_ticks();
		memcpy(to, from, bytes);
		__asm__ volatile("" ::: "memory"); /* the copy is made */
		uint64_t end = clock_ticks();
		*read = middle - begin < *read ? middle - begin : *read;
		*copy = end - middle < *copy ? end - middle : *copy;
	}
	return true;
}

bool transport_reads_fast(struct transport_team *team)
{
	enum { BYTES = 64 * 1024 };
	struct transport *transport = team->transport;
	uint32_t known = atomic_load_explicit(&transport->reads_fast, memory_order_relaxed);
	uint64_t read, copy;
	if (known != TRANSPORT_READS_UNKNOWN)
		return known == TRANSPORT_READS_YES;
	char *memory = malloc(2 * BYTES);
	if (!memory)
		return true;
	memset(memory, 1, 2 * BYTES); /* so that both have pages */
	bool slow = time_read(transport->pid, memory, memory + BYTES, BYTES, &read, &copy) &&
		    !transport_is_fast_read(read, copy);
	free(memory);
	known = slow ? TRANSPORT_READS_NO : TRANSPORT_READS_YES;
	atomic_store_explicit(&transport->reads_fast, known, memory_order_relaxed);
	return !slow;
}

bool transport_reads_me(struct transport_team *team)
{
	uint32_t known = atomic_load_explicit(&team->reads_me, memory_order_relaxed);
	if (known != TRANSPORT_READS_UNKNOWN)
		return known == TRANSPORT_READS_YES;
	known = TRANSPORT_READS_YES;
	for (int q = 0; q < team->size && known == TRANSPORT_READS_YES; q++) {
		if (!transport_is_here(team, q))
			continue; /* this member gets all as messages */
		const struct transport_cma *cma = &team->members[q].peer->segment->cma;
		if (!atomic_load_explicit(&cma->probed, memory_order_acquire))
			return false;
		int me = team->transport->rank;
		if (!(atomic_load_explicit(&cma->readable[me / 64], memory_order_relaxed) &
		      ranks_bit(me)))
			known = TRANSPORT_READS_NO;
	}
	atomic_store_explicit(&team->reads_me, known, memory_order_relaxed);
	return known == TRANSPORT_READS_YES;
}
