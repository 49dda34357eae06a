/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: beats of other hosts. The input is pairs of position and difference, which change a
 * valid beat; time passes between the beats. Whatever comes, the agent continues, names only hosts
 * that exist, and never itself. */
#include "fuzz.h"

#include <string.h>

#include "detector/detector.h"

enum { HOSTS = 5, ME = 2, JOB = 9, AGENT_MAX = UINT16_MAX };

static void check(struct detector *detector, uint64_t now_ns)
{
	struct detector_verdict verdict;
	struct detector_beat beat;
	if (detector_step(detector, now_ns, &beat))
		MUST(beat.host == ME && beat.hosts == HOSTS);
	MUST(detector_deadline_ns(detector) > now_ns);
	while (detector_next(detector, &verdict)) {
		MUST(verdict.from >= 0 && verdict.from < HOSTS);
		MUST(verdict.to >= -1 && verdict.to < HOSTS && verdict.to != verdict.from);
		MUST(verdict.witness >= -1 && verdict.witness < HOSTS && verdict.witness != ME);
		MUST(verdict.kind == DETECTOR_LINK || verdict.from != ME);
		MUST(verdict.since_ns <= now_ns);
	}
	for (int h = 0; h < HOSTS; h++)
		MUST(detector_agent(detector, h) >= -1 && detector_agent(detector, h) <= AGENT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct detector_options options = {
		.host = ME, .hosts = HOSTS, .agent = 1, .job = JOB, .generation = 1};
	static struct detector detector, peer;
	struct detector_beat beat;
	uint64_t now_ns = UINT64_C(1000000000000);
	if (size > FUZZ_INPUT_MAX)
		return 0;
	detector_init(&detector, &options, now_ns);
	options.host = 0;
	detector_init(&peer, &options, now_ns);
	MUST(detector_step(&peer, now_ns, &beat));
	MUST(detector_receive(&detector, &beat, sizeof beat, now_ns) == 0);
	for (size_t i = 0; i + 2 < size; i += 3) {
		size_t at = ((size_t)data[i] << 8 | data[i + 1]) % (2 * sizeof beat);
		if (at < sizeof beat)
			((uint8_t *)&beat)[at] ^= data[i + 2];
		else
			now_ns += detector_ms(data[i + 2]);
		beat.number++;
		int heard = detector_receive(&detector, &beat, sizeof beat - (at == 1), now_ns);
		MUST(heard >= -1 && heard < HOSTS && heard != ME);
		check(&detector, now_ns);
	}
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = fuzz_random(state) % 300;
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)fuzz_random(state);
	/* Mostly bytes that the beat may have and still be one. */
	for (size_t i = 0; i + 2 < size; i += 3)
		if (fuzz_random(state) % 4) {
			size_t first = offsetof(struct detector_beat, hears);
			size_t at = first +
				    fuzz_random(state) % (2 * sizeof(struct detector_beat) - first);
			data[i] = (uint8_t)(at >> 8);
			data[i + 1] = (uint8_t)at;
		}
	return size;
}
