/* SPDX-License-Identifier: BSD-3-Clause
 * rendezvous_join: one rank alone, rank 0 that serves in the same thread, or a rank that goes to
 * whoever serves. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "rendezvous/meet.h"

enum { PROBE_MS = 2000, PROBE_PAUSE_MS = 20 };

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static ls_status be_alone(const struct rendezvous_self *self, struct rendezvous_table *out,
			  char *text)
{
	uint64_t job = 0;

	while (job == 0)
		if (getrandom(&job, sizeof job, 0) < 0 && errno != EINTR) {
			rendezvous_text_add(text, "no random numbers from the system: %m");
			return LS_SYSTEM;
		}
	out->job = job;
	out->size = 1;
	out->ranks[0] = self->me;
	return LS_OK;
}

static ls_status wait_for_step(const struct rendezvous_server *server, struct waiter *waiter,
			       uint64_t until_ns)
{
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	int count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX);
	ls_status status = wait_fds(waiter, fds, count, -1, until_ns);
	return status == LS_TIMED_OUT ? LS_OK : status;
}

/* The meeting has failed: the server stays for ranks that come late, so that they get the error at
 * once and not at their deadlines. It ends when no rank has come for a while. */
static void linger(struct rendezvous_server *server, int size, struct waiter *waiter,
		   uint64_t deadline_ns)
{
	uint64_t last_ns = earlier(clock_deadline_ns(RENDEZVOUS_LINGER_MS), deadline_ns);
	uint64_t quiet_ns = clock_deadline_ns(RENDEZVOUS_QUIET_MS);
	int told = rendezvous_server_told(server);

	while (told < size && clock_now_ns() < earlier(quiet_ns, last_ns)) {
		if (wait_for_step(server, waiter, earlier(quiet_ns, last_ns)) != LS_OK ||
		    rendezvous_server_step(server) == LS_OK)
			return;
		if (rendezvous_server_told(server) != told)
			quiet_ns = clock_deadline_ns(RENDEZVOUS_QUIET_MS);
		told = rendezvous_server_told(server);
	}
}

/* Rank 0 and the server in one thread. */
static ls_status serve(struct rendezvous_server *server, const struct rendezvous_self *self,
		       struct waiter *waiter, uint64_t deadline_ns, struct rendezvous_table *out,
		       char *text)
{
	ls_status status;

	for (;;) {
		status = rendezvous_server_step(server);
		if (status != LS_OK || rendezvous_server_complete(server))
			break;
		status = wait_for_step(server, waiter, rendezvous_server_deadline_ns(server));
		if (status != LS_OK) {
			char ended[RENDEZVOUS_TEXT_BYTES] = "";
			rendezvous_text_add(ended,
					    "rank %d (pid %d) ended before all ranks had come: ",
					    rendezvous_server_place(server)->rank, self->me.pid);
			rendezvous_text_add(ended, status == LS_INTERRUPTED
							   ? "a signal interrupted it"
							   : "see what it printed");
			rendezvous_server_fail(server, LS_RANK_MISSING, ended);
			rendezvous_text_add(text,
					    status == LS_INTERRUPTED
						    ? "a signal ended the wait for the other ranks"
						    : "cannot wait for the other ranks");
			return status;
		}
	}
	if (status == LS_OK) {
		*out = *rendezvous_server_table(server);
		/* A rank that connects now learns that it is too late. */
		return rendezvous_server_step(server);
	}
	linger(server, rendezvous_server_place(server)->world_size, waiter, deadline_ns);
	rendezvous_text_add(text, "%s", rendezvous_server_text(server));
	return status;
}

/* The address is in use. If a Lockstep answers there, it says what is wrong (most likely there are
 * two processes of rank 0, and all ranks should hear of it). *again: nobody listens, so it may
 * become free. */
static ls_status probe(struct rendezvous_client *client, struct rendezvous_table *out, int *control,
		       bool *again)
{
	char taken[RENDEZVOUS_TEXT_BYTES];

	memcpy(taken, client->text, sizeof taken);
	client->text[0] = '\0';
	ls_status status = rendezvous_client_meet(client, out, control);
	*again = false;
	if (client->welcomed || status == LS_WRONG_VERSION || status == LS_INTERRUPTED)
		return status;
	*again = status == LS_NO_MASTER;
	if (status == LS_UNTRUSTED_PEER) {
		char found[RENDEZVOUS_TEXT_BYTES];
		memcpy(found, client->text, sizeof found);
		client->text[0] = '\0';
		rendezvous_text_add(client->text, "%s (%s)", taken, found);
	} else {
		memcpy(client->text, taken, sizeof taken);
	}
	return LS_PORT_TAKEN;
}

static ls_status meet_as_server(struct rendezvous_client *client, struct rendezvous_table *out,
				int *control)
{
	struct rendezvous_server *server;
	bool again;

	for (;;) {
		client->text[0] = '\0';
		ls_status status = rendezvous_server_start(
			client->place, client->self, client->deadline_ns, client->text, &server);
		if (status == LS_OK) {
			status = serve(server, client->self, client->waiter, client->deadline_ns,
				       out, client->text);
			rendezvous_server_close(server);
			return status;
		}
		if (status != LS_PORT_TAKEN)
			return status;
		status = probe(client, out, control, &again);
		if (!again || clock_now_ns() >= client->silence_ns)
			return status;
		ls_status waited =
			wait_fds(client->waiter, NULL, 0, -1, clock_deadline_ns(PROBE_PAUSE_MS));
		if (waited != LS_TIMED_OUT) {
			rendezvous_text_add(client->text, " (and a signal ended the wait for it)");
			return waited;
		}
	}
}

ls_status rendezvous_meet(const struct rendezvous_place *place, const struct rendezvous_self *self,
			  struct waiter *waiter, uint64_t deadline_ns, struct rendezvous_table *out,
			  int *control, char *text)
{
	struct rendezvous_client client = {
		.place = place,
		.self = self,
		.waiter = waiter,
		.deadline_ns = deadline_ns,
		.silence_ns = deadline_ns,
		.text = text,
		.fd = -1,
	};
	ls_status status;

	memset(out, 0, sizeof *out);
	*control = -1;
	if (place->serve && place->world_size == 1)
		return be_alone(self, out, text);
	if (!rendezvous_place_is_valid(place, false) ||
	    !rendezvous_is_printable(self->me.address, sizeof self->me.address)) {
		rendezvous_text_add(text,
				    "rank %d of %d cannot meet: the place or its own address is "
				    "not one that can be said",
				    place->rank, place->world_size);
		return LS_BAD_ARGUMENT;
	}
	if (place->serve) {
		client.once = true;
		client.silence_ns = earlier(clock_deadline_ns(PROBE_MS), deadline_ns);
		status = meet_as_server(&client, out, control);
	} else {
		status = rendezvous_client_meet(&client, out, control);
	}
	if (status != LS_OK)
		memset(out, 0, sizeof *out);
	return status;
}

ls_status rendezvous_join(const struct rendezvous_place *place, const struct rendezvous_self *self,
			  struct waiter *waiter, uint64_t deadline_ns, struct rendezvous_table *out,
			  int *control)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	ls_status status = rendezvous_meet(place, self, waiter, deadline_ns, out, control, text);

	if (status != LS_OK)
		rendezvous_say(status, text);
	return status;
}
