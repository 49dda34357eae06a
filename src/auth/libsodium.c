/* SPDX-License-Identifier: BSD-3-Clause
 * Loads libsodium. The state here belongs to the process, as does all that the loader does. */
#include "auth/libsodium.h"

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
	char why_not[WHY_BYTES];
} loaded = {.once = PTHREAD_ONCE_INIT};

/* The number of the library changes when functions are removed; the functions that Lockstep uses
 * are in all of these versions. */
static void *open_any(void)
{
	static const char *const names[] = {"libsodium.so.23", "libsodium.so.26"};
	void *library = NULL;
	for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	return library;
}

static void load_sodium(void)
{
	const char *missing = NULL;
	void *library = open_any();
	if (!library) {
		const char *error = dlerror();
		snprintf(loaded.why_not, sizeof loaded.why_not, "%s",
			 error ? error : "no reason is given");
		return;
	}
#define FIND(name)                                                                \
	loaded.calls.name = (__typeof__(loaded.calls.name))dlsym(library, #name); \
	if (!loaded.calls.name)                                                   \
		missing = #name;
	AUTH_LIBRARY_CALLS(FIND)
#undef FIND
	if (missing)
		snprintf(loaded.why_not, sizeof loaded.why_not, "it has no %s", missing);
	else if (loaded.calls.sodium_init() < 0)
		snprintf(loaded.why_not, sizeof loaded.why_not, "sodium_init failed");
	else
		loaded.complete = true;
}

const struct auth_library *auth_library_get(void)
{
	pthread_once(&loaded.once, load_sodium);
	if (loaded.complete)
		return &loaded.calls;
	MESSAGE_SAY(MESSAGE_AUTH_MISSING, loaded.why_not);
	return NULL;
}
