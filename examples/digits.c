/* SPDX-License-Identifier: BSD-3-Clause
 * Reads the digits, and shuffles them the same way on every rank and every machine. */
#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t digits_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void digits_permute(uint64_t seed, uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		order[i] = (uint32_t)i;
	for (size_t i = count; i > 1; i--) {
		size_t j = digits_random(&seed) % i;
		uint32_t swap = order[i - 1];
		order[i - 1] = order[j];
		order[j] = swap;
	}
}

/* One line: 64 pixels and the digit, separated by commas. */
static bool parse_line(const char *line, real *pixels, uint8_t *label)
{
	for (int i = 0; i <= MLP_INPUTS; i++) {
		char *end;
		long value = strtol(line, &end, 10);
		bool last = i == MLP_INPUTS;
		if (end == line || value < 0 || value > (last ? 9 : 16) ||
		    *end != (last ? '\n' : ','))
			return false;
		if (last)
			*label = (uint8_t)value;
		else
			pixels[i] = (real)value / (real)16;
		line = end + 1;
	}
	return true;
}

static bool read_all(FILE *file, const char *path, struct digits *out)
{
	char line[512];
	size_t room = 2048;
	out->pixels = malloc(room * sizeof *out->pixels);
	out->labels = malloc(room);
	while (out->pixels && out->labels && fgets(line, sizeof line, file)) {
		if (out->count == room ||
		    !parse_line(line, out->pixels[out->count], &out->labels[out->count])) {
			fprintf(stderr, "%s:%zu: not 64 pixels (0 to 16) and a digit\n", path,
				out->count + 1);
			return false;
		}
		out->count++;
	}
	if (out->count <= 2 * DIGITS_TEST) {
		fprintf(stderr, "%s: only %zu images\n", path, out->count);
		return false;
	}
	return true;
}

static bool shuffle(struct digits *digits, uint64_t seed)
{
	uint32_t *order = malloc(digits->count * sizeof *order);
	real(*pixels)[MLP_INPUTS] = malloc(digits->count * sizeof *pixels);
	uint8_t *labels = malloc(digits->count);
	bool ok = order && pixels && labels;
	if (ok) {
		digits_permute(seed, order, digits->count);
		for (size_t i = 0; i < digits->count; i++) {
			memcpy(pixels[i], digits->pixels[order[i]], sizeof pixels[i]);
			labels[i] = digits->labels[order[i]];
		}
		memcpy(digits->pixels, pixels, digits->count * sizeof *pixels);
		memcpy(digits->labels, labels, digits->count);
	}
	free(order);
	free(pixels);
	free(labels);
	return ok;
}

bool digits_load(const char *path, uint64_t seed, struct digits *out)
{
	*out = (struct digits){0};
	FILE *file = fopen(path, "re");
	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return false;
	}
	bool ok = read_all(file, path, out) && shuffle(out, seed);
	fclose(file);
	if (!ok)
		digits_free(out);
	return ok;
}

void digits_free(struct digits *digits)
{
	free(digits->pixels);
	free(digits->labels);
	*digits = (struct digits){0};
}
