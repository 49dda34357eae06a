/* SPDX-License-Identifier: BSD-3-Clause
 * Loads libsodium. What is kept is the process', as all that the loader does is. */
#include "auth/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/messages.h"

enum { WHY_BYTES = 200 };

static struct {
	pthread_once_t once;
	struct auth_library calls;
	bool complete;
	char why[WHY_BYTES]; /* not */
} loaded = {.once = PTHREAD_ONCE_INIT};

/* Its number changes when functions that programs use are removed; these are in all of them. */
static void *open_any(void)
{
	static const char *const names[] = {"libsodium.so.23", "libsodium.so.26"};
	void *library = NULL;
	for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	return library;
}

static void load(void)
{
	const char *missing = NULL;
	void *library = open_any();
	if (!library) {
		const char *error = dlerror();
		snprintf(loaded.why, sizeof loaded.why, "%s", error ? error : "no reason is given");
		return;
	}
#define FIND(name)                                                                \
	loaded.calls.name = (__typeof__(loaded.calls.name))dlsym(library, #name); \
	if (!loaded.calls.name)                                                   \
		missing = #name;
	AUTH_LIBRARY_CALLS(FIND)
#undef FIND
	if (missing)
		snprintf(loaded.why, sizeof loaded.why, "it has no %s", missing);
	else if (loaded.calls.sodium_init() < 0)
		snprintf(loaded.why, sizeof loaded.why, "sodium_init failed");
	else
		loaded.complete = true;
}

const struct auth_library *auth_library_get(void)
{
	pthread_once(&loaded.once, load);
	if (loaded.complete)
		return &loaded.calls;
	MESSAGE_SAY(MESSAGE_AUTH_MISSING, loaded.why);
	return NULL;
}
