/* SPDX-License-Identifier: BSD-3-Clause
 * The sockets of the rendezvous: abstract Unix and TCP on loopback, listening, connecting, and
 * passing descriptors. Nothing here waits. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/meet.h"

/* Room for more than one descriptor, so that what comes uninvited can be seen, and closed. */
enum { PASSED_MAX = 4 };

union address {
	struct sockaddr any;
	struct sockaddr_in in;
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

/* Length of *out, 0 if the place cannot be said as an address. */
static socklen_t address_fill(const struct rendezvous_place *place, union address *out)
{
	memset(out, 0, sizeof *out);
	if (place->tcp) {
		out->in.sin_family = AF_INET;
		out->in.sin_port = htons(place->port);
		if (inet_pton(AF_INET, place->address, &out->in.sin_addr) != 1)
			return 0;
		/* Only loopback: nothing here keeps strangers of other machines out. */
		return ntohl(out->in.sin_addr.s_addr) >> 24 == 127 ? sizeof out->in : 0;
	}
	size_t length = strnlen(place->address, sizeof place->address);
	if (length == 0 || length > sizeof out->un.sun_path - 1)
		return 0;
	out->un.sun_family = AF_UNIX;
	memcpy(out->un.sun_path + 1, place->address, length); /* a NUL in front: abstract */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int open_socket(const struct rendezvous_place *place)
{
	int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int fd = socket(place->tcp ? AF_INET : AF_UNIX, type, 0);
	if (fd < 0 || !place->tcp)
		return fd;

	/* Without these it works as well, only less smoothly. */
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

static bool read_port(int fd, struct rendezvous_place *place)
{
	union address address;
	socklen_t length = sizeof address;
	if (getsockname(fd, &address.any, &length) != 0)
		return false;
	place->port = ntohs(address.in.sin_port);
	return true;
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
	fd = open_socket(bound);
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
	errno = error;
	rendezvous_text_add(text, "cannot listen at the rendezvous address %s: %m", name);
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
	*fd = open_socket(place);
	if (*fd < 0)
		return errno;
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
	socklen_t here_length = sizeof here, there_length = sizeof there;
	if (getsockname(fd, &here.any, &here_length) != 0 ||
	    getpeername(fd, &there.any, &there_length) != 0)
		return errno == ENOTCONN ? ECONNREFUSED : errno;
	if (here.in.sin_port == there.in.sin_port &&
	    here.in.sin_addr.s_addr == there.in.sin_addr.s_addr) {
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
	for (; part != NULL; part = CMSG_NXTHDR(message, part)) {
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
