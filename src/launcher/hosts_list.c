/* SPDX-License-Identifier: BSD-3-Clause
 * The list of hosts of a command line. */
#include <stdio.h>
#include <string.h>

#include "launcher/launcher.h"

enum { WHY_BYTES = 256 };

/* A name must not look like an option of ssh, nor hold what a shell or ssh would take apart. */
static bool name_is_usable(const char *name, size_t length)
{
	static const char others[] = "._-:%@[]";
	const char *host = memchr(name, '@', length);

	if (length == 0 || length >= LAUNCHER_HOST_BYTES || name[0] == '-' ||
	    name[length - 1] == '@')
		return false;
	if (host && host[1] == '-')
		return false;
	for (size_t i = 0; i < length; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		      (name[i] >= '0' && name[i] <= '9') || strchr(others, name[i])))
			return false;
	return true;
}

/* The number after the last colon; 1: there is no colon; 0: it is no number. */
static int take_ranks(const char *item, size_t *length)
{
	size_t at = *length;
	int ranks = 0;

	while (at > 0 && item[at - 1] != ':' && item[at - 1] != ']')
		at--;
	if (at == 0 || item[at - 1] == ']')
		return 1;
	for (size_t i = at; i < *length; i++) {
		if (item[i] < '0' || item[i] > '9' || ranks > RANKS_WORLD_MAX)
			return 0;
		ranks = ranks * 10 + (item[i] - '0');
	}
	*length = at - 1;
	return ranks;
}

bool launcher_list_parse(const char *text, struct launcher_list *out, char why[256])
{
	const char *item = text;

	*out = (struct launcher_list){0};
	for (bool more = true; more;) {
		size_t length = strcspn(item, ","), whole = length;
		int ranks = take_ranks(item, &length);
		more = item[whole] == ',';
		if (!name_is_usable(item, length) || memchr(item, ':', length)) {
			if (!(length > 2 && item[length - 1] == ']' && memchr(item, '[', length) &&
			      name_is_usable(item, length))) {
				snprintf(why, WHY_BYTES,
					 "'%.*s' is no host: it must be NAME, USER@NAME or an address "
					 "(that of IPv6 in brackets), and then :RANKS",
					 whole < 64 ? (int)whole : 64, item);
				return false;
			}
		}
		if (ranks < 1 || ranks > RANKS_HOST_MAX || out->ranks + ranks > RANKS_WORLD_MAX ||
		    out->count == RANKS_HOSTS_MAX) {
			snprintf(why, WHY_BYTES,
				 "'%.*s': each host has 1 to %d ranks; there are at most %d hosts, "
				 "with at most %d ranks together",
				 whole < 64 ? (int)whole : 64, item, RANKS_HOST_MAX,
				 RANKS_HOSTS_MAX, RANKS_WORLD_MAX);
			return false;
		}
		struct launcher_list_host *host = &out->hosts[out->count++];
		snprintf(host->name, sizeof host->name, "%.*s", (int)length, item);
		host->ranks = ranks;
		out->ranks += ranks;
		item += whole + more;
	}
	return true;
}
