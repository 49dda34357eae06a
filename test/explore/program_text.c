/* SPDX-License-Identifier: BSD-3-Clause
 * Programs as text: for each group and event a line of numbers, or of words where there are names.
 * For readers, what follows a # says what each lane does in its order. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "program.h"

static const char *const kinds[] = {
#define X(name, text) [PROGRAM_##name] = (text),
	PROGRAM_KINDS(X)
#undef X
};
static const char *const forms[] = {
#define X(name, text) [PROGRAM_##name] = (text),
	PROGRAM_FORMS(X)
#undef X
};
static const char *const plants[] = {
#define X(name, text) [PROGRAM_PLANT_##name] = (text),
	PROGRAM_PLANTS(X)
#undef X
};

enum { HOWS = 4, LINE_BYTES = 2048 };
static const char *const hows[HOWS] = {"world", "split", "from-ranks", "from-members"};
static const char *const memories[] = {"alloc", "plain", "registered"};

/* ---- writing ---- */

static void print_lane(FILE *file, int lane)
{
	fprintf(file, "r%dt%d", program_rank_of(lane), lane % PROGRAM_THREADS);
}

static void print_half(FILE *file, const struct program *program, int lane, int e)
{
	const struct program_event *event = &program->events[e];
	const struct program_half *half = &event->halves[lane];
	bool receives = lane == event->to && event->kind != PROGRAM_CANCEL_SEND;
	fprintf(file, "#   a%d %s", e, kinds[event->kind]);
	if (event->kind == PROGRAM_COLLECTIVE)
		fprintf(file, " %s count %u",
			operation_facts((enum operation_kind)event->operation).name, event->bytes);
	if (event->kind == PROGRAM_MESSAGE || event->kind == PROGRAM_SERVER ||
	    event->kind == PROGRAM_BLOCKS) {
		fprintf(file, " %s ", receives ? "from" : "to");
		if (event->kind == PROGRAM_SERVER && receives)
			fprintf(file, "any");
		else
			print_lane(file, receives ? event->from : event->to);
		fprintf(file, " %u x %u bytes", event->repeat, event->bytes);
	}
	fprintf(file, " group %d, %s", event->group, forms[half->form]);
	if (half->lag)
		fprintf(file, " +%d", half->lag);
	if (half->otherwise & PROGRAM_ABSENT)
		fprintf(file, ", not called");
	else if (half->otherwise)
		fprintf(file, ", otherwise (%x)", half->otherwise);
	fprintf(file, "\n");
}

static void print_group(FILE *file, const struct program *program, int g)
{
	const struct program_group *group = &program->groups[g];
	fprintf(file, "group %d %s %d :", g, hows[group->how], group->parent);
	for (int i = 0; i < group->size; i++)
		fprintf(file, " %d", group->members[i]);
	fprintf(file, " :");
	for (int i = 0; i < group->size; i++)
		fprintf(file, " %d", group->threads[group->members[i]]);
	fprintf(file, "\n");
}

static void print_event(FILE *file, const struct program *program, int e)
{
	const struct program_event *event = &program->events[e];
	fprintf(file, "event %d %s %d %d %d %d %d %d %d %d %d %u %u %u", e, kinds[event->kind],
		event->group, event->from, event->to, event->tag, event->operation, event->dtype,
		event->op, event->root, event->any_tag, event->repeat, event->senders, event->bytes);
	for (int lane = 0; lane < PROGRAM_LANES; lane++) {
		const struct program_half *half = &event->halves[lane];
		if (program_takes_part(program, e, lane))
			fprintf(file, " : %d %s %d %s %d %d %d", lane, forms[half->form], half->lag,
				memories[half->memory], half->choice, half->otherwise,
				half->timeout_ms);
	}
	fprintf(file, "\n");
}

void program_print(const struct program *program, FILE *file)
{
	fprintf(file, "program %llu %s %d %d %d\n", (unsigned long long)program->seed,
		plants[program->plant], program->plant_event, program->culprit, program->looks);
	fprintf(file, "world %d %d %d %d :", program->world.ranks, program->world.messages,
		program->world.serial, program->world.blocking);
	for (int r = 0; r < program->world.ranks; r++)
		fprintf(file, " %d", program->threads[r]);
	fprintf(file, "\n");
	for (int g = 0; g < program->group_count; g++)
		print_group(file, program, g);
	for (int e = 0; e < program->event_count; e++)
		print_event(file, program, e);
	fprintf(file, "end\n");
	for (int lane = 0; lane < PROGRAM_LANES; lane++) {
		bool first = true;
		for (int e = 0; e < program->event_count; e++) {
			if (!program_takes_part(program, e, lane))
				continue;
			if (first) {
				fprintf(file, "# ");
				print_lane(file, lane);
				fprintf(file, "\n");
			}
			first = false;
			print_half(file, program, lane, e);
		}
	}
}

/* ---- reading ---- */

/* The rest of a line. `bad`: something in it could not be read. */
struct reader {
	char *rest;
	bool bad;
};

static const char *next_word(struct reader *reader)
{
	char *word = reader->rest;
	while (isspace((unsigned char)*word))
		word++;
	char *end = word;
	while (*end && !isspace((unsigned char)*end))
		end++;
	reader->rest = *end ? end + 1 : end;
	*end = '\0';
	if (!*word)
		reader->bad = true;
	return word;
}

static unsigned long long next_number(struct reader *reader, unsigned long long most)
{
	const char *word = next_word(reader);
	char *end;
	unsigned long long number = strtoull(word, &end, 10);
	if (!isdigit((unsigned char)word[0]) || *end || number > most) {
		reader->bad = true;
		return 0;
	}
	return number;
}

static uint8_t next_name(struct reader *reader, const char *const *names, int count)
{
	const char *word = next_word(reader);
	for (int i = 0; i < count; i++)
		if (strcmp(word, names[i]) == 0)
			return (uint8_t)i;
	reader->bad = true;
	return 0;
}

static bool next_is(struct reader *reader, const char *text)
{
	char *word = reader->rest;
	while (isspace((unsigned char)*word))
		word++;
	size_t length = strlen(text);
	if (strncmp(word, text, length) != 0)
		return false;
	reader->rest = word + length;
	return true;
}

static uint8_t next_byte(struct reader *reader)
{
	return (uint8_t)next_number(reader, UINT8_MAX);
}

static void read_group(struct reader *reader, struct program *program)
{
	unsigned g = next_byte(reader), count = 0;
	if (g != program->group_count || g >= PROGRAM_GROUPS) {
		reader->bad = true;
		return;
	}
	struct program_group *group = &program->groups[program->group_count++];
	group->how = next_name(reader, hows, HOWS);
	group->parent = next_byte(reader);
	if (!next_is(reader, ":"))
		reader->bad = true;
	while (!reader->bad && !next_is(reader, ":")) {
		unsigned member = (unsigned)next_number(reader, PROGRAM_RANKS - 1);
		if (count == PROGRAM_RANKS)
			reader->bad = true;
		else
			group->members[count++] = (uint8_t)member;
	}
	group->size = (uint8_t)count;
	for (unsigned i = 0; i < count && !reader->bad; i++)
		group->threads[group->members[i]] = next_byte(reader);
}

static void read_half(struct reader *reader, struct program_event *event)
{
	unsigned lane = (unsigned)next_number(reader, PROGRAM_LANES - 1);
	struct program_half *half = &event->halves[lane];
	half->form = next_name(reader, forms, PROGRAM_FORM_COUNT);
	half->lag = next_byte(reader);
	half->memory = next_name(reader, memories, PROGRAM_MEMORIES);
	half->choice = next_byte(reader);
	half->otherwise = (uint16_t)next_number(reader, UINT16_MAX);
	half->timeout_ms = (uint16_t)next_number(reader, UINT16_MAX);
}

static void read_event(struct reader *reader, struct program *program)
{
	unsigned e = next_byte(reader);
	if (e != program->event_count || e >= PROGRAM_EVENTS) {
		reader->bad = true;
		return;
	}
	struct program_event *event = &program->events[program->event_count++];
	event->kind = next_name(reader, kinds, PROGRAM_KIND_COUNT);
	uint8_t *const fields[] = {&event->group,     &event->from,  &event->to, &event->tag,
				   &event->operation, &event->dtype, &event->op, &event->root};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		*fields[i] = next_byte(reader);
	event->any_tag = next_number(reader, 1) != 0;
	event->repeat = (uint16_t)next_number(reader, UINT16_MAX);
	event->senders = (uint16_t)next_number(reader, UINT16_MAX);
	event->bytes = (uint32_t)next_number(reader, 1u << 20);
	while (!reader->bad && next_is(reader, ":"))
		read_half(reader, event);
}

static void read_world(struct reader *reader, struct program *program)
{
	program->world.ranks = (uint8_t)next_number(reader, PROGRAM_RANKS);
	program->world.messages = next_byte(reader);
	program->world.serial = next_number(reader, 1) != 0;
	program->world.blocking = next_number(reader, 1) != 0;
	if (!next_is(reader, ":"))
		reader->bad = true;
	for (int r = 0; r < program->world.ranks && !reader->bad; r++)
		program->threads[r] = next_byte(reader);
}

static void read_head(struct reader *reader, struct program *program)
{
	program->seed = next_number(reader, UINT64_MAX);
	program->plant = next_name(reader, plants, PROGRAM_PLANT_COUNT);
	program->plant_event = next_byte(reader);
	program->culprit = next_byte(reader);
	program->looks = (uint16_t)next_number(reader, UINT16_MAX);
}

const char *program_read(FILE *file, struct program *program)
{
	static _Thread_local char why[LINE_BYTES + 64];
	char line[LINE_BYTES];
	int number = 0;
	memset(program, 0, sizeof *program);
	while (fgets(line, sizeof line, file)) {
		struct reader reader = {line, false};
		number++;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (next_is(&reader, "end"))
			return program_is_legal(program);
		if (next_is(&reader, "program"))
			read_head(&reader, program);
		else if (next_is(&reader, "world"))
			read_world(&reader, program);
		else if (next_is(&reader, "group"))
			read_group(&reader, program);
		else if (next_is(&reader, "event"))
			read_event(&reader, program);
		else
			reader.bad = true;
		if (reader.bad) {
			snprintf(why, sizeof why, "line %d of the program cannot be read", number);
			return why;
		}
	}
	return "the program has no end";
}
