/* SPDX-License-Identifier: BSD-3-Clause
 * Nonblocking sends of plain memory that are longer than what is copied when it is posted: each is
 * copied once its receiver has matched it, whatever the sender does meanwhile. Run with
 * LOCKSTEP_CMA=off: no receiver reads by address. */
#include <stdlib.h>

#include "common.h"
#include "tests.h"
#include "values.h"

enum { BYTES = (4 << 20) + 100, SENDS = 3 };

struct late {
	struct runner_rank *self;
	ls_group *group;
	int peer;
	unsigned char *out[SENDS], *in;
	ls_request *sends[SENDS];
};

static struct late begin(struct runner_rank *self)
{
	struct late late = {.self = self, .group = runner_open(self), .peer = 1 - self->rank};
	for (int i = 0; i < SENDS; i++) {
		late.out[i] = malloc(BYTES);
		CHECK(late.out[i]);
		values_fill(late.out[i], BYTES, LS_UINT8, LS_SUM, self->rank, (unsigned)i);
	}
	late.in = malloc(BYTES);
	CHECK(late.in);
	return late;
}

static void send_all(struct late *late)
{
	for (int i = 0; i < SENDS; i++) {
		struct ls_call_options options = {.size = sizeof options, .tag = i};
		OK(ls_isend(late->group, late->out[i], BYTES, LS_UINT8, late->peer, &options,
			    &late->sends[i]));
	}
}

static void receive(struct late *late, int tag)
{
	struct ls_call_options options = {.size = sizeof options, .tag = tag};
	OK(ls_recv(late->group, late->in, BYTES, LS_UINT8, late->peer, &options));
	values_check_from(late->in, BYTES, LS_UINT8, late->peer, (unsigned)tag);
}

static void end(struct late *late)
{
	ls_group_close(late->group);
	for (int i = 0; i < SENDS; i++)
		free(late->out[i]);
	free(late->in);
}

/* The sender makes no call, and no thread of the program waits in one. */
void late_sends_need_no_call(struct runner_rank *self)
{
	struct late late = begin(self);
	if (self->rank == 0)
		send_all(&late);
	for (int i = SENDS - 1; i >= 0 && self->rank == 1; i--)
		receive(&late, i);
	runner_meet(self);
	for (int i = 0; i < SENDS && self->rank == 0; i++)
		finish(late.sends[i], LS_OK);
	end(&late);
}

/* Both ranks send, and then wait in calls that block, for what the other one has sent. */
void late_sends_beside_calls(struct runner_rank *self)
{
	struct late late = begin(self);
	send_all(&late);
	for (int i = 0; i < SENDS - 1; i++)
		receive(&late, i);
	works(late.group);
	receive(&late, SENDS - 1);
	for (int i = 0; i < SENDS; i++)
		finish(late.sends[i], LS_OK);
	end(&late);
}

/* A receiver that asks for something else is told that it waits in vain, although the sender has
 * sends that it could stage. */
void late_sends_and_a_proof(struct runner_rank *self)
{
	struct late late = begin(self);
	send_all(&late);
	struct ls_call_options options = {.size = sizeof options, .tag = SENDS};
	GIVES(LS_DEADLOCK, ls_recv(late.group, late.in, BYTES, LS_UINT8, late.peer, &options));
	for (int i = 0; i < SENDS; i++)
		finish(late.sends[i], LS_DEADLOCK);
	end(&late);
}
