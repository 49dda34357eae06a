/* SPDX-License-Identifier: BSD-3-Clause
 * The payload sockets (payloads.c): how they are connected, polled and closed. As with UCX, each
 * rank connects to the ranks above it. Whoever connects says first who it is; the other side drops
 * a connection that says anything else. */
#include "net/peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/messages.h"
#include "base/open_limit.h"

enum {
	GUESTS_MORE = 64, /* strangers that may connect and say nothing, before one is dropped */
	/* The kernel's own buffers grow to megabytes. What is in them leaves the processor's
	 * caches, and a payload then takes 1.5 to 2 times as long. The kernel doubles these
	 * numbers. */
	SENT_BYTES = 256 << 10,
	RECEIVED_BYTES = 1 << 20,
};

/* What a rank says when it has connected. */
struct hello {
	uint64_t magic, job;
	uint32_t epoch;
	uint16_t source, target;
};
_Static_assert(sizeof(struct hello) == 24, "no padding, which would be sent");
static const uint64_t hello_magic = UINT64_C(0x6c73207061796c64);

/* Somebody who has connected, and whose hello is not complete. */
struct net_guest {
	int fd;
	size_t got;
	struct hello hello;
};

static struct hello hello_to(const struct net *net, int rank)
{
	return (struct hello){.magic = hello_magic,
			      .job = net->options.job,
			      .epoch = net->options.epoch,
			      .source = (uint16_t)net->link.rank,
			      .target = (uint16_t)rank};
}

static ls_status say_failed(const struct net *net, const char *what)
{
	if (errno == EMFILE)
		return net_say_limit(net);
	MESSAGE_SAY(MESSAGE_NET_SYSTEM, what, strerror(errno));
	return errno == ENOMEM || errno == ENFILE ? LS_OUT_OF_MEMORY : LS_SYSTEM;
}

/* ---- polling ---- */

/* Makes net->poll_fd readable when one of these events comes (of epoll; 0: never). */
static bool poll_socket(const struct net *net, int fd, uint32_t events, uint32_t before)
{
	struct epoll_event event = {.events = events};
	int act = !events ? EPOLL_CTL_DEL : before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	return events == before || epoll_ctl(net->poll_fd, act, fd, &event) == 0;
}

void net_poll_payload_socket(struct net_peer *peer, uint32_t events)
{
	struct net_payloads *own = &peer->payloads;
	if (own->fd >= 0 && poll_socket(peer->net, own->fd, events, own->polled))
		own->polled = events;
}

bool net_poll_payloads(struct net *net)
{
	bool waits = true;
	for (struct net_peer *peer = net->moving; peer; peer = peer->payloads.next_moving) {
		const struct net_payloads *own = &peer->payloads;
		net_poll_payload_socket(peer, (own->out.first ? EPOLLOUT : 0) |
						      (own->in.first ? EPOLLIN : 0));
		/* UCX had no memory to say that this one has come. */
		waits = waits && !(own->in.first && net_has_moved(net_transfer_of(own->in.first)));
	}
	return waits;
}

/* ---- the ends of sockets ---- */

void net_close_payload_socket(struct net_peer *peer)
{
	struct net_payloads *own = &peer->payloads;
	if (own->fd < 0)
		return;
	net_poll_payload_socket(peer, 0);
	if (own->mark >= 0)
		fork_forget(own->mark);
	close(own->fd);
	own->fd = -1;
}

/* The others keep their order: the first is the oldest. */
static void remove_guest(struct net *net, int i)
{
	net->guest_count--;
	memmove(&net->guests[i], &net->guests[i + 1],
		(size_t)(net->guest_count - i) * sizeof net->guests[0]);
}

static void drop_guest(struct net *net, int i)
{
	close(net->guests[i].fd); /* which ends the polling of it, too */
	remove_guest(net, i);
}

void net_stop_listening_for_payloads(struct net *net)
{
	while (net->guest_count > 0)
		drop_guest(net, net->guest_count - 1);
	if (net->payload_listener >= 0)
		close(net->payload_listener);
	net->payload_listener = -1;
	free(net->guests);
	net->guests = NULL;
}

/* ---- connecting ---- */

static int make_socket(const struct net *net)
{
	const struct sockaddr *host = (const struct sockaddr *)(const void *)net->host.data;
	const int one = 1, sent = SENT_BYTES, received = RECEIVED_BYTES;
	int fd = socket(host->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* Accepted sockets have those of the listener. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sent, sizeof sent);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &received, sizeof received);
	return fd;
}

static void set_port(struct net_address *address, uint16_t port)
{
	/* It is at the same place in both families. */
	memcpy(address->data + offsetof(struct sockaddr_in, sin_port), &port, sizeof port);
}

ls_status net_listen_for_payloads(struct net *net)
{
	struct net_address here = net->host;
	struct sockaddr *address = (struct sockaddr *)(void *)here.data;
	socklen_t bytes = (socklen_t)here.bytes;
	struct epoll_event event = {.events = EPOLLIN};
	net->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (net->poll_fd < 0)
		return say_failed(net, "epoll_create1");
	net->guest_room = net->link.size + GUESTS_MORE;
	net->guests = calloc((size_t)net->guest_room, sizeof *net->guests);
	net->payload_listener = make_socket(net);
	set_port(&here, 0);
	if (!net->guests) {
		MESSAGE_SAY(MESSAGE_NET_MEMORY, net->link.size);
		return LS_OUT_OF_MEMORY;
	}
	if (epoll_ctl(net->poll_fd, EPOLL_CTL_ADD, net->ucx_fd, &event) != 0 ||
	    net->payload_listener < 0 || bind(net->payload_listener, address, bytes) != 0 ||
	    listen(net->payload_listener, net->guest_room) != 0 ||
	    getsockname(net->payload_listener, address, &bytes) != 0 ||
	    !poll_socket(net, net->payload_listener, EPOLLIN, 0))
		return say_failed(net, "a socket for payloads");
	memcpy(&net->address.payload_port, here.data + offsetof(struct sockaddr_in, sin_port),
	       sizeof net->address.payload_port);
	return LS_OK;
}

ls_status net_connect_payload_socket(struct net_peer *peer)
{
	struct net *net = peer->net;
	struct net_payloads *own = &peer->payloads;
	struct net_address here = net->host, there = peer->address;
	set_port(&here, 0);
	set_port(&there, peer->address.payload_port);
	own->fd = make_socket(net);
	if (own->fd < 0)
		return say_failed(net, "socket");
	own->mark = fork_close_in_child(own->fd);
	const struct sockaddr *from = (const struct sockaddr *)(const void *)here.data;
	const struct sockaddr *to = (const struct sockaddr *)(const void *)there.data;
	bool bound = bind(own->fd, from, (socklen_t)here.bytes) == 0;
	if (!bound || (connect(own->fd, to, (socklen_t)there.bytes) != 0 && errno != EINPROGRESS))
		net_break_by(peer, UCS_ERR_UNREACHABLE);
	else
		net_poll_payload_socket(peer, EPOLLOUT);
	return LS_OK;
}

static void be_ready(struct net_peer *peer)
{
	peer->payloads.is_ready = true;
	net_poll_payload_socket(peer, 0);
	peer->net->ready += net_peer_is_ready(peer);
}

/* Says hello as soon as the socket is connected. */
static void introduce(struct net_peer *peer)
{
	struct hello hello = hello_to(peer->net, peer->rank);
	ssize_t sent = send(peer->payloads.fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent == (ssize_t)sizeof hello)
		be_ready(peer);
	else if (sent >= 0 || (errno != EAGAIN && errno != EINTR))
		net_break_by(peer, UCS_ERR_UNREACHABLE);
}

/* True: the guest is a peer, which has the socket now. */
static bool is_peer(struct net *net, const struct net_guest *guest)
{
	int rank = guest->hello.source;
	struct hello expected = hello_to(net, net->link.rank);
	expected.source = (uint16_t)rank;
	if (rank >= net->link.rank || memcmp(&guest->hello, &expected, sizeof expected) != 0)
		return false;
	struct net_peer *peer = &net->peers[rank];
	if (peer->address.bytes == 0 || peer->payloads.fd >= 0 || net_peer_is_gone(peer))
		return false;
	(void)poll_socket(net, guest->fd, 0, EPOLLIN);
	peer->payloads.fd = guest->fd;
	peer->payloads.mark = fork_close_in_child(guest->fd);
	be_ready(peer);
	return true;
}

/* Reads the hello of guest i. True: the guest has left the list. */
static bool hear_guest(struct net *net, int i)
{
	struct net_guest *guest = &net->guests[i];
	ssize_t got = recv(guest->fd, (unsigned char *)&guest->hello + guest->got,
			   sizeof guest->hello - guest->got, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	guest->got += got > 0 ? (size_t)got : 0;
	if (got > 0 && guest->got < sizeof guest->hello)
		return false;
	if (got > 0 && is_peer(net, guest))
		remove_guest(net, i);
	else
		drop_guest(net, i);
	return true;
}

static ls_status accept_guests(struct net *net)
{
	for (;;) {
		int fd = accept4(net->payload_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			return say_failed(net, "accept");
		if (fd < 0)
			return LS_OK;
		if (net->guest_count == net->guest_room)
			drop_guest(net, 0);
		net->guests[net->guest_count++] = (struct net_guest){.fd = fd};
		(void)poll_socket(net, fd, EPOLLIN, 0);
		/* At once, so that no crowd pushes a peer out that has said who it is. */
		(void)hear_guest(net, net->guest_count - 1);
	}
}

ls_status net_connect_payloads(struct net *net)
{
	if (!net->has_payload_sockets || net->is_connected)
		return LS_OK;
	for (int q = net->link.rank + 1; q < net->link.size; q++) {
		struct net_peer *peer = &net->peers[q];
		if (peer->payloads.fd >= 0 && !peer->payloads.is_ready && !net_peer_is_gone(peer))
			introduce(peer);
	}
	ls_status status = accept_guests(net);
	for (int i = 0; i < net->guest_count;)
		i += !hear_guest(net, i);
	return status;
}
