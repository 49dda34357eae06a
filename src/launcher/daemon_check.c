/* SPDX-License-Identifier: BSD-3-Clause
 * Whether a program that starts now would find the libraries for other hosts. The loader knows
 * LD_LIBRARY_PATH as it was when a program began. The daemon got the variable later, so it lets
 * another process look. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth/auth.h"
#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/wait.h"
#include "net/net.h"

enum { CHECK_MS = 20000 };

int launcher_daemon_check(void)
{
	struct auth_token token;

	bool has_auth = auth_token_open(&token) == LS_OK;
	return net_check() == LS_OK && has_auth ? 0 : LAUNCHER_FAILED;
}

bool launcher_has_libraries(void)
{
	static const char own[] = "/proc/self/exe";
	siginfo_t info = {0};

	pid_t pid = fork();
	if (pid == 0) {
		execl(own, own, "run", "--daemon-check", (char *)NULL);
		_exit(LAUNCHER_EXIT_CANNOT_EXECUTE);
	}
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd < 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fork", OPEN_LIMIT_TEXT(errno));
		return false;
	}
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	ls_status status = wait_fds(NULL, &ended, 1, -1, clock_deadline_ns(CHECK_MS));
	if (status != LS_OK)
		kill(pid, SIGKILL);
	bool good = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == pid &&
		    info.si_code == CLD_EXITED && info.si_status == 0;
	close(pidfd);
	return good;
}
