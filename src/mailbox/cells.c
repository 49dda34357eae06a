/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that are too long for a slot and short enough to be copied twice. They lie in cells of
 * this rank (struct mail_cells), which all its messages of a group share, a message in one cell or
 * in two that follow each other. */
#include <string.h>

#include "base/prefetch.h"
#include "mailbox/mailbox_private.h"

enum {
	/* While the receiver copies this message, this many cache lines of the next cell are
	 * fetched back from the rank that has read them. */
	AHEAD = 8,
	LINE = 64,
};

void mailbox_cells_init(struct mailbox *mailbox)
{
	const struct transport_team *team = mailbox->team;
	struct mailbox_cells *cells = &mailbox->cells;
	cells->memory = &transport_area_of(team, team->rank)->cells;
	cells->open = false;
	cells->half = 0;
	cells->free[0] = cells->free[1] = ~UINT64_C(0);
	for (int q = 0; q < team->size; q++) {
		mailbox->peers[q].cells = &transport_area_of(team, q)->cells;
		mailbox->peers[q].is_here = transport_is_here(team, q);
	}
}

/* The set of pairs whose cells are free for a message; both: it needs both cells of a pair. */
static uint64_t free_pairs(const struct mailbox_cells *cells, bool both)
{
	return both ? cells->free[0] & cells->free[1] : cells->free[cells->half];
}

/* Frees cells whose messages have left their slots. */
static void reclaim_cells(struct mailbox *mailbox, unsigned half) LOCK_REQUIRES(mail)
{
	struct mailbox_cells *cells = &mailbox->cells;
	for (uint64_t used = ~cells->free[half]; used; used &= used - 1) {
		int pair = __builtin_ctzll(used);
		const struct mailbox_cell_use *use = &cells->uses[half][pair];
		struct mailbox_peer *peer = &mailbox->peers[use->peer];
		if (transport_mail_has_left(peer->to, &peer->out, use->position))
			cells->free[half] |= UINT64_C(1) << pair;
	}
}

/* Call when one half is used up: checks all cells in use. True: a cell is free. By then at least
 * half of the messages have been received, if all went to one rank; so the cost for each message is
 * small. The half with more free cells is used next, because its cells are still in a cache. */
static bool reclaim_all(struct mailbox *mailbox, bool both) LOCK_REQUIRES(mail)
{
	struct mailbox_cells *cells = &mailbox->cells;
	reclaim_cells(mailbox, 0);
	reclaim_cells(mailbox, 1);
	cells->half = __builtin_popcountll(cells->free[1]) > __builtin_popcountll(cells->free[0]);
	return free_pairs(cells, both) != 0;
}

bool mailbox_reclaim_cells(struct mailbox *mailbox, uint64_t bytes)
{
	struct mailbox_cells *cells = &mailbox->cells;
	bool both = bytes > MAIL_CELL_BYTES;
	/* Without memory for cells, such messages are sent as long ones. */
	if (__builtin_expect(!cells->open, 0) && !(cells->open = transport_cells_open(mailbox->team)))
		return false;
	if (__builtin_expect(free_pairs(cells, both) != 0, 1))
		return true;
	return reclaim_all(mailbox, both);
}

void mailbox_post_eager(struct mailbox *mailbox, int dest, struct mail_envelope *envelope,
			const void *payload, uint64_t bytes)
{
	struct mailbox_peer *peer = &mailbox->peers[dest];
	struct mailbox_cells *cells = &mailbox->cells;
	bool both = bytes > MAIL_CELL_BYTES;
	unsigned half = both ? 0 : cells->half;
	uint64_t free = free_pairs(cells, both), others = free & (free - 1);
	int pair = __builtin_ctzll(free);
	memcpy(&cells->memory->cells[pair][half], payload, bytes);
	envelope->cell = (uint16_t)(1 + 2 * pair + (int)half);
	transport_mail_post(peer->to, &peer->out, envelope, NULL, 0);
	for (unsigned i = half; i <= half + both; i++) {
		cells->free[i] &= ~(UINT64_C(1) << pair);
		cells->uses[i][pair] =
			(struct mailbox_cell_use){.position = peer->out.next - 1, .peer = dest};
	}
	if (!others)
		return;
	const unsigned char *next = cells->memory->cells[__builtin_ctzll(others)][half];
	for (uint64_t i = 0; i < AHEAD * LINE && i < bytes; i += LINE)
		prefetch_for_store(next + i);
}
