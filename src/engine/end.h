/* SPDX-License-Identifier: BSD-3-Clause
 * Compares the last collectives of members on different hosts: end.c. */
#ifndef ENGINE_END_H
#define ENGINE_END_H

#include "engine/engine.h"

/* Call when the end of a member on another host has arrived: whether my collectives so far differ
 * from that member's. Any thread, also beside those that advance operations or close the group:
 * these compare their later collectives themselves. */
bool engine_end_arrived(const struct engine *engine, int peer, struct engine_difference *out);

#endif
