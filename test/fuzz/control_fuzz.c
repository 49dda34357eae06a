/* SPDX-License-Identifier: BSD-3-Clause
 * Fuzz entry: beats of other hosts. The input is pairs of position and difference, laid over a
 * valid beat, and time passes between them. Whatever comes, the agent goes on: it speaks only of
 * hosts that exist, and never of itself. */
#include "fuzz.h"

#include <string.h>

#include "control/control.h"

enum { HOSTS = 5, ME = 2, JOB = 9, AGENT_MAX = UINT16_MAX };

static void check(struct control *control, uint64_t now_ns)
{
	struct control_verdict verdict;
	struct control_beat beat;
	if (control_step(control, now_ns, &beat))
		MUST(beat.host == ME && beat.hosts == HOSTS);
	MUST(control_deadline_ns(control) > now_ns);
	while (control_next(control, &verdict)) {
		MUST(verdict.from >= 0 && verdict.from < HOSTS);
		MUST(verdict.to >= -1 && verdict.to < HOSTS && verdict.to != verdict.from);
		MUST(verdict.witness >= -1 && verdict.witness < HOSTS && verdict.witness != ME);
		MUST(verdict.kind == CONTROL_LINK || verdict.from != ME);
		MUST(verdict.since_ns <= now_ns);
	}
	for (int h = 0; h < HOSTS; h++)
		MUST(control_agent(control, h) >= -1 && control_agent(control, h) <= AGENT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct control_options options = {
		.host = ME, .hosts = HOSTS, .agent = 1, .job = JOB, .generation = 1};
	static struct control control, peer;
	struct control_beat beat;
	uint64_t now_ns = UINT64_C(1000000000000);
	if (size > FUZZ_INPUT_MAX)
		return 0;
	control_init(&control, &options, now_ns);
	options.host = 0;
	control_init(&peer, &options, now_ns);
	MUST(control_step(&peer, now_ns, &beat));
	MUST(control_receive(&control, &beat, sizeof beat, now_ns) == 0);
	for (size_t i = 0; i + 2 < size; i += 3) {
		size_t at = ((size_t)data[i] << 8 | data[i + 1]) % (2 * sizeof beat);
		if (at < sizeof beat)
			((uint8_t *)&beat)[at] ^= data[i + 2];
		else
			now_ns += control_ms(data[i + 2]);
		beat.number++;
		int heard = control_receive(&control, &beat, sizeof beat - (at == 1), now_ns);
		MUST(heard >= -1 && heard < HOSTS && heard != ME);
		check(&control, now_ns);
	}
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	size_t size = fuzz_random(state) % 300;
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)fuzz_random(state);
	/* Most often bytes that leave the beat what it is. */
	for (size_t i = 0; i + 2 < size; i += 3)
		if (fuzz_random(state) % 4) {
			size_t first = offsetof(struct control_beat, hears);
			size_t at = first +
				    fuzz_random(state) % (2 * sizeof(struct control_beat) - first);
			data[i] = (uint8_t)(at >> 8);
			data[i + 1] = (uint8_t)at;
		}
	return size;
}
