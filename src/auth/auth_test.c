/* SPDX-License-Identifier: BSD-3-Clause
 * Secret files that can be used, and files that cannot; tags: the right one, and each way to differ
 * from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "auth/auth.h"

/* ---- secret files ---- */

static char folder[] = "/tmp/lockstep-auth-XXXXXX";
static char path[sizeof folder + 16];

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/secret", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void write_secret(size_t bytes, unsigned char first, mode_t mode)
{
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	for (size_t i = 0; i < bytes; i++)
		assert_int_not_equal(fputc((unsigned char)(first + i), file), EOF);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static struct auth_token read_token(void)
{
	struct auth_token token;
	assert_int_equal(auth_token_read(path, &token), LS_OK);
	return token;
}

static void refuse(const char *words)
{
	struct auth_token token;
	char said[1024];
	assert_int_equal(auth_token_read(path, &token), LS_BAD_ARGUMENT);
	ls_last_error(said, sizeof said);
	if (!strstr(said, words) || !strstr(said, path))
		fail_msg("not \"%s\" and \"%s\" in: %s", words, path, said);
}

static void test_files(void **state)
{
	(void)state;
	struct auth_token first, again, other, open;
	write_secret(32, 1, 0600);
	first = read_token();
	write_secret(32, 1, 0440);
	again = read_token();
	assert_memory_equal(&first, &again, sizeof first);
	write_secret(33, 1, 0400);
	other = read_token();
	assert_memory_not_equal(&first, &other, sizeof first);
	write_secret(4096, 1, 0600);
	other = read_token();
	assert_memory_not_equal(&first, &other, sizeof first);
	assert_int_equal(auth_token_open(&open), LS_OK);
	assert_memory_not_equal(&first, &open, sizeof first);
}

static void test_files_that_are_refused(void **state)
{
	(void)state;
	write_secret(31, 1, 0600);
	refuse("less than 32 bytes");
	write_secret(4097, 1, 0600);
	refuse("more than 4096 bytes");
	static const mode_t open_modes[] = {0604, 0602, 0601, 0620, 0666};
	for (size_t i = 0; i < sizeof open_modes / sizeof open_modes[0]; i++) {
		write_secret(32, 1, open_modes[i]);
		refuse("chmod 600");
	}
	unlink(path);
	refuse("No such file");
	assert_int_equal(mkfifo(path, 0600), 0);
	refuse("less than 32 bytes");
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	refuse("directory");
	assert_int_equal(rmdir(path), 0);
}

/* ---- tags ---- */

static struct auth_session session_of(const struct auth_token *token, const char *hello,
				      const char *challenge)
{
	struct auth_session session;
	auth_session_begin(token, hello, strlen(hello), challenge, strlen(challenge), &session);
	return session;
}

/* Whether the verifier accepts what the signer has signed: the same message, in a session of
 * each. */
static bool accepts(const struct auth_session *signer, const struct auth_session *verifier)
{
	struct auth_tag tag;
	auth_sign(signer, AUTH_SERVER, 1, "table", 5, &tag);
	return auth_verify(verifier, AUTH_SERVER, 1, "table", 5, &tag);
}

static void test_sessions(void **state)
{
	(void)state;
	struct auth_token token, other;
	write_secret(32, 1, 0600);
	token = read_token();
	write_secret(32, 2, 0600);
	other = read_token();
	struct auth_session session = session_of(&token, "hello", "challenge");
	struct auth_session same = session_of(&token, "hello", "challenge");
	struct auth_session different[] = {session_of(&other, "hello", "challenge"),
					   session_of(&token, "hellp", "challenge"),
					   session_of(&token, "hello", "challengf"),
					   /* the same bytes, divided in another way */
					   session_of(&token, "helloc", "hallenge")};
	assert_true(accepts(&session, &same));
	for (size_t i = 0; i < sizeof different / sizeof different[0]; i++)
		assert_false(accepts(&session, &different[i]));
}

static void test_tags(void **state)
{
	(void)state;
	struct auth_token token;
	struct auth_tag tag;
	assert_int_equal(auth_token_open(&token), LS_OK);
	struct auth_session session = session_of(&token, "hello", "challenge");
	auth_sign(&session, AUTH_CLIENT, 7, "frame", 5, &tag);
	assert_true(auth_verify(&session, AUTH_CLIENT, 7, "frame", 5, &tag));
	assert_false(auth_verify(&session, AUTH_SERVER, 7, "frame", 5, &tag));
	assert_false(auth_verify(&session, AUTH_CLIENT, 8, "frame", 5, &tag));
	assert_false(auth_verify(&session, AUTH_CLIENT, 7, "framf", 5, &tag));
	assert_false(auth_verify(&session, AUTH_CLIENT, 7, "fram", 4, &tag));
	for (int bit = 0; bit < 8 * AUTH_TAG_BYTES; bit++) {
		struct auth_tag wrong = tag;
		wrong.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_false(auth_verify(&session, AUTH_CLIENT, 7, "frame", 5, &wrong));
	}
}

static void test_nonces(void **state)
{
	(void)state;
	unsigned char one[AUTH_NONCE_BYTES] = {0}, two[AUTH_NONCE_BYTES] = {0};
	assert_true(auth_nonce(one) && auth_nonce(two));
	assert_memory_not_equal(one, two, sizeof one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),    cmocka_unit_test(test_files_that_are_refused),
		cmocka_unit_test(test_sessions), cmocka_unit_test(test_tags),
		cmocka_unit_test(test_nonces),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
