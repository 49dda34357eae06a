/* SPDX-License-Identifier: BSD-3-Clause
 * The server of a rendezvous: a state machine over non-blocking sockets that the launcher steps
 * from its event loop, and rank 0 from rendezvous_join. A connection belongs to no rank until a
 * whole hello has come over it; then it takes the place of its rank. All ranks get the same answer,
 * latecomers too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "base/wait.h"
#include "rendezvous/meet.h"
#include "rendezvous/server.h"

enum {
	ACCEPT_MAX = 64,    /* in one step, so that a flood does not keep the ranks waiting */
	STRANGER_MS = 2000, /* that a connection from another host may take to become a rank's */
};

/* Parses what has come so far from a connection, and acts if it is whole or wrong. */
static void judge_bytes(struct rendezvous_server *server, struct server_connection *connection)
{
	struct wire_hello hello;
	struct wire_proof proof;
	enum wire_check check =
		connection->challenged
			? rendezvous_proof_parse(connection->in, connection->got, &proof)
			: rendezvous_hello_parse(connection->in, connection->got, &hello);

	switch (check) {
	case WIRE_MORE:
		return;
	case WIRE_WHOLE:
		if (connection->challenged)
			rendezvous_handle_proof(server, connection, &proof);
		else
			rendezvous_handle_hello(server, connection, &hello);
		return;
	case WIRE_OTHER:
		if (connection->challenged) /* its hello was of this version */
			rendezvous_connection_end_stranger(server, connection);
		else
			rendezvous_handle_other_version(server, connection, &hello.head);
		return;
	case WIRE_NONSENSE:
		rendezvous_connection_end_stranger(server, connection);
		return;
	}
}

static void read_connection(struct rendezvous_server *server, struct server_connection *connection)
{
	while (connection->fd >= 0) {
		ssize_t got = rendezvous_receive(connection->fd, connection->in + connection->got,
						 sizeof connection->in - connection->got,
						 &connection->trace_fd);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			rendezvous_connection_end_stranger(server, connection);
			return;
		}
		connection->got += (size_t)got;
		judge_bytes(server, connection);
	}
}

/* Whether a connection waits to be accepted. Linux looks for a free descriptor first, and so may
 * report that there is none although nobody waits. */
static bool is_awaited(const struct rendezvous_server *server)
{
	struct pollfd queue = {.fd = server->listen_fd, .events = POLLIN};

	return wait_fds(NULL, &queue, 1, -1, 0) == LS_OK;
}

static void accept_failed(struct rendezvous_server *server, int error)
{
	bool exhausted = rendezvous_is_exhaustion(error);
	if (!exhausted && error != EBADF && error != EINVAL && error != ENOTSOCK)
		return; /* the trouble of one connection */
	bool meeting = server->state == SERVER_MEETING;
	if (exhausted && meeting && rendezvous_count_hellos(server) == server->place.world_size)
		return; /* nobody is missing */
	if (exhausted && (!is_awaited(server) || rendezvous_connection_place(server, true, NULL)))
		return; /* there is room for the next step */
	/* When the meeting fails for want of descriptors, those of the ranks that have come become
	 * free, so that the server can accept the others, to tell them. */
	if (!exhausted || !meeting)
		rendezvous_close_fd(&server->listen_fd); /* an open one would stay ready forever */
	if (meeting)
		rendezvous_fail_accepting(server, error);
}

static void accept_connections(struct rendezvous_server *server)
{
	for (int i = 0; i < ACCEPT_MAX && server->listen_fd >= 0; i++) {
		int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno == EAGAIN)
				return;
			int error = errno;
			if (error != EINTR && error != ECONNABORTED)
				accept_failed(server, error);
			if (rendezvous_is_exhaustion(error) && server->state != SERVER_FAILED)
				return;
			continue;
		}
		bool remote = false;
		if (server->place.tcp && !rendezvous_find_remote(fd, &remote)) {
			server->incomplete++;
			rendezvous_close_fd(&fd);
			continue;
		}
		struct server_connection *connection =
			rendezvous_connection_place(server, false, NULL);
		connection->fd = fd;
		connection->number = server->connections_ever++;
		connection->remote = remote;
		connection->until_ns = clock_deadline_ns(STRANGER_MS);
		read_connection(server, connection);
	}
}

static void read_connections(struct rendezvous_server *server)
{
	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++) {
		struct server_connection *connection = &server->connections[i];
		read_connection(server, connection);
		if (connection->fd >= 0 && connection->remote &&
		    clock_now_ns() >= connection->until_ns)
			rendezvous_connection_end_stranger(server, connection);
	}
}

/* While the meeting lasts, no other process can take the place of a rank whose connection has
 * ended. */
static void check_members(struct rendezvous_server *server)
{
	for (int i = 0; i < server->place.world_size && server->state == SERVER_MEETING; i++)
		if (server->ranks[i].fd >= 0 && rendezvous_drain(server->ranks[i].fd))
			rendezvous_fail_ended(server, i);
}

static bool has_all(const struct rendezvous_server *server)
{
	return rendezvous_count_hellos(server) == server->place.world_size;
}

/* Until when the meeting may stay in its state. */
static uint64_t state_deadline_ns(const struct rendezvous_server *server)
{
	uint64_t grace_ns = (uint64_t)RENDEZVOUS_GRACE_MS * 1000000;

	if (server->state == SERVER_MEETING && has_all(server) &&
	    server->settled_ns < server->deadline_ns)
		return server->settled_ns;
	if (server->state == SERVER_MEETING || server->state == SERVER_GATHERING)
		return server->deadline_ns;
	bool tells = server->state == SERVER_TELLING || server->state == SERVER_SHARING;
	return tells && server->deadline_ns < CLOCK_NEVER - grace_ns ? server->deadline_ns + grace_ns
								     : CLOCK_NEVER;
}

ls_status rendezvous_server_step(struct rendezvous_server *server)
{
	check_members(server);
	read_connections(server);
	accept_connections(server);
	if (server->state == SERVER_MEETING) {
		uint64_t now_ns = clock_now_ns();
		ls_status told = LS_OK;
		bool is_over = now_ns >= server->deadline_ns;
		if (has_all(server))
			told = is_over || now_ns >= server->settled_ns
				       ? rendezvous_tell_table(server)
				       : LS_OK;
		else if (is_over)
			rendezvous_fail_missing(server, now_ns);
		if (told != LS_OK)
			rendezvous_fail(server, told);
	}
	if (server->state == SERVER_GATHERING)
		rendezvous_gather_step(server);
	if (server->state == SERVER_TELLING || server->state == SERVER_SHARING) {
		/* After the deadline the ranks that the server has not sent everything will miss
		 * it, and say so. */
		if (rendezvous_tell_more(server) || clock_now_ns() >= state_deadline_ns(server)) {
			server->state = SERVER_COMPLETE;
			server->met = true;
		}
	}
	if (server->state == SERVER_FAILED)
		rendezvous_finish_telling(server);
	return server->status;
}

/* ---- what the launcher and rank 0 call ---- */

ls_status rendezvous_server_start(const struct rendezvous_place *place,
				  const struct rendezvous_self *self, uint64_t deadline_ns,
				  char *text, struct rendezvous_server **out)
{
	*out = NULL;
	if (!rendezvous_place_is_valid(place, self == NULL)) {
		rendezvous_text_add(text, "a rendezvous for %d ranks at an impossible place",
				    place->world_size);
		return LS_BAD_ARGUMENT;
	}
	struct rendezvous_server *server = calloc(1, sizeof *server);
	if (!server) {
		rendezvous_text_add(text, "no memory for the rendezvous");
		return LS_OUT_OF_MEMORY;
	}
	ls_status status = rendezvous_listen(place, &server->place, &server->listen_fd, text);
	if (status != LS_OK) {
		free(server);
		return status;
	}
	rendezvous_place_name(&server->place, server->where);
	server->began_ns = clock_now_ns();
	server->deadline_ns = deadline_ns;
	server->holder = WIRE_LAUNCHER;
	/* Only as many as there are: each takes a kilobyte. */
	for (int i = 0; i < place->world_size; i++)
		server->ranks[i].fd = server->ranks[i].trace_fd = -1;
	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++)
		server->connections[i].fd = server->connections[i].trace_fd = -1;
	if (self) {
		server->holder = place->rank;
		server->ranks[place->rank].said_hello = true;
		struct rendezvous_rank *me = &server->table.ranks[place->rank];
		*me = self->me;
		rendezvous_copy_printable(me->host, sizeof me->host, self->me.host,
					  sizeof self->me.host);
		if (!rendezvous_place_is_loopback(place))
			rendezvous_copy_printable(me->ip, sizeof me->ip, place->address,
						  sizeof place->address);
	}
	*out = server;
	return LS_OK;
}

ls_status rendezvous_server_open(const struct rendezvous_place *place, uint64_t deadline_ns,
				 struct rendezvous_server **out)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	ls_status status = rendezvous_server_start(place, NULL, deadline_ns, text, out);
	if (status != LS_OK)
		rendezvous_say(status, text);
	return status;
}

void rendezvous_server_close(struct rendezvous_server *server)
{
	if (!server)
		return;
	rendezvous_close_fd(&server->listen_fd);
	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++)
		rendezvous_connection_end(&server->connections[i]);
	for (int i = 0; i < server->place.world_size; i++) {
		rendezvous_close_fd(&server->ranks[i].fd);
		rendezvous_close_fd(&server->ranks[i].trace_fd);
	}
	free(server);
}

void rendezvous_server_fail(struct rendezvous_server *server, ls_status status, const char *text)
{
	if ((server->state != SERVER_MEETING && server->state != SERVER_GATHERING) ||
	    status == LS_OK)
		return;
	rendezvous_copy_printable(server->text, sizeof server->text, text,
				  strnlen(text, sizeof server->text));
	rendezvous_fail(server, status);
	read_connections(server);
	accept_connections(server);
}

/* Adds one descriptor unless there is none or no room. */
static void add_fd(struct pollfd *fds, int max, int *count, int fd, short events)
{
	if (fd >= 0 && *count < max)
		fds[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

int rendezvous_server_fds(const struct rendezvous_server *server, struct pollfd *fds, int max)
{
	bool hears = server->state == SERVER_GATHERING || server->state == SERVER_FAILED;
	int count = 0;

	add_fd(fds, max, &count, server->listen_fd, POLLIN);
	for (int i = 0; i < server->place.world_size; i++) {
		short events = rendezvous_is_untold(server, i) ? POLLOUT : 0;
		if (server->state == SERVER_MEETING)
			events = POLLRDHUP;
		else if (hears)
			events |= POLLIN;
		if (events != 0)
			add_fd(fds, max, &count, server->ranks[i].fd, events);
	}
	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++)
		add_fd(fds, max, &count, server->connections[i].fd, POLLIN);
	return count;
}

const struct rendezvous_place *rendezvous_server_place(const struct rendezvous_server *server)
{
	return &server->place;
}

uint64_t rendezvous_server_deadline_ns(const struct rendezvous_server *server)
{
	uint64_t next_ns = state_deadline_ns(server);

	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++) {
		const struct server_connection *connection = &server->connections[i];
		if (connection->fd >= 0 && connection->remote && connection->until_ns < next_ns)
			next_ns = connection->until_ns;
	}
	return next_ns;
}

bool rendezvous_server_complete(const struct rendezvous_server *server)
{
	return server->state == SERVER_COMPLETE;
}

int rendezvous_server_take_listener(struct rendezvous_server *server)
{
	bool complete = server->state == SERVER_COMPLETE;
	int listen_fd = server->place.tcp && complete ? server->listen_fd : -1;

	if (listen_fd >= 0)
		server->listen_fd = -1;
	return listen_fd;
}

const struct rendezvous_table *rendezvous_server_met(const struct rendezvous_server *server)
{
	return server->met ? &server->table : NULL;
}

const struct rendezvous_table *rendezvous_server_table(const struct rendezvous_server *server)
{
	return server->state == SERVER_COMPLETE ? &server->table : NULL;
}

int rendezvous_server_pid(const struct rendezvous_server *server, int rank)
{
	return rank >= 0 && rank < server->place.world_size ? server->table.ranks[rank].pid : 0;
}

int rendezvous_server_trace(const struct rendezvous_server *server, int rank)
{
	return rank >= 0 && rank < server->place.world_size ? server->ranks[rank].trace_fd : -1;
}

const char *rendezvous_server_text(const struct rendezvous_server *server)
{
	return server->text;
}

int rendezvous_server_told(const struct rendezvous_server *server)
{
	int told = server->told;

	for (int i = 0; i < server->place.world_size; i++)
		told -= server->ranks[i].fd >= 0;
	return told;
}
