/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that no rank will receive any more when a group is closed: see
 * transport/lost_messages.c. */
#include "mailbox/mailbox_private.h"

/* Takes messages until none is left; sequentially consistent, after the ring has ended. */
static void look_last(struct mailbox *mailbox, int source) LOCK_REQUIRES(mail)
{
	struct mailbox_peer *peer = &mailbox->peers[source];
	do
		mailbox_arrive(mailbox, source);
	while ((int64_t)(atomic_load(transport_mail_awaited(peer->from, &peer->in)) -
			 peer->in.next) >= 0);
}

int mailbox_lost_from(struct mailbox *mailbox, int source, struct mail_envelope *first)
{
	struct mailbox_peer *peer = &mailbox->peers[source];
	struct transport_area *mine = transport_area_of(mailbox->team, mailbox->team->rank);
	lock_mail_acquire(&mailbox->lock);
	/* Before the look at the inbox: a source that opens it later sees this before it closes. */
	atomic_store(&mine->mail_ended, 1);
	if (!transport_inbox_is_open(mine, source)) {
		lock_mail_release(&mailbox->lock);
		return 0;
	}
	transport_mail_end(peer->from);
	look_last(mailbox, source);
	int count =
		peer->unexpected_count ? transport_mail_lost(peer->from, peer->in.next, first) : 0;
	lock_mail_release(&mailbox->lock);
	return count;
}

int mailbox_lost_to(struct mailbox *mailbox, int dest, struct mail_envelope *first)
{
	struct mailbox_peer *peer = &mailbox->peers[dest];
	int count = 0;
	lock_mail_acquire(&mailbox->lock);
	bool ended = atomic_load(&transport_area_of(mailbox->team, dest)->mail_ended);
	if (peer->out.posted > 0 && (ended || transport_mail_has_ended(peer->to)) &&
	    atomic_load_explicit(&peer->to->taken, memory_order_acquire) != peer->out.posted)
		count = transport_mail_lost(peer->to, peer->out.next, first);
	lock_mail_release(&mailbox->lock);
	return count;
}
