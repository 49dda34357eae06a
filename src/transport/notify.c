/* SPDX-License-Identifier: BSD-3-Clause
 * The words that ranks await: how a wait for one is described, and which ranks a store wakes. */
#include "transport/segment.h"

uint8_t transport_topic(int world, int area)
{
	enum { STRIDE = 37 }; /* so that a rank's areas differ */
	return (uint8_t)(1 + (world + area * STRIDE) % (TRANSPORT_TOPIC_MESSAGES - 1));
}

void transport_wait_word(const struct transport_team *team, int owner, const _Atomic uint64_t *word,
			 uint64_t value, int peer, struct wait_word *out)
{
	const struct transport_member *member = &team->members[owner];
	/* A mirror is in the file of this rank's segment. */
	bool mirrored = member->peer->mirror != NULL;
	const struct transport_segment *file =
		mirrored ? team->transport->segment : member->peer->segment;
	*out = (struct wait_word){
		.word = word,
		.edge =
			{
				.value = value,
				.offset = (uintptr_t)word - (uintptr_t)file,
				.owner = mirrored ? team->transport->rank : member->world,
				.peer = team->members[peer].world,
				.segment = member->peer->edge_segment |
					   team->members[peer].peer->edge_segment,
			},
		.topic = team->members[peer].topic,
	};
}

/* A mirror's `sleepers` is never 0, so one test serves both cases. */
static void notify_topic(const struct transport_team *team, int rank, int topic)
{
	const struct transport_peer *mapped = team->members[rank].peer;
	if (!wait_is_awaited(&mapped->segment->bell))
		return;
	if (mapped->mirror)
		team->transport->hosts_ops->notify(team, rank);
	else
		wait_wake_topic(&mapped->segment->bell, topic);
}

void transport_notify(const struct transport_team *team, int rank)
{
	notify_topic(team, rank, 0);
}

void transport_notify_message(const struct transport_team *team, int rank)
{
	notify_topic(team, rank, TRANSPORT_TOPIC_MESSAGES);
}

void transport_request_progress(const struct transport_team *team, int rank)
{
	const struct transport_peer *mapped = team->members[rank].peer;
	if (mapped->mirror)
		team->transport->hosts_ops->notify(team, rank);
	else
		wait_request_progress(&mapped->segment->bell, TRANSPORT_TOPIC_MESSAGES);
}

/* Whether there are members on other hosts, which this does not notify. */
static bool notify_here(const struct transport_team *team)
{
	bool is_remote = false;
	for (int i = 0; i < team->size; i++) {
		const struct transport_peer *mapped = team->members[i].peer;
		if (!wait_is_awaited(&mapped->segment->bell))
			continue;
		if (mapped->mirror)
			is_remote = true;
		else
			wait_wake_topic(&mapped->segment->bell, team->members[team->rank].topic);
	}
	return is_remote;
}

void transport_notify_all(const struct transport_team *team)
{
	if (notify_here(team))
		team->transport->hosts_ops->notify_remote(team);
}

void transport_notify_host(const struct transport_team *team)
{
	notify_here(team);
}

void transport_notify_world(const struct transport *transport, int rank)
{
	if (!transport->peers[rank].mirror)
		wait_wake(&transport->peers[rank].segment->bell);
}
