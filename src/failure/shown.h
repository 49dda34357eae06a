/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank shows to commands on its host about the ranks of other hosts.
 *
 *   a command                              the ranks of a host
 *   asked += 1 in the host's segment
 *                                  agent:  sees it at its next beat, wakes its watch
 *                                  watch:  asks one rank of each other host (remote_look.c),
 *                                          makes a sealed memfd of what came, given = asked
 *   finds the memfd in /proc, copies it
 *
 * - The agent is the rank that sends heartbeats. If it is stopped or dies, another one takes over,
 *   and answers instead.
 * - One answer is for all commands that have asked before it was begun.
 * - A command that is killed leaves nothing behind. A rank keeps its last answer for a few seconds.
 * - A command needs the rights that it needs to read the segment: /proc lets it open both.
 * - An answer is sealed before it is shown, so it stays as it is while a command copies and checks
 *   it. Nothing in it is trusted.
 * - Hosts that do not answer in time are left out; `answered` says which ranks are of the
 *   others. */
#ifndef FAILURE_SHOWN_H
#define FAILURE_SHOWN_H

#include <stdint.h>

#include "base/ranks.h"
#include "transport/layout.h"

#define FAILURE_SHOWN_MAGIC UINT64_C(0x32574f48534c) /* "LSHOW2" */
/* "lockstep-shown:QUESTION:JOB" */
#define FAILURE_SHOWN_NAME "lockstep-shown"

struct failure_shown_part {
	uint64_t offset, bytes; /* bytes 0: not there */
};

struct failure_shown {
	uint64_t magic, bytes; /* bytes: of all */
	uint64_t job;
	uint64_t number; /* the question that it answers, and those before */
	/* ranks_bit: the host of that rank has answered, or is this one */
	uint64_t answered[RANKS_WORLD_WORDS];
	uint64_t now_ns; /* CLOCK_MONOTONIC of this host, when it was complete */
	int32_t size, teller;
	uint32_t question, waited_ms; /* for how long it has waited for hosts that do not answer */
	/* The answer to the question for the job: a block of all ranks, made by diagnose_pack. */
	struct failure_shown_part block;
	/* The answer to the question for traces: copies of the traces of other hosts' ranks. */
	struct failure_shown_part traces[RANKS_WORLD_MAX];
	uint64_t copied_ns[RANKS_WORLD_MAX]; /* when, by CLOCK_MONOTONIC of the rank's host */
};

#endif
