/* SPDX-License-Identifier: BSD-3-Clause
 * Reads settings.def's table from the environment. The only file that looks at the environment. */
#include "base/settings.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/messages.h"

#define PREFIX "LOCKSTEP_"

enum type { U64, POWER, BYTES, CHOICE, FILE_PATH };
enum { NAME_MAX_COMPARED = 63, VALUE_SHOWN = 40, ALLOWED_BYTES = 160 };

struct setting {
	const char *name; /* with PREFIX */
	enum type type;
	size_t offset; /* of its field in struct settings */
	uint64_t value_default, min, max;
	const char *const *choices; /* enumerator names from value 0 on; NULL unless CHOICE */
	const char *help;
};

#define NAME_OF(enumerator) #enumerator,
static const char *const choices_wait[] = {SETTING_CHOICES_wait(NAME_OF)};
static const char *const choices_algorithm[] = {SETTING_CHOICES_algorithm(NAME_OF)};
static const char *const choices_log[] = {SETTING_CHOICES_log(NAME_OF)};
static const char *const choices_color[] = {SETTING_CHOICES_color(NAME_OF)};
static const char *const choices_cma[] = {SETTING_CHOICES_cma(NAME_OF)};
static const char *const choices_network[] = {SETTING_CHOICES_network(NAME_OF)};
static const char *const choices_p2p[] = {SETTING_CHOICES_p2p(NAME_OF)};
static const char *const choices_join[] = {SETTING_CHOICES_join(NAME_OF)};
static const char *const choices_ddp[] = {SETTING_CHOICES_ddp(NAME_OF)};

#define CHOICES_OF_U64(field) NULL
#define CHOICES_OF_POWER(field) NULL
#define CHOICES_OF_BYTES(field) NULL
#define CHOICES_OF_CHOICE(field) choices_##field
#define CHOICES_OF_FILE(field) NULL

#define TYPE_OF_U64 U64
#define TYPE_OF_POWER POWER
#define TYPE_OF_BYTES BYTES
#define TYPE_OF_CHOICE CHOICE
#define TYPE_OF_FILE FILE_PATH

static const struct setting table[] = {
#define X(field, name, type, def, min, max, help) \
	{PREFIX #name,                            \
	 TYPE_OF_##type,                          \
	 offsetof(struct settings, field),        \
	 def,                                     \
	 min,                                     \
	 max,                                     \
	 CHOICES_OF_##type(field),                \
	 help},
#include "base/settings.def"
#undef X
};
enum { SETTING_COUNT = sizeof table / sizeof table[0] };
_Static_assert(SETTING_COUNT <= 30, "more settings than anybody can know");

/* Variables that begin like a setting and are none. */
static const char *const launch_names[] = {PREFIX "RENDEZVOUS", PREFIX "RUN_NOTES"};

static char *const *or_own(char *const *environment)
{
	return environment ? environment : environ;
}

/* The value of `name`; NULL if it is not set, or empty. */
static const char *look_up(char *const *environment, const char *name)
{
	size_t length = strlen(name);
	for (size_t i = 0; environment && environment[i]; i++)
		if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
			return environment[i][length + 1] ? environment[i] + length + 1 : NULL;
	return NULL;
}

/* "SETTING_WAIT_AUTO" -> "AUTO"; it is compared and printed without regard to case. */
static const char *choice_word(const char *enumerator)
{
	return strrchr(enumerator, '_') + 1;
}

/* Decimal digits, with K, M or G behind them where `suffixes`; nothing else, no sign, no spaces. */
static bool parse_number(const char *text, bool suffixes, uint64_t *out)
{
	uint64_t value = 0;
	const char *at = text;
	for (; isdigit((unsigned char)*at); at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	if (at == text)
		return false;
	if (suffixes && *at) {
		static const char letters[] = "KMG";
		const char *letter = strchr(letters, toupper((unsigned char)*at));
		if (!letter)
			return false;
		unsigned shift = 10 * (unsigned)(letter - letters + 1);
		if (value > UINT64_MAX >> shift)
			return false;
		value <<= shift;
		at++;
	}
	*out = value;
	return *at == '\0';
}

static bool parse_value(const struct setting *setting, const char *text, uint64_t *out)
{
	if (setting->type == CHOICE) {
		for (uint64_t i = setting->min; i <= setting->max; i++)
			if (strcasecmp(text, choice_word(setting->choices[i])) == 0) {
				*out = i;
				return true;
			}
		return false;
	}
	uint64_t value;
	if (!parse_number(text, setting->type == BYTES, &value))
		return false;
	if (value < setting->min || value > setting->max)
		return false;
	if (setting->type == POWER && (value & (value - 1)))
		return false;
	if (setting->type == BYTES && value % 4096)
		return false;
	*out = value;
	return true;
}

/* Copies in lower case, cut to the buffer. */
static void copy_lower(char *out, size_t bytes, const char *text)
{
	size_t i = 0;
	for (; i + 1 < bytes && text[i]; i++)
		out[i] = (char)tolower((unsigned char)text[i]);
	out[i] = '\0';
}

static void print_value(const struct setting *setting, uint64_t value, char *out, size_t bytes)
{
	if (setting->type == CHOICE)
		copy_lower(out, bytes, choice_word(setting->choices[value]));
	else if (setting->type == FILE_PATH)
		snprintf(out, bytes, "none");
	else
		snprintf(out, bytes, "%" PRIu64, value);
}

/* What a setting may be, for the message that refuses a value. */
static void print_allowed(const struct setting *setting, char *out, size_t bytes)
{
	static const char *const kinds[] = {
		[U64] = "a number",
		[POWER] = "a power of two",
		[BYTES] = "a multiple of 4096 (K, M and G may follow the number)",
	};
	if (setting->type != CHOICE) {
		snprintf(out, bytes, "%s from %" PRIu64 " to %" PRIu64, kinds[setting->type],
			 setting->min, setting->max);
		return;
	}
	size_t used = 0;
	for (uint64_t i = setting->min; i <= setting->max && used < bytes; i++) {
		char word[32];
		print_value(setting, i, word, sizeof word);
		const char *before = i == setting->min ? "" : i == setting->max ? " or " : ", ";
		int size = snprintf(out + used, bytes - used, "%s%s", before, word);
		used += size > 0 ? (size_t)size : 0;
	}
}

static void refuse_value(const char *name, const char *value, const char *allowed)
{
	char shown[VALUE_SHOWN + 1];
	snprintf(shown, sizeof shown, "%s", value);
	/* The value is foreign: a terminal must not obey it. */
	for (char *at = shown; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
	MESSAGE_SAY(MESSAGE_SETTING_VALUE, name, shown, allowed);
}

/* Edit distance (insertions, deletions, replacements), without regard to case. */
static unsigned edit_distance(const char *a, size_t a_length, const char *b)
{
	unsigned row[NAME_MAX_COMPARED + 1];
	size_t b_length = strnlen(b, NAME_MAX_COMPARED);
	for (size_t j = 0; j <= b_length; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			bool same = toupper((unsigned char)a[i - 1]) ==
				    toupper((unsigned char)b[j - 1]);
			unsigned best = diagonal + !same;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[b_length];
}

static bool is_known(const char *name, size_t length)
{
	for (size_t i = 0; i < SETTING_COUNT; i++)
		if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0)
			return true;
	for (size_t i = 0; i < sizeof launch_names / sizeof launch_names[0]; i++)
		if (strlen(launch_names[i]) == length && strncmp(launch_names[i], name, length) == 0)
			return true;
	return false;
}

void settings_warn_of_unknown(char *const *environment)
{
	environment = or_own(environment);
	for (size_t i = 0; environment && environment[i]; i++) {
		const char *name = environment[i];
		size_t length = strcspn(name, "=");
		if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || is_known(name, length))
			continue;
		size_t compared = length < NAME_MAX_COMPARED ? length : NAME_MAX_COMPARED;
		const char *nearest = table[0].name;
		unsigned least = edit_distance(name, compared, nearest);
		for (size_t j = 1; j < SETTING_COUNT; j++) {
			unsigned away = edit_distance(name, compared, table[j].name);
			if (away < least) {
				least = away;
				nearest = table[j].name;
			}
		}
		char shown[NAME_MAX_COMPARED + 1];
		snprintf(shown, sizeof shown, "%.*s", (int)compared, name);
		MESSAGE_SAY(MESSAGE_SETTING_UNKNOWN, shown, nearest);
	}
}

static void *field_of(struct settings *settings, const struct setting *setting)
{
	return (char *)settings + setting->offset;
}

ls_status settings_read(char *const *environment, struct settings *out)
{
	environment = or_own(environment);
	bool usable = true;
	for (size_t i = 0; i < SETTING_COUNT; i++) {
		uint64_t value = table[i].value_default;
		const char *text = look_up(environment, table[i].name);
		if (table[i].type == FILE_PATH) {
			*(const char **)field_of(out, &table[i]) = text;
			continue;
		}
		if (text && !parse_value(&table[i], text, &value)) {
			char allowed[ALLOWED_BYTES];
			print_allowed(&table[i], allowed, sizeof allowed);
			refuse_value(table[i].name, text, allowed);
			usable = false;
		}
		*(uint64_t *)field_of(out, &table[i]) = value;
	}
	if (usable)
		return LS_OK;
	memset(out, 0, sizeof *out);
	return LS_BAD_ARGUMENT;
}

/* *out = the variable's number, -1 if it is not set; false after a message. */
static bool read_launch_number(char *const *environment, const char *name, uint64_t min,
			       uint64_t max, int64_t *out)
{
	*out = -1;
	const char *text = look_up(environment, name);
	if (!text)
		return true;
	uint64_t value;
	if (parse_number(text, false, &value) && value >= min && value <= max) {
		*out = (int64_t)value;
		return true;
	}
	char allowed[ALLOWED_BYTES];
	snprintf(allowed, sizeof allowed, "a number from %" PRIu64 " to %" PRIu64, min, max);
	refuse_value(name, text, allowed);
	return false;
}

/* The shell of a batch script has SLURM_PROCID, too, but not the number of tasks of a step. The
 * processes of mpirun and of Hydra inherit what srun has told mpirun's own daemon about itself. */
static bool read_slurm(char *const *environment, struct settings_slurm *out)
{
	*out = (struct settings_slurm){0};
	if (!look_up(environment, "SLURM_STEP_NUM_TASKS") || !look_up(environment, "SLURM_PROCID") ||
	    look_up(environment, "OMPI_COMM_WORLD_SIZE") || look_up(environment, "MPI_LOCALNRANKS"))
		return true;
	out->is_task = true;
	out->nodes = look_up(environment, "SLURM_STEP_NODELIST");
	bool usable = read_launch_number(environment, "SLURM_PROCID", 0, INT32_MAX - 1, &out->rank);
	usable &= read_launch_number(environment, "SLURM_STEP_NUM_TASKS", 1, INT32_MAX, &out->size);
	usable &= read_launch_number(environment, "SLURM_STEP_NUM_NODES", 1, INT32_MAX, &out->hosts);
	usable &= read_launch_number(environment, "SLURM_JOB_ID", 0, UINT32_MAX, &out->job);
	usable &= read_launch_number(environment, "SLURM_STEP_ID", 0, UINT32_MAX, &out->step);
	return usable;
}

ls_status settings_read_launch(char *const *environment, struct settings_launch *out)
{
	environment = or_own(environment);
	struct settings_launch got = {
		.rendezvous = look_up(environment, PREFIX "RENDEZVOUS"),
		.run_notes = look_up(environment, PREFIX "RUN_NOTES"),
		.master_addr = look_up(environment, "MASTER_ADDR"),
		.run_id = look_up(environment, "TORCHELASTIC_RUN_ID"),
	};
	const struct {
		const char *name;
		uint64_t min, max;
		int64_t *out;
	} numbers[] = {
		{"MASTER_PORT", 1, 65535, &got.master_port},
		{"RANK", 0, INT32_MAX - 1, &got.rank},
		{"WORLD_SIZE", 1, INT32_MAX, &got.world_size},
		{"LOCAL_RANK", 0, INT32_MAX - 1, &got.local_rank},
		{"LOCAL_WORLD_SIZE", 1, INT32_MAX, &got.local_world_size},
		{"TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, &got.restart_count},
	};
	bool usable = true;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		usable &= read_launch_number(environment, numbers[i].name, numbers[i].min,
					     numbers[i].max, numbers[i].out);
	/* torchrun writes Python's str(True). */
	const char *agent = look_up(environment, "TORCHELASTIC_USE_AGENT_STORE");
	got.agent_owns_port = agent && strcmp(agent, "True") == 0;
	usable &= read_slurm(environment, &got.slurm);
	memset(out, 0, sizeof *out);
	if (!usable)
		return LS_BAD_ARGUMENT;
	*out = got;
	return LS_OK;
}

size_t settings_count(void)
{
	return SETTING_COUNT;
}

void settings_describe(char *const *environment, size_t i, struct settings_line *out)
{
	memset(out, 0, sizeof *out);
	if (i >= SETTING_COUNT)
		return;
	const struct setting *setting = &table[i];
	const char *text = look_up(or_own(environment), setting->name);
	uint64_t value = setting->value_default;
	out->name = setting->name;
	out->help = setting->help;
	out->source = text ? SETTINGS_ENVIRONMENT : SETTINGS_DEFAULT;
	print_value(setting, value, out->value_default, sizeof out->value_default);
	/* A wrong value is shown as it is; settings_read refuses it. */
	if (text && (setting->type == FILE_PATH || !parse_value(setting, text, &value)))
		snprintf(out->value, sizeof out->value, "%s", text);
	else
		print_value(setting, value, out->value, sizeof out->value);
}

bool settings_use_color(const struct settings *settings, int fd)
{
	if (settings->color != SETTING_COLOR_AUTO)
		return settings->color == SETTING_COLOR_ALWAYS;
	const char *terminal = look_up(environ, "TERM");
	bool dumb = terminal && strcmp(terminal, "dumb") == 0;
	return !dumb && !look_up(environ, "NO_COLOR") && isatty(fd) == 1;
}

bool settings_is_under_valgrind(char *const *environment)
{
	const char *preloaded = look_up(or_own(environment), "LD_PRELOAD");
	return preloaded && strstr(preloaded, "vgpreload");
}
