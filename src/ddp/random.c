/* SPDX-License-Identifier: BSD-3-Clause
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998) with the seeding of 2002, and two
 * ways to shuffle with it. Every constant here is part of what must be equal. */
#include "ddp/random.h"

enum { WORDS = 624, MIDDLE = 397 };

struct twister {
	uint32_t words[WORDS];
	int next; /* the word to give out; WORDS: make new ones first */
};

static void twister_init(struct twister *twister, uint32_t seed)
{
	twister->words[0] = seed;
	for (uint32_t i = 1; i < WORDS; i++) {
		uint32_t before = twister->words[i - 1];
		twister->words[i] = UINT32_C(1812433253) * (before ^ before >> 30) + i;
	}
	twister->next = WORDS;
}

static void twister_renew(struct twister *twister)
{
	uint32_t *words = twister->words;
	for (int i = 0; i < WORDS; i++) {
		uint32_t mixed = (words[i] & UINT32_C(0x80000000)) |
				 (words[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
		words[i] = words[(i + MIDDLE) % WORDS] ^ mixed >> 1 ^
			   (mixed & 1 ? UINT32_C(0x9908b0df) : 0);
	}
	twister->next = 0;
}

static uint32_t twister_draw(struct twister *twister)
{
	if (twister->next == WORDS)
		twister_renew(twister);
	uint32_t y = twister->words[twister->next++];
	y ^= y >> 11;
	y ^= y << 7 & UINT32_C(0x9d2c5680);
	y ^= y << 15 & UINT32_C(0xefc60000);
	return y ^ y >> 18;
}

static uint64_t twister_draw_wide(struct twister *twister)
{
	uint64_t high = twister_draw(twister);
	return high << 32 | twister_draw(twister);
}

void ddp_permute(uint64_t seed, bool wide, uint64_t *order, uint64_t count)
{
	struct twister twister;
	twister_init(&twister, (uint32_t)seed);
	if (wide) { /* from the inside out: each number is put at a place among those before it */
		for (uint64_t i = 0; i < count; i++) {
			uint64_t at = twister_draw_wide(&twister) % (i + 1);
			order[i] = i; /* at may be i */
			order[i] = order[at];
			order[at] = i;
		}
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		order[i] = i;
	for (uint64_t i = 0; i + 1 < count; i++) {
		uint64_t at = i + twister_draw(&twister) % (count - i);
		uint64_t other = order[at];
		order[at] = order[i];
		order[i] = other;
	}
}
