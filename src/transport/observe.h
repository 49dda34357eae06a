/* SPDX-License-Identifier: BSD-3-Clause
 * For a diagnosis: reads the segment of a rank, in any process. These functions do not trust what
 * they read, and do not block. */
#ifndef TRANSPORT_OBSERVE_H
#define TRANSPORT_OBSERVE_H

#include "transport/transport.h"

/* A message that its receiver has not taken yet. */
struct transport_unexpected {
	uint64_t position, count;
	int32_t tag;
	uint32_t record; /* of the send: its lowest bits */
	uint32_t dtype;
};
/* The oldest such messages, at most `max`, that member `source` has sent to the owner of the
 * segment in the group of this area, in their order. Returns how many it has written; *total: how
 * many there are. */
int transport_unexpected(const void *segment, size_t bytes, int world_size, unsigned area,
			 int source, struct transport_unexpected *out, int max, int *total);

/* A collective in a rank's entry. */
struct transport_entered {
	uint64_t signature, count;
};
/* Reads the entry of collective `seq` in this area. False: a later one has overwritten it. */
bool transport_read_entry(const struct transport_area *area, uint64_t seq,
			  struct transport_entered *out);
/* Whether the owner of the segment has entered collective `seq` of the group of this area, and its
 * entry has not been overwritten by a later one. */
bool transport_read_entered(const void *segment, size_t bytes, int world_size, unsigned area,
			    uint64_t seq, struct transport_entered *out);

#endif
