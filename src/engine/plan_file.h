/* SPDX-License-Identifier: BSD-3-Clause
 * The table of choices, read from its file. */
#ifndef ENGINE_PLAN_FILE_H
#define ENGINE_PLAN_FILE_H

#include <lockstep/status.h>

#include "plan/plan_table.h"

/* path: that of LOCKSTEP_TABLE; NULL: the default table. Errors: LS_BAD_ARGUMENT, with a message
 * that names the file, and the line that is wrong; *out is the default table then. */
LS_CHECKED ls_status engine_table_read(const char *path, struct plan_table *out);

#endif
