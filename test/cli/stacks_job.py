# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for stacks_test.py: stacks_job.py PATH_OF_LIBLOCKSTEP MODE. All meet once; then rank 1 does something else than
the others, which wait for it. In each function, the line where it stays ends with a comment that begins with "here"."""
import asyncio
import ctypes
import os
import select
import signal
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.ls_group_open.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
library.ls_barrier.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
group = ctypes.c_void_p()
running = threading.Semaphore(0)


def stay():
    running.release()
    select.select(  # here stay
        [], [], [])


def generate():
    yield stay()  # here generate


class Träger:
    def füttern(self):
        def innen():
            for _ in generate():  # here innen
                pass
        innen()  # here füttern


async def wait_inside():
    stay()  # here wait_inside


async def wait_outside():
    await wait_inside()  # here wait_outside


def call_next(value):
    return value + 1


def spin():
    value = 0
    running.release()
    while True:
        value = call_next(value)  # here spin


def recurse(depth):
    if depth:
        recurse(depth - 1)  # here recurse
    stay()


def meet():
    status = library.ls_barrier(group, None)  # here meet
    assert status == 0, status


def start(*functions):
    for function in functions:
        threading.Thread(target=function, daemon=True, name=function.__name__).start()
    for _ in functions:
        running.acquire()


def cross_locks():
    """Two threads take two mutexes, each the other one's first; a third one takes its own twice."""
    c = ctypes.CDLL(None)
    own = (ctypes.c_long * 8)()
    threading.Thread(target=lambda: [c.pthread_mutex_lock(own) for _ in range(2)], daemon=True).start()
    locks = [(ctypes.c_long * 8)() for _ in range(2)]
    both = threading.Barrier(2)

    def cross(first, second):
        c.pthread_mutex_lock(first)
        both.wait()
        running.release()
        c.pthread_mutex_lock(second)  # here cross
    threading.Thread(target=cross, args=locks, daemon=True).start()
    print('ready', flush=True)
    cross(*reversed(locks))  # here cross_locks


def lade_stapel(mode):
    if mode == 'threads':
        start(Träger().füttern, lambda: asyncio.run(wait_outside()), lambda: recurse(100))
        meet_in_thread = threading.Thread(target=meet)  # the last call is not the main thread's, which is told all the same
        meet_in_thread.start()
        meet_in_thread.join()
    elif mode == 'spin':
        start(spin)
    elif mode == 'caller':
        def calls():
            meet()
            stay()
        start(calls)
    elif mode == 'locks':
        cross_locks()
    elif mode == 'hidden':
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    print('ready', flush=True)
    signal.pause()  # here lade_stapel


assert library.ls_group_open(None, ctypes.byref(group)) == 0
meet()
if os.environ['RANK'] == '1':
    lade_stapel(sys.argv[2])
if sys.argv[2] in ('threads', 'caller'):
    meet()
print('ready', flush=True)
meet()  # here module
