/* SPDX-License-Identifier: BSD-3-Clause
 * The simulated device as the library's rooms see a device: a body of struct driver_ops. */
#ifndef SIM_SIM_DRIVER_H
#define SIM_SIM_DRIVER_H

#include "device/driver.h"
#include "sim.h"

struct sim_driver {
	struct driver driver; /* first */
	struct driver_ops ops;
	struct sim *sim;
};

/* Device `index` of the process, for a rank whose threads sleep on the bell. Streams are struct
 * sim_stream. Its give waits unless the process was opened with SIM_FREE_AT_ONCE. False: it has no
 * such device, or no stream is left. */
bool sim_driver_open(struct sim_driver *out, struct sim *sim, int index, struct wait_bell *bell);
/* Blocks until what was put behind its own stream is done. */
void sim_driver_close(struct sim_driver *driver);

#endif
