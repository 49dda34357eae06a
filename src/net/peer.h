/* SPDX-License-Identifier: BSD-3-Clause
 * One end of the link, and what it knows of each peer. For files of this room. */
#ifndef NET_PEER_H
#define NET_PEER_H

#include <net/if.h>
#include <stdbool.h>

#include "base/ranks.h"
#include "net/libucx.h"
#include "net/net.h"

enum {
	NET_ROOM = 32,             /* notes to one peer that it has not delivered yet, at most */
	NET_CREDIT = NET_ROOM / 2, /* deliveries after which the source is told of them */
	/* One post of LINK_SHORT_BYTES, and many words. Fits into one segment of UCX's TCP. */
	NET_BATCH_BYTES = LINK_SHORT_BYTES + 2048,
	NET_AM = 0, /* the id of all messages but eager ones */
	/* the id of eager messages, whose payloads this rank keeps until they are fetched */
	NET_AM_EAGER = 1,
	NET_FLUSH_PING = 1, /* the number of the ping of a flush, and of its answer */
};

enum net_kind {
	NET_BATCH,  /* notes with their payloads, and words: see NET_ITEM_WORD */
	NET_OFFER,  /* a note, with a payload to be fetched */
	NET_EAGER,  /* a note, with a payload of up to LINK_EAGER_BYTES */
	NET_REFUSE, /* `position` is an offer's, whose payload is not wanted */
	NET_FETCH,  /* the same; its payload is wanted over the payload socket (payloads.c) */
	NET_GOT,    /* the same; its payload has come there */
	NET_PING,   /* the source has an endpoint */
	NET_PONG,   /* the source has got a ping */
	NET_CREDIT_ONLY,
	NET_KINDS,
};

/* The header of every message. It is read once, then checked. */
struct net_header {
	uint64_t job;
	uint32_t epoch;
	uint16_t source, target;
	uint8_t kind, zero[3];
	/* Batch, offer, eager message: its place in the order of the pair. Ping: its number. */
	uint32_t position;
	uint32_t taken; /* the last position from the target that the source has delivered */
	uint32_t zeros;
	struct link_note note; /* of an offer, or of an eager payload */
};
_Static_assert(sizeof(struct net_header) == 72, "no padding, which would be sent");

/* The items of a batch follow each other. A note: the bytes of its payload, its words, and the
 * payload up to a multiple of 8. A word: NET_ITEM_WORD, index, value. */
#define NET_ITEM_WORD UINT64_MAX
enum {
	NET_NOTE_BYTES = 8 * (1 + LINK_NOTE_WORDS), /* without its payload */
	NET_WORD_BYTES = 8 * 3,
};
_Static_assert(NET_NOTE_BYTES + LINK_SHORT_BYTES <= NET_BATCH_BYTES, "every note fits");

/* A long payload, in link_transfer.memory. */
struct net_transfer {
	struct net_header header;          /* of an offer; UCX reads it until the send is done */
	struct link_transfer *next, *prev; /* in `offers`; in `ended` only next */
	struct net_peer *peer;
	/* For the payload socket: the payload, how long it is, and how much of it and of what
	 * precedes it there has been sent or received. */
	unsigned char *memory;
	uint64_t bytes, moved;
	bool is_refused;   /* by the target */
	bool is_due;       /* a FETCH that UCX has not taken */
	bool is_under_way; /* an OFFER, FETCH or GOT; UCX reads the header */
	bool is_told;      /* the source knows that the payload has come */
	bool is_answered;  /* by the target: it has got the payload, or has refused it */
};
_Static_assert(sizeof(struct net_transfer) <= LINK_TRANSFER_BYTES, "it has its place there");

static inline struct net_transfer *net_transfer_of(struct link_transfer *transfer)
{
	return (struct net_transfer *)(void *)transfer->memory;
}

/* What comes before each payload on the payload socket. */
struct net_payload_head {
	uint64_t position, bytes;
};

static inline bool net_has_moved(const struct net_transfer *own)
{
	return own->moved == sizeof(struct net_payload_head) + own->bytes;
}

/* Transfers, in order. */
struct net_payload_list {
	struct link_transfer *first, *last; /* NULL: there is none */
};

/* A peer's payload socket. */
struct net_payloads {
	int fd;                          /* -1: none yet, or no more */
	int mark;                        /* of fork_close_in_child */
	bool is_ready;                   /* connected: this rank knows of which peer */
	uint32_t polled;                 /* events of epoll for which poll_fd becomes readable */
	struct net_payload_list out, in; /* asked for by the peer; by this rank */
	bool moves;                      /* the peer is in net->moving */
	struct net_peer *next_moving;
	uint64_t gives_up_ns; /* when this rank stops to await the last bytes; 0: not begun */
	struct net_payload_head head; /* of the payload that comes now */
};

/* A batch to a peer, until UCX has sent it. */
struct net_out {
	struct net_header header;
	struct net_peer *peer;
	struct net_out *next; /* the next free slot */
	uint64_t bytes;       /* of items */
	unsigned char items[NET_BATCH_BYTES];
};

/* A message from a peer that has not been delivered. */
struct net_in {
	bool is_here;
	uint8_t kind;
	struct link_message message; /* of a batch, position and bytes only */
	_Alignas(8) unsigned char items[NET_BATCH_BYTES];
};

/* A message that belongs to no slot, and is sent as soon as the one before it of the same kind has
 * been. */
struct net_control {
	struct net_header header;
	struct net_peer *peer;
	uint32_t number; /* of a ping and its answer: 0, or NET_FLUSH_PING */
	bool is_due, is_under_way;
};

struct net_peer {
	struct net *net;
	int rank;
	ucp_ep_h endpoint;          /* NULL: not made yet, or closed */
	ucp_conn_request_h request; /* from the peer, to be accepted */
	bool has_answered;          /* the peer has answered my ping */
	bool was_answered;          /* this rank has answered the peer's ping */
	/* this rank has sent its second ping; the peer has answered that */
	bool has_sent_flush, is_flushed;
	/* is_broken: UCX says so; is_lost: the user was told; is_cut: by the user. */
	bool is_broken, is_lost, is_cut;
	ucs_status_t broken_by; /* what UCX said then */
	bool attends;           /* the peer is in net->attention */
	struct net_peer *next_attending;
	/* Positions. To the peer: acknowledged <= sent <= acknowledged + NET_ROOM. From it:
	 * announced <= delivered <= announced + NET_ROOM, and all that is in the ring is >
	 * delivered and <= delivered + NET_ROOM. */
	uint32_t sent, acknowledged, delivered, announced;
	unsigned open_requests;       /* that UCX has not completed: payloads, slots, refusals */
	struct link_transfer *offers; /* and eager ones: sent, and not completed */
	struct net_out *free;
	struct net_out *batch; /* kept back: there is room for its position; NULL: none */
	bool is_push_due;      /* UCX had no memory for the batch */
	struct net_control ping, pong, credit;
	struct net_payloads payloads;
	struct net_address address;
	struct net_out out[NET_ROOM];
	struct net_in ring[NET_ROOM]; /* [position % NET_ROOM] */
};

/* Where this process listens at the host's address. Ports are as in addresses. */
struct net_ports {
	uint64_t old[(UINT16_MAX + 1) / 64]; /* before the worker was made, a bit for each port */
	uint16_t tcp;                        /* UCX's TCP, for its data; 0: not known */
	int tcp_fd;                          /* its socket; UCX may have closed it */
	int found;                           /* ports that may be this one */
	/* While it is sought: the worker's address, in which the port is somewhere. */
	const unsigned char *worker;
	size_t worker_bytes;
};

struct net {
	struct link link;
	struct net_options options;
	const struct net_library *ucx;
	ucp_context_h context;
	ucp_worker_h worker;
	int ucx_fd;                       /* readable: the worker has something to do */
	uint32_t thread;                  /* UCX's own; 0: not known */
	ucp_listener_h listener;          /* until all peers are connected */
	struct net_address address, host; /* where it listens; without the port */
	char device[IF_NAMESIZE];         /* of TCP, the only one that is used; "": UCX chooses */
	bool has_begun, is_connected;
	int addressed;              /* peers that have an address */
	int ready;                  /* of these, peers for which net_peer_is_ready is true */
	int breaking;               /* peers that are broken, and not yet lost or cut */
	uint64_t fails_ns;          /* when connect fails for a broken connection; 0: never */
	struct net_peer *attention; /* peers for which advance has something to do */
	struct link_transfer *ended, **ended_end; /* to be told, in this order */
	uint64_t dropped;
	struct net_ports ports;
	/* Long payloads go over sockets of their own; without them, over UCX. */
	bool has_payload_sockets;
	int poll_fd;              /* readable: UCX or a payload socket has something; -1: none */
	int payload_listener;     /* -1: none */
	struct net_peer *moving;  /* peers with transfers in `out` or `in` */
	struct net_guest *guests; /* that have connected to the listener */
	int guest_count, guest_room;
	int mark_count, marks[RANKS_WORLD_MAX]; /* of fork_close_in_child */
	struct net_peer peers[];
};

static inline struct net *net_of(const struct link *link)
{
	return link->state;
}

/* ---- peer.c ---- */

bool net_peer_is_valid(const struct net_peer *peer);

/* Whether nothing more can be sent to the peer; and with which status its transfers end then. */
static inline bool net_peer_is_gone(const struct net_peer *peer)
{
	return peer->is_broken || peer->is_cut;
}
static inline ls_status net_peer_end(const struct net_peer *peer)
{
	return peer->is_cut ? LS_ABORTED : LS_PEER_DIED;
}

/* Whether neither of the two ranks needs the other any more to be connected. So a rank that is
 * connected to all peers may close its link at once, and the peers get connected nevertheless. */
static inline bool net_peer_is_ready(const struct net_peer *peer)
{
	return peer->has_answered && peer->was_answered &&
	       (!peer->net->has_payload_sockets || peer->payloads.is_ready);
}

/* The next advance looks at this peer. */
void net_attend(struct net_peer *peer);
/* Call when the peer's connection does not work any more. */
void net_break(struct net_peer *peer);
/* The same, while the link connects: why. */
void net_break_by(struct net_peer *peer, ucs_status_t status);
/* Frees a request that UCX has completed. */
void net_close_request(struct net_peer *peer, void *request);
/* What UCX keeps of an offer that is not fetched: nothing, if its payload goes by socket. */
void net_release_offer(const struct net_peer *peer, void *handle);
/* The hello of a rank that connects: its job and epoch, as far as there is room, and its number. */
static inline uint64_t net_client_id(const struct net *net, int rank)
{
	uint64_t membership = (net->options.job ^ net->options.epoch) * UINT64_C(0x9e3779b97f4a7c15);
	return membership >> 16 << 16 | (uint64_t)rank;
}

/* The transfer has ended; net_tell_ended reports it later. */
void net_end(struct link_transfer *transfer, ls_status status);
/* Reports transfers that have ended; with `only` not NULL, those with this peer. True: there were
 * some. */
bool net_tell_ended(struct net *net, const struct net_peer *only);

/* ---- net.c, open_link.c ---- */

bool net_advance(struct link *link);
bool net_arm(struct link *link, int *fd);
void net_cut(struct link *link, int peer);
void net_close(struct link *link);

/* ---- connect.c ---- */

/* Says that no descriptor is left, in place of what UCX says then; LS_OUT_OF_MEMORY. */
ls_status net_say_limit(const struct net *net);

/* Called by UCX for each new connection. */
void net_on_request(ucp_conn_request_h request, void *context);
/* Ends listening: no rank can connect any more. */
void net_stop_listening(struct net *net);
/* Closes the peer's endpoint; requests then end one by one, in the calls of UCX's progress. */
void net_close_endpoint(struct net_peer *peer);
/* Accepts the peer's request. */
void net_accept(struct net_peer *peer);
ls_status net_connect(struct link *link, bool *done);

/* ---- sockets.c ---- */

/* Once all peers are connected: from then on their connections end with this process, whatever it
 * has forked or executed. */
void net_guard_sockets(struct net *net);
/* Ends that; call before the connections are closed. */
void net_release_sockets(struct net *net);
/* Find where UCX's TCP listens: call the first before the worker is made, and the second after. */
void net_note_listeners(struct net *net);
void net_find_listener(struct net *net);
/* Call before the listener is destroyed: UCX's thread then does nothing more with the listener's
 * socket, nor with connections that it has accepted and no peer uses. */
void net_forget_accepted(struct net *net);
/* Call before the worker is destroyed: UCX's thread then accepts no connection to UCX's TCP any
 * more, and forgets its socket. */
void net_forget_listener(struct net *net);
/* Call once all peers are connected. After it nobody can connect to UCX's TCP any more. What
 * strangers send that have connected before, and said nothing, does not arrive. Touches no other
 * sockets. */
void net_stop_hearing(struct net *net);

/* ---- payload_sockets.c ---- */

/* Listens for payload sockets, and makes poll_fd. Error: with a message. */
ls_status net_listen_for_payloads(struct net *net);
void net_stop_listening_for_payloads(struct net *net);
/* Begins to connect to a peer above this rank. A peer that cannot be reached counts as broken.
 * Error: with a message. */
ls_status net_connect_payload_socket(struct net_peer *peer);
/* A step of connecting, until all sockets are ready. Error: with a message. */
ls_status net_connect_payloads(struct net *net);
void net_close_payload_socket(struct net_peer *peer);
/* From now on poll_fd becomes readable if one of these events of epoll comes; 0: none. */
void net_poll_payload_socket(struct net_peer *peer, uint32_t events);
/* The same for all that can happen to payloads under way. False: there is something to do now. */
bool net_poll_payloads(struct net *net);

/* ---- payloads.c ---- */

/* The payload of an offer is wanted: asks for it. */
void net_ask(struct net_peer *peer, const struct link_message *message, void *to,
	     struct link_transfer *transfer);
/* Sends the FETCHes that UCX had no memory for, in order, as far as it has some now. */
void net_send_due_fetches(struct net_peer *peer);
/* The peer wants this offer, which is not in `offers` any more. */
void net_take_fetch(struct net_peer *peer, struct link_transfer *offer);
/* Moves bytes. True: there was something to do. */
bool net_move_payloads(struct net *net);
/* The peer is broken. True: its last bytes may still come; call again. */
bool net_await_last_bytes(struct net_peer *peer);
/* Ends all transfers with a peer that is gone, once UCX has returned its requests. */
void net_end_payloads(struct net_peer *peer);

/* ---- send.c ---- */

void net_send_init(struct net_peer *peer);
/* Sends the control messages that are due; one that cannot be sent now remains due. */
void net_send_control(struct net_peer *peer);
/* Sends the peer's batch. False: UCX has no memory now; the next advance tries again. */
bool net_send_batch(struct net_peer *peer);
void net_send_refusal(struct net_peer *peer, uint32_t position, void *handle);
/* A FETCH or GOT for a transfer of net_ask. Returns what UCX does. */
ucs_status_ptr_t net_send_answer(struct net_peer *peer, struct link_transfer *transfer,
				 enum net_kind kind);
/* The target has answered an offer for the payload socket: its transfer ends as soon as UCX no
 * longer needs it. */
void net_end_offer(struct net_peer *peer, struct link_transfer *offer);
/* Puts the transfer into peer->offers. */
void net_keep_offer(struct net_peer *peer, struct link_transfer *transfer);
/* Takes the transfer out of peer->offers. Returns it. */
struct link_transfer *net_take_offer(struct net_peer *peer, struct link_transfer *transfer);
bool net_post(struct link *link, int to, const struct link_note *note, const void *payload,
	      uint64_t bytes, struct link_transfer *transfer);
bool net_store(struct link *link, int to, uint64_t index, uint64_t value);
void net_push(struct link *link, int to);
bool net_flush(struct link *link, int to);

/* ---- receive.c ---- */

/* Called by UCX for messages of NET_AM, and of NET_AM_EAGER. */
ucs_status_t net_on_message(void *context, const void *header, size_t header_bytes, void *data,
			    size_t bytes, const ucp_am_recv_param_t *param);
ucs_status_t net_on_eager(void *context, const void *header, size_t header_bytes, void *data,
			  size_t bytes, const ucp_am_recv_param_t *param);
/* Delivers the next message in order. True: there was one. */
bool net_deliver(struct net_peer *peer);
/* Releases messages that will not be delivered. */
void net_discard(struct net_peer *peer);
void net_fetch(struct link *link, int from, const struct link_message *message, void *to,
	       struct link_transfer *transfer);

#endif
