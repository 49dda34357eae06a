/* SPDX-License-Identifier: BSD-3-Clause
 * The system has no memory for an inbox: sends, receives and probes say so, and touch nothing. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mailbox/mailbox_fixture.h"

#include "mailbox/mailbox_private.h"
#include "mailbox/word_list.h"

static int open_pair(void **state)
{
	const struct settings settings = {.messages = 64};
	*state = fixture_open(2, &settings);
	return 0;
}

static int close_pair(void **state)
{
	fixture_close(*state);
	return 0;
}

/* From here on this thread gets no pages from MADV_POPULATE_WRITE. */
static void refuse_pages(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

static void must_fail(struct unit *unit, enum trace_kind kind, int peer)
{
	static unsigned char data[MAIL_EAGER_BYTES + 1];
	struct buffer buffer = buffer_host(data, sizeof data);
	struct op op = {.call = {.kind = kind,
				 .dtype = LS_UINT8,
				 .count = sizeof data,
				 .peer = peer,
				 .send = buffer,
				 .recv = buffer}};
	struct op_workspace workspace;
	mailbox_submit(unit->mailbox, &op, &workspace);
	assert_int_equal(mailbox_advance(unit->mailbox, &op), OP_FAILED);
	assert_int_equal(op.status, LS_OUT_OF_MEMORY);
	assert_int_equal(mailbox_abandon(unit->mailbox, &op, NULL, false), OP_DONE);
}

static void test_no_memory(void **state)
{
	struct fixture *fixture = *state;
	struct unit *unit = &fixture->units[0];
	struct mailbox_short call = {.peer = 1, .dtype = LS_UINT8, .count = 1, .bytes = 1};
	unsigned char byte = 0;
	struct mailbox_short_sent sent;
	struct mailbox_short_received received;
	struct wait_word word;
	if (!unit->link->team.transport->populates)
		skip(); /* all inboxes have their memory */
	refuse_pages();
	call.send = call.recv = &byte;
	assert_false(mailbox_send_short(unit->mailbox, &call, 1, &sent));
	assert_false(mailbox_receive_short(unit->mailbox, &call, true, &received, &word));
	assert_false(mailbox_word_has_come(&word));
	must_fail(unit, TRACE_SEND, 1);
	must_fail(unit, TRACE_RECV, 1);
	must_fail(unit, TRACE_RECV, MATCH_ANY);
	must_fail(unit, TRACE_PROBE, 1);
	for (int q = 0; q < 2; q++)
		assert_false(transport_inbox_is_open(transport_area_of(&unit->link->team, q), 0) ||
			     transport_inbox_is_open(transport_area_of(&unit->link->team, q), 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_memory, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
