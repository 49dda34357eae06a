/* SPDX-License-Identifier: BSD-3-Clause
 * What commands that draw one job share: finding the job, and writing the picture to a file. */
#include <errno.h>
#include <string.h>

#include "base/messages.h"
#include "cli/cli.h"
#include "inspect/inspect.h"
#include "print/print.h"

static int refuse_several(const struct cli_command *self, const struct inspect_jobs *jobs)
{
	char list[256] = "";

	for (size_t i = 0; i < jobs->count; i++)
		print_append(list, sizeof list, " %016llx", (unsigned long long)jobs->views[i]->job);
	return cli_usage(self, "there are %zu jobs, which one?%s", jobs->count, list);
}

int cli_find_job(const struct cli_command *self, const struct cli_named *named,
		 struct inspect_jobs *out)
{
	int status = CLI_NOTHING;

	if (inspect_find_jobs(named->job, named->pid, out) != LS_OK)
		return CLI_NOTHING;
	if (out->count == 1)
		return CLI_OK;
	if (out->count > 1)
		status = refuse_several(self, out);
	else
		MESSAGE_SAY(MESSAGE_DIAGNOSE_NOTHING, named->what[0] ? " of " : "", named->what,
			    out->unreadable ? "; some processes of this user may not be looked into"
					    : "");
	inspect_jobs_free(out);
	return status;
}

int cli_draw(const char *path, void (*draw)(const void *what, FILE *out), const void *what)
{
	if (!path || strcmp(path, "-") == 0) {
		draw(what, stdout);
		return CLI_OK; /* main checks whether standard output was written */
	}
	FILE *out = fopen(path, "we");
	if (out)
		draw(what, out);
	bool good = out && !ferror(out);
	if (out && fclose(out) != 0)
		good = false;
	if (good)
		return CLI_OK;
	MESSAGE_SAY(MESSAGE_TIMELINE_OUTPUT, path, strerror(errno));
	return CLI_FAILED;
}
