/* SPDX-License-Identifier: BSD-3-Clause
 * A rank's part in a meeting: one rank alone, rank 0 that serves in the same thread, or a rank that
 * goes to the server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/messages.h"
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
 * once and not at their deadlines. The server ends when no rank has come for a while. */
static void serve_latecomers(struct rendezvous_server *server, int size, struct waiter *waiter,
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

/* The wait of rank 0 has ended with `status`, and so the meeting. */
static ls_status give_up_serving(struct rendezvous_server *server, int pid, ls_status status,
				 char *text)
{
	bool interrupted = status == LS_INTERRUPTED;
	char ended[RENDEZVOUS_TEXT_BYTES] = "";

	rendezvous_text_add(ended, "rank %d (pid %d) ended before all ranks %s: ",
			    rendezvous_server_place(server)->rank, pid,
			    rendezvous_server_met(server) ? "could be connected" : "had come");
	rendezvous_text_add(ended, interrupted ? "a signal interrupted it" : "see what it printed");
	rendezvous_server_fail(server, LS_RANK_MISSING, ended);
	rendezvous_text_add(text, interrupted ? "a signal ended the wait for the other ranks"
					      : "cannot wait for the other ranks");
	return status;
}

/* Fails the meeting if a rank that has not come has ended. Returns when to look again. */
static uint64_t look_for_ended(struct rendezvous_server *server, const struct rendezvous_ends *ends)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "", how[RENDEZVOUS_HOW_BYTES];
	int size = rendezvous_server_place(server)->world_size, missing = 0;

	for (int rank = 0; ends && rank < size; rank++) {
		if (rendezvous_server_pid(server, rank))
			continue;
		missing++;
		if (!ends->find(ends->context, rank, how, sizeof how))
			continue;
		rendezvous_text_add(text,
				    "%s before it came to the rendezvous, so the %d ranks cannot "
				    "meet",
				    how, size);
		rendezvous_server_fail(server, LS_RANK_MISSING, text);
		return 0;
	}
	return missing ? clock_deadline_ns(RENDEZVOUS_ENDS_MS) : CLOCK_NEVER;
}

static bool has_met(const struct rendezvous_server *server)
{
	return rendezvous_server_met(server) != NULL;
}

/* Runs the server in rank 0's thread until the meeting `is_over` or has failed. */
static ls_status serve_until(struct rendezvous_server *server, struct rendezvous_client *client,
			     bool (*is_over)(const struct rendezvous_server *), char *text)
{
	ls_status status;

	for (;;) {
		status = rendezvous_server_step(server);
		if (status != LS_OK)
			break;
		if (is_over(server))
			return LS_OK;
		uint64_t look_ns = look_for_ended(server, client->self->ends);
		look_ns = earlier(rendezvous_server_deadline_ns(server), look_ns);
		status = wait_for_step(server, client->waiter,
				       rendezvous_client_look(client, look_ns));
		if (status != LS_OK)
			return give_up_serving(server, client->self->me.pid, status, text);
	}
	/* Two jobs at one port are twice as many processes. */
	int jobs = status == LS_DUPLICATE_RANK ? 2 : 1;
	serve_latecomers(server, jobs * client->place->world_size, client->waiter,
			 client->deadline_ns);
	rendezvous_text_add(text, "%s", rendezvous_server_text(server));
	return status;
}

/* The address is in use. If a Lockstep answers there, its answer says what is wrong (most likely
 * there are two processes of rank 0, and all ranks should hear of it). *again: nobody listens, so
 * the address may become free. */
static ls_status probe_address(struct rendezvous_client *client, struct rendezvous_table *out,
			       bool *again)
{
	char taken[RENDEZVOUS_TEXT_BYTES];

	memcpy(taken, client->text, sizeof taken);
	client->text[0] = '\0';
	ls_status status = rendezvous_client_meet(client, out);
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

static ls_status meet_as_server(struct rendezvous_meeting *meeting, struct rendezvous_table *out)
{
	struct rendezvous_client *client = &meeting->client;
	bool again;

	client->once = true;
	client->silence_ns = earlier(clock_deadline_ns(PROBE_MS), client->deadline_ns);
	for (;;) {
		client->text[0] = '\0';
		ls_status status =
			rendezvous_server_start(client->place, client->self, client->deadline_ns,
						client->text, &meeting->server);
		if (status == LS_OK) {
			status = serve_until(meeting->server, client, has_met, client->text);
			if (status != LS_OK)
				return status;
			*out = *rendezvous_server_met(meeting->server);
			/* A rank that connects now learns that it is too late. */
			return rendezvous_server_complete(meeting->server)
				       ? rendezvous_server_step(meeting->server)
				       : LS_OK;
		}
		if (status != LS_PORT_TAKEN)
			return status;
		status = probe_address(client, out, &again);
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

static ls_status meet_others(struct rendezvous_meeting *meeting, struct rendezvous_table *out)
{
	const struct rendezvous_place *place = &meeting->place;
	const struct rendezvous_rank *me = &meeting->self.me;
	char *text = meeting->client.text;

	if (place->serve && place->world_size == 1)
		return be_alone(&meeting->self, out, text);
	if (!rendezvous_place_is_valid(place, false) ||
	    !rendezvous_is_printable(me->address, sizeof me->address)) {
		rendezvous_text_add(text,
				    "rank %d of %d cannot meet: the place or its own address is "
				    "not one that can be said",
				    place->rank, place->world_size);
		return LS_BAD_ARGUMENT;
	}
	return place->serve ? meet_as_server(meeting, out)
			    : rendezvous_client_meet(&meeting->client, out);
}

/* The lowest other rank of the host reports a rank that is stopped. So the first rank of the host
 * watches all others, and the second one watches the first. */
static void watch_host(struct rendezvous_client *client, const struct rendezvous_table *table)
{
	int first[RANKS_WORLD_MAX], me = client->place->rank, second = -1;

	(void)rendezvous_find_hosts(table, first);
	for (int q = first[me] + 1; q < table->size && second < 0; q++)
		if (first[q] == first[me])
			second = q;
	for (int q = 0; q < table->size; q++) {
		if (first[q] != first[me] || me != (q == first[me] ? second : first[me]))
			continue;
		client->watched[q] = table->ranks[q].pid;
		client->watches = true;
	}
	client->looks.next_ns = 0;
}

ls_status rendezvous_meet(const struct rendezvous_place *place, const struct rendezvous_self *self,
			  struct waiter *waiter, uint64_t deadline_ns, struct rendezvous_table *out,
			  struct rendezvous_meeting **out_meeting, char *text)
{
	struct rendezvous_meeting *meeting = calloc(1, sizeof *meeting);
	int none;

	out->job = 0;
	out->size = 0;
	*out_meeting = NULL;
	if (!meeting) {
		rendezvous_text_add(text, "no memory for the rendezvous");
		return LS_OUT_OF_MEMORY;
	}
	meeting->place = *place;
	meeting->self = *self;
	meeting->size = place->world_size;
	meeting->listen_fd = -1;
	struct rendezvous_client *client = &meeting->client;
	client->place = &meeting->place;
	client->self = &meeting->self;
	client->waiter = waiter;
	client->deadline_ns = client->silence_ns = deadline_ns;
	client->text = text;
	client->fd = -1;
	ls_status status = meet_others(meeting, out);
	client->text = NULL;
	if (status != LS_OK) {
		client->kept = false;
		rendezvous_leave(meeting, &none);
		out->job = 0;
		out->size = 0;
		return status;
	}
	meeting->gathers = rendezvous_has_hosts(out);
	if (meeting->gathers)
		watch_host(client, out);
	if (!meeting->gathers && meeting->server) {
		meeting->listen_fd = rendezvous_server_take_listener(meeting->server);
		rendezvous_server_close(meeting->server);
		meeting->server = NULL;
	}
	*out_meeting = meeting;
	return LS_OK;
}

ls_status rendezvous_share(struct rendezvous_meeting *meeting, ls_status mine, const char *reason,
			   const void *card, void *cards, char *text)
{
	struct rendezvous_client *client = &meeting->client;
	struct rendezvous_server *server = meeting->server;
	struct wire_card out;

	if (!meeting->gathers || mine < LS_OK || mine > LS_UNREACHABLE) {
		rendezvous_text_add(text, "rank %d has no second round to take part in",
				    meeting->place.rank);
		return LS_INTERNAL;
	}
	meeting->gathers = false;
	rendezvous_card_fill(&out, meeting->place.rank, meeting->self.me.pid, mine, reason, card);
	if (!server) {
		client->text = text;
		ls_status got = rendezvous_client_gather(client, &out, cards);
		client->text = NULL;
		meeting->hears = got == LS_OK && client->holder_rank != WIRE_LAUNCHER;
		return got;
	}
	rendezvous_server_put_card(server, &out);
	ls_status status = serve_until(server, client, rendezvous_server_complete, text);
	meeting->hears = status == LS_OK;
	if (status == LS_OK)
		memcpy(cards, rendezvous_server_cards(server),
		       (size_t)meeting->size * RENDEZVOUS_CARD_BYTES);
	return status;
}

void rendezvous_leave(struct rendezvous_meeting *meeting, int *control)
{
	*control = -1;
	if (!meeting)
		return;
	struct rendezvous_client *client = &meeting->client;
	if (client->kept && client->holder_rank == WIRE_LAUNCHER) {
		*control = client->fd;
		client->fd = -1;
	}
	rendezvous_close_fd(&client->fd);
	if (meeting->server)
		meeting->listen_fd = rendezvous_server_take_listener(meeting->server);
	if (meeting->listen_fd >= 0)
		*control = meeting->listen_fd;
	rendezvous_server_close(meeting->server);
	free(meeting);
}

ls_status rendezvous_join(const struct rendezvous_place *place, const struct rendezvous_self *self,
			  struct waiter *waiter, uint64_t deadline_ns, struct rendezvous_table *out,
			  struct rendezvous_meeting **meeting)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	ls_status status = rendezvous_meet(place, self, waiter, deadline_ns, out, meeting, text);

	if (status != LS_OK)
		rendezvous_say(status, text);
	return status;
}

/* Prints an error that came after the ranks had met. */
static ls_status say_later(ls_status status, const char *text)
{
	if (status == LS_RANK_MISSING || status == LS_UNTRUSTED_PEER || status == LS_NO_MASTER ||
	    status == LS_INTERRUPTED)
		rendezvous_say(status, text);
	else
		MESSAGE_SAY(MESSAGE_OPEN_FAILED, text);
	return status;
}

ls_status rendezvous_gather(struct rendezvous_meeting *meeting, ls_status mine, const char *reason,
			    const void *card, void *cards)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	ls_status status = rendezvous_share(meeting, mine, reason, card, cards, text);

	return status == LS_OK || status == mine ? status : say_later(status, text);
}

void rendezvous_part(struct rendezvous_meeting *meeting, ls_status mine, const char *reason)
{
	if (!meeting || !meeting->hears)
		return;
	if (!meeting->server) {
		rendezvous_client_part(&meeting->client, meeting->words++, mine, reason);
		return;
	}
	rendezvous_server_part(meeting->server, mine, reason);
	meeting->hears = false;
}

int rendezvous_poll(const struct rendezvous_meeting *meeting, struct pollfd *fds, int max)
{
	if (!meeting->hears || max < 1)
		return 0;
	if (meeting->server)
		return rendezvous_server_poll(meeting->server, fds, max);
	fds[0] = (struct pollfd){.fd = meeting->client.fd, .events = POLLIN};
	return 1;
}

ls_status rendezvous_listen_to(struct rendezvous_meeting *meeting, bool *over, char *text)
{
	*over = !meeting->hears;
	if (!meeting->hears)
		return LS_OK;
	if (meeting->server)
		return rendezvous_server_hear(meeting->server, over, text);
	meeting->client.text = text;
	ls_status status = rendezvous_client_hear(&meeting->client, over);
	meeting->client.text = NULL;
	meeting->hears = !*over;
	return status;
}

ls_status rendezvous_hear(struct rendezvous_meeting *meeting, bool *over)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	ls_status status = rendezvous_listen_to(meeting, over, text);

	return status == LS_OK ? LS_OK : say_later(status, text);
}

uint64_t rendezvous_look(struct rendezvous_meeting *meeting, uint64_t until_ns)
{
	return rendezvous_client_look(&meeting->client, until_ns);
}

ls_status rendezvous_give_up(struct rendezvous_meeting *meeting)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	if (meeting->server)
		return say_later(rendezvous_server_give_up(meeting->server, text), text);
	meeting->client.text = text;
	ls_status status = rendezvous_client_give_up(&meeting->client);
	meeting->client.text = NULL;
	return say_later(status, text);
}
