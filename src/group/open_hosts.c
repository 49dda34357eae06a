/* SPDX-License-Identifier: BSD-3-Clause
 * The part of opening and closing the world that concerns other hosts: which ranks are there, the
 * link to them, their mirrors and heartbeats. */
#include "group/open_hosts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/text.h"
#include "failure/failure.h"
#include "heartbeat/heartbeat.h"
#include "hosts/hosts.h"

enum {
	FLUSH_MS = 1000,
	/* How long a rank whose connection has broken waits to learn from rank 0 which process has
	 * ended. Rank 0 sees the ends of processes, and so waits less. */
	VERDICT_MS = 2000,
	VERDICT_OF_0_MS = 500,
	BREAKING_MS = 5,  /* between two looks at a connection that is breaking */
	ANSWER_MS = 1000, /* longer than rank 0 a rank waits for its answer */
	LOOK_MS = 200,    /* between two looks whether a descriptor is left */
	SHORT_MS = 1000,  /* a rank that has had none so long gives up */
	/* Of UCX, heartbeats, memory and the listener for payloads, beside three for each rank over
	 * TCP. */
	LINK_FILES = 15,
};

void group_hosts_place(const struct rendezvous_table *table, int rank, struct open_hosts *out)
{
	out->count = rendezvous_find_hosts(table, out->first);
	out->root = out->first[rank];
	out->here = (struct ranks){{0}};
	for (int q = 0, count = 0; q < table->size; q++) {
		int first = out->first[q];
		out->host_of[q] = first == q ? (uint16_t)count++ : out->host_of[first];
		if (first == out->root)
			ranks_add(&out->here, q);
	}
}

ls_status group_hosts_check(const struct rendezvous_table *table, const struct open_hosts *hosts,
			    int rank)
{
	int ranks[RANKS_WORLD_MAX] = {0}, most = 0;
	for (int q = 0; q < table->size; q++)
		if (++ranks[hosts->first[q]] > ranks[most])
			most = hosts->first[q];
	if (ranks[most] <= RANKS_HOST_MAX && hosts->count <= RANKS_HOSTS_MAX)
		return LS_OK;
	if (rank == hosts->root)
		MESSAGE_SAY(MESSAGE_GROUP_CROWDED, ranks[most], table->ranks[most].host,
			    hosts->count, hosts->count == 1 ? "" : "s", RANKS_HOST_MAX,
			    RANKS_HOSTS_MAX);
	return LS_UNSUPPORTED;
}

static const struct open_card *card_of(const struct open_hosts *hosts, int rank)
{
	return (const struct open_card *)(const void *)hosts->cards[rank];
}

const char *group_hosts_root_address(const struct open_hosts *hosts)
{
	return card_of(hosts, hosts->root)->address;
}

/* ---- before the cards ---- */

static ls_status say_few_files(const struct world *world)
{
	MESSAGE_SAY(MESSAGE_NET_LIMIT, world->rank, (unsigned long long)open_limit_get());
	return LS_OUT_OF_MEMORY;
}

static ls_status open_link(struct world *world, const struct rendezvous_table *table,
			   const struct ranks *here, struct open_card *card)
{
	struct net_options options = {
		.rank = world->rank,
		.size = world->size,
		.job = table->job,
		.host = table->ranks[world->rank].ip,
		.transports = world->settings.network == SETTING_NETWORK_TCP ? "tcp" : NULL,
		.patience_ms = world->rank == 0 ? VERDICT_OF_0_MS : VERDICT_MS};
	int others = world->size - ranks_count(here);
	/* Of too few descriptors UCX says something else, or ends the process. */
	if (open_limit_left() < (uint64_t)(LINK_FILES + (options.transports ? 3 * others : 0)))
		return say_few_files(world);
	ls_status status = net_open(&options, &world->link);
	if (status == LS_OK)
		net_address(world->link, &card->link);
	return status;
}

/* With LOCKSTEP_NETWORK=ucx a rank has no payload sockets. */
static ls_status set_addresses(struct world *world, const struct open_hosts *hosts)
{
	bool has_sockets = card_of(hosts, 0)->link.payload_port;
	for (int q = 0; q < world->size; q++) {
		const struct net_address *address = &card_of(hosts, q)->link;
		if ((address->payload_port != 0) != has_sockets) {
			MESSAGE_SAY(MESSAGE_GROUP_SETTINGS, q, "LOCKSTEP_NETWORK");
			return LS_INCONSISTENT;
		}
	}
	for (int q = 0; q < world->size; q++) {
		if (ranks_have(&hosts->here, q) ||
		    net_set_address(world->link, q, &card_of(hosts, q)->link) == LS_OK)
			continue;
		MESSAGE_SAY(MESSAGE_NET_PEER, q, "it gave no address");
		return LS_BAD_ARGUMENT;
	}
	return LS_OK;
}

ls_status group_hosts_gather(struct world *world, const struct rendezvous_table *table,
			     const struct open_facts *facts, const char *address,
			     struct rendezvous_meeting *meeting, struct open_hosts *hosts,
			     int *listen_fd)
{
	union {
		struct open_card card;
		unsigned char bytes[RENDEZVOUS_CARD_BYTES];
	} mine = {.bytes = {0}};
	mine.card.facts = *facts;
	snprintf(mine.card.address, sizeof mine.card.address, "%s", address);
	ls_status status = open_link(world, table, &hosts->here, &mine.card);
	if (status == LS_OK)
		status = heartbeat_open(world, table->ranks[world->rank].ip, &mine.card.beat_port);
	if (status == LS_OK && world->rank == hosts->root && *listen_fd < 0)
		status = transport_listen(mine.card.address, sizeof mine.card.address, listen_fd);
	/* The other ranks get the message that this rank has just printed. */
	status = rendezvous_gather(meeting, status, message_last(), &mine, hosts->cards);
	return status == LS_OK ? set_addresses(world, hosts) : status;
}

/* ---- mirrors ---- */

static void publish_locations(struct transport_segment *segment,
			      const struct rendezvous_table *table, const struct open_hosts *hosts)
{
	for (int q = 0; q < table->size; q++) {
		struct transport_location *location = transport_location_of(segment, table->size, q);
		location->pid = table->ranks[q].pid;
		location->first = hosts->first[q];
		snprintf(location->host, sizeof location->host, "%s", table->ranks[q].host);
	}
}

ls_status group_hosts_mirror(struct world *world, const struct rendezvous_table *table,
			     const struct open_hosts *hosts)
{
	struct transport *transport = &world->transport;
	struct hosts_events events = failure_hosts_events(world);
	world->watch.remote = failure_remote_open();
	if (!world->watch.remote) {
		MESSAGE_SAY(MESSAGE_NET_MEMORY, world->size);
		return LS_OUT_OF_MEMORY;
	}
	publish_locations(transport->segment, table, hosts);
	ls_status status = hosts_open(transport, world->link, hosts->host_of, &events);
	for (int q = 0; q < world->size && status == LS_OK; q++) {
		if (ranks_have(&hosts->here, q))
			continue;
		status = hosts_mirror_open(transport, q);
		if (status != LS_OK)
			break;
		const struct open_facts *facts = &card_of(hosts, q)->facts;
		struct transport_segment *mirror = transport->peers[q].segment;
		mirror->table = facts->table;
		mirror->algorithm = facts->algorithm;
		mirror->blocking = facts->blocking;
		memcpy(mirror->cpus, facts->cpus, sizeof mirror->cpus);
	}
	return status;
}

/* ---- connections ---- */

struct list {
	char text[1024];
	size_t used; /* more than fits: the rest is left out */
};

/* "3 (host b, 10.0.0.2), 4 (host b, 10.0.0.2)" */
static ls_status say_silent(const struct world *world, const struct rendezvous_table *table)
{
	struct list list = {.used = 0};
	for (int q = 0; q < world->size; q++) {
		const struct rendezvous_rank *rank = &table->ranks[q];
		if (!world->transport.peers[q].mirror || net_has_answered(world->link, q))
			continue;
		text_append(list.text, sizeof list.text, &list.used, "%s%d (host %s, %s)",
			    list.used ? ", " : "", q, rank->host, rank->ip);
	}
	MESSAGE_SAY(MESSAGE_GROUP_SILENT, list.text);
	return LS_RANK_MISSING;
}

/* The host whose lowest rank is `lowest`: "a: 0-3, 8". first: of rendezvous_find_hosts. */
static void add_host(struct list *list, const struct rendezvous_table *table, const int *first,
		     int lowest)
{
	const char *before = " ";
	text_append(list->text, sizeof list->text, &list->used, "%s%s:", lowest ? "; " : "",
		    table->ranks[lowest].host);
	for (int q = lowest; q < table->size; q++) {
		int begin = q;
		if (first[q] != lowest)
			continue;
		while (q + 1 < table->size && first[q + 1] == lowest)
			q++;
		text_append(list->text, sizeof list->text, &list->used, "%s%d", before, begin);
		if (q > begin)
			text_append(list->text, sizeof list->text, &list->used, "-%d", q);
		before = ", ";
	}
}

static void say_hosts(const struct world *world, const struct rendezvous_table *table)
{
	int first[RANKS_WORLD_MAX], hosts = rendezvous_find_hosts(table, first);
	struct list list = {.used = 0};
	char wire[NET_WIRE_BYTES];
	if (world->rank != 0)
		return;
	for (int q = 0; q < table->size; q++)
		if (first[q] == q)
			add_host(&list, table, first, q);
	net_describe(world->link, wire);
	MESSAGE_SAY(MESSAGE_GROUP_HOSTS, table->size, hosts, list.text, wire);
}

/* UCX does not say that it has found no descriptor for a connection. *since_ns: since when there is
 * none, at first 0. */
static bool is_short_of_files(uint64_t *since_ns)
{
	uint64_t now_ns = clock_now_ns();
	if (!open_limit_is_reached())
		*since_ns = 0;
	else if (*since_ns == 0)
		*since_ns = now_ns;
	return *since_ns != 0 && now_ns - *since_ns >= SHORT_MS * UINT64_C(1000000);
}

/* Waits for the link, or for what the other ranks say of their connecting. */
static ls_status wait_for_others(struct world *world, struct rendezvous_meeting *meeting,
				 uint64_t until_ns)
{
	struct link *link = world->link;
	struct pollfd fds[1 + RANKS_WORLD_MAX] = {{.fd = -1, .events = POLLIN}};
	uint64_t soon_ns = clock_deadline_ns(BREAKING_MS);
	if (link->ops->advance(link))
		return LS_OK;
	if (link->ops->arm(link, &fds[0].fd))
		soon_ns = net_is_ready(link) ? CLOCK_NEVER : clock_deadline_ns(LOOK_MS);
	else if (!net_is_breaking(link))
		return LS_OK;
	int poll_count = rendezvous_poll(meeting, fds + 1, RANKS_WORLD_MAX);
	until_ns = rendezvous_look(meeting, until_ns);
	ls_status status = wait_fds(&world->waiter, fds, 1 + poll_count, -1,
				    soon_ns < until_ns ? soon_ns : until_ns);
	return status == LS_TIMED_OUT ? LS_OK : status;
}

/* Each rank is connected to all others before rank 0 lets any go on. */
static ls_status connect_all(struct world *world, const struct rendezvous_table *table,
			     struct rendezvous_meeting *meeting, uint64_t deadline_ns)
{
	struct link *link = world->link;
	bool done = false, over = false, told = world->rank == 0;
	uint64_t until_ns = deadline_ns, short_ns = 0;
	for (;;) {
		ls_status status = rendezvous_hear(meeting, &over);
		if (status == LS_OK && (over || !net_is_ready(link)))
			status = link->ops->connect(link, &done);
		if (status != LS_OK || done)
			return status;
		if (net_is_ready(link) && !told) {
			rendezvous_part(meeting, LS_OK, "");
			told = true;
			/* Rank 0 gives up first, and tells why. */
			if (until_ns < CLOCK_NEVER - ANSWER_MS * UINT64_C(1000000))
				until_ns += ANSWER_MS * UINT64_C(1000000);
		}
		status = wait_for_others(world, meeting, until_ns);
		if (status != LS_OK)
			return status;
		if (!net_is_ready(link) && is_short_of_files(&short_ns))
			return say_few_files(world);
		if (clock_now_ns() >= until_ns)
			return net_is_ready(link) ? rendezvous_give_up(meeting)
						  : say_silent(world, table);
	}
}

ls_status group_hosts_connect(struct world *world, const struct rendezvous_table *table,
			      struct rendezvous_meeting *meeting, uint64_t deadline_ns)
{
	ls_status status = connect_all(world, table, meeting, deadline_ns);
	if (status != LS_OK)
		return status;
	if (world->rank == 0)
		rendezvous_part(meeting, LS_OK, "");
	say_hosts(world, table);
	atomic_store(&world->trace.wait_table->link_tids[1], net_thread(world->link));
	return hosts_pump_start(&world->transport, &world->trace.wait_table->link_tids[0]);
}

ls_status group_hosts_beat(struct world *world, const struct rendezvous_table *table,
			   const struct open_hosts *hosts, const struct auth_token *token)
{
	struct heartbeat_hosts facts = {.job = table->job, .token = token};
	for (int q = 0; q < world->size; q++) {
		facts.first[q] = hosts->first[q];
		facts.names[q] = table->ranks[q].host;
		facts.ips[q] = table->ranks[q].ip;
		facts.ports[q] = card_of(hosts, q)->beat_port;
	}
	return heartbeat_start(world, &facts);
}

void group_hosts_close(struct world *world)
{
	heartbeat_close(world);
	if (!world->link)
		return;
	hosts_flush(&world->transport, clock_deadline_ns(FLUSH_MS));
	hosts_close(&world->transport);
	world->link->ops->close(world->link);
	world->link = NULL;
	failure_remote_close(world->watch.remote);
	world->watch.remote = NULL;
}
