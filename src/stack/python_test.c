/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* Must come after the four above. */
#include <cmocka.h>

#include "stack/image_fixture.h"

static struct image image;

static void is_frame(const struct stack_frame *frame, const char *function, int line)
{
	assert_string_equal(frame->function, function);
	assert_string_equal(frame->file, "/home/me/train.py");
	assert_int_equal(frame->line, line);
}

static enum stack_answer read_first(struct stack_frame *frames, int max, struct stack_depth *depth)
{
	return stack_python_frames(&image.python, image.threads[0], frames, max, depth);
}

static void test_each_version(void **state)
{
	struct stack_thread threads[4];
	struct stack_frame frames[4];
	struct stack_depth depth;
	(void)state;
	for (int minor = 9; minor < 9 + IMAGE_VERSIONS; minor++) {
		image_init(&image, minor);
		assert_int_equal(image.python.layout.version, 0x0300 | minor);
		assert_int_equal(stack_python_threads(&image.python, threads, 4), 2);
		assert_int_equal(threads[0].tid, IMAGE_TID);
		assert_int_equal(threads[1].tid, IMAGE_TID + 1);
		assert_int_equal(stack_python_threads(&image.python, threads, 1), 1);
		assert_int_equal(read_first(frames, 4, &depth), STACK_FOUND);
		assert_int_equal(depth.count, 2);
		assert_false(depth.more || depth.moving);
		is_frame(&frames[0], "leaf", 12);
		is_frame(&frames[1], "main", 11);
		assert_int_equal(read_first(frames, 1, &depth), STACK_FOUND);
		assert_true(depth.count == 1 && depth.more);
	}
}

static void test_unknown_versions(void **state)
{
	struct stack_python python;
	uint64_t where = IMAGE_BASE;
	(void)state;
	image_init(&image, 16);
	assert_int_equal(stack_find_python(&image.memory, &where, 1, &python), STACK_UNKNOWN);
	image_init(&image, 13); /* without a global lock */
	image_put(&image, IMAGE_BASE + image.symbols[IMAGE_RUNTIME] + 16, 1);
	assert_int_equal(stack_find_python(&image.memory, &where, 1, &python), STACK_UNKNOWN);
	image_init(&image, 13);
	image_put(&image, IMAGE_BASE + image.symbols[IMAGE_RUNTIME], 0); /* no mark */
	assert_int_equal(stack_find_python(&image.memory, &where, 1, &python), STACK_UNKNOWN);
	image_init(&image, 11);
	where += 64; /* no file */
	assert_int_equal(stack_find_python(&image.memory, &where, 1, &python), STACK_NOTHING);
	where = 64;
	assert_int_equal(stack_find_python(&image.memory, &where, 1, &python), STACK_NOTHING);
}

/* ---- lines ---- */

static int line_at(uint64_t offset)
{
	struct stack_frame frame;
	uint64_t code = image.codes[0];
	assert_true(stack_describe_code(&image.python, code,
					image_instruction(&image, code, offset), &frame));
	return frame.line;
}

static void test_lines(void **state)
{
	(void)state;
	for (int minor = 9; minor <= 11; minor++) {
		image_init(&image, minor);
		assert_int_equal(line_at(0), 10);
		assert_int_equal(line_at(2), 10);
		assert_int_equal(line_at(6), 12);
		assert_int_equal(line_at(8), 11);
		if (minor > 9) {
			assert_int_equal(line_at(12), 0);  /* a range without a line */
			assert_int_equal(line_at(100), 0); /* behind the last */
		}
		image_put(&image, image.tables[0] + 16, UINT64_MAX); /* its length */
		assert_int_equal(line_at(4), 0);
		image_put(&image, image.tables[0] + 16, 1 << 19); /* more than there is */
		line_at(1 << 18);
		image_put(&image, image.tables[0] + 8, 0); /* no bytes */
		assert_int_equal(line_at(4), 0);
	}
	image_init(&image, 11); /* before the first instruction */
	image_put(&image, image.frames[0] + image.python.layout.members[STACK_FRAME_INSTRUCTION], 8);
	assert_int_equal(line_at((uint64_t)-8), 10);
}

/* ---- texts ---- */

static const char *told_as(uint64_t text, bool file)
{
	static struct stack_frame frame;
	image_put(&image,
		  image.codes[0] +
			  image.python.layout.members[file ? STACK_CODE_FILE : STACK_CODE_NAME],
		  text);
	if (!stack_describe_code(&image.python, image.codes[0], 0, &frame))
		return NULL;
	return file ? frame.file : frame.function;
}

static void test_texts(void **state)
{
	static const uint16_t two[] = {0x20ac, 'a', 0xd800, 0x202e};
	static const uint32_t four[] = {0x1f600, 0x110000, 27, 0};
	char path[600];
	(void)state;
	image_init(&image, 11);
	assert_string_equal(told_as(image_add_text(&image, 1, false, "gr\xf6\xdf", 4), false),
			    "gr\xc3\xb6\xc3\x9f");
	assert_string_equal(told_as(image_add_text(&image, 2, false, two, 4), false), "\xe2\x82\xac"
										      "a??");
	assert_string_equal(told_as(image_add_text(&image, 4, false, four, 4), false),
			    "\xf0\x9f\x98\x80???");
	memset(path, 'x', sizeof path);
	memcpy(path + sizeof path - 5, "/a.py", 5);
	const char *told = told_as(image_add_text(&image, 1, true, path, sizeof path), true);
	assert_int_equal(strlen(told), STACK_TEXT_BYTES - 1);
	assert_memory_equal(told, "...x", 4);
	assert_string_equal(told + strlen(told) - 5, "/a.py");
	told = told_as(image_add_text(&image, 1, true, path, sizeof path), false);
	assert_int_equal(strlen(told), STACK_TEXT_BYTES - 1);
	assert_string_equal(told + strlen(told) - 4, "x...");
	told = told_as(image_add_text(&image, 1, true, path, STACK_TEXT_BYTES - 1), false);
	assert_string_equal(told + strlen(told) - 4, "xxxx"); /* it just fits */
	memset(path, 0xe9, sizeof path);                      /* two bytes each, as they are told */
	path[0] = path[sizeof path - 1] = 'x';
	told = told_as(image_add_text(&image, 1, false, path, sizeof path), true);
	assert_int_equal(strlen(told), STACK_TEXT_BYTES - 2);
	assert_memory_equal(told, "...\xc3\xa9", 5);
	told = told_as(image_add_text(&image, 1, false, path, sizeof path), false);
	assert_int_equal(strlen(told), STACK_TEXT_BYTES - 2);
	assert_string_equal(told + strlen(told) - 5, "\xc3\xa9...");
	assert_string_equal(told_as(image_add_ascii(&image, ""), false), "");
}

static void test_bad_texts(void **state)
{
	(void)state;
	image_init(&image, 12);
	uint64_t text = image_add_ascii(&image, "leaf");
	image_put(&image, text + 16, UINT64_MAX);
	assert_null(told_as(text, false));
	assert_null(told_as(text, true));
	image_put(&image, text + 16, 1 << 19); /* more than there is */
	assert_null(told_as(text, true));
	image_put(&image, text + 16, 4);
	image_put_32(&image, text + 32, 3u << 2 | 1u << 5 | 1u << 6);
	assert_null(told_as(text, false));
	image_put_32(&image, text + 32, 1u << 2 | 1u << 6); /* not in one piece */
	assert_null(told_as(text, false));
	assert_null(told_as(image.codes[1], false)); /* no text */
	assert_null(told_as(0, false));
	assert_null(told_as(UINT64_MAX - 8, false));
}

/* ---- memory that makes no sense ---- */

static void test_rubbish(void **state)
{
	struct stack_frame frames[4];
	struct stack_depth depth;
	struct stack_thread threads[8];
	(void)state;
	for (int minor = 9; minor < 9 + IMAGE_VERSIONS; minor++) {
		const uint64_t *members = image.python.layout.members;
		image_init(&image, minor);
		uint64_t previous = image.frames[1] + members[STACK_FRAME_PREVIOUS];
		image_put(&image, previous, image.frames[0]); /* a ring */
		assert_int_equal(read_first(frames, 4, &depth), STACK_MOVED);
		assert_int_equal(depth.count, 0);
		image_put(&image, previous, 0x1234);
		assert_int_equal(read_first(frames, 4, &depth), STACK_MOVED);
		image_put(&image, previous, 0);
		assert_int_equal(read_first(frames, 4, &depth), STACK_FOUND);
		image_put(&image, image.codes[1] + 8, image.python.text_type);
		assert_int_equal(read_first(frames, 4, &depth), STACK_MOVED);
		/* Threads in a ring. */
		image_put(&image, image.threads[1] + members[STACK_THREAD_NEXT], image.threads[0]);
		assert_int_equal(stack_python_threads(&image.python, threads, 8), 2);
		image_put(&image, image_frame_place(&image, image.threads[0]), 0);
		assert_int_equal(read_first(frames, 4, &depth), STACK_FOUND);
		assert_int_equal(depth.count, 0);
	}
}

/* Whichever read fails, nothing is told that is not so. */
static void test_each_read_fails(void **state)
{
	struct stack_frame frames[4];
	struct stack_depth depth;
	(void)state;
	for (int minor = 9; minor < 9 + IMAGE_VERSIONS; minor++) {
		image_init(&image, minor);
		for (long at = 1; at < 400; at++) {
			image.reads = 0;
			image.fails_at = at;
			enum stack_answer answer = read_first(frames, 4, &depth);
			assert_true(answer == STACK_FOUND || answer == STACK_MOVED);
			if (depth.count > 0)
				assert_string_equal(frames[0].function, "leaf");
			struct stack_python python;
			uint64_t where = IMAGE_BASE;
			image.reads = 0;
			if (stack_find_python(&image.memory, &where, 1, &python) == STACK_FOUND)
				assert_memory_equal(&python, &image.python, sizeof python);
		}
	}
}

static void test_long_chains(void **state)
{
	static struct stack_frame frames[STACK_CHAIN_MAX];
	struct stack_depth depth;
	static struct image deep;
	(void)state;
	image_init(&deep, 11);
	/* Overlaid as far as the members of frames allow. */
	uint64_t previous = 0;
	for (int i = 0; i < STACK_CHAIN_MAX + 8; i++) {
		uint64_t used = deep.used;
		previous = image_add_frame(&deep, deep.codes[0], 4, previous);
		deep.used = used + 96;
	}
	image_put(&deep, image_frame_place(&deep, deep.threads[0]), previous);
	assert_int_equal(
		stack_python_frames(&deep.python, deep.threads[0], frames, STACK_CHAIN_MAX, &depth),
		STACK_FOUND);
	assert_int_equal(depth.count, STACK_CHAIN_MAX);
	assert_true(depth.more);
}

/* ---- who goes on meanwhile ---- */

static void test_moving(void **state)
{
	struct stack_frame frames[4];
	struct stack_depth depth;
	(void)state;
	for (int minor = 9; minor < 9 + IMAGE_VERSIONS; minor++) {
		image_init(&image, minor);
		image.toggles = image_frame_place(&image, image.threads[0]);
		/* It calls leaf, and returns. */
		image.other[0] = image.frames[0];
		image.other[1] = image.frames[1];
		assert_int_equal(read_first(frames, 4, &depth), STACK_FOUND);
		is_frame(&frames[depth.count - 1], "main", 11);
		/* It has gone back so far that nothing is left of where it was. */
		image.other[1] = image_add_frame(&image, image.codes[1], 8, 0);
		image.reads = 0;
		if (read_first(frames, 4, &depth) == STACK_FOUND)
			assert_false(depth.moving);
	}
}

/* leaf has returned, its code was freed, and other code made at its address is called at the place
 * of its frame. */
static void use_again(struct image *in)
{
	const uint64_t *members = in->python.layout.members;
	image_put(in, in->codes[0] + members[STACK_CODE_NAME], in->texts[1]);
	image_put_32(in, in->codes[0] + members[STACK_CODE_FIRST_LINE], 100);
	image_put(in, in->frames[0] + members[STACK_FRAME_INSTRUCTION],
		  image_instruction(in, in->codes[0], 0));
}

/* Whenever that happens, no line is told that was in neither. */
static void test_code_at_the_same_address(void **state)
{
	struct stack_frame frames[4];
	struct stack_depth depth;
	(void)state;
	for (int minor = 9; minor < 9 + IMAGE_VERSIONS; minor++)
		for (long at = 1; at < 200; at++) {
			image_init(&image, minor);
			image.changes_at = at;
			image.change = use_again;
			assert_int_equal(read_first(frames, 4, &depth), STACK_FOUND);
			bool old = strcmp(frames[0].function, "leaf") == 0;
			is_frame(&frames[0], old ? "leaf" : "main", old ? 12 : 100);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_version),
		cmocka_unit_test(test_unknown_versions),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_bad_texts),
		cmocka_unit_test(test_rubbish),
		cmocka_unit_test(test_each_read_fails),
		cmocka_unit_test(test_long_chains),
		cmocka_unit_test(test_moving),
		cmocka_unit_test(test_code_at_the_same_address),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
