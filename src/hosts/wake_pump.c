/* SPDX-License-Identifier: BSD-3-Clause
 * What other threads tell the pump (pump.c), and when they wake it. */
#include <unistd.h>

#include "hosts/hosts_private.h"

void hosts_pump_wake(const struct hosts_pump *pump)
{
	static const uint64_t one = 1;
	ssize_t written = write(pump->event_fd, &one, sizeof one); /* full: the pump is awake */
	(void)written;
}

void hosts_pump_wake_armed(struct hosts_pump *pump)
{
	uint32_t armed = HOSTS_PUMP_ARMED;
	if (atomic_load(&pump->state) == HOSTS_PUMP_ARMED &&
	    atomic_compare_exchange_strong(&pump->state, &armed, HOSTS_PUMP_AWAKE))
		hosts_pump_wake(pump);
}

void hosts_pump_recheck(struct hosts_pump *pump)
{
	/* Not MADE: the pump looks once more, but no other thread makes progress in its place. */
	uint32_t none = HOSTS_PROGRESS_NONE;
	atomic_compare_exchange_strong(&pump->progress, &none, HOSTS_PROGRESS_HANDED_OVER);
	hosts_pump_wake_armed(pump);
}

/* The pump pushes when it arms the link, and looks at `progress` after that; so it pushes again
 * unless it is armed already. */
bool hosts_pump_pushes(struct hosts_pump *pump)
{
	if (!atomic_load(&pump->runs) || atomic_load(&pump->state) == HOSTS_PUMP_ARMED)
		return false;
	if (atomic_load(&pump->progress) == HOSTS_PROGRESS_NONE)
		atomic_store(&pump->progress, HOSTS_PROGRESS_MADE);
	return atomic_load(&pump->state) != HOSTS_PUMP_ARMED;
}
