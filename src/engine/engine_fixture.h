/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of this room: each rank of unit_fixture.h has an engine. */
#ifndef ENGINE_ENGINE_FIXTURE_H
#define ENGINE_ENGINE_FIXTURE_H

#include "engine/engine.h"
#include "op/unit_fixture.h"

static inline void unit_open(struct unit *unit, const struct settings *settings)
{
	struct plan_table table;
	plan_table_default(&table);
	if (!unit->fixture->has_hosts)
		plan_table_oversubscribe(&table); /* more goes through slots */
	unit->engine = malloc(sizeof *unit->engine);
	MUST(unit->engine && engine_init(unit->engine, &unit->link->team, &unit->trace,
					 &unit->link->memory, settings) == LS_OK);
	engine_begin(unit->engine, &unit->fixture->cause, &table);
}

static inline void unit_close(struct unit *unit)
{
	engine_fini(unit->engine);
	free(unit->engine);
}

static inline void unit_submit(struct unit *unit, struct op *op, struct op_workspace *workspace)
{
	engine_submit(unit->engine, op, workspace);
}

static inline enum op_progress unit_advance(struct unit *unit, struct op *op)
{
	return engine_advance(unit->engine, op);
}

static inline enum op_progress unit_abandon_once(struct unit *unit, struct op *op)
{
	return engine_abandon(unit->engine, op, NULL, false);
}

#endif
