/* SPDX-License-Identifier: BSD-3-Clause
 * When memory is given back to a driver. A driver may wait in `give` until its devices are idle,
 * and all its other calls wait behind that call. Say a kernel runs that waits for another rank, and
 * this process has yet to launch what that rank needs: then the job would stand still. A lock
 * between launches and gives does not help: between two launches of one rank a give waits for the
 * first, and the second waits for the lock (test/museum shows both). So a give is put off:
 *
 *   open      launches that have begun and not ended, of all threads
 *   in flight launched work whose word the device has not stored yet
 *   giving    a give is under way; at most one
 *
 *   giving begins only when open == 0 and nothing is in flight  => no work of Lockstep's delays it
 *   a launch begins only when not giving                        => none appears meanwhile
 *
 * So a launch waits at most for a give, and a give waits at most for kernels of the program. Model:
 * test/model/gate.pml. One gate serves all devices of a process for which the driver may wait at
 * once. Any thread may call these functions. None calls a driver with a lock held. */
#ifndef POOL_GATE_H
#define POOL_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#include "base/lock.h"
#include "base/wait.h"
#include "device/driver.h"

enum { POOL_INFLIGHT_TABLE = 64 };

/* The launches on one stream: `issued` of them, of which the device has completed `done`. It stores
 * that number behind each launch. */
struct pool_inflight {
	_Atomic uint64_t done;
	_Atomic uint64_t issued;
	struct driver *_Atomic driver; /* NULL: no stream has this one */
};

/* A gate has as many tables as the streams of all its ranks need. They stay until the gate ends, as
 * threads walk through them without a lock. */
struct pool_inflight_table {
	struct pool_inflight all[POOL_INFLIGHT_TABLE];
	struct pool_inflight_table *_Atomic next;
};

/* Memory that is due to be given back to its driver. It belongs to the gate from pool_gate_give
 * until pool_gate_take_back, or `given`. */
struct pool_due {
	struct pool_due *next;
	struct driver *driver;
	const void *owner; /* the pool that may take it back */
	struct driver_segment segment;
	/* Any thread calls it, once and without a lock, when it has given the memory to the driver.
	 * status: LS_OK, or the driver's error, after which the memory is lost. */
	void (*given)(struct pool_due *due, ls_status status);
};

/* A thread that waits for the gate, so that others can wake it. */
struct pool_waiting {
	struct pool_waiting *next;
	struct wait_bell *bell;
};

/* The beginning of a block of malloc that has a driver in it. */
struct pool_deferred_free {
	struct pool_deferred_free *next;
};

struct pool_gate {
	/* Used by pool_gate_join: the domain, how many use the gate, and the memory of drivers that
	 * have left it. */
	const void *domain;
	uint32_t users;
	struct pool_deferred_free *deferred;
	struct pool_gate *next;
	_Atomic uint64_t state; /* launches that are open, and GATE_GIVING */
	/* Raised when a give has ended; also when a launch has ended, if a thread waits for the
	 * gate. */
	_Atomic uint64_t changes;
	_Atomic uint32_t waiting_count; /* of `waiting` */
	struct pool_inflight_table inflight;
	struct lock_gate lock;
	struct pool_due *first LOCK_GUARDED(gate), *last LOCK_GUARDED(gate);
	struct pool_waiting *waiting LOCK_GUARDED(gate);
};

void pool_gate_init(struct pool_gate *gate);
/* Call when nothing is in flight, and nothing is left to be given. */
void pool_gate_fini(struct pool_gate *gate);

/* The gate of all drivers of this process with the same domain (driver->domain); the first driver
 * makes it. A domain of NULL: a gate of this driver alone. Returns NULL, with a message that names
 * the device: no memory. */
struct pool_gate *pool_gate_join(const char *name, const void *domain) LOCK_AVOIDS(gate);
/* Keeps a gate that another caller has joined, until the caller of this function leaves it, too. */
void pool_gate_hold(struct pool_gate *gate) LOCK_AVOIDS(gate);
/* Call when the caller does not need the gate any more; the last caller to leave ends it. Other
 * threads may still read the caller's driver, because it had launches in flight. So the gate frees
 * `deferred`, the memory of that driver, only when the last one has left. NULL: the caller has
 * none. */
void pool_gate_leave(struct pool_gate *gate, struct pool_deferred_free *deferred) LOCK_AVOIDS(gate);

/* Counts the launches on one stream, or on several one after the other. NULL: the process is out of
 * memory. */
struct pool_inflight *pool_inflight_open(struct pool_gate *gate, struct driver *driver)
	LOCK_AVOIDS(gate);
/* Call when all its launches are done, or the device is broken. */
void pool_inflight_close(struct pool_inflight *inflight);

/* Begins a launch. Launches may be nested. Waits while a give is under way; LS_OK, or the status
 * with which that wait ended (wait_words), and then nothing has begun. */
LS_CHECKED ls_status pool_gate_begin(struct pool_gate *gate, struct waiter *waiter,
				     uint64_t deadline_ns) LOCK_AVOIDS_ALL;
/* Between begin and end, before something is launched: from now on a launch is in flight, until the
 * device has stored the result in inflight->done. The caller puts that store behind its launch. */
uint64_t pool_gate_issue(struct pool_inflight *inflight);
/* Call when the launch has failed, and nothing was enqueued on the stream: takes the newest number
 * back. */
void pool_gate_retract(struct pool_inflight *inflight);
void pool_gate_end(struct pool_gate *gate);
/* Whether the calling thread has a launch open, at any gate. */
bool pool_gate_is_open_here(void);

/* Around a callback of the program: other threads wait for what its thread has taken to make
 * progress. So it must not wait for memory, and leaves it to others to give some back. */
void pool_gate_set_callback(bool is_in_callback);
bool pool_gate_is_in_callback(void);

/* Gives the memory back, now or later. With a driver whose give does not wait: now. With another
 * driver: never between pool_gate_begin and pool_gate_end of the same thread, or in a callback. */
void pool_gate_give(struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
	LOCK_AVOIDS_ALL;
/* Gives back what is due, if nothing is open or in flight. True: it has given something. */
bool pool_gate_give_due(struct pool_gate *gate, struct waiter *waiter) LOCK_AVOIDS_ALL;
/* Takes back the smallest memory of that owner that was not given yet, of at least `bytes` and at
 * most `most` bytes. NULL: there is none. */
struct pool_due *pool_gate_take_back(struct pool_gate *gate, const void *owner, size_t bytes,
				     size_t most) LOCK_AVOIDS(gate);

/* Calls `visit`, with the gate's lock held, for all memory of that owner that was not given yet. */
void pool_gate_visit(struct pool_gate *gate, const void *owner,
		     void (*visit)(void *data, const struct pool_due *due), void *data)
	LOCK_AVOIDS(gate);

/* To wait until pool_gate_give_due may give something: pool_gate_wait_begin, pool_gate_words,
 * pool_gate_give_due once more, and if that has given nothing, a wait for any of the words; then
 * pool_gate_wait_end. pool_gate_words writes at most `max` words, and returns how many there
 * are. */
int pool_gate_words(struct pool_gate *gate, struct wait_word *out, int max);
/* Whether something is in flight on a device of another rank, which wakes only those that sleep on
 * that rank's bell: a thread that waits on this one then has to look again from time to time. */
bool pool_gate_is_unheard(struct pool_gate *gate, const struct wait_bell *bell);
/* Call when something else has changed for which waiting threads may look: wakes them. One load if
 * no thread waits. */
void pool_gate_wake(struct pool_gate *gate) LOCK_AVOIDS(gate);
static inline void pool_gate_tell(struct pool_gate *gate) LOCK_AVOIDS(gate)
{
	if (__builtin_expect(atomic_load(&gate->waiting_count) > 0, 0))
		pool_gate_wake(gate);
}
void pool_gate_wait_begin(struct pool_gate *gate, struct pool_waiting *waiting,
			  struct wait_bell *bell) LOCK_AVOIDS(gate);
void pool_gate_wait_end(struct pool_gate *gate, struct pool_waiting *waiting) LOCK_AVOIDS(gate);

#endif
