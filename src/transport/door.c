/* SPDX-License-Identifier: BSD-3-Clause
 * Any process of this host may connect to the root. Those that are no ranks disturb nobody: the
 * root takes at most DOOR_MAX connections, and prefers those of ranks. */
#include "transport/door.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/messages.h"

/* Whether the process at the other end is that of a rank. Not known where ranks are threads of one
 * process. */
static bool is_of_rank(const struct transport_door *door, int fd)
{
	const int *pids = door->exchange->pids;
	int pid;
	unsigned uid;
	if (!pids || !transport_handshake_same_user(fd, &pid, &uid) || pid == getpid())
		return false;
	for (int place = 1; place < door->ranks->count; place++)
		if (pids[door->ranks->rank[place]] == pid)
			return true;
	return false;
}

static void close_stranger(struct transport_door *door, int fd, const char *why)
{
	int pid;
	unsigned uid;
	transport_handshake_same_user(fd, &pid, &uid);
	if (!door->warned && !is_of_rank(door, fd)) {
		MESSAGE_SAY(MESSAGE_TRANSPORT_UNTRUSTED, pid, uid, why);
		door->warned = true;
	}
	close(fd);
}

void transport_door_forget(struct transport_door *door, int index)
{
	door->count--;
	memmove(&door->fds[index], &door->fds[index + 1],
		(size_t)(door->count - index) * sizeof door->fds[0]);
}

void transport_door_turn_away(struct transport_door *door, int index, const char *why)
{
	close_stranger(door, door->fds[index], why);
	transport_door_forget(door, index);
}

int transport_door_accept(struct transport_door *door)
{
	int pid;
	unsigned uid;
	int fd = accept4(door->exchange->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR ? 0 : errno;
	if (!transport_handshake_same_user(fd, &pid, &uid)) {
		close_stranger(door, fd, "it runs as another user");
		return 0;
	}
	if (door->count == DOOR_MAX) {
		int oldest = 0;
		/* A rank that has not come to its hello may be short of processors. */
		while (oldest < DOOR_MAX - 1 && is_of_rank(door, door->fds[oldest]))
			oldest++;
		transport_door_turn_away(door, oldest, "it said nothing");
	}
	door->fds[door->count++] = fd;
	return 0;
}
