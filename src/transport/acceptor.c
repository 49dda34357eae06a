/* SPDX-License-Identifier: BSD-3-Clause
 * Any process of this host may connect to the root. Those that are no ranks disturb nobody: the
 * root takes at most ACCEPTOR_MAX connections, and prefers those of ranks. */
#include "transport/acceptor.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/messages.h"

/* Whether the process at the other end is that of a rank. Not known where ranks are threads of one
 * process. */
static bool is_of_rank(const struct transport_acceptor *acceptor, int fd)
{
	const int *pids = acceptor->exchange->pids;
	int pid;
	unsigned uid;
	if (!pids || !transport_handshake_same_user(fd, &pid, &uid) || pid == getpid())
		return false;
	for (int place = 1; place < acceptor->ranks->count; place++)
		if (pids[acceptor->ranks->rank[place]] == pid)
			return true;
	return false;
}

static void close_stranger(struct transport_acceptor *acceptor, int fd, const char *why)
{
	int pid;
	unsigned uid;
	transport_handshake_same_user(fd, &pid, &uid);
	if (!acceptor->warned && !is_of_rank(acceptor, fd)) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_UNTRUSTED, pid, uid, why);
		acceptor->warned = true;
	}
	close(fd);
}

void transport_acceptor_forget(struct transport_acceptor *acceptor, int index)
{
	acceptor->count--;
	memmove(&acceptor->fds[index], &acceptor->fds[index + 1],
		(size_t)(acceptor->count - index) * sizeof acceptor->fds[0]);
}

void transport_acceptor_refuse(struct transport_acceptor *acceptor, int index, const char *why)
{
	close_stranger(acceptor, acceptor->fds[index], why);
	transport_acceptor_forget(acceptor, index);
}

int transport_acceptor_accept(struct transport_acceptor *acceptor)
{
	int pid;
	unsigned uid;
	int fd = accept4(acceptor->exchange->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR ? 0 : errno;
	if (!transport_handshake_same_user(fd, &pid, &uid)) {
		close_stranger(acceptor, fd, "it runs as another user");
		return 0;
	}
	if (acceptor->count == ACCEPTOR_MAX) {
		int oldest = 0;
		/* A rank that has not come to its hello may be short of processors. */
		while (oldest < ACCEPTOR_MAX - 1 && is_of_rank(acceptor, acceptor->fds[oldest]))
			oldest++;
		transport_acceptor_refuse(acceptor, oldest, "it said nothing");
	}
	acceptor->fds[acceptor->count++] = fd;
	return 0;
}
