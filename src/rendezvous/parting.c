/* SPDX-License-Identifier: BSD-3-Clause
 * At rank 0, while the ranks of several hosts connect: each of the others says that it is connected
 * to all, or why not, and keeps its connection until rank 0 has told the result. So a connection
 * that ends without a word shows which process has ended, and not only who has noticed it. */
#include <errno.h>
#include <string.h>

#include "rendezvous/server.h"

/* What one look at all connections has found. */
struct found {
	int ended;   /* the first rank whose connection has ended without a word; -1 */
	int failing; /* the first rank that cannot be connected, or says nonsense; -1 */
	int last;    /* the last one: its connection ends next, but not without a word; -1 */
	struct wire_parted word;
	const char *nonsense; /* what is wrong with what it says; NULL: `word` is what it says */
	int missing;          /* ranks that are not connected yet */
};

static void find_failing(struct found *found, int rank, const struct wire_parted *word,
			 const char *nonsense)
{
	found->last = rank;
	if (found->failing >= 0)
		return;
	found->failing = rank;
	found->word = *word;
	found->nonsense = nonsense;
}

/* True: the rank has said a word, which was taken off its bytes. */
static bool take_word(struct server_rank *member, int rank, struct found *found)
{
	struct wire_parted word, bare;
	enum wire_check check = rendezvous_parted_parse(member->in, member->got, &word);

	if (check == WIRE_MORE)
		return false;
	if (check != WIRE_WHOLE || word.head.rank != rank) {
		find_failing(found, rank, &word, "is not what Lockstep says");
		return false;
	}
	memcpy(&bare, member->in, sizeof bare);
	memset(&bare.tag, 0, sizeof bare.tag);
	/* The first word has number 2, the second one 3. */
	if (member->remote && !auth_verify(&member->session, AUTH_CLIENT, member->connected ? 3 : 2,
					   &bare, sizeof bare, &word.tag)) {
		find_failing(found, rank, &word, "is not signed with the secret of this job");
		return false;
	}
	member->got -= sizeof word;
	memmove(member->in, member->in + sizeof word, member->got);
	if (word.status != LS_OK || member->connected)
		find_failing(found, rank, &word,
			     word.status == LS_OK ? "is not what Lockstep says" : NULL);
	member->connected = true;
	return true;
}

static void hear_rank(struct rendezvous_server *server, int rank, struct found *found)
{
	struct server_rank *member = &server->ranks[rank];

	while (found->last != rank) {
		int none = -1;
		ssize_t got = member->fd < 0
				      ? 0
				      : rendezvous_receive(member->fd, member->in + member->got,
							   sizeof member->in - member->got, &none);
		rendezvous_close_fd(&none);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			if (found->ended < 0)
				found->ended = rank;
			return;
		}
		member->got += (size_t)got;
		while (found->last != rank && take_word(member, rank, found))
			;
	}
}

ls_status rendezvous_server_hear(struct rendezvous_server *server, bool *over, char *text)
{
	struct found found = {.ended = -1, .failing = -1, .last = -1};

	for (int i = 0; i < server->place.world_size; i++) {
		if (i == server->holder)
			continue;
		hear_rank(server, i, &found);
		found.missing += !server->ranks[i].connected;
	}
	*over = found.missing == 0;
	if (found.ended >= 0) {
		rendezvous_text_rank(server, found.ended, text);
		rendezvous_text_add(
			text,
			" ended or gave up after all ranks had met at %s, and before all of "
			"them were connected: see what it printed",
			server->where);
		return LS_RANK_MISSING;
	}
	if (found.failing < 0)
		return LS_OK;
	if (found.nonsense) {
		rendezvous_text_add(text, "what came from ");
		rendezvous_text_rank(server, found.failing, text);
		rendezvous_text_add(text,
				    " after all ranks had met %s: something between the hosts changes "
				    "what they send",
				    found.nonsense);
		return LS_UNTRUSTED_PEER;
	}
	rendezvous_text_rank(server, found.failing, text);
	rendezvous_text_add(text, " could not be connected to all ranks: %s",
			    found.word.reason[0] != '\0'
				    ? found.word.reason
				    : ls_status_text((ls_status)found.word.status));
	return rendezvous_status_for_others((ls_status)found.word.status);
}

ls_status rendezvous_server_give_up(const struct rendezvous_server *server, char *text)
{
	bool connected[RANKS_WORLD_MAX];
	int first = -1;

	for (int i = 0; i < server->place.world_size; i++) {
		connected[i] = i == server->holder || server->ranks[i].connected;
		if (first < 0 && !connected[i])
			first = i;
	}
	rendezvous_text_add(text,
			    "all ranks have met at %s, and some were not connected to all "
			    "others in time: ",
			    server->where);
	rendezvous_text_ranks(text, connected, server->place.world_size, false);
	if (first >= 0) {
		rendezvous_text_add(text, " (");
		rendezvous_text_rank(server, first, text);
		rendezvous_text_add(text, ")");
	}
	rendezvous_text_add(text,
			    ". See whether they are stopped or stuck; if they need longer, raise "
			    "LOCKSTEP_OPEN_TIMEOUT_MS");
	return LS_RANK_MISSING;
}

int rendezvous_server_poll(const struct rendezvous_server *server, struct pollfd *fds, int max)
{
	int count = 0;

	for (int i = 0; i < server->place.world_size && count < max; i++)
		if (server->ranks[i].fd >= 0)
			fds[count++] = (struct pollfd){.fd = server->ranks[i].fd, .events = POLLIN};
	return count;
}
