/* SPDX-License-Identifier: BSD-3-Clause
 * What the files on gradient averaging share: parameters, their buckets, and a step's state. */
#ifndef DDP_PRIVATE_H
#define DDP_PRIVATE_H

#include <lockstep/lockstep.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option_size.h"
#include "base/ranks.h"
#include "plan/plan.h"

enum {
	DDP_NAME_BYTES = 48, /* of a parameter's name in a report */
	DDP_LABEL_BYTES = 2 * DDP_NAME_BYTES + 32,
	DDP_TEXT_BYTES = 256, /* of a reason of ls_group_abort */
};
/* The call site in reports of an operation that shadows a step of other ranks. */
#define DDP_SHADOW_LABEL "ls_ddp_join_end"
#define DDP_FIRST_BYTES (UINT64_C(1) << 20)
#define DDP_BUCKET_BYTES (UINT64_C(25) << 20)

/* What ranks exchange of a pass. */
enum { DDP_PASS_NUMBER, DDP_PASS_OPENED, DDP_PASS_ORDER, DDP_PASS_WORDS };

struct ddp_parameter {
	const char *name; /* in ddp->names */
	void *data;
	uint64_t bytes;
	uint64_t hash; /* of name, dtype and shape */
	ls_dtype dtype;
	int dims;
	int64_t shape[LS_DDP_DIMS_MAX];
	int bucket;
	uint64_t offset;    /* of its gradient in the bucket */
	_Atomic bool ready; /* in this step */
};

/* Gradients of one dtype that one operation reduces. They lie one after the other, that of the last
 * parameter first: bytes is the sum of their sizes, a parameter's offset the sum of the sizes
 * before it. */
struct ddp_bucket {
	unsigned char *memory;
	uint64_t bytes;
	ls_dtype dtype;
	int first, last; /* parameters: the highest and the lowest index */
	int members;
	_Atomic int pending;         /* members that are not ready in this step */
	const void *_Atomic site;    /* the call that made one of the last members ready */
	ls_request *op;              /* while the bucket is reduced */
	char label[DDP_LABEL_BYTES]; /* for reports */
};

enum ddp_joining {
	DDP_NOT_JOINING,
	DDP_BETWEEN_STEPS, /* ls_ddp_join_step is due */
	DDP_IN_STEP,       /* ls_ddp_finish is due */
};

/* Buckets begin in order: 0 <= next <= bucket_count, and all below next have begun. Bucket k can
 * begin when its pending is 0 and next is k. A thread that raises `begin_requests` from zero begins
 * all buckets that can begin. Other threads raise `begin_requests` meanwhile, so that the first one
 * looks again. */
struct ls_ddp {
	ls_group *group;
	int rank, size;
	uint64_t first_bytes, bucket_bytes; /* options */
	bool find_unused;
	uint32_t timeout_ms;
	int parameter_count, bucket_count;
	struct ddp_parameter *parameters;
	struct ddp_bucket *buckets;
	struct ls_buffers *buffers; /* of the parameters, for a broadcast */
	char *names;
	_Atomic uint32_t begin_requests;
	int next;
	_Atomic int status;    /* LS_OK, or why a bucket could not begin in this step */
	_Atomic bool stepping; /* between the first ls_ddp_ready and ls_ddp_finish */
	bool no_sync;
	uint64_t pass;     /* the number of this backward pass, from 0 */
	uint64_t averaged; /* how many of the earlier ones were averaged */
	uint64_t opened;   /* when rank 0 opened it: no other ls_ddp of the group has this number */
	/* `pass`, `opened` and the order of all averaged passes of the group (group_note_pass), of
	 * each rank: exchanged with the first bucket of an averaged pass that is checked */
	uint64_t passes[DDP_PASS_WORDS * RANKS_WORLD_MAX];
	ls_request *pass_op; /* the exchange, while it is under way */
	/* Uneven inputs. */
	ls_join *join;
	enum ddp_joining joining;
	bool divide_by_active;
	int active; /* ranks with a batch in this step */
};

/* ---- describe.c ---- */

/* LS_BAD_ARGUMENT, after saying which argument of which call is wrong and what would be right. */
ls_status ddp_bad(const char *call, const char *argument, long long value, const char *right);
/* Messages name world ranks, as all reports do. */
int ddp_world_rank(const struct ls_ddp *ddp, int rank);
struct ranks ddp_world_ranks(const ls_group *group, const struct ranks *ranks);
/* "rank 3", "ranks 0 and 2", "ranks 1-3". */
void ddp_text_ranks(const struct ranks *ranks, char *out, size_t bytes);
/* The name; only its end if it is too long, because the end tells more than the beginning
 * "model.encoder.lay". */
void ddp_text_name(const char *name, char *out, size_t bytes);

/* ---- bucket.c ---- */

/* Puts every parameter into a bucket and sets bucket_count; ddp->buckets has room for one bucket
 * for each parameter. Buckets get no memory yet. False: no memory. */
bool ddp_fill_buckets(struct ls_ddp *ddp);

/* ---- agree.c ---- */

/* Hash of one parameter as the caller describes it; and the bytes of its text in reports. */
uint64_t ddp_hash_parameter(const struct ddp_parameter *parameter);
/* Collective: whether all ranks could prepare (mine: `status`), with the same parameters and
 * buckets. Sets ddp->opened. */
ls_status ddp_agree(struct ls_ddp *ddp, ls_status status);

/* ---- open_ddp.c ---- */

/* Collective: sets all parameters to those of rank root. `call` is what reports name. */
ls_status ddp_broadcast_parameters(struct ls_ddp *ddp, int root, const char *call);
void ddp_zero_buckets(struct ls_ddp *ddp);

/* ---- step_ddp.c ---- */

void ddp_reset_step(struct ls_ddp *ddp);
/* Begins all buckets that have not begun, ready or not. site: the call site of buckets that have
 * none. */
void ddp_begin_all(struct ls_ddp *ddp, const void *site);
/* Blocks until no bucket is being reduced. Returns the first status that is not LS_OK. */
ls_status ddp_wait_all(struct ls_ddp *ddp);
/* Call when the pass has ended, on this rank or on the ranks that it shadows. */
void ddp_next_pass(struct ls_ddp *ddp, bool averaged);

#endif
