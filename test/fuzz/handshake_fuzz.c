/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: what ranks send each other over a socket while they connect, with descriptors. The
 * first byte says how many descriptors are sent, how many are expected, and whether the rest is
 * bytes or pairs of position and difference, which change a valid message. Whatever comes, no
 * descriptor stays open. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/handshake.h"

enum { JOB = 7, FDS_MAX = 3 };

/* The lowest free descriptor: the same before and after, unless one has stayed open. */
static int lowest_free(void)
{
	int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	MUST(fd >= 0);
	close(fd);
	return fd;
}

static void send_input(int fd, const void *bytes, size_t size, int fd_count)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd_count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
		for (int i = 0; i < fd_count; i++)
			memcpy(CMSG_DATA(head) + (size_t)i * sizeof(int), &fd, sizeof(int));
	}
	MUST(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct transport_handshake valid = {.magic = HANDSHAKE_MAGIC,
					    .version = HANDSHAKE_VERSION,
					    .kind = HANDSHAKE_TABLE,
					    .job = JOB,
					    .size = 4,
					    .count = 2};
	struct transport_handshake wire;
	uint8_t bytes[sizeof valid];
	int ends[2], fds[FDS_MAX], fd_count = -1, before = lowest_free();
	if (size < 1 || size > FUZZ_INPUT_MAX)
		return 0;
	int sent = data[0] & 3, room = data[0] >> 2 & 3;
	bool over = data[0] >> 4 & 1;
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	memcpy(bytes, &valid, sizeof bytes);
	for (size_t i = 1; over && i + 1 < size; i += 2)
		bytes[data[i] % sizeof bytes] ^= data[i + 1];
	send_input(ends[0], over ? bytes : data + 1, over ? sizeof bytes : size - 1, sent);
	enum transport_handshake_result result =
		transport_handshake_receive(ends[1], JOB, &wire, fds, room, &fd_count);
	if (result == HANDSHAKE_MESSAGE) {
		MUST(wire.magic == HANDSHAKE_MAGIC && wire.version == HANDSHAKE_VERSION &&
		     wire.job == JOB);
		MUST(fd_count == sent && fd_count <= room);
		MUST(over || size - 1 == sizeof wire);
		for (int i = 0; i < fd_count; i++)
			MUST(fcntl(fds[i], F_GETFD) == FD_CLOEXEC && close(fds[i]) == 0);
	} else {
		MUST(fd_count == 0 && result != HANDSHAKE_AGAIN);
	}
	MUST(transport_handshake_receive(ends[1], JOB, &wire, fds, room, &fd_count) ==
	     HANDSHAKE_AGAIN);
	close(ends[0]);
	close(ends[1]);
	MUST(lowest_free() == before);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size =
		1 + fuzz_random(state) %
			    (fuzz_random(state) % 4 ? 8 : 2 * sizeof(struct transport_handshake));
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)fuzz_random(state);
	return size;
}
