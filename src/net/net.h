/* SPDX-License-Identifier: BSD-3-Clause
 * A link (link/link.h) over UCX: net_open, exchange of addresses by the caller, net_set_address for
 * each peer, then the link's own functions. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdint.h>

#include <lockstep/status.h>

#include "link/link.h"

enum { NET_ADDRESS_BYTES = 128 };

/* The socket address of a rank, for its peers. It has no padding that the caller would have to
 * clear. */
struct net_address {
	uint64_t bytes;
	_Alignas(8) unsigned char data[NET_ADDRESS_BYTES];
	uint16_t payload_port, zero[3]; /* where it listens for payload sockets; 0: it has none */
};

struct net_options {
	int rank, size;
	/* The link drops messages of other jobs, and of other epochs of this job. */
	uint64_t job;
	uint32_t epoch;
	/* This host's address, in numbers, IPv4 or IPv6, at which all peers reach it. */
	const char *host;
	/* UCX's transports, as in UCX_TLS. "tcp": only over the network device that has the
	 * address. NULL: as the user has set UCX_TLS and UCX_NET_DEVICES, else all. */
	const char *transports;
	/* How long connect waits, once a connection has broken before all were made, until it fails
	 * for that. Meanwhile the caller may learn by other means which process has ended. */
	uint32_t patience_ms;
};

/* Whether ls_group_open could load UCX on this host: loads it into this process. LS_UNSUPPORTED,
 * with a message: UCX is not installed or too old. */
LS_CHECKED ls_status net_check(void);

/* Loads UCX, if this process has not, and makes this rank's end. The link's own `close` frees it.
 * While it loads UCX the environment has variables for UCX, so no other thread may use the
 * environment then. Does not wait for peers. Errors, with a message: LS_UNSUPPORTED, UCX is not
 * installed or too old; LS_BAD_ARGUMENT, `host` is no address; LS_SYSTEM, UCX cannot use the
 * network, or no device has this address; LS_OUT_OF_MEMORY. */
LS_CHECKED ls_status net_open(const struct net_options *options, struct link **link);

/* This rank's address. */
void net_address(const struct link *link, struct net_address *out);

/* The transport that carries the data, for messages: "TCP on device eth0". */
enum { NET_WIRE_BYTES = 64 };
void net_describe(const struct link *link, char out[NET_WIRE_BYTES]);

/* Call before connect for every rank on another host, with its address. Both ranks of a pair have
 * to call it. The link makes no connection to ranks without an address; they count as cut off.
 * Errors: LS_BAD_ARGUMENT: `address` is none, or `peer` is no other rank. */
LS_CHECKED ls_status net_set_address(struct link *link, int peer, const struct net_address *address);

/* The number of UCX's own thread, which makes new connections; 0: not known. */
uint32_t net_thread(const struct link *link);

/* While the link connects: whether rank `peer` has answered. */
bool net_has_answered(const struct link *link, int peer);

/* While the link connects: whether all peers are connected, so that connect will say so. Until
 * connect is called then, the link delivers nothing. */
bool net_is_ready(const struct link *link);
/* Whether a connection is broken, and advance has still to tell the user. Then arm is false. */
bool net_is_breaking(const struct link *link);

/* How many messages were dropped: of another job or epoch, or not of the form that peers send. For
 * the thread that makes progress on the link. */
uint64_t net_dropped(const struct link *link);

#endif
