/* SPDX-License-Identifier: BSD-3-Clause
 * Tokens, sessions and tags, all of them keyed hashes. */
#include "auth/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/libsodium.h"
#include "base/messages.h"

/* Each label keeps the hashes of one purpose apart from all others. It goes into the hash with its
 * NUL. */
static const char token_label[] = "lockstep token 1";
static const char session_label[] = "lockstep session 1";
static const char tag_label[] = "lockstep tag 1";

/* One of the byte strings that hash_parts hashes, each after its length, so that two different
 * sequences of parts never are the same bytes. */
struct part {
	const void *bytes;
	size_t count;
};

static void hash_parts(const struct auth_library *sodium, const unsigned char *key,
		       const struct part *parts, int count, unsigned char out[AUTH_KEY_BYTES])
{
	crypto_generichash_state state;
	(void)sodium->crypto_generichash_init(&state, key, key ? AUTH_KEY_BYTES : 0, AUTH_KEY_BYTES);
	for (int i = 0; i < count; i++) {
		uint64_t length = parts[i].count;
		(void)sodium->crypto_generichash_update(&state, (const void *)&length,
							sizeof length);
		(void)sodium->crypto_generichash_update(&state, parts[i].bytes, parts[i].count);
	}
	(void)sodium->crypto_generichash_final(&state, out, AUTH_KEY_BYTES);
	sodium->sodium_memzero(&state, sizeof state);
}

/* ---- tokens ---- */

static ls_status refuse_file(const char *path, const char *why)
{
	MESSAGE_SAY(MESSAGE_AUTH_SECRET, path, why);
	return LS_BAD_ARGUMENT;
}

/* Reads the file up to `room` bytes. Returns how many, or -1 with errno. */
static ssize_t read_all(int fd, unsigned char *to, size_t room)
{
	size_t got = 0;
	while (got < room) {
		ssize_t more = read(fd, to + got, room - got);
		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0)
			return -1;
		if (more == 0)
			break;
		got += (size_t)more;
	}
	return (ssize_t)got;
}

static ls_status read_file(const char *path, unsigned char *to, size_t room, size_t *got)
{
	struct stat about;
	/* O_NONBLOCK: opening a FIFO that nobody writes must not block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return refuse_file(path, strerror(errno));
	ssize_t count = fstat(fd, &about) == 0 ? read_all(fd, to, room) : -1;
	int error = errno;
	close(fd);
	if (count < 0)
		return refuse_file(path, strerror(error));
	if (about.st_mode & (S_IRWXO | S_IWGRP))
		return refuse_file(path, "other users have access to it: chmod 600 the file (in "
					 "Kubernetes: defaultMode: 0400)");
	if (count < AUTH_SECRET_MIN_BYTES)
		return refuse_file(path, "it has less than 32 bytes: make it with head -c 32 "
					 "/dev/urandom, and copy it to all hosts");
	if (count > AUTH_SECRET_MAX_BYTES)
		return refuse_file(path, "it has more than 4096 bytes, so it is no secret that was "
					 "made for this");
	*got = (size_t)count;
	return LS_OK;
}

static void make_token(const struct auth_library *sodium, const void *secret, size_t bytes,
		       struct auth_token *out)
{
	const struct part parts[] = {{token_label, sizeof token_label}, {secret, bytes}};
	hash_parts(sodium, NULL, parts, 2, out->key);
}

ls_status auth_token_read(const char *path, struct auth_token *out)
{
	unsigned char secret[AUTH_SECRET_MAX_BYTES + 1];
	size_t bytes = 0;
	const struct auth_library *sodium = auth_library_get();
	if (!sodium)
		return LS_UNSUPPORTED;
	ls_status status = read_file(path, secret, sizeof secret, &bytes);
	if (status == LS_OK)
		make_token(sodium, secret, bytes, out);
	sodium->sodium_memzero(secret, sizeof secret);
	return status;
}

ls_status auth_token_open(struct auth_token *out)
{
	const struct auth_library *sodium = auth_library_get();
	if (!sodium)
		return LS_UNSUPPORTED;
	make_token(sodium, "", 0, out);
	return LS_OK;
}

/* ---- sessions ---- */

bool auth_nonce(unsigned char nonce[AUTH_NONCE_BYTES])
{
	size_t got = 0;
	while (got < AUTH_NONCE_BYTES) {
		ssize_t more = getrandom(nonce + got, AUTH_NONCE_BYTES - got, 0);
		if (more < 0 && errno != EINTR)
			return false;
		got += more > 0 ? (size_t)more : 0;
	}
	return true;
}

void auth_session_begin(const struct auth_token *token, const void *hello, size_t hello_bytes,
			const void *challenge, size_t challenge_bytes, struct auth_session *out)
{
	const struct part parts[] = {{session_label, sizeof session_label},
				     {hello, hello_bytes},
				     {challenge, challenge_bytes}};
	hash_parts(auth_library_get(), token->key, parts, 3, out->key);
}

void auth_sign(const struct auth_session *session, enum auth_side from, uint64_t number,
	       const void *bytes, size_t count, struct auth_tag *out)
{
	const uint64_t head[] = {from, number};
	const struct part parts[] = {
		{tag_label, sizeof tag_label}, {head, sizeof head}, {bytes, count}};
	hash_parts(auth_library_get(), session->key, parts, 3, out->bytes);
}

bool auth_verify(const struct auth_session *session, enum auth_side from, uint64_t number,
		 const void *bytes, size_t count, const struct auth_tag *tag)
{
	struct auth_tag wanted;
	auth_sign(session, from, number, bytes, count, &wanted);
	return auth_library_get()->sodium_memcmp(wanted.bytes, tag->bytes, AUTH_TAG_BYTES) == 0;
}
