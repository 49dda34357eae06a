/* SPDX-License-Identifier: BSD-3-Clause
 * The limit of file sizes, which also counts for files in memory. */
#ifndef BASE_FILE_LIMIT_H
#define BASE_FILE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* What a message says failed, after file_limit_allows. */
#define FILE_LIMIT_NAME "the limit of file sizes (ulimit -f)"

/* Whether a file may have this size; if not, errno is EFBIG. Ask before ftruncate, for which a file
 * beyond the limit ends the process with a signal. */
static inline bool file_limit_allows(uint64_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes)
		return true;
	errno = EFBIG;
	return false;
}

#endif
