/* SPDX-License-Identifier: BSD-3-Clause
 * What comes in, and the beats that go out. */
#include "detector/detector_private.h"

#include <string.h>

/* If the agent was not heard for this long, a beat goes to all that might be the agent. */
enum { AGENT_MS = 220 };

/* Advances the slow clock, which counts time only as far as this host looked. After a gap it does
 * not know which hosts it would have heard meanwhile, so no host counts as heard all the time, and
 * no beats as missed. */
static void advance_clock(struct detector *detector, uint64_t now_ns)
{
	uint64_t passed = now_ns > detector->real_ns ? now_ns - detector->real_ns : 0;
	detector->real_ns += passed;
	if (passed <= detector_ms(DETECTOR_STEP_MS)) {
		detector->clock_ns += passed;
		return;
	}
	detector->clock_ns += detector_ms(DETECTOR_GAP_MS);
	detector->awake_ns = detector->clock_ns;
	for (int h = 0; h < detector->options.hosts; h++) {
		detector->peers[h].steady_ns = detector->clock_ns;
		detector->peers[h].has_base = 0;
	}
}

/* Which of the two did not hear the other follows from what was told. If nothing was, this agent
 * has to hear that host, or to find again that it does not. */
static void take_unheard(struct detector *detector, int host, const struct detector_past *past)
{
	struct detector_peer *peer = &detector->peers[host];
	const struct detector_options *options = &detector->options;
	peer->is_proved = past->broken >> options->host & 1;
	struct detector_since since = {past->unheard_ns, detector->clock_ns - past->listened_ns};
	if (options->past[options->host].broken >> host & 1)
		peer->deaf = since;
	if (past->silent || peer->is_proved || !peer->deaf.real_ns)
		peer->unheard = since;
}

void detector_init(struct detector *detector, const struct detector_options *options,
		   uint64_t now_ns)
{
	*detector = (struct detector){.options = *options,
				      .start_ns = now_ns,
				      .real_ns = now_ns,
				      .clock_ns = 1,
				      .awake_ns = 1,
				      .next_ns = now_ns};
	for (int h = 0; h < options->hosts; h++) {
		struct detector_peer *peer = &detector->peers[h];
		peer->heard_ns = peer->steady_ns = 1;
		peer->heard_real_ns = now_ns;
		peer->calm_ms = DETECTOR_STEADY_MS;
		for (int to = 0; to < options->hosts; to++)
			peer->age_ms[to] = DETECTOR_NEVER_MS;
		if (!options->past)
			continue;
		const struct detector_past *past = &options->past[h];
		peer->generation = past->generation;
		peer->number = past->number;
		peer->is_known = past->generation != 0;
		peer->is_silent = past->silent != 0;
		detector->broken[h] = past->broken;
		take_unheard(detector, h, past);
	}
	detector->options.past = NULL;
}

/* How many beats of `host` this host has heard; of its own, how many it has sent. */
static uint16_t count_of(const struct detector *detector, int host)
{
	return host == detector->options.host ? (uint16_t)detector->number
					      : detector->peers[host].count;
}

/* Takes over what the peer says of the hosts that it hears. anew: the peer has another agent, or is
 * heard after a gap. */
static void take_counts(struct detector *detector, struct detector_peer *peer,
			const struct detector_beat *beat, bool anew)
{
	for (int h = 0; h < detector->options.hosts; h++) {
		uint64_t bit = UINT64_C(1) << h;
		if (anew || peer->counts[h] != beat->counts[h])
			peer->mine[h] = count_of(detector, h);
		peer->missed[h] = (uint16_t)(count_of(detector, h) - peer->mine[h]);
		if (anew || !(peer->has_base & bit))
			peer->base[h] = beat->counts[h];
		peer->has_base |= bit;
		peer->age_ms[h] = beat->age_ms[h];
		peer->counts[h] = beat->counts[h];
		if (!(beat->hears & bit))
			peer->hears_ns[h] = 0;
		else if (anew || !peer->hears_ns[h])
			peer->hears_ns[h] = detector->clock_ns;
	}
}

/* Returns by how much the last measurement of a clock may be wrong by now. */
static uint64_t error_now(const struct detector_clock *clock, uint64_t now_ns)
{
	uint64_t age_ns = now_ns > clock->at_ns ? now_ns - clock->at_ns : 0;
	return clock->error_ns + age_ns / 1000000 * DETECTOR_DRIFT_PPM;
}

/* Measures the peer's clock: my beat left at echo_ns, and was with the peer for held_ns until it
 * sent this beat. */
static void take_clock(const struct detector *detector, struct detector_peer *peer,
		       const struct detector_beat *beat, uint64_t now_ns)
{
	uint64_t sent_ns = beat->echo_ns[detector->options.host];
	uint64_t held_ns = beat->held_ns[detector->options.host];
	if (!held_ns || sent_ns > now_ns || now_ns - sent_ns < held_ns)
		return;
	uint64_t way_ns = now_ns - sent_ns - held_ns; /* both ways */
	struct detector_clock clock = {.error_ns = way_ns / 2 + 1, .at_ns = now_ns};
	/* If both ways are equally long, this beat was sent way_ns / 2 before now. */
	clock.offset_ns = (int64_t)(beat->sent_ns - (now_ns - way_ns / 2));
	if (!peer->clock.error_ns || clock.error_ns <= error_now(&peer->clock, now_ns))
		peer->clock = clock;
}

bool detector_clock(const struct detector *detector, int host, struct detector_clock *out)
{
	*out = detector->peers[host].clock;
	return out->error_ns != 0;
}

/* The first beat after a silence tells how many were sent meanwhile. */
static void count_unheard(const struct detector *detector, struct detector_peer *peer,
			  const struct detector_beat *beat)
{
	bool same_agent = beat->generation == peer->generation;
	peer->unheard_ms += (detector->real_ns - peer->heard_real_ns) / detector_ms(1);
	peer->unheard_beats += beat->number - (same_agent ? peer->number : 0) - 1;
}

/* A host that leaves ends all that was said about it. But if it does not hear this host, its ranks
 * may leave because of that: this stays known. */
static void end_verdicts(struct detector *detector, int host, bool hears_me)
{
	struct detector_peer *peer = &detector->peers[host];
	peer->is_silent = peer->is_proved = false;
	peer->unheard.real_ns = 0;
	if (hears_me)
		peer->deaf.real_ns = 0;
	detector->broken[host] = 0;
	for (int from = 0; from < detector->options.hosts; from++)
		detector->broken[from] &= ~(UINT64_C(1) << host);
}

int detector_receive(struct detector *detector, const void *bytes, size_t count, uint64_t now_ns)
{
	struct detector_beat beat;
	advance_clock(detector, now_ns);
	if (!detector_beat_parse(detector, bytes, count, &beat))
		return -1;
	struct detector_peer *peer = &detector->peers[beat.host];
	bool gap = beat.generation != peer->generation || !detector_is_fresh(detector, beat.host);
	if (gap && peer->is_silent)
		count_unheard(detector, peer, &beat);
	bool is_next = beat.generation == peer->generation && beat.number == peer->number + 1;
	peer->in_order = is_next ? peer->in_order + 1 : 1;
	bool hears_more =
		beat.hears >> detector->options.host & 1 &&
		beat.counts[detector->options.host] != peer->counts[detector->options.host];
	peer->heard_mine = is_next && hears_more ? peer->heard_mine + 1 : 0;
	peer->generation = beat.generation;
	peer->number = beat.number;
	peer->heard_ns = detector->clock_ns;
	peer->heard_real_ns = detector->real_ns;
	peer->is_known = peer->has_come = true;
	peer->is_gone = beat.leaves;
	if (beat.leaves)
		end_verdicts(detector, beat.host, beat.hears >> detector->options.host & 1);
	peer->agent = beat.agent;
	peer->count++;
	peer->sent_ns = beat.sent_ns;
	peer->came_ns = now_ns;
	take_clock(detector, peer, &beat, now_ns);
	if (gap)
		peer->steady_ns = detector->clock_ns;
	/* A beat that comes just after this host was late may have waited for it; and no host has
	 * missed anything while it slept. */
	bool waited = detector->clock_ns - detector->awake_ns < detector_ms(DETECTOR_BEAT_MS);
	take_counts(detector, peer, &beat, gap || waited || beat.late);
	/* What other hosts have heard of that host after this beat, counts from what they say
	 * next. */
	for (int w = 0; w < detector->options.hosts; w++)
		detector->peers[w].has_base &= ~(UINT64_C(1) << beat.host);
	return beat.host;
}

static void fill_echo(const struct detector *detector, uint64_t now_ns, struct detector_beat *out)
{
	out->sent_ns = now_ns;
	for (int h = 0; h < detector->options.hosts; h++) {
		const struct detector_peer *peer = &detector->peers[h];
		/* 0 would say that no beat has come. */
		uint64_t held_ns = now_ns > peer->came_ns ? now_ns - peer->came_ns : 1;
		if (!peer->has_come || held_ns > UINT32_MAX)
			continue;
		out->echo_ns[h] = peer->sent_ns;
		out->held_ns[h] = (uint32_t)held_ns;
	}
}

static void fill_beat(struct detector *detector, uint64_t now_ns, struct detector_beat *out)
{
	const struct detector_options *options = &detector->options;
	/* If this host was late, beats that it has missed may have come while it slept: it claims
	 * nothing yet. */
	bool was_late = detector->awake_ns > 1 &&
			detector->clock_ns - detector->awake_ns < detector_ms(DETECTOR_STEADY_MS);
	*out = (struct detector_beat){.job = options->job,
				      .generation = options->generation,
				      .number = ++detector->number,
				      .host = (uint8_t)options->host,
				      .hosts = (uint8_t)options->hosts,
				      .agent = (uint16_t)options->agent,
				      .leaves = detector->leaves,
				      .late = was_late};
	for (int h = 0; h < options->hosts; h++) {
		const struct detector_peer *peer = &detector->peers[h];
		uint64_t age_ms = (detector->clock_ns - peer->heard_ns) / detector_ms(1);
		if (!peer->is_known)
			age_ms = DETECTOR_NEVER_MS;
		else if (age_ms >= DETECTOR_NEVER_MS)
			age_ms = DETECTOR_NEVER_MS - 1;
		else if (age_ms >= DETECTOR_SILENT_MS && was_late)
			age_ms = DETECTOR_SILENT_MS - 1;
		out->age_ms[h] = (uint16_t)age_ms;
		if (peer->has_come &&
		    detector->real_ns - peer->heard_real_ns <= detector_ms(DETECTOR_FRESH_MS))
			out->hears |= UINT64_C(1) << h;
		out->counts[h] = peer->count;
	}
	fill_echo(detector, now_ns, out);
	detector_beat_sign(detector, out);
}

bool detector_step(struct detector *detector, uint64_t now_ns, struct detector_beat *out)
{
	advance_clock(detector, now_ns);
	detector_judge(detector);
	if (detector->real_ns < detector->next_ns)
		return false;
	detector->next_ns += detector_ms(DETECTOR_BEAT_MS);
	if (detector->next_ns <= detector->real_ns)
		detector->next_ns = detector->real_ns + detector_ms(DETECTOR_BEAT_MS);
	fill_beat(detector, now_ns, out);
	return true;
}

uint64_t detector_deadline_ns(const struct detector *detector)
{
	return detector->next_ns;
}

void detector_forget(struct detector *detector, int host)
{
	detector->peers[host].is_gone = true;
}

void detector_leave(struct detector *detector)
{
	detector->leaves = true;
	detector->next_ns = detector->real_ns;
}

int detector_agent(const struct detector *detector, int host)
{
	const struct detector_peer *peer = &detector->peers[host];
	bool lately = peer->has_come && detector->clock_ns - peer->heard_ns <= detector_ms(AGENT_MS);
	return lately ? peer->agent : -1;
}

struct detector_past detector_past(const struct detector *detector, int host)
{
	const struct detector_peer *peer = &detector->peers[host];
	struct detector_verdict verdict = {.since_ns = 0};
	(void)detector_is_unheard(detector, host, &verdict);
	return (struct detector_past){.generation = peer->generation,
				      .number = peer->number,
				      .broken = detector->broken[host],
				      .silent = peer->is_silent,
				      .unheard_ns = verdict.since_ns,
				      .listened_ns = verdict.listened_ns};
}
