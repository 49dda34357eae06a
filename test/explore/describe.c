/* SPDX-License-Identifier: BSD-3-Clause
 * Where each thread is, for readers: functions and lines, from the debug information of the program
 * itself. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/libdw.h"
#include "scheduler_private.h"

pid_t __real_getpid(void); /* a thread of a rank has the number of a played process */

static Dwfl *open_self(const struct libdw *dw)
{
	static char *debug_path;
	static Dwfl_Callbacks callbacks = {.debuginfo_path = &debug_path};
	static Dwfl *dwfl;
	if (dwfl || !dw)
		return dwfl;
	callbacks.find_elf = dw->dwfl_linux_proc_find_elf;
	callbacks.find_debuginfo = dw->dwfl_standard_find_debuginfo;
	dwfl = dw->dwfl_begin(&callbacks);
	if (dwfl && (dw->dwfl_linux_proc_report(dwfl, __real_getpid()) ||
		     dw->dwfl_report_end(dwfl, NULL, NULL))) {
		dw->dwfl_end(dwfl);
		dwfl = NULL;
	}
	return dwfl;
}

/* "function (file:line)" of a return address. */
static void place_text(const void *place, char *out, size_t bytes)
{
	const struct libdw *dw = libdw_get();
	Dwfl *dwfl = open_self(dw);
	GElf_Addr address = (GElf_Addr)(uintptr_t)place - 1;
	Dwfl_Module *module = dwfl ? dw->dwfl_addrmodule(dwfl, address) : NULL;
	const char *function = module ? dw->dwfl_module_addrname(module, address) : NULL;
	Dwfl_Line *line = module ? dw->dwfl_module_getsrc(module, address) : NULL;
	int number = 0;
	const char *file = line ? dw->dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
	const char *base = file ? strrchr(file, '/') : NULL;
	snprintf(out, bytes, "%s (%s:%d)", function ? function : "?",
		 base   ? base + 1
		 : file ? file
			: "?",
		 number);
}

__attribute__((format(printf, 3, 4))) static size_t add(char *text, size_t bytes,
							const char *format, ...)
{
	size_t at = strlen(text);
	va_list arguments;
	va_start(arguments, format);
	if (at < bytes)
		vsnprintf(text + at, bytes - at, format, arguments);
	va_end(arguments);
	return at;
}

static const char *owner(const struct thread *thread, char *out, size_t bytes)
{
	if (thread->rank < 0)
		snprintf(out, bytes, "%s", thread->name);
	else
		snprintf(out, bytes, "rank %d %s", thread->rank, thread->name);
	return out;
}

static void describe_thread(const struct thread *thread, char *text, size_t bytes)
{
	static const char *const states[] = {"ready", "blocked", "ended", "killed"};
	char name[64], place[256];
	add(text, bytes, "thread %d, %s: %s, %s", thread->number, owner(thread, name, sizeof name),
	    states[thread->state], thread->doing ? thread->doing : "has not begun");
	if (thread->state == THREAD_BLOCKED && thread->deadline_ns != SCHEDULER_NEVER)
		add(text, bytes, ", for at most %.3f ms more",
		    (double)(thread->deadline_ns - scheduler.now_ns) / 1e6);
	if (thread->point) {
		place_text(thread->point, place, sizeof place);
		add(text, bytes, "\n    %s", place);
	}
	int depth = thread->depth < CALLS_MAX ? thread->depth : CALLS_MAX;
	for (int i = depth - 1; i >= 0; i--) {
		place_text(thread->calls[i], place, sizeof place);
		add(text, bytes, "\n    %s", place);
	}
	add(text, bytes, "\n");
}

void scheduler_describe(char *text, size_t bytes)
{
	text[0] = 0;
	if (scheduler.failure[0])
		add(text, bytes, "%s\n", scheduler.failure);
	for (int i = 0; i < scheduler.count; i++)
		if (scheduler.threads[i].state != THREAD_DONE)
			describe_thread(&scheduler.threads[i], text, bytes);
}

void describe_switch(const struct thread *to)
{
	char name[64], place[256] = "begins";
	if (to->point)
		place_text(to->point, place, sizeof place);
	printf("%12" PRIu64 " ns %8" PRIu64 "  %*s%-16s %s, in %s\n",
	       scheduler.now_ns - UINT64_C(1000000000000), scheduler.points, 4 * (to->number % 8),
	       "", owner(to, name, sizeof name), to->doing ? to->doing : "begins", place);
}

void describe_pass(const struct thread *self)
{
	char name[64], place[256];
	if (!getenv("EXPLORE_CALLS"))
		return;
	printf("pass\t%d\t%s\t%s", self->number, owner(self, name, sizeof name), self->doing);
	for (int i = 0; i < self->depth && i < CALLS_MAX; i++) {
		place_text(self->calls[i], place, sizeof place);
		printf("\t%s", place);
	}
	place_text(self->point, place, sizeof place);
	printf("\t%s\n", place);
}
