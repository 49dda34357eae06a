/* SPDX-License-Identifier: BSD-3-Clause
 * Which bytes of a buffer a step means: its blocks, in this round. */
#include "engine/engine_private.h"

/* A block range of a buffer of rank `owner` in this round. cut: relative to the beginning of the
 * fragment. */
static struct engine_range range_of(const struct op *op, unsigned buffer, int owner, unsigned block,
				    unsigned blocks, bool cut)
{
	const struct plan *plan = &op->plan->plan;
	const uint64_t *starts = buffer == PLAN_INPUT ? op->starts : op->recv_starts;
	uint64_t first = 0, elements = 0;
	switch ((enum plan_layout)plan->layout[buffer]) {
	case PLAN_LAYOUT_BLOCKS:
		/* Blocks begin at cache lines, so two ranks never write to the same line. */
		if (blocks == plan->blocks)
			elements = op->elements;
		else if (blocks > 0)
			plan_block_range(op->elements, (unsigned)(64 / op->element_bytes),
					 plan->blocks, block, blocks, &first, &elements);
		break;
	case PLAN_LAYOUT_PARTS:
		first = starts ? starts[block] : block * (cut ? op->elements : op->call.count);
		elements = starts ? starts[block + blocks] - first : blocks * op->elements;
		break;
	case PLAN_LAYOUT_PART:
		if (blocks > 0)
			elements = starts ? starts[owner + 1] - starts[owner] : op->elements;
		break;
	}
	first += cut ? 0 : op->first;
	return (struct engine_range){.offset = first * op->element_bytes,
				     .bytes = elements * op->element_bytes,
				     .elements = elements};
}

struct engine_range engine_range_shown(const struct engine *engine, const struct op *op,
				       unsigned buffer, int owner, unsigned block, unsigned blocks)
{
	return range_of(op, buffer, owner, block, blocks,
			engine_window_is_fragmented(engine, op, owner, (enum plan_buffer)buffer));
}

struct engine_range engine_range_own(const struct op *op, unsigned buffer,
				     const struct plan_step *step)
{
	return range_of(op, buffer, op->plan->plan.rank, step->block, step->blocks, false);
}

struct engine_range engine_range_kept(const struct engine *engine, const struct op *op,
				      unsigned buffer, const struct plan_step *step)
{
	return engine_range_shown(engine, op, buffer, op->plan->plan.rank, step->block,
				  step->blocks);
}
