/* SPDX-License-Identifier: BSD-3-Clause
 * Reading a peer's plain memory: every size and alignment, memory that is not there, and processes
 * that have ended, become another program, or whose number another process now has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <linux/sched.h>
#include <sys/uio.h>

#include "base/capture.h"
#include "transport/segment.h"
#include "transport/cma_fixture.h"

static struct transport_team *mine(struct duo *duo)
{
	return &duo->job->ranks[0].team;
}

/* Reads `bytes` from byte `from` of the child's area to an address that is `shift` off
 * alignment. */
static void check_read(struct duo *duo, size_t from, size_t shift, size_t bytes)
{
	static unsigned char buffer[DUO_PAGES * 65536 + 64];
	unsigned char *to = buffer + shift;
	memset(buffer, 0, shift + bytes + 1);
	assert_int_equal(transport_read(mine(duo), 1, (uintptr_t)duo->area + from, to, bytes),
			 LS_OK);
	for (size_t i = 0; i < bytes; i++)
		if (to[i] != duo_byte(from + i))
			fail_msg("byte %zu of %zu from %zu is wrong", i, bytes, from);
	for (size_t i = 0; i < shift; i++)
		assert_int_equal(buffer[i], 0);
	assert_int_equal(to[bytes], 0);
}

static void test_sizes(void **state)
{
	(void)state;
	struct duo duo;
	duo_open(&duo, DUO_PLAIN);
	size_t page = duo.page;
	const size_t sizes[] = {0,
				1,
				7,
				8,
				9,
				63,
				page - 1,
				page,
				page + 1,
				2 * page,
				17 * page + 5,
				64 * page + 3,
				256 * page - 1,
				299 * page};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (size_t from = 0; from < page; from += from < 4 ? 1 : page / 2 - 3)
			check_read(&duo, from, (i + from) % 16, sizes[i]);
	check_read(&duo, page - 1, 1, 2); /* both sides of a page's end */
	check_read(&duo, page - 3, 0, page + 6);
	check_read(&duo, duo.bytes - 1, 3, 1);
	assert_int_equal(duo_close(&duo), 0);
}

/* The whole area is asked for, of which a page in the middle is not there. */
static void test_unmapped(void **state)
{
	(void)state;
	struct duo duo;
	struct capture capture;
	unsigned char *to = malloc(DUO_PAGES * 65536);
	assert_non_null(to);
	duo_open(&duo, DUO_PLAIN);
	uint64_t area = (uintptr_t)duo.area;
	size_t half = DUO_PAGES / 2 * duo.page;
	assert_int_equal(duo_ask(&duo, 'u'), 1);
	const struct {
		uint64_t address, bytes;
	} cases[] = {{area, duo.bytes},
		     {area + half, 8},
		     {area + half - 1, 2},
		     {0, 1},
		     {8, duo.bytes},
		     {UINT64_MAX, 1},
		     {UINT64_MAX - 4095, 8192},
		     {UINT64_C(1) << 47, 64},
		     {UINT64_C(1) << 63, 64}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		capture_begin(&capture);
		ls_status status =
			transport_read(mine(&duo), 1, cases[i].address, to, cases[i].bytes);
		const char *text = capture_end(&capture);
		assert_int_equal(status, LS_SYSTEM);
		assert_non_null(strstr(text, "LS-TRANSPORT-READ"));
		assert_non_null(strstr(text, "rank 1"));
		assert_non_null(strstr(text, "Bad address"));
	}
	check_read(&duo, 0, 0, half);
	check_read(&duo, half + duo.page, 0, half - duo.page);
	assert_int_equal(duo_close(&duo), 0);
	free(to);
}

/* The peer is gone: nothing is said, since the group has more to say of it. */
static void assert_gone(struct duo *duo)
{
	struct capture capture;
	unsigned char to[64];
	for (size_t from = 0; from < 3 * duo->page; from += duo->page - 1) {
		capture_begin(&capture);
		ls_status status =
			transport_read(mine(duo), 1, (uintptr_t)duo->area + from, to, sizeof to);
		assert_string_equal(capture_end(&capture), "");
		assert_int_equal(status, LS_PEER_DIED);
	}
}

static void kill_child(struct duo *duo)
{
	siginfo_t end;
	assert_int_equal(kill(duo->child, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)duo->child, &end, WEXITED | WNOWAIT), 0);
}

static void test_killed(void **state)
{
	(void)state;
	struct duo duo;
	int status;
	duo_open(&duo, DUO_PLAIN);
	check_read(&duo, 0, 0, 64);
	kill_child(&duo);
	assert_gone(&duo); /* as long as nobody has asked how it ended */
	assert_int_equal(waitpid(duo.child, &status, 0), duo.child);
	assert_gone(&duo);
	duo.child = 0;
	duo_close(&duo);
}

static void test_other_program(void **state)
{
	(void)state;
	struct duo duo;
	unsigned char order = 'x', answer;
	duo_open(&duo, DUO_PLAIN);
	assert_int_equal(send(duo.control, &order, 1, 0), 1);
	assert_int_equal(recv(duo.control, &answer, 1, 0), 0); /* closed by the system on exec */
	assert_gone(&duo);
	kill_child(&duo);
	duo_close(&duo);
}

static void test_closed(void **state)
{
	(void)state;
	struct duo duo;
	duo_open(&duo, DUO_PLAIN);
	assert_int_equal(duo_ask(&duo, 'w'), 1);
	assert_gone(&duo);
	assert_int_equal(duo_close(&duo), 0);
}

/* A copy of this process, area and all, with the number that `child` had, which does nothing; -1
 * where the system does not let us choose one. */
static pid_t start_impostor(pid_t child)
{
	struct clone_args arguments = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&child, .set_tid_size = 1};
	pid_t impostor = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
	if (impostor == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		for (;;)
			pause();
	}
	return impostor;
}

static void test_number_used_again(void **state)
{
	(void)state;
	struct duo duo;
	int status;
	duo_open(&duo, DUO_PLAIN);
	memset(duo.area, 99, duo.bytes);
	kill_child(&duo);
	assert_int_equal(waitpid(duo.child, &status, 0), duo.child);
	pid_t impostor = start_impostor(duo.child);
	if (impostor > 0) {
		unsigned char byte = 0;
		struct iovec to = {&byte, 1}, from = {duo.area, 1};
		assert_int_equal(impostor, duo.child);
		assert_int_equal(process_vm_readv(impostor, &to, 1, &from, 1, 0), 1);
		assert_int_equal(byte, 99); /* which is what must not be taken for the peer's */
		assert_gone(&duo);
		assert_int_equal(kill(impostor, SIGKILL), 0);
	}
	duo.child = impostor > 0 ? impostor : 0;
	duo_close(&duo);
	if (impostor < 0)
		skip();
}

/* A process that the peer has forked has all of its memory, and might get its number later. */
static void test_forked_copy(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(2);
	struct transport_peer *mapped = &job->ranks[0].transport.peers[1];
	uint64_t from = 42, to = 0;
	pid_t copy = fork();
	assert_true(copy >= 0);
	if (copy == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		for (;;)
			pause();
	}
	assert_int_equal(transport_read(&job->ranks[0].team, 1, (uintptr_t)&from, &to, sizeof to),
			 LS_OK);
	mapped->pid = copy;
	assert_int_equal(transport_read(&job->ranks[0].team, 1, (uintptr_t)&from, &to, sizeof to),
			 LS_PEER_DIED);
	int status;
	assert_int_equal(kill(copy, SIGKILL), 0);
	assert_int_equal(waitpid(copy, &status, 0), copy);
	test_job_close(job);
}

/* ---- ranks of one process ---- */

static void test_one_process(void **state)
{
	(void)state;
	enum { COUNT = 3 };
	struct test_job *job = test_job_open(COUNT);
	unsigned char from[100], to[100];
	struct capture capture;
	for (size_t i = 0; i < sizeof from; i++)
		from[i] = duo_byte(i);
	for (int r = 0; r < COUNT; r++) {
		struct transport_team *team = &job->ranks[r].team;
		assert_true(transport_reads_me(team));
		for (int q = 0; q < COUNT; q++) {
			memset(to, 0, sizeof to);
			assert_int_equal(
				transport_read(team, q, (uintptr_t)from + 1, to, sizeof to - 1),
				LS_OK);
			assert_memory_equal(to, from + 1, sizeof to - 1);
			assert_int_equal(to[sizeof to - 1], 0);
		}
	}
	capture_begin(&capture);
	assert_int_equal(transport_read(&job->ranks[0].team, 1, 16, to, 8), LS_SYSTEM);
	assert_non_null(strstr(capture_end(&capture), "Bad address"));
	test_job_close(job);
}

/* `bytes` of address space that is one small file again and again. */
static unsigned char *map_again_and_again(size_t bytes)
{
	enum { FILE_BYTES = 2 << 20 };
	int fd = memfd_create("again", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	unsigned char *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	for (size_t i = 0; i < bytes; i += FILE_BYTES)
		assert_true(mmap(memory + i, FILE_BYTES, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	close(fd);
	return memory;
}

/* More than the system reads at once, which is a page less than 2 GiB. */
static void test_more_than_one_call(void **state)
{
	(void)state;
	const size_t bytes = (size_t)2050 << 20;
	struct test_job *job = test_job_open(2);
	struct transport_team *team = &job->ranks[0].team;
	unsigned char *to = map_again_and_again(bytes);
	unsigned char *from = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(from != MAP_FAILED);
	from[bytes - 2] = 7;
	assert_int_equal(transport_read(team, 1, (uintptr_t)from, to, bytes - 1), LS_OK);
	assert_int_equal(to[bytes - 3], 0);
	assert_int_equal(to[bytes - 2], 7);
	assert_int_equal(munmap(from, bytes), 0);
	assert_int_equal(munmap(to, bytes), 0);
	test_job_close(job);
}

/* A peer may say nonsense about who can read its memory, and where. */
static void test_nonsense(void **state)
{
	(void)state;
	static const uint64_t odd[] = {0, 1, UINT32_MAX, INT64_MAX, UINT64_MAX, 4096, 7};
	struct test_job *job = test_job_open(2);
	struct transport *transport = &job->ranks[0].transport;
	struct transport_cma *theirs = &job->ranks[1].transport.segment->cma;
	struct capture capture;
	capture_begin(&capture);
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		for (size_t j = 0; j < sizeof odd / sizeof odd[0]; j++) {
			atomic_store(&theirs->pid, odd[i]);
			atomic_store(&theirs->address, odd[j]);
			transport_probe(transport, true);
			assert_int_equal(atomic_load(&transport->segment->cma.readable[0]), 1);
		}
	}
	/* My own number, as from another container that counts its own: it is not this process; nor
	 * is it another rank of the job. */
	uint64_t word = 42;
	const uint64_t *words[] = {&word, transport->word};
	atomic_store(&theirs->pid, (uint64_t)getpid());
	for (size_t i = 0; i < 2; i++) {
		atomic_store(&theirs->address, (uintptr_t)words[i]);
		transport_probe(transport, true);
		assert_int_equal(atomic_load(&transport->segment->cma.readable[0]), 1);
	}
	capture_end(&capture);
	test_job_close(job);
}

static void test_speed(void **state)
{
	(void)state;
	assert_true(transport_is_fast_read(300, 100));
	assert_false(transport_is_fast_read(301, 100));
	assert_true(transport_is_fast_read(0, 0)); /* a clock that stands */
	/* Measured once: what the transport knows by then holds. */
	struct test_job *job = test_job_open(1);
	struct transport_team *team = &job->ranks[0].team;
	bool first = transport_reads_fast(team);
	assert_int_equal(team->transport->reads_fast,
			 first ? TRANSPORT_READS_YES : TRANSPORT_READS_NO);
	team->transport->reads_fast = first ? TRANSPORT_READS_NO : TRANSPORT_READS_YES;
	assert_int_equal(transport_reads_fast(team), !first);
	test_job_close(job);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_unmapped),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_other_program),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_number_used_again),
		cmocka_unit_test(test_forked_copy),
		cmocka_unit_test(test_one_process),
		cmocka_unit_test(test_more_than_one_call),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_speed),
	};
	(void)argv;
	if (argc > 1) /* what duo_obey becomes */
		for (;;)
			pause();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
