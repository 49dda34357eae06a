/* SPDX-License-Identifier: BSD-3-Clause
 * Payloads that a rank on another host has offered, and that nobody here wants: they go back. */
#include "hosts/hosts_private.h"

void hosts_return_offer(struct hosts *hosts, int peer, const struct link_message *message)
{
	struct transport_traffic *traffic = transport_traffic(hosts->transport->segment, peer);
	if (!message->handle)
		return;
	atomic_fetch_add(&traffic->begun, 1);
	hosts->link->ops->fetch(hosts->link, peer, message, NULL, NULL);
	atomic_fetch_add(&traffic->fetched, 1);
	atomic_fetch_add(&traffic->copied, message->is_eager);
}

void hosts_return_offers(struct hosts *hosts, int peer, struct hosts_relay *relay)
{
	for (int m = 0; m < MAIL_SLOTS; m++) {
		hosts_return_offer(hosts, peer, &relay->offered[m]);
		relay->offered[m].handle = NULL;
	}
	for (int i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++) {
		hosts_return_offer(hosts, peer, &relay->channel.offered[i]);
		relay->channel.offered[i].handle = NULL;
	}
}
