/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of waits on systems without futex_waitv: a system call filter takes it away. */
#ifndef BASE_WAITV_FIXTURE_H
#define BASE_WAITV_FIXTURE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool has_futex_waitv(void)
{
	return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 && errno != ENOSYS;
}

/* From here on futex_waitv ends in ENOSYS, for the calling thread and those that it makes. */
static inline bool forbid_futex_waitv(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 && !has_futex_waitv();
}

#endif
