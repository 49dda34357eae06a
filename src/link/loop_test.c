/* SPDX-License-Identifier: BSD-3-Clause
 * The loop-back keeps the contract of a link. */
#include "link/contract_fixture.h"
#include "link/loop_fixture.h"

static void *open_loop(int ends, uint64_t seed, struct link **links)
{
	struct loop *loop = loop_new(ends, seed);
	for (int r = 0; r < ends; r++)
		links[r] = loop_link(loop, r);
	return loop;
}

static bool close_loop(void *made)
{
	return loop_free(made);
}

int main(void)
{
	int failed = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		const struct contract_factory factory = {.name = "loop",
							 .open = open_loop,
							 .close = close_loop,
							 .seed = seed,
							 .cut_bytes = CONTRACT_LONG};
		failed += contract_run(&factory);
	}
	return failed;
}
