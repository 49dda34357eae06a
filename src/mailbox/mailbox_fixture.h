/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of this room: each rank of unit_fixture.h has a mailbox. */
#ifndef MAILBOX_MAILBOX_FIXTURE_H
#define MAILBOX_MAILBOX_FIXTURE_H

#include "mailbox/mailbox.h"
#include "op/unit_fixture.h"

static inline void unit_open(struct unit *unit, const struct settings *settings)
{
	MUST(mailbox_init(&unit->mailbox, &unit->link->team, &unit->link->memory, settings) == LS_OK);
	mailbox_begin(unit->mailbox, &unit->link->waiter);
}

static inline void unit_close(struct unit *unit)
{
	mailbox_fini(unit->mailbox);
}

static inline void unit_submit(struct unit *unit, struct op *op, struct op_workspace *workspace)
{
	mailbox_submit(unit->mailbox, op, workspace);
}

static inline enum op_progress unit_advance(struct unit *unit, struct op *op)
{
	return mailbox_advance(unit->mailbox, op);
}

static inline enum op_progress unit_abandon_once(struct unit *unit, struct op *op)
{
	return mailbox_abandon(unit->mailbox, op, NULL, false);
}

#endif
