/* SPDX-License-Identifier: BSD-3-Clause
 * The version that was compiled, for programs that may load another one than they were built
 * with. */
#include <lockstep/lockstep.h>

const char *ls_version(void)
{
	return LOCKSTEP_VERSION;
}
