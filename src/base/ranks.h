/* SPDX-License-Identifier: BSD-3-Clause
 * The largest number of ranks, and sets of ranks. A set has ranks of a whole job, or of a group by
 * group rank. It takes 512 bytes and no heap, so it is passed by address, and tables with a set for
 * each rank are avoided. Sets in shared memory are arrays of RANKS_WORLD_WORDS words, see
 * ranks_bit. */
#ifndef BASE_RANKS_H
#define BASE_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	RANKS_JOB_MAX = 4096,  /* the most that sets, plans and diagnosis take */
	RANKS_WORLD_MAX = 512, /* of a job that runs: tables by world rank have so many places */
	RANKS_HOST_MAX = 64,   /* of a job on one host */
	RANKS_HOSTS_MAX = 64,  /* hosts of a job: sets of hosts are one word */
	RANKS_WORDS = RANKS_JOB_MAX / 64,
	RANKS_WORLD_WORDS = (RANKS_WORLD_MAX + 63) / 64,
};

_Static_assert(RANKS_HOST_MAX <= 64 && RANKS_WORLD_MAX <= RANKS_JOB_MAX && RANKS_JOB_MAX % 64 == 0,
	       "a bit for each");

/* Bit ranks_bit(q) of word q / 64: rank q of a job or a group. For sets in shared memory, or with
 * atomic words; [RANKS_WORLD_WORDS] of them have room for any rank. */
static inline uint64_t ranks_bit(int rank)
{
	return UINT64_C(1) << rank % 64;
}

/* Bit r % 64 of word r / 64: rank r. All zero is the empty set. */
struct ranks {
	uint64_t words[RANKS_WORDS];
};

/* Whether this is a possible rank. The functions below ignore other numbers, which may come from a
 * peer: they are in no set, and adding them changes nothing. */
static inline bool ranks_is_one(int rank)
{
	return rank >= 0 && rank < RANKS_JOB_MAX;
}

static inline bool ranks_have(const struct ranks *set, int rank)
{
	return ranks_is_one(rank) && set->words[rank / 64] >> rank % 64 & 1;
}

/* As ranks_have; NULL is the empty set. */
static inline bool ranks_among(const struct ranks *set, int rank)
{
	return set && ranks_have(set, rank);
}

static inline void ranks_add(struct ranks *set, int rank)
{
	if (ranks_is_one(rank))
		set->words[rank / 64] |= UINT64_C(1) << rank % 64;
}

static inline void ranks_remove(struct ranks *set, int rank)
{
	if (ranks_is_one(rank))
		set->words[rank / 64] &= ~(UINT64_C(1) << rank % 64);
}

/* The set of this rank alone. */
static inline struct ranks ranks_of(int rank)
{
	struct ranks set = {{0}};
	ranks_add(&set, rank);
	return set;
}

/* Ranks 0 to count - 1. */
static inline struct ranks ranks_below(int count)
{
	struct ranks set = {{0}};
	for (int i = 0; i < count / 64 && i < RANKS_WORDS; i++)
		set.words[i] = UINT64_MAX;
	if (count > 0 && count < RANKS_JOB_MAX && count % 64)
		set.words[count / 64] = (UINT64_C(1) << count % 64) - 1;
	return set;
}

/* The set whose first `count` words these are. */
static inline struct ranks ranks_of_words(const uint64_t *words, int count)
{
	struct ranks set = {{0}};
	memcpy(set.words, words, (size_t)count * sizeof words[0]);
	return set;
}

/* The ranks below 64 whose bit is set. */
static inline struct ranks ranks_of_bits(uint64_t bits)
{
	return (struct ranks){{bits}};
}

/* set = union of both */
static inline void ranks_join(struct ranks *set, const struct ranks *other)
{
	for (int i = 0; i < RANKS_WORDS; i++)
		set->words[i] |= other->words[i];
}

/* set = intersection of both */
static inline void ranks_keep(struct ranks *set, const struct ranks *other)
{
	for (int i = 0; i < RANKS_WORDS; i++)
		set->words[i] &= other->words[i];
}

/* set = set without the ranks of `other` */
static inline void ranks_drop(struct ranks *set, const struct ranks *other)
{
	for (int i = 0; i < RANKS_WORDS; i++)
		set->words[i] &= ~other->words[i];
}

static inline bool ranks_any(const struct ranks *set)
{
	uint64_t any = 0;
	for (int i = 0; i < RANKS_WORDS; i++)
		any |= set->words[i];
	return any != 0;
}

/* Whether some rank is in both. */
static inline bool ranks_meet(const struct ranks *set, const struct ranks *other)
{
	uint64_t any = 0;
	for (int i = 0; i < RANKS_WORDS; i++)
		any |= set->words[i] & other->words[i];
	return any != 0;
}

/* Whether all ranks of `set` are in `other`. */
static inline bool ranks_are_in(const struct ranks *set, const struct ranks *other)
{
	uint64_t any = 0;
	for (int i = 0; i < RANKS_WORDS; i++)
		any |= set->words[i] & ~other->words[i];
	return any == 0;
}

static inline bool ranks_are_equal(const struct ranks *set, const struct ranks *other)
{
	return memcmp(set, other, sizeof *set) == 0;
}

static inline int ranks_count(const struct ranks *set)
{
	int count = 0;
	for (int i = 0; i < RANKS_WORDS; i++)
		count += __builtin_popcountll(set->words[i]);
	return count;
}

/* The lowest rank of the set that is at least `rank` >= 0; -1: there is none. */
static inline int ranks_from(const struct ranks *set, int rank)
{
	for (int i = rank / 64; i < RANKS_WORDS; i++) {
		uint64_t left = set->words[i];
		if (i == rank / 64)
			left &= UINT64_MAX << rank % 64;
		if (left)
			return 64 * i + __builtin_ctzll(left);
	}
	return -1;
}

/* The lowest rank; -1: the set is empty. */
static inline int ranks_first(const struct ranks *set)
{
	return ranks_from(set, 0);
}

/* The highest rank; -1: the set is empty. */
static inline int ranks_last(const struct ranks *set)
{
	for (int i = RANKS_WORDS - 1; i >= 0; i--)
		if (set->words[i])
			return 64 * i + 63 - __builtin_clzll(set->words[i]);
	return -1;
}

/* For each rank of the set, in order. The loop may remove ranks that it has visited. */
#define RANKS_EACH(rank, set) \
	for (int rank = ranks_first(set); rank >= 0; rank = ranks_from(set, rank + 1))

#endif
