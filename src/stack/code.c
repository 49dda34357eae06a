/* SPDX-License-Identifier: BSD-3-Clause
 * Reads a code object of Python: its function, its file, and the line of an instruction. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "stack/stack_private.h"

enum {
	OBJECT_TYPE = 8, /* of every object */
	/* of those of variable size: how many items, also how many characters of a string */
	OBJECT_SIZE = 16,
	TEXT_STATE = 32,
	LENGTH_MAX = 1 << 20, /* at most; also characters */
	CHARACTERS = STACK_TEXT_BYTES,
	UTF8_BYTES = 4,
};

bool stack_is_object(const struct stack_memory *memory, uint64_t object, uint64_t type)
{
	uint64_t found;
	return object && stack_read_u64(memory, object + OBJECT_TYPE, &found) && found == type;
}

/* ---- strings ---- */

#define CUT "..."

void stack_cut_text(const char *text, bool tail, char *out, size_t bytes)
{
	size_t length = strlen(text), room = bytes - sizeof CUT, from = 0;
	if (length < bytes) {
		memcpy(out, text, length + 1);
	} else if (tail) { /* not in the middle of a character */
		for (from = length - room; (text[from] & 0xc0) == 0x80;)
			from++;
		snprintf(out, bytes, CUT "%s", text + from);
	} else {
		while (room && (text[room] & 0xc0) == 0x80)
			room--;
		snprintf(out, bytes, "%.*s" CUT, (int)room, text);
	}
	text_clean(out, false);
}

/* Writes a character as UTF-8. Returns its length; 0: no character that can be shown. */
static int encode_character(uint32_t character, char *out)
{
	if (character < 0x80) {
		out[0] = (char)character;
		return character != 0;
	}
	if (character < 0x800) {
		out[0] = (char)(0xc0 | character >> 6);
		out[1] = (char)(0x80 | (character & 0x3f));
		return 2;
	}
	if (character < 0x10000) {
		out[0] = (char)(0xe0 | character >> 12);
		out[1] = (char)(0x80 | (character >> 6 & 0x3f));
		out[2] = (char)(0x80 | (character & 0x3f));
		return character < 0xd800 || character > 0xdfff ? 3 : 0;
	}
	out[0] = (char)(0xf0 | character >> 18);
	out[1] = (char)(0x80 | (character >> 12 & 0x3f));
	out[2] = (char)(0x80 | (character >> 6 & 0x3f));
	out[3] = (char)(0x80 | (character & 0x3f));
	return character < 0x110000 ? 4 : 0;
}

static uint32_t character_at(const unsigned char *units, uint32_t width, uint64_t i)
{
	uint32_t value = 0;
	for (uint32_t b = width; b > 0; b--) /* little-endian, as all machines on which this runs */
		value = value << 8 | units[i * width + b - 1];
	return value;
}

static void encode_all(const unsigned char *units, uint32_t width, uint64_t count, bool tail,
		       char *out, size_t bytes)
{
	char text[CHARACTERS * UTF8_BYTES + 1];
	size_t used = 0;
	for (uint64_t i = 0; i < count; i++) {
		char *at = text + used;
		int length = encode_character(character_at(units, width, i), at);
		if (length == 0)
			*at = '?';
		used += length ? (size_t)length : 1;
	}
	text[used] = '\0';
	stack_cut_text(text, tail, out, bytes);
}

static bool read_text(const struct stack_python *python, uint64_t text, bool tail, char *out,
		      size_t bytes)
{
	unsigned char units[CHARACTERS * sizeof(uint32_t)];
	uint64_t length, data = text + python->layout.members[STACK_TEXT_ASCII], skip = 0;
	uint32_t state;
	if (!stack_is_object(python->memory, text, python->text_type) ||
	    !stack_read_u64(python->memory, text + OBJECT_SIZE, &length) ||
	    !stack_read_u32(python->memory, text + TEXT_STATE, &state))
		return false;
	/* Two bits that don't matter here; three with the width; whether the text is in one piece;
	 * whether it is ASCII. */
	uint32_t width = state >> 2 & 7;
	if ((width != 1 && width != 2 && width != 4) || !(state >> 5 & 1) || length > LENGTH_MAX)
		return false;
	if (!(state >> 6 & 1))
		data += python->layout.text_more;
	if (length > CHARACTERS) { /* more than fits: stack_cut_text then marks the cut */
		skip = tail ? length - CHARACTERS : 0;
		length = CHARACTERS;
	}
	if (length &&
	    !python->memory->read(python->memory, data + skip * width, units, length * width))
		return false;
	encode_all(units, width, length, tail, out, bytes);
	return true;
}

/* ---- lines ---- */

/* A bytes object, read piece by piece. */
struct table {
	const struct stack_memory *memory;
	uint64_t address, left;
	unsigned char piece[256];
	size_t at, have;
	bool ended;
};

static bool open_table(const struct stack_python *python, uint64_t object, struct table *out)
{
	*out = (struct table){.memory = python->memory,
			      .address = object + python->layout.members[STACK_BYTES_DATA]};
	return stack_is_object(python->memory, object, python->bytes_type) &&
	       stack_read_u64(python->memory, object + OBJECT_SIZE, &out->left) &&
	       out->left <= LENGTH_MAX;
}

/* The next byte; 0 and `ended` if there is none. */
static unsigned next_byte(struct table *table)
{
	if (table->at == table->have) {
		table->at = 0;
		table->have = table->left < sizeof table->piece ? table->left : sizeof table->piece;
		if (!table->have || !table->memory->read(table->memory, table->address,
							 table->piece, table->have)) {
			table->have = table->left = 0;
			table->ended = true;
			return 0;
		}
		table->address += table->have;
		table->left -= table->have;
	}
	return table->piece[table->at++];
}

static int signed_byte(unsigned byte)
{
	return byte < 128 ? (int)byte : (int)byte - 256;
}

/* Python 3.9: pairs of bytes: by how much the address grows to the next line, and by how much the
 * line grows then. */
static int64_t line_by_deltas(struct table *table, uint64_t offset, int64_t line)
{
	for (uint64_t address = 0;;) {
		address += next_byte(table);
		int delta = signed_byte(next_byte(table));
		if (table->ended || address > offset)
			return line;
		line += delta;
	}
}

/* Python 3.10: pairs of bytes: the length of a range, and the difference of its line to that of the
 * range before; -128 for a range without a line. */
static int64_t line_by_ranges(struct table *table, uint64_t offset, int64_t line)
{
	for (uint64_t end = 0;;) {
		end += next_byte(table);
		int delta = signed_byte(next_byte(table));
		if (table->ended)
			return 0;
		if (delta != -128)
			line += delta;
		if (offset < end)
			return delta != -128 ? line : 0;
	}
}

/* Six bits in each byte, the lowest first; the seventh says that more follow. */
static uint32_t next_number(struct table *table)
{
	uint32_t value = 0;
	for (unsigned shift = 0; shift < 32; shift += 6) {
		unsigned byte = next_byte(table);
		value |= (uint32_t)(byte & 63) << shift;
		if (!(byte & 64))
			break;
	}
	return value;
}

/* The sign is in the lowest bit. */
static int64_t next_signed(struct table *table)
{
	uint32_t value = next_number(table);
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* From Python 3.11 on: entries that begin with a byte of 128 or more. That byte has the kind of the
 * entry, and the number of its instructions. */
static int64_t line_by_locations(struct table *table, uint64_t offset, int64_t line)
{
	enum {
		SHORT_MAX = 9,
		ONE_LINE = 10,
		ONE_LINE_MAX = 12,
		NO_COLUMNS = 13,
		LONG = 14,
		NO_LINE = 15
	};
	for (uint64_t end = 0;;) {
		unsigned first = next_byte(table), kind = first >> 3 & 15;
		if (table->ended || first < 128)
			return 0;
		if (kind <= SHORT_MAX) {
			next_byte(table);
		} else if (kind <= ONE_LINE_MAX) {
			line += kind - ONE_LINE;
			next_byte(table);
			next_byte(table);
		} else if (kind != NO_LINE) {
			line += next_signed(table);
			for (int i = 0; kind == LONG && i < 3; i++)
				next_number(table);
		}
		end += ((first & 7) + 1) * 2;
		if (offset < end)
			return kind != NO_LINE ? line : 0;
	}
}

/* The offset of an instruction in the code; before the first instruction it is 0. */
static uint64_t offset_of(const struct stack_python *python, uint64_t code, uint64_t instruction)
{
	const struct stack_layout *layout = &python->layout;
	uint64_t begin = code + layout->members[STACK_CODE_BYTES];
	if (layout->lines == STACK_LINES_LOCATIONS)
		return instruction > begin ? instruction - begin : 0;
	int32_t index = (int32_t)instruction;
	uint64_t unit = layout->lines == STACK_LINES_RANGES ? 2 : 1;
	return index > 0 ? (uint64_t)index * unit : 0;
}

static int find_line(const struct stack_python *python, uint64_t code, uint64_t instruction)
{
	const uint64_t *members = python->layout.members;
	struct table table;
	uint64_t object;
	uint32_t first;
	int64_t line;
	if (!stack_read_u64(python->memory, code + members[STACK_CODE_LINES], &object) ||
	    !stack_read_u32(python->memory, code + members[STACK_CODE_FIRST_LINE], &first) ||
	    !open_table(python, object, &table))
		return 0;
	uint64_t offset = offset_of(python, code, instruction);
	if (python->layout.lines == STACK_LINES_DELTAS)
		line = line_by_deltas(&table, offset, (int32_t)first);
	else if (python->layout.lines == STACK_LINES_RANGES)
		line = line_by_ranges(&table, offset, (int32_t)first);
	else
		line = line_by_locations(&table, offset, (int32_t)first);
	return line > 0 && line <= INT32_MAX ? (int)line : 0;
}

bool stack_describe_code(const struct stack_python *python, uint64_t code, uint64_t instruction,
			 struct stack_frame *out)
{
	const uint64_t *members = python->layout.members;
	uint64_t name, file;
	if (!stack_is_object(python->memory, code, python->code_type) ||
	    !stack_read_u64(python->memory, code + members[STACK_CODE_NAME], &name) ||
	    !stack_read_u64(python->memory, code + members[STACK_CODE_FILE], &file) ||
	    !read_text(python, name, false, out->function, sizeof out->function) ||
	    !read_text(python, file, true, out->file, sizeof out->file))
		return false;
	out->line = find_line(python, code, instruction);
	return true;
}
