/* SPDX-License-Identifier: BSD-3-Clause
 * Ranks on other hosts. Each has a mirror here: memory laid out as its segment, so that all who
 * read a word of it read local memory. What this rank stores, there or in its own segment, goes
 * over by transport_publish, through a link (link/link.h); what others have stored comes as events,
 * and is written where they would have written it on one host.
 *
 * Goes over: a group's entries (their first line), `finished`, `left`, and sends and receives of
 * any length. Not yet: messages of collectives; words that two ranks write, or that rely on
 * sequential consistency between ranks (cause, claim, closing, told, crossed); areas that are used
 * again, and memory for mirrors of areas but the first, which comes page by page. */
#ifndef TRANSPORT_HOSTS_H
#define TRANSPORT_HOSTS_H

#include "link/link.h"
#include "transport/transport.h"

/* From now on ranks may be on other hosts. The link is connected, or will be before anything is
 * published, and stays the caller's to close; its events are set here. After transport_init, before
 * the first team. Errors: LS_OUT_OF_MEMORY; LS_INTERNAL, the link is not valid. */
LS_CHECKED ls_status transport_hosts_open(struct transport *transport, struct link *link);
/* Rank `rank` is on another host: makes its mirror, in place of the exchange of descriptors.
 * Errors: LS_OUT_OF_MEMORY, LS_SYSTEM, with a message. */
LS_CHECKED ls_status transport_mirror_open(struct transport *transport, int rank);
/* Cuts all peers, and gives back all messages. Before the teams and the transport end; no other
 * thread uses them. */
void transport_hosts_close(struct transport *transport);

/* Area `area` of my segment is that of the team, whose messages may come from now on: before others
 * know of the area. transport_team_fini ends that. */
void transport_team_listen(struct transport_team *team, unsigned area);

/* Goes on with all that is under way to and from other hosts. False: there was nothing to do, or
 * another thread is at it. Any thread, without locks; never blocks. */
bool transport_advance(struct transport *transport);

/* Gives up rank `rank`. Whoever drives does it: this thread, or the one that is at it now. Then
 * nobody on that host touches this rank's buffers, which the words of messages under way say
 * (mail_rts: got, gave), and receives of these fail with LS_ABORTED. */
void transport_cut(struct transport *transport, int rank);
/* Whether the connection to it has broken. */
bool transport_is_lost(const struct transport *transport, int rank);

/* Of a long message that has just been matched, in mail_rts `index` of the box of member `source`:
 * if it comes from another host, asks for its bytes to be brought to `to`, and nobody copies
 * pieces. `gave` says when they are there. Then transport_publish. False: it does not. */
bool transport_fetch(struct transport_team *team, int source, unsigned index, void *to,
		     uint64_t bytes);

#endif
