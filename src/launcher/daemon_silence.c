/* SPDX-License-Identifier: BSD-3-Clause
 * Whether a daemon is cut off from its launcher. A launcher that is stopped is as silent as a
 * network that is cut; but while it is stopped the kernel of its host still acknowledges what this
 * host sends. So a daemon that hears nothing sends something, and asks its own kernel what became
 * of it (sock_diag(7)): SSH_CONNECTION names the connection, which is sshd's. */
#include "launcher/daemon.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/settings.h"
#include "launcher/launcher_private.h"

enum {
	LOOK_MS = 500,
	LISTENED_MS = 2 * LOOK_MS, /* the most that counts between two looks */
	QUIET_MS = 1000,           /* silence after which the daemon sends something */
	TRIES = 2,                 /* of the kernel to send it again */
};

static bool read_end(const char *ip, unsigned port, int family, uint32_t address[4], uint16_t *out)
{
	*out = htons((uint16_t)port);
	return port > 0 && port <= UINT16_MAX && inet_pton(family, ip, address) == 1;
}

void launcher_daemon_silence_init(struct launcher_daemon_silence *silence)
{
	const char *connection = launcher_variable("SSH_CONNECTION");
	struct settings settings;
	char far[64], near[64];
	unsigned far_port, near_port;

	*silence = (struct launcher_daemon_silence){.knows = false};
	if (!connection ||
	    sscanf(connection, "%63s %u %63s %u", far, &far_port, near, &near_port) != 4 ||
	    settings_read(NULL, &settings) != LS_OK)
		return;
	int family = strchr(near, ':') ? AF_INET6 : AF_INET;
	silence->family = (uint8_t)family;
	silence->limit_ms = settings.unreachable_ms;
	silence->knows = read_end(near, near_port, family, silence->near, &silence->near_port) &&
			 read_end(far, far_port, family, silence->far, &silence->far_port);
}

/* Finds the kernel's facts in its answer. */
static bool read_answer(const char *bytes, size_t got, struct tcp_info *out)
{
	struct nlmsghdr head;
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct inet_diag_msg));

	if (got < at)
		return false;
	memcpy(&head, bytes, sizeof head);
	if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	memset(out, 0, sizeof *out);
	while (at + sizeof(struct rtattr) <= got) {
		struct rtattr attribute;
		memcpy(&attribute, bytes + at, sizeof attribute);
		if (attribute.rta_len < sizeof attribute || attribute.rta_len > got - at)
			return false;
		size_t count = attribute.rta_len - sizeof attribute;
		if (attribute.rta_type == INET_DIAG_INFO) {
			memcpy(out, bytes + at + sizeof attribute,
			       count < sizeof *out ? count : sizeof *out);
			return true;
		}
		at += RTA_ALIGN(attribute.rta_len);
	}
	return false;
}

/* False: the kernel does not say. */
static bool ask_kernel(const struct launcher_daemon_silence *silence, struct tcp_info *out)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = {.nlmsg_len = sizeof question,
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = silence->family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_ext = 1 << (INET_DIAG_INFO - 1),
			 .idiag_states = UINT32_MAX,
			 .id = {.idiag_sport = silence->near_port,
				.idiag_dport = silence->far_port,
				.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	char answer[2048];
	ssize_t got = -1;

	memcpy(question.body.id.idiag_src, silence->near, sizeof silence->near);
	memcpy(question.body.id.idiag_dst, silence->far, sizeof silence->far);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return false;
	/* The kernel answers within the send. */
	if (send(fd, &question, sizeof question, MSG_DONTWAIT) == (ssize_t)sizeof question)
		got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
	close(fd);
	return got > 0 && read_answer(answer, (size_t)got, out);
}

/* Without a route the kernel cannot send at all, and probes instead. */
static bool is_cut(const struct launcher_daemon_silence *silence)
{
	struct tcp_info info;

	return ask_kernel(silence, &info) && info.tcpi_retransmits + info.tcpi_probes >= TRIES &&
	       info.tcpi_last_ack_recv >= silence->limit_ms;
}

uint64_t launcher_daemon_silence_deadline(const struct launcher_daemon_silence *silence)
{
	return silence->knows ? silence->looked_ns + LOOK_MS * UINT64_C(1000000) : CLOCK_NEVER;
}

bool launcher_daemon_silence_look(struct launcher_daemon_silence *silence,
				  struct launcher_channel *channel)
{
	uint64_t now_ns = clock_now_ns(), passed_ns = now_ns - silence->looked_ns;

	if (!silence->knows || passed_ns < LOOK_MS * UINT64_C(1000000))
		return false;
	silence->looked_ns = now_ns;
	if (channel->received != silence->received) {
		silence->received = channel->received;
		silence->silent_ns = 0;
		return false;
	}
	silence->silent_ns += passed_ns < LISTENED_MS * UINT64_C(1000000)
				      ? passed_ns
				      : LISTENED_MS * UINT64_C(1000000);
	if (silence->silent_ns < QUIET_MS * UINT64_C(1000000))
		return false;
	if (channel->to.start == channel->to.end) {
		launcher_channel_send(channel, CHANNEL_ALIVE, NULL, 0, NULL, 0);
		launcher_channel_flush(channel);
	}
	if (silence->silent_ns < silence->limit_ms * UINT64_C(1000000) || !is_cut(silence))
		return false;
	MESSAGE_SAY(MESSAGE_RUN_CUT, (double)silence->silent_ns / 1e9);
	return true;
}
