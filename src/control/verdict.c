/* SPDX-License-Identifier: BSD-3-Clause
 * The verdicts that follow from who hears whom. */
#include "control/control.h"

static uint64_t age_of(const struct control *control, uint64_t then_ns)
{
	return control->clock_ns - then_ns;
}

bool control_is_fresh(const struct control *control, int host)
{
	const struct control_peer *peer = &control->peers[host];
	return peer->has_come && control->clock_ns - peer->heard_ns <= control_ms(CONTROL_FRESH_MS);
}

/* False: no room, so the caller must not change the state, and the next step finds the verdict
 * again. */
static bool add_verdict(struct control *control, const struct control_verdict *verdict)
{
	enum { ROOM = sizeof control->verdicts / sizeof *control->verdicts };
	if (control->verdict_count == ROOM)
		return false;
	control->verdicts[control->verdict_count++] = *verdict;
	return true;
}

static void calm_longer(struct control_peer *peer)
{
	if (peer->calm_ms < CONTROL_STEADY_MAX_MS)
		peer->calm_ms *= 2;
	if (peer->calm_ms > CONTROL_STEADY_MAX_MS)
		peer->calm_ms = CONTROL_STEADY_MAX_MS;
}

static void set_silent(struct control *control, int host)
{
	struct control_peer *peer = &control->peers[host];
	struct control_verdict verdict = {.kind = CONTROL_SILENT,
					  .from = host,
					  .to = -1,
					  .witness = -1,
					  .since_ns = peer->heard_real_ns};
	/* A link that is known to be broken says enough. */
	if (peer->is_silent || control->broken[host] >> control->options.host & 1)
		return;
	if (!add_verdict(control, &verdict))
		return;
	peer->is_silent = true;
	peer->unheard_ms = peer->unheard_beats = 0;
	calm_longer(peer);
}

static void set_broken(struct control *control, int from, int to, int witness, uint64_t since_ns)
{
	uint64_t bit = UINT64_C(1) << to;
	struct control_verdict verdict = {.kind = CONTROL_LINK,
					  .from = from,
					  .to = to,
					  .witness = witness,
					  .since_ns = since_ns};
	if (control->broken[from] & bit || !add_verdict(control, &verdict))
		return;
	control->broken[from] |= bit;
	if (to == control->options.host)
		control->peers[from].is_silent = false; /* more is known now */
	calm_longer(&control->peers[from]);
}

static void set_heard(struct control *control, int from, int to)
{
	struct control_verdict heard = {.kind = CONTROL_HEARD,
					.from = from,
					.to = to,
					.witness = -1,
					.since_ns = control->real_ns};
	if (to < 0 ? !control->peers[from].is_silent : !(control->broken[from] >> to & 1))
		return;
	if (to < 0) {
		heard.unheard_ms = control->peers[from].unheard_ms;
		heard.unheard_beats = control->peers[from].unheard_beats;
	}
	if (!add_verdict(control, &heard))
		return;
	if (to < 0)
		control->peers[from].is_silent = false;
	else
		control->broken[from] &= ~(UINT64_C(1) << to);
}

/* ---- what this host does not hear ---- */

/* A host that has heard CONTROL_MISSED beats of `host` or more after the last one that this host
 * heard, as a few may still have been on their way here; -1: there is none. */
static int find_witness(const struct control *control, int host)
{
	for (int w = 0; w < control->options.hosts; w++) {
		const struct control_peer *peer = &control->peers[w];
		uint16_t more = (uint16_t)(peer->counts[host] - peer->base[host]);
		if (w != control->options.host && w != host && control_is_fresh(control, w) &&
		    peer->has_base >> host & 1 && more >= CONTROL_MISSED)
			return w;
	}
	return -1;
}

/* Whether a witness may still come: some host has heard `host` lately, but not yet for long; or
 * this host has been asleep. */
static bool is_open(const struct control *control, int host)
{
	for (int w = 0; w < control->options.hosts; w++) {
		const struct control_peer *peer = &control->peers[w];
		if (w != control->options.host && w != host && !peer->is_gone &&
		    control_is_fresh(control, w) && peer->hears_ns[host])
			return true;
	}
	return age_of(control, control->awake_ns) < control_ms(CONTROL_STEP_MS);
}

static void judge_host(struct control *control, int host)
{
	struct control_peer *peer = &control->peers[host];
	int me = control->options.host;
	if (!peer->is_known) {
		if (!peer->is_never && control->clock_ns >= control_ms(CONTROL_START_MS))
			peer->is_never = add_verdict(
				control, &(struct control_verdict){.kind = CONTROL_NEVER,
								   .from = host,
								   .to = -1,
								   .witness = -1,
								   .since_ns = control->start_ns});
		return;
	}
	if (age_of(control, peer->heard_ns) >= control_ms(CONTROL_SILENT_MS)) {
		int witness = find_witness(control, host);
		if (witness < 0 && is_open(control, host) &&
		    age_of(control, peer->heard_ns) < control_ms(CONTROL_OPEN_MS))
			return;
		if (!peer->unheard_ns)
			peer->unheard_ns = peer->heard_real_ns;
		peer->is_proved |= witness >= 0;
		if (witness >= 0)
			set_broken(control, host, me, witness, peer->heard_real_ns);
		else
			set_silent(control, host);
		return;
	}
	if (!control_is_fresh(control, host))
		return;
	uint64_t steady_ns = age_of(control, peer->steady_ns);
	if (steady_ns >= control_ms(CONTROL_STEADY_MS)) {
		peer->unheard_ns = 0;
		peer->is_proved = false;
	}
	if (steady_ns >= control_ms(peer->calm_ms)) {
		set_heard(control, host, -1);
		set_heard(control, host, me);
	}
}

/* ---- what other hosts do not hear ---- */

static void judge_link(struct control *control, int from, int to)
{
	struct control_peer *peer = &control->peers[to];
	uint32_t calm_ms = control->peers[from].calm_ms;
	if (!control_is_fresh(control, to))
		return;
	uint32_t age_ms = peer->age_ms[from];
	if (age_ms != CONTROL_NEVER_MS && age_ms >= CONTROL_SILENT_MS &&
	    peer->missed[from] >= CONTROL_MISSED) {
		uint64_t since_ns = peer->heard_real_ns > control_ms(age_ms)
					    ? peer->heard_real_ns - control_ms(age_ms)
					    : 1;
		if (from == control->options.host && !peer->deaf_ns)
			peer->deaf_ns = since_ns;
		set_broken(control, from, to, -1, since_ns);
		return;
	}
	if (!peer->hears_ns[from])
		return;
	uint64_t steady_ns = age_of(control, peer->hears_ns[from]);
	if (from == control->options.host && steady_ns >= control_ms(CONTROL_STEADY_MS))
		peer->deaf_ns = 0;
	if (steady_ns >= control_ms(calm_ms))
		set_heard(control, from, to);
}

void control_judge(struct control *control)
{
	int me = control->options.host, hosts = control->options.hosts;
	for (int h = 0; h < hosts; h++) {
		if (h == me || control->peers[h].is_gone)
			continue;
		judge_host(control, h);
		for (int from = 0; from < hosts; from++)
			if (from != h && !control->peers[from].is_gone)
				judge_link(control, from, h);
	}
}

bool control_is_unheard(const struct control *control, int host, struct control_verdict *out)
{
	const struct control_peer *peer = &control->peers[host];
	int me = control->options.host;
	if (!peer->unheard_ns && !peer->deaf_ns)
		return false;
	bool here = peer->unheard_ns != 0;
	*out = (struct control_verdict){.kind = here && !peer->is_proved ? CONTROL_SILENT
									 : CONTROL_LINK,
					.from = here ? host : me,
					.to = here ? peer->is_proved ? me : -1 : host,
					.witness = -1,
					.since_ns = here ? peer->unheard_ns : peer->deaf_ns};
	if (here && peer->deaf_ns && peer->deaf_ns < peer->unheard_ns)
		out->since_ns = peer->deaf_ns;
	return true;
}

bool control_next(struct control *control, struct control_verdict *out)
{
	if (control->verdict_count == 0)
		return false;
	*out = control->verdicts[0];
	control->verdict_count--;
	for (int i = 0; i < control->verdict_count; i++)
		control->verdicts[i] = control->verdicts[i + 1];
	return true;
}
