/* SPDX-License-Identifier: BSD-3-Clause
 * net_bench [ROUND_TRIPS]: microseconds one way of a note of 8 bytes between two processes over the
 * loop-back device, when both poll, and when both sleep until the link wakes them. What UCX itself
 * needs: UCX_TLS=tcp UCX_NET_DEVICES=lo ucx_perftest -t ucp_am_lat -s 8, on the same processors. */
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "net/rank_fixture.h"

enum { ROUND_TRIPS = 50000, WARM_UP = 5000 };

static void pin(int rank)
{
	cpu_set_t allowed, one;
	int left = rank;
	CPU_ZERO(&one);
	MUST(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
	left %= CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && left-- == 0)
			CPU_SET(cpu, &one);
	MUST(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void arrived(void *context, int peer, const struct link_message *message)
{
	(void)message;
	((struct rank *)context)->told[peer]++;
}

static void await(struct rank *rank, int peer, uint64_t count, bool sleeps)
{
	struct link *link = rank->link;
	while (rank->told[peer] < count) {
		struct pollfd door = {.events = POLLIN};
		if (!link->ops->advance(link) && sleeps && link->ops->arm(link, &door.fd))
			MUST(poll(&door, 1, 10000) == 1);
	}
}

/* Seconds of `count` round trips. */
static double bounce(struct rank *rank, uint64_t count, bool sleeps)
{
	const struct link_note note = {.words = {1}};
	int peer = !rank->rank;
	const uint64_t payload = 1, before = rank->told[peer];
	uint64_t start_ns = clock_now_ns();
	for (uint64_t i = 1; i <= count; i++) {
		if (rank->rank == 1)
			await(rank, peer, before + i, sleeps);
		MUST(rank->link->ops->post(rank->link, peer, &note, &payload, sizeof payload, NULL));
		rank->link->ops->push(rank->link, peer);
		if (rank->rank == 0)
			await(rank, peer, before + i, sleeps);
	}
	return (double)(clock_now_ns() - start_ns) / 1e9;
}

static void run(struct shared *shared, int rank, uint64_t count)
{
	struct rank self;
	pin(rank);
	rank_open(&self, shared, rank, 2, "127.0.0.1", 1U << !rank);
	self.link->events.arrived = arrived;
	for (int sleeps = 0; sleeps <= 1; sleeps++) {
		bounce(&self, WARM_UP, sleeps);
		double seconds = bounce(&self, count, sleeps);
		if (rank == 0)
			printf("8 bytes one way, %s: %.2f us\n", sleeps ? "asleep" : "polling",
			       seconds / (double)count / 2 * 1e6);
	}
	rank_meet(&self, 2);
	rank_close(&self);
}

int main(int count, char **words)
{
	uint64_t round_trips = count > 1 ? strtoull(words[1], NULL, 10) : ROUND_TRIPS;
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	MUST(shared != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	pid_t child = fork();
	MUST(child >= 0);
	run(shared, child == 0, round_trips);
	if (child == 0)
		return 0;
	MUST(waitpid(child, &status, 0) == child);
	return status != 0;
}
