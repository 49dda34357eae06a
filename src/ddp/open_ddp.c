/* SPDX-License-Identifier: BSD-3-Clause
 * Opening and closing: parameters are copied down and compared, buckets are filled and get memory,
 * and every rank begins with the parameters of rank 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "ddp/ddp_private.h"
#include "group/group.h"

/* ---- options and parameters ---- */

static ls_status no_memory(size_t bytes)
{
	MESSAGE_SAY(MESSAGE_DDP_MEMORY, "ls_ddp_open", bytes);
	return LS_OUT_OF_MEMORY;
}

static ls_status read_options(const struct ls_ddp_options *given, struct ls_ddp *ddp)
{
	struct ls_ddp_options options = {.size = sizeof options};
	if (given) {
		if (!option_size_is_right(given->size, sizeof options))
			return ddp_bad("ls_ddp_open", "options->size", given->size,
				       "sizeof(struct ls_ddp_options)");
		memcpy(&options, given, given->size);
	}
	if (options.reserved)
		return ddp_bad("ls_ddp_open", "options->reserved", options.reserved, "0");
	ddp->first_bytes = options.bucket_first_bytes ? options.bucket_first_bytes : DDP_FIRST_BYTES;
	ddp->bucket_bytes = options.bucket_bytes ? options.bucket_bytes : DDP_BUCKET_BYTES;
	ddp->find_unused = options.find_unused != 0;
	ddp->timeout_ms = options.timeout_ms;
	return LS_OK;
}

static bool is_gradient_dtype(ls_dtype dtype)
{
	switch (dtype) {
	case LS_FLOAT16:
	case LS_BFLOAT16:
	case LS_FLOAT32:
	case LS_FLOAT64:
	case LS_COMPLEX64:
	case LS_COMPLEX128:
		return true;
	default:
		return false;
	}
}

/* Names "parameters[3].dims" as the argument that is wrong. */
static ls_status bad_parameter(int index, const char *field, long long value, const char *right)
{
	char argument[64];
	snprintf(argument, sizeof argument, "parameters[%d].%s", index, field);
	return ddp_bad("ls_ddp_open", argument, value, right);
}

static ls_status read_parameter(int index, const struct ls_ddp_parameter *given,
				struct ddp_parameter *out)
{
	out->dtype = given->dtype;
	out->data = given->data;
	out->dims = given->dims;
	if (!given->name)
		return bad_parameter(index, "name", 0, "a text");
	if (!is_gradient_dtype(given->dtype))
		return bad_parameter(index, "dtype", given->dtype, "a float or complex one");
	if (given->dims < 0 || given->dims > LS_DDP_DIMS_MAX)
		return bad_parameter(index, "dims", given->dims, "0 to 8");
	if (given->dims > 0 && !given->shape)
		return bad_parameter(index, "shape", 0, "dims numbers");
	uint64_t bytes = ls_dtype_bytes(given->dtype);
	for (int d = 0; d < given->dims; d++) {
		int64_t length = out->shape[d] = given->shape[d];
		if (length < 0 || __builtin_mul_overflow(bytes, (uint64_t)length, &bytes) ||
		    bytes > INT64_MAX / 2)
			return bad_parameter(index, "shape", length,
					     "0 or more, and below 2^62 bytes in all");
	}
	if (bytes > 0 && !given->data)
		return bad_parameter(index, "data", 0, "a buffer");
	out->bytes = bytes;
	return LS_OK;
}

static ls_status read_parameters(const struct ls_ddp_parameter *given, int count, struct ls_ddp *ddp)
{
	size_t name_bytes = 0;
	if (!given || count < 1)
		return ddp_bad("ls_ddp_open", given ? "count" : "parameters", given ? count : 0,
			       "one parameter or more");
	ddp->parameters = calloc((size_t)count, sizeof *ddp->parameters);
	ddp->buckets = calloc((size_t)count, sizeof *ddp->buckets);
	ddp->buffers = calloc((size_t)count, sizeof *ddp->buffers);
	if (!ddp->parameters || !ddp->buckets || !ddp->buffers)
		return no_memory((size_t)count * sizeof *ddp->parameters);
	for (int i = 0; i < count; i++) {
		ls_status status = read_parameter(i, &given[i], &ddp->parameters[i]);
		if (status != LS_OK)
			return status;
		name_bytes += strlen(given[i].name) + 1;
	}
	char *name = ddp->names = malloc(name_bytes);
	if (!name)
		return no_memory(name_bytes);
	for (int i = 0; i < count; i++) {
		struct ddp_parameter *parameter = &ddp->parameters[i];
		size_t bytes = strlen(given[i].name) + 1;
		parameter->name = memcpy(name, given[i].name, bytes);
		name += bytes;
		parameter->hash = ddp_hash_parameter(parameter);
		ddp->buffers[i] =
			(struct ls_buffers){parameter->data, parameter->data, parameter->bytes};
	}
	ddp->parameter_count = count;
	return LS_OK;
}

static ls_status give_memory(struct ls_ddp *ddp)
{
	if (!ddp_fill_buckets(ddp))
		return no_memory((size_t)ddp->parameter_count * sizeof(int));
	for (int k = 0; k < ddp->bucket_count; k++) {
		void *memory;
		ls_status status = ls_alloc(ddp->group, ddp->buckets[k].bytes, &memory);
		if (status != LS_OK)
			return status;
		ddp->buckets[k].memory = memory;
	}
	return LS_OK;
}

/* All steps that may fail on this rank alone. */
static ls_status prepare_alone(const struct ls_ddp_parameter *parameters, int count,
			       const struct ls_ddp_options *options, struct ls_ddp *ddp)
{
	ls_status status = read_options(options, ddp);
	if (status == LS_OK)
		status = read_parameters(parameters, count, ddp);
	if (status == LS_OK)
		status = give_memory(ddp);
	return status;
}

/* ---- open and close ---- */

ls_status ddp_broadcast_parameters(struct ls_ddp *ddp, int root, const char *call)
{
	struct ls_call_options options = {.size = sizeof options, .label = call};
	return ls_broadcast_many(ddp->group, ddp->buffers, ddp->parameter_count, LS_UINT8, root,
				 &options);
}

void ddp_zero_buckets(struct ls_ddp *ddp)
{
	for (int k = 0; k < ddp->bucket_count; k++)
		memset(ddp->buckets[k].memory, 0, ddp->buckets[k].bytes);
}

static void free_all(struct ls_ddp *ddp)
{
	for (int k = 0; k < ddp->bucket_count; k++) {
		ls_status status = ls_free(ddp->group, ddp->buckets[k].memory);
		(void)status; /* the memory is a block of this group */
	}
	ls_join_close(ddp->join);
	free(ddp->names);
	free(ddp->buffers);
	free(ddp->buckets);
	free(ddp->parameters);
	free(ddp);
}

ls_status ls_ddp_open(ls_group *group, const struct ls_ddp_parameter *parameters, int count,
		      const struct ls_ddp_options *options, ls_ddp **out)
{
	if (out)
		*out = NULL;
	if (!group)
		return ddp_bad("ls_ddp_open", "group", 0, "not NULL");
	ls_status status = group_check_open("ls_ddp_open", group);
	if (status != LS_OK)
		return status;
	struct ls_ddp *ddp = calloc(1, sizeof *ddp), nothing = {0};
	status = ddp ? LS_OK : no_memory(sizeof *ddp);
	struct ls_ddp *mine = ddp ? ddp : &nothing;
	mine->group = group;
	mine->rank = ls_group_rank(group);
	mine->size = ls_group_size(group);
	if (status == LS_OK && !out)
		status = ddp_bad("ls_ddp_open", "out", 0, "not NULL");
	if (status == LS_OK)
		status = prepare_alone(parameters, count, options, ddp);
	/* The other ranks wait for this exchange, whatever has happened here. */
	status = ddp_agree(mine, status);
	if (status == LS_OK)
		status = ddp_broadcast_parameters(ddp, 0, "ls_ddp_open");
	if (status != LS_OK) {
		if (ddp)
			free_all(ddp);
		return status;
	}
	ddp_zero_buckets(ddp);
	ddp_reset_step(ddp);
	*out = ddp;
	return LS_OK;
}

void ls_ddp_close(ls_ddp *ddp)
{
	if (!ddp)
		return;
	if (!ddp->no_sync && (atomic_load(&ddp->stepping) || ddp->joining == DDP_IN_STEP)) {
		char text[DDP_TEXT_BYTES];
		snprintf(text, sizeof text,
			 "rank %d called ls_ddp_close in the middle of a backward pass",
			 ddp_world_rank(ddp, ddp->rank));
		ls_status status = ls_group_abort(ddp->group, text);
		if (status == LS_OK)
			status = ddp_wait_all(ddp); /* nobody touches the buckets after this */
	}
	free_all(ddp);
}

/* ---- what the caller may ask, and set between steps ---- */

static bool has_parameter(const ls_ddp *ddp, int parameter)
{
	return ddp && parameter >= 0 && parameter < ddp->parameter_count;
}

void *ls_ddp_gradient(const ls_ddp *ddp, int parameter)
{
	if (!has_parameter(ddp, parameter))
		return NULL;
	const struct ddp_parameter *p = &ddp->parameters[parameter];
	return ddp->buckets[p->bucket].memory + p->offset;
}

int ls_ddp_bucket(const ls_ddp *ddp, int parameter)
{
	return has_parameter(ddp, parameter) ? ddp->parameters[parameter].bucket : -1;
}

static ls_status check_between(const char *call, const ls_ddp *ddp)
{
	if (!ddp)
		return ddp_bad(call, "ddp", 0, "not NULL");
	if (atomic_load(&ddp->stepping))
		return ddp_bad(call, "ddp", 1, "between steps: call ls_ddp_finish first");
	return LS_OK;
}

ls_status ls_ddp_no_sync(ls_ddp *ddp, int on)
{
	ls_status status = check_between("ls_ddp_no_sync", ddp);
	if (status != LS_OK)
		return status;
	if (ddp->joining == DDP_IN_STEP)
		return ddp_bad("ls_ddp_no_sync", "on", on, "set before ls_ddp_join_step, not after");
	ddp->no_sync = on != 0;
	return LS_OK;
}

ls_status ls_ddp_zero_gradients(ls_ddp *ddp)
{
	ls_status status = check_between("ls_ddp_zero_gradients", ddp);
	if (status == LS_OK)
		ddp_zero_buckets(ddp);
	return status;
}
