/* SPDX-License-Identifier: BSD-3-Clause
 * Words that ranks await: how one waits for them, and how those who store them tell the others. */
#ifndef TRANSPORT_PUBLISH_H
#define TRANSPORT_PUBLISH_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/wait.h"

struct transport;
struct transport_team;

/* Fills *out so that it waits for `word`, which lies in member `owner`'s segment, to reach `value`;
 * member `peer` is who has to bring it there. The edge names both by their world ranks; if either
 * is on another host it carries WAIT_SEGMENT_MIRROR. */
void transport_await(const struct transport_team *team, int owner, const _Atomic uint64_t *word,
		     uint64_t value, int peer, struct wait_word *out);

/* Tells member `rank` of all that this rank has stored for it, in its own segment or in that of the
 * member. Call after wait_store, and after a function of mail.h that stores. Wakes whoever sleeps
 * there; a rank on another host is sent what it has not been sent. Any thread; no lock after
 * `mail` may be held; never blocks. On one host it costs a load while nobody sleeps. */
void transport_publish(const struct transport_team *team, int rank);
/* The same, for what it should see to even if no thread of it waits: see wait_summon. */
void transport_summon(const struct transport_team *team, int rank);
void transport_publish_all(const struct transport_team *team);
/* Tells rank `rank` of the world of what it may see without being a member: a group's cause, an
 * area that is free again. Neither goes to other hosts so far. */
void transport_publish_world(const struct transport *transport, int rank);

#endif
