/* SPDX-License-Identifier: BSD-3-Clause
 * Checks what every implementation of a link has to fill in. */
#include "link/link.h"

#include <stddef.h>

bool link_is_valid(const struct link *link)
{
	const struct link_ops *ops = link->ops;
	const struct link_events *events = &link->events;
	return ops && ops->name && ops->connect && ops->post && ops->store && ops->push &&
	       ops->fetch && ops->advance && ops->arm && ops->flush && ops->cut && ops->close &&
	       events->arrived && events->word && events->done && events->lost && link->size > 0 &&
	       link->rank >= 0 && link->rank < link->size;
}
