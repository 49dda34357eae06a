/* SPDX-License-Identifier: BSD-3-Clause
 * Descriptors that a rank keeps open for long. A program may close all descriptors, as some do that
 * become daemons, and open others, which get the same numbers. So before a rank uses such a number,
 * it checks what the number stands for: it must not touch a file of the program. Any thread. */
#ifndef BASE_OWN_FD_H
#define BASE_OWN_FD_H

#include <stdbool.h>

/* An eventfd; it may be another one. */
bool own_fd_is_event(int fd);
/* A file in memory of Lockstep (memfd_create). */
bool own_fd_is_memory(int fd);
/* A process (pidfd_open), which may have ended. */
bool own_fd_is_process(int fd);
/* Closes *fd if it still is what it was; in any case *fd is -1 then. */
void own_fd_close(int *fd, bool (*is)(int fd));

#endif
