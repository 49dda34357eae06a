/* SPDX-License-Identifier: BSD-3-Clause
 * Settings: one table, each default written once, read once from the environment into an immutable
 * struct that is handed down. Nothing else in Lockstep calls getenv (tools/check refuses it). */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

/* The names of a choice in the environment are these, lower case, after the last underscore.
 * Lists, so that settings.c makes the names from them; SETTING_CHOICES_x belongs to the field x. */
#define SETTING_CHOICES_wait(X) \
	X(SETTING_WAIT_AUTO) X(SETTING_WAIT_SPIN) X(SETTING_WAIT_YIELD) X(SETTING_WAIT_SLEEP)
#define SETTING_CHOICES_algorithm(X) \
	X(SETTING_ALGORITHM_AUTO)    \
	X(SETTING_ALGORITHM_DIRECT)  \
	X(SETTING_ALGORITHM_PULL)    \
	X(SETTING_ALGORITHM_RING)    \
	X(SETTING_ALGORITHM_DOUBLING) X(SETTING_ALGORITHM_TREE) X(SETTING_ALGORITHM_PAIRWISE)
#define SETTING_CHOICES_log(X) \
	X(SETTING_LOG_ERROR) X(SETTING_LOG_WARN) X(SETTING_LOG_INFO) X(SETTING_LOG_DEBUG)
#define SETTING_CHOICES_color(X) \
	X(SETTING_COLOR_AUTO) X(SETTING_COLOR_ALWAYS) X(SETTING_COLOR_NEVER)
#define SETTING_CHOICES_cma(X) X(SETTING_CMA_AUTO) X(SETTING_CMA_OFF) X(SETTING_CMA_ALWAYS)
#define SETTING_CHOICES_network(X) X(SETTING_NETWORK_TCP) X(SETTING_NETWORK_UCX)
#define SETTING_CHOICES_p2p(X) X(SETTING_P2P_AUTO) X(SETTING_P2P_SERIAL)
#define SETTING_CHOICES_join(X) X(SETTING_JOIN_SHADOW) X(SETTING_JOIN_ERROR)
#define SETTING_CHOICES_ddp(X) X(SETTING_DDP_PLAIN) X(SETTING_DDP_MAPPED)

#define SETTING_ENUMERATOR(name) name,
enum setting_wait { SETTING_CHOICES_wait(SETTING_ENUMERATOR) };
enum setting_algorithm { SETTING_CHOICES_algorithm(SETTING_ENUMERATOR) };
enum setting_log { SETTING_CHOICES_log(SETTING_ENUMERATOR) };
enum setting_color { SETTING_CHOICES_color(SETTING_ENUMERATOR) };
enum setting_cma { SETTING_CHOICES_cma(SETTING_ENUMERATOR) };
enum setting_network { SETTING_CHOICES_network(SETTING_ENUMERATOR) };
enum setting_p2p { SETTING_CHOICES_p2p(SETTING_ENUMERATOR) };
enum setting_join { SETTING_CHOICES_join(SETTING_ENUMERATOR) };
enum setting_ddp { SETTING_CHOICES_ddp(SETTING_ENUMERATOR) };

#define SETTING_C_U64 uint64_t
#define SETTING_C_POWER uint64_t
#define SETTING_C_BYTES uint64_t
#define SETTING_C_CHOICE uint64_t
#define SETTING_C_FILE const char *

/* A file is NULL, or points into the environment. */
struct settings {
#define X(field, name, type, def, min, max, help) SETTING_C_##type field;
#include "base/settings.def"
#undef X
};

/* What Slurm says about a task that srun has started. */
struct settings_slurm {
	bool is_task;       /* of srun, and no other launcher runs inside it; else nothing is set */
	int64_t rank, size; /* SLURM_PROCID, SLURM_STEP_NUM_TASKS */
	int64_t hosts;      /* SLURM_STEP_NUM_NODES */
	int64_t job, step;  /* SLURM_JOB_ID, SLURM_STEP_ID */
	const char *nodes;  /* SLURM_STEP_NODELIST */
};

/* What launchers say about this process, as they say it. A NULL string or -1 was not said. */
struct settings_launch {
	const char *rendezvous;  /* LOCKSTEP_RENDEZVOUS, set by lockstep run */
	const char *run_notes;   /* LOCKSTEP_RUN_NOTES, set by lockstep run */
	const char *master_addr; /* MASTER_ADDR */
	int64_t master_port;     /* MASTER_PORT */
	int64_t rank;            /* RANK */
	int64_t world_size;      /* WORLD_SIZE */
	int64_t local_rank;      /* LOCAL_RANK */
	int64_t local_world_size;
	const char *run_id;    /* TORCHELASTIC_RUN_ID */
	int64_t restart_count; /* TORCHELASTIC_RESTART_COUNT */
	/* TORCHELASTIC_USE_AGENT_STORE=True: MASTER_PORT is torchrun's own store */
	bool agent_owns_port;
	struct settings_slurm slurm;
};

enum settings_source { SETTINGS_DEFAULT, SETTINGS_ENVIRONMENT };

/* One setting as `lockstep settings` prints it. */
struct settings_line {
	const char *name; /* "LOCKSTEP_TIMEOUT_MS" */
	const char *help;
	char value[256];
	char value_default[32];
	enum settings_source source;
};

/* Fills *out from `environment` (NULL: the process'). A variable that is empty counts as not set.
 * A value that cannot be used ends in LS_BAD_ARGUMENT, with a message that names variable, value
 * and what is allowed. */
LS_CHECKED ls_status settings_read(char *const *environment, struct settings *out);

/* A warning for each LOCKSTEP_ variable that is no setting, with the nearest name. The processes of
 * a job have most often one environment, so only rank 0 asks for these warnings. */
void settings_warn_of_unknown(char *const *environment);

/* Fills *out. A number that cannot be parsed, or lies outside its range, is LS_BAD_ARGUMENT, with a
 * message. The strings point into the environment. */
LS_CHECKED ls_status settings_read_launch(char *const *environment, struct settings_launch *out);

/* Number of settings, and the i-th of them as it stands in `environment` (NULL: the process'). */
size_t settings_count(void);
void settings_describe(char *const *environment, size_t i, struct settings_line *out);

/* Whether to color what goes to `fd`: setting COLOR, NO_COLOR, and whether fd is a terminal. */
bool settings_use_color(const struct settings *settings, int fd);

/* Whether Valgrind runs this process: it preloads files of its own. */
bool settings_is_under_valgrind(char *const *environment);

#endif
