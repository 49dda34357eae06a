# SPDX-License-Identifier: BSD-3-Clause
"""Handles of operations, as torch.distributed wants them.

    handle is freed == the status is known and waiters == 0

So no thread waits for a handle that was freed. A Work exists before its operation begins (that of a blocking call, if a
signal ends the wait), and keeps what the operation needs: a signal handler may raise an exception between any two steps,
also after the library has begun the operation and before its call has returned. A future is made only if it is
requested, and then completed by a thread of the group, the completer.

    the status is known → the error is known, and the results are where the caller wants them

So the status may be read without the lock. If a handler raises while results are copied, the status stays unknown, and
the next wait copies them again. A handler that itself waits for the operation then copies them, too.
"""

import _thread
import os
import signal
import threading
import traceback
from collections import deque
from functools import partial
from threading import get_ident

import torch
from torch._C._distributed_c10d import Work as _Work
from torch.autograd import profiler

from lockstep import errors
from lockstep._library import C, OK, PENDING
from lockstep._sites import called_by_library
from lockstep.torch import _profile

# Code of this package and of PyTorch, of which some runs within its functions, such as a device by default.
_NOT_OF_PROGRAMS = tuple(os.path.join(os.path.dirname(module.__file__), "") for module in (errors, torch))


def milliseconds(timeout):
    """Of a timedelta as PyTorch gives it: 0 for none."""
    if timeout is None:
        return 0
    seconds = timeout.total_seconds()
    return min(max(int(seconds * 1e3), 1), 0xFFFFFFFF) if seconds > 0 else 0


class Work(_Work):
    """An operation that is under way or complete.

    options where the library puts the handle; there is none before the operation begins, and after it is freed
    result  tensors, the value of the future
    keep    what must live as long as the operation: buffers, counts, the message
    finish  called after success, to bring results where the caller wants them; None: they are there. It can be called
            again, as a handler of a signal may interrupt it
    label   where it was called, if that is known
    """

    call = None  # its name, if the profiler has shown the call
    is_message = False

    def __init__(self, communicator, options, result=(), keep=None, finish=None, label=None):
        super().__init__()
        self._communicator = communicator
        self._options = options
        self._result = result
        self._keep = keep
        self._finish = finish
        self._label = label
        self._waiters = 0
        self._status = None
        self._error = None
        self._future = None
        self._base = None  # completes the future; None: it is complete, or nobody has asked for one
        self._awaited = False  # the completer waits for it
        communicator.sweep()
        # Handles of short messages are shared: each keeps what is under way, and those are over.
        communicator.pending[id(self)] = self

    def __str__(self):
        return f"called from {self._label.decode(errors='replace')}" if self._label else "of an unknown place"

    # ---- the end ----

    def _over(self, status):
        """Called with the lock held, by the first thread that learns that the operation is complete."""
        if status != OK:
            self._error = self._communicator.error(status)
        elif self._finish is not None:
            try:
                self._finish()
            except Exception as error:
                if _is_of_handler(error):
                    raise
                self._error = error  # wait() and the future raise it
        if self._future is not None:
            self._communicator.lost = self._communicator.lost or self._error
        self._finish = self._keep = None
        self._status = status
        self._communicator.pending.pop(id(self), None)

    def attach(self, finish, back):
        """Before it begins: more to do when it is over, with the place of the call as argument; `back` gives what its
        result is then."""
        before, self._result = self._finish, back(self._result)

        def both():
            if before is not None:
                before()
            finish(self._label)

        self._finish = both

    def _leave(self, status):
        with self._communicator.lock:
            self._waiters -= 1
            if status != PENDING and self._status is None:
                self._over(status)
            if self._status is not None and self._waiters == 0:
                handle, self._options.handle = self._options.handle, None  # once: whoever comes between finds None
                if handle is not None:
                    C.ls_request_free(handle)
        self._complete()

    def _complete(self):
        """Completes the future, in the first thread that sees that the operation is complete. Its callbacks run here."""
        if self._base is None or self._status is None:
            return
        base = None
        try:
            with self._communicator.lock:
                base, self._base = self._base, None
            if base is not None:
                base.set_result(None)
        except BaseException:  # of a handler: it must not take the future with it
            if base is not None and not base.done():
                base.set_result(None)
            raise

    def _enter(self):
        """False: it is over, or was never begun."""
        with self._communicator.lock:
            if self._status is not None or self._options.handle is None:
                return False
            self._waiters += 1
            return True

    def _visit(self, ask, before=None):
        """Asks the library for the status, unless that is known; `before` is called when it has answered."""
        communicator, me = self._communicator, get_ident()
        try:
            communicator.waiting.append(me)
            entered, status = self._enter(), PENDING
            try:
                if entered:
                    status = ask(self._options.handle)
            finally:
                if before is not None:
                    before()
                if entered:
                    self._leave(status)
        finally:
            communicator.waiting.remove(me)
            if communicator.ending is not None:
                communicator.left()

    def begin(self, function, *arguments):
        """Calls a function of the library that gives its handle, with the group first: itself."""
        communicator, me = self._communicator, get_ident()
        try:
            communicator.inside.append(me)
            status = function(communicator.handle, *arguments)
            if status != OK:
                raise communicator.error(status)
        except BaseException:
            if self._options.handle is None:
                communicator.pending.pop(id(self), None)
            raise
        finally:
            communicator.inside.remove(me)
            if communicator.ending is not None:
                communicator.left()
        return self

    def is_under_way(self):
        return not self.is_completed() and self._options.handle is not None

    def _await(self, timeout_ms=0):
        """Whether it is over."""
        if self._status is None:
            self._visit(partial(self._communicator.wait, timeout_ms=timeout_ms))
        return self._status is not None

    def outlast(self):
        """Returns when it is over; its error is raised."""
        self._await()
        if self._error is not None:
            raise self._error.with_traceback(None)

    # ---- what torch.distributed asks ----

    def wait(self, timeout=None):
        shown = _profile.of_wait(self) if profiler._is_profiler_enabled else None
        over = self._await(milliseconds(timeout))
        if shown is not None:
            shown.end()
        if not over:
            raise errors.TimedOut(f"the wait's own limit of {timeout} is over; the operation goes on")
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        if self._status is None:
            self._visit(C.ls_test)
        return self._status is not None

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error if self.is_completed() else None

    def result(self):
        return list(self._result)

    def get_future(self):
        if self._communicator.awaits or (self._is_half() and called_by_library("get_future")):
            self.outlast()
        with self._communicator.lock:
            if self._future is None:
                self._communicator.lost = self._communicator.lost or self._error
                if self._status is not None and self._error is None:
                    self._future = _complete_future(self._result)
                    return self._future
                base = torch.futures.Future()
                self._future, self._base = base.then(self._outcome), base
        # Once more if a handler has raised before it was done: then the Work may be there twice.
        if self._status is None and not self._awaited:
            self._communicator_completer().put(self)
            self._awaited = True
        self._complete()
        return self._future

    def _is_half(self):
        """Whether DistributedDataParallel's hook FP16_COMPRESS may have asked for it. That is C++, and takes nothing but a
        list of tensors as C++ has it."""
        return bool(self._result) and self._result[0].dtype is torch.float16

    def has_future(self):
        return self._future is not None

    def settle(self, before=None):
        """Returns when it is over, and the future complete, however it ended. `before` is called in between."""
        shown = _profile.of_wait(self) if profiler._is_profiler_enabled else None
        self._visit(self._communicator.wait, before)
        if shown is not None:
            shown.end()
        self._complete()

    def _outcome(self, _):
        if self._error is not None:
            raise self._error.with_traceback(None)
        return list(self._result)

    def _communicator_completer(self):
        communicator = self._communicator
        with communicator.lock:
            if communicator.completer is None:
                communicator.completer = Completer()
            return communicator.completer


def _is_of_handler(error):
    """Whether a handler of a signal has raised it, in the middle of what is done here: its trace leads into code of the
    program, or into a handler of PyTorch, as its DataLoader has one."""
    if threading.current_thread() is not threading.main_thread():
        return False
    installed = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(code in installed or not code.co_filename.startswith(_NOT_OF_PROGRAMS) for code in codes)


def bring(finish):
    """For a blocking call. A handler that raises meanwhile ends the call, but its results are there, as they will be if a
    handler interrupts the operation itself."""
    try:
        finish()
    except BaseException as error:
        if not isinstance(error, Exception) or _is_of_handler(error):
            finish()
        raise


def _same(tensors):
    return tensors


def _complete_future(tensors):
    """Of the type that C++ wants, a list of tensors. From Python only a future that is complete can be made of it, and an
    empty list has no type: a barrier's is a list of Python, as that of an operation which was under way."""
    if not tensors:
        future = torch.futures.Future()
        future.set_result([])
        return future
    return torch.jit.fork(_same, list(tensors))


class Several(_Work):
    """Works that are waited for together."""

    def __init__(self, works):
        super().__init__()
        self._works = works

    def wait(self, timeout=None):
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return all([work.is_completed() for work in self._works])

    def is_success(self):
        return all([work.is_success() for work in self._works])

    def exception(self):
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def result(self):
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self):
        if not self._works:
            return _complete_future(())
        futures = [work.get_future() for work in self._works]
        return torch.futures.collect_all(futures).then(
            lambda all_: [tensor for future in all_.value() for tensor in future.value()]
        )


class Completer:
    """Completes the futures of a group in the order in which they were asked for, which is that of its operations.

    One thread at a time waits, the leader. What is attached to a future is run by the thread that completes it,
    and may itself wait for a later one; so the leader first makes sure that another thread takes its place. One
    thread without work stays for that; further ones end.
    """

    def __init__(self):
        self._lock = threading.RLock()  # `with` a Condition runs Python code, in which a handler may raise
        self._condition = threading.Condition(self._lock)
        self._queue = deque()
        self._led = False
        self._called = False  # a thread has been called to lead, and has not come yet
        self._idle = False  # a thread waits until it is called
        self._stopped = False
        self._threads = []

    def put(self, work):
        with self._lock:
            self._queue.append(work)
            self._call_leader()

    def stop(self):
        """Returns when all is completed."""
        with self._lock:
            self._stopped = True
            self._condition.notify_all()
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def _call_leader(self):
        if self._led or self._called or not self._queue:
            return
        if self._idle:
            self._condition.notify()
        else:
            thread = threading.Thread(target=self._run, name="lockstep-futures", daemon=True)
            # start() waits in Python code that an exception of a handler breaks; only the main thread runs handlers.
            _thread.start_new_thread(self._start, (thread,))
        # Not before: if a handler raises meanwhile, one thread too many comes, and not one too few.
        self._called = True

    def _start(self, thread):
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads: whoever asks next tries again
            self._called = False
            raise

    def _pass_on(self):
        with self._lock:
            self._led = False
            self._call_leader()

    def _run(self):
        self._threads.append(threading.current_thread())
        while True:
            work = self._next()
            if work is None:
                self._threads.remove(threading.current_thread())
                return
            work.settle(self._pass_on)
            del work  # a thread that sleeps keeps no tensors

    def _next(self):
        """What the thread waits for as the leader; None: it is to end."""
        with self._lock:
            while self._led or not self._queue:
                if self._idle or self._stopped and not self._queue:
                    return None
                self._idle = True
                self._condition.wait()
                self._idle = False
            self._led, self._called = True, False
            return self._queue.popleft()
