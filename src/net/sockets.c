/* SPDX-License-Identifier: BSD-3-Clause
 * Who holds the connections of this rank, and who can still connect. Peers notice the end of a rank
 * by the end of its connections. But UCX's sockets are not close-on-exec: a program that the rank
 * has started, a child that it has forked, and the program that it becomes by exec would hold them.
 * So this process's sockets are marked, and children close their copies. UCX has several sockets
 * for each connection; it is enough to find the one that leads from where one rank listens. */
#include "net/peer.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "base/messages.h"
#include "base/open_limit.h"

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

static void guard(struct net *net, int fd)
{
	if (!is_connection(net, fd))
		return;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	int mark = net->mark_count < RANKS_WORLD_MAX ? fork_close_in_child(fd) : -1;
	if (mark >= 0)
		net->marks[net->mark_count++] = mark;
}

/* The most that Linux gives a process, if nobody has raised that (fs.nr_open). */
enum { DESCRIPTORS_MAX = 1 << 20 };

static void each_descriptor(struct net *net, void (*act)(struct net *net, int fd))
{
	DIR *descriptors = opendir("/proc/self/fd");
	if (!descriptors) { /* there may be no descriptor left for it */
		for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
			act(net, fd);
		return;
	}
	for (const struct dirent *entry; (entry = readdir(descriptors));)
		if (entry->d_name[0] != '.')
			act(net, (int)strtol(entry->d_name, NULL, 10));
	closedir(descriptors);
}

void net_guard_sockets(struct net *net)
{
	each_descriptor(net, guard);
}

void net_release_sockets(struct net *net)
{
	while (net->mark_count > 0)
		fork_forget(net->marks[--net->mark_count]);
}

/* ---- who can connect ---- */

/* UCX's TCP listens as long as its worker lives, and ends the process when somebody sends there
 * what it does not expect. UCX has no function that ends this, and does not bear it if another
 * closes or shuts the socket. But the kernel can drop what comes to the socket. */

/* What peers have sent at least on each connection when all are connected. */
enum { GREETING_BYTES = 48 };

/* The port, as in addresses, if the socket listens at the host's address; else 0. */
static uint16_t port_of_listener(const struct net *net, int fd)
{
	union end here;
	struct net_address host = net->host;
	int listens = 0;
	socklen_t here_bytes = sizeof here, bytes = sizeof listens;
	memset(&here, 0, sizeof here);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens ||
	    getsockname(fd, &here.any, &here_bytes) != 0)
		return 0;
	/* The port is at the same place in both families. */
	memcpy(host.data + offsetof(struct sockaddr_in, sin_port), &here.four.sin_port, 2);
	return is_at(&here, &host) ? here.four.sin_port : 0;
}

static void note_port(struct net *net, int fd)
{
	uint16_t port = port_of_listener(net, fd);
	net->ports.old[port / 64] |= UINT64_C(1) << port % 64;
}

void net_note_listeners(struct net *net)
{
	each_descriptor(net, note_port);
}

static bool contains(const unsigned char *bytes, size_t size, uint16_t port)
{
	for (size_t i = 0; i + sizeof port <= size; i++)
		if (memcmp(bytes + i, &port, sizeof port) == 0)
			return true;
	return false;
}

static void find_port(struct net *net, int fd)
{
	uint16_t port = port_of_listener(net, fd);
	if (port == 0 || net->ports.old[port / 64] >> port % 64 & 1 ||
	    !contains(net->ports.worker, net->ports.worker_bytes, port))
		return;
	net->ports.found++;
	net->ports.tcp = port;
	net->ports.tcp_fd = fd;
}

void net_find_listener(struct net *net)
{
	ucp_address_t *address;
	size_t bytes;
	/* Where UCX chooses the devices it may still be making connections through others. */
	if (!net->device[0] ||
	    net->ucx->ucp_worker_get_address(net->worker, &address, &bytes) != UCS_OK)
		return;
	net->ports.worker = (const unsigned char *)address;
	net->ports.worker_bytes = bytes;
	each_descriptor(net, find_port);
	net->ports.worker = NULL;
	net->ucx->ucp_worker_release_address(net->worker, address);
	/* Another thread of the program may have begun to listen just now. */
	if (net->ports.found != 1)
		net->ports.tcp = 0;
}

/* Whether the socket is a connection to where UCX listens, over which no rank has said anything. */
static bool is_strange(const struct net *net, int fd)
{
	union end here;
	struct net_address host = net->host;
	struct tcp_info info;
	socklen_t here_bytes = sizeof here, bytes = sizeof info;
	memset(&here, 0, sizeof here);
	memset(&info, 0, sizeof info);
	memcpy(host.data + offsetof(struct sockaddr_in, sin_port), &net->ports.tcp, 2);
	return getsockname(fd, &here.any, &here_bytes) == 0 &&
	       (is_at(&here, &net->address) || is_at(&here, &host)) &&
	       getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
	       bytes >= offsetof(struct tcp_info, tcpi_bytes_received) + 8 &&
	       info.tcpi_bytes_received < GREETING_BYTES;
}

/* When UCX frees a listener, it leaves alone the connections that the listener has accepted. The
 * first bytes that come over one of them make UCX's thread call the freed listener. So the thread
 * has to forget these sockets first, and before them the listener's, which accepts more. A call of
 * UCX's thread that goes on ends before ucs_async_remove_handler returns. */

/* Whether ranks connect to this socket, or (accepted) it is the end of such a connection here. */
static bool is_of_listener(const struct net *net, int fd, bool accepted)
{
	union end here;
	int listens = 0;
	socklen_t here_bytes = sizeof here, bytes = sizeof listens;
	memset(&here, 0, sizeof here);
	return getsockname(fd, &here.any, &here_bytes) == 0 && is_at(&here, &net->address) &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 &&
	       !listens == accepted;
}

static void forget_listener(struct net *net, int fd)
{
	if (is_of_listener(net, fd, false))
		(void)net->ucx->ucs_async_remove_handler(fd, true);
}

/* The connections of peers that are connected are needed. */
static void forget_accepted(struct net *net, int fd)
{
	if (is_of_listener(net, fd, true) && (!net->is_connected || is_strange(net, fd)))
		(void)net->ucx->ucs_async_remove_handler(fd, true);
}

void net_forget_accepted(struct net *net)
{
	each_descriptor(net, forget_listener);
	each_descriptor(net, forget_accepted);
}

/* When UCX's TCP cannot accept a connection, for want of a descriptor for example, UCX closes the
 * listening socket. But UCX's thread still knows that descriptor: it would not end with the worker,
 * and no later worker could use a socket with the same number. */
void net_forget_listener(struct net *net)
{
	if (net->ports.tcp)
		(void)net->ucx->ucs_async_remove_handler(net->ports.tcp_fd, true);
}

static void deafen(struct net *net, int fd)
{
	struct sock_filter drop = {.code = BPF_RET | BPF_K, .k = 0}; /* keeps 0 bytes of a packet */
	const struct sock_fprog program = {.len = 1, .filter = &drop};
	if (port_of_listener(net, fd) == net->ports.tcp || is_strange(net, fd))
		(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void net_stop_hearing(struct net *net)
{
	if (net->ports.tcp)
		each_descriptor(net, deafen);
}

ls_status net_say_limit(const struct net *net)
{
	MESSAGE_SAY(MESSAGE_NET_LIMIT, net->link.rank, (unsigned long long)open_limit_get());
	return LS_OUT_OF_MEMORY;
}
