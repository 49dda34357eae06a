/* SPDX-License-Identifier: BSD-3-Clause
 * Programs are drawn, played, printed and reduced, without ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

enum { PROGRAMS = 3000 };

static void make(uint64_t seed, struct program *program)
{
	struct program_world world;
	struct program_taste taste = {
		.plants = true, .kills = true, .looks = true, .registers = true};
	program_draw_world(seed, &world);
	program_make(seed, &world, &taste, program);
}

/* No half before the plant is stuck. */
static void test_all_programs_end(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
		struct program program;
		struct program_stuck stuck;
		make(seed, &program);
		const char *why = program_is_legal(&program);
		if (why)
			fail_msg("seed %llu: %s", (unsigned long long)seed, why);
		program_play(&program, &stuck);
		for (int lane = 0; lane < PROGRAM_LANES; lane++)
			for (int e = 0; e < program.plant_event; e++)
				if (stuck.at[lane][e] &&
				    program.events[e].halves[lane].form == PROGRAM_BLOCKING)
					fail_msg("seed %llu: lane %d event %d is stuck",
						 (unsigned long long)seed, lane, e);
	}
}

static void test_plants_have_victims(void **state)
{
	(void)state;
	int plants[PROGRAM_PLANT_COUNT] = {0};
	for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
		struct program program;
		struct program_expectation expected;
		make(seed, &program);
		plants[program.plant]++;
		program_expect(&program, &expected);
		assert_int_equal(expected.groups != 0, program.plant != PROGRAM_PLANT_NONE);
		bool must = program.plant != PROGRAM_PLANT_NONE &&
			    program.plant != PROGRAM_PLANT_KILLED && !expected.may_end_quietly;
		if (must && !expected.stuck.any)
			fail_msg("seed %llu: nobody is stuck", (unsigned long long)seed);
	}
	for (int i = 0; i < PROGRAM_PLANT_COUNT; i++)
		assert_true(plants[i] > 0);
}

/* All kinds of events, forms of halves, and ways to make a group. */
static void test_all_kinds_are_drawn(void **state)
{
	(void)state;
	int kinds[PROGRAM_KIND_COUNT] = {0}, forms[PROGRAM_FORM_COUNT] = {0}, hows[4] = {0};
	for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
		struct program program;
		make(seed, &program);
		for (int g = 0; g < program.group_count; g++)
			hows[program.groups[g].how]++;
		for (int e = 0; e < program.event_count; e++) {
			kinds[program.events[e].kind]++;
			for (int lane = 0; lane < PROGRAM_LANES; lane++)
				forms[program.events[e].halves[lane].form]++;
		}
	}
	for (int i = 0; i < PROGRAM_KIND_COUNT; i++)
		assert_true(kinds[i] > 0);
	for (int i = 0; i < PROGRAM_FORM_COUNT; i++)
		assert_true(forms[i] > 0);
	for (int i = 0; i < 4; i++)
		assert_true(hows[i] > 0);
}

/* Also halves of lanes that do not exist are then gone. */
static void test_text_is_read_again(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < PROGRAMS / 10; seed++) {
		struct program program, again;
		char *first = NULL, *second = NULL;
		size_t bytes = 0, more = 0;
		make(seed, &program);
		FILE *file = open_memstream(&first, &bytes);
		program_print(&program, file);
		fclose(file);
		file = fmemopen(first, bytes, "r");
		const char *why = program_read(file, &again);
		fclose(file);
		if (why)
			fail_msg("seed %llu: %s in\n%s", (unsigned long long)seed, why, first);
		file = open_memstream(&second, &more);
		program_print(&again, file);
		fclose(file);
		assert_string_equal(first, second);
		free(first);
		free(second);
	}
}

static const char *read_text(const char *text)
{
	struct program program;
	FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	const char *why = program_read(file, &program);
	fclose(file);
	return why;
}

static void test_bad_text_is_refused(void **state)
{
	(void)state;
	static const char head[] = "program 1 none 0 0 0\nworld 2 64 0 0 : 1 1\n";
	static const char world[] = "group 0 world 0 : 0 1 : 0 0\n";
	char text[512];
	snprintf(text, sizeof text, "%s%send\n", head, world);
	assert_null(read_text(text));
	snprintf(text, sizeof text, "%send\n", head);
	assert_non_null(read_text(text));
	snprintf(text, sizeof text, "%s%s", head, world);
	assert_string_equal(read_text(text), "the program has no end");
	snprintf(text, sizeof text, "%s%sevent 0 message 0 0 9 0 0 0 0 0 0 1 0 8\nend\n", head,
		 world);
	assert_non_null(read_text(text));
	snprintf(text, sizeof text, "%s%sevent 0 nonsense\nend\n", head, world);
	assert_string_equal(read_text(text), "line 4 of the program cannot be read");
	/* A lane sends a long message to itself, and blocks in the send before it receives. */
	snprintf(text, sizeof text,
		 "%s%sevent 0 message 0 0 4 0 0 0 0 0 0 1 0 400 : 0 blocking 0 alloc 0 1 0\nend\n",
		 head, world);
	assert_string_equal(read_text(text), "something goes wrong, without a plant");
}

/* Fails as long as the program has a server. */
static bool has_server(void *data, const struct program *program)
{
	(void)data;
	for (int e = 0; e < program->event_count; e++)
		if (program->events[e].kind == PROGRAM_SERVER)
			return true;
	return false;
}

static void test_shrinks(void **state)
{
	(void)state;
	int count = 0;
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct program program;
		make(seed, &program);
		if (program.plant != PROGRAM_PLANT_NONE || !has_server(NULL, &program))
			continue;
		count++;
		program_shrink(&program, has_server, NULL, 10000);
		assert_int_equal(program.world.ranks, 2);
		assert_true(program.event_count <= 2); /* the other event makes its group */
		const struct program_event *event = &program.events[program.event_count - 1];
		assert_int_equal(event->repeat, 1);
		assert_true(event->bytes <= 8);
		assert_int_equal(__builtin_popcount(event->senders), 1);
		assert_null(program_is_legal(&program));
	}
	assert_true(count > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_programs_end),
		cmocka_unit_test(test_plants_have_victims),
		cmocka_unit_test(test_all_kinds_are_drawn),
		cmocka_unit_test(test_text_is_read_again),
		cmocka_unit_test(test_bad_text_is_refused),
		cmocka_unit_test(test_shrinks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
