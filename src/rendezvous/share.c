/* SPDX-License-Identifier: BSD-3-Clause
 * The second round of a rank that does not serve: it sends its card over the connection on which it
 * has met the others, and reads all cards, or why there are none. */
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

static bool is_signed(struct rendezvous_client *client)
{
	struct wire_cards *cards = &client->cards;
	struct auth_tag tag = cards->tag;

	if (!client->remote)
		return true;
	memset(&cards->tag, 0, sizeof cards->tag);
	return auth_verify(&client->session, AUTH_SERVER, 2, cards, cards->head.bytes, &tag);
}

/* The server's message is whole: checks it, and copies the cards or the reason. */
static ls_status take_cards(struct rendezvous_client *client, void *out)
{
	const struct wire_cards *cards = &client->cards;

	if (!is_signed(client))
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
