/* SPDX-License-Identifier: BSD-3-Clause
 * The verdicts that follow from who hears whom. */
#include "detector/detector_private.h"

static uint64_t age_of(const struct detector *detector, uint64_t then_ns)
{
	return detector->clock_ns - then_ns;
}

bool detector_is_fresh(const struct detector *detector, int host)
{
	const struct detector_peer *peer = &detector->peers[host];
	return peer->has_come &&
	       detector->clock_ns - peer->heard_ns <= detector_ms(DETECTOR_FRESH_MS);
}

/* False: no room, so the caller must not change the state, and the next step finds the verdict
 * again. */
static bool add_verdict(struct detector *detector, const struct detector_verdict *verdict)
{
	enum { ROOM = sizeof detector->verdicts / sizeof *detector->verdicts };
	if (detector->verdict_count == ROOM)
		return false;
	detector->verdicts[detector->verdict_count++] = *verdict;
	return true;
}

static void calm_longer(struct detector_peer *peer)
{
	if (peer->calm_ms < DETECTOR_STEADY_MAX_MS)
		peer->calm_ms *= 2;
	if (peer->calm_ms > DETECTOR_STEADY_MAX_MS)
		peer->calm_ms = DETECTOR_STEADY_MAX_MS;
}

static void set_silent(struct detector *detector, int host)
{
	struct detector_peer *peer = &detector->peers[host];
	struct detector_verdict verdict = {.kind = DETECTOR_SILENT,
					   .from = host,
					   .to = -1,
					   .witness = -1,
					   .since_ns = peer->heard_real_ns};
	/* A link that is known to be broken says enough. */
	if (peer->is_silent || detector->broken[host] >> detector->options.host & 1)
		return;
	if (!add_verdict(detector, &verdict))
		return;
	peer->is_silent = true;
	peer->unheard_ms = peer->unheard_beats = 0;
	calm_longer(peer);
}

static void set_broken(struct detector *detector, int from, int to, int witness, uint64_t since_ns)
{
	uint64_t bit = UINT64_C(1) << to;
	struct detector_verdict verdict = {.kind = DETECTOR_LINK,
					   .from = from,
					   .to = to,
					   .witness = witness,
					   .since_ns = since_ns};
	if (detector->broken[from] & bit || !add_verdict(detector, &verdict))
		return;
	detector->broken[from] |= bit;
	if (to == detector->options.host)
		detector->peers[from].is_silent = false; /* more is known now */
	calm_longer(&detector->peers[from]);
}

static void set_heard(struct detector *detector, int from, int to)
{
	struct detector_verdict heard = {.kind = DETECTOR_HEARD,
					 .from = from,
					 .to = to,
					 .witness = -1,
					 .since_ns = detector->real_ns};
	if (to < 0 ? !detector->peers[from].is_silent : !(detector->broken[from] >> to & 1))
		return;
	if (to < 0) {
		heard.unheard_ms = detector->peers[from].unheard_ms;
		heard.unheard_beats = detector->peers[from].unheard_beats;
	}
	if (!add_verdict(detector, &heard))
		return;
	if (to < 0)
		detector->peers[from].is_silent = false;
	else
		detector->broken[from] &= ~(UINT64_C(1) << to);
}

/* ---- what this host does not hear ---- */

/* A host that has heard DETECTOR_MISSED beats of `host` or more after the last one that this host
 * heard, as a few may still have been on their way here; -1: there is none. */
static int find_witness(const struct detector *detector, int host)
{
	for (int w = 0; w < detector->options.hosts; w++) {
		const struct detector_peer *peer = &detector->peers[w];
		uint16_t more = (uint16_t)(peer->counts[host] - peer->base[host]);
		if (w != detector->options.host && w != host && detector_is_fresh(detector, w) &&
		    peer->has_base >> host & 1 && more >= DETECTOR_MISSED)
			return w;
	}
	return -1;
}

/* Whether a witness may still come: some host has heard `host` lately, but not yet for long; or
 * this host has been asleep. */
static bool is_open(const struct detector *detector, int host)
{
	for (int w = 0; w < detector->options.hosts; w++) {
		const struct detector_peer *peer = &detector->peers[w];
		if (w != detector->options.host && w != host && !peer->is_gone &&
		    detector_is_fresh(detector, w) && peer->hears_ns[host])
			return true;
	}
	return age_of(detector, detector->awake_ns) < detector_ms(DETECTOR_STEP_MS);
}

static void judge_host(struct detector *detector, int host)
{
	struct detector_peer *peer = &detector->peers[host];
	int me = detector->options.host;
	if (!peer->is_known) {
		if (!peer->is_never && detector->clock_ns >= detector_ms(DETECTOR_START_MS))
			peer->is_never = add_verdict(
				detector,
				&(struct detector_verdict){.kind = DETECTOR_NEVER,
							   .from = host,
							   .to = -1,
							   .witness = -1,
							   .since_ns = detector->start_ns});
		return;
	}
	if (age_of(detector, peer->heard_ns) >= detector_ms(DETECTOR_SILENT_MS)) {
		int witness = find_witness(detector, host);
		if (witness < 0 && is_open(detector, host) &&
		    age_of(detector, peer->heard_ns) < detector_ms(DETECTOR_OPEN_MS))
			return;
		if (!peer->unheard.real_ns) {
			peer->unheard = (struct detector_since){peer->heard_real_ns, peer->heard_ns};
			peer->in_order = 0;
		}
		peer->is_proved |= witness >= 0;
		if (witness >= 0)
			set_broken(detector, host, me, witness, peer->heard_real_ns);
		else
			set_silent(detector, host);
		return;
	}
	bool is_fresh = detector_is_fresh(detector, host);
	uint64_t steady_ns = age_of(detector, peer->steady_ns);
	/* Hosts that get little processor time are late, so neither hears the other steadily. */
	if (peer->in_order >= DETECTOR_IN_ORDER ||
	    (is_fresh && steady_ns >= detector_ms(DETECTOR_STEADY_MS))) {
		peer->unheard.real_ns = 0;
		peer->is_proved = false;
	}
	if (!is_fresh)
		return;
	if (steady_ns >= detector_ms(peer->calm_ms)) {
		set_heard(detector, host, -1);
		set_heard(detector, host, me);
	}
}

/* ---- what other hosts do not hear ---- */

static void judge_link(struct detector *detector, int from, int to)
{
	struct detector_peer *peer = &detector->peers[to];
	uint32_t calm_ms = detector->peers[from].calm_ms;
	if (!detector_is_fresh(detector, to))
		return;
	uint32_t age_ms = peer->age_ms[from];
	if (age_ms != DETECTOR_NEVER_MS && age_ms >= DETECTOR_SILENT_MS &&
	    peer->missed[from] >= DETECTOR_MISSED) {
		uint64_t since_ns = peer->heard_real_ns > detector_ms(age_ms)
					    ? peer->heard_real_ns - detector_ms(age_ms)
					    : 1;
		if (from == detector->options.host && !peer->deaf.real_ns) {
			peer->deaf = (struct detector_since){since_ns, detector->clock_ns -
									       detector_ms(age_ms)};
			peer->heard_mine = 0;
		}
		set_broken(detector, from, to, -1, since_ns);
		return;
	}
	if (!peer->hears_ns[from])
		return;
	uint64_t steady_ns = age_of(detector, peer->hears_ns[from]);
	if (from == detector->options.host &&
	    (peer->heard_mine >= DETECTOR_IN_ORDER || steady_ns >= detector_ms(DETECTOR_STEADY_MS)))
		peer->deaf.real_ns = 0;
	if (steady_ns >= detector_ms(calm_ms))
		set_heard(detector, from, to);
}

void detector_judge(struct detector *detector)
{
	int me = detector->options.host, hosts = detector->options.hosts;
	for (int h = 0; h < hosts; h++) {
		if (h == me || detector->peers[h].is_gone)
			continue;
		judge_host(detector, h);
		for (int from = 0; from < hosts; from++)
			if (from != h && !detector->peers[from].is_gone)
				judge_link(detector, from, h);
	}
}

bool detector_is_unheard(const struct detector *detector, int host, struct detector_verdict *out)
{
	const struct detector_peer *peer = &detector->peers[host];
	int me = detector->options.host;
	if (!peer->unheard.real_ns && !peer->deaf.real_ns)
		return false;
	bool here = peer->unheard.real_ns != 0;
	struct detector_since since = here ? peer->unheard : peer->deaf;
	if (here && peer->deaf.real_ns && peer->deaf.real_ns < since.real_ns)
		since = peer->deaf;
	*out = (struct detector_verdict){.kind = here && !peer->is_proved ? DETECTOR_SILENT
									  : DETECTOR_LINK,
					 .from = here ? host : me,
					 .to = here ? peer->is_proved ? me : -1 : host,
					 .witness = -1,
					 .since_ns = since.real_ns,
					 .listened_ns = age_of(detector, since.slow_ns)};
	return true;
}

bool detector_next(struct detector *detector, struct detector_verdict *out)
{
	if (detector->verdict_count == 0)
		return false;
	*out = detector->verdicts[0];
	detector->verdict_count--;
	for (int i = 0; i < detector->verdict_count; i++)
		detector->verdicts[i] = detector->verdicts[i + 1];
	return true;
}
