/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank has exchanged with a rank on another host, read while a payload arrives: the first
 * read of a counter finds its page without access, and meanwhile the payload is offered. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure/failure_private.h"
#include "failure/remote_look.h"

enum { HERE, REMOTE, SIZE };

static struct transport_segment *segment;
static uint64_t page_bytes;

/* Plays the thread that makes progress on the link: the payload is wanted already, so it marks the
 * pair, then counts the message. It has not begun to fetch the payload. */
static void offer_payload(int number)
{
	struct transport_traffic *traffic = transport_traffic(segment, REMOTE);
	(void)number;
	if (mprotect(transport_traffic(segment, HERE), page_bytes, PROT_READ | PROT_WRITE) != 0)
		_exit(1);
	atomic_fetch_add(&segment->marked, 1);
	atomic_fetch_add(&traffic->arrived, 1);
}

/* The counters begin with a page. */
static unsigned char *map_segment(size_t *bytes)
{
	page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t before = (sizeof *segment + page_bytes - 1) / page_bytes * page_bytes;
	*bytes = before + page_bytes;
	unsigned char *memory =
		mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	segment = (struct transport_segment *)(memory + before - sizeof *segment);
	return memory;
}

static void test_payload_arrives(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	struct diagnose_traffic *traffic = calloc(SIZE, sizeof *traffic);
	struct sigaction action = {.sa_handler = offer_payload}, old;
	struct transport_peer peers[SIZE] = {{.segment = NULL}};
	size_t bytes;
	(void)state;
	unsigned char *memory = map_segment(&bytes);
	assert_true(world && traffic);
	world->size = SIZE;
	world->transport.peers = peers;
	peers[HERE].segment = segment;
	peers[REMOTE].mirror = (struct hosts_mirror *)segment; /* only whether it is NULL counts */
	assert_int_equal(sigaction(SIGSEGV, &action, &old), 0);
	assert_int_equal(mprotect(transport_traffic(segment, HERE), page_bytes, PROT_NONE), 0);
	failure_read_traffic(world, traffic);
	assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
	/* The message counts as arrived, so something else has to show what is under way. */
	assert_int_equal(traffic[HERE].arrived[REMOTE], 1);
	assert_int_equal(traffic[HERE].begun[REMOTE], traffic[HERE].fetched[REMOTE]);
	assert_false(traffic[HERE].is_served);
	munmap(memory, bytes);
	free(traffic);
	free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_payload_arrives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
