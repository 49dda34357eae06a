/* SPDX-License-Identifier: BSD-3-Clause
 * The gates that devices of this process share. Each rank of the process finds its gate by the
 * domain that its driver names. */
#include <stdlib.h>

#include "base/messages.h"
#include "pool/gate.h"

static struct lock_gate lock = LOCK_STATIC;
static struct pool_gate *gates; /* under the lock: those with a domain */

static struct pool_gate *find_gate(const void *domain) LOCK_REQUIRES(gate)
{
	struct pool_gate *gate = domain ? gates : NULL;
	while (gate && gate->domain != domain)
		gate = gate->next;
	return gate;
}

static void unlink_gate(const struct pool_gate *gate) LOCK_REQUIRES(gate)
{
	struct pool_gate **at = &gates;
	while (*at && *at != gate)
		at = &(*at)->next;
	if (*at)
		*at = gate->next;
}

struct pool_gate *pool_gate_join(const char *name, const void *domain)
{
	struct pool_gate *fresh = malloc(sizeof *fresh);
	if (!fresh) {
		MESSAGE_SAY(MESSAGE_DEVICE_OPEN, "ls_group_open", name, "out of memory");
		return NULL;
	}
	pool_gate_init(fresh);
	fresh->domain = domain;
	lock_gate_acquire(&lock);
	struct pool_gate *gate = find_gate(domain);
	if (!gate) {
		gate = fresh;
		fresh = NULL;
		gate->next = domain ? gates : NULL;
		if (domain)
			gates = gate;
	}
	gate->users++;
	lock_gate_release(&lock);
	if (fresh)
		pool_gate_fini(fresh);
	free(fresh);
	return gate;
}

void pool_gate_hold(struct pool_gate *gate)
{
	lock_gate_acquire(&lock);
	gate->users++;
	lock_gate_release(&lock);
}

void pool_gate_leave(struct pool_gate *gate, struct pool_deferred_free *deferred)
{
	lock_gate_acquire(&lock);
	if (deferred) {
		deferred->next = gate->deferred;
		gate->deferred = deferred;
	}
	bool last = --gate->users == 0;
	if (last)
		unlink_gate(gate);
	lock_gate_release(&lock);
	if (!last)
		return;
	while (gate->deferred) {
		struct pool_deferred_free *one = gate->deferred;
		gate->deferred = one->next;
		free(one);
	}
	pool_gate_fini(gate);
	free(gate);
}
