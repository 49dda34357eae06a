/* SPDX-License-Identifier: BSD-3-Clause
 * Lists of hosts as Slurm writes them: "node[01-03,7],rack[1-2]n[5-8]". */
#include <string.h>

#include "rendezvous/meet.h"

/* Appends the first number of the brackets at `at`, as it is written; the end of the brackets, or
 * NULL if they are none. */
static const char *take_first(const char *at, char *out, size_t *used, size_t room)
{
	const char *number = at + 1;
	size_t digits = strspn(number, "0123456789");
	const char *end = strchr(number, ']');

	if (digits == 0 || !end || *used + digits >= room ||
	    strspn(number, "0123456789,-") != (size_t)(end - number) ||
	    !strchr(",-]", number[digits]))
		return NULL;
	memcpy(out + *used, number, digits);
	*used += digits;
	return end + 1;
}

bool rendezvous_first_host(const char *list, char out[RENDEZVOUS_NAME_BYTES])
{
	size_t used = 0;

	out[0] = '\0';
	for (const char *at = list; *at && *at != ',';) {
		bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
			     (*at >= '0' && *at <= '9') || strchr("-._:", *at);
		if (*at == '[') {
			at = take_first(at, out, &used, RENDEZVOUS_NAME_BYTES);
		} else if (plain && used < RENDEZVOUS_NAME_BYTES - 1) {
			out[used++] = *at++;
		} else {
			at = NULL;
		}
		if (!at) {
			out[0] = '\0';
			return false;
		}
	}
	out[used] = '\0';
	return used > 0;
}
