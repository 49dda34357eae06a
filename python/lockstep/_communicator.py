# SPDX-License-Identifier: BSD-3-Clause
"""One group of the C library: opening and making, waiting, errors, closing."""

import _thread
import ctypes
import os
import re
import threading
import time
from functools import partial
from queue import Empty, SimpleQueue

from lockstep import _sites, errors
from lockstep._library import ABORTED, C, OP_OPTIONS_BYTES, OK, PENDING, Failure, GroupOptions, OpOptions

# Behind a text of the library, which speaks of C programs.
_IN_PYTORCH = {
    errors.TimedOut: "In PyTorch it is the timeout of init_process_group or new_group.",
    errors.Forked: "Only the process that made the group can communicate; a worker of a DataLoader is a forked child of it.",
}
_SPLITS = (
    "In PyTorch all_to_all_single with split sizes is another operation than without: either all ranks give split "
    "sizes, or none does. Lists of equal sizes are allowed."
)
culprits = set()  # processes that are to blame for groups that were closed; 0: nobody
opened = set()  # those that are not closed: with what their operations need, also if the program lets go of all of it
SWEEP = 64  # with so many operations under way, the complete ones that nobody has waited for are dropped
# How often a thread looks for Ctrl-C while another one makes a group; and whether a thread has left a group that is being
# closed, as a handler of a signal may raise after it has left, and before it says so.
_SLICE_S = 0.05


def _in_pytorch(kind, text):
    more = _IN_PYTORCH.get(kind)
    if kind is errors.Mismatch and {"all-to-all", "all-to-allv"} <= set(re.findall(r"[\w-]+", text.split("\n", 1)[0])):
        more = _SPLITS
    return "\n".join(filter(None, [text.rstrip("\n"), more]))


def _made(make, inside, left):
    """(status, error message, handle) of make(pointer to the handle), a call that makes a group. The call does not return
    for a signal; so it runs in a thread of its own, and Ctrl-C ends the wait for it at once. If the call makes the group
    after that, the group is closed, or its other members would wait for this one. inside: as of a Communicator; left():
    tells that the thread has left it."""
    handle = ctypes.c_void_p()
    outcomes = []  # the call's result, and None if the caller has left: whichever is second closes the group

    def run():
        me = threading.get_ident()
        try:
            inside.append(me)
            try:
                status = make(ctypes.byref(handle))
                # The library keeps the message for the thread that has called.
                outcomes.append((status, "" if status == OK else last_error(), handle.value))
            except BaseException as error:
                outcomes.append(error)
            if outcomes[0] is None and handle.value:
                C.ls_group_close(handle)
        finally:
            inside.remove(me)
            left()

    if threading.current_thread() is not threading.main_thread():
        run()
    else:
        thread = threading.Thread(target=run, name="lockstep-open", daemon=True)
        try:
            thread.start()
            while thread.is_alive():
                thread.join(_SLICE_S)
        except BaseException:
            outcomes.append(None)
            if outcomes[0] is not None and handle.value:
                C.ls_group_close(handle)
            raise
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    return outcomes[0]


class Communicator:
    """A group that is open until close(). Threads: any, and handlers of signals, which run between any two steps.

    Each thread in a call of the library is in `inside`, or in `waiting` if it waits for a Work or asks for one, once
    for each such call, as a handler may call while its thread is in another one. Those in a local call, as finalisers
    make, are in `visits`. The group stays until all are empty. `children` are the groups that were made of it: they are
    closed before it, as the library closes them with it.
    """

    def __init__(self, handle, rank, size, parent=None):
        self.handle = ctypes.c_void_p(handle)  # of calls, without conversion; None once it is being closed
        self._group = handle  # the same, until it is closed
        self.rank = rank
        self.size = size
        self.parent = parent
        self.process = os.getpid()  # a forked child has nothing of its own to close
        self.inside = []
        self.waiting = []
        self.visits = []
        self.closers = []  # the thread that closes it
        self.ending = None  # True: a thread closes it, or will, and whoever leaves a call looks after that, in left()
        self.awaiting = []  # a queue of each thread that waits until others have left
        self.children = set()
        self.deferred = None  # why it is closed as soon as the thread that closes it is in no call
        self.pending = {}  # id → Work, so that buffers live as long as operations
        self.sweep_at = 2 * SWEEP
        self.lock = threading.RLock()  # of the works
        self.kept = None  # works of collectives that live on, while a list collects them
        self.shared = {}  # address → what deregisters the storage that was shared there when it ends
        self.told = False  # the library has said that memory could not be registered
        self.completer = None  # completes futures, once one was requested
        # In this backward pass, the first error of a Work whose future was requested: a future keeps only the text of an error.
        self.lost = None
        # A request for a future waits for the Work, because a backward pass has nothing else to do.
        self.awaits = False
        self.unfreed = []  # blocks that nobody looks at any more, freed while the group of all ranks is being closed
        self.closed = False
        opened.add(self)
        if parent is not None:
            self.root().children.add(self)

    def root(self):
        """The group of all ranks that it comes of."""
        root = self
        while root.parent is not None:
            root = root.parent
        return root

    # ---- making ----

    @classmethod
    def open(cls, rank, size, rendezvous, timeout_ms, open_timeout_ms):
        """The group of all ranks. rendezvous None: the launcher's environment says where they meet."""
        options = GroupOptions(
            size=ctypes.sizeof(GroupOptions),
            timeout_ms=timeout_ms,
            open_timeout_ms=open_timeout_ms,
            rank=rank,
            world_size=size,
            resume_after_signals=1,
            keep_memory=1,
            rendezvous=rendezvous.encode() if rendezvous else None,
        )
        status, why, handle = _made(partial(C.ls_group_open, ctypes.byref(options)), [], lambda: None)
        if status != OK:
            raise errors.class_of(status)(f"the world group cannot be opened: {why or text_of(status)}")
        return cls(handle, rank, size)

    def from_members(self, ranks, tag, timeout_ms, label):
        """A group of some ranks of this one, in this order; only they call it."""
        array = (ctypes.c_int * len(ranks))(*ranks)
        options = OpOptions(size=OP_OPTIONS_BYTES, tag=tag, label=_sites.addresses[label], timeout_ms=timeout_ms)
        make = partial(C.ls_group_from_members, self.handle, array, len(ranks), ctypes.byref(options))
        me = threading.get_ident()
        try:
            self.inside.append(me)
            status, why, handle = _made(make, self.inside, self.wake)
            if self.deferred is not None:  # a handler has destroyed this group meanwhile
                C.ls_group_close(handle)
                status = status or ABORTED
            if status != OK:
                raise self.error(status, why)
            return Communicator(handle, ranks.index(self.rank), len(ranks), self)
        finally:
            self.inside.remove(me)
            if self.ending is not None:
                self.left()

    # ---- calls that give no handle ----

    def enter(self, function, *arguments):
        """The status of a call that waits for the other ranks."""
        me = threading.get_ident()
        try:
            self.inside.append(me)
            return function(self.handle, *arguments)
        finally:
            self.inside.remove(me)
            if self.ending is not None:
                self.left()

    def visit(self, function, *arguments):
        """The status of a local call, from any thread, also of a finaliser; None if the group is not open. Memory is
        that of all groups which come of one, so another one of them will do."""
        me = threading.get_ident()
        try:
            self.visits.append(me)
            # No handler of a signal runs between the look at the handle and the call.
            if self.handle is not None:
                return function(self.handle, *arguments)
        finally:
            self.visits.remove(me)
            if self.ending is not None:
                self.wake()
        return self.parent.visit(function, *arguments) if self.parent is not None else None

    def free(self, address):
        """Gives a block of ls_alloc back, from any thread, also of a finaliser. Blocks may outlive all groups."""
        if self.visit(C.ls_free, address) is not None:
            return
        root = self.root()
        root.unfreed.append(address)
        if root.closed:
            root.free_late()

    def free_late(self):
        """Frees blocks that were returned while the group was being closed, or later: each block once, in any thread."""
        while True:
            try:
                address = self.unfreed.pop()
            except IndexError:
                return
            C.ls_free(None, address)

    def _ask(self, function, *arguments):
        """As visit, but of this group alone, and also while it is being closed."""
        me = threading.get_ident()
        try:
            self.visits.append(me)
            if self._group is not None:
                function(self._group, *arguments)
        finally:
            self.visits.remove(me)
            if self.ending is not None:
                self.wake()

    # ---- errors ----

    def _failure(self):
        """As ls_group_failure reports it; without a group the status is OK."""
        failure = Failure(size=ctypes.sizeof(Failure), rank=-1)
        self._ask(C.ls_group_failure, ctypes.byref(failure))
        return failure

    def failure(self):
        """Why the group is closed: (status, rank, operation, report)."""
        failure = self._failure()
        report = _sites.explain(failure.text.decode(errors="replace"))
        return failure.status, failure.rank, failure.operation, report

    def error(self, status, why=None):
        """The exception for a status that a call of this group returned. why: what was said of it, if another thread
        has called."""
        kind = errors.class_of(status)
        of_group = status is not None and issubclass(kind, (errors.GroupError, errors.ProcessError))
        if self._group is None or (self.handle is None and not of_group):
            return errors.BadArgument("the process group has been destroyed")
        if of_group:
            cause, rank, operation, report = self.failure()
            if cause != OK:
                kind = errors.class_of(cause)
                return kind(_in_pytorch(kind, report), rank, operation)
        return kind(_in_pytorch(kind, (last_error() if why is None else why) or text_of(status)))

    def check(self, status):
        if status != OK:
            raise self.error(status)

    # ---- waiting ----

    @staticmethod
    def wait(op, timeout_ms=0):
        """The status of an operation once it is over; PENDING after timeout_ms, if that is not 0. Signal handlers of
        Python run meanwhile."""
        if not timeout_ms:
            while True:
                status = C.ls_wait(op, 0)
                if status != PENDING:
                    return status
        end = time.monotonic() + timeout_ms / 1e3
        while True:
            left_ms = max(1, int((end - time.monotonic()) * 1e3))
            status = C.ls_wait(op, min(left_ms, 50))
            if status != PENDING or time.monotonic() >= end:
                return status

    def sweep(self):
        """Forgets operations that are complete and were not waited for: the oldest, up to the first one under way. Now and
        then it checks all of them, because messages overtake each other. The cost for each operation is small."""
        while len(self.pending) >= SWEEP:
            oldest = None
            # No other thread runs, and changes the dictionary, between the steps of this, as between those of next(iter()).
            for oldest in self.pending.values():
                break
            if oldest is None or not oldest.is_completed():
                break
            self.pending.pop(id(oldest), None)  # if a signal has kept the work from it
        if len(self.pending) >= self.sweep_at:
            for work in list(self.pending.values()):
                work.is_completed()
            self.sweep_at = 2 * max(SWEEP, len(self.pending))

    # ---- the end ----

    def abort(self, reason):
        self._ask(C.ls_group_abort, reason.encode(errors="replace"))

    def still_pending(self):
        """Works of operations that are not over."""
        return [work for work in list(self.pending.values()) if work.is_under_way()]

    def _others(self, threads):
        me = threading.get_ident()
        return any(thread != me for thread in list(threads))

    def _await_others(self, threads):
        """Returns when no other thread is in one of these calls."""
        mine = SimpleQueue()
        try:
            self.awaiting.append(mine)
            while self._others(threads):
                try:
                    mine.get(timeout=_SLICE_S)
                except Empty:
                    pass
        finally:
            if mine in self.awaiting:
                self.awaiting.remove(mine)

    def wake(self):
        """This thread has left a call, and others may wait for that."""
        for queue in list(self.awaiting):
            queue.put(None)

    def left(self):
        """After a call of a group that is ending."""
        self.wake()
        if self.deferred is not None:
            self.close_deferred()

    def close(self, reason):
        """Leaves the group. Operations under way end for all ranks with an error that gives the reason; threads that
        wait in it are waited for. Called by a handler of a signal while its own thread is in a call of the group, it
        aborts that one, and closes the group when that thread is out of it."""
        if self.process != os.getpid():
            self.handle = self._group = None
            return
        if self._group is None:
            self._await_others(self.closers)
            return
        self.ending = True
        if threading.get_ident() in self.inside + self.waiting:
            self.deferred = reason
            self.abort(reason)
            return
        if not self._close_children(reason):
            self.deferred = reason
            return
        self.handle = self.deferred = None
        if self.still_pending():
            self.abort(reason)
        elif self._others(self.inside):
            self.abort("a rank closed the group while it waited in it")
        # Those in waits leave by themselves, as no Work is under way any more; the completer is often among them.
        self._await_others(self.inside)
        self._close_children(reason)  # which a thread has made meanwhile
        for work in list(self.pending.values()):
            work.settle()
        self._await_others(self.waiting)
        if self.completer is not None:
            self.completer.stop()
        failure = self._failure()
        if not failure.host:  # on another host the number is another process'
            culprits.add(failure.pid)
        self._leave()

    def _leave(self):
        """The last step of close. If several threads close the group, one of them does it, and the others wait for it."""
        me = threading.get_ident()
        try:
            self.closers.append(me)
            group, self._group = self._group, None
            if group is not None:
                try:
                    self._await_others(self.visits)
                except BaseException:  # of a handler: whoever closes the group next does this
                    self._group = group
                    raise
                C.ls_group_close(group)
                self.closed = True
                opened.discard(self)
                self.root().children.discard(self)
                self.free_late()
        finally:
            self.closers.remove(me)
            self.wake()
        self._await_others(self.closers)

    def _close_children(self, reason):
        """False: a handler of a signal closes them, and its own thread is in a call of one."""
        for child in list(self.children):
            child.close(reason)
        return all(child.deferred is None for child in list(self.children))

    def close_deferred(self):
        """What a handler wanted to close meanwhile, and with it perhaps the group that this one comes of."""
        for communicator in (self, self.root()):
            reason = communicator.deferred
            if reason is not None and threading.get_ident() not in communicator.inside + communicator.waiting:
                communicator.close(reason)

    def is_open(self):
        """It belongs to this process, and its end has not come to the last step."""
        return self._group is not None and self.process == os.getpid()

    def let_go(self):
        """Nobody can call on the group any more: it is closed once its operations are over. A finaliser may call this, so
        another thread does it."""
        if self.is_open() and self.deferred is None:  # else the thread that is in a call of it closes it, and its root
            _thread.start_new_thread(self._close_behind, ())

    def _close_behind(self):
        for work in list(self.pending.values()):
            work.settle()
        self.close("the program let go of the group")


def last_error():
    """The message that the last failed call of this thread has printed on standard error."""
    text = ctypes.create_string_buffer(1024)
    return text.value.decode(errors="replace") if C.ls_last_error(text, len(text)) else ""


def text_of(status):
    return f"{C.ls_status_name(status).decode()}: {C.ls_status_text(status).decode()}"
