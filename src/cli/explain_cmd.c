/* SPDX-License-Identifier: BSD-3-Clause
 * lockstep explain: what a message or a status means, and what to do. */
#include <string.h>
#include <strings.h>

#include <lockstep/status.h>

#include "base/messages.h"
#include "cli/cli.h"

enum { ID_MAX = 512 };

static const struct option options[] = {
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static const struct {
	ls_status status;
	const char *name; /* without LS_ */
} statuses[] = {
#define X(name, value, scope, sentence) {LS_##name, #name},
#include <lockstep/status.def>
#undef X
};
enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

static const char *scope_text(ls_scope scope)
{
	switch (scope) {
	case LS_SCOPE_NONE:
		return "Nothing is broken.";
	case LS_SCOPE_CALL:
		return "Only this call failed: the group continues to work, and the call can be made differently.";
	case LS_SCOPE_OP:
		return "Only this operation failed: the group continues to work.";
	case LS_SCOPE_GROUP:
		return "The group has failed on all ranks: each later call on it returns the same status, "
		       "and\nls_group_failure reports the cause. Close it, and make a new one from a group "
		       "that has\nnot failed. If ls_group_open returned this, there is no group: correct the "
		       "cause, and\nstart the job again.";
	case LS_SCOPE_PROCESS:
		break;
	}
	return "The process cannot continue: save what can be saved, and exit.";
}

static void print_status(int i)
{
	ls_status status = statuses[i].status;

	printf("%s (%d): %s.\n%s\n", ls_status_name(status), status, ls_status_text(status),
	       scope_text(ls_status_scope(status)));
}

/* Breaks lines at 80 columns, and where the text has a line break. */
static void print_folded(const char *text)
{
	enum { COLUMNS = 80 };

	while (*text) {
		size_t length = strcspn(text, "\n");
		if (length > COLUMNS) {
			length = COLUMNS;
			while (length > 0 && text[length] != ' ')
				length--;
			if (length == 0)
				length = strcspn(text, " \n");
		}
		printf("%.*s\n", (int)length, text);
		text += length;
		text += strspn(text, " \n");
	}
}

/* The status that LS_TIMED_OUT, TIMED_OUT, LS-TIMED-OUT (in any case) or 6 stands for; -1: none. */
static int find_status(const char *id)
{
	char plain[64];
	uint64_t number;
	size_t length = strlen(id);

	if (cli_number(id, 0, INT32_MAX, &number)) {
		for (int i = 0; i < STATUS_COUNT; i++)
			if ((uint64_t)statuses[i].status == number)
				return i;
		return -1;
	}
	if (length >= sizeof plain)
		return -1;
	for (size_t i = 0; i <= length; i++)
		plain[i] = id[i] == '-' ? '_' : id[i];
	const char *name = strncasecmp(plain, "LS_", 3) == 0 ? plain + 3 : plain;
	for (int i = 0; i < STATUS_COUNT; i++)
		if (strcasecmp(statuses[i].name, name) == 0)
			return i;
	return -1;
}

static int list_all(void)
{
	const struct message_help *message;

	puts("statuses, which functions return:");
	for (int i = 0; i < STATUS_COUNT; i++)
		printf("  %-22s %s\n", ls_status_name(statuses[i].status),
		       ls_status_text(statuses[i].status));
	puts("\nmessages, which Lockstep prints:");
	for (size_t i = 0; (message = message_help_at(i)); i++)
		printf("  %s\n", message->id);
	return CLI_OK;
}

static int refuse_id(const struct cli_command *self, const char *id)
{
	const char *known[ID_MAX + 1];
	int count = 0;
	const struct message_help *message;

	for (int i = 0; i < STATUS_COUNT && count < ID_MAX; i++)
		known[count++] = ls_status_name(statuses[i].status);
	for (size_t i = 0; (message = message_help_at(i)) && count < ID_MAX; i++)
		known[count++] = message->id;
	known[count] = NULL;
	const char *nearest = cli_nearest(id, known);
	if (nearest)
		return cli_usage(self, "there is no message or status '%s' (did you mean '%s'?)",
				 id, nearest);
	return cli_usage(self, "there is no message or status '%s'", id);
}

static int explain_main(const struct cli_command *self, int argc, char **argv)
{
	int option;

	optind = 1;
	while ((option = cli_option(self, argc, argv, "+:h", options)) != -1)
		return option == 'h' ? CLI_OK : CLI_USAGE;
	if (optind >= argc)
		return list_all();
	if (argc - optind > 1)
		return cli_usage(self, "one message or status at a time");

	const char *id = argv[optind];
	const struct message_help *message = message_help_find(id);
	int status = find_status(id);
	/* LS_… with an underscore is how statuses are written. */
	if (status >= 0 && (!message || strchr(id, '_'))) {
		print_status(status);
		return CLI_OK;
	}
	if (!message)
		return refuse_id(self, id);
	printf("%s:\n", message->id);
	print_folded(message->help);
	/* Some messages are about a status of the same name. */
	if (status >= 0) {
		putchar('\n');
		print_status(status);
	}
	return CLI_OK;
}

const struct cli_command cli_explain_command = {
	.name = "explain",
	.arguments = "[ID]",
	.summary = "explains what a message or a status means, and what to do",
	.help = "Explains a message by its id, which stands in brackets after the message (such as\n"
		"LS-RANK-MISSING), or a status by name (LS_TIMED_OUT) or number. Without an ID it lists\n"
		"them all.\n"
		"\n"
		"options:\n"
		"  -h, --help  this text\n"
		"\n"
		"exit status: 0; 2 if there is no such message or status.\n",
	.main = explain_main,
};
