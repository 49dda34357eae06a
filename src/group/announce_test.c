/* SPDX-License-Identifier: BSD-3-Clause
 * When a new group is announced to other hosts, whose members report its failure only once: the
 * events of the link have to find the group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <lockstep/lockstep.h>

#include "hosts/hosts.h"
#include "world/ls_group.h"
#include "world/registry.h"

static int announced, found;

void __wrap_hosts_team_announce(struct transport_team *team);
void __wrap_hosts_team_announce(struct transport_team *team)
{
	struct ls_group *group = (struct ls_group *)((char *)team - offsetof(struct ls_group, team));
	announced++;
	if (world_hold(group->world, group->id) != group)
		return;
	world_release(group);
	found++;
}

static void test_found_when_announced(void **state)
{
	(void)state;
	static const struct ls_group_options alone = {.size = sizeof alone, .world_size = 1};
	ls_group *world, *group;
	assert_int_equal(ls_group_open(&alone, &world), LS_OK);
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	assert_int_equal(announced, 1);
	assert_int_equal(found, 1);
	ls_group_close(group);
	ls_group_close(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found_when_announced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
