/* SPDX-License-Identifier: BSD-3-Clause
 * Lockstep: communication between the processes of a training job. Start with lockstep(7). */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include "collective.h"
#include "ddp.h"
#include "device.h"
#include "group.h"
#include "join.h"
#include "memory.h"
#include "request.h"
#include "p2p.h"
#include "phase.h"
#include "sampler.h"
#include "status.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_VERSION "0.1.0"

/* The version of the library that was loaded, such as "0.1.0". Static, never NULL, any thread. */
LS_EXPORT const char *ls_version(void);

#ifdef __cplusplus
}
#endif
#endif
