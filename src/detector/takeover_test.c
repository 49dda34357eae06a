/* SPDX-License-Identifier: BSD-3-Clause
 * An agent that takes over from another one of its host. */
#include "detector/detector_fixture.h"

/* An agent of a newer generation counts at once, and the older one no more. */
static void test_takes_over(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector old, new;
	detector_init(&detector, &options, AT(0));
	detector_init(&old, &other, AT(0));
	other.generation = 2;
	other.agent = 5;
	detector_init(&new, &other, AT(0));
	struct detector_beat first = beat_of(&old, AT(0)), second = beat_of(&old, AT(50)),
			     newer = beat_of(&new, AT(60));
	assert_int_equal(give(&first, AT(1)), 1);
	assert_int_equal(detector_agent(&detector, 1), 4);
	assert_int_equal(give(&newer, AT(61)), 1);
	assert_int_equal(detector_agent(&detector, 1), 5);
	assert_int_equal(give(&second, AT(62)), -1);
	assert_int_equal(detector.dropped.old, 1);
	struct detector_verdict verdict;
	assert_int_equal(step_until(70, 400, &verdict), 0);
	assert_int_equal(detector_agent(&detector, 1), -1); /* perhaps another one again */
}

/* A new agent of this host knows what the old one has heard and said. */
static void test_past(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_past past[3] = {{0}};
	struct detector_verdict verdict;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	struct detector_beat beat = beat_of(&peer, AT(0));
	assert_int_equal(give(&beat, AT(1)), 1);
	past[1] = detector_past(&detector, 1);
	options.generation = 2;
	options.past = past;
	detector_init(&detector, &options, AT(100));
	assert_int_equal(give(&beat, AT(101)), -1); /* replayed */
	assert_int_equal(step_until(110, 1090, &verdict), 0);
	assert_int_equal(step_until(1100, 1200, &verdict), 1);
	assert_int_equal(verdict.kind, DETECTOR_SILENT);
	assert_int_equal(verdict.from, 1);
	past[1] = detector_past(&detector, 1);
	options.generation = 3;
	detector_init(&detector, &options, AT(1300));
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(step_until(1310, 4000, &verdict), 0);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.kind, DETECTOR_SILENT);
	assert_int_equal(verdict.since_ns, AT(100));
	for (uint64_t ms = 4000; ms < 4500; ms += 50) {
		beat = beat_of(&peer, AT(ms));
		assert_int_equal(give(&beat, AT(ms)), 1);
		assert_int_equal(step_until(ms, ms + 40, &verdict), 0);
	}
	for (uint64_t ms = 4500; ms < 4650; ms += 50) {
		beat = beat_of(&peer, AT(ms));
		assert_int_equal(give(&beat, AT(ms)), 1);
		if (step_until(ms, ms + 40, &verdict) == 1)
			break;
	}
	assert_int_equal(verdict.kind, DETECTOR_HEARD);
}

/* How long a host is unheard counts only while some agent here listens. */
static void test_listened(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_past past[3] = {{0}};
	struct detector_verdict verdict;
	detector_init(&detector, &options, AT(0));
	detector_init(&peer, &other, AT(0));
	struct detector_beat beat = beat_of(&peer, AT(0));
	assert_int_equal(give(&beat, AT(0)), 1);
	(void)step_until(10, 2000, &verdict);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.listened_ns, detector_ms(2000));
	(void)step_until(12000, 12500, &verdict); /* asleep for ten seconds */
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.listened_ns, detector_ms(2500 + DETECTOR_GAP_MS));
	assert_int_equal(verdict.since_ns, AT(0));
	past[1] = detector_past(&detector, 1);
	options.generation = 2;
	options.past = past;
	detector_init(&detector, &options, AT(20000)); /* nobody listened before */
	(void)step_until(20010, 21000, &verdict);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.listened_ns, detector_ms(3500 + DETECTOR_GAP_MS));
	assert_int_equal(verdict.since_ns, AT(0));
}

/* The agent was lost when it had told the ranks that a host is unheard, but not the next agent,
 * which hears the host; or does not, and then the host is unheard for as long as the ranks know. */
static void test_half_told(void **state)
{
	(void)state;
	struct detector_options options = options_of(0, NULL), other = options_of(1, NULL);
	static struct detector peer;
	struct detector_past past[3] = {{0}};
	struct detector_verdict verdict;
	struct detector_beat beat;
	options.generation = 2;
	options.past = past;
	past[1] = (struct detector_past){.generation = 1, .number = 5, .unheard_ns = AT(100)};
	detector_init(&detector, &options, AT(2000));
	assert_int_equal(step_until(2010, 3100, &verdict), 1);
	assert_int_equal(verdict.kind, DETECTOR_SILENT);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.since_ns, AT(100));
	other.generation = 2;
	detector_init(&detector, &options, AT(2000));
	detector_init(&peer, &other, AT(2000));
	for (uint64_t ms = 2000; ms < 3000; ms += 10) {
		if (detector_step(&peer, AT(ms), &beat))
			assert_int_equal(give(&beat, AT(ms)), 1);
		assert_int_equal(step_until(ms, ms, &verdict), 0);
		assert_int_equal(detector_is_unheard(&detector, 1, &verdict),
				 ms < 2000 + (DETECTOR_IN_ORDER - 1) * DETECTOR_BEAT_MS);
	}
	/* The other way round: a verdict that is not taken back yet does not make it unheard, but
	 * silence does. */
	past[1] = (struct detector_past){.generation = 1, .number = 5, .silent = 1};
	detector_init(&detector, &options, AT(4000));
	assert_false(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(step_until(4010, 5100, &verdict), 0);
	assert_true(detector_is_unheard(&detector, 1, &verdict));
	assert_int_equal(verdict.since_ns, AT(4000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes_over),
		cmocka_unit_test(test_past),
		cmocka_unit_test(test_listened),
		cmocka_unit_test(test_half_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
