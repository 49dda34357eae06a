/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: beats as bytes, and the verdicts on all hosts. */
#ifndef DETECTOR_PRIVATE_H
#define DETECTOR_PRIVATE_H

#include "detector/detector.h"

/* ---- beat.c ---- */

/* Whether the bytes are a beat of this job from another host; counts those that are not. */
bool detector_beat_parse(struct detector *detector, const void *bytes, size_t count,
			 struct detector_beat *out);
void detector_beat_sign(const struct detector *detector, struct detector_beat *beat);

/* ---- verdict.c ---- */

/* Whether that host was heard lately. */
bool detector_is_fresh(const struct detector *detector, int host);
void detector_judge(struct detector *detector);

#endif
