/* SPDX-License-Identifier: BSD-3-Clause
 * The envelope that the caller of a receive gets, without ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "races/races.h"
#include "p2p/p2p.h"

/* A block from another host lies where one lay that was sent, and whose send is not over yet. */
static void nothing_touches_a_block_that_arrives(void **state)
{
	static struct world world;
	static ls_group group;
	static struct ls_request op;
	static char block[64], other[64];
	const struct races_use sends[] = {
		{.who = {.name = "send"}, .parts = {{.address = block, .bytes = sizeof block}}},
		{.who = {.name = "send"}, .parts = {{.address = other, .bytes = sizeof other}}}};
	struct races_conflict conflict;
	uint64_t ticket;
	void *got = NULL;
	(void)state;
	world.races = races_open(NULL);
	assert_non_null(world.races);
	for (int i = 0; i < 2; i++)
		assert_true(races_begin(world.races, &sends[i], &ticket, &conflict));
	group.world = &world;
	op.group = &group;
	op.block = &got;
	op.base.call.recv = buffer_host(block, sizeof block);
	p2p_deliver(&op);
	assert_ptr_equal(got, block);
	assert_int_equal(races_count(world.races), 1);
	races_close(world.races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_touches_a_block_that_arrives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
