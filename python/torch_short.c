/* SPDX-License-Identifier: BSD-3-Clause
 * The short way of torch.distributed's all_reduce: a blocking sum of one tensor of the host whose
 * elements lie in a row, looked at, called and recorded without the interpreter. Whatever is
 * different goes the way of _collectives.py, which does all the rest and means the same.
 *
 * A library of its own, as liblockstep.so knows nothing of Python; optional, as it wants Python's
 * headers when it is built. It keeps to Python's limited API, so one build serves all versions. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <stdbool.h>

#include "lockstep/collective.h"
#include "lockstep/request.h"
#include "dlpack.h"

typedef ls_status allreduce_function(ls_group *, const void *, void *, uint64_t, ls_dtype,
				     ls_reduce_op, const struct ls_call_options *);

/* What _collectives.py hands over once, and names that are looked up at each call. */
static struct {
	PyObject *options_class;   /* AllreduceOptions */
	PyObject *tensor_class;    /* torch.Tensor */
	PyObject *parameter_class; /* torch.nn.Parameter */
	PyObject *sum;             /* ReduceOp.SUM */
	PyObject *profiler;        /* the module torch.autograd.profiler */
	PyObject *here;            /* _sites.here */
	PyObject *addresses;       /* _sites.addresses */
	allreduce_function *allreduce;
	const struct dlpack_exchange *tensors;
} torch;

/* clang-format off */
#define NAMES(X) \
	X(asyncOp) X(timeout) X(reduceOp) X(is_neg) X(_is_profiler_enabled) X(_limit) \
	X(communicator) X(handle) X(_group) X(inside) X(ending) X(left) X(error) \
	X(_goes_on) X(outlast)
/* clang-format on */
#define NAME_FIELD(name) PyObject *name;
static struct {
	NAMES(NAME_FIELD)
} names;

struct call {
	PyObject *self; /* the Collectives */
	PyObject *tensors;
	PyObject *tensor;
	PyObject *communicator;
	ls_group *group;
	void *where;
	uint64_t count;
	ls_dtype dtype;
	uint32_t timeout_ms;
	PyObject *label; /* bytes or None */
};

/* ---- whether it is a call of this sort; with an exception where a look fails ---- */

static bool same(PyObject *owner, PyObject *name, PyObject *wanted)
{
	PyObject *value = PyObject_GetAttr(owner, name);
	bool same = value == wanted;
	Py_XDECREF(value);
	return same;
}

/* Of real numbers that the library sums as it finds them; float16 has exceptions. */
static bool dtype_of(struct dlpack_dtype given, ls_dtype *out)
{
	static const struct {
		uint8_t code, bits;
		ls_dtype dtype;
	} known[] = {
		{DLPACK_FLOAT, 32, LS_FLOAT32}, {DLPACK_BFLOAT, 16, LS_BFLOAT16},
		{DLPACK_FLOAT, 64, LS_FLOAT64}, {DLPACK_INT, 64, LS_INT64},
		{DLPACK_INT, 32, LS_INT32},     {DLPACK_INT, 16, LS_INT16},
		{DLPACK_INT, 8, LS_INT8},       {DLPACK_UINT, 8, LS_UINT8},
		{DLPACK_UINT, 16, LS_UINT16},   {DLPACK_UINT, 32, LS_UINT32},
		{DLPACK_UINT, 64, LS_UINT64},   {DLPACK_BOOL, 8, LS_BOOL},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (given.code == known[i].code && given.bits == known[i].bits && given.lanes == 1) {
			*out = known[i].dtype;
			return true;
		}
	return false;
}

/* Whether the elements lie in a row; how many in *count. */
static bool is_in_a_row(const struct dlpack_tensor *tensor, uint64_t *count)
{
	int64_t expected = 1;
	bool in_a_row = true;
	for (int i = tensor->ndim - 1; i >= 0; i--) {
		in_a_row &= tensor->shape[i] == 1 || tensor->strides[i] == expected;
		expected *= tensor->shape[i];
	}
	*count = (uint64_t)expected;
	return in_a_row || expected == 0;
}

static bool takes_tensor(struct call *call)
{
	PyObject *kind = (PyObject *)Py_TYPE(call->tensor);
	if (kind != torch.tensor_class && kind != torch.parameter_class)
		return false;
	struct dlpack_tensor seen;
	if (torch.tensors->describe(call->tensor, &seen) != 0) {
		PyErr_Clear(); /* such as a sparse one: the long way says what of it */
		return false;
	}
	if (seen.device.type != DLPACK_CPU || !dtype_of(seen.dtype, &call->dtype) ||
	    !is_in_a_row(&seen, &call->count))
		return false;
	call->where = (char *)seen.data + seen.byte_offset;
	PyObject *negated = PyObject_CallMethodObjArgs(call->tensor, names.is_neg, NULL);
	Py_XDECREF(negated);
	return negated == Py_False;
}

/* A time limit other than that of the last call goes the long way, which notes it. */
static bool takes_options(struct call *call, PyObject *options)
{
	if ((PyObject *)Py_TYPE(options) != torch.options_class ||
	    !same(options, names.asyncOp, Py_False) ||
	    !same(torch.profiler, names._is_profiler_enabled, Py_False))
		return false;
	PyObject *limit = PyObject_GetAttr(call->self, names._limit);
	PyObject *timeout = limit ? PyObject_GetAttr(options, names.timeout) : NULL;
	PyObject *op = timeout ? PyObject_GetAttr(options, names.reduceOp) : NULL;
	bool takes = op &&
		     PyObject_RichCompareBool(timeout, PyTuple_GetItem(limit, 0), Py_EQ) == 1 &&
		     PyObject_RichCompareBool(op, torch.sum, Py_EQ) == 1;
	if (takes)
		call->timeout_ms = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(limit, 1));
	Py_XDECREF(op);
	Py_XDECREF(timeout);
	Py_XDECREF(limit);
	return takes && !PyErr_Occurred();
}

/* With this thread inside, so that the group stays open. */
static bool takes_group(struct call *call)
{
	PyObject *handle = PyObject_GetAttr(call->communicator, names.handle);
	PyObject *group = PyObject_GetAttr(call->communicator, names._group);
	bool is_open = handle && group && handle != Py_None && group != Py_None;
	call->group = is_open ? PyLong_AsVoidPtr(group) : NULL;
	Py_XDECREF(group);
	Py_XDECREF(handle);
	return call->group != NULL;
}

/* ---- the call ---- */

/* Takes this thread out of those that are inside a call of the communicator. */
static void leave(PyObject *inside, PyObject *me)
{
	for (Py_ssize_t i = PyList_Size(inside) - 1; i >= 0; i--)
		if (PyObject_RichCompareBool(PyList_GetItem(inside, i), me, Py_EQ) == 1) {
			PySequence_DelItem(inside, i);
			return;
		}
}

/* A handler of a signal is due. It may raise, and the operation goes on then; else it is waited
 * for. The Work that the operation needs for either is made before Python code can end the call. */
static PyObject *outlast(const struct call *call, ls_request *op)
{
	int raised = PyErr_CheckSignals();
	PyObject *type = NULL, *value = NULL, *trace = NULL;
	PyErr_Fetch(&type, &value, &trace);
	PyObject *handle = PyLong_FromVoidPtr(op);
	PyObject *work = handle ? PyObject_CallMethodObjArgs(call->self, names._goes_on, handle,
							     call->tensors, call->label, NULL)
				: NULL;
	Py_XDECREF(handle);
	if (!work)
		Py_INCREF(call->tensor); /* another handler has raised, and the operation goes on */
	PyObject *done = NULL;
	if (raised)
		PyErr_Restore(type, value, trace);
	else if (work)
		done = PyObject_CallMethodObjArgs(work, names.outlast, NULL);
	Py_XDECREF(work);
	return done;
}

static PyObject *raise_status(const struct call *call, ls_status status)
{
	PyObject *error = PyObject_CallMethod(call->communicator, "error", "i", (int)status);
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
	return NULL;
}

/* None, or NULL with an exception. */
static PyObject *reduce(const struct call *call)
{
	PyObject *address = PyObject_GetItem(torch.addresses, call->label);
	if (!address)
		return NULL;
	ls_request *op = NULL;
	struct ls_call_options options = {
		.size = sizeof options,
		.timeout_ms = call->timeout_ms,
		.resumable = 1,
		.request = &op,
		.label = address == Py_None ? NULL : PyLong_AsVoidPtr(address),
		.factor = 1.0,
	};
	Py_DECREF(address);
	PyThreadState *state = PyEval_SaveThread();
	ls_status status = torch.allreduce(call->group, call->where, call->where, call->count,
					   call->dtype, LS_SUM, &options);
	PyEval_RestoreThread(state);
	if (status == LS_PENDING)
		return outlast(call, op);
	if (status != LS_OK)
		return raise_status(call, status);
	Py_RETURN_NONE;
}

/* With this thread in `inside`, so that a handler of a signal, which runs between two steps of
 * Python, closes the group only after the call. None; NULL without an exception if the group is
 * closed. */
static PyObject *reduce_inside(struct call *call)
{
	PyObject *inside = PyObject_GetAttr(call->communicator, names.inside);
	PyObject *me = inside ? PyLong_FromUnsignedLong(PyThread_get_thread_ident()) : NULL;
	if (!me || PyList_Append(inside, me) != 0) {
		Py_XDECREF(me);
		Py_XDECREF(inside);
		return NULL;
	}
	PyObject *done = takes_group(call) ? reduce(call) : NULL;
	PyObject *type = NULL, *value = NULL, *trace = NULL;
	PyErr_Fetch(&type, &value, &trace);
	leave(inside, me);
	Py_DECREF(me);
	Py_DECREF(inside);
	if (!same(call->communicator, names.ending, Py_None)) {
		PyObject *told = PyObject_CallMethodObjArgs(call->communicator, names.left, NULL);
		Py_XDECREF(told);
		if (!told)
			Py_CLEAR(done);
	}
	if (type)
		PyErr_Restore(type, value, trace);
	return done;
}

/* (Collectives, list of one tensor, options) → whether it was a call of this sort, and is done. */
static PyObject *allreduce(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
	(void)module;
	if (count != 3 || !PyList_Check(arguments[1]) || PyList_Size(arguments[1]) != 1)
		Py_RETURN_FALSE;
	struct call call = {.self = arguments[0], .tensors = arguments[1]};
	call.tensor = PyList_GetItem(call.tensors, 0);
	Py_INCREF(call.tensor); /* another thread may change the list */
	call.communicator = PyObject_GetAttr(call.self, names.communicator);
	PyObject *done = NULL;
	if (call.communicator && takes_options(&call, arguments[2]) && takes_tensor(&call)) {
		call.label = PyObject_CallFunction(torch.here, "i", 1);
		done = call.label ? reduce_inside(&call) : NULL;
		Py_XDECREF(call.label);
	}
	Py_XDECREF(call.communicator);
	Py_DECREF(call.tensor);
	Py_XDECREF(done);
	return PyErr_Occurred() ? NULL : PyBool_FromLong(done != NULL);
}

/* ---- making it ---- */

static bool find_names(void)
{
#define NAME_MAKE(name) &&(names.name = PyUnicode_InternFromString(#name))
	return true NAMES(NAME_MAKE);
}

/* NULL without an exception: this PyTorch does not describe its tensors to C. */
static const struct dlpack_exchange *exchange_of(PyObject *tensor_class)
{
	PyObject *capsule = PyObject_GetAttrString(tensor_class, DLPACK_EXCHANGE_ATTRIBUTE);
	const struct dlpack_exchange *found =
		capsule ? PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE_CAPSULE) : NULL;
	Py_XDECREF(capsule); /* the type holds it, for ever */
	PyErr_Clear();
	return found && found->version.major == DLPACK_MAJOR && found->describe ? found : NULL;
}

LS_EXPORT PyObject *lockstep_torch_allreduce(PyObject *given);

/* The function allreduce; None if this PyTorch does not describe its tensors to C. Called once,
 * with the GIL held. given: (AllreduceOptions, Tensor, Parameter, ReduceOp.SUM, the profiler's
 * module, _sites.here, _sites.addresses, the address of ls_allreduce). */
PyObject *lockstep_torch_allreduce(PyObject *given)
{
	static PyMethodDef method = {.ml_name = "allreduce", .ml_flags = METH_FASTCALL};
	unsigned long long address = 0;
	if (!find_names() ||
	    !PyArg_ParseTuple(given, "OOOOOOOK", &torch.options_class, &torch.tensor_class,
			      &torch.parameter_class, &torch.sum, &torch.profiler, &torch.here,
			      &torch.addresses, &address))
		return NULL;
	Py_INCREF(given); /* and what is in it, for ever */
	torch.allreduce = (allreduce_function *)(uintptr_t)address;
	torch.tensors = exchange_of(torch.tensor_class);
	if (!torch.tensors)
		Py_RETURN_NONE;
	method.ml_meth = (PyCFunction)(void (*)(void))allreduce;
	return PyCFunction_NewEx(&method, NULL, NULL);
}
