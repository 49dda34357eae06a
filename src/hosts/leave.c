/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank does before it leaves: it tells all ranks on other hosts that it does, and sends what
 * is left. */
#include "hosts/hosts_private.h"

#include "base/clock.h"

bool hosts_leave(struct transport *transport, struct wait_word *parted)
{
	struct hosts *hosts = transport->hosts;
	uint64_t count = 0;
	for (int q = 0; hosts && q < transport->size; q++)
		count += transport->peers[q].mirror != NULL;
	if (!count)
		return false;
	atomic_store(&hosts->leaves, true);
	*parted = (struct wait_word){.word = &hosts->parted,
				     .edge = {.value = count, .owner = -1, .peer = -1}};
	hosts_push(transport);
	return true;
}

static bool is_flushed(struct transport *transport)
{
	struct hosts *hosts = transport->hosts;
	bool flushed = true;
	for (unsigned w = 0; w < HOSTS_AREA_WORDS; w++)
		flushed = flushed && !atomic_load(&hosts->areas[w]);
	for (int q = 0; q < transport->size && flushed; q++)
		if (transport->peers[q].mirror)
			flushed = hosts->link->ops->flush(hosts->link, q);
	return flushed;
}

void hosts_flush(struct transport *transport, uint64_t deadline_ns)
{
	if (!transport->hosts || !transport->hosts->pump.runs)
		return;
	hosts_pump_stop(&transport->hosts->pump);
	struct pollfd fd = {.events = POLLIN};
	ls_status status = LS_OK;
	while (wait_fds_continues(status)) { /* no handler ends it: messages would be lost */
		bool did = hosts_advance(transport);
		if (is_flushed(transport) || clock_now_ns() >= deadline_ns)
			return;
		if (!did && hosts_arm(transport, &fd.fd) == HOSTS_ARMED)
			status = wait_fds(NULL, &fd, 1, -1, deadline_ns);
	}
}
