/* SPDX-License-Identifier: BSD-3-Clause
 * A rank's connections to ranks on other hosts, as one table of functions. Another room implements
 * it (UCX); tests have a loop-back. A link moves notes of 40 bytes, each with or without a payload,
 * and does not know what they mean.
 *
 *   source                                            target
 *   store(index, value), post(note, short payload)
 *   push                                              word(index, value), arrived(message)
 *   post(note, long payload, transfer)                arrived(message without payload)
 *   …the payload must stay…                           fetch(message, to, transfer)
 *   done(transfer)                                    done(transfer)
 *
 * An eager long payload is sent with its note, and not only at the fetch: three ways between the
 * ranks become one, but the link may have to keep a copy at the target until the fetch.
 *
 * Threads: one thread at a time, but any thread, calls the functions of a link; the caller ensures
 * that. No function blocks, takes a lock of the caller, or allocates memory after `connect`. Only
 * advance and cut call events, in the thread that called them. An event may call post, store and
 * fetch, but neither advance nor cut.
 *
 * Order: the posts and stores of one rank to another cause events there in that order, once each.
 * So when a word arrives, everything that its writer published before has arrived, as on one host.
 * What a source posts after `done` of a payload that is not eager arrives after `done` of that
 * payload at the target. No other order is promised between the ends of transfers, and none between
 * peers.
 *
 * Errors: a link reports that a transfer has failed, or that a peer is lost. It does not decide
 * which ranks are alive, or what fails: silence is no event. The room that decides it calls cut.
 *
 * Ownership: post copies a note and a short payload. A long payload belongs to the caller, and must
 * not change until `done`. A message without its payload belongs to the user that got the event,
 * which must call fetch for it once, also after the peer was lost or cut. */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/status.h>

enum {
	LINK_NOTE_WORDS = 5,
	LINK_SHORT_BYTES = 4096,     /* payload of a post without a transfer, at most */
	LINK_EAGER_BYTES = 64 << 10, /* payload of an eager transfer, at most */
	LINK_TRANSFER_BYTES = 128,
};

/* A message for the user of the link at the other end. */
struct link_note {
	uint64_t words[LINK_NOTE_WORDS];
};

/* A message that has arrived. */
struct link_message {
	struct link_note note;
	uint64_t bytes;
	/* The whole payload, unaligned, which the link owns. Valid until `arrived` returns, or if
	 * there is a handle until the call of fetch, even if the peer is lost meanwhile. NULL with
	 * bytes > 0: the payload is to be fetched. */
	const void *payload;
	void *handle;      /* for fetch; NULL: there is nothing to fetch */
	uint64_t position; /* the link's, for fetch */
	bool is_eager;     /* there are a payload and a handle */
};

/* A long payload in transfer. The caller owns it and has zeroed it. From post or fetch until `done`
 * it must not move, and only the link writes it. */
struct link_transfer {
	/* After `done`. LS_OK: all bytes were copied; at the source the last of them may still be
	 * under way, and are lost if the connection breaks. LS_CANCELLED, at the source: the target
	 * does not want them. LS_ABORTED: cut. LS_PEER_DIED: the peer was lost. */
	ls_status status;
	/* Set before post, for LINK_EAGER_BYTES at most: the payload is sent with its note. The
	 * transfer ends with LS_OK as soon as the link has copied the payload, whether or not the
	 * target fetches it, and never with LS_CANCELLED. The payload can be fetched although the
	 * peer was lost meanwhile. */
	bool is_eager;
	/* For the link, which so needs no memory of its own, however many transfers there are. */
	_Alignas(8) unsigned char memory[LINK_TRANSFER_BYTES];
};

/* The functions that a link calls. */
struct link_events {
	void *context; /* their first argument */
	void (*arrived)(void *context, int peer, const struct link_message *message);
	void (*word)(void *context, int peer, uint64_t index, uint64_t value);
	/* The link touches neither the transfer nor its bytes any more. */
	void (*done)(void *context, struct link_transfer *transfer);
	/* The connection to a peer is broken: its process has ended or has cut this one; the link
	 * does not know which. Called once, after `done` of all transfers with that peer, and after
	 * the events for all its messages that have arrived; nothing comes from that peer any
	 * more. */
	void (*lost)(void *context, int peer);
};

struct link;

struct link_ops {
	const char *name; /* "ucx", "loop" */

	/* Makes all connections, a step at a time. Call it again, with advance and arm between,
	 * until *done: every peer has answered. No connection is made later; post, store, fetch and
	 * cut may only be called then. Errors, with a message that names the peer: LS_NO_MASTER,
	 * LS_PEER_DIED, LS_OUT_OF_MEMORY, LS_SYSTEM; after an error call only close. The caller
	 * enforces the time limit. */
	ls_status (*connect)(struct link *link, bool *done);

	/* Takes a note to be sent. transfer NULL: `bytes` <= LINK_SHORT_BYTES are copied before
	 * post returns, and may be kept back until push, so that several messages go together.
	 * Otherwise any number of `bytes` > 0 stays at `payload` until `done`, and what was kept
	 * back goes with this message. False: the link has no memory for the message now and took
	 * nothing, but what was kept back was pushed; try again after advance has returned true,
	 * which it does as long as the peer calls advance. For a peer that is lost or cut, post
	 * returns true and sends nothing, and the next advance ends the transfer. */
	bool (*post)(struct link *link, int peer, const struct link_note *note, const void *payload,
		     uint64_t bytes, struct link_transfer *transfer);

	/* The same for a note that is a word. The two users agree on what the index means. */
	bool (*store)(struct link *link, int peer, uint64_t index, uint64_t value);

	/* Sends what was kept back for a peer. */
	void (*push)(struct link *link, int peer);

	/* Copies the payload of a message to `to`, any memory of this process, which belongs to the
	 * link until `done`. Then the transfers at both ends are done. to NULL: the payload is not
	 * wanted; the source's transfer ends with LS_CANCELLED, and transfer may be NULL. The
	 * message may be a copy of the event's; its handle is invalid afterwards. */
	void (*fetch)(struct link *link, int peer, const struct link_message *message, void *to,
		      struct link_transfer *transfer);

	/* Makes all progress that is possible, and calls the events. True: there was something to
	 * do, so another call may find more. */
	bool (*advance)(struct link *link);

	/* To be called before sleeping. True: there is nothing to do now, and the descriptor *fd,
	 * which belongs to the link, becomes readable as soon as there is. False: call advance
	 * first. Valid until the next advance. What is kept back stays so. */
	bool (*arm)(struct link *link, int *fd);

	/* Pushes. True: all that was posted to the peer is on its way, and arrives even if this
	 * process ends now; or the peer is lost or cut. False: call advance, and ask again. Until
	 * flush returns true, post and store nothing to the peer. Payloads that wait for a fetch do
	 * not count. */
	bool (*flush)(struct link *link, int peer);

	/* Cuts a peer off without its help, dead or alive. When it returns, `done` was called for
	 * all transfers with that peer (LS_ABORTED), nobody touches their bytes any more, and no
	 * event of that peer will follow. May be repeated. Other peers are not affected. */
	void (*cut)(struct link *link, int peer);

	/* After all peers were cut or lost, and every message was fetched. Local. */
	void (*close)(struct link *link);
};

/* One rank's end. The room that implements the table fills it, except `events`, which the user sets
 * before connect. Constant after that. */
struct link {
	const struct link_ops *ops;
	void *state; /* of ops */
	int rank, size;
	struct link_events events;
};

/* Before connect: whether all functions and events are set, so that none of them need be checked
 * again. */
bool link_is_valid(const struct link *link);

#endif
