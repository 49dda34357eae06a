/* SPDX-License-Identifier: BSD-3-Clause
 * What comes in, and the beats that go out. */
#include "control/control.h"

#include <string.h>

/* If the agent was not heard for this long, a beat goes to all that might be the agent. */
enum { AGENT_MS = 220 };

/* Advances the slow clock, which counts time only as far as this host looked. After a gap it does
 * not know whom it would have heard meanwhile, so no host counts as heard all the time, and no
 * beats as missed. */
static void advance_clock(struct control *control, uint64_t now_ns)
{
	uint64_t passed = now_ns > control->real_ns ? now_ns - control->real_ns : 0;
	control->real_ns += passed;
	if (passed <= control_ms(CONTROL_STEP_MS)) {
		control->clock_ns += passed;
		return;
	}
	control->clock_ns += control_ms(CONTROL_GAP_MS);
	control->awake_ns = control->clock_ns;
	for (int h = 0; h < control->options.hosts; h++) {
		control->peers[h].steady_ns = control->clock_ns;
		control->peers[h].has_base = 0;
	}
}

/* Which of the two did not hear the other follows from what was told. If nothing was, this agent
 * has to hear that host, or to find again that it does not. */
static void take_unheard(struct control *control, int host, const struct control_past *past)
{
	struct control_peer *peer = &control->peers[host];
	const struct control_options *options = &control->options;
	peer->is_proved = past->broken >> options->host & 1;
	if (options->past[options->host].broken >> host & 1)
		peer->deaf_ns = past->unheard_ns;
	if (past->silent || peer->is_proved || !peer->deaf_ns)
		peer->unheard_ns = past->unheard_ns;
}

void control_init(struct control *control, const struct control_options *options, uint64_t now_ns)
{
	*control = (struct control){.options = *options,
				    .start_ns = now_ns,
				    .real_ns = now_ns,
				    .clock_ns = 1,
				    .awake_ns = 1,
				    .next_ns = now_ns};
	for (int h = 0; h < options->hosts; h++) {
		struct control_peer *peer = &control->peers[h];
		peer->heard_ns = peer->steady_ns = 1;
		peer->heard_real_ns = now_ns;
		peer->calm_ms = CONTROL_STEADY_MS;
		for (int to = 0; to < options->hosts; to++)
			peer->age_ms[to] = CONTROL_NEVER_MS;
		if (!options->past)
			continue;
		const struct control_past *past = &options->past[h];
		peer->generation = past->generation;
		peer->number = past->number;
		peer->is_known = past->generation != 0;
		peer->is_silent = past->silent != 0;
		control->broken[h] = past->broken;
		take_unheard(control, h, past);
	}
	control->options.past = NULL;
}

/* How many beats of `host` this host has heard; of its own, how many it has sent. */
static uint16_t count_of(const struct control *control, int host)
{
	return host == control->options.host ? (uint16_t)control->number
					     : control->peers[host].count;
}

/* Takes over what the peer says of whom it hears. anew: the peer has another agent, or is heard
 * after a gap. */
static void take_counts(struct control *control, struct control_peer *peer,
			const struct control_beat *beat, bool anew)
{
	for (int h = 0; h < control->options.hosts; h++) {
		uint64_t bit = UINT64_C(1) << h;
		if (anew || peer->counts[h] != beat->counts[h])
			peer->mine[h] = count_of(control, h);
		peer->missed[h] = (uint16_t)(count_of(control, h) - peer->mine[h]);
		if (anew || !(peer->has_base & bit))
			peer->base[h] = beat->counts[h];
		peer->has_base |= bit;
		peer->age_ms[h] = beat->age_ms[h];
		peer->counts[h] = beat->counts[h];
		if (!(beat->hears & bit))
			peer->hears_ns[h] = 0;
		else if (anew || !peer->hears_ns[h])
			peer->hears_ns[h] = control->clock_ns;
	}
}

/* By how much the last measurement of a clock may be wrong by now. */
static uint64_t error_now(const struct control_clock *clock, uint64_t now_ns)
{
	uint64_t age_ns = now_ns > clock->at_ns ? now_ns - clock->at_ns : 0;
	return clock->error_ns + age_ns / 1000000 * CONTROL_DRIFT_PPM;
}

/* Measures the peer's clock: my beat left at echo_ns, and was with the peer for held_ns until it
 * sent this beat. */
static void take_clock(const struct control *control, struct control_peer *peer,
		       const struct control_beat *beat, uint64_t now_ns)
{
	uint64_t sent_ns = beat->echo_ns[control->options.host];
	uint64_t held_ns = beat->held_ns[control->options.host];
	if (!held_ns || sent_ns > now_ns || now_ns - sent_ns < held_ns)
		return;
	uint64_t way_ns = now_ns - sent_ns - held_ns; /* both ways */
	struct control_clock clock = {.error_ns = way_ns / 2 + 1, .at_ns = now_ns};
	/* If both ways are equally long, this beat was sent way_ns / 2 before now. */
	clock.offset_ns = (int64_t)(beat->sent_ns - (now_ns - way_ns / 2));
	if (!peer->clock.error_ns || clock.error_ns <= error_now(&peer->clock, now_ns))
		peer->clock = clock;
}

bool control_clock(const struct control *control, int host, struct control_clock *out)
{
	*out = control->peers[host].clock;
	return out->error_ns != 0;
}

/* The first beat after a silence tells how many were sent meanwhile. */
static void count_unheard(const struct control *control, struct control_peer *peer,
			  const struct control_beat *beat)
{
	bool same_agent = beat->generation == peer->generation;
	peer->unheard_ms += (control->real_ns - peer->heard_real_ns) / control_ms(1);
	peer->unheard_beats += beat->number - (same_agent ? peer->number : 0) - 1;
}

/* A host that leaves ends all that was said about it. But if it does not hear this host, its ranks
 * may leave because of that: this stays known. */
static void end_verdicts(struct control *control, int host, bool hears_me)
{
	struct control_peer *peer = &control->peers[host];
	peer->is_silent = peer->is_proved = false;
	peer->unheard_ns = 0;
	if (hears_me)
		peer->deaf_ns = 0;
	control->broken[host] = 0;
	for (int from = 0; from < control->options.hosts; from++)
		control->broken[from] &= ~(UINT64_C(1) << host);
}

int control_receive(struct control *control, const void *bytes, size_t count, uint64_t now_ns)
{
	struct control_beat beat;
	advance_clock(control, now_ns);
	if (!control_beat_parse(control, bytes, count, &beat))
		return -1;
	struct control_peer *peer = &control->peers[beat.host];
	bool gap = beat.generation != peer->generation || !control_is_fresh(control, beat.host);
	if (gap && peer->is_silent)
		count_unheard(control, peer, &beat);
	peer->generation = beat.generation;
	peer->number = beat.number;
	peer->heard_ns = control->clock_ns;
	peer->heard_real_ns = control->real_ns;
	peer->is_known = peer->has_come = true;
	peer->is_gone = beat.leaves;
	if (beat.leaves)
		end_verdicts(control, beat.host, beat.hears >> control->options.host & 1);
	peer->agent = beat.agent;
	peer->count++;
	peer->sent_ns = beat.sent_ns;
	peer->came_ns = now_ns;
	take_clock(control, peer, &beat, now_ns);
	if (gap)
		peer->steady_ns = control->clock_ns;
	/* A beat that comes just after this host was late may have waited for it; and no host has
	 * missed anything while it slept. */
	bool waited = control->clock_ns - control->awake_ns < control_ms(CONTROL_BEAT_MS);
	take_counts(control, peer, &beat, gap || waited || beat.late);
	/* What other hosts have heard of that host after this beat, counts from what they say
	 * next. */
	for (int w = 0; w < control->options.hosts; w++)
		control->peers[w].has_base &= ~(UINT64_C(1) << beat.host);
	return beat.host;
}

static void fill_echo(const struct control *control, uint64_t now_ns, struct control_beat *out)
{
	out->sent_ns = now_ns;
	for (int h = 0; h < control->options.hosts; h++) {
		const struct control_peer *peer = &control->peers[h];
		/* 0 would say that no beat has come. */
		uint64_t held_ns = now_ns > peer->came_ns ? now_ns - peer->came_ns : 1;
		if (!peer->has_come || held_ns > UINT32_MAX)
			continue;
		out->echo_ns[h] = peer->sent_ns;
		out->held_ns[h] = (uint32_t)held_ns;
	}
}

static void fill_beat(struct control *control, uint64_t now_ns, struct control_beat *out)
{
	const struct control_options *options = &control->options;
	/* If this host was late, beats that it has missed may have come while it slept: it claims
	 * nothing yet. */
	bool was_late = control->awake_ns > 1 &&
			control->clock_ns - control->awake_ns < control_ms(CONTROL_STEADY_MS);
	*out = (struct control_beat){.job = options->job,
				     .generation = options->generation,
				     .number = ++control->number,
				     .host = (uint8_t)options->host,
				     .hosts = (uint8_t)options->hosts,
				     .agent = (uint16_t)options->agent,
				     .leaves = control->leaves,
				     .late = was_late};
	for (int h = 0; h < options->hosts; h++) {
		const struct control_peer *peer = &control->peers[h];
		uint64_t age_ms = (control->clock_ns - peer->heard_ns) / control_ms(1);
		if (!peer->is_known)
			age_ms = CONTROL_NEVER_MS;
		else if (age_ms >= CONTROL_NEVER_MS)
			age_ms = CONTROL_NEVER_MS - 1;
		else if (age_ms >= CONTROL_SILENT_MS && was_late)
			age_ms = CONTROL_SILENT_MS - 1;
		out->age_ms[h] = (uint16_t)age_ms;
		if (peer->has_come &&
		    control->real_ns - peer->heard_real_ns <= control_ms(CONTROL_FRESH_MS))
			out->hears |= UINT64_C(1) << h;
		out->counts[h] = peer->count;
	}
	fill_echo(control, now_ns, out);
	control_beat_sign(control, out);
}

bool control_step(struct control *control, uint64_t now_ns, struct control_beat *out)
{
	advance_clock(control, now_ns);
	control_judge(control);
	if (control->real_ns < control->next_ns)
		return false;
	control->next_ns += control_ms(CONTROL_BEAT_MS);
	if (control->next_ns <= control->real_ns)
		control->next_ns = control->real_ns + control_ms(CONTROL_BEAT_MS);
	fill_beat(control, now_ns, out);
	return true;
}

uint64_t control_deadline_ns(const struct control *control)
{
	return control->next_ns;
}

void control_forget(struct control *control, int host)
{
	control->peers[host].is_gone = true;
}

void control_leave(struct control *control)
{
	control->leaves = true;
	control->next_ns = control->real_ns;
}

int control_agent(const struct control *control, int host)
{
	const struct control_peer *peer = &control->peers[host];
	bool lately = peer->has_come && control->clock_ns - peer->heard_ns <= control_ms(AGENT_MS);
	return lately ? peer->agent : -1;
}

uint64_t control_heard_ns(const struct control *control, int host)
{
	return control->peers[host].heard_real_ns;
}

struct control_past control_past(const struct control *control, int host)
{
	const struct control_peer *peer = &control->peers[host];
	struct control_verdict verdict;
	return (struct control_past){
		.generation = peer->generation,
		.number = peer->number,
		.broken = control->broken[host],
		.silent = peer->is_silent,
		.unheard_ns = control_is_unheard(control, host, &verdict) ? verdict.since_ns : 0};
}
