/* SPDX-License-Identifier: BSD-3-Clause
 * Where to meet: every right way and every wrong way to say it, with the words on standard error.
 */
#include "rendezvous/rendezvous_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

/* Standard error goes to `said` between listen_in and its end. */
static int saved_error = -1;
static char said[4096];

static void listen_in(void)
{
	int fd = memfd_create("stderr", MFD_CLOEXEC);
	saved_error = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(fd >= 0 && saved_error >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	rendezvous_close_fd(&fd);
}

static void listen_out(void)
{
	ssize_t got = pread(STDERR_FILENO, said, sizeof said - 1, 0);
	assert_int_equal(dup2(saved_error, STDERR_FILENO), STDERR_FILENO);
	rendezvous_close_fd(&saved_error);
	assert_true(got >= 0);
	said[got] = '\0';
}

static void check_said(const char *const *words)
{
	for (; *words; words++)
		if (!strstr(said, *words))
			fail_msg("no \"%s\" in: %s", *words, said);
}

static const struct settings_launch nothing = {
	.master_port = -1,
	.rank = -1,
	.world_size = -1,
	.local_rank = -1,
	.local_world_size = -1,
	.restart_count = -1,
};

static struct rendezvous_place find(const struct settings_launch *launch)
{
	struct rendezvous_place place;
	assert_int_equal(rendezvous_find(NULL, 0, 0, launch, &place), LS_OK);
	return place;
}

static void refuse(const struct settings_launch *launch, ls_status status, const char *const *words)
{
	static const struct rendezvous_place none;
	struct rendezvous_place place;

	listen_in();
	ls_status got = rendezvous_find(NULL, 0, 0, launch, &place);
	listen_out();
	assert_int_equal(got, status);
	assert_memory_equal(&place, &none, sizeof place);
	check_said(words);
	check_said(FIXTURE_WORDS("[LS-PLACE]"));
}

static void test_nothing_is_a_world_of_one(void **state)
{
	(void)state;
	struct rendezvous_place place = find(&nothing);
	assert_int_equal(place.world_size, 1);
	assert_int_equal(place.rank, 0);
	assert_true(place.serve);
}

static void test_by_hand(void **state)
{
	(void)state;
	struct settings_launch launch = nothing;
	launch.rank = 3;
	launch.world_size = 4;
	launch.master_addr = "127.1.2.3";
	launch.master_port = 29500;
	struct rendezvous_place place = find(&launch);
	assert_true(place.tcp && !place.serve && place.by_hand);
	assert_string_equal(place.address, "127.1.2.3");
	assert_int_equal(place.port, 29500);
	assert_int_equal(place.rank, 3);
	assert_int_equal(place.world_size, 4);

	launch.rank = 0;
	launch.master_addr = "localhost";
	place = find(&launch);
	assert_true(place.serve);
	assert_string_equal(place.address, "127.0.0.1");

	launch = nothing;
	launch.rank = 0;
	launch.world_size = 1;
	place = find(&launch);
	assert_int_equal(place.world_size, 1);
	assert_true(place.serve);
}

static void test_half_said(void **state)
{
	(void)state;
	struct settings_launch launch = nothing;
	launch.rank = 0;
	refuse(&launch, LS_BAD_ARGUMENT,
	       FIXTURE_WORDS("WORLD_SIZE is not set", "RANK is", "lockstep run"));
	launch.rank = -1;
	launch.world_size = 4;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS(": RANK is not set", "WORLD_SIZE is"));
	launch.rank = 1;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR is not set", "more than 1"));
	launch.master_port = 29500;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR is not set", "MASTER_PORT is"));
	launch.master_port = -1;
	launch.master_addr = "127.0.0.1";
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_PORT is not set", "MASTER_ADDR is"));
	launch.rank = launch.world_size = -1;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS(": RANK is not set", "MASTER_ADDR is"));
	launch = nothing;
	launch.rendezvous = "unix:x";
	refuse(&launch, LS_BAD_ARGUMENT,
	       FIXTURE_WORDS(": RANK is not set", "LOCKSTEP_RENDEZVOUS is"));
	launch = nothing;
	launch.agent_owns_port = true;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS(": RANK is not set", "AGENT_STORE is"));
}

static void test_wrongly_said(void **state)
{
	(void)state;
	struct settings_launch good = nothing, launch;
	good.rank = 1;
	good.world_size = 4;
	good.master_addr = "127.0.0.1";
	good.master_port = 29500;
	launch = good;
	launch.rank = 4;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("RANK is 4", "from 0 to 3"));
	launch.rank = -7;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("RANK is -7"));
	launch = good;
	launch.world_size = 0;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("WORLD_SIZE is 0", "1 to 512"));
	launch.world_size = RANKS_WORLD_MAX + 1;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("WORLD_SIZE is 513"));
	launch = good;
	launch.master_port = 65536;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_PORT", "1 to 65535"));
	launch.master_port = 0;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_PORT"));
	launch = good;
	static const char *const nowhere[] = {"no-such-host.invalid", "1.2.3.4.5", "[::1", "a b"};
	for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
		launch.master_addr = nowhere[i];
		refuse(&launch, LS_BAD_ARGUMENT,
		       FIXTURE_WORDS("MASTER_ADDR", nowhere[i], "finds no address"));
	}
	launch.master_addr = "";
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR", "no address or name"));
	char name[300] = "a-name-of-64-characters-and-more-as-clusters-give-them.job.space.invalid";
	launch.master_addr = name;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR", name, "finds no address"));
	memset(name, 'n', sizeof name - 1);
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR", "no address or name"));
}

/* Addresses at which no rank of another host could reach rank 0. */
static void test_useless_addresses(void **state)
{
	(void)state;
	static const char *const given[][2] = {
		{"0.0.0.0", "all addresses"}, {"0", "all addresses"},  {"::", "all addresses"},
		{"[::]", "all addresses"},    {"fe80::1", "one link"}, {"fe80::1%lo", "one link"}};
	struct settings_launch launch = nothing;
	launch.world_size = 4;
	launch.master_port = 29500;
	for (launch.rank = 0; launch.rank < 2; launch.rank++)
		for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
			launch.master_addr = given[i][0];
			refuse(&launch, LS_BAD_ARGUMENT,
			       FIXTURE_WORDS("MASTER_ADDR", given[i][0], given[i][1]));
		}
}

/* Addresses in numbers stay as they are, whether or not this host has them. */
static void test_addresses(void **state)
{
	(void)state;
	static const char *const given[][2] = {{"10.0.0.1", "10.0.0.1"},
					       {"::1", "::1"},
					       {"[::1]", "::1"},
					       {"2001:db8::7", "2001:db8::7"}};
	struct settings_launch launch = nothing;
	launch.rank = 1;
	launch.world_size = 4;
	launch.master_port = 29500;
	for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
		launch.master_addr = given[i][0];
		struct rendezvous_place place = find(&launch);
		assert_true(place.tcp && !place.serve && !place.has_token);
		assert_string_equal(place.address, given[i][1]);
		assert_string_equal(place.name, "");
	}
}

/* A job needs a secret only where another host can connect; but a secret that is given tells jobs
 * apart at any port. */
static void test_secrets(void **state)
{
	(void)state;
	struct rendezvous_place place = {.tcp = true, .address = "127.0.0.1", .port = 1};
	struct rendezvous_place name = {.address = "name"};
	assert_int_equal(rendezvous_read_secret("/nowhere", false, &name), LS_OK);
	assert_false(name.has_token);
	assert_int_equal(rendezvous_read_secret(NULL, true, &place), LS_OK);
	assert_false(place.has_token);
	listen_in();
	assert_int_equal(rendezvous_read_secret("/nowhere", false, &place), LS_BAD_ARGUMENT);
	listen_out();
	check_said(FIXTURE_WORDS("/nowhere", "LS-AUTH-SECRET"));
	snprintf(place.address, sizeof place.address, "10.0.0.1");
	assert_int_equal(rendezvous_read_secret(NULL, false, &place), LS_OK);
	assert_false(place.has_token);
	assert_int_equal(rendezvous_read_secret(NULL, true, &place), LS_OK);
	assert_true(place.has_token);
	listen_in();
	assert_int_equal(rendezvous_read_secret("/nowhere", true, &place), LS_BAD_ARGUMENT);
	listen_out();
	assert_false(place.has_token);
	check_said(FIXTURE_WORDS("/nowhere", "LS-AUTH-SECRET"));
}

static void test_torchrun(void **state)
{
	(void)state;
	struct settings_launch launch = nothing;
	launch.agent_owns_port = true;
	launch.rank = 0;
	launch.world_size = launch.local_world_size = 4;
	launch.master_addr = "a-host-name";
	launch.master_port = 29500;
	launch.run_id = "none";
	launch.restart_count = 0;
	struct rendezvous_place place = find(&launch), other;
	char start[64];
	snprintf(start, sizeof start, "lockstep-%u-29500-", (unsigned)geteuid());
	assert_false(place.tcp);
	assert_true(place.serve);
	assert_int_equal(strncmp(place.address, start, strlen(start)), 0);

	/* The same job: the same name. Another run, another start, another port: another. */
	launch.rank = 3;
	other = find(&launch);
	assert_false(other.serve);
	assert_string_equal(other.address, place.address);
	launch.restart_count = 1;
	other = find(&launch);
	assert_string_not_equal(other.address, place.address);
	launch.restart_count = 0;
	launch.run_id = "some";
	other = find(&launch);
	assert_string_not_equal(other.address, place.address);
	launch.run_id = "none";
	launch.master_port = 29501;
	other = find(&launch);
	assert_string_not_equal(other.address, place.address);

	launch.master_port = -1;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_PORT is not set"));
}

static void test_torchrun_on_hosts(void **state)
{
	(void)state;
	struct settings_launch launch = nothing;
	launch.agent_owns_port = true;
	launch.rank = 0;
	launch.world_size = 4;
	launch.local_world_size = 2;
	launch.master_addr = "10.1.2.3";
	launch.master_port = 29500;
	struct rendezvous_place place = find(&launch);
	assert_true(place.tcp);
	assert_true(place.serve);
	assert_string_equal(place.address, "10.1.2.3");
	assert_int_equal(place.port, 29501);
	assert_true(place.launch != 0 && !place.by_hand);
	launch.rank = 3;
	assert_false(find(&launch).serve);

	/* The agents of two hosts may have restarted their ranks differently often. */
	launch.restart_count = 2;
	assert_int_equal(find(&launch).port, 29501);
	assert_int_equal(find(&launch).launch, place.launch);
	launch.run_id = "another";
	assert_true(find(&launch).launch != place.launch);
	launch.master_port = 65535;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_PORT is 65535"));
	launch.master_port = 29500;
	launch.master_addr = NULL;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("MASTER_ADDR is not set"));
}

static void test_srun(void **state)
{
	(void)state;
	struct settings_launch launch = nothing;
	launch.slurm = (struct settings_slurm){
		.is_task = true, .rank = 1, .size = 4, .hosts = 1, .job = 7, .step = 2, .nodes = "x"};
	struct rendezvous_place place = find(&launch);
	char name[64];
	snprintf(name, sizeof name, "lockstep-slurm-%u-7-2", (unsigned)geteuid());
	assert_string_equal(place.address, name);
	assert_false(place.tcp);
	assert_false(place.serve);
	assert_int_equal(place.rank, 1);
	assert_int_equal(place.world_size, 4);
	launch.slurm.rank = 0;
	assert_true(find(&launch).serve);

	/* On several hosts: the same place for all, another for another step. */
	launch.slurm.hosts = 2;
	launch.slurm.nodes = "198.18.0.[1-2]";
	place = find(&launch);
	assert_true(place.tcp && place.has_hosts);
	assert_string_equal(place.address, "198.18.0.1");
	assert_in_range(place.port, 20000, 31999);
	launch.slurm.rank = 3;
	assert_int_equal(find(&launch).port, place.port);
	assert_int_equal(find(&launch).launch, place.launch);
	launch.slurm.step = 3;
	assert_true(find(&launch).launch != place.launch);
	launch.slurm.step = 2;
	launch.slurm.step = 3;
	assert_int_not_equal(find(&launch).port, place.port);
	listen_in();
	assert_int_equal(rendezvous_read_secret(NULL, false, &place), LS_UNTRUSTED_PEER);
	listen_out();
	check_said(FIXTURE_WORDS("LOCKSTEP_SECRET_FILE", "LOCKSTEP_TRUST_NETWORK=1"));

	/* What the user says counts. */
	launch.master_addr = "10.1.2.3";
	launch.master_port = 29500;
	place = find(&launch);
	assert_string_equal(place.address, "10.1.2.3");
	assert_int_equal(place.port, 29500);
	launch.rank = 0;
	launch.world_size = 2;
	place = find(&launch);
	assert_int_equal(place.rank, 0);
	assert_int_equal(place.world_size, 2);
	launch.rank = launch.world_size = -1;
	launch.master_addr = NULL;

	launch.slurm.nodes = "127.0.1.1";
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("takes for 127.0.1.1", "/etc/hosts"));
	launch.slurm.nodes = NULL;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("is no list of hosts", "MASTER_ADDR"));
	launch.slurm.size = RANKS_WORLD_MAX + 1;
	refuse(&launch, LS_BAD_ARGUMENT, FIXTURE_WORDS("SLURM_STEP_NUM_TASKS is 513"));
}

static ls_status find_url(const char *url, struct rendezvous_place *place)
{
	listen_in();
	ls_status status = rendezvous_find(url, 0, 2, &nothing, place);
	listen_out();
	return status;
}

static void test_urls(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"",
		"x",
		"unix:",
		"unix:a\nb",
		"tcp:",
		"tcp:127.0.0.1",
		"tcp:127.0.0.1:",
		"tcp:127.0.0.1:0",
		"tcp:127.0.0.1:x",
		"tcp:127.0.0.1:65536",
		"tcp:127.0.0.1:1x",
		"udp:127.0.0.1:1",
		"tcp:127.0.0.1:1234567890123456789012",
	};
	struct rendezvous_place place;
	char url[200];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(find_url(bad[i], &place), LS_BAD_ARGUMENT);
		check_said(FIXTURE_WORDS("the option rendezvous", "LS-PLACE"));
	}
	assert_int_equal(find_url("tcp:[::1]:80", &place), LS_OK);
	assert_string_equal(place.address, "::1");
	assert_int_equal(find_url("tcp:localhost:80", &place), LS_OK);
	assert_true(place.tcp && place.serve && place.port == 80);
	assert_int_equal(find_url("unix:a-name", &place), LS_OK);
	assert_string_equal(place.address, "a-name");
	assert_string_equal(said, "");

	/* The longest name that an address can hold, and one more. */
	memset(url, 'n', sizeof url);
	memcpy(url, "unix:", 5);
	url[5 + 107] = '\0';
	assert_int_equal(find_url(url, &place), LS_OK);
	struct rendezvous_place bound;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int fd;
	assert_int_equal(rendezvous_listen(&place, &bound, &fd, text), LS_OK);
	rendezvous_close_fd(&fd);
	url[5 + 107] = 'n';
	url[5 + 108] = '\0';
	assert_int_equal(find_url(url, &place), LS_BAD_ARGUMENT);

	assert_int_equal(rendezvous_find("unix:x", 2, 2, &nothing, &place), LS_BAD_ARGUMENT);
	assert_int_equal(rendezvous_find("unix:x", 0, 0, &nothing, &place), LS_BAD_ARGUMENT);
	struct settings_launch launch = nothing;
	launch.rendezvous = "unix:launcher";
	launch.rank = 0;
	launch.world_size = 2;
	launch.master_addr = "127.0.0.1";
	launch.master_port = 1;
	place = find(&launch);
	assert_false(place.serve);
	assert_string_equal(place.address, "launcher");
}

/* Each status has its id, and rendezvous_join says its text once. */
static void test_messages(void **state)
{
	(void)state;
	static const struct {
		ls_status status;
		const char *id;
	} ids[] = {
		{LS_BAD_ARGUMENT, "text [LS-PLACE]\n"},
		{LS_WRONG_WORLD_SIZE, "text [LS-WRONG-WORLD-SIZE]\n"},
		{LS_DUPLICATE_RANK, "text [LS-DUPLICATE-RANK]\n"},
		{LS_RANK_MISSING, "text [LS-RANK-MISSING]\n"},
		{LS_PORT_TAKEN, "text [LS-PORT-TAKEN]\n"},
		{LS_NO_MASTER, "text [LS-NO-MASTER]\n"},
		{LS_UNTRUSTED_PEER, "text [LS-UNTRUSTED-PEER]\n"},
		{LS_WRONG_VERSION, "text [LS-WRONG-VERSION]\n"},
		{LS_INTERRUPTED, "text [LS-MEETING-INTERRUPTED]\n"},
		{LS_SYSTEM, "text [LS-RENDEZVOUS]\n"},
	};
	for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		listen_in();
		rendezvous_say(ids[i].status, "text");
		listen_out();
		check_said(FIXTURE_WORDS(ids[i].id));
	}

	struct rendezvous_place place = fixture_place(false, 2);
	struct rendezvous_self self = {.trace_fd = -1};
	struct rendezvous_table table;
	struct rendezvous_meeting *meeting;
	int control = 7;
	place.rank = 1;
	listen_in();
	ls_status status =
		rendezvous_join(&place, &self, NULL, clock_deadline_ns(20), &table, &meeting);
	listen_out();
	assert_int_equal(status, LS_NO_MASTER);
	assert_null(meeting);
	rendezvous_leave(meeting, &control);
	assert_int_equal(control, -1);
	assert_int_equal(table.size, 0);
	check_said(FIXTURE_WORDS("nobody listens at unix:", "[LS-NO-MASTER]"));
	assert_null(strstr(strstr(said, "nobody") + 1, "nobody"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_a_world_of_one),
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_half_said),
		cmocka_unit_test(test_wrongly_said),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_useless_addresses),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_torchrun),
		cmocka_unit_test(test_torchrun_on_hosts),
		cmocka_unit_test(test_srun),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_messages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
