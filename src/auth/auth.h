/* SPDX-License-Identifier: BSD-3-Clause
 * Proofs that both ends of a connection know the token of the job. Connections between hosts need
 * them, because the kernel cannot say whose process is at the other end. Keyed BLAKE2b, from
 * libsodium.
 *
 *   client                                   server
 *   hello with a nonce                 -->
 *                                      <--   challenge with a nonce, and tag 0 of the server
 *   tag 0 of the client                -->
 *   ...both: messages with tags 1, 2, 3... of their sender
 *
 * The functions neither block nor keep anything. Any thread. */
#ifndef AUTH_AUTH_H
#define AUTH_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

enum {
	AUTH_KEY_BYTES = 32,
	AUTH_NONCE_BYTES = 32,
	AUTH_TAG_BYTES = 32,
	AUTH_SECRET_MIN_BYTES = 32, /* of a secret file */
	AUTH_SECRET_MAX_BYTES = 4096,
};

/* What all ranks of a job know, and nobody else. */
struct auth_token {
	unsigned char key[AUTH_KEY_BYTES];
};

/* What both ends of one connection know. */
struct auth_session {
	unsigned char key[AUTH_KEY_BYTES];
};

struct auth_tag {
	unsigned char bytes[AUTH_TAG_BYTES];
};

enum auth_side { AUTH_SERVER = 1, AUTH_CLIENT = 2 };

/* Makes the token from a file: a hash of all its bytes, which must be AUTH_SECRET_MIN_BYTES to
 * AUTH_SECRET_MAX_BYTES. Only its owner, and a group that may only read, may have access to the
 * file. Loads libsodium. Errors, with a message: LS_BAD_ARGUMENT, the file cannot be read, has
 * another length, or others have access; LS_UNSUPPORTED, libsodium is not installed. */
LS_CHECKED ls_status auth_token_read(const char *path, struct auth_token *out);

/* The token of jobs that trust everybody on their network: everybody knows this token. It still
 * tells one version of Lockstep from noise. Loads libsodium. Error: LS_UNSUPPORTED, with a
 * message. */
LS_CHECKED ls_status auth_token_open(struct auth_token *out);

/* Fills a nonce with random bytes from the system. False: the system has none. */
LS_CHECKED bool auth_nonce(unsigned char nonce[AUTH_NONCE_BYTES]);

/* The session of the connection on which the client said `hello` and the server `challenge`, each
 * with a fresh nonce in it. The token must come from one of the functions above. */
void auth_session_begin(const struct auth_token *token, const void *hello, size_t hello_bytes,
			const void *challenge, size_t challenge_bytes, struct auth_session *out);

/* The tag of message `number` of one side. Number 0 has no bytes, and proves that the side knows
 * the token. A side gives each further message the next number, and the other side expects it. */
void auth_sign(const struct auth_session *session, enum auth_side from, uint64_t number,
	       const void *bytes, size_t count, struct auth_tag *out);

/* Whether the tag is that of the message. The time this takes does not depend on the result. */
LS_CHECKED bool auth_verify(const struct auth_session *session, enum auth_side from, uint64_t number,
			    const void *bytes, size_t count, const struct auth_tag *tag);

#endif
