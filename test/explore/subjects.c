/* SPDX-License-Identifier: BSD-3-Clause
 * The table of all sorts of programs. */
#include "subjects.h"

const struct subject *const subjects[] = {&subject_pairs,     &subject_endings, &subject_programs,
					  &subject_planted,   &subject_killed,  &subject_ranks,
					  &subject_schedules, &subject_museum,  &subject_devices,
					  &subject_streams,   &subject_limits,  &subject_requests};
const size_t subject_count = sizeof subjects / sizeof subjects[0];
