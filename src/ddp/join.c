/* SPDX-License-Identifier: BSD-3-Clause
 * Uneven inputs: before each step every rank tells all others whether it has a batch. While some
 * ranks have one, the ranks without one run their shadow of the step. When no rank has a batch, the
 * join is over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "ddp/ddp_private.h"
#include "group/group.h"

struct ls_join {
	ls_group *group;
	bool error; /* uneven inputs are an error */
	ls_join_shadow *shadow;
	void *data;
	uint64_t step;             /* the number of the next step */
	struct ls_join_round last; /* the last round with a batch; active 0: none so far */
};

/* What each rank tells all others before a step. */
struct ballot {
	uint64_t word;
	uint32_t has_batch; /* 0 or 1 */
	uint32_t error;     /* 1: the rank's mode is LS_JOIN_ERROR */
};

static bool wants_error(const ls_group *group, uint32_t mode)
{
	if (mode == LS_JOIN_SETTING)
		return group_settings(group)->join == SETTING_JOIN_ERROR;
	return mode == LS_JOIN_ERROR;
}

ls_status ls_join_open(ls_group *group, const struct ls_join_options *given, ls_join **out)
{
	const char *call = "ls_join_open";
	struct ls_join_options options = {.size = sizeof options};
	if (out)
		*out = NULL;
	if (!group || !out)
		return ddp_bad(call, group ? "out" : "group", 0, "not NULL");
	if (given) {
		if (!option_size_is_right(given->size, sizeof options))
			return ddp_bad(call, "options->size", given->size,
				       "sizeof(struct ls_join_options)");
		memcpy(&options, given, given->size);
	}
	if (options.mode > LS_JOIN_ERROR)
		return ddp_bad(call, "options->mode", options.mode, "one of enum ls_join_mode");
	ls_status status = group_check_open(call, group); /* a closed group has no settings */
	if (status != LS_OK)
		return status;
	ls_join *join = calloc(1, sizeof *join);
	if (!join) {
		MESSAGE_SAY(MESSAGE_DDP_MEMORY, call, sizeof *join);
		return LS_OUT_OF_MEMORY;
	}
	*join = (ls_join){.group = group,
			  .error = wants_error(group, options.mode),
			  .shadow = options.shadow,
			  .data = options.data};
	*out = join;
	return LS_OK;
}

void ls_join_close(ls_join *join)
{
	free(join);
}

/* The ranks that have a batch, and the values of the lowest of them. */
struct answer {
	struct ranks having;
	bool error;
	struct ls_join_round round;
};

static ls_status ask_all(const struct ls_join *join, const struct ballot *mine, const char *call,
			 struct answer *out)
{
	struct ballot ballots[RANKS_WORLD_MAX];
	struct ls_call_options options = {.size = sizeof options, .label = call};
	ls_status status =
		ls_allgather(join->group, mine, ballots, sizeof *mine, LS_UINT8, &options);
	*out = (struct answer){.round = {.step = join->step, .lead = -1}};
	for (int r = 0; status == LS_OK && r < ls_group_size(join->group); r++) {
		out->error |= ballots[r].error != 0;
		if (!ballots[r].has_batch)
			continue;
		if (!ranks_any(&out->having)) {
			out->round.lead = r;
			out->round.word = ballots[r].word;
		}
		ranks_add(&out->having, r);
		out->round.active++;
	}
	return status;
}

static void say_uneven(const struct ls_join *join, const struct answer *answer)
{
	char ended[128], others[128];
	struct ranks without = ranks_below(ls_group_size(join->group));
	ranks_drop(&without, &answer->having);
	without = ddp_world_ranks(join->group, &without);
	struct ranks having = ddp_world_ranks(join->group, &answer->having);
	ddp_text_ranks(&without, ended, sizeof ended);
	ddp_text_ranks(&having, others, sizeof others);
	MESSAGE_SAY(MESSAGE_JOIN_UNEVEN, ended, (unsigned long long)join->step,
		    join->step == 1 ? "" : "es", others, answer->round.active == 1 ? "s" : "ve");
}

static void start_over(struct ls_join *join)
{
	join->step = 0;
	join->last = (struct ls_join_round){.lead = 0};
}

/* One round: all ranks exchange whether they have a batch. LS_UNEVEN: some have one and some have
 * none, and that is an error. */
static ls_status ask_round(struct ls_join *join, const struct ballot *mine, const char *call,
			   struct answer *out)
{
	ls_status status = ask_all(join, mine, call, out);
	if (status != LS_OK)
		return status;
	bool uneven = out->round.active > 0 && out->round.active < ls_group_size(join->group);
	if (uneven && out->error) {
		if (ls_group_rank(join->group) == 0)
			say_uneven(join, out);
		start_over(join);
		return LS_UNEVEN;
	}
	if (out->round.active > 0)
		join->last = out->round;
	join->step++;
	return LS_OK;
}

static struct ballot my_ballot(const struct ls_join *join, uint64_t word, uint32_t has_batch)
{
	return (struct ballot){.word = word, .has_batch = has_batch, .error = join->error};
}

ls_status ls_join_step(ls_join *join, uint64_t word, struct ls_join_round *round)
{
	struct answer answer;
	if (!join)
		return ddp_bad("ls_join_step", "join", 0, "not NULL");
	struct ballot mine = my_ballot(join, word, 1);
	ls_status status = ask_round(join, &mine, "ls_join_step", &answer);
	if (round)
		*round = answer.round;
	return status;
}

/* Shadows the step of the other ranks by the caller's function. These wait for this rank, so if the
 * function fails, the group fails. */
static ls_status run_shadow(struct ls_join *join, const struct ls_join_round *round)
{
	ls_status status = join->shadow ? join->shadow(join->data, round) : LS_OK;
	if (status == LS_OK)
		return LS_OK;
	char text[DDP_TEXT_BYTES];
	snprintf(text, sizeof text, "rank %d could not shadow step %llu: %s",
		 group_world_rank(join->group, ls_group_rank(join->group)),
		 (unsigned long long)round->step, ls_status_text(status));
	ls_status aborted = ls_group_abort(join->group, text); /* nothing, if it is closed */
	return aborted == LS_OK ? status : aborted;
}

ls_status ls_join_end(ls_join *join, struct ls_join_round *round)
{
	struct answer answer;
	if (!join)
		return ddp_bad("ls_join_end", "join", 0, "not NULL");
	struct ballot mine = my_ballot(join, 0, 0);
	ls_status status;
	do {
		status = ask_round(join, &mine, "ls_join_end", &answer);
		if (status == LS_OK && answer.round.active > 0)
			status = run_shadow(join, &answer.round);
	} while (status == LS_OK && answer.round.active > 0);
	if (round)
		*round = join->last;
	start_over(join);
	return status;
}
