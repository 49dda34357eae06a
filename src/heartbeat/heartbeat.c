/* SPDX-License-Identifier: BSD-3-Clause
 * The thread that sends and receives heartbeats. Only one rank of a host does so: the agent, which
 * holds a lease in the host's shared memory. If the agent does not renew the lease, because it has
 * ended, is stopped or late, another rank takes over. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/own_fd.h"
#include "base/seqlock.h"
#include "heartbeat/heartbeat_private.h"

enum {
	LEASE_MS = 300,
	IDLE_MS = 100,         /* how often a rank that is no agent looks at the lease */
	RECEIVE_MAX = 4000,    /* beats in a row, then one is sent */
	PRIORITY = 6,          /* of packets in the queues of this host: before bulk data */
	QUEUE_BYTES = 1 << 20, /* of packets that have come */
	FAREWELLS = 3,         /* beats that say that a host leaves; each may be lost */
	LEASE_RANK_BITS = 16,
};
_Static_assert(RANKS_WORLD_MAX < 1 << LEASE_RANK_BITS, "1 + a rank in the lease");

/* ---- addresses ---- */

static socklen_t address_bytes(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static bool make_address(const char *ip, uint16_t port, struct sockaddr_storage *out)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, ip, &four.sin_addr) == 1)
		memcpy(out, &four, sizeof four);
	else if (inet_pton(AF_INET6, ip, &six.sin6_addr) == 1)
		memcpy(out, &six, sizeof six);
	else
		return false;
	return true;
}

static ls_status fail_socket(const char *ip, const char *what)
{
	MESSAGE_SAY(MESSAGE_HOST_SOCKET, ip, what, OPEN_LIMIT_TEXT(errno));
	return LS_SYSTEM;
}

/* Both options help, and neither is needed. */
static void tune_socket(int fd)
{
	int priority = PRIORITY, bytes = QUEUE_BYTES;
	(void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

ls_status heartbeat_open(struct world *world, const char *ip, uint16_t *port)
{
	struct heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
	struct sockaddr_storage address;
	socklen_t length = sizeof address;
	*port = 0;
	if (!heartbeat) {
		MESSAGE_SAY(MESSAGE_NET_MEMORY, world->size);
		return LS_OUT_OF_MEMORY;
	}
	heartbeat->world = world;
	world->heartbeat = heartbeat;
	heartbeat->socket = -1;
	heartbeat->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (heartbeat->event_fd < 0)
		return fail_socket(ip, "eventfd");
	errno = EINVAL;
	if (!make_address(ip, 0, &address))
		return fail_socket(ip, "inet_pton");
	heartbeat->socket = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (heartbeat->socket < 0)
		return fail_socket(ip, "socket");
	tune_socket(heartbeat->socket);
	if (bind(heartbeat->socket, (const struct sockaddr *)&address, address_bytes(&address)) != 0)
		return fail_socket(ip, "bind");
	if (getsockname(heartbeat->socket, (struct sockaddr *)&address, &length) != 0)
		return fail_socket(ip, "getsockname");
	*port = address.ss_family == AF_INET6
			? ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port)
			: ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
	return LS_OK;
}

void heartbeat_close(struct world *world)
{
	struct heartbeat *heartbeat = world->heartbeat;
	if (!heartbeat)
		return;
	if (heartbeat->socket >= 0)
		close(heartbeat->socket);
	own_fd_close(&heartbeat->event_fd, own_fd_is_event);
	free(heartbeat);
	world->heartbeat = NULL;
}

/* ---- the lease ---- */

static uint64_t lease_of(uint64_t before, int rank)
{
	return ((before >> LEASE_RANK_BITS) + 1) << LEASE_RANK_BITS | (uint64_t)(rank + 1);
}

/* Packets that have waited here since another agent read its own socket are old. */
static void empty_socket(const struct heartbeat *heartbeat)
{
	char byte;
	for (int i = 0; i < RECEIVE_MAX && recv(heartbeat->socket, &byte, 1, 0) >= 0; i++)
		continue;
}

static void begin_agent(struct heartbeat *heartbeat, uint64_t lease)
{
	struct detector_past past[DETECTOR_HOSTS_MAX];
	for (int h = 0; h < heartbeat->hosts; h++) {
		struct transport_remote_host *host = &heartbeat->shared->hosts[h];
		past[h] = (struct detector_past){.generation = atomic_load(&host->generation),
						 .number = atomic_load(&host->number),
						 .broken = atomic_load(&host->broken),
						 .silent = atomic_load(&host->silent),
						 .unheard_ns = atomic_load(&host->unheard_ns),
						 .listened_ns = atomic_load(&host->listened_ns)};
	}
	struct detector_options options = {.host = heartbeat->host,
					   .hosts = heartbeat->hosts,
					   .agent = heartbeat->world->rank,
					   .job = heartbeat->job,
					   .generation = lease >> LEASE_RANK_BITS,
					   .session = heartbeat->has_session ? &heartbeat->session
									     : NULL,
					   .past = past};
	if (lease >> LEASE_RANK_BITS > 1)
		empty_socket(heartbeat);
	detector_init(&heartbeat->detector, &options, clock_now_ns());
	heartbeat->lease = lease;
}

/* Whether this rank is the agent now. */
static bool hold_lease(struct heartbeat *heartbeat, uint64_t now_ns)
{
	struct transport_agent *shared = heartbeat->shared;
	uint64_t lease = atomic_load(&shared->lease);
	uint64_t renewed_ns = atomic_load(&shared->renewed_ns);
	if (heartbeat->lease && lease == heartbeat->lease) {
		atomic_store(&shared->renewed_ns, now_ns);
		return true;
	}
	heartbeat->lease = 0;
	/* The lowest rank of the host is the first agent, if it comes. */
	if (!lease && !heartbeat->is_lowest &&
	    now_ns - heartbeat->start_ns < LEASE_MS * UINT64_C(1000000))
		return false;
	if (renewed_ns + LEASE_MS * UINT64_C(1000000) > now_ns)
		return false;
	uint64_t mine = lease_of(lease, heartbeat->world->rank);
	if (!atomic_compare_exchange_strong(&shared->lease, &lease, mine))
		return false;
	atomic_store(&shared->renewed_ns, now_ns);
	begin_agent(heartbeat, mine);
	return true;
}

/* ---- beats ---- */

/* A beat that cannot be sent counts as one that is lost. */
static void send_to(const struct heartbeat *heartbeat, int rank, const struct detector_beat *beat)
{
	const struct sockaddr_storage *address = &heartbeat->addresses[rank];
	(void)sendto(heartbeat->socket, beat, sizeof *beat, MSG_DONTWAIT | MSG_NOSIGNAL,
		     (const struct sockaddr *)address, address_bytes(address));
}

/* Sends a beat to the agent of each other host; if the agent is not known, to all ranks there. */
static void send_beat(const struct heartbeat *heartbeat, const struct detector_beat *beat)
{
	for (int q = 0; q < heartbeat->world->size; q++) {
		int host = heartbeat->host_of[q];
		if (host == heartbeat->host)
			continue;
		int agent = detector_agent(&heartbeat->detector, host);
		bool is_known = agent >= 0 && agent < heartbeat->world->size &&
				heartbeat->host_of[agent] == host;
		if (!is_known || agent == q || beat->leaves)
			send_to(heartbeat, q, beat);
	}
}

static void receive_beats(struct heartbeat *heartbeat)
{
	struct {
		struct detector_beat beat;
		char more; /* so that a longer packet is seen to be one */
	} packet;
	for (int i = 0; i < RECEIVE_MAX; i++) {
		ssize_t got = recv(heartbeat->socket, &packet, sizeof packet, MSG_DONTWAIT);
		if (got < 0)
			return;
		(void)detector_receive(&heartbeat->detector, &packet, (size_t)got, clock_now_ns());
	}
}

/* Forgets hosts whose ranks have all ended, or closed the world group, as connections show. */
static void forget_gone(struct heartbeat *heartbeat)
{
	for (int h = 0; h < heartbeat->hosts; h++)
		if (h != heartbeat->host && heartbeat_has_ended(heartbeat, h))
			detector_forget(&heartbeat->detector, h);
}

static void publish_clock(const struct heartbeat *heartbeat, int h)
{
	struct transport_remote_host *host = &heartbeat->shared->hosts[h];
	struct detector_clock clock;
	if (!detector_clock(&heartbeat->detector, h, &clock))
		return;
	struct transport_remote_clock out = {clock.offset_ns, clock.error_ns, clock.at_ns};
	seqlock_begin(&host->clock_epoch);
	seqlock_store(&host->clock, &out, sizeof out);
	seqlock_end(&host->clock_epoch);
}

static void publish_past(struct heartbeat *heartbeat)
{
	for (int h = 0; h < heartbeat->hosts; h++) {
		struct transport_remote_host *host = &heartbeat->shared->hosts[h];
		struct detector_past past = detector_past(&heartbeat->detector, h);
		atomic_store(&host->generation, past.generation);
		atomic_store(&host->number, past.number);
		atomic_store(&host->broken, past.broken);
		atomic_store(&host->silent, past.silent);
		publish_clock(heartbeat, h);
	}
}

static void act_as_agent(struct heartbeat *heartbeat)
{
	struct detector_beat beat;
	receive_beats(heartbeat);
	forget_gone(heartbeat);
	if (detector_step(&heartbeat->detector, clock_now_ns(), &beat))
		send_beat(heartbeat, &beat);
	/* If this rank is stopped in between, the next agent tells the user again: better twice
	 * than never. */
	if (heartbeat_tell(heartbeat))
		publish_past(heartbeat);
}

/* ---- the thread ---- */

/* Receives beats until the next beat is due, without the agent's other work, because there are many
 * hosts. False: the program has closed the descriptors. */
static bool sleep_until(struct heartbeat *heartbeat, bool is_agent)
{
	struct pollfd fds[] = {{.fd = heartbeat->event_fd, .events = POLLIN},
			       {.fd = heartbeat->socket, .events = POLLIN}};
	uint64_t deadline_ns =
		is_agent ? detector_deadline_ns(&heartbeat->detector) : clock_deadline_ns(IDLE_MS);
	ls_status status;
	do {
		status = wait_fds(NULL, fds, is_agent ? 2 : 1, -1, deadline_ns);
		if (is_agent && status == LS_OK && fds[1].revents & POLLIN)
			receive_beats(heartbeat);
	} while (is_agent && status == LS_OK && !fds[0].revents && fds[1].revents == POLLIN &&
		 clock_now_ns() < deadline_ns);
	return wait_fds_continues(status) && !(fds[0].revents & ~POLLIN) &&
	       !(is_agent && fds[1].revents & POLLNVAL);
}

static void *heartbeat_main(void *argument)
{
	struct heartbeat *heartbeat = argument;
	bool ours = true;
	message_set_rank(heartbeat->world->rank);
	atomic_store(&heartbeat->world->trace.wait_table->heartbeat_tid, trace_thread_id());
	while (ours && !atomic_load(&heartbeat->stop)) {
		uint64_t now_ns = clock_now_ns();
		bool is_agent = hold_lease(heartbeat, now_ns);
		if (is_agent)
			act_as_agent(heartbeat);
		heartbeat_act(heartbeat, now_ns);
		failure_show_poll(heartbeat->world, is_agent, now_ns);
		ours = sleep_until(heartbeat, is_agent);
	}
	heartbeat_act_no_more(heartbeat);
	return NULL;
}

/* ---- life ---- */

static bool take_hosts(struct heartbeat *heartbeat, const struct heartbeat_hosts *hosts)
{
	int number[RANKS_WORLD_MAX];
	for (int q = 0; q < heartbeat->world->size; q++) {
		if (hosts->first[q] == q) {
			number[q] = heartbeat->hosts++;
			snprintf(heartbeat->names[number[q]], HEARTBEAT_NAME_BYTES, "%s",
				 hosts->names[q]);
		}
		heartbeat->host_of[q] = number[hosts->first[q]];
		if (!make_address(hosts->ips[q], hosts->ports[q], &heartbeat->addresses[q]))
			return false;
	}
	heartbeat->host = heartbeat->host_of[heartbeat->world->rank];
	int root = hosts->first[heartbeat->world->rank];
	heartbeat->shared = &heartbeat->world->transport.peers[root].segment->agent;
	heartbeat->is_lowest = root == heartbeat->world->rank;
	heartbeat->start_ns = clock_now_ns();
	heartbeat->job = hosts->job;
	heartbeat->has_session = hosts->token != NULL;
	if (hosts->token)
		detector_session(hosts->token, hosts->job, &heartbeat->session);
	return true;
}

ls_status heartbeat_start(struct world *world, const struct heartbeat_hosts *hosts)
{
	struct heartbeat *heartbeat = world->heartbeat;
	sigset_t all, old;
	errno = EINVAL;
	if (!take_hosts(heartbeat, hosts))
		return fail_socket(hosts->ips[world->rank], "inet_pton");
	atomic_fetch_or(&heartbeat->shared->present[world->rank / 64], ranks_bit(world->rank));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&heartbeat->thread, NULL, heartbeat_main, heartbeat);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(error));
		return LS_OUT_OF_MEMORY;
	}
	heartbeat->running = true;
	return LS_OK;
}

/* The remaining ranks take over at once; the last rank says that the host leaves. */
static void hand_over(struct heartbeat *heartbeat)
{
	struct transport_agent *shared = heartbeat->shared;
	int me = heartbeat->world->rank;
	struct detector_beat beat;
	bool last = true;
	atomic_fetch_and(&shared->present[me / 64], ~ranks_bit(me));
	for (int q = 0; q < heartbeat->world->size; q++)
		last = last && (!(atomic_load(&shared->present[q / 64]) & ranks_bit(q)) ||
				atomic_load(&heartbeat->world->dead[q]));
	if (!last) {
		if (heartbeat->lease && atomic_load(&shared->lease) == heartbeat->lease)
			atomic_store(&shared->renewed_ns, 0);
		return;
	}
	if (!heartbeat->lease || atomic_load(&shared->lease) != heartbeat->lease)
		begin_agent(heartbeat,
			    lease_of(atomic_load(&shared->lease), heartbeat->world->rank));
	detector_leave(&heartbeat->detector);
	if (detector_step(&heartbeat->detector, clock_now_ns(), &beat))
		for (int i = 0; i < FAREWELLS; i++)
			send_beat(heartbeat, &beat);
}

void heartbeat_stop(struct world *world)
{
	struct heartbeat *heartbeat = world->heartbeat;
	uint64_t one = 1;
	if (!heartbeat || !heartbeat->running)
		return;
	atomic_store(&heartbeat->stop, true);
	if (own_fd_is_event(heartbeat->event_fd)) {
		ssize_t written = write(heartbeat->event_fd, &one, sizeof one);
		(void)written;
	}
	wait_join(heartbeat->thread);
	heartbeat->running = false;
	hand_over(heartbeat);
}
