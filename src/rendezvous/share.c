/* SPDX-License-Identifier: BSD-3-Clause
 * The second round of a rank that does not serve: it sends its card over the connection on which
 * it has met the others, and reads all cards, or why there are none. Then it hears how rank 0
 * fared. */
#include <errno.h>
#include <string.h>

#include "rendezvous/meet.h"

static ls_status say_vanished(struct rendezvous_client *client)
{
	rendezvous_client_where(client, "the process that holds the rendezvous ", ", ");
	rendezvous_text_holder(client->text, client->holder_rank, client->holder_pid);
	rendezvous_text_add(client->text,
			    ", ended after all ranks had met, and before all of them could be "
			    "connected: see what it printed");
	return LS_NO_MASTER;
}

static ls_status say_changed(struct rendezvous_client *client, const char *what)
{
	rendezvous_client_where(client, "what came from ", " (");
	rendezvous_text_holder(client->text, client->holder_rank, client->holder_pid);
	rendezvous_text_add(client->text,
			    ") after all ranks had met %s: something between the hosts changes what "
			    "they send",
			    what);
	return LS_UNTRUSTED_PEER;
}

/* number: of this message among the server's. *tag: the one in the message. */
static bool is_signed(struct rendezvous_client *client, uint64_t number, const void *message,
		      size_t bytes, struct auth_tag *tag)
{
	struct auth_tag came = *tag;

	if (!client->remote)
		return true;
	memset(tag, 0, sizeof *tag);
	return auth_verify(&client->session, AUTH_SERVER, number, message, bytes, &came);
}

/* The server's message is whole: checks it, and copies the cards or the reason. */
static ls_status take_cards(struct rendezvous_client *client, void *out)
{
	struct wire_cards *cards = &client->cards;

	client->got -= cards->head.bytes;
	memmove(client->in, client->in + cards->head.bytes, client->got);
	if (!is_signed(client, 2, cards, cards->head.bytes, &cards->tag))
		return say_changed(client, "is not signed with the secret of this job");
	if (cards->status != LS_OK) {
		rendezvous_text_add(client->text, "%s", cards->text);
		return (ls_status)cards->status;
	}
	if (cards->size != client->place->world_size)
		return say_changed(client, "is not of this job");
	memcpy(out, cards->cards, (size_t)cards->size * sizeof cards->cards[0]);
	return LS_OK;
}

ls_status rendezvous_client_gather(struct rendezvous_client *client, struct wire_card *mine,
				   void *cards)
{
	bool ended = false;

	if (client->remote) {
		struct auth_tag tag;
		auth_sign(&client->session, AUTH_CLIENT, 1, mine, sizeof *mine, &tag);
		mine->tag = tag;
	}
	ls_status status = rendezvous_client_send(client, mine, sizeof *mine, -1);
	if (status == LS_TIMED_OUT)
		status = rendezvous_client_give_up(client);
	while (status == LS_OK) {
		/* The cards may have come behind the table. */
		enum wire_check check =
			rendezvous_cards_parse(client->in, client->got, &client->cards);
		if (check == WIRE_WHOLE)
			return take_cards(client, cards);
		if (check != WIRE_MORE)
			return say_changed(client, "is not what Lockstep says");
		if (ended)
			return say_vanished(client);
		status = rendezvous_client_receive(client, &ended);
	}
	return status;
}

/* Rank 0 may have ended: its own word, or its end, says so. */
void rendezvous_client_part(struct rendezvous_client *client, int words, ls_status status,
			    const char *reason)
{
	struct wire_parted parted;
	struct auth_tag tag;

	rendezvous_parted_fill(&parted, client->place->rank, client->self->me.pid, status, reason);
	if (client->remote) {
		auth_sign(&client->session, AUTH_CLIENT, 2 + (uint64_t)words, &parted,
			  sizeof parted, &tag);
		parted.tag = tag;
	}
	(void)rendezvous_send(client->fd, &parted, sizeof parted, -1);
}

static ls_status take_parted(struct rendezvous_client *client, struct wire_parted *parted)
{
	if (!is_signed(client, 3, parted, sizeof *parted, &parted->tag))
		return say_changed(client, "is not signed with the secret of this job");
	if (parted->status == LS_OK)
		return LS_OK;
	rendezvous_text_holder(client->text, client->holder_rank, client->holder_pid);
	rendezvous_text_add(client->text, " could not be connected to all ranks: %s",
			    parted->reason[0] != '\0' ? parted->reason
						      : ls_status_text((ls_status)parted->status));
	return rendezvous_status_for_others((ls_status)parted->status);
}

ls_status rendezvous_client_hear(struct rendezvous_client *client, bool *over)
{
	struct wire_parted parted;
	int none = -1;

	*over = true;
	for (;;) {
		enum wire_check check = rendezvous_parted_parse(client->in, client->got, &parted);
		if (check == WIRE_WHOLE)
			return take_parted(client, &parted);
		if (check != WIRE_MORE)
			return say_changed(client, "is not what Lockstep says");
		ssize_t more = rendezvous_receive(client->fd, client->in + client->got,
						  sizeof client->in - client->got, &none);
		rendezvous_close_fd(&none);
		if (more > 0)
			client->got += (size_t)more;
		else if (more == 0 || (errno != EAGAIN && errno != EINTR))
			return say_vanished(client);
		else if (errno == EAGAIN)
			break;
	}
	*over = false;
	return LS_OK;
}
