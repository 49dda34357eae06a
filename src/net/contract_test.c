/* SPDX-License-Identifier: BSD-3-Clause
 * UCX keeps the contract of a link: over TCP and the loop-back device, with all ends in this
 * process. */
#include "link/contract_fixture.h"
#include "net/net.h"

static void *open_ends(int ends, uint64_t seed, struct link **links)
{
	for (int r = 0; r < ends; r++) {
		const struct net_options options = {.rank = r,
						    .size = ends,
						    .job = seed,
						    .host = "127.0.0.1",
						    .transports = "tcp"};
		assert_int_equal(net_open(&options, &links[r]), LS_OK);
	}
	for (int r = 0; r < ends; r++) {
		struct net_address address;
		net_address(links[r], &address);
		for (int q = 0; q < ends; q++)
			assert_int_equal(net_set_address(links[q], r, &address),
					 q == r ? LS_BAD_ARGUMENT : LS_OK);
	}
	return links;
}

static bool close_ends(void *made)
{
	(void)made;
	return true;
}

int main(void)
{
	const struct contract_factory factory = {.name = "ucx",
						 .open = open_ends,
						 .close = close_ends,
						 .seed = 1,
						 .cut_bytes = 64 << 20};
	return contract_run(&factory);
}
