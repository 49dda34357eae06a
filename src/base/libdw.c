/* SPDX-License-Identifier: BSD-3-Clause
 * Loads libdw. What this file keeps belongs to the process, as all that the loader does. */
#include "base/libdw.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/messages.h"

enum { WHY_BYTES = 160 };

/* Written before main, or by the dlopen that loads this code, and never again. */
static struct {
	struct libdw calls;
	bool complete;
	char why[WHY_BYTES]; /* the reason, if it is not complete */
} loaded;
static atomic_flag said = ATOMIC_FLAG_INIT;

/* RTLD_NOW: nothing is left to be bound later, under the loader's lock. */
__attribute__((constructor)) static void load_libdw(void)
{
	void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *missing = NULL;
	if (!library) {
		const char *error = dlerror();
		snprintf(loaded.why, sizeof loaded.why, "%s", error ? error : "no reason is given");
		return;
	}
#define FIND(name)                                                                \
	loaded.calls.name = (__typeof__(loaded.calls.name))dlsym(library, #name); \
	if (!loaded.calls.name)                                                   \
		missing = #name;
	LIBDW_CALLS(FIND)
#undef FIND
	loaded.complete = !missing;
	if (missing)
		snprintf(loaded.why, sizeof loaded.why, "libdw.so.1 is too old, it has no %s",
			 missing);
}

const struct libdw *libdw_get(void)
{
	if (loaded.complete)
		return &loaded.calls;
	if (!atomic_flag_test_and_set(&said))
		MESSAGE_SAY(MESSAGE_LIBDW_MISSING, loaded.why);
	return NULL;
}

int libdw_find_no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
			    const char *file, const char *link, GElf_Word crc, char **debug_file)
{
	(void)module, (void)userdata, (void)name, (void)base;
	(void)file, (void)link, (void)crc, (void)debug_file;
	return -1;
}
