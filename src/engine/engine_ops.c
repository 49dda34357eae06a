/* SPDX-License-Identifier: BSD-3-Clause
 * Collectives that another engine runs: engine_ops.h. */
#include <string.h>

#include "engine/engine_ops.h"
#include "engine/engine_private.h"
#include "op/stream.h"

/* Where op->step stands. */
enum { OPS_COMPARING, OPS_RUNNING };

void engine_use(struct engine *engine, const struct engine_ops *ops, void *state)
{
	engine->ops = ops;
	engine->ops_state = state;
	memset(engine->memos, 0, sizeof engine->memos); /* their slots are the processor's */
}

bool engine_launches(const struct engine *engine)
{
	return engine->ops && engine->ops->launch;
}

ls_status engine_launch(struct engine *engine, struct op *op)
{
	return engine->ops->launch(engine->ops_state, op);
}

void engine_ops_submit(struct engine *engine, struct op *op)
{
	if (!op->stream.by_engine)
		engine->ops->submit(engine->ops_state, op);
}

enum op_progress engine_ops_advance(struct engine *engine, struct op *op)
{
	if (op->step == OPS_COMPARING) {
		enum op_progress progress = engine_check_all(engine, op);
		if (progress != OP_DONE)
			return progress;
		/* A rank that fails sets the cause and then looks whether this rank has entered. */
		if (engine_has_failed(engine))
			return op_fail(op, LS_ABORTED, -1);
		op->step = OPS_RUNNING;
	}
	if (op->stream.by_engine)
		return op_stream_deliver(op);
	op->word_count = 0;
	return engine->ops->advance(engine->ops_state, op);
}

enum op_progress engine_ops_abandon(struct engine *engine, struct op *op, bool force)
{
	op->word_count = 0;
	if (op->state != OP_STATE_STEPS || op->step != OPS_RUNNING || op->stream.by_engine)
		return OP_DONE;
	enum op_progress progress = engine->ops->abandon(engine->ops_state, op, force);
	if (progress == OP_DONE)
		op->step = OPS_COMPARING; /* the other engine touches the buffers no more */
	return progress;
}

enum op_progress engine_ops_withdraw(struct engine *engine, struct op *op, bool force)
{
	op->word_count = 0;
	op->any_suffices = false;
	return engine->ops->abandon(engine->ops_state, op, force);
}
