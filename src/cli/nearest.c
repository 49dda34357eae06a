/* SPDX-License-Identifier: BSD-3-Clause
 * Words that were probably meant. */
#include <ctype.h>
#include <string.h>

#include "cli/cli.h"

enum { WORD_MAX = 64 };

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* How many letters must be changed, added, dropped or swapped with their neighbour to make b of a;
 * upper case counts as lower. */
static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	unsigned rows[3][WORD_MAX + 1];

	for (unsigned j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (unsigned i = 1; i <= a_length; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *above = rows[(i + 2) % 3];
		const unsigned *twice = rows[(i + 1) % 3];
		row[0] = i;
		for (unsigned j = 1; j <= b_length; j++) {
			int x = tolower((unsigned char)a[i - 1]);
			int y = tolower((unsigned char)b[j - 1]);
			row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
			    y == tolower((unsigned char)a[i - 2]))
				row[j] = least(row[j], twice[j - 2] + 1);
		}
	}
	return rows[a_length % 3][b_length];
}

const char *cli_nearest(const char *word, const char *const *words)
{
	const char *best = NULL;
	unsigned best_distance = 0;
	size_t length = strlen(word);

	if (length > WORD_MAX)
		return NULL;
	for (; *words; words++) {
		size_t other = strlen(*words);
		if (other > WORD_MAX)
			continue;
		unsigned far = distance(word, length, *words, other);
		/* A third of the letters may be wrong; beyond that a guess only confuses. */
		if (far > (other + 2) / 3)
			continue;
		if (!best || far < best_distance) {
			best = *words;
			best_distance = far;
		}
	}
	return best;
}
