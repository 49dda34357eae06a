/* SPDX-License-Identifier: BSD-3-Clause
 * All sorts of programs that explore knows. */
#ifndef TEST_EXPLORE_SUBJECTS_H
#define TEST_EXPLORE_SUBJECTS_H

#include "subject.h"

extern const struct subject subject_pairs, subject_endings, subject_programs, subject_planted,
	subject_killed, subject_ranks, subject_schedules, subject_museum, subject_devices,
	subject_streams, subject_limits, subject_requests;

#endif
