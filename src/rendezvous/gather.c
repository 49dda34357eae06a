/* SPDX-License-Identifier: BSD-3-Clause
 * The second round of a meeting of several hosts, at the server: the server takes a card from each
 * rank, and gives all cards to each. As in the first round all ranks get the same answer; but here
 * the ranks are known, so whatever goes wrong fails the meeting, and the text names the rank. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "rendezvous/server.h"

void rendezvous_text_rank(const struct rendezvous_server *server, int rank, char *text)
{
	const struct rendezvous_rank *who = &server->table.ranks[rank];

	rendezvous_text_add(text, "rank %d (pid %d)", rank, who->pid);
	if (who->host[0] != '\0')
		rendezvous_text_add(text, " on host %s", who->host);
}

static void say_rank(struct rendezvous_server *server, int rank)
{
	rendezvous_text_rank(server, rank, server->text);
}

static void fail_ended(struct rendezvous_server *server, int rank)
{
	say_rank(server, rank);
	rendezvous_text_add(server->text,
			    " ended or gave up after all ranks had met at %s, and before all of "
			    "them could be connected: see what it printed",
			    server->where);
	rendezvous_fail(server, LS_RANK_MISSING);
}

static void fail_nonsense(struct rendezvous_server *server, int rank)
{
	say_rank(server, rank);
	rendezvous_text_add(server->text,
			    " said something that Lockstep does not understand after all ranks had "
			    "met at %s: start all ranks with the same library, and see whether "
			    "something between them changes what they send",
			    server->where);
	rendezvous_fail(server, LS_UNTRUSTED_PEER);
}

static void fail_unsigned(struct rendezvous_server *server, int rank)
{
	say_rank(server, rank);
	rendezvous_text_add(server->text,
			    " proved to %s that it knows the secret of this job, but what came then "
			    "over its connection is not signed with it: something between the hosts "
			    "changes what they send",
			    server->where);
	rendezvous_fail(server, LS_UNTRUSTED_PEER);
}

static void fail_silent(struct rendezvous_server *server, uint64_t now_ns)
{
	int size = server->place.world_size, silent = 0, first = -1;
	bool has_card[RANKS_WORLD_MAX];

	for (int i = 0; i < size; i++) {
		has_card[i] = server->ranks[i].has_card;
		silent += !has_card[i];
		if (first < 0 && !has_card[i])
			first = i;
	}
	rendezvous_text_add(server->text,
			    "%d of %d ranks met the others at %s, and then did not say within %.1f "
			    "s of its start how they can be reached: rank%s ",
			    silent, size, server->where, (double)(now_ns - server->began_ns) * 1e-9,
			    silent == 1 ? "" : "s");
	rendezvous_text_ranks(server->text, has_card, size, false);
	rendezvous_text_add(server->text, " (");
	say_rank(server, first);
	rendezvous_text_add(server->text,
			    "). See whether they are stopped or stuck; if they need longer, raise "
			    "LOCKSTEP_OPEN_TIMEOUT_MS");
	rendezvous_fail(server, LS_RANK_MISSING);
}

/* The rank's card is whole, and from that rank: keeps it, or fails the meeting if the rank gave an
 * error. */
static void take_card(struct rendezvous_server *server, int rank, const struct wire_card *card)
{
	if (card->status != LS_OK) {
		say_rank(server, rank);
		rendezvous_text_add(server->text, ": %s",
				    card->reason[0] != '\0'
					    ? card->reason
					    : ls_status_text((ls_status)card->status));
		rendezvous_fail(server, (ls_status)card->status);
		return;
	}
	server->ranks[rank].has_card = true;
	server->ranks[rank].got = 0;
	memcpy(server->cards.cards[rank], card->card, sizeof card->card);
}

void rendezvous_server_put_card(struct rendezvous_server *server, const struct wire_card *card)
{
	if (server->state == SERVER_GATHERING)
		take_card(server, card->head.rank, card);
}

static void judge_card(struct rendezvous_server *server, int rank)
{
	struct server_rank *member = &server->ranks[rank];
	struct wire_card card;
	enum wire_check check = rendezvous_card_parse(member->in, member->got, &card);

	if (check == WIRE_MORE)
		return;
	if (check != WIRE_WHOLE || card.head.rank != rank) {
		fail_nonsense(server, rank);
		return;
	}
	if (member->remote) {
		struct wire_card bare;
		memcpy(&bare, member->in, sizeof bare);
		memset(&bare.tag, 0, sizeof bare.tag);
		if (!auth_verify(&member->session, AUTH_CLIENT, 1, &bare, sizeof bare, &card.tag)) {
			fail_unsigned(server, rank);
			return;
		}
	}
	take_card(server, rank, &card);
}

static void read_card(struct rendezvous_server *server, int rank)
{
	struct server_rank *member = &server->ranks[rank];

	while (member->fd >= 0 && server->state == SERVER_GATHERING) {
		char excess;
		int none = -1;
		ssize_t got = member->has_card
				      ? rendezvous_receive(member->fd, &excess, 1, &none)
				      : rendezvous_receive(member->fd, member->in + member->got,
							   sizeof member->in - member->got, &none);
		rendezvous_close_fd(&none);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			fail_ended(server, rank);
		} else if (member->has_card) {
			fail_nonsense(server, rank);
		} else {
			member->got += (size_t)got;
			judge_card(server, rank);
		}
	}
}

void rendezvous_gather_step(struct rendezvous_server *server)
{
	int size = server->place.world_size;
	bool all = rendezvous_tell_more(server);

	/* The server reads no card in this step: so rank 0 returns from its first round, as all
	 * others do, before the second can fail. */
	if (all && !server->met) {
		server->met = true;
		return;
	}
	for (int i = 0; i < size; i++) {
		read_card(server, i);
		all = all && server->ranks[i].has_card;
	}
	if (server->state != SERVER_GATHERING)
		return;
	uint64_t now_ns = clock_now_ns();
	if (all) {
		server->cards.size = size;
		rendezvous_tell_cards(server);
		server->state = SERVER_SHARING;
	} else if (now_ns >= server->deadline_ns) {
		fail_silent(server, now_ns);
	}
}

const unsigned char *rendezvous_server_cards(const struct rendezvous_server *server)
{
	return server->cards.cards[0];
}
