/* SPDX-License-Identifier: BSD-3-Clause
 * The words that a thread waits for while it makes progress on the detached operations of a group;
 * see word_list.h. */
#include "mailbox/word_list.h"

#include "base/ranks.h"

bool mailbox_word_has_come(const struct wait_word *word)
{
	struct wait_call call = {.words = word, .count = 1};
	return wait_satisfied(&call);
}

/* ---- which operations need a word ---- */

/* Bit i: own[i] is the operation; or waits for it, too; or stands for several operations, of which
 * this is one. */
static uint64_t owners_of(const struct mailbox_words *list, const struct op *op)
{
	uint64_t owners = 0;
	for (int i = 0; i < list->own_count; i++) {
		const struct mailbox_awaited *own = &list->own[i];
		bool part = own->alternative && own->op == op->p2p.batch;
		if (part || own->op == op || own->before == op)
			owners |= UINT64_C(1) << i;
	}
	return owners;
}

static bool has_same(const struct mailbox_words *list, const struct wait_edge *edge)
{
	for (int i = 0; i < list->count && i < list->max; i++)
		if (list->words[i].edge.alternative == edge->alternative &&
		    list->words[i].edge.peer == edge->peer)
			return true;
	return false;
}

static void put_word(struct mailbox_words *list, const struct wait_word *word, uint32_t record,
		     uint32_t alternative)
{
	struct wait_word given = *word;
	given.edge.record = record;
	given.edge.alternative = (uint16_t)alternative;
	list->found |= list->asks && mailbox_word_has_come(word);
	if (list->only_own && alternative && has_same(list, &given.edge))
		return;
	if (list->count < list->max)
		list->words[list->count] = given;
	list->count++;
}

/* The operations that need a word: `owners` need it; each of `any` has several words, and one of
 * them suffices. */
struct need {
	uint64_t owners, any;
	uint64_t record; /* the record of one of these operations */
	bool others;     /* another operation needs the word, too */
};

static void add_needed(struct mailbox_words *list, const struct wait_word *word,
		       const struct need *need)
{
	uint32_t record = (uint32_t)need->record;
	bool alone = need->any != 0, chosen = false;
	if (record == WAIT_RECORD_OTHERS)
		record = 0;
	for (uint64_t left = need->owners; left; left &= left - 1) {
		int i = __builtin_ctzll(left);
		uint32_t alternative = list->own[i].alternative;
		alone |= alternative == 0;
		if (alternative == 0)
			continue;
		put_word(list, word, record, alternative);
		list->chosen |= UINT64_C(1) << i;
		chosen = true;
	}
	if (alone)
		put_word(list, word, record, 0);
	/* Other operations may still need this word after another word has ruled an alternative
	 * out. */
	else if ((!chosen || need->others) && !list->only_own)
		put_word(list, word, WAIT_RECORD_OTHERS, 0);
}

void mailbox_words_add(struct mailbox_words *list, const struct op *op, const struct wait_word *word)
{
	struct need need = {.owners = owners_of(list, op), .record = op->record};
	add_needed(list, word, &need);
}

/* ---- the words of unmatched operations ---- */

/* For each source, the own[i] that have posted a receive: bit i. If no own[i] stands for several
 * operations, only these are looked at. */
struct posted {
	const struct mailbox_words *list;
	uint64_t sources[RANKS_WORLD_MAX], any;
	uint64_t records[RANKS_WORLD_MAX], any_record; /* the record of one of them */
	/* ranks_bit: another operation has posted a receive from that source, too */
	uint64_t others[RANKS_WORLD_WORDS];
};

/* For a group of `size`. */
static void clear_posted(struct posted *posted, const struct mailbox_words *list, int size)
{
	posted->list = list;
	posted->any = posted->any_record = 0;
	memset(posted->sources, 0, (size_t)size * sizeof posted->sources[0]);
	memset(posted->records, 0, (size_t)size * sizeof posted->records[0]);
	memset(posted->others, 0, sizeof posted->others);
}

static void note_posted(const struct match_entry *entry, void *context)
{
	struct posted *posted = context;
	const struct op *op = mailbox_const_op_of(entry);
	uint64_t owners = owners_of(posted->list, op);
	if (!owners) {
		if (entry->source == MATCH_ANY)
			memset(posted->others, 0xff, sizeof posted->others);
		else
			posted->others[entry->source / 64] |= ranks_bit(entry->source);
		return;
	}
	if (entry->source == MATCH_ANY) {
		posted->any |= owners;
		posted->any_record = op->record;
	} else {
		posted->sources[entry->source] |= owners;
		posted->records[entry->source] = op->record;
	}
}

/* Looks at all posted receives only if some own[i] stands for several operations. */
static void find_posted(const struct mailbox *mailbox, struct posted *posted) LOCK_REQUIRES(mail)
{
	const struct mailbox_words *list = posted->list;
	bool several = false;
	for (int i = 0; i < list->own_count; i++)
		several |= list->own[i].alternative != 0;
	if (several) {
		mailbox_match_each(&mailbox->posted, note_posted, posted);
		return;
	}
	for (int i = 0; i < list->own_count; i++) {
		const struct op *op = list->own[i].op;
		if (op->call.kind == TRACE_RECV && mailbox_state_of(op) == OP_P2P_POSTED)
			note_posted(&op->p2p.entry, posted);
	}
}

static struct need need_of_room(const struct mailbox_words *list, const struct mailbox_peer *peer)
{
	struct need need = {0};
	for (const struct op *op = list->own_count ? peer->queue : NULL; op; op = op->p2p.next) {
		uint64_t owners = owners_of(list, op);
		need.owners |= owners;
		need.others |= owners == 0;
		if (owners)
			need.record = op->record;
	}
	return need;
}

/* A receive from any source does not need this rank itself if the group has other members: see
 * mailbox_source_words. Nor do operations in `chosen`, because their other words show the
 * same. */
static struct need need_of_source(const struct mailbox *mailbox, const struct mailbox_words *list,
				  const struct posted *posted, int q)
{
	struct need need = {0};
	bool other = q != mailbox->team->rank || mailbox->team->size == 1;
	if (list->own_count == 0)
		return need;
	need.owners = posted->sources[q];
	need.any = other ? posted->any & ~list->chosen : 0;
	need.record = need.owners ? posted->records[q] : posted->any_record;
	need.others = posted->others[q / 64] & ranks_bit(q);
	return need;
}

static uint64_t several_of(const struct mailbox_words *list, uint64_t owners)
{
	uint64_t several = 0;
	for (; owners; owners &= owners - 1)
		if (list->own[__builtin_ctzll(owners)].alternative)
			several |= owners & -owners;
	return several;
}

void mailbox_words_add_others(struct mailbox *mailbox, struct mailbox_words *list)
{
	struct wait_word word;
	struct posted posted;
	if (list->own_count > 0) {
		clear_posted(&posted, list, mailbox->team->size);
		find_posted(mailbox, &posted);
	}
	for (int q = 0; q < mailbox->team->size; q++) {
		struct need need;
		if (!mailbox->peers[q].queue)
			continue;
		need = need_of_room(list, &mailbox->peers[q]);
		mailbox_room_word(mailbox, q, &word);
		add_needed(list, &word, &need);
	}
	for (int q = 0; list->own_count > 0 && q < mailbox->team->size; q++)
		list->chosen |= several_of(list, posted.sources[q]);
	for (int q = 0; q < mailbox->team->size; q++) {
		if (!mailbox->peers[q].posted_count && !mailbox->posted.any_source)
			continue;
		struct need need = need_of_source(mailbox, list, &posted, q);
		mailbox_source_word(mailbox, q, &word);
		add_needed(list, &word, &need);
	}
}
