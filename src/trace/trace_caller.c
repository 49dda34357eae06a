/* SPDX-License-Identifier: BSD-3-Clause
 * Finds on the stack of the calling thread which call of the program an error is about. So no call
 * has to hand its caller down to all code that may find an error. */
#include "trace/trace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unwind.h>

struct walk {
	const void *own; /* where this library begins */
	uint64_t found;
};

/* Where the file begins that the address lies in; NULL: it lies in none. */
static const void *file_of(uint64_t address)
{
	Dl_info info;
	return dladdr((const void *)(uintptr_t)address, &info) ? info.dli_fbase : NULL;
}

static _Unwind_Reason_Code visit_frame(struct _Unwind_Context *context, void *data)
{
	struct walk *walk = data;
	uint64_t address = _Unwind_GetIP(context);
	const void *file = file_of(address - 1);
	if (!file || file == walk->own)
		return _URC_NO_REASON;
	walk->found = address;
	return _URC_NORMAL_STOP;
}

/* A program that contains this library has no border between program and library. */
static bool is_program(const void *file)
{
	return file == file_of(getauxval(AT_PHDR));
}

void trace_caller_text_at(const void *site, char *out, size_t bytes)
{
	static const char before[] = ", called from ";
	struct trace_module module;
	size_t length = strlen(before);
	if (!bytes)
		return;
	out[0] = '\0';
	if (!site || bytes <= length || !trace_find_module((uint64_t)(uintptr_t)site - 1, &module))
		return;
	memcpy(out, before, length + 1);
	trace_place(&module, (uint64_t)(uintptr_t)site, out + length, bytes - length);
	if (!out[length])
		out[0] = '\0';
}

void trace_caller_text(char *out, size_t bytes)
{
	struct walk walk = {.own = file_of((uint64_t)(uintptr_t)&trace_caller_text)};
	if (walk.own && !is_program(walk.own))
		_Unwind_Backtrace(visit_frame, &walk);
	trace_caller_text_at((const void *)(uintptr_t)walk.found, out, bytes);
}
