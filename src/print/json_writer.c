/* SPDX-License-Identifier: BSD-3-Clause
 * Writes JSON. Strings come out of other processes' memory and may hold anything. So every byte is
 * escaped, or checked to be UTF-8. */
#include <inttypes.h>

#include "base/text.h"
#include "print/print.h"

/* Writes the character as UTF-16, as JSON wants it. */
static void put_escaped(FILE *out, const char *character, int bytes)
{
	uint32_t point = text_decode(character, bytes);

	if (point >= 0x10000)
		fprintf(out, "\\u%04x\\u%04x", (point - 0x10000) >> 10 | 0xd800u,
			(point & 0x3ffu) | 0xdc00u);
	else
		fprintf(out, "\\u%04x", point);
}

static void put_string(FILE *out, const char *value)
{
	fputc('"', out);
	for (int bytes; *value; value += bytes) {
		bool shown = text_is_shown(value, &bytes);
		if (text_utf8_bytes(value) == 0)
			fputs("\\ufffd", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else if (*value == '\n')
			fputs("\\n", out);
		else if (!shown || *value == '\t')
			put_escaped(out, value, bytes);
		else
			fwrite(value, 1, (size_t)bytes, out);
	}
	fputc('"', out);
}

static void put_key(struct print_json *json, const char *key)
{
	if (json->comma)
		fputc(',', json->out);
	json->comma = true;
	if (key) {
		put_string(json->out, key);
		fputc(':', json->out);
	}
}

void print_json_open(struct print_json *json, const char *key, char bracket)
{
	put_key(json, key);
	fputc(bracket, json->out);
	json->comma = false;
}

void print_json_close(struct print_json *json, char bracket)
{
	fputc(bracket, json->out);
	json->comma = true;
}

void print_json_string(struct print_json *json, const char *key, const char *value)
{
	put_key(json, key);
	put_string(json->out, value);
}

void print_json_number(struct print_json *json, const char *key, int64_t value)
{
	put_key(json, key);
	fprintf(json->out, "%" PRId64, value);
}

void print_json_unsigned(struct print_json *json, const char *key, uint64_t value)
{
	put_key(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void print_json_real(struct print_json *json, const char *key, double value)
{
	put_key(json, key);
	fprintf(json->out, "%.6g", value);
}

void print_json_bool(struct print_json *json, const char *key, bool value)
{
	put_key(json, key);
	fputs(value ? "true" : "false", json->out);
}

void print_json_null(struct print_json *json, const char *key)
{
	put_key(json, key);
	fputs("null", json->out);
}

void print_json_ranks(struct print_json *json, const char *key, const struct ranks *ranks)
{
	print_json_open(json, key, '[');
	RANKS_EACH (rank, ranks)
		print_json_number(json, NULL, rank);
	print_json_close(json, ']');
}
