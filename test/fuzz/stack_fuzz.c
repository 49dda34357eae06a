/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: the input damages the memory of a process with an interpreter, and changes it while
 * the fuzzer reads threads and frames from it. The input: version, when a read fails, what
 * alternates; then patches of 5 bytes: a place, and the 32 bits that replace those of an object
 * there: a number, or the address of an existing object. */
#include "fuzz.h"

#include "base/text.h"
#include "stack/image_fixture.h"

enum { HEAD_BYTES = 3, PATCH_BYTES = 5, FRAMES = 8, THREADS = 4, PLACES = 128 };

static struct image image;
static uint64_t places[PLACES]; /* addresses before any damage */

/* Places that a reader passes: an interpreter's file, its runtime, threads, frames, code and
 * texts. */
static uint64_t place_of(unsigned which)
{
	const uint64_t *members = image.python.layout.members;
	uint64_t frame = image.frames[which / 16 % IMAGE_DEPTH],
		 code = image.codes[which / 16 % IMAGE_DEPTH];
	switch (which % 16) {
	case 0:
		return IMAGE_BASE;
	case 1:
		return IMAGE_BASE + 256;
	case 2:
		return IMAGE_BASE + image.symbols[IMAGE_RUNTIME];
	case 3:
		return IMAGE_BASE + image.symbols[IMAGE_VERSION];
	case 4:
		return image.threads[which / 16 % 2] + members[STACK_THREAD_NEXT];
	case 5:
		return image_frame_place(&image, image.threads[which / 16 % 2]);
	case 6:
		return frame + members[STACK_FRAME_PREVIOUS];
	case 7:
		return frame + members[STACK_FRAME_CODE];
	case 8:
		return frame + members[STACK_FRAME_INSTRUCTION];
	case 9:
		return code + members[STACK_CODE_NAME];
	case 10:
		return code + members[STACK_CODE_LINES];
	case 11:
		return code + members[STACK_CODE_FIRST_LINE];
	case 12:
		return image.texts[which / 16 % 2] + 16;
	case 13:
		return image.tables[which / 16 % IMAGE_DEPTH] + 16;
	case 14:
		return image.tables[which / 16 % IMAGE_DEPTH] + members[STACK_BYTES_DATA];
	default:
		return frame + members[STACK_FRAME_OWNER];
	}
}

static void apply(const uint8_t *patch)
{
	uint64_t known[] = {image.frames[0],
			    image.frames[1],
			    image.codes[0],
			    image.texts[1],
			    image.tables[0],
			    image.threads[1],
			    IMAGE_BASE + IMAGE_BYTES - 4};
	uint64_t to = places[patch[0] % PLACES] + patch[1] % 64;
	uint32_t value;
	memcpy(&value, patch + 1, sizeof value);
	if (patch[4] & 128) /* an address whose upper half is 0 */
		image_put(&image, to, known[patch[4] % 7] + patch[3] % 8);
	else
		image_put_32(&image, to, value >> patch[4] % 32);
}

static void check(enum stack_answer answer, const struct stack_frame *frames,
		  const struct stack_depth *depth, int max)
{
	MUST(answer == STACK_FOUND || answer == STACK_MOVED);
	MUST(depth->count >= 0 && depth->count <= max);
	MUST(answer == STACK_FOUND || depth->count == 0);
	for (int i = 0; i < depth->count; i++) {
		const char *texts[] = {frames[i].function, frames[i].file};
		for (int t = 0; t < 2; t++) {
			MUST(memchr(texts[t], 0, STACK_TEXT_BYTES));
			for (int bytes; *texts[t]; texts[t] += bytes)
				MUST(text_is_shown(texts[t], &bytes) && *texts[t] != '\n');
		}
		MUST(frames[i].line >= 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct stack_frame frames[FRAMES];
	struct stack_thread threads[THREADS];
	struct stack_depth depth;
	struct stack_python python;
	uint64_t where = IMAGE_BASE;
	if (size < HEAD_BYTES)
		return 0;
	image_init(&image, 9 + data[0] % IMAGE_VERSIONS);
	for (unsigned i = 0; i < PLACES; i++)
		places[i] = place_of(i);
	for (size_t at = HEAD_BYTES; at + PATCH_BYTES <= size; at += PATCH_BYTES)
		apply(data + at);
	image.fails_at = data[1];
	if (data[2] & 128) {
		image.toggles = places[data[2] % PLACES];
		memcpy(&image.other[0], image_at(&image, image.toggles), sizeof image.other[0]);
		image.other[1] = image.frames[data[0] >> 7];
	}
	/* The memory before the damage, and now. */
	for (int i = 0; i < 2; i++) {
		python = image.python;
		if (i == 1 && stack_find_python(&image.memory, &where, 1, &python) != STACK_FOUND)
			break;
		int count = stack_python_threads(&python, threads, THREADS);
		MUST(count >= 0 && count <= THREADS);
		for (int t = 0; t < count; t++)
			check(stack_python_frames(&python, threads[t].state, frames, FRAMES, &depth),
			      frames, &depth, FRAMES);
		image.reads = 0;
	}
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = HEAD_BYTES + fuzz_random(state) % (1 + 6 * PATCH_BYTES);
	for (size_t at = 0; at < size; at++)
		data[at] = (uint8_t)fuzz_random(state);
	if (fuzz_random(state) & 1)
		data[1] = 0;
	return size;
}
