/* SPDX-License-Identifier: BSD-3-Clause
 * Loads UCX. UCX reads the environment while it is loaded, so the environment has to say then what
 * UCX must not do. Afterwards this file restores the environment, for the children of this process.
 * All that it keeps belongs to the process, like the loaded library. */
#include "net/libucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "net/net.h"

enum { WHY_BYTES = 200 };

static struct {
	pthread_once_t once;
	struct net_library calls;
	bool complete;
	char why[WHY_BYTES]; /* the reason, if it is not complete */
} loaded = {.once = PTHREAD_ONCE_INIT};

static const struct variable {
	const char *name, *value;
	bool is_forced; /* whatever the user has set */
} variables[] = {
	/* Otherwise UCX overwrites the first bytes of mmap, munmap, madvise and others with a jump
	 * to its own functions, which take locks. */
	{"UCX_MEM_EVENTS", "n", true},
	/* UCX's handlers of SEGV, BUS, FPE, ILL and HUP would replace those of the program. */
	{"UCX_HANDLE_ERRORS", "none", true},
	{"UCX_DEBUG_SIGNO", "0", true},
	/* UCX prints on standard output. */
	{"UCX_LOG_LEVEL", "fatal", false},
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static void *open_ucx_tamed(void)
{
	char *before[VARIABLES];
	bool is_set[VARIABLES];
	for (int i = 0; i < VARIABLES; i++) {
		const char *old = getenv(variables[i].name);
		is_set[i] = old != NULL;
		before[i] = old ? strdup(old) : NULL;
		setenv(variables[i].name, variables[i].value, variables[i].is_forced);
	}
	void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (int i = 0; i < VARIABLES; i++) {
		if (!is_set[i])
			unsetenv(variables[i].name);
		else if (before[i]) /* else there was no memory for it */
			setenv(variables[i].name, before[i], true);
		free(before[i]);
	}
	return library;
}

static void load_ucx(void)
{
	void *early = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (early) {
		MESSAGE_SAY(MESSAGE_NET_EARLY);
		dlclose(early);
	}
	void *library = open_ucx_tamed();
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
	NET_LIBRARY_CALLS(FIND)
#undef FIND
	loaded.complete = !missing;
	if (missing)
		snprintf(loaded.why, sizeof loaded.why, "libucp.so.0 is too old, it has no %s",
			 missing);
}

const struct net_library *net_library_get(void)
{
	pthread_once(&loaded.once, load_ucx);
	if (loaded.complete)
		return &loaded.calls;
	MESSAGE_SAY(MESSAGE_NET_MISSING, loaded.why);
	return NULL;
}

ls_status net_check(void)
{
	return net_library_get() ? LS_OK : LS_UNSUPPORTED;
}
