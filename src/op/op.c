/* SPDX-License-Identifier: BSD-3-Clause
 * What the engine and the mailbox both do with an operation. */
#include "op/op.h"

void op_reset(struct op *op, struct op_workspace *workspace)
{
	op->words = workspace->words;
	op->tickets = workspace->tickets;
	op->checked = workspace->checked;
	op->untaken = workspace->untaken;
	op->status = LS_OK;
	op->culprit = -1;
	op->state = OP_STATE_ENTER;
	op->word_count = 0;
	op->any_suffices = false;
	op->peer_sends = op->peer_expected = 0;
	op->input_block = NULL;
	op->input_offset = 0;
}

bool op_alloc_block(struct memory *memory, struct op *op, uint64_t bytes, void **block,
		    uint64_t *offset)
{
	if (memory_alloc(memory, bytes, block) != LS_OK) {
		op->status = LS_OUT_OF_MEMORY;
		return false;
	}
	if (!memory_offset(memory, *block, bytes, offset)) {
		op->status = LS_INTERNAL;
		return false;
	}
	return true;
}

void op_add_private_word(struct op *op, const _Atomic uint64_t *word, uint64_t value)
{
	op->words[op->word_count++] = (struct wait_word){
		.word = word,
		.edge = {.value = value, .owner = -1, .peer = -1, .segment = WAIT_SEGMENT_NONE},
	};
}

void op_add_device_word(struct op *op, const _Atomic uint64_t *word, uint64_t value, uint64_t offset)
{
	op->words[op->word_count++] = (struct wait_word){
		.word = word,
		.edge = {.value = value,
			 .offset = offset,
			 .owner = -1,
			 .peer = -1,
			 .segment = WAIT_SEGMENT_DEVICE},
	};
}
