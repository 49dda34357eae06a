/* SPDX-License-Identifier: BSD-3-Clause
 * The simulated device as the rooms of the library see it: a plugin of struct driver_ops, and the
 * driver "sim" of ls_group_open. */
#ifndef SIM_SIM_DRIVER_H
#define SIM_SIM_DRIVER_H

#include "device/driver.h"
#include "sim.h"

struct sim_driver {
	struct driver driver; /* first */
	struct driver_ops ops;
};

/* Device `index` of the process, for a rank whose threads sleep on the bell. Streams are struct
 * sim_stream. Its give waits unless the process was opened with SIM_FREE_AT_ONCE. False: it has no
 * such device, or no stream is left. */
bool sim_driver_open(struct sim_driver *out, struct sim *sim, int index, struct wait_bell *bell);
/* Blocks until its own stream has done what was enqueued. */
void sim_driver_close(struct sim_driver *driver);

/* The driver "sim"; <lockstep/sim.h> has its options. Each device that is opened is one of a
 * simulated process of its own, unless "process=N" names one that ranks share. */
extern const struct driver_plugin lockstep_driver_sim;
/* Whether a device is open, or one that had not failed was closed with memory in use. */
bool lockstep_sim_has_left(void);
/* From now on lockstep_sim_has_left counts only devices that are opened later. No earlier one may
 * be closed after this; one that has failed stays open. */
void lockstep_sim_forget_left(void);

#endif
