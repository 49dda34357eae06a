/* SPDX-License-Identifier: BSD-3-Clause
 * Dropped beats, hosts that pause or leave. The rest: takeover_test.c, simulation_test.c. */
#include "detector/detector_fixture.h"

static struct auth_session session_of(uint64_t job)
{
	struct auth_token token;
	struct auth_session session;
	assert_int_equal(auth_token_open(&token), LS_OK);
	detector_session(&token, job, &session);
	return session;
}

static void test_signed(void **state)
{
	(void)state;
	struct auth_session session = session_of(77), foreign = session_of(78);
	struct detector_options options = options_of(0, &session), other = options_of(1, &session);
	static struct detector peer;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	struct detector_beat beat = beat_of(&peer, AT(0)), changed = beat;
	assert_int_equal(give(&beat, AT(1)), 1);
	assert_int_equal(detector_agent(&detector, 1), 4);
	assert_int_equal(give(&beat, AT(2)), -1); /* once more */
	assert_int_equal(detector.dropped.old, 1);
	for (size_t i = 0; i < sizeof beat; i++) { /* any bit */
		struct detector_dropped *dropped = &detector.dropped;
		struct detector_beat bent = beat_of(&peer, AT(2));
		((unsigned char *)&bent)[i] ^= (unsigned char)(1U << i % 8);
		assert_int_equal(give(&bent, AT(3)), -1);
		assert_int_equal(dropped->malformed + dropped->foreign + dropped->forged, i + 1);
	}
	other.session = &foreign;
	detector_init(&peer, &other, AT(0));
	changed = beat_of(&peer, AT(0));
	assert_int_equal(give(&changed, AT(4)), -1);
	other.session = NULL;
	detector_init(&peer, &other, AT(0));
	changed = beat_of(&peer, AT(0));
	assert_int_equal(give(&changed, AT(4)), -1);
	assert_int_equal(detector_receive(&detector, &beat, sizeof beat - 1, AT(4)), -1);
	assert_int_equal(detector_receive(&detector, "", 0, AT(4)), -1);
}

static void test_malformed(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	struct detector_beat good = beat_of(&peer, AT(0)), bad;
	bad = good, bad.host = 0; /* my own */
	assert_int_equal(give(&bad, AT(1)), -1);
	bad = good, bad.host = 3;
	assert_int_equal(give(&bad, AT(1)), -1);
	bad = good, bad.hosts = 4;
	assert_int_equal(give(&bad, AT(1)), -1);
	bad = good, bad.job = 1;
	assert_int_equal(give(&bad, AT(1)), -1);
	bad = good, bad.tag.bytes[3] = 1;
	assert_int_equal(give(&bad, AT(1)), -1);
	assert_int_equal(detector.dropped.malformed, 3);
	assert_int_equal(detector.dropped.foreign, 1);
	assert_int_equal(detector.dropped.forged, 1);
	assert_int_equal(give(&good, AT(1)), 1);
}

enum { UNHEARD_MS = 10000 }; /* after which ranks give a host up, most often */

/* Host 1 runs until end_ms, except in the first pause_ms of each 20 s but the first. Returns how
 * many silences were told; *longest_ms: for how long it counted as unheard at most. */
static int pause_often(struct detector *peer, uint64_t pause_ms, uint64_t end_ms,
		       uint64_t *longest_ms)
{
	enum { EACH_MS = 20000 };
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	struct detector_verdict verdict;
	struct detector_beat beat;
	int told = 0;
	options.hosts = other.hosts = 2;
	detector_init(&detector, &options, AT(0));
	detector_init(peer, &other, AT(0));
	*longest_ms = 0;
	for (uint64_t ms = 0; ms < end_ms; ms += 10) {
		bool pauses = ms >= EACH_MS && ms % EACH_MS < pause_ms;
		if (!pauses && detector_step(peer, AT(ms), &beat))
			assert_int_equal(give(&beat, AT(ms)), 1);
		(void)detector_step(&detector, AT(ms), &beat);
		while (detector_next(&detector, &verdict))
			told += verdict.kind == DETECTOR_SILENT;
		if (!detector_is_unheard(&detector, 1, &verdict))
			continue;
		uint64_t unheard_ms = (AT(ms) - verdict.since_ns) / detector_ms(1);
		*longest_ms = unheard_ms > *longest_ms ? unheard_ms : *longest_ms;
	}
	return told;
}

/* A host that pauses often is heard at once after each pause, though its verdicts are taken back
 * later and later. */
static void test_pauses(void **state)
{
	(void)state;
	static struct detector peer;
	struct detector_verdict verdict;
	uint64_t longest_ms;
	assert_in_range(pause_often(&peer, 1100, 400000, &longest_ms), 5, 19);
	assert_in_range(longest_ms, DETECTOR_SILENT_MS, 1100 + DETECTOR_STEADY_MS + 200);
	assert_true(detector.peers[1].calm_ms > UNHEARD_MS);
	assert_false(detector_is_unheard(&detector, 1, &verdict));
}

/* Both hosts get so little processor time that neither is ever heard without a gap. */
static void test_both_are_slow(void **state)
{
	(void)state;
	enum { EACH_MS = 450 };
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	struct detector_beat beat;
	options.hosts = other.hosts = 2;
	for (int lost = 0; lost <= 1; lost++) {
		detector_init(&detector, &options, AT(0));
		detector_init(&peer, &other, AT(0));
		beat = beat_of(&peer, AT(0));
		assert_int_equal(give(&beat, AT(0)), 1);
		assert_int_equal(step_until(10, 3000, &verdict), 1);
		for (uint64_t i = 0; i < DETECTOR_IN_ORDER; i++) {
			uint64_t ms = 3000 + i * EACH_MS;
			beat = beat_of(&peer, AT(ms));
			if (i == 1 && lost) /* a network that loses beats is another matter */
				beat = beat_of(&peer, AT(ms + 100));
			assert_int_equal(give(&beat, AT(ms)), 1);
			(void)detector_step(&detector, AT(ms), &beat);
			assert_int_equal(detector_is_unheard(&detector, 1, &verdict),
					 lost || i + 1 < DETECTOR_IN_ORDER);
		}
	}
}

/* For 1.5 s all that this host sends is lost, as host 1 says. Then all beats arrive, but both hosts
 * get so little processor time that neither is ever heard without a gap. */
static void test_deaf_and_slow(void **state)
{
	(void)state;
	enum { CUT_MS = 1000, HEALED_MS = 2500, END_MS = 60000, EACH_MS = 450 };
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	struct detector_beat mine, beat;
	bool was_deaf = false;
	options.hosts = other.hosts = 2;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	for (uint64_t ms = 0; ms < END_MS; ms += ms < HEALED_MS ? 10 : EACH_MS) {
		bool cut = ms >= CUT_MS && ms < HEALED_MS;
		if (detector_step(&detector, AT(ms), &mine) && !cut)
			assert_int_equal(detector_receive(&peer, &mine, sizeof mine, AT(ms)), 0);
		if (detector_step(&peer, AT(ms), &beat))
			assert_int_equal(give(&beat, AT(ms)), 1);
		was_deaf |= detector_is_unheard(&detector, 1, &verdict);
		if (ms >= HEALED_MS + (DETECTOR_IN_ORDER + 1) * EACH_MS)
			assert_false(detector_is_unheard(&detector, 1, &verdict));
	}
	assert_true(was_deaf);
}

/* If it dies then, it counts as unheard again, from its last beat on, without a further verdict. */
static void test_dies_in_calm(void **state)
{
	(void)state;
	static struct detector peer;
	struct detector_verdict verdict;
	uint64_t longest_ms;
	(void)pause_often(&peer, 1100, 306000, &longest_ms);
	assert_true(detector_past(&detector, 1).silent);
	assert_int_equal(step_until(306000, 306900, &verdict), 0);
	assert_false(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(step_until(306910, 307100, &verdict), 0);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.kind, DETECTOR_SILENT);
	assert_int_equal(verdict.from, 1);
	assert_int_equal(step_until(307110, 330000, &verdict), 0);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_in_range(verdict.since_ns, AT(305900), AT(306000));
}

/* This host's beats no longer arrive at host 1, as that says; then they do. */
static void test_deaf(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	struct detector_beat beat;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	detector.peers[0].calm_ms = DETECTOR_STEADY_MAX_MS;
	for (uint64_t ms = 0; ms < 10000; ms += 10) {
		bool cut = ms >= 3000 && ms < 6000;
		if (detector_step(&detector, AT(ms), &beat) && !cut)
			assert_int_equal(detector_receive(&peer, &beat, sizeof beat, AT(ms)), 0);
		if (detector_step(&peer, AT(ms), &beat))
			assert_int_equal(give(&beat, AT(ms)), 1);
		bool is_unheard = detector_is_unheard(&detector, 1, &verdict);
		if (ms < 3900 || ms > 6900)
			assert_false(is_unheard);
		if (ms < 4300 || ms >= 6000 + (DETECTOR_IN_ORDER - 1) * DETECTOR_BEAT_MS)
			continue;
		assert_true(is_unheard);
		assert_int_equal(verdict.kind, DETECTOR_LINK);
		assert_int_equal(verdict.from, 0);
		assert_int_equal(verdict.to, 1);
		assert_in_range(verdict.since_ns, AT(2900), AT(3100));
	}
	assert_true(detector_past(&detector, 0).broken >> 1 & 1); /* not yet taken back */
}

/* A silence of 2 s that ends: whether the host was frozen, or its beats were lost. */
static struct detector_verdict end_of_silence(bool frozen)
{
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict = {0};
	struct detector_beat beat;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	for (uint64_t ms = 0; ms < 4000; ms += 10) {
		bool silent = ms >= 500 && ms < 2500;
		if (!(silent && frozen) && detector_step(&peer, AT(ms), &beat) && !silent)
			assert_int_equal(give(&beat, AT(ms)), 1);
		(void)step_until(ms, ms, &verdict);
	}
	assert_int_equal(verdict.kind, DETECTOR_HEARD);
	assert_in_range(verdict.unheard_ms, 1900, 2200);
	return verdict;
}

static void test_why(void **state)
{
	(void)state;
	assert_int_equal(end_of_silence(true).unheard_beats, 0);
	assert_in_range(end_of_silence(false).unheard_beats, 38, 42);
}

static void test_never(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL);
	struct detector_verdict verdict;
	options.hosts = 2;
	detector_init(&detector, &options, AT(0));
	assert_int_equal(step_until(0, 4900, &verdict), 0);
	assert_int_equal(step_until(4910, 30000, &verdict), 1);
	assert_int_equal(verdict.kind, DETECTOR_NEVER);
	assert_int_equal(verdict.from, 1);
}

static void test_leaves(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	for (int forgets = 0; forgets < 2; forgets++) {
		detector_init(&detector, &options, AT(0));
		detector_init(&peer, &other, AT(0));
		struct detector_beat beat = beat_of(&peer, AT(0));
		assert_int_equal(give(&beat, AT(1)), 1);
		if (forgets) {
			detector_forget(&detector, 1);
		} else {
			detector_leave(&peer);
			assert_true(detector_step(&peer, AT(1), &beat));
			assert_int_equal(give(&beat, AT(2)), 1);
		}
		assert_int_equal(step_until(10, 4000, &verdict), 0);
	}
}

/* A host that leaves before its silence was taken back is not unheard any more, unless it does not
 * hear this one; nothing is told. One whose connections have ended stays as it was: other ranks may
 * not know that they have. */
static void test_leaves_in_silence(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	enum { LEAVES, LEAVES_DEAF, FORGOTTEN, WAYS };
	for (int way = 0; way < WAYS; way++) {
		detector_init(&detector, &options, AT(0));
		detector_init(&peer, &other, AT(0));
		struct detector_beat beat = beat_of(&peer, AT(0));
		assert_int_equal(give(&beat, AT(1)), 1);
		assert_int_equal(step_until(10, 1200, &verdict), 1);
		assert_int_equal(verdict.kind, DETECTOR_SILENT);
		detector.broken[0] = detector.broken[2] = 1 << 1; /* as if told */
		detector.broken[1] = 1 << 2;
		detector.peers[1].deaf.real_ns = AT(1000);
		if (way == FORGOTTEN) {
			detector_forget(&detector, 1);
		} else {
			struct detector_beat mine = beat_of(&detector, AT(1200));
			if (way == LEAVES)
				assert_int_equal(
					detector_receive(&peer, &mine, sizeof mine, AT(1200)), 0);
			detector_leave(&peer);
			assert_true(detector_step(&peer, AT(1201), &beat));
			assert_int_equal(give(&beat, AT(1202)), 1);
		}
		assert_int_equal(step_until(1210, 4000, &verdict), 0);
		assert_int_equal(detector_is_unheard(&detector, 1, &verdict), way != LEAVES);
		if (way == LEAVES_DEAF) {
			assert_int_equal(verdict.kind, DETECTOR_LINK);
			assert_int_equal(verdict.from, 0);
			assert_int_equal(verdict.to, 1);
		}
		assert_int_equal(detector_past(&detector, 1).silent, way == FORGOTTEN);
		for (int h = 0; h < 3; h++)
			assert_int_equal(detector_past(&detector, h).broken != 0, way == FORGOTTEN);
	}
}

/* An agent that was frozen has to hear for itself first. */
static void test_late(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_verdict verdict;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	struct detector_beat beat = beat_of(&peer, AT(0));
	assert_int_equal(give(&beat, AT(1)), 1);
	assert_int_equal(step_until(10, 100, &verdict), 0);
	assert_int_equal(step_until(60000, 60600, &verdict), 0);
	assert_int_equal(step_until(60610, 62000, &verdict), 1);
	assert_int_equal(verdict.since_ns, AT(1));
}

/* Two clocks of which one is ahead and faster, and ways of different and changing lengths: the
 * estimate is within what it says, and what it says is as little as the fastest round trip
 * allows. */
enum { AHEAD_MS = 7200000, FAST_PPM = 100 };

static uint64_t there(uint64_t ns)
{
	return ns + detector_ms(AHEAD_MS) + (ns - AT(0)) / 1000000 * FAST_PPM;
}

static bool is_within(const struct detector_clock *clock, uint64_t now_ns)
{
	int64_t off_ns = clock->offset_ns - (int64_t)(there(now_ns) - now_ns);
	uint64_t drift_ns = (now_ns - clock->at_ns) / 1000000 * DETECTOR_DRIFT_PPM;
	return (uint64_t)(off_ns < 0 ? -off_ns : off_ns) <= clock->error_ns + drift_ns;
}

static void test_clock(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_clock clock;
	struct detector_beat beat;
	uint64_t now_ns = AT(0), least_ns = UINT64_MAX, seed = 1;
	detector_init(&detector, &options, now_ns);
	detector_init(&peer, &other, there(now_ns));
	assert_false(detector_clock(&detector, 1, &clock));
	for (int i = 0; i < 200; i++) {
		uint64_t to_ns = 20000 + (seed = seed * 6364136223846793005 + 1) % 900000;
		uint64_t back_ns = 50000 + (seed = seed * 6364136223846793005 + 1) % 300000;
		now_ns += detector_ms(DETECTOR_BEAT_MS);
		assert_true(detector_step(&detector, now_ns, &beat));
		assert_int_equal(detector_receive(&peer, &beat, sizeof beat, there(now_ns + to_ns)),
				 0);
		uint64_t sent_ns = now_ns + to_ns + detector_ms(7);
		if (!detector_step(&peer, there(sent_ns), &beat))
			continue;
		assert_int_equal(give(&beat, sent_ns + back_ns), 1);
		assert_true(detector_clock(&detector, 1, &clock));
		assert_true(is_within(&clock, sent_ns + back_ns));
		least_ns = to_ns + back_ns < least_ns ? to_ns + back_ns : least_ns;
	}
	/* The worst that is kept has become as wrong as a new one. */
	assert_true(clock.error_ns < (20000 + 900000 + 50000 + 300000) / 2 && least_ns < 400000);
	assert_true(detector_clock(&peer, 0, &clock));
	assert_true(clock.offset_ns < -(int64_t)detector_ms(AHEAD_MS) + (int64_t)detector_ms(5));
	/* Nonsense is no reading: a beat that came before it was sent. */
	uint64_t at_ns = clock.at_ns;
	assert_true(detector_step(&detector, now_ns += detector_ms(DETECTOR_BEAT_MS), &beat));
	beat.echo_ns[1] = UINT64_MAX;
	assert_int_equal(detector_receive(&peer, &beat, sizeof beat, there(now_ns)), 0);
	assert_true(detector_clock(&peer, 0, &clock));
	assert_int_equal(clock.at_ns, at_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signed),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_both_are_slow),
		cmocka_unit_test(test_dies_in_calm),
		cmocka_unit_test(test_deaf),
		cmocka_unit_test(test_deaf_and_slow),
		cmocka_unit_test(test_why),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_leaves_in_silence),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_clock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
