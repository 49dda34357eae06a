/* SPDX-License-Identifier: BSD-3-Clause
 * The simulated device as the library's rooms see a device: a plugin of struct driver_ops, and the
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
/* Blocks until what was put behind its own stream is done. */
void sim_driver_close(struct sim_driver *driver);

/* The driver "sim"; <lockstep/sim.h> has its options. Each device that is opened is one of a
 * simulated process of its own, unless "process=N" names one that ranks share. */
extern const struct driver_plugin lockstep_driver_sim;
/* Whether a device is open, or one that has not failed had memory in use when it was closed. */
bool lockstep_sim_has_left(void);
/* From now on that is asked of devices that are opened after this. No other one is closed any more:
 * one that has failed stays open. */
void lockstep_sim_forget_left(void);

#endif
