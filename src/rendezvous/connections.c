/* SPDX-License-Identifier: BSD-3-Clause
 * The server's connections that belong to no rank yet: how one ends, and which one makes room when
 * places or descriptors run out. */
#include "rendezvous/server.h"

void rendezvous_connection_end(struct server_connection *connection)
{
	rendezvous_close_fd(&connection->fd);
	rendezvous_close_fd(&connection->trace_fd);
	connection->got = 0;
	connection->remote = connection->challenged = false;
}

void rendezvous_connection_end_stranger(struct rendezvous_server *server,
					struct server_connection *connection)
{
	if (connection->challenged)
		server->unproved++;
	else
		server->incomplete++;
	rendezvous_connection_end(connection);
}

struct server_connection *rendezvous_connection_place(struct rendezvous_server *server,
						      bool make_room,
						      const struct server_connection *spared)
{
	struct server_connection *oldest = NULL;

	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++) {
		struct server_connection *connection = &server->connections[i];
		if (connection->fd < 0 && !make_room)
			return connection;
		if (connection->fd >= 0 && connection != spared &&
		    (!oldest || connection->number < oldest->number))
			oldest = connection;
	}
	if (oldest)
		rendezvous_connection_end_stranger(server, oldest);
	return oldest;
}

void rendezvous_exhausted(struct rendezvous_server *server,
			  const struct server_connection *connection, int error)
{
	if (!rendezvous_connection_place(server, true, connection) && server->state == SERVER_MEETING)
		rendezvous_fail_accepting(server, error);
}
