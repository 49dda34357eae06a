/* SPDX-License-Identifier: BSD-3-Clause
 * The part of opening a world that concerns ranks on other hosts. In this order, each step of all
 * ranks: place, gather, mirror, then the transport connects the ranks of each host and the group of
 * all ranks is made, then connect and beat. If `place` finds one host, there are no other steps. */
#ifndef GROUP_OPEN_HOSTS_H
#define GROUP_OPEN_HOSTS_H

#include "net/net.h"
#include "rendezvous/rendezvous.h"
#include "transport/transport.h"
#include "world/ls_group.h"

/* Facts about a rank that all others need: what must be the same everywhere, and the processors on
 * which it may run. */
struct open_facts {
	uint64_t table, algorithm, blocking; /* as in struct transport_segment */
	uint64_t cpus[TRANSPORT_CPU_WORDS];
};

/* What each rank tells all others in the second round of the meeting. */
struct open_card {
	struct net_address link;
	char address[RENDEZVOUS_ADDRESS_BYTES]; /* of the first rank of a host, where it listens */
	struct open_facts facts;
	uint16_t beat_port; /* UDP, for heartbeats, at the rank's address */
};
_Static_assert(sizeof(struct open_card) <= RENDEZVOUS_CARD_BYTES, "a card has room for it");

struct open_hosts {
	int count; /* of hosts */
	/* By world rank: the number of its host, from 0 in the order of their first ranks; and that
	 * host's first rank. */
	uint16_t host_of[RANKS_WORLD_MAX];
	int first[RANKS_WORLD_MAX];
	int root;          /* the first rank of this host */
	struct ranks here; /* of this host */
	unsigned char cards[RANKS_WORLD_MAX][RENDEZVOUS_CARD_BYTES];
};

/* ---- open_facts.c ---- */

struct open_facts group_facts_find(const struct settings *settings, const struct plan_table *table);
void group_facts_publish(struct transport_segment *segment, const struct open_facts *facts);
/* Ranks that choose different plans would wait for each other. So would ranks of which only some
 * wait until all have completed a collective. Every rank compares all ranks with rank 0, so all
 * find the same difference. Error: LS_INCONSISTENT, with a message. */
LS_CHECKED ls_status group_facts_compare(const struct world *world);

/* ---- open_hosts.c ---- */

void group_hosts_place(const struct rendezvous_table *table, int rank, struct open_hosts *out);

/* Whether no host has too many ranks, and there are not too many hosts; all ranks find the same.
 * Error: LS_UNSUPPORTED, with a message of the first rank of the host. */
LS_CHECKED ls_status group_hosts_check(const struct rendezvous_table *table,
				       const struct open_hosts *hosts, int rank);

/* Opens the link (world->link), and the socket of the first rank of this host (*listen_fd, if it is
 * -1), then exchanges cards. `address`: where it listens already, or "". Errors, with a message: of
 * net_open, transport_listen and rendezvous_gather. */
LS_CHECKED ls_status group_hosts_gather(struct world *world, const struct rendezvous_table *table,
					const struct open_facts *facts, const char *address,
					struct rendezvous_meeting *meeting,
					struct open_hosts *hosts, int *listen_fd);
/* Where the first rank of this host listens. */
const char *group_hosts_root_address(const struct open_hosts *hosts);

/* After transport_init: makes mirrors of the ranks on other hosts, and notes in this rank's segment
 * where all are. Errors: of hosts_mirror_open. */
LS_CHECKED ls_status group_hosts_mirror(struct world *world, const struct rendezvous_table *table,
					const struct open_hosts *hosts);

/* Connects to all ranks on other hosts. Blocks until deadline_ns. Errors, with a message:
 * LS_RANK_MISSING, names the ranks that do not answer; and those of link.h's connect, and of
 * rendezvous_hear. */
LS_CHECKED ls_status group_hosts_connect(struct world *world, const struct rendezvous_table *table,
					 struct rendezvous_meeting *meeting, uint64_t deadline_ns);

/* Starts the heartbeats between hosts, once all ranks are connected. token: NULL: they are not
 * signed. Errors: of heartbeat_start. */
LS_CHECKED ls_status group_hosts_beat(struct world *world, const struct rendezvous_table *table,
				      const struct open_hosts *hosts,
				      const struct auth_token *token);

/* Cuts all peers, and closes the link. First waits, a second at most, until all that this rank has
 * sent is on its way. */
void group_hosts_close(struct world *world);

#endif
