/* SPDX-License-Identifier: BSD-3-Clause
 * The Python frames of the threads of another process, which goes on meanwhile. A chain of frames
 * is reported only as far as two readings in a row agree on it: on each frame, which code it runs,
 * and in which call it is. */
#include <string.h>

#include "stack/stack_private.h"

enum {
	INTERPRETER_MAX = 64,
	TRIES = 16,
	FRAME_BYTES_MAX = 512,
	OWNED_BY_C = 3, /* and above: the place of a call from C, which is no frame of Python */
};

struct frame_link {
	uint64_t frame, code, instruction;
	uint64_t made_of[4]; /* parts of the code: once it is freed, other code has its address */
};

struct chain {
	int count;
	bool more;
	struct frame_link links[STACK_CHAIN_MAX];
};

/* ---- the interpreter ---- */

enum stack_answer stack_find_python(const struct stack_memory *memory, const uint64_t *images,
				    int count, struct stack_python *out)
{
	uint64_t image = 0;
	*out = (struct stack_python){.memory = memory};
	for (int i = 0; i < count && !out->runtime; i++) {
		image = images[i];
		if (!stack_find_symbol(memory, image, "_PyRuntime", &out->runtime))
			out->runtime = 0;
	}
	if (!out->runtime)
		return STACK_NOTHING;
	enum stack_answer answer = stack_find_layout(memory, image, out->runtime, &out->layout);
	if (answer != STACK_FOUND)
		return answer;
	if (!stack_find_symbol(memory, image, "PyCode_Type", &out->code_type) ||
	    !stack_find_symbol(memory, image, "PyUnicode_Type", &out->text_type) ||
	    !stack_find_symbol(memory, image, "PyBytes_Type", &out->bytes_type))
		return STACK_MOVED;
	for (int i = STACK_FRAME_PREVIOUS; i <= STACK_FRAME_OWNER; i++)
		if (out->layout.members[i] + sizeof(uint64_t) > out->frame_bytes)
			out->frame_bytes = out->layout.members[i] + sizeof(uint64_t);
	bool whole = out->code_type && out->text_type && out->bytes_type &&
		     out->frame_bytes <= FRAME_BYTES_MAX;
	return whole ? STACK_FOUND : STACK_UNKNOWN;
}

/* ---- the interpreter's threads ---- */

static bool is_listed(const struct stack_thread *threads, int count, uint64_t state)
{
	for (int i = 0; i < count; i++)
		if (threads[i].state == state)
			return true;
	return false;
}

static uint32_t tid_of(const struct stack_python *python, uint64_t state)
{
	uint64_t id;
	uint32_t tid = 0;
	int offset = stack_tid_offset();
	if (!stack_read_u64(python->memory, state + python->layout.members[STACK_THREAD_ID], &id))
		return 0;
	if (python->layout.own_ids)
		return (uint32_t)id;
	return offset >= 0 && stack_read_u32(python->memory, id + (uint64_t)offset, &tid) ? tid : 0;
}

/* Adds the threads of one interpreter. The list may be cut or closed to a ring during the
 * reading. */
static int add_threads(const struct stack_python *python, uint64_t interpreter,
		       struct stack_thread *out, int count, int max)
{
	const uint64_t *members = python->layout.members;
	uint64_t state;
	if (!stack_read_u64(python->memory, interpreter + members[STACK_INTERPRETER_THREADS], &state))
		return count;
	while (state && count < max && !is_listed(out, count, state)) {
		out[count] = (struct stack_thread){state, tid_of(python, state)};
		count++;
		if (!stack_read_u64(python->memory, state + members[STACK_THREAD_NEXT], &state))
			break;
	}
	return count;
}

int stack_python_threads(const struct stack_python *python, struct stack_thread *out, int max)
{
	const uint64_t *members = python->layout.members;
	uint64_t interpreter;
	int count = 0;
	if (!stack_read_u64(python->memory, python->runtime + members[STACK_RUNTIME_INTERPRETERS],
			    &interpreter))
		return 0;
	for (int i = 0; i < INTERPRETER_MAX && interpreter; i++) {
		count = add_threads(python, interpreter, out, count, max);
		if (!stack_read_u64(python->memory, interpreter + members[STACK_INTERPRETER_NEXT],
				    &interpreter))
			break;
	}
	return count;
}

/* ---- a chain of frames ---- */

static bool read_current(const struct stack_python *python, uint64_t state, uint64_t *frame)
{
	uint64_t at = state + python->layout.members[STACK_THREAD_FRAME];
	if (python->layout.holder < 0)
		return stack_read_u64(python->memory, at, frame);
	if (!stack_read_u64(python->memory, at, frame))
		return false;
	return !*frame ||
	       stack_read_u64(python->memory, *frame + (uint64_t)python->layout.holder, frame);
}

static uint64_t member_of(const struct stack_python *python, const unsigned char *frame,
			  enum stack_member member)
{
	uint64_t value;
	memcpy(&value, frame + python->layout.members[member], sizeof value);
	return value;
}

static bool is_in(const struct chain *chain, uint64_t frame)
{
	for (int i = 0; i < chain->count; i++)
		if (chain->links[i].frame == frame)
			return true;
	return false;
}

/* What the code of a frame is made of; false if there is none. */
static bool read_code(const struct stack_python *python, struct frame_link *link)
{
	static const enum stack_member parts[] = {STACK_CODE_NAME, STACK_CODE_FILE,
						  STACK_CODE_LINES};
	const uint64_t *members = python->layout.members;
	const struct stack_memory *memory = python->memory;
	uint32_t line;
	for (int i = 0; i < 3; i++)
		if (!stack_read_u64(memory, link->code + members[parts[i]], &link->made_of[i]))
			return false;
	if (!stack_read_u32(memory, link->code + members[STACK_CODE_FIRST_LINE], &line))
		return false;
	link->made_of[3] = line;
	return stack_is_object(memory, link->code, python->code_type);
}

/* Which code a frame runs, and at which instruction. Reads the frame once more, between two looks
 * at the code, because both may have been replaced. */
static bool read_link(const struct stack_python *python, uint64_t frame, unsigned char *bytes,
		      struct frame_link *out)
{
	struct frame_link again;
	/* The lowest bits of a reference to code may be marks. */
	out->frame = frame;
	out->code = again.code = member_of(python, bytes, STACK_FRAME_CODE) & ~UINT64_C(3);
	if (!read_code(python, out) ||
	    !python->memory->read(python->memory, frame, bytes, python->frame_bytes) ||
	    !read_code(python, &again))
		return false;
	out->instruction = member_of(python, bytes, STACK_FRAME_INSTRUCTION);
	return (member_of(python, bytes, STACK_FRAME_CODE) & ~UINT64_C(3)) == out->code &&
	       memcmp(out->made_of, again.made_of, sizeof again.made_of) == 0;
}

/* False: there is no chain of frames, at least not now. */
static bool read_chain(const struct stack_python *python, uint64_t state, struct chain *out)
{
	unsigned char bytes[FRAME_BYTES_MAX];
	uint64_t frame;
	int calls = 0;
	out->count = 0;
	out->more = false;
	if (!read_current(python, state, &frame))
		return false;
	for (; frame && !out->more; frame = member_of(python, bytes, STACK_FRAME_PREVIOUS)) {
		if (is_in(out, frame) ||
		    !python->memory->read(python->memory, frame, bytes, python->frame_bytes))
			return false;
		uint64_t owner = python->layout.members[STACK_FRAME_OWNER];
		if (owner && bytes[owner] >= OWNED_BY_C) {
			out->more = ++calls == STACK_CHAIN_MAX;
			continue;
		}
		if (!read_link(python, frame, bytes, &out->links[out->count]))
			return false;
		out->more = ++out->count == STACK_CHAIN_MAX;
	}
	return true;
}

static bool runs_same(const struct frame_link *a, const struct frame_link *b)
{
	return a->frame == b->frame && a->code == b->code &&
	       memcmp(a->made_of, b->made_of, sizeof a->made_of) == 0;
}

/* Whether the frames of `a` from `i` on are those of `b` from `j` on. The first frame may have gone
 * on. Each frame further out is in the same call as before. */
static bool goes_on_same(const struct chain *a, int i, const struct chain *b, int j)
{
	if (!runs_same(&a->links[i], &b->links[j]))
		return false;
	for (i++, j++; i < a->count && j < b->count; i++, j++)
		if (!runs_same(&a->links[i], &b->links[j]) ||
		    a->links[i].instruction != b->links[j].instruction)
			return false;
	return (i == a->count || b->more) && (j == b->count || a->more);
}

/* The first frame of `a` from which on both chains are the same; -1: there is none. *moved: the
 * chains differ further in. */
static int find_common(const struct chain *a, const struct chain *b, bool *moved)
{
	*moved = a->count != b->count;
	if (a->count == 0 && b->count == 0)
		return 0;
	for (int i = 0; i < a->count; i++)
		for (int j = 0; j < b->count; j++)
			if (goes_on_same(a, i, b, j)) {
				*moved = i != 0 || j != 0;
				return i;
			}
	return -1;
}

static bool describe_chain(const struct stack_python *python, const struct chain *chain, int first,
			   struct stack_frame *out, int max, struct stack_depth *depth)
{
	int i = first;
	for (depth->count = 0; i < chain->count && depth->count < max; i++, depth->count++)
		if (!stack_describe_code(python, chain->links[i].code, chain->links[i].instruction,
					 &out[depth->count]))
			return false;
	depth->more = i < chain->count || chain->more;
	return true;
}

/* Whether a second reading describes the frames in the same way: a code object may be freed, and
 * another one made at its address. */
static bool is_described_again(const struct stack_python *python, const struct chain *chain,
			       int first, const struct stack_frame *told, int count)
{
	struct stack_frame again;
	for (int i = 0; i < count; i++) {
		const struct frame_link *link = &chain->links[first + i];
		if (!stack_describe_code(python, link->code, link->instruction, &again) ||
		    strcmp(again.function, told[i].function) != 0 ||
		    strcmp(again.file, told[i].file) != 0 || again.line != told[i].line)
			return false;
	}
	return true;
}

/* Reports frames on which two readings agree. Their texts were read twice, too, because memory may
 * be reused meanwhile. */
enum stack_answer stack_python_frames(const struct stack_python *python, uint64_t state,
				      struct stack_frame *out, int max, struct stack_depth *depth)
{
	struct chain chains[2];
	bool read = read_chain(python, state, &chains[0]), moved;
	for (int i = 0; i < TRIES; i++) {
		struct chain *old = &chains[i & 1], *new = &chains[~i & 1];
		bool read_before = read;
		read = read_chain(python, state, new);
		int first = read_before && read ? find_common(old, new, &depth->moving) : -1;
		/* Towards the end a part of the chain is better than nothing. */
		if (first < 0 || (depth->moving && i < TRIES / 2) ||
		    !describe_chain(python, old, first, out, max, depth) ||
		    !is_described_again(python, old, first, out, depth->count))
			continue;
		struct chain last;
		int still = read_chain(python, state, &last) ? find_common(old, &last, &moved) : -1;
		if (still >= 0 && still <= first)
			return STACK_FOUND;
	}
	*depth = (struct stack_depth){0};
	return STACK_MOVED;
}

/* ---- one thread of a process ---- */

enum stack_answer stack_python_top(const struct stack_memory *memory, uint32_t tid,
				   struct stack_frame *out)
{
	struct stack_thread threads[STACK_THREAD_MAX];
	struct stack_python python;
	struct stack_depth depth;
	uint64_t images[STACK_IMAGE_MAX];
	int count;
	enum stack_answer answer = stack_find_images(memory, images, &count);
	if (answer == STACK_FOUND)
		answer = stack_find_python(memory, images, count, &python);
	if (answer != STACK_FOUND)
		return answer;
	count = stack_python_threads(&python, threads, STACK_THREAD_MAX);
	for (int i = 0; i < count; i++) {
		if (threads[i].tid != tid)
			continue;
		answer = stack_python_frames(&python, threads[i].state, out, 1, &depth);
		if (!stack_memory_is_there(memory))
			return STACK_GONE;
		return answer == STACK_FOUND && depth.count == 0 ? STACK_NOTHING : answer;
	}
	return STACK_NOTHING;
}
