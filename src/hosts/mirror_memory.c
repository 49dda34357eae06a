/* SPDX-License-Identifier: BSD-3-Clause
 * Memory of mirrors: of the mirror itself, and of those parts of its areas that are used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "hosts/hosts_private.h"

ls_status hosts_mirror_open(struct transport *transport, int rank)
{
	struct transport_peer *mapped = &transport->peers[rank];
	struct hosts_mirror *mirror = calloc(1, sizeof *mirror);
	size_t bytes = transport_mirror_bytes();
	struct transport_segment *segment = mirror ? transport_mirror_create(transport, rank) : NULL;
	if (!segment) {
		int error = errno;
		MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, rank, bytes, "fallocate", strerror(error));
		free(mirror);
		return transport_errno_status(error);
	}
	/* The mirror's bell always has one sleeper, the link: see transport_notify. */
	atomic_store(&segment->bell.sleepers, 1);
	mapped->segment = segment;
	mapped->segment_bytes = bytes;
	mapped->mirror = mirror;
	mapped->edge_segment = WAIT_SEGMENT_MIRROR;
	return LS_OK;
}

ls_status hosts_mirror_grow(const struct transport *transport, int rank, unsigned area)
{
	struct transport_area *mirror = transport_mirror_area(transport->peers[rank].segment, area);
	size_t bytes = offsetof(struct transport_area, payloads);
	if (!transport->populates || transport_populate(mirror, bytes) == 0)
		return LS_OK;
	int error = errno;
	MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, rank, bytes, "madvise(MADV_POPULATE_WRITE)",
		    strerror(error));
	return transport_errno_status(error);
}

bool hosts_mirror_ensure(struct hosts *hosts, const struct hosts_relay *relay, bool *has, void *at,
			 size_t bytes)
{
	if (*has || !hosts->transport->populates)
		return true;
	*has = transport_populate(at, bytes) == 0;
	if (*has)
		return true;
	MESSAGE_SAY(MESSAGE_TRANSPORT_SEGMENT, relay->peer, bytes, "madvise(MADV_POPULATE_WRITE)",
		    strerror(errno));
	atomic_store(&hosts->transport->peers[relay->peer].mirror->cut, 1);
	return false;
}
