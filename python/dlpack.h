/* SPDX-License-Identifier: BSD-3-Clause
 * What DLPack 1.2 and later promise of a tensor library's table of functions: how C reads where a
 * tensor lies without a call through Python. Declared here as far as it is used, as no package of
 * the systems we build on has this version. Source: dmlc.github.io/dlpack, "C API". */
#ifndef LOCKSTEP_PYTHON_DLPACK_H
#define LOCKSTEP_PYTHON_DLPACK_H

#include <stdint.h>

enum dlpack_device { DLPACK_CPU = 1 };
enum dlpack_code {
	DLPACK_INT = 0,
	DLPACK_UINT = 1,
	DLPACK_FLOAT = 2,
	DLPACK_BFLOAT = 4,
	DLPACK_BOOL = 6,
};

/* DLDataType: `lanes` elements of `bits` bits; of tensors 1. */
struct dlpack_dtype {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
};

/* DLTensor. Of `ndim` dimensions; strides are in elements. Shape and strides belong to the tensor
 * and are NULL without dimensions. */
struct dlpack_tensor {
	void *data;
	struct {
		int32_t type; /* enum dlpack_device */
		int32_t id;
	} device;
	int32_t ndim;
	struct dlpack_dtype dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
};

enum { DLPACK_MAJOR = 1 }; /* structs with another one may differ in any way */

/* DLPackExchangeAPI: in a capsule of this name, which is an attribute of the tensor's type. */
#define DLPACK_EXCHANGE_ATTRIBUTE "__dlpack_c_exchange_api__"
#define DLPACK_EXCHANGE_CAPSULE "dlpack_exchange_api"

struct dlpack_exchange {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	const void *older;
	void *allocate;
	void *from_object;
	void *to_object;
	/* Describes a tensor of Python, whose reference the caller holds. 0, or -1 with an
	 * exception of Python. */
	int (*describe)(void *object, struct dlpack_tensor *out);
	void *stream;
};

#endif
