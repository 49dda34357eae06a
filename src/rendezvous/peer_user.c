/* SPDX-License-Identifier: BSD-3-Clause
 * Whose process is at the other end of a connection, as the kernel says. A Unix socket knows; for
 * TCP within this host this file asks the kernel's table of sockets for the socket at the other end
 * (sock_diag(7)). */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/meet.h"

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

struct reply {
	_Alignas(struct nlmsghdr) char bytes[1024];
};

union end {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static void fill_end(const union end *end, uint16_t *port, uint32_t address[4])
{
	if (end->any.sa_family == AF_INET) {
		*port = end->in.sin_port;
		address[0] = end->in.sin_addr.s_addr;
	} else {
		*port = end->in6.sin6_port;
		memcpy(address, &end->in6.sin6_addr, sizeof end->in6.sin6_addr);
	}
}

/* Asks for the socket at `near` that is connected to `far`. The kernel answers within the send.
 * False: no answer, or there is no such socket. */
static bool ask_kernel(int netlink, const union end *near, const union end *far,
		       struct inet_diag_msg *out)
{
	struct question question = {
		.head = {.nlmsg_len = sizeof question,
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = (uint8_t)near->any.sa_family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = UINT32_MAX,
			 .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	struct reply reply;
	struct nlmsghdr head;

	fill_end(near, &question.body.id.idiag_sport, question.body.id.idiag_src);
	fill_end(far, &question.body.id.idiag_dport, question.body.id.idiag_dst);
	if (send(netlink, &question, sizeof question, MSG_DONTWAIT) != (ssize_t)sizeof question)
		return false;
	ssize_t got = recv(netlink, &reply, sizeof reply, MSG_DONTWAIT);
	if (got < (ssize_t)(NLMSG_HDRLEN + sizeof *out))
		return false;
	memcpy(&head, &reply, sizeof head);
	if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	memcpy(out, reply.bytes + NLMSG_HDRLEN, sizeof *out);
	return true;
}

/* Whether the kernel answers at all: a socket of this process must be found. "Not found" and "not
 * supported" are one error number. */
static bool kernel_answers(int netlink)
{
	union end near = {.in = {.sin_family = AF_INET}}, none = near;
	struct inet_diag_msg found;
	socklen_t length = sizeof near;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	near.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bool there = fd >= 0 && bind(fd, &near.any, sizeof near.in) == 0 && listen(fd, 1) == 0 &&
		     getsockname(fd, &near.any, &length) == 0;
	/* Without a socket to ask for, this function cannot tell; then "the kernel answers" is the
	 * strict and safe result. */
	bool heard = !there || ask_kernel(netlink, &near, &none, &found);
	rendezvous_close_fd(&fd);
	return heard;
}

static enum rendezvous_peer find_tcp(int fd, struct ucred *out)
{
	union end here, there;
	socklen_t here_length = sizeof here, there_length = sizeof there;
	struct inet_diag_msg found;
	enum rendezvous_peer peer = RENDEZVOUS_PEER_GONE;

	memset(&here, 0, sizeof here);
	memset(&there, 0, sizeof there);
	if (getsockname(fd, &here.any, &here_length) != 0 ||
	    getpeername(fd, &there.any, &there_length) != 0)
		return peer;
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (netlink < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM
			       ? RENDEZVOUS_PEER_EXHAUSTED
			       : RENDEZVOUS_PEER_HIDDEN;
	if (!ask_kernel(netlink, &there, &here, &found)) {
		if (!kernel_answers(netlink))
			peer = RENDEZVOUS_PEER_HIDDEN;
	} else if (found.idiag_state == TCP_ESTABLISHED && found.idiag_inode != 0) {
		/* A socket that is closed, or not accepted yet, belongs to no file, and counts as
		 * root's. */
		out->uid = found.idiag_uid;
		peer = RENDEZVOUS_PEER_KNOWN;
	}
	rendezvous_close_fd(&netlink);
	return peer;
}

enum rendezvous_peer rendezvous_find_peer(int fd, bool tcp, struct ucred *out)
{
	socklen_t length = sizeof *out;

	memset(out, 0, sizeof *out);
	if (tcp)
		return find_tcp(fd, out);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &length) == 0 && length == sizeof *out
		       ? RENDEZVOUS_PEER_KNOWN
		       : RENDEZVOUS_PEER_GONE;
}
