/* SPDX-License-Identifier: BSD-3-Clause
 * Keeps lines of source for all schedules; see places.h. A process of its own looks each one up.
 * Otherwise the heap of a schedule would depend on what others have looked up, and so would the
 * addresses in it; and a replay needs the same addresses. */
#include "places.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scheduler_private.h"
#include "trace/trace.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { PLACES = 1024, PROBES = 8, TEXT_BYTES = 240 };

struct place {
	_Atomic uint64_t key; /* 0: free */
	_Atomic uint32_t is_there;
	char text[TEXT_BYTES];
};
static struct place *places; /* memory of all processes */

void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void __real_trace_place(const struct trace_module *module, uint64_t site, char *out, size_t bytes);

void places_make(void)
{
	void *memory = __real_mmap64(NULL, PLACES * sizeof *places, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	places = memory == MAP_FAILED ? NULL : memory;
}

/* FNV-1a, of all that the answer depends on. */
static uint64_t add(uint64_t hash, const void *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t key_of(const struct trace_module *module, uint64_t site, size_t bytes)
{
	uint64_t hash = add(UINT64_C(0xcbf29ce484222325), &site, sizeof site);
	hash = add(hash, &bytes, sizeof bytes);
	hash = add(hash, &module->base, sizeof module->base);
	hash = add(hash, module->build_id, sizeof module->build_id);
	hash = add(hash, &module->build_id_bytes, sizeof module->build_id_bytes);
	return add(hash, module->path, strlen(module->path)) | 1;
}

/* The place of this key, which may have no text yet; NULL: there is no room. */
static struct place *find_place(uint64_t key)
{
	for (uint64_t i = 0; i < PROBES; i++) {
		struct place *place = &places[(key / 2 + i) % PLACES];
		uint64_t there = 0;
		if (atomic_compare_exchange_strong(&place->key, &there, key) || there == key)
			return place;
	}
	return NULL;
}

/* Without the handlers of fork, which are the library's. Two schedules may do so at once: both find
 * the same. */
static void look_up(struct place *place, const struct trace_module *module, uint64_t site,
		    size_t bytes)
{
	pid_t pid = _Fork();
	if (pid == 0) {
		scheduler_self = NULL; /* nothing is a point here */
		__real_trace_place(module, site, place->text, bytes);
		atomic_store(&place->is_there, 1);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

void __wrap_trace_place(const struct trace_module *module, uint64_t site, char *out, size_t bytes)
{
	struct place *place = NULL;
	if (scheduler_self && places && bytes <= TEXT_BYTES)
		place = find_place(key_of(module, site, bytes));
	if (place && !atomic_load(&place->is_there))
		look_up(place, module, site, bytes);
	if (place && atomic_load(&place->is_there))
		memcpy(out, place->text, strlen(place->text) + 1);
	else
		__real_trace_place(module, site, out, bytes);
}
