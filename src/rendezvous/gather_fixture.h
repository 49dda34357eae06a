/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of the second round: ranks that claim to be on two hosts, which their keys say, and
 * what they do once they have met. */
#ifndef RENDEZVOUS_GATHER_FIXTURE_H
#define RENDEZVOUS_GATHER_FIXTURE_H

#include "rendezvous/rendezvous_fixture.h"

static inline void fixture_fill_card(int rank, unsigned char card[RENDEZVOUS_CARD_BYTES])
{
	for (int i = 0; i < RENDEZVOUS_CARD_BYTES; i++)
		card[i] = (unsigned char)(rank * 3 + i);
}

/* Takes part, with an error of its own unless `mine` is LS_OK. */
static inline void fixture_share(struct fixture_rank *rank, ls_status mine)
{
	static _Thread_local unsigned char cards[RANKS_WORLD_MAX][RENDEZVOUS_CARD_BYTES];
	unsigned char card[RENDEZVOUS_CARD_BYTES];

	fixture_fill_card(rank->place.rank, card);
	rank->status = rendezvous_share(rank->meeting, mine, "no UCX here", card, cards, rank->text);
	for (int q = 0; q < rank->place.world_size && rank->status == LS_OK; q++) {
		fixture_fill_card(q, card);
		if (memcmp(card, cards[q], sizeof card) != 0)
			abort();
	}
}

static inline void fixture_give_card(struct fixture_rank *rank)
{
	fixture_share(rank, LS_OK);
}

static inline void fixture_give_error(struct fixture_rank *rank)
{
	fixture_share(rank, LS_UNSUPPORTED);
}

/* Ranks of two hosts, a and b, in turn. */
static inline struct fixture fixture_new_hosts(const struct rendezvous_place *place, bool launcher)
{
	struct fixture fixture = fixture_new(place, launcher);

	for (int i = 0; i < fixture.size; i++) {
		struct rendezvous_rank *me = &fixture.ranks[i].self.me;
		me->host_key = 1 + (uint64_t)i % 2;
		memset(me->host, 0, sizeof me->host);
		me->host[0] = i % 2 ? 'b' : 'a';
		fixture.ranks[i].second = fixture_give_card;
	}
	return fixture;
}

/* All ranks that came met, and then got the same error at once. */
static inline void fixture_check_share_failed(struct fixture *fixture, ls_status status,
					      const char *const *words)
{
	const struct fixture_rank *first = NULL;

	for (int i = 0; i < fixture->size; i++) {
		struct fixture_rank *rank = &fixture->ranks[i];
		if (rank->absent || !rank->second)
			continue;
		first = first ? first : rank;
		assert_int_equal(rank->table.size, fixture->size);
		assert_in_range(rank->took_ms, 0, FIXTURE_QUICK_MS);
		assert_string_equal(rank->text, first->text);
		rank->table.size = 0;
		fixture_check_rank(rank, status, words);
	}
	fixture_free(fixture);
}

#endif
