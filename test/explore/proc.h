/* SPDX-License-Identifier: BSD-3-Clause
 * Descriptors of played files of /proc, whose text the system does not have. */
#ifndef TEST_EXPLORE_PROC_H
#define TEST_EXPLORE_PROC_H

#include <stdbool.h>
#include <sys/types.h>

bool proc_has(int fd);
ssize_t proc_read(int fd, void *out, size_t bytes);
/* The descriptor is closed: its number may come to stand for another file. */
void proc_forget(int fd);

#endif
