#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws how each exhibit deadlocks: timelines.py EXPLORE [FILE | --check]. Finds the first seed with which it does, replays that
schedule, and writes a row for each statement that a thread comes to: to FILE, which is doc/museum.md, or to the output. --check
only tells of each whether it shows who comes to what and stays where, and whether doc/museum.md has its description."""
import os
import re
import subprocess
import sys
import tempfile
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, '..', '..', 'doc', 'museum.md')
FRAME = re.compile(r'(\S+) \((\S+?):(\d+)\)$')
BLOCKED = re.compile(r'(?m)^thread (\d+), .*: blocked, (.*)\n((?:    .*\n)*)')
# What is part of a statement of an exhibit, and not one itself.
PARTS = ('exhibit_must', 'exhibit_launch_local', 'exhibit_launch_collective', 'exhibit_try_collective', 'exhibit_tell',
         'exhibit_await', 'scene_open', 'do_nothing')
ROOM = 100
INTRO = '''# How programs deadlock on devices

The exhibits of `test/museum`, as `make museum` found them on the simulated device of `test/sim`. Time runs downwards, and each
column is a thread. `●` marks a call that the thread makes, `✗` a call in which it stays for ever. A device's thread runs kernels.

- `launch_collective(stream, first, member, members, round)` launches one rank's part of a collective. Its kernel stores `round` in
  word `first + member`, and spins until the words from `first` to `first + members - 1` are there. `launch_local(stream)`
  launches a kernel that waits for nothing.
- `tell(word)` stores 1 in a word, and `await(rank, word)` waits for that: a message between ranks.
- `sim_...` are calls of the device's driver: `sim_await(stream, word, value)` lets a stream wait for a word, `sim_free` gives memory
  back, `sim_stream_sync` waits for a stream.

`make museum` also shows what Lockstep reports of a program with each deadlock, and how the same work ends on Lockstep. Its tests
check both.
'''

REMEDIES = {
    'allocator-lock':
        "Call the driver without the allocator's lock, as Lockstep's pool does. Known from [PyTorch PR "
        '22173](https://github.com/pytorch/pytorch/pull/22173), which was reverted.',
    'allocator-retry': 'The same, also where an allocation gives memory back.',
    'free-between-launches':
        'Give the driver no memory back between launches that belong together (`ls_launch_begin`). Known from [PyTorch issue '
        '50925](https://github.com/pytorch/pytorch/issues/50925).',
    'launch-excludes-free':
        'Put a free off until the device is done with the block, as `ls_device_free` does, instead of waiting with a lock held.',
    'retry-synchronises':
        'Send what the other rank needs before the allocation; or wait with a time limit, as `ls_device_alloc` does. Known from '
        '[TensorFlow PR 50699](https://github.com/tensorflow/tensorflow/pull/50699).',
    'lazy-pairs':
        'Make all connections when the group is opened, as Lockstep does. Known from [PyTorch PR '
        '129147](https://github.com/pytorch/pytorch/pull/129147).',
    'serial-lane':
        'Let messages to different ranks not wait for each other, as in Lockstep; or pass them to the library as one batch.',
    'opposite-order':
        'Launch the collectives of several groups in the same order on all ranks; the manual of NCCL demands it.',
    'failed-launch': 'A rank that gives up tells the others, as `ls_group_abort` does.',
    'abort-in-error-path': 'Tell the others of the error first, and wait for the device afterwards.',
    'lazy-loading': 'Load all kernels before the first collective (CUDA: `CUDA_MODULE_LOADING=EAGER`).',
    'callback-lock': 'Release the lock before waiting for the device.',
}

# The scheduler has no processes: this one is drawn by hand, from old_ways_ranks.c.
FORK = '''
## fork-with-lock

A process forks while another thread holds a lock. The child has the lock as it was, and not the thread that would give it back.
(Not from a schedule: `test/museum/old_ways_ranks.c` does this with real processes.)

```
┌ the process, second thread
│ ┌ the process, first thread
│ │ ┌ the child, its only thread
● │    pthread_mutex_lock(&allocator_lock)
│ ●    fork()
│ │ ✗  pthread_mutex_lock(&allocator_lock) — waits for a lock, for ever
```

**Remedy.** Use nothing of the parent in a forked child; Lockstep's calls return `LS_FORKED` there. Or start a new program.
'''

with open(os.path.join(HERE, 'exhibits.c'), encoding='utf-8') as file:
    SOURCE = file.read()
LINES = SOURCE.split('\n')


def statement(number):
    """The one that has this line, on one line."""
    first = last = number - 1
    while not re.search(r'[;{}:]\s*(/\*.*)?$|\*/$|\)$', LINES[first - 1]):
        first -= 1
    while not re.search(r'[;{]\s*(/\*.*)?$|^\s*(if|while|for) .*\)$', LINES[last]) and last < first + 4:
        last += 1
    text = re.sub(r'/\*.*?\*/', '', ' '.join(line.strip() for line in LINES[first:last + 1])).strip(' ;{')
    text = re.sub(r'^exhibit_must\((.*)\)$', r'\1', text)
    text = re.sub(r'^(?:if|while) \((.*)\)$', r'\1', text)
    text = re.sub(r'scene->is_safe \? [^:]* : (\w+)', r'\1', text)
    return re.sub(r'exhibit_(?!rank)|\b(here|rank|scene)->|\bscene, ', '', text)


class Thread:
    def __init__(self, number, owner):
        self.number = number
        rank, name = re.match(r'(rank \d+) (.*)', owner).groups()
        self.is_device = name not in ('main', 'second')  # all are started by rank 0
        self.name = "a device's thread" if self.is_device else '%s, %s thread' % (rank, {'main': 'first'}.get(name, name))
        self.at, self.last, self.calls = None, None, False


def record(explore, name):
    """What explore prints of the first schedule in which it deadlocks."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, EXHIBIT=name, SAFE='0', EXPLORE_CALLS='1')
        subprocess.run([explore, '--only', 'museum', '--first', '--workers', '1', '--seed', '1', '--schedules', '5000', '--folder', folder],
                       env=environment, stdout=subprocess.DEVNULL, check=False)
        found = os.listdir(folder)
        if not found:
            raise SystemExit('%s does not deadlock' % name)
        return subprocess.run([explore, '--replay', os.path.join(folder, found[0])], env=environment, stdout=subprocess.PIPE,
                              text=True, check=False).stdout


def place_of(calls):
    """The innermost line of an exhibit, None: there is none."""
    for call in reversed(calls):
        function, source, line = FRAME.match(call).groups() if FRAME.match(call) else ('', '', '0')
        if source == 'exhibits.c' and function not in PARTS:
            return function, int(line)
    return None


def events_of(text):
    """(thread, text) in their order; and the threads, in the order in which they come to something."""
    threads, seen, events = {}, [], []
    for line in text.split('\n'):
        if not line.startswith('pass\t'):
            continue
        _, number, owner, does, *calls = line.split('\t')
        place = place_of(calls)
        is_call = does == 'locks' and calls[-1].startswith('sim_enter ')  # another one, in a loop, from the same line
        if not owner.startswith('rank') or not place:
            continue
        thread = threads.setdefault(int(number), Thread(int(number), owner))
        if place == thread.at and not (is_call and thread.calls):
            continue
        thread.calls = is_call or (place == thread.at and thread.calls)
        thread.at = place
        what = statement(place[1])
        if place[0] == 'meet':  # of a kernel, the first step alone
            what = "the kernel stores its word, and spins until all words are there" if 'sim_board_store' in what else None
        elif place[0] == 'scene_close':
            what = 'waits for its work, to close the stream' if 'sim_stream_close' in what else None
        if not what:
            continue
        if thread not in seen:
            seen.append(thread)
        events.append((thread, what))
        thread.last = len(events) - 1
    return events, seen


def draw(explore, name):
    text = record(explore, name)
    events, threads = events_of(text)
    stuck = {int(number): state for number, state, frames in BLOCKED.findall(text[text.index('a hang that nobody reports'):])
             if any(place_of([frame.strip()]) for frame in frames.splitlines())}
    threads.sort(key=lambda thread: thread.number)
    rows = ['%s┌ %s' % ('│ ' * i, thread.name) for i, thread in enumerate(threads)]
    for number, (thread, what) in enumerate(events):
        is_end = thread.last == number
        mark = '✗' if is_end and thread.number in stuck else '●'
        lanes = ' '.join(mark if other is thread else '┊' if other.last < number and other.number in stuck else
                         ' ' if other.last < number and not other.is_device else '│' for other in threads)
        why = {'sleeps': 'for ever'}.get(stuck.get(thread.number), stuck.get(thread.number, '') + ', for ever') if mark == '✗' else ''
        row = '%s  %s%s' % (lanes, what, ' — ' + why if why else '')
        rows.append(row if len(row) <= ROOM else row[:ROOM - 1] + '…')
    return '\n'.join(row.rstrip() for row in rows)


def title(name):
    """The heading of an exhibit, and what its source says of it."""
    comment = re.search(r'/\* ---- %s ----\n(.*?)\*/' % name, SOURCE, re.S)[1]
    words = ' '.join(line.strip(' *') for line in comment.split('\n')).strip()
    words = re.sub('^The same ', 'As `allocator-lock`, ', words)
    return '\n## %s\n\n%s\n' % (name, textwrap.fill(words, 127))


def section(explore, name):
    remedy = textwrap.fill('**Remedy.** ' + REMEDIES[name], 127, break_long_words=False, break_on_hyphens=False)
    return '%s\n```\n%s\n```\n\n%s\n' % (title(name), draw(explore, name), remedy)


def main():
    names = re.findall(r'(?m)^\t{"([a-z-]+)",', SOURCE)
    if sys.argv[2:] == ['--check']:
        drawn = {name: draw(sys.argv[1], name) for name in names}
        bad = [name for name, rows in drawn.items() if '✗' not in rows or '┌ rank 0, first thread' not in rows or rows.count('●') < 2]
        with open(DOC, encoding='utf-8') as file:
            text = file.read()
        old = [name for name in names if title(name) not in text]
        print(*('doc/museum.md does not say of %s what exhibits.c says: make museum' % name for name in old), sep='\n', end='\n' if old else '')
        print(*('not drawn: %s\n%s' % (name, drawn[name]) for name in bad), '%d passed, %d failed' % (len(names) - len(bad), len(bad)),
              sep='\n')
        sys.exit(bool(bad or old))
    text = INTRO + ''.join(section(sys.argv[1], name) for name in names) + FORK
    if len(sys.argv) > 2:
        with open(sys.argv[2], 'w', encoding='utf-8') as out:
            out.write(text)
    else:
        sys.stdout.write(text)


if __name__ == '__main__':
    main()
