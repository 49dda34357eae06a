/* SPDX-License-Identifier: BSD-3-Clause
 * Where the members of CPython's structures lie, for 64-bit systems. From 3.13 on the head of
 * _PyRuntime has these offsets, and the table here says where. For older versions the table has the
 * offsets themselves, which never change within a version. No offset is guessed for a version that
 * is not in the table. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "stack/stack_private.h"

enum { FROM_RUNTIME = 0x030d, COOKIE_BYTES = 8, OFFSET_MAX = 1 << 20, FREE_THREADED = 16 };

#define MEMBERS(interpreters, next, threads, thread_next, thread_frame, thread_id, previous, code,    \
		instruction, owner, file, name, lines, first, bytes, data, ascii)                     \
	{                                                                                             \
		[STACK_RUNTIME_INTERPRETERS] = (interpreters), [STACK_INTERPRETER_NEXT] = (next),     \
		[STACK_INTERPRETER_THREADS] = (threads), [STACK_THREAD_NEXT] = (thread_next),         \
		[STACK_THREAD_FRAME] = (thread_frame), [STACK_THREAD_ID] = (thread_id),               \
		[STACK_FRAME_PREVIOUS] = (previous), [STACK_FRAME_CODE] = (code),                     \
		[STACK_FRAME_INSTRUCTION] = (instruction), [STACK_FRAME_OWNER] = (owner),             \
		[STACK_CODE_FILE] = (file), [STACK_CODE_NAME] = (name), [STACK_CODE_LINES] = (lines), \
		[STACK_CODE_FIRST_LINE] = (first), [STACK_CODE_BYTES] = (bytes),                      \
		[STACK_BYTES_DATA] = (data), [STACK_TEXT_ASCII] = (ascii),                            \
	}

static const struct stack_layout layouts[] = {
	{0x0309, MEMBERS(32, 0, 8, 8, 24, 176, 24, 32, 104, 0, 104, 112, 120, 40, 0, 32, 48), -1,
	 false, STACK_LINES_DELTAS, 24},
	{0x030a, MEMBERS(32, 0, 8, 8, 24, 176, 24, 32, 96, 0, 104, 112, 120, 40, 0, 32, 48), -1,
	 false, STACK_LINES_RANGES, 24},
	{0x030b, MEMBERS(40, 0, 16, 8, 56, 160, 48, 32, 56, 69, 112, 128, 136, 72, 184, 32, 48), 8,
	 true, STACK_LINES_LOCATIONS, 24},
	{0x030c, MEMBERS(40, 0, 72, 8, 56, 144, 8, 0, 56, 70, 112, 128, 136, 68, 192, 32, 40), 0,
	 true, STACK_LINES_LOCATIONS, 16},
	/* Where in _Py_DebugOffsets: */
	{0x030d,
	 MEMBERS(40, 64, 72, 168, 184, 200, 232, 240, 248, 264, 280, 296, 304, 312, 344, 528, 560),
	 -1, true, STACK_LINES_LOCATIONS, 16},
	{0x030e,
	 MEMBERS(40, 64, 72, 192, 208, 224, 256, 264, 272, 288, 320, 336, 344, 352, 384, 608, 640),
	 -1, true, STACK_LINES_LOCATIONS, 16},
	{0x030f,
	 MEMBERS(40, 64, 72, 192, 208, 248, 320, 328, 336, 352, 384, 400, 408, 416, 448, 704, 736),
	 -1, true, STACK_LINES_LOCATIONS, 16},
};

/* The version: 0x030b of 0x030b07f0; 0: it is too old. Versions before 3.11 do not say which they
 * are, but differ in what they export. False: it cannot be read. */
static bool find_version(const struct stack_memory *memory, uint64_t image, uint32_t *out)
{
	static const struct {
		const char *symbol;
		uint32_t version;
	} olds[] = {{"Py_NewRef", 0x030a}, {"PyFrame_GetCode", 0x0309}};
	uint64_t version, at;
	*out = 0;
	if (!stack_find_symbol(memory, image, "Py_Version", &at))
		return false;
	if (at) {
		if (!stack_read_u64(memory, at, &version))
			return false;
		*out = (uint32_t)(version >> 16);
		return true;
	}
	for (size_t i = 0; i < sizeof olds / sizeof *olds && *out == 0; i++) {
		if (!stack_find_symbol(memory, image, olds[i].symbol, &at))
			return false;
		*out = at ? olds[i].version : 0;
	}
	return true;
}

/* A build without the global lock has other structures. */
static enum stack_answer read_offsets(const struct stack_memory *memory, uint64_t runtime,
				      struct stack_layout *layout)
{
	char cookie[COOKIE_BYTES];
	uint64_t free_threaded;
	if (!memory->read(memory, runtime, cookie, sizeof cookie) ||
	    !stack_read_u64(memory, runtime + FREE_THREADED, &free_threaded))
		return STACK_MOVED;
	if (memcmp(cookie, "xdebugpy", sizeof cookie) != 0 || free_threaded)
		return STACK_UNKNOWN;
	for (int i = 0; i < STACK_MEMBER_COUNT; i++) {
		uint64_t offset;
		if (!stack_read_u64(memory, runtime + layout->members[i], &offset))
			return STACK_MOVED;
		if (offset > OFFSET_MAX)
			return STACK_UNKNOWN;
		layout->members[i] = offset;
	}
	return STACK_FOUND;
}

enum stack_answer stack_find_layout(const struct stack_memory *memory, uint64_t image,
				    uint64_t runtime, struct stack_layout *out)
{
	uint32_t version;
	if (!find_version(memory, image, &version))
		return STACK_MOVED;
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		if (layouts[i].version != version)
			continue;
		*out = layouts[i];
		return version >= FROM_RUNTIME ? read_offsets(memory, runtime, out) : STACK_FOUND;
	}
	return STACK_UNKNOWN;
}

int stack_tid_offset(void)
{
	enum { THREAD_BYTES = 1024 };
	uint32_t self = (uint32_t)gettid(), found;
	for (int at = 0; at < THREAD_BYTES; at += (int)sizeof found) {
		memcpy(&found, (const char *)pthread_self() + at, sizeof found);
		if (found == self)
			return at;
	}
	return -1;
}
