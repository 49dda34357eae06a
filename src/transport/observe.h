/* SPDX-License-Identifier: BSD-3-Clause
 * What a diagnosis reads from the segment of a rank, in any process. None of this trusts what it
 * reads, or blocks. */
#ifndef TRANSPORT_OBSERVE_H
#define TRANSPORT_OBSERVE_H

#include "transport/transport.h"

/* A message that its receiver has not taken yet, as anybody can see it. */
struct transport_unexpected {
	uint64_t position, count;
	int32_t tag;
	uint32_t record; /* of the send: its lowest bits */
	uint32_t dtype;
};
/* The oldest of them that member `source` has sent to the owner of a segment in the group of an
 * area, at most `max`, in their order; returns how many, *total of all. It trusts nothing. */
int transport_unexpected(const void *segment, size_t bytes, int world_size, unsigned area,
			 int source, struct transport_unexpected *out, int max, int *total);

/* What a rank's entry says of a collective, as anybody can see it. */
struct transport_entered {
	uint64_t signature, count;
};
/* Whether the owner of a segment has entered collective `seq` of the group of an area, and no later
 * one in this slot. It trusts nothing. */
bool transport_read_entered(const void *segment, size_t bytes, int world_size, unsigned area,
			    uint64_t seq, struct transport_entered *out);

#endif
