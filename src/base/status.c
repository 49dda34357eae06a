/* SPDX-License-Identifier: BSD-3-Clause
 * Names, sentences and scopes of statuses, all from status.def. */
#include <lockstep/status.h>

#include <stddef.h>

struct status_line {
	ls_status status;
	ls_scope scope;
	const char *name;
	const char *text;
};

static const struct status_line lines[] = {
#define X(name, value, scope, sentence) {LS_##name, LS_SCOPE_##scope, "LS_" #name, sentence},
#include <lockstep/status.def>
#undef X
};

/* A search, as the numbers may have gaps one day. It need not be fast: callers ask when something
 * has failed. */
static const struct status_line *find_line(ls_status status)
{
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		if (lines[i].status == status)
			return &lines[i];
	return NULL;
}

const char *ls_status_name(ls_status status)
{
	const struct status_line *line = find_line(status);
	return line ? line->name : "LS_?";
}

const char *ls_status_text(ls_status status)
{
	const struct status_line *line = find_line(status);
	return line ? line->text : "a number that is no status of this version";
}

ls_scope ls_status_scope(ls_status status)
{
	const struct status_line *line = find_line(status);
	return line ? line->scope : LS_SCOPE_PROCESS;
}
