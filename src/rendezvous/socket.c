/* SPDX-License-Identifier: BSD-3-Clause
 * The sockets of the rendezvous: abstract Unix and TCP, listening, connecting, and passing
 * descriptors. Nothing here waits. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/open_limit.h"
#include "rendezvous/meet.h"

/* Room for more than one descriptor, so that what comes uninvited can be seen, and closed. */
enum { PASSED_MAX = 4 };

enum { SYN_TRIES = 2 }; /* after the first, within 3 to 7 s */

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_un un;
};

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(PASSED_MAX * sizeof(int))];
};

void rendezvous_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Returns the length of *out; 0: the place's address is no valid one. */
static socklen_t address_fill(const struct rendezvous_place *place, union address *out)
{
	memset(out, 0, sizeof *out);
	if (place->tcp && inet_pton(AF_INET, place->address, &out->in.sin_addr) == 1) {
		out->in.sin_family = AF_INET;
		out->in.sin_port = htons(place->port);
		return sizeof out->in;
	}
	if (place->tcp && inet_pton(AF_INET6, place->address, &out->in6.sin6_addr) == 1) {
		out->in6.sin6_family = AF_INET6;
		out->in6.sin6_port = htons(place->port);
		return sizeof out->in6;
	}
	if (place->tcp)
		return 0;
	size_t length = strnlen(place->address, sizeof place->address);
	if (length == 0 || length > sizeof out->un.sun_path - 1)
		return 0;
	out->un.sun_family = AF_UNIX;
	memcpy(out->un.sun_path + 1, place->address, length); /* a NUL in front: abstract */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int open_socket(const struct rendezvous_place *place, const union address *address)
{
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int fd = socket(address->any.sa_family, type, 0);
	if (fd < 0 || !place->tcp)
		return fd;

	/* Without these options the socket works as well, only less smoothly. */
	int on = 1;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	return fd;
}

static bool choose_address(struct rendezvous_place *place)
{
	uint64_t number = 0;

	if (place->tcp) {
		snprintf(place->address, sizeof place->address, "127.0.0.1");
		return true;
	}
	if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
		return false;
	snprintf(place->address, sizeof place->address, "lockstep-%u-%016llx", (unsigned)geteuid(),
		 (unsigned long long)number);
	return true;
}

static in_port_t port_of(const union address *address)
{
	return address->any.sa_family == AF_INET ? address->in.sin_port : address->in6.sin6_port;
}

static bool read_port(int fd, struct rendezvous_place *place)
{
	union address address;
	socklen_t length = sizeof address;
	if (getsockname(fd, &address.any, &length) != 0)
		return false;
	place->port = ntohs(port_of(&address));
	return true;
}

static bool is_loopback(const union address *address)
{
	return address->any.sa_family == AF_INET ? ntohl(address->in.sin_addr.s_addr) >> 24 == 127
						 : IN6_IS_ADDR_LOOPBACK(&address->in6.sin6_addr);
}

static bool is_same_host(const union address *a, const union address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (is_loopback(a) && is_loopback(b))
		return true;
	return a->any.sa_family == AF_INET
		       ? a->in.sin_addr.s_addr == b->in.sin_addr.s_addr
		       : IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
}

/* The addresses of both ends of a TCP connection. */
static bool read_ends(int fd, union address *here, union address *there)
{
	socklen_t here_length = sizeof *here, there_length = sizeof *there;
	memset(here, 0, sizeof *here);
	memset(there, 0, sizeof *there);
	return getsockname(fd, &here->any, &here_length) == 0 &&
	       getpeername(fd, &there->any, &there_length) == 0;
}

bool rendezvous_find_remote(int fd, bool *remote)
{
	union address here, there;
	bool known = read_ends(fd, &here, &there);
	*remote = !known || !is_same_host(&here, &there);
	return known;
}

void rendezvous_own_ip(int fd, char out[RENDEZVOUS_IP_BYTES])
{
	union address here, there;
	memset(out, 0, RENDEZVOUS_IP_BYTES);
	if (!read_ends(fd, &here, &there) || is_loopback(&here))
		return;
	const void *ip = here.any.sa_family == AF_INET ? (const void *)&here.in.sin_addr
						       : (const void *)&here.in6.sin6_addr;
	(void)inet_ntop(here.any.sa_family, ip, out, RENDEZVOUS_IP_BYTES);
}

bool rendezvous_place_is_loopback(const struct rendezvous_place *place)
{
	union address address;
	return !place->tcp || (address_fill(place, &address) != 0 && is_loopback(&address));
}

ls_status rendezvous_listen(const struct rendezvous_place *place, struct rendezvous_place *bound,
			    int *listen_fd, char *text)
{
	char name[RENDEZVOUS_PLACE_BYTES];
	union address address;
	int fd = -1;

	*bound = *place;
	*listen_fd = -1;
	if (place->address[0] == '\0' && !choose_address(bound))
		goto failed;
	socklen_t length = address_fill(bound, &address);
	errno = EINVAL;
	if (length == 0)
		goto failed;
	fd = open_socket(bound, &address);
	if (fd < 0)
		goto failed;
	if (bind(fd, &address.any, length) != 0 || listen(fd, SOMAXCONN) != 0)
		goto failed;
	if (bound->tcp && !read_port(fd, bound))
		goto failed;
	*listen_fd = fd;
	return LS_OK;

failed:;
	int error = errno;
	rendezvous_close_fd(&fd);
	rendezvous_place_name(bound, name);
	if (error == EADDRINUSE) {
		rendezvous_text_add(
			text, "the rendezvous address %s is in use by another program: ", name);
		rendezvous_text_add(
			text, place->tcp ? "choose a free MASTER_PORT, or end what uses this one"
					 : "choose another name, or end what uses this one");
		return LS_PORT_TAKEN;
	}
	if (error == EADDRNOTAVAIL) {
		rendezvous_text_add(text,
				    "this host has no address %s, at which rank 0 has to listen: "
				    "MASTER_ADDR must be an address of the host of rank 0",
				    bound->address);
		return LS_BAD_ARGUMENT;
	}
	rendezvous_text_add(text, "cannot listen at the rendezvous address %s: %s", name,
			    OPEN_LIMIT_TEXT(error));
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS
		       ? LS_OUT_OF_MEMORY
		       : LS_SYSTEM;
}

int rendezvous_dial(const struct rendezvous_place *place, int *fd)
{
	union address address;
	socklen_t length = address_fill(place, &address);

	*fd = -1;
	if (length == 0)
		return EINVAL;
	*fd = open_socket(place, &address);
	if (*fd < 0)
		return errno;
	/* While the other host is silent the kernel tries ever more rarely, up to once a minute;
	 * beginning anew finds it soon after it has started. */
	int tries = SYN_TRIES;
	if (place->tcp)
		(void)setsockopt(*fd, IPPROTO_TCP, TCP_SYNCNT, &tries, sizeof tries);
	if (connect(*fd, &address.any, length) == 0)
		return rendezvous_dialled(place, *fd);
	/* Interrupted or not, the kernel goes on connecting. */
	return errno == EINTR ? EINPROGRESS : errno;
}

int rendezvous_dialled(const struct rendezvous_place *place, int fd)
{
	int error = 0;
	socklen_t length = sizeof error;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		return errno;
	if (error != 0 || !place->tcp)
		return error;

	union address here, there;
	if (!read_ends(fd, &here, &there))
		return errno == ENOTCONN ? ECONNREFUSED : errno;
	if (port_of(&here) == port_of(&there) && is_same_host(&here, &there)) {
		/* Leave no trace on the port that the server needs. */
		struct linger none = {.l_onoff = 1, .l_linger = 0};
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
		return ECONNREFUSED;
	}
	return 0;
}

/* Only Unix sockets pass descriptors. */
static void take_descriptors(struct msghdr *message, int *passed)
{
	struct cmsghdr *part = CMSG_FIRSTHDR(message);
	for (; part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
			if (*passed < 0)
				*passed = fd;
			else
				rendezvous_close_fd(&fd);
		}
	}
}

ssize_t rendezvous_receive(int fd, void *to, size_t bytes, int *passed)
{
	union control control;
	struct iovec part = {.iov_base = to, .iov_len = bytes};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};

	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got >= 0)
		take_descriptors(&message, passed);
	return got;
}

ssize_t rendezvous_send(int fd, const void *from, size_t bytes, int passed)
{
	union control control;
	struct iovec part = {.iov_base = (void *)from, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (passed >= 0) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof passed);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof passed);
		memcpy(CMSG_DATA(header), &passed, sizeof passed);
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool rendezvous_drain(int fd)
{
	char waste[1024];
	int none = -1;

	for (int i = 0; i < 16; i++) {
		ssize_t got = rendezvous_receive(fd, waste, sizeof waste, &none);
		rendezvous_close_fd(&none);
		if (got == 0)
			return true;
		if (got < 0)
			return errno != EAGAIN && errno != EINTR;
	}
	return false;
}

bool rendezvous_is_exhaustion(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}
