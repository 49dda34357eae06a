/* SPDX-License-Identifier: BSD-3-Clause
 * The tables of coll.h as arrays. */
#include "coll/coll.h"

#include <stddef.h>

const struct coll coll_table[COLL_COUNT + 1] = {
#define X(id, name, input, output, root, reduces) \
	[COLL_##id] = {name, COLL_##input, COLL_##output, COLL_##root, COLL_##reduces},
	COLL_TABLE(X)
#undef X
		[COLL_NONE] = {.name = "?"},
};

const struct coll_kind coll_kinds[COLL_KIND_COUNT] = {
	[COLL_KIND_NONE] = {"?", COLL_NONE, COLL_UNCOUNTED, '?', COLL_GREY},
#define X(id, name, collective, counts, letter, color) \
	[COLL_KIND_##id] = {name, COLL_##collective, COLL_##counts, letter, COLL_##color},
	COLL_KINDS(X)
#undef X
};

bool coll_is_name(const char *given, const char *name)
{
	for (;; given++, name++) {
		while (*given == '-' || *given == '_')
			given++;
		name += *name == '-';
		if (*given != *name)
			return false;
		if (*given == '\0')
			return true;
	}
}

enum coll_id coll_from_name(const char *name)
{
	int id = 0;
	while (id < COLL_COUNT && !coll_is_name(name, coll_table[id].name))
		id++;
	return (enum coll_id)id;
}
