/* SPDX-License-Identifier: BSD-3-Clause
 * While the ranks of a group open it, no watch looks at them yet. So a wait for a rank of this host
 * looks itself, now and then, whether that process is stopped, and reports it. */
#ifndef BASE_STOPPED_H
#define BASE_STOPPED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ranks.h"

/* The looks of one thread; zero at first. */
struct stopped_looks {
	uint64_t next_ns;        /* 0: none has been planned */
	struct ranks seen, told; /* ranks that the last look found stopped; that were reported */
};

/* Until when a thread may sleep that waits until `until_ns`, so that it looks in time. */
uint64_t stopped_until(struct stopped_looks *looks, uint64_t until_ns);
/* Whether it is time to look at all processes, each by stopped_look. */
bool stopped_is_due(struct stopped_looks *looks);
/* Reports once, with a message, that the process of this rank is stopped: by a signal, or by a
 * debugger. Only the second look that finds it so does, as a debugger stops a process for a moment
 * when it begins. pid 0: the process is not known. */
void stopped_look(struct stopped_looks *looks, int rank, int pid);

#endif
