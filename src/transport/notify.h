/* SPDX-License-Identifier: BSD-3-Clause
 * Awaited words: how to describe a wait for one, and what a rank does after it has stored one. It
 * *notifies* the peers that may await it: this *wakes* threads that sleep on a peer's doorbell. If
 * it also *requests progress* of the peer, this wakes the peer's progress thread, too. */
#ifndef TRANSPORT_NOTIFY_H
#define TRANSPORT_NOTIFY_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/wait.h"

struct transport;
struct transport_team;

/* The topics of awaited words: one for each member of a group, of the words that it stores for all
 * members; one for all messages to a rank. */
enum { TRANSPORT_TOPIC_MESSAGES = WAIT_TOPICS };

/* Describes in *out a wait until `word`, in member `owner`'s segment, reaches `value`, which member
 * `peer` has to store. The edge names both members by world rank; if either is on another host, the
 * edge has WAIT_SEGMENT_MIRROR. The topic is that of what `peer` stores for all members. */
void transport_wait_word(const struct transport_team *team, int owner, const _Atomic uint64_t *word,
			 uint64_t value, int peer, struct wait_word *out);

/* Notifies member `rank` of all that this rank has stored for it, in its own segment or in that of
 * the member. Call after wait_store. Wakes all threads that sleep there; to a rank on another host
 * it sends what was not sent yet. Any thread, which holds no lock of a level after `mail`; never
 * blocks. On one host it costs one load while nobody sleeps. */
void transport_notify(const struct transport_team *team, int rank);
/* As transport_notify, after a function of mail.h that stores: all waits for what these store have
 * the topic of messages. Threads that wait for other words sleep on. */
void transport_notify_message(const struct transport_team *team, int rank);
/* As transport_notify_message, for stores to which the member should react even if none of its
 * threads waits: wakes its progress thread, too, if its doorbell is armed
 * (wait_request_progress). */
void transport_request_progress(const struct transport_team *team, int rank);
/* As transport_notify, for all members, after a store to a word of which all waits are described by
 * transport_wait_word with this team, and this rank as `peer`, or which concerns other hosts only.
 * Threads that wait for other words sleep on. */
void transport_notify_all(const struct transport_team *team);
/* As transport_notify_all, for the members on this host. */
void transport_notify_host(const struct transport_team *team);
/* Notifies world rank `rank`, which need not be a member, of a group's cause, or of an area that is
 * free again. Only on this host: transport_notify sends these to members on other hosts. */
void transport_notify_world(const struct transport *transport, int rank);

/* The topic of what a world rank stores for all members of the group that has this area of it. */
uint8_t transport_topic(int world, int area);

#endif
