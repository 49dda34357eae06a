/* SPDX-License-Identifier: BSD-3-Clause
 * What goes over the wire: structs of fixed size, each of which begins with the same head. The head
 * stays as it is in every version of the protocol, so that two versions can always name each other.
 * Parsers are pure functions over bytes; they trust no field and never look past what came. */
#ifndef RENDEZVOUS_WIRE_H
#define RENDEZVOUS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"
#include "rendezvous/rendezvous.h"

enum {
	WIRE_PROTOCOL = 11,
	WIRE_BYTE_ORDER = 0x01020304, /* written natively */
	WIRE_MAGIC_BYTES = 8,
	WIRE_VERSION_BYTES = 32,
	WIRE_LAUNCHER = -1, /* the `rank` of a server that is no rank */
};

enum wire_kind {
	WIRE_HELLO = 1, /* a rank to the server, once */
	WIRE_WELCOME =
		2, /* the server at once, only a head: a Lockstep heard you, wait for the answer */
	WIRE_ANSWER = 3, /* the server, once: the table, or why there is none */
	/* Between hosts, after the hello: */
	WIRE_CHALLENGE = 4, /* the server: it knows the secret, do you? */
	WIRE_PROOF = 5,     /* the rank: so do I; then welcome and answer */
	/* The second round, if the table has several hosts: */
	WIRE_CARD = 6,  /* a rank, once: its card, or why it has none */
	WIRE_CARDS = 7, /* the server, once: all cards, or why there are none */
	/* After the second round: */
	/* Each rank: it is connected to all, or why it is not; after the first, it may give up by a
	 * second one. Then rank 0, once: all are connected, or why not. */
	WIRE_PARTED = 8,
};

struct wire_head {
	char magic[WIRE_MAGIC_BYTES]; /* "LSRDV" */
	uint32_t byte_order;
	uint32_t protocol;
	uint32_t kind;
	uint32_t bytes; /* of the whole struct, this head included */
	int32_t rank;   /* the sender's */
	int32_t pid;
	char version[WIRE_VERSION_BYTES]; /* of the library */
};

enum { WIRE_FLAG_TRACE = 1 }; /* a trace descriptor comes along */

struct wire_hello {
	struct wire_head head;
	int32_t world_size;
	uint32_t uid;
	/* until this rank gives up; the meeting ends with its most impatient rank */
	uint64_t remaining_ms;
	uint64_t waited_ms; /* since this rank began to look for the server */
	uint32_t flags;
	uint32_t pid_space; /* fork_pid_space */
	uint64_t host_key;
	char host[RENDEZVOUS_HOST_BYTES];
	char ip[RENDEZVOUS_IP_BYTES];
	char address[RENDEZVOUS_ADDRESS_BYTES];
	unsigned char nonce[AUTH_NONCE_BYTES]; /* zero on one host */
	/* Ranks whose launches or secrets differ are of different jobs. `secret` is for a server on
	 * this host: a hash, zero without a secret. Another host gets zeros, and a proof. */
	uint64_t launch;
	struct auth_tag secret;
};

/* The session (auth.h) begins from the hello and this struct without its tag. */
struct wire_challenge {
	struct wire_head head;
	unsigned char nonce[AUTH_NONCE_BYTES];
	struct auth_tag tag; /* the server's, number 0 */
};

struct wire_proof {
	struct wire_head head;
	struct auth_tag tag; /* the rank's, number 0 */
};

/* head.bytes == WIRE_ANSWER_BYTES(size); size is 0 unless status is LS_OK. */
struct wire_answer {
	struct wire_head head;
	int32_t status; /* ls_status */
	int32_t size;
	uint64_t job;
	/* To another host: the server's, number 1, of all bytes with a tag of zeros. Zero before
	 * the rank has proved that it knows the secret. */
	struct auth_tag tag;
	char text[RENDEZVOUS_TEXT_BYTES];
	struct rendezvous_rank ranks[RANKS_WORLD_MAX];
};
#define WIRE_ANSWER_BYTES(size) \
	(offsetof(struct wire_answer, ranks) + (size_t)(size) * sizeof(struct rendezvous_rank))

/* reason is empty if status is LS_OK. */
struct wire_card {
	struct wire_head head;
	int32_t status; /* ls_status */
	uint32_t zero;
	/* From another host: the rank's, number 1, of all bytes with a tag of zeros. */
	struct auth_tag tag;
	char reason[RENDEZVOUS_REASON_BYTES];
	unsigned char card[RENDEZVOUS_CARD_BYTES];
};

/* reason is empty if status is LS_OK. */
struct wire_parted {
	struct wire_head head;
	int32_t status; /* ls_status */
	uint32_t zero;
	/* Between hosts: the server's, number 3, or the rank's, number 2 (of a second one: 3), of
	 * all bytes with a tag of zeros. */
	struct auth_tag tag;
	char reason[RENDEZVOUS_REASON_BYTES];
};

/* head.bytes == WIRE_CARDS_BYTES(size); size is 0 unless status is LS_OK. */
struct wire_cards {
	struct wire_head head;
	int32_t status; /* ls_status */
	int32_t size;
	/* To another host: the server's, number 2, of all bytes with a tag of zeros. */
	struct auth_tag tag;
	char text[RENDEZVOUS_TEXT_BYTES];
	unsigned char cards[RANKS_WORLD_MAX][RENDEZVOUS_CARD_BYTES];
};
#define WIRE_CARDS_BYTES(size) \
	(offsetof(struct wire_cards, cards) + (size_t)(size)*RENDEZVOUS_CARD_BYTES)

_Static_assert(sizeof(struct wire_head) == 64, "the head never changes");
_Static_assert(sizeof(struct wire_hello) == 64 + 40 + 64 + 48 + 64 + 32 + 8 + 32,
	       "no padding on the wire");
_Static_assert(sizeof(struct rendezvous_rank) == 16 + 64 + 48 + 64, "no padding on the wire");
_Static_assert(WIRE_ANSWER_BYTES(0) == 64 + 16 + 32 + 512, "no padding on the wire");
_Static_assert(sizeof(struct wire_card) == 64 + 8 + 32 + 384 + 512, "no padding on the wire");
_Static_assert(sizeof(struct wire_parted) == 64 + 8 + 32 + 384, "no padding on the wire");
_Static_assert(WIRE_CARDS_BYTES(0) == 64 + 8 + 32 + 512, "no padding on the wire");

enum wire_check {
	WIRE_MORE, /* right so far, but not all has come */
	/* a struct that this version understands, and its strings end and are printable */
	WIRE_WHOLE,
	WIRE_OTHER,    /* Lockstep, but another version or byte order: only the head was filled */
	WIRE_NONSENSE, /* cannot become right, whatever follows */
};

/* What stands so far at `bytes`, of which `got` have come. The out-struct is filled when the
 * check is WIRE_WHOLE, its head also when it is WIRE_OTHER. */
enum wire_check rendezvous_hello_parse(const void *bytes, size_t got, struct wire_hello *out);
/* A welcome, a challenge or an answer; out->head.kind says which. In a challenge only the head is
 * filled, an answer up to its head.bytes. */
enum wire_check rendezvous_reply_parse(const void *bytes, size_t got, struct wire_answer *out);

enum wire_check rendezvous_proof_parse(const void *bytes, size_t got, struct wire_proof *out);
enum wire_check rendezvous_card_parse(const void *bytes, size_t got, struct wire_card *out);
enum wire_check rendezvous_parted_parse(const void *bytes, size_t got, struct wire_parted *out);
/* Fills the out-struct up to its head.bytes. */
enum wire_check rendezvous_cards_parse(const void *bytes, size_t got, struct wire_cards *out);

void rendezvous_head_fill(struct wire_head *out, enum wire_kind kind, size_t bytes, int rank,
			  int pid);
/* An empty card is sent with a status that is not LS_OK. `reason` is made printable. */
void rendezvous_card_fill(struct wire_card *out, int rank, int pid, ls_status status,
			  const char *reason, const void *card);
/* `reason` is made printable. */
void rendezvous_parted_fill(struct wire_parted *out, int rank, int pid, ls_status status,
			    const char *reason);
/* What a hello has as `secret` for a server on its own host. */
void rendezvous_secret_tag(const struct rendezvous_place *place, struct auth_tag *out);
/* For a server on this rank's host. */
void rendezvous_hello_fill(struct wire_hello *out, const struct rendezvous_place *place,
			   const struct rendezvous_self *self, uint64_t remaining_ms,
			   uint64_t waited_ms);

/* True for a string that ends within `bytes` and that a terminal can show on one line. */
bool rendezvous_is_printable(const char *text, size_t bytes);
/* Copies at most bytes - 1 of `length` bytes as a printable string. */
void rendezvous_copy_printable(char *out, size_t bytes, const void *from, size_t length);

#endif
