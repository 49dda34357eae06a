/* SPDX-License-Identifier: BSD-3-Clause
 * Makes random schedules: a sequence of messages and collectives that all ranks could follow step
 * by step, made looser (not blocking, earlier, in batches, of any source), and often broken; until
 * the reference matcher says of one what was wanted. */
#include "schedule.h"

#include <stdarg.h>
#include <stdio.h>

#include "generator.h"

enum { ITEMS = 16, ATTEMPTS = 200, BURST_MAX = 6, CROWD_MIN = 4, PATIENCE_MAX = 6 };

/* A call that a rank is to make. */
struct item {
	struct schedule_action action;
	int patience; /* it does not block, and is waited for this many items later */
};

struct draft {
	int count;
	struct item items[ITEMS];
};

struct maker {
	uint64_t generator;
	struct schedule *schedule;
	bool strict; /* only collectives that end on no rank before all have begun */
	bool any_source;
	bool crowds; /* of messages that may find all places taken */
	struct draft drafts[SCHEDULE_RANKS];
};

static uint32_t below(struct maker *maker, uint32_t end)
{
	return generator_below(&maker->generator, end);
}

static bool is_message(const struct item *item)
{
	return item->action.kind != SCHEDULE_COLLECTIVE;
}

uint32_t schedule_bytes(const struct schedule *schedule, int receiver, int tag)
{
	return schedule->bytes[schedule->by_tag ? tag : receiver];
}

bool schedule_must_probe(const struct schedule *schedule, const struct schedule_action *action)
{
	return action->kind == SCHEDULE_RECV && action->tag == SCHEDULE_ANY && schedule->by_tag;
}

int schedule_number(const struct schedule_program *program, int i)
{
	const struct schedule_action *send = &program->actions[i];
	int number = 0;
	for (int j = 0; j < i; j++)
		number += program->actions[j].kind == SCHEDULE_SEND &&
			  program->actions[j].peer == send->peer &&
			  program->actions[j].tag == send->tag;
	return number;
}

/* ---- a legal sequence ---- */

static void choose_bytes(struct maker *maker)
{
	enum { EDGE = SCHEDULE_BUFFERED };
	static const uint32_t bytes[] = {0,        8,        8,        192,  193,  EDGE,   EDGE,
					 EDGE + 1, EDGE + 1, EDGE + 1, 8192, 8192, 100000, 1 << 20};
	enum { CHOICES = sizeof bytes / sizeof *bytes };
	maker->schedule->by_tag = below(maker, 2);
	for (int i = 0; i < SCHEDULE_RANKS; i++) {
		uint32_t choice = below(maker, CHOICES);
		if (choice == CHOICES - 1 && below(maker, 2))
			choice = 0;
		maker->schedule->bytes[i] = bytes[choice];
	}
}

static void add(struct maker *maker, int rank, struct schedule_action action)
{
	struct draft *draft = &maker->drafts[rank];
	action.blocks = true;
	action.choice = generator_next(&maker->generator);
	draft->items[draft->count++] = (struct item){.action = action};
}

static bool has_room(const struct maker *maker, int rank, int count)
{
	return maker->drafts[rank].count + count <= ITEMS;
}

static void add_collective(struct maker *maker)
{
	static const uint32_t counts[] = {0, 1, 4, 100, 5000, 40000};
	int ranks = maker->schedule->ranks;
	struct schedule_action action = {.kind = SCHEDULE_COLLECTIVE};
	action.collective =
		(uint8_t)below(maker, maker->strict ? SCHEDULE_ALLREDUCE + 1 : SCHEDULE_COLLECTIVES);
	action.root = (uint8_t)below(maker, (uint32_t)ranks);
	action.count = counts[maker->strict ? 1 + below(maker, 5) : below(maker, 6)];
	for (int r = 0; r < ranks; r++)
		if (!has_room(maker, r, 1))
			return;
	for (int r = 0; r < ranks; r++)
		add(maker, r, action);
}

static void add_messages(struct maker *maker, int from, int to, int count)
{
	int tag = (int)below(maker, SCHEDULE_TAGS);
	if (!has_room(maker, from, from == to ? 2 * count : count) || !has_room(maker, to, count))
		return;
	for (int i = 0; i < count; i++) {
		struct draft *draft = &maker->drafts[from];
		add(maker, from,
		    (struct schedule_action){
			    .kind = SCHEDULE_SEND, .peer = (int8_t)to, .tag = (int8_t)tag});
		if (from == to) {
			draft->items[draft->count - 1].action.blocks = false;
			draft->items[draft->count - 1].patience = PATIENCE_MAX;
		}
		add(maker, to,
		    (struct schedule_action){
			    .kind = SCHEDULE_RECV, .peer = (int8_t)from, .tag = (int8_t)tag});
		if (below(maker, 2))
			tag = (int)below(maker, SCHEDULE_TAGS);
	}
}

/* About as many messages as there are slots, and another one that is received before some of
 * them. */
static void add_crowd(struct maker *maker, int from, int to)
{
	int count = CROWD_MIN + (int)below(maker, BURST_MAX - CROWD_MIN + 1);
	int late = (int)below(maker, (uint32_t)count), tag = (int)below(maker, SCHEDULE_TAGS);
	int8_t tags[2] = {(int8_t)tag, (int8_t)((tag + 1) % SCHEDULE_TAGS)};
	if (from == to || !has_room(maker, from, count) || !has_room(maker, to, count))
		return;
	if (below(maker, 2))
		late = 0;
	for (int i = 0; i < count; i++) {
		struct draft *draft = &maker->drafts[from];
		add(maker, from,
		    (struct schedule_action){
			    .kind = SCHEDULE_SEND, .peer = (int8_t)to, .tag = tags[i == count - 1]});
		draft->items[draft->count - 1].action.blocks = false;
		draft->items[draft->count - 1].patience = PATIENCE_MAX;
		add(maker, to,
		    (struct schedule_action){
			    .kind = SCHEDULE_RECV, .peer = (int8_t)from, .tag = tags[i == late]});
	}
}

static void add_events(struct maker *maker)
{
	uint32_t ranks = (uint32_t)maker->schedule->ranks, events = 2 + below(maker, 6 + 3 * ranks);
	choose_bytes(maker);
	for (uint32_t e = 0; e < events; e++) {
		int from = (int)below(maker, ranks), to = (int)below(maker, ranks);
		if (below(maker, 7) == 0)
			add_collective(maker);
		else if (maker->crowds && below(maker, 6) == 0)
			add_crowd(maker, from, to);
		else if (from != to || below(maker, 4) == 0)
			add_messages(maker, from, to,
				     below(maker, 5) ? 1 : 2 + (int)below(maker, BURST_MAX - 1));
	}
}

/* ---- made looser ---- */

/* Moves what the rank calls at `from` to `to`, before or behind the others. */
static void move(struct draft *draft, int from, int to)
{
	struct item moved = draft->items[from];
	for (int i = from; i > to; i--)
		draft->items[i] = draft->items[i - 1];
	for (int i = from; i < to; i++)
		draft->items[i] = draft->items[i + 1];
	draft->items[to] = moved;
}

static void loosen(struct maker *maker, struct draft *draft)
{
	uint32_t looseness = below(maker, 5);
	for (int i = 0; i < draft->count; i++) {
		struct item *item = &draft->items[i];
		if (below(maker, 4) >= looseness)
			continue;
		item->action.blocks = false;
		item->patience = (int)below(maker, PATIENCE_MAX);
		int earlier = 1 + (int)below(maker, 4);
		if (item->action.kind == SCHEDULE_RECV && below(maker, 3) == 0 && i >= earlier)
			move(draft, i, i - earlier);
	}
	if (draft->count == 0 || below(maker, 3))
		return;
	int first = (int)below(maker, (uint32_t)draft->count), length = 2 + (int)below(maker, 4);
	for (int i = first; i < first + length && i < draft->count && is_message(&draft->items[i]);
	     i++)
		draft->items[i].action.batched = true;
}

/* Mostly all receives that are alike, so that nobody takes what another needs. */
static void widen(struct maker *maker, int rank)
{
	struct draft *draft = &maker->drafts[rank];
	uint32_t sources = below(maker, 1u << SCHEDULE_TAGS), tags = below(maker, 4) == 0;
	for (int i = 0; i < draft->count; i++) {
		struct schedule_action *action = &draft->items[i].action;
		if (action->kind != SCHEDULE_RECV)
			continue;
		bool odd = below(maker, 8) == 0;
		bool any_source = maker->any_source && (odd || sources >> action->tag & 1);
		bool may_probe = action->blocks && !action->batched;
		if ((tags || odd) && (may_probe || !maker->schedule->by_tag))
			action->tag = SCHEDULE_ANY;
		if (any_source)
			action->peer = SCHEDULE_ANY;
	}
}

/* ---- broken ---- */

/* Calls one item earlier or later. All ranks call the same collectives in one order, so it passes
 * none of its kind. */
static void displace(struct maker *maker, struct draft *draft, int from)
{
	int to = from, step = below(maker, 2) ? 1 : -1;
	for (int left = below(maker, 2) ? 1 : 1 + (int)below(maker, ITEMS); left > 0; left--) {
		int next = to + step;
		if (next < 0 || next >= draft->count ||
		    (!is_message(&draft->items[from]) && !is_message(&draft->items[next])))
			break;
		to = next;
	}
	move(draft, from, to);
}

static void break_one(struct maker *maker)
{
	struct draft *draft = &maker->drafts[below(maker, (uint32_t)maker->schedule->ranks)];
	if (draft->count == 0)
		return;
	int i = (int)below(maker, (uint32_t)draft->count);
	struct item *item = &draft->items[i];
	uint32_t how = below(maker, 10);
	if (how < 5) {
		displace(maker, draft, i);
	} else if (how < 7) {
		item->action.blocks = true;
		item->action.batched = false;
	} else if (!is_message(item)) {
		return;
	} else if (how == 7) {
		move(draft, i, draft->count - 1);
		draft->count--;
	} else if (how == 8 && item->action.tag != SCHEDULE_ANY) {
		item->action.tag = (int8_t)below(maker, SCHEDULE_TAGS);
	} else {
		item->action.peer = (int8_t)below(maker, (uint32_t)maker->schedule->ranks);
	}
}

/* ---- the calls themselves ---- */

struct writer {
	struct maker *maker;
	struct schedule_program *program;
	uint64_t open;             /* actions that have a handle and are to be waited for */
	int due[SCHEDULE_ACTIONS]; /* before which item */
	uint64_t batch;            /* the messages of a batch that has begun */
	bool in_batch;
};

/* False: too many. */
static bool put(struct writer *writer, struct schedule_action action)
{
	struct schedule_program *program = writer->program;
	if (program->count == SCHEDULE_ACTIONS)
		return false;
	program->actions[program->count++] = action;
	return true;
}

static bool put_wait(struct writer *writer, enum schedule_kind kind, uint64_t of)
{
	return put(writer,
		   (struct schedule_action){.kind = (uint8_t)kind,
					    .blocks = true,
					    .choice = generator_next(&writer->maker->generator),
					    .of = of});
}

static bool put_waits(struct writer *writer, int place)
{
	uint64_t due = 0;
	for (uint64_t open = writer->open; open; open &= open - 1)
		if (writer->due[__builtin_ctzll(open)] <= place)
			due |= open & -open;
	if (due == 0)
		return true;
	if (below(writer->maker, 4) == 0 && !put_wait(writer, SCHEDULE_WAIT_ANY, writer->open))
		return false;
	writer->open &= ~due;
	return put_wait(writer, SCHEDULE_WAIT, due);
}

/* A batch ends where the next item is not in it. */
static bool put_batch_end(struct writer *writer, const struct item *last, int place)
{
	int i = writer->program->count;
	if (!put(writer, (struct schedule_action){.kind = SCHEDULE_BATCH_END,
						  .blocks = last->action.blocks,
						  .choice = last->action.choice,
						  .of = writer->batch}))
		return false;
	if (!last->action.blocks) {
		writer->open |= UINT64_C(1) << i;
		writer->due[i] = place + last->patience;
	}
	writer->batch = 0;
	writer->in_batch = false;
	return true;
}

static bool put_item(struct writer *writer, const struct item *item, int place)
{
	struct schedule_action action = item->action;
	if (action.batched && !writer->in_batch) {
		writer->in_batch = true;
		if (!put(writer, (struct schedule_action){.kind = SCHEDULE_BATCH}))
			return false;
	}
	int i = writer->program->count;
	if (action.batched) {
		action.blocks = false;
		writer->batch |= UINT64_C(1) << i;
	} else if (!action.blocks) {
		writer->open |= UINT64_C(1) << i;
		writer->due[i] = place + item->patience;
	}
	return put(writer, action);
}

static bool write_program(struct maker *maker, int rank)
{
	const struct draft *draft = &maker->drafts[rank];
	struct schedule_program *program = &maker->schedule->programs[rank];
	struct writer writer = {.maker = maker, .program = program};
	program->count = 0;
	for (int i = 0; i < draft->count; i++) {
		const struct item *item = &draft->items[i];
		bool goes_on = i + 1 < draft->count && draft->items[i + 1].action.batched;
		if (!put_item(&writer, item, i))
			return false;
		if (writer.in_batch && !goes_on && !put_batch_end(&writer, item, i))
			return false;
		if (!writer.in_batch && !put_waits(&writer, i))
			return false;
	}
	if (writer.open && !put_wait(&writer, SCHEDULE_WAIT, writer.open))
		return false;
	return put(&writer, (struct schedule_action){.kind = SCHEDULE_COLLECTIVE,
						     .blocks = true,
						     .collective = SCHEDULE_BARRIER});
}

static bool write_all(struct maker *maker)
{
	for (int r = 0; r < maker->schedule->ranks; r++)
		if (!write_program(maker, r))
			return false;
	return true;
}

/* ---- */

static void begin(struct maker *maker, uint64_t seed, int ranks, int limit,
		  struct schedule *schedule)
{
	*schedule = (struct schedule){.ranks = ranks, .limit = limit};
	*maker = (struct maker){.generator = seed, .schedule = schedule};
}

void schedule_make_legal(uint64_t seed, int ranks, int limit, struct schedule *schedule)
{
	struct maker maker;
	begin(&maker, seed, ranks, limit, schedule);
	add_events(&maker);
	bool written = write_all(&maker); /* without batches, and with few handles, always */
	(void)written;
}

static bool try_to_make(struct maker *maker, bool broken)
{
	int ranks = maker->schedule->ranks;
	maker->any_source = below(maker, 2);
	maker->crowds = below(maker, 2);
	maker->strict = broken || maker->any_source;
	add_events(maker);
	for (int r = 0; r < ranks; r++) {
		loosen(maker, &maker->drafts[r]);
		if (below(maker, 2))
			widen(maker, r);
	}
	if (broken || below(maker, 4) == 0)
		for (uint32_t times = 1 + below(maker, 3); times > 0; times--)
			break_one(maker);
	return write_all(maker);
}

void schedule_make(uint64_t seed, int ranks, int limit, struct schedule *schedule,
		   struct schedule_verdict *verdict)
{
	struct maker maker;
	uint64_t generator = seed;
	bool broken = generator_below(&generator, 4) == 0;
	enum schedule_outcome wanted = broken ? SCHEDULE_DEADLOCKS : SCHEDULE_ENDS_WELL;
	for (int i = 0; i < ATTEMPTS; i++) {
		begin(&maker, generator_mix(seed, (uint64_t)i), ranks, limit, schedule);
		if (!try_to_make(&maker, broken))
			continue;
		schedule_judge(schedule, verdict);
		if (verdict->outcome == wanted)
			return;
	}
	schedule_make_legal(seed, ranks, limit, schedule);
	schedule_judge(schedule, verdict);
}

/* ---- in words ---- */

struct text {
	char *at;
	size_t bytes, used;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct text *text, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text->at + text->used, text->bytes - text->used, format, arguments);
	va_end(arguments);
	text->used += (size_t)length;
	if (text->used >= text->bytes)
		text->used = text->bytes - 1;
}

static void say_set(struct text *text, uint64_t set)
{
	for (const char *before = ""; set; set &= set - 1, before = ",")
		say(text, "%s%d", before, __builtin_ctzll(set));
}

void schedule_text(const struct schedule_program *program, char *out, size_t bytes)
{
	static const char *const names[] = {"barrier", "allreduce", "broadcast", "allgather"};
	struct text text = {.at = out, .bytes = bytes};
	out[0] = '\0';
	for (int i = 0; i < program->count; i++) {
		const struct schedule_action *action = &program->actions[i];
		say(&text, "%s%d:%s", i ? " " : "", i, action->blocks || action->batched ? "" : "i");
		switch ((enum schedule_kind)action->kind) {
		case SCHEDULE_SEND:
		case SCHEDULE_RECV:
			say(&text, "%s(%d,%d)", action->kind == SCHEDULE_SEND ? "send" : "recv",
			    action->peer, action->tag);
			break;
		case SCHEDULE_COLLECTIVE:
			say(&text, "%s", names[action->collective]);
			break;
		case SCHEDULE_BATCH:
			say(&text, "batch");
			break;
		case SCHEDULE_BATCH_END:
			say(&text, "end");
			break;
		case SCHEDULE_WAIT:
		case SCHEDULE_WAIT_ANY:
			say(&text, "%s", action->kind == SCHEDULE_WAIT ? "wait(" : "any(");
			say_set(&text, action->of);
			say(&text, ")");
			break;
		}
	}
}
