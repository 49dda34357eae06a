/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank that does not serve does on its connection in both rounds: it sends, receives, waits,
 * and gives up. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "rendezvous/meet.h"

/* Until when to wait for what answers: a server that has welcomed this rank knows its deadline and
 * gives the answer then, so that takes a little longer. */
static uint64_t limit_ns(const struct rendezvous_client *client)
{
	uint64_t grace_ns = (uint64_t)RENDEZVOUS_GRACE_MS * 1000000;
	if (!client->welcomed)
		return client->silence_ns;
	return client->deadline_ns > CLOCK_NEVER - grace_ns ? CLOCK_NEVER
							    : client->deadline_ns + grace_ns;
}

void rendezvous_client_where(struct rendezvous_client *client, const char *before, const char *after)
{
	char where[RENDEZVOUS_PLACE_BYTES];

	rendezvous_place_name(client->place, where);
	rendezvous_text_add(client->text, "%s%s%s", before, where, after);
}

static double waited_s(const struct rendezvous_client *client)
{
	return (double)(clock_now_ns() - client->began_ns) * 1e-9;
}

ls_status rendezvous_client_give_up(struct rendezvous_client *client)
{
	char *text = client->text;

	if (client->welcomed) {
		rendezvous_text_holder(text, client->holder_rank, client->holder_pid);
		rendezvous_client_where(client, ", the process that holds the rendezvous ", ",");
		rendezvous_text_add(text,
				    " answered at first and then no more (waited %.1f s): see "
				    "whether it is stopped or stuck",
				    waited_s(client));
		return LS_NO_MASTER;
	}
	if (client->mute) {
		rendezvous_client_where(client, "something at ",
					" takes connections and says nothing");
		rendezvous_text_add(
			text,
			" (waited %.1f s): another program uses this address, such as a job "
			"that has begun without this rank, or the process that should "
			"hold the rendezvous is stopped",
			waited_s(client));
		return LS_UNTRUSTED_PEER;
	}
	if (client->unreachable != 0) {
		rendezvous_client_where(client, "cannot reach the host of ", "");
		errno = client->unreachable;
		rendezvous_text_add(text,
				    ", %m (tried for %.1f s): see whether that host is up, whether a "
				    "firewall is between, and whether MASTER_ADDR is right",
				    waited_s(client));
		return LS_NO_MASTER;
	}
	rendezvous_client_where(client, "nobody listens at ", "");
	rendezvous_text_add(text,
			    " (tried for %.1f s): %s has not come there, or has ended. See whether "
			    "it was started, what it printed, and whether all ranks have the "
			    "same %s",
			    waited_s(client), "rank 0 (or the launcher)",
			    client->place->tcp ? "MASTER_ADDR and MASTER_PORT"
					       : "rendezvous address");
	return LS_NO_MASTER;
}

ls_status rendezvous_client_interrupted(struct rendezvous_client *client, ls_status status)
{
	if (status == LS_INTERRUPTED)
		rendezvous_client_where(client, "a signal ended the wait for the other ranks at ",
					"");
	else
		rendezvous_client_where(client, "cannot wait for the other ranks at ", "");
	return status;
}

/* Until the ranks of this host are known, only the one that holds the rendezvous is. */
static bool watches_holder(const struct rendezvous_client *client)
{
	return client->welcomed && !client->watches && !client->remote && client->holder_rank >= 0;
}

uint64_t rendezvous_client_look(struct rendezvous_client *client, uint64_t until_ns)
{
	if (!client->watches && !watches_holder(client))
		return until_ns;
	if (stopped_is_due(&client->looks)) {
		if (watches_holder(client))
			stopped_look(&client->looks, client->holder_rank, client->holder_pid);
		for (int q = 0; q < client->place->world_size; q++)
			stopped_look(&client->looks, q, client->watched[q]);
	}
	return stopped_until(&client->looks, until_ns);
}

ls_status rendezvous_client_wait(struct rendezvous_client *client, short events)
{
	struct pollfd fds = {.fd = client->fd, .events = events};
	int peer = client->welcomed ? client->holder_rank : -1;
	uint64_t until_ns;
	ls_status status;

	do {
		until_ns = rendezvous_client_look(client, limit_ns(client));
		status = wait_fds(client->waiter, &fds, 1, peer, until_ns);
	} while (status == LS_TIMED_OUT && until_ns < limit_ns(client));

	if (status != LS_OK && status != LS_TIMED_OUT)
		return rendezvous_client_interrupted(client, status);
	return status;
}

ls_status rendezvous_client_send(struct rendezvous_client *client, const void *from, size_t bytes,
				 int passed)
{
	size_t sent = 0;

	while (sent < bytes) {
		ssize_t more = rendezvous_send(client->fd, (const char *)from + sent, bytes - sent,
					       sent == 0 ? passed : -1);
		if (more > 0) {
			sent += (size_t)more;
			continue;
		}
		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0 && errno != EAGAIN)
			return LS_OK;
		ls_status status = rendezvous_client_wait(client, POLLOUT);
		if (status != LS_OK)
			return status;
	}
	return LS_OK;
}

ls_status rendezvous_client_receive(struct rendezvous_client *client, bool *ended)
{
	*ended = false;
	for (;;) {
		int none = -1;
		ssize_t more = rendezvous_receive(client->fd, client->in + client->got,
						  sizeof client->in - client->got, &none);
		rendezvous_close_fd(&none);
		if (more > 0) {
			client->got += (size_t)more;
			return LS_OK;
		}
		if (more < 0 && errno == EINTR)
			continue;
		*ended = more == 0 || errno != EAGAIN;
		if (*ended)
			return LS_OK;
		ls_status status = rendezvous_client_wait(client, POLLIN);
		if (status != LS_OK)
			return status == LS_TIMED_OUT ? rendezvous_client_give_up(client) : status;
	}
}
