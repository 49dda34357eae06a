/* SPDX-License-Identifier: BSD-3-Clause
 * Who waits for whose mutex. A thread that waits for a mutex of glibc is in the futex call, whose
 * arguments /proc shows: the mutex' address among them. The mutex says who holds it. */
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "stack/stack_private.h"

enum { FILE_BYTES = 4096 };

/* One reading of one thread. */
struct reading {
	uint64_t mutex; /* 0: it waits for none */
	uint32_t owner;
	uint64_t switches; /* how often it has been scheduled out */
};

static uint64_t count_switches(int pid, uint32_t tid)
{
	char text[FILE_BYTES];
	uint64_t sum = 0;
	if (!stack_read_thread_file(pid, tid, "status", text, sizeof text))
		return 0;
	for (const char *at = text; (at = strstr(at, "voluntary_ctxt_switches:")) != NULL;) {
		at += strlen("voluntary_ctxt_switches:");
		sum += strtoull(at, NULL, 10);
	}
	return sum;
}

static struct reading read_thread(const struct stack_memory *memory, uint32_t tid)
{
	struct reading reading = {.mutex = 0};
	char line[FILE_BYTES];
	uint64_t mutex;
	uint32_t state;
	if (stack_read_thread_file(memory->pid, tid, "syscall", line, sizeof line) &&
	    wait_is_for_mutex(line, &mutex) && stack_read_u32(memory, mutex, &state) &&
	    state == WAIT_MUTEX_CONTENDED &&
	    stack_read_u32(memory, mutex + WAIT_MUTEX_OWNER, &reading.owner))
		reading.mutex = mutex;
	reading.switches = count_switches(memory->pid, tid);
	return reading;
}

static bool is_listed(const uint32_t *tids, int count, uint32_t tid)
{
	for (int i = 0; i < count; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

static const struct stack_lock_wait *wait_of(const struct stack_lock_wait *waits, int count,
					     uint32_t tid)
{
	for (int i = 0; i < count; i++)
		if (waits[i].tid == tid)
			return &waits[i];
	return NULL;
}

/* Every thread of such a cycle slept between the readings, while the next one held what it waits
 * for. So none can go on. */
static bool is_in_cycle(const struct stack_lock_wait *waits, int count, int which)
{
	const struct stack_lock_wait *at = &waits[which];
	for (int steps = 0; at && steps < count; steps++) {
		if (at->owner == waits[which].tid)
			return true;
		at = wait_of(waits, count, at->owner);
	}
	return false;
}

int stack_lock_waits(const struct stack_memory *memory, const uint32_t *tids, int count,
		     struct stack_lock_wait *out, int max)
{
	int found = 0;
	struct reading *first = calloc((size_t)count + 1, sizeof *first);
	for (int i = 0; first && i < count; i++)
		first[i] = read_thread(memory, tids[i]);
	for (int i = 0; first && i < count && found < max; i++) {
		struct reading second =
			first[i].mutex ? read_thread(memory, tids[i]) : (struct reading){0};
		if (second.mutex && second.mutex == first[i].mutex &&
		    second.owner == first[i].owner && second.switches == first[i].switches &&
		    is_listed(tids, count, second.owner))
			out[found++] = (struct stack_lock_wait){
				.tid = tids[i], .owner = second.owner, .mutex = second.mutex};
	}
	free(first);
	for (int i = 0; i < found; i++)
		out[i].is_deadlock = is_in_cycle(out, found, i);
	return found;
}
