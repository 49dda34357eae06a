/* SPDX-License-Identifier: BSD-3-Clause
 * Sending and receiving the messages of handshake.h, and the descriptors beside them. What arrives
 * may come from anybody: this file checks the length and the head before it looks at the rest, and
 * leaks no descriptor. */
#include "transport/handshake.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"

/* A control buffer, aligned as its headers have to be. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(HANDSHAKE_FDS_MAX * sizeof(int))];
};

struct transport_handshake transport_handshake_of(const struct transport *transport,
						  enum transport_handshake_kind kind)
{
	return (struct transport_handshake){
		.magic = HANDSHAKE_MAGIC,
		.version = HANDSHAKE_VERSION,
		.kind = kind,
		.job = transport->job,
		.rank = transport->rank,
		.size = transport->size,
		.pid = transport->pid,
	};
}

/* 0, or the errno. */
static int send_now(int fd, const struct transport_handshake *wire, const int *fds, int fd_count)
{
	union control control = {.bytes = {0}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)wire, .iov_len = sizeof *wire};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd_count > 0) {
		size_t bytes = (size_t)fd_count * sizeof(int);
		message.msg_control = control.bytes;
		message.msg_controllen = (unsigned)CMSG_SPACE(bytes); /* musl: a socklen_t */
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = (unsigned)CMSG_LEN(bytes);
		memcpy(CMSG_DATA(head), fds, bytes);
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

void transport_handshake_try_send(int fd, const struct transport_handshake *wire)
{
	/* If this cannot be sent, the end of the connection says the same with fewer words. */
	(void)send_now(fd, wire, NULL, 0);
}

ls_status transport_handshake_send(int fd, const struct transport_handshake *wire, const int *fds,
				   int fd_count, int peer,
				   const struct transport_exchange *exchange, uint64_t deadline_ns)
{
	for (;;) {
		int error = send_now(fd, wire, fds, fd_count);
		if (error == 0)
			return LS_OK;
		if (error == EPIPE || error == ECONNRESET)
			return LS_PEER_DIED;
		ls_status status = LS_OK;
		if (error == EAGAIN || error == EWOULDBLOCK) {
			struct pollfd poll = {.fd = fd, .events = POLLOUT};
			status = wait_fds(exchange->waiter, &poll, 1, peer, deadline_ns);
		} else if (error == ETOOMANYREFS) {
			/* Other processes of this user have too many descriptors in flight just
			 * now. */
			uint64_t retry_ns = clock_deadline_ns(HANDSHAKE_RETRY_MS);
			if (clock_now_ns() >= deadline_ns)
				return LS_TIMED_OUT;
			status = wait_fds(exchange->waiter, NULL, 0, peer, retry_ns);
			if (status == LS_TIMED_OUT)
				status = LS_OK;
		} else if (error != EINTR) {
			MESSAGE_SAY(MESSAGE_TRANSPORT_SYSTEM, peer, "sendmsg",
				    OPEN_LIMIT_TEXT(error));
			return transport_errno_status(error);
		}
		if (status != LS_OK)
			return status;
	}
}

/* Takes all descriptors out of a message, keeps at most `max` of them, and closes the others.
 * Returns how many it keeps. */
static int take_fds(struct msghdr *message, int *fds, int max)
{
	int count = 0;
	for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < here; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
			if (count < max)
				fds[count++] = fd;
			else
				close(fd);
		}
	}
	return count;
}

enum transport_handshake_result transport_handshake_receive(int fd, uint64_t job,
							    struct transport_handshake *wire,
							    int *fds, int max, int *fd_count)
{
	union control control;
	struct iovec part = {.iov_base = wire, .iov_len = sizeof *wire};
	/* The length, not the space: the padding would have room for one more descriptor. */
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = (unsigned)CMSG_LEN((size_t)max * sizeof(int)),
	};
	*wire = (struct transport_handshake){0};
	*fd_count = 0;
	ssize_t bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (bytes < 0 && errno == ECONNRESET) {
		/* The other end has closed before it had read all that I sent. What it sent itself
		 * comes next. */
		bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	}
	if (bytes < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? HANDSHAKE_AGAIN
										 : HANDSHAKE_END;
	int count = take_fds(&message, fds, max);
	enum transport_handshake_result result = HANDSHAKE_MESSAGE;
	if (bytes == 0)
		result = HANDSHAKE_END;
	else if (bytes != sizeof *wire || message.msg_flags & MSG_TRUNC ||
		 wire->magic != HANDSHAKE_MAGIC || wire->version != HANDSHAKE_VERSION ||
		 wire->job != job)
		result = HANDSHAKE_NONSENSE;
	else if (message.msg_flags & MSG_CTRUNC)
		result = count < max ? HANDSHAKE_EXHAUSTED : HANDSHAKE_NONSENSE;
	if (result != HANDSHAKE_MESSAGE) {
		transport_close_fds(fds, count);
		return result;
	}
	*fd_count = count;
	return HANDSHAKE_MESSAGE;
}

bool transport_handshake_same_user(int fd, int *pid, unsigned *uid)
{
	struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
	socklen_t bytes = sizeof peer;
	bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
	*pid = peer.pid;
	*uid = peer.uid;
	return known && peer.uid == geteuid();
}

bool transport_handshake_watch(const struct transport_exchange *exchange, int rank, int *fd,
			       bool *ended)
{
	*fd = -1;
	*ended = false;
	if (!exchange->pids || exchange->pids[rank] == getpid())
		return true;
	*fd = (int)syscall(SYS_pidfd_open, exchange->pids[rank], 0); /* it is close-on-exec */
	*ended = *fd < 0 && errno == ESRCH;
	return *fd >= 0 || (errno != EMFILE && errno != ENFILE);
}

struct transport_handshake_ranks transport_handshake_ranks(const struct transport *transport,
							   const struct transport_exchange *exchange)
{
	struct transport_handshake_ranks out = {.count = 0};
	bool some = ranks_any(&exchange->here);
	for (int rank = 0; rank < transport->size && out.count < RANKS_HOST_MAX; rank++)
		if (!some || ranks_have(&exchange->here, rank))
			out.rank[out.count++] = rank;
	return out;
}

int transport_handshake_place(const struct transport_handshake_ranks *ranks, int rank)
{
	for (int place = 0; place < ranks->count; place++)
		if (ranks->rank[place] == rank)
			return place;
	return -1;
}
