/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the two halves of the traffic between hosts: relay.c finds what is to be sent, mirror.c
 * writes what has arrived. For files of the transport only. */
#ifndef TRANSPORT_RELAY_H
#define TRANSPORT_RELAY_H

#include "transport/hosts.h"
#include "transport/segment.h"

enum { TRANSPORT_AREA_WORDS = (TRANSPORT_AREAS + 63) / 64 };

struct transport_mirror {
	_Atomic uint32_t lost, cut; /* cut: a cut was requested */
};

/* The payload of one long message, sent or received. */
struct transport_carried {
	struct link_transfer transfer; /* the first member, because events name it */
	struct transport_relay *relay;
	uint32_t generation;
	uint8_t index; /* of the RTS slot */
	bool is_sent;  /* false: received */
};

/* What was sent from this rank to one on another host, in one team; and long messages. Used by the
 * thread that drives the link, except `wanted` and `to`. */
struct transport_relay {
	struct transport_team *team;
	struct mail_box *to, *from; /* in its mirror, from me; in my segment, from it */
	uint64_t signal, finished, times_closed; /* values sent */
	uint64_t next;                           /* the next position of `to` to be sent */
	uint64_t announced; /* the last position whose long payload was offered */
	uint64_t taken, returned;
	uint64_t freed[MAIL_SLOTS], done[MAIL_SLOTS];
	struct transport_carried sent[MAIL_SLOTS], received[MAIL_SLOTS];
	struct link_message offered[MAIL_SLOTS]; /* handle NULL: none */
	/* Bit i: the payload of message i is to be fetched to target[i]. */
	_Atomic uint64_t wanted;
	void *target[MAIL_SLOTS];
};

struct transport_hosts {
	struct transport *transport;
	struct link *link;
	/* HELD: a thread drives the link; AGAIN: it has to check once more before it stops. */
	_Atomic uint32_t driver;
	_Atomic uint64_t unsent[TRANSPORT_AREAS];              /* by team; bit q: to world rank q */
	_Atomic uint64_t areas[TRANSPORT_AREA_WORDS];          /* bit i: unsent[i] is not 0 */
	struct transport_team *_Atomic teams[TRANSPORT_AREAS]; /* by area of my segment */
};

/* The notes of a link. words[0]: this enum; a place is offset << 1 | TRANSPORT_OF_… */
enum transport_note {
	/* payload goes to place [1]; then the word at place [2] gets value [3] */
	TRANSPORT_NOTE_WRITE,
	/* a long message of the box at place [1]: RTS slot [2], generation [3] */
	TRANSPORT_NOTE_LONG,
};
enum { TRANSPORT_OF_SOURCE = 0, TRANSPORT_OF_TARGET = 1 };

/* Fails a receive whose payload will never arrive. */
void transport_mirror_fail(struct transport_relay *relay, unsigned index);

#endif
