/* SPDX-License-Identifier: BSD-3-Clause
 * Whether the program has stored to what an operation reads. No system call tells that, so the
 * memory is summed up before and after. It is read through the system, because the program may have
 * unmapped it by mistake, or the processor may not touch it. */
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "races/races_private.h"

enum { LANES = 4, WORDS = 1024 };

/* A change of one word changes its lane, whatever the other words are: both steps can be undone. */
static void add_words(uint64_t *lanes, const uint64_t *words)
{
	for (int i = 0; i < WORDS; i += LANES)
		for (int lane = 0; lane < LANES; lane++) {
			uint64_t mixed =
				(lanes[lane] ^ words[i + lane]) * UINT64_C(0x9e3779b97f4a7c15);
			lanes[lane] = mixed ^ mixed >> 29;
		}
}

bool races_sum(const void *address, uint64_t bytes, uint64_t *out)
{
	uint64_t words[WORDS], lanes[LANES] = {1, 2, 3, 4};
	const char *at = address;
	pid_t me = getpid();
	while (bytes > 0) {
		size_t piece = bytes < sizeof words ? bytes : sizeof words;
		struct iovec to = {words, piece}, from = {(void *)(uintptr_t)at, piece};
		if (piece < sizeof words)
			memset(words, 0, sizeof words);
		if (process_vm_readv(me, &to, 1, &from, 1, 0) != (ssize_t)piece)
			return false;
		add_words(lanes, words);
		at += piece;
		bytes -= piece;
	}
	*out = lanes[0] ^ lanes[1] << 1 ^ lanes[2] << 2 ^ lanes[3] << 3;
	return true;
}

void races_sum_up(struct races_use *use)
{
	struct races_conflict both;
	bool overlap = races_overlap(&use->parts[0], &use->parts[1], &both);
	for (int i = 0; i < RACES_PARTS; i++) {
		struct races_part *part = &use->parts[i];
		part->has_sum = part->bytes > 0 && !part->writes && !overlap &&
				races_sum(part->address, part->bytes, &part->sum);
	}
}

bool races_is_unchanged(struct races *races, uint64_t ticket)
{
	struct races_part parts[RACES_PARTS];
	uint64_t sum;
	bool same = true;
	if (!races_parts(races, ticket, parts))
		return true;
	for (int i = 0; i < RACES_PARTS; i++)
		if (parts[i].has_sum)
			same &= races_sum(parts[i].address, parts[i].bytes, &sum) &&
				sum == parts[i].sum;
	return same;
}
