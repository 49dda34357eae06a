/* SPDX-License-Identifier: BSD-3-Clause
 * What the two halves of the traffic between hosts share: relay.c finds what is to be sent,
 * mirror.c writes what has come. Within the transport only. */
#ifndef TRANSPORT_RELAY_H
#define TRANSPORT_RELAY_H

#include "transport/hosts.h"
#include "transport/segment.h"

enum { TRANSPORT_AREA_WORDS = (TRANSPORT_AREAS + 63) / 64 };

struct transport_mirror {
	_Atomic uint32_t lost, cut; /* cut: asked for */
};

/* The bytes of one long message, out or in. */
struct transport_carried {
	struct link_transfer transfer; /* first: events name it */
	struct transport_relay *relay;
	uint32_t generation;
	uint8_t index; /* of the RTS slot */
	bool is_sent;  /* else it is received */
};

/* What has gone from this rank to one on another host, in one team; and long messages. Of whoever
 * drives, but for `wanted` and `to`. */
struct transport_relay {
	struct transport_team *team;
	struct mail_box *to, *from;      /* in its mirror, from me; in my segment, from it */
	uint64_t signal, finished, left; /* values sent */
	uint64_t next;                   /* position of the box there that is to be sent next */
	uint64_t announced;              /* the last one whose long payload has been offered */
	uint64_t taken, returned;
	uint64_t freed[MAIL_SLOTS], over[MAIL_SLOTS];
	struct transport_carried sent[MAIL_SLOTS], received[MAIL_SLOTS];
	struct link_message offered[MAIL_SLOTS]; /* handle NULL: none */
	/* Bit i: the bytes of message i are wanted, at target[i]. */
	_Atomic uint64_t wanted;
	void *target[MAIL_SLOTS];
};

struct transport_hosts {
	struct transport *transport;
	struct link *link;
	/* HELD: a thread drives the link; AGAIN: and looks once more before it leaves. */
	_Atomic uint32_t driver;
	_Atomic uint64_t unsent[TRANSPORT_AREAS];     /* bit q: to world rank q, of that team */
	_Atomic uint64_t areas[TRANSPORT_AREA_WORDS]; /* bit i: unsent[i] is not 0 */
	struct transport_team *_Atomic teams[TRANSPORT_AREAS]; /* by area of my segment */
};

/* The notes of a link. words[0]: enum; a place is offset << 1 | whose segment. */
enum transport_note {
	/* payload goes to place [1]; then the word at place [2] gets value [3] */
	TRANSPORT_NOTE_WRITE,
	/* a long message of the box at place [1]: RTS slot [2], generation [3] */
	TRANSPORT_NOTE_LONG,
};
enum { TRANSPORT_OF_SOURCE = 0, TRANSPORT_OF_TARGET = 1 };

/* A receive whose bytes never come fails. */
void transport_mirror_fail(struct transport_relay *relay, unsigned index);

#endif
