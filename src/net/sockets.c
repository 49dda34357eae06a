/* SPDX-License-Identifier: BSD-3-Clause
 * Who holds the connections of this rank. Peers notice the end of a rank by the end of its
 * connections. But UCX's sockets are not close-on-exec: a program that the rank has started, a
 * child that it has forked, and the program that it becomes by exec would hold them. So this
 * process's sockets are marked, and children close their copies. UCX has several sockets for each
 * connection; it is enough to find the one that leads from where one rank listens. */
#include "net/peer.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fork.h"

union end {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static bool is_at(const union end *end, const struct net_address *address)
{
	union end other;
	if (address->bytes < sizeof other.four || address->bytes > sizeof other)
		return false;
	memcpy(&other, address->data, address->bytes);
	if (end->any.sa_family != other.any.sa_family)
		return false;
	if (end->any.sa_family == AF_INET)
		return end->four.sin_port == other.four.sin_port &&
		       end->four.sin_addr.s_addr == other.four.sin_addr.s_addr;
	return end->any.sa_family == AF_INET6 && end->six.sin6_port == other.six.sin6_port &&
	       memcmp(&end->six.sin6_addr, &other.six.sin6_addr, sizeof end->six.sin6_addr) == 0;
}

/* Whether one end of the socket's connection is where this rank or a peer listens. */
static bool is_connection(const struct net *net, int fd)
{
	union end here, there;
	socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
	memset(&here, 0, sizeof here);
	memset(&there, 0, sizeof there);
	if (getsockname(fd, &here.any, &here_bytes) != 0 ||
	    getpeername(fd, &there.any, &there_bytes) != 0)
		return false;
	bool found = is_at(&here, &net->address);
	for (int q = net->link.rank + 1; q < net->link.size && !found; q++)
		found = is_at(&there, &net->peers[q].address);
	return found;
}

void net_guard_sockets(struct net *net)
{
	DIR *descriptors = opendir("/proc/self/fd");
	for (const struct dirent *entry; descriptors && (entry = readdir(descriptors));) {
		int fd = (int)strtol(entry->d_name, NULL, 10);
		if (entry->d_name[0] == '.' || !is_connection(net, fd))
			continue;
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
		int mark = net->mark_count < RANKS_WORLD_MAX ? fork_close_in_child(fd) : -1;
		if (mark >= 0)
			net->marks[net->mark_count++] = mark;
	}
	if (descriptors)
		closedir(descriptors);
}

void net_release_sockets(struct net *net)
{
	while (net->mark_count > 0)
		fork_forget(net->marks[--net->mark_count]);
}
