/* SPDX-License-Identifier: BSD-3-Clause
 * Which parameter goes into which bucket: from the last one to the first, as the backward pass
 * finishes them. Each dtype fills a bucket of its own; buckets are in the order in which they
 * become complete. */
#include <stdio.h>
#include <stdlib.h>

#include "ddp/ddp_private.h"

enum { DTYPES = LS_COMPLEX128 + 1 };

/* The bucket that a dtype fills at the moment, -1: none; and how large the bucket is to become. */
struct filling {
	int bucket;
	uint64_t limit;
};

static void add_parameter(struct ls_ddp *ddp, int index, struct filling *filling)
{
	struct ddp_parameter *parameter = &ddp->parameters[index];
	if (filling->bucket < 0) {
		filling->bucket = ddp->bucket_count++;
		ddp->buckets[filling->bucket] =
			(struct ddp_bucket){.dtype = parameter->dtype, .first = index};
	}
	struct ddp_bucket *bucket = &ddp->buckets[filling->bucket];
	parameter->bucket = filling->bucket;
	parameter->offset = bucket->bytes;
	bucket->bytes += parameter->bytes;
	bucket->last = index;
	bucket->members++;
	if (bucket->bytes >= filling->limit)
		*filling = (struct filling){-1, ddp->bucket_bytes};
}

static int compare_last(const void *a, const void *b)
{
	const struct ddp_bucket *x = a, *y = b;
	return (x->last < y->last) - (x->last > y->last);
}

static void write_label(const struct ls_ddp *ddp, int number)
{
	struct ddp_bucket *bucket = &ddp->buckets[number];
	char first[DDP_NAME_BYTES], last[DDP_NAME_BYTES];
	ddp_text_name(ddp->parameters[bucket->first].name, first, sizeof first);
	ddp_text_name(ddp->parameters[bucket->last].name, last, sizeof last);
	bool one = bucket->members == 1;
	snprintf(bucket->label, sizeof bucket->label, "bucket %d ('%s'%s%s%s)", number, first,
		 one ? "" : " to '", one ? "" : last, one ? "" : "'");
}

bool ddp_fill_buckets(struct ls_ddp *ddp)
{
	struct filling fillings[DTYPES];
	for (int d = 0; d < DTYPES; d++)
		fillings[d] = (struct filling){-1, ddp->first_bytes};
	ddp->bucket_count = 0;
	for (int i = ddp->parameter_count - 1; i >= 0; i--)
		add_parameter(ddp, i, &fillings[ddp->parameters[i].dtype]);
	/* The last member identifies a bucket, whatever the bucket's place. */
	int *members = calloc((size_t)ddp->parameter_count, sizeof *members);
	if (!members)
		return false;
	for (int i = 0; i < ddp->parameter_count; i++)
		members[i] = ddp->buckets[ddp->parameters[i].bucket].last;
	qsort(ddp->buckets, (size_t)ddp->bucket_count, sizeof *ddp->buckets, compare_last);
	for (int k = 0; k < ddp->bucket_count; k++)
		ddp->parameters[ddp->buckets[k].last].bucket = k;
	for (int i = 0; i < ddp->parameter_count; i++)
		ddp->parameters[i].bucket = ddp->parameters[members[i]].bucket;
	free(members);
	for (int k = 0; k < ddp->bucket_count; k++)
		write_label(ddp, k);
	return true;
}
