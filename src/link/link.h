/* SPDX-License-Identifier: BSD-3-Clause
 * A rank's connections to ranks on other hosts, as one table of functions; what stands behind them
 * is another room's (UCX), or a loop-back in tests. A link moves notes of 40 bytes, each with a
 * payload or without, and knows nothing of what they say.
 *
 *   source                                            target
 *   store(index, value), post(note, short payload)    word(index, value), arrived(message)
 *   post(note, long payload, transfer)                arrived(message without payload)
 *   …the payload must stay…                           fetch(message, to, transfer)
 *   over(transfer)                                    over(transfer)
 *
 * Threads: one thread at a time calls the functions of a link, whichever it is; the caller sees to
 * that. None blocks, waits, takes a lock of the caller's, or allocates after `connect` is done.
 * Events are told inside advance and cut, by the thread that called these, and nowhere else; an
 * event may call post, store and fetch, and neither advance nor cut.
 *
 * Order: what one rank posts and stores to one other is told there in that order, each once. So a
 * user that has been told of a word has all that its writer published before it, as on one host. No
 * order is promised between peers, nor of transfers, which end when they end.
 *
 * Errors: a link reports two things, that a transfer failed and that a peer is lost, and decides
 * neither who is alive nor what fails: silence is no event. Whoever does decide calls cut.
 *
 * Ownership: a note and a short payload are copied by post. A long payload is the caller's, and
 * must stay as it is until `over`. A message without payload belongs to whom it was told to, until
 * that one calls fetch, once for each, also after the peer was lost or cut. */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/status.h>

enum {
	LINK_NOTE_WORDS = 5,
	LINK_SHORT_BYTES = 4096, /* payload of a post without a transfer, at most */
};

/* What a message says to the user of the link at the other end. */
struct link_note {
	uint64_t words[LINK_NOTE_WORDS];
};

/* A message as it is told. */
struct link_message {
	struct link_note note;
	uint64_t bytes;
	/* All of it, until `arrived` returns, aligned to nothing; the link's. NULL with bytes > 0:
	 * it lies at the source until fetch. */
	const void *payload;
	void *handle; /* what fetch needs; NULL if nothing is to be fetched */
};

/* A long payload under way. The caller's, zeroed; from post or fetch until `over` it must stay
 * where it is, and is the link's to write. */
struct link_transfer {
	/* After `over`. LS_OK: all bytes are there. LS_CANCELLED, at the source: the target does
	 * not want it. LS_ABORTED: cut. LS_PEER_DIED: the peer was lost. */
	ls_status status;
	void *request; /* the link's */
};

/* Whom a link tells. */
struct link_events {
	void *context; /* first argument of all */
	void (*arrived)(void *context, int peer, const struct link_message *message);
	void (*word)(void *context, int peer, uint64_t index, uint64_t value);
	/* Nobody touches the transfer, or its bytes, any more. */
	void (*over)(void *context, struct link_transfer *transfer);
	/* The connection to a peer is broken: its process has ended, or has cut this one; which of
	 * these, a link cannot tell. Once, after `over` of all transfers with that peer, and after
	 * all that it had posted and that has arrived; nothing comes from it any more. */
	void (*lost)(void *context, int peer);
};

struct link;

struct link_ops {
	const char *name; /* "ucx", "loop" */

	/* Makes all connections, a step at a time: call again, with advance and arm between,
	 * until *done: every peer has answered. None is made afterwards, and only then may what
	 * follows be called. Errors, with a message that names the peer: LS_NO_MASTER,
	 * LS_PEER_DIED, LS_OUT_OF_MEMORY, LS_SYSTEM, after which only close may follow. The caller
	 * has the time limit. */
	ls_status (*connect)(struct link *link, bool *done);

	/* Sends a note. transfer NULL: `bytes` <= LINK_SHORT_BYTES are copied before it returns.
	 * Else: `bytes` > 0, any number, stay at `payload` until `over`. False: there is no room
	 * for it now, and nothing was done; there will be some after advance has returned true, as
	 * long as the peer calls advance. To a peer that is lost or cut all goes, and nowhere:
	 * true, and a transfer is over in the next advance. */
	bool (*post)(struct link *link, int peer, const struct link_note *note, const void *payload,
		     uint64_t bytes, struct link_transfer *transfer);

	/* The same of a note that is a word. What the index means is between the two users. */
	bool (*store)(struct link *link, int peer, uint64_t index, uint64_t value);

	/* Brings the bytes of a message without payload to `to`, any memory of this process, which
	 * is the link's until `over`. Both ends' transfers are over then. to NULL: nobody wants
	 * them, the source's transfer is over with LS_CANCELLED; transfer may be NULL. The message
	 * may be a copy of that of the event; its handle means nothing afterwards. */
	void (*fetch)(struct link *link, int peer, const struct link_message *message, void *to,
		      struct link_transfer *transfer);

	/* Goes on with all that it can, and tells the events. True: it did something, so another
	 * call may find more. */
	bool (*advance)(struct link *link);

	/* Before the caller sleeps. True: nothing is to be done now, and link->fd becomes readable
	 * as soon as something is. False: call advance first. The arming lasts until the next
	 * advance. */
	bool (*arm)(struct link *link);

	/* Gives a peer up, without its help, dead or alive: at return all transfers with it are
	 * over (told, LS_ABORTED), nobody touches their bytes any more, nor will anything be told
	 * of it. May be repeated. Other peers notice nothing. */
	void (*cut)(struct link *link, int peer);

	/* After all peers were cut or lost, and every message was fetched. Local. */
	void (*close)(struct link *link);
};

/* One rank's end. Filled by the room that implements the table, but for events, which the user sets
 * before connect. Constant after that. */
struct link {
	const struct link_ops *ops;
	void *state; /* of ops */
	int rank, size;
	int fd; /* for poll, readable; see arm. The link's. */
	struct link_events events;
};

/* Whether everything is filled that has to be before connect: for users, who so may call any slot
 * and tell any event. */
bool link_is_valid(const struct link *link);

#endif
