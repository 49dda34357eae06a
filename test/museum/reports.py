#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How Lockstep reports the hangs of programs that do the exhibits the old way: reports.py LOCKSTEP OLD_WAYS [--times N]
[--quiet] [--promised] [EXHIBIT…]. Each runs N times (1) as a job. Each time it must hang, or a proof must end it; and the
report must have the words that belong to the exhibit: threads, locks with their owners, calls, lines. --promised: the report
must also come within a second after the last thread has reached the place where it hangs, as lockstep(7) promises; if
threads wait for processors, proportionally later. Prints the report, and the times."""
import argparse
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 60  # of a report; no measure
PROMISED_S = 1.0
EDGE = 'at the edge'
FRAME = re.compile(r'(?m)^      (\S+) at \S*?([^/\s]+):(\d+)$')
SHOWN = re.compile(r'(old_ways\w*|blocks|calls|queue)\.c:')
LOCK = 'pthread_mutex_lock(&%s)'


class Exhibit:
    """`edges`: how many threads reach the place where they hang. `verdict`: patterns of the report's text. `threads`: by rank
    and thread ("main", or its name): patterns; or (function, text of the line where the thread is). `proved`: patterns of the
    report with which the calls of the ranks fail. `own`: patterns of what ranks print by themselves, long before any time
    limit."""

    def __init__(self, ranks, edges, verdict=(), threads=None, proved=(), own=(), arguments=(), **environment):
        self.ranks, self.edges, self.verdict, self.threads = ranks, edges, verdict, threads or {}
        self.proved, self.own, self.arguments, self.environment = proved, own, arguments, environment


def waits(lock, owner):
    return r'waits for the mutex %s\b.*, which thread \d+ \(%s' % (lock, owner)


CYCLE = r"its threads \d+ and \d+ are in a deadlock of the program's own mutexes"
ELSEWHERE = r'rank 0 is elsewhere \(its last operation was barrier #1, .*called from old_ways\.c:\d+; '
FOREVER = r'It can never continue, and no time limit helps'
RECORDS = [waits('allocator_lock', 'second'), ('record_stream', LOCK % 'allocator_lock'), ('all_reduce_then_record', 'record_stream')]
GIVES_BACK = [waits('free_lock', 'main'), ('give_back', LOCK % 'free_lock')]
EXHIBITS = {
    'allocator-lock': Exhibit(
        2, 2, ['verdict: ' + ELSEWHERE + CYCLE, FOREVER], {(0, 'main'): RECORDS, (0, 'second'): [*GIVES_BACK, ('empty_cache', 'give_back')]},
        own=[ELSEWHERE + CYCLE, FOREVER]),
    'allocator-retry': Exhibit(
        2, 2, ['verdict: ' + ELSEWHERE + CYCLE, FOREVER],
        {(0, 'main'): RECORDS, (0, 'second'): [*GIVES_BACK, ('malloc_with_retry', 'give_back')]}, own=[ELSEWHERE + CYCLE, FOREVER]),
    'free-between-launches': Exhibit(
        2, 2, [ELSEWHERE + r'its thread \d+ has been in the foreign call free of 4 MiB on device 0 for .*s and its main thread in launch on '
               r'device 1, after device 0 for .*s; its main thread waits for a mutex that its thread \d+ holds'],
        {(0, 'main'): ['in the foreign call launch on device 1, after device 0 for ', waits('', 'second'), ('launch_on_both', 'device 1')],
         (0, 'second'): ['in the foreign call free of 4 MiB on device 0 for .*s', ('free_block', 'sim_free'), ('garbage_collect', 'device 0')]}),
    'launch-excludes-free': Exhibit(
        3, 4, [r'ranks 0 and 1 are elsewhere while rank 2 waits in barrier #2'] + [
            r'rank %d: elsewhere, .*its thread (\d+) has been in the foreign call free of 4 MiB, behind a receive from rank %d for .*s; '
            r'its main thread waits for a mutex that its thread \1 holds' % (r, 1 - r) for r in range(2)],
        {(r, name): patterns for r in range(2) for name, patterns in (
            ('main', [waits('free_lock', 'second'), ('launch_send', LOCK % 'free_lock')]), ('second', [('free_with_lock', 'free_block')]))}),
    'retry-synchronises': Exhibit(
        2, 1, [ELSEWHERE + r'its main thread has been in the foreign call sync of stream 0 \(all-reduce 1\), for 4194305 B for .*; it is '
               r'sleeping in a system call\) while rank 1 waits in receive #1 from rank 0 \(tag 0\) for .*, called from old_ways_device.c'],
        {(0, 'main'): [('retry_synchronises', 'synchronise')]}),
    'lazy-pairs': Exhibit(3, 3, proved=[
        r'ranks 0, 1 and 2 wait for each other and can never go on: rank 0 waits for rank 1 \(receive #1, tag 0, called from '
        r'ls_group_from_members\), rank 1 waits for rank 2 \(.*ls_group_from_members\), rank 2 waits for rank 0 \(.*from_members\)']),
    'serial-lane': Exhibit(3, 3, LOCKSTEP_P2P='serial', proved=[
        r'ranks 0, 1 and 2 wait for each other and can never go on: rank 0 waits for rank 1 \(send #1, tag 0, called from '
        r'old_ways_ranks\.c:\d+\), rank 1 waits for rank 2 \(receive #1.*\), rank 2 waits for rank 0 \(receive #1',
        r'LOCKSTEP_P2P=serial is set, with which a send begins only when the one before it is over',
        r'On rank 0 send #1 to rank 2 \(tag 0\)\n\[\d\] stands behind send #1 to rank 1 \(tag 0\)']),
    'opposite-order': Exhibit(
        3, 2, [r'ranks 0 and 1 are elsewhere while rank 2 waits in barrier #2',
               r'rank 0: elsewhere, .*its main thread has been in the foreign call sync of group B, queued behind group A for ',
               r'rank 1: elsewhere, .*its main thread has been in the foreign call sync of group A, queued behind group B for '],
        {(r, 'main'): [('opposite_order', 'synchronise')] for r in range(2)}),
    'opposite-groups': Exhibit(2, 2, proved=[
        r'ranks 0 and 1 wait for each other and can never go on: rank 0 waits for rank 1 \(all-reduce #1 of group (\d+) .*\), rank 1 waits '
        r'for rank 0 \(all-reduce #1 of group (?!\1 )\d+ ', 'Let ranks that are in several of these groups make their calls in the same order']),
    'failed-launch': Exhibit(
        2, 2, [ELSEWHERE + r'its main thread has been in the foreign call sync of stream 0 \(all-reduce {n}\) for .*; it is sleeping in a '
               r'system call\) while rank 1 waits in barrier #2'], {(0, 'main'): [('failed_launch', 'synchronise')]}, arguments='123'),
    'abort-in-error-path': Exhibit(
        2, 1, [ELSEWHERE + r'its main thread has been in the foreign call sync of stream 0 \(all-reduce 1\), after an error for .*; it is '
               r'sleeping in a system call\) while rank 1 waits in receive #1 from rank 0'], {(0, 'main'): [('clean_up', 'synchronise')]}),
    'lazy-loading': Exhibit(
        2, 1, [ELSEWHERE + r'its main thread has been in the foreign call launch of a local kernel, first time for .*; it is sleeping in a '
               r'system call\) while rank 1 waits in receive #1 from rank 0'], {(0, 'main'): [('launch_local', 'sim_launch')]}),
    'callback-lock': Exhibit(
        2, 2, [ELSEWHERE + r'its main thread has been in the foreign call sync of stream 0 \(a host function\) for '],
        {(0, 'main'): ['in the foreign call sync of stream 0', ('callback_lock', 'synchronise')],
         (0, 'old_ways'): [waits('interpreter_lock', 'main'), ('take_interpreter_lock', LOCK % 'interpreter_lock')]}),
    'fork-with-lock': Exhibit(
        2, 1, ['verdict: ' + ELSEWHERE + r'its main thread waits for ever for a mutex whose owner, thread \d+, has ended or was lost in a fork',
               FOREVER],
        {(0, 'main'): [r'waits for ever for the mutex allocator_lock \(0x.*\): its owner, thread \d+, has ended, or held it in another '
                       'process when that forked', ('allocate_block', LOCK % 'allocator_lock')]},
        own=[ELSEWHERE + r'its main thread waits for ever for a mutex', FOREVER]),
}


# ---- a job ----

class Job:
    def __init__(self, programs, exhibit, name, number):
        self.lockstep, old_ways = programs
        self.folder = tempfile.mkdtemp()
        self.exhibit = exhibit
        shared = os.path.join(self.folder, 'devices')
        with open(shared, 'w', encoding='ascii'):
            pass
        # Ranks find the program that looks into others beside their own.
        program = os.path.join(self.folder, 'old_ways')
        shutil.copy(old_ways, program)
        os.symlink(self.lockstep, os.path.join(self.folder, 'lockstep'))
        environment = {k: v for k, v in os.environ.items() if not k.startswith('LOCKSTEP_')}
        environment.update(exhibit.environment, TMPDIR=self.folder)
        self.process = subprocess.Popen(
            [self.lockstep, 'run', '-n', str(exhibit.ranks), program, name, shared, *number], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.said, self.began = '', time.monotonic()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)  # its ranks end with it
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder)

    def until(self, has_come, what):
        """Reads what the job prints until has_come(). Returns the time of that."""
        while not has_come():
            late = time.monotonic() > self.began + LIMIT_S
            ready = select.select([self.process.stdout], [], [], 1)[0] if not late else []
            part = self.process.stdout.read() if ready else None
            self.said += (part or b'').decode(errors='replace')
            if late or part == b'':
                raise AssertionError('%s: %s; it said:\n%s' % (what, 'does not come' if late else 'ended without', self.said))
        return time.monotonic()

    def diagnose(self):
        return subprocess.run([self.lockstep, 'diagnose', '--stacks', str(self.process.pid)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout


# ---- what a report says ----

def threads_of(text):
    """The text of each thread, by rank and name."""
    found = {}
    for rank, stacks in re.findall(r'(?m)^  stacks of rank (\d+), .*\n((?:   .*\n)*)', text):
        for name, block in re.findall(r'(?m)^    thread \d+ \((.*?)\), (.*\n(?:     .*\n)*)', stacks):
            name = 'main' if name.startswith('main, ') else name
            found[int(rank), name] = found.get((int(rank), name), '') + block
    return found


def line_of(file, number):
    with open(os.path.join(HERE, file), encoding='utf-8') as source:
        return source.read().split('\n')[number - 1]


def has(block, wanted):
    if isinstance(wanted, str):
        return re.search(wanted, block)
    function, call = wanted
    return any(name == function and file.startswith('old_ways') and call in line_of(file, int(number))
               for name, file, number in FRAME.findall(block))


def missing(exhibit, text, number):
    """The patterns that the report lacks."""
    lacks = [wanted for wanted in exhibit.verdict if not has(text, wanted.replace('{n}', ''.join(number)))]
    threads = threads_of(text)
    for (rank, name), all_wanted in exhibit.threads.items():
        lacks += ['rank %d, %s: %s' % (rank, name, wanted) for wanted in all_wanted if not has(threads.get((rank, name), ''), wanted)]
    return lacks


def shorten(exhibit, text):
    """The report without threads that take no part, and without frames of the system."""
    lines, keeps = [], True
    for line in text.split('\n  stacks of ')[0].split('\n'):
        lines.append(line)
    for rank, stacks in re.findall(r'(?m)^  stacks of rank (\d+), .*\n((?:   .*\n)*)', text):
        for line in stacks.splitlines():
            thread = re.match(r'    thread \d+ \((main, )?(.*?)\),', line)
            if thread:
                keeps = (int(rank), 'main' if thread[1] else thread[2]) in exhibit.threads
            if line.startswith('    deadlock') or (keeps and (thread or 'mutex' in line and ' at ' not in line or SHOWN.search(line))):
                lines.append('  rank %s:%s' % (rank, line[3:]) if not line.startswith('     ') else line)
    return lines


# ---- running them ----

def threads_per_core():
    """How many threads there are for each processor, at least 1."""
    with open('/proc/loadavg', encoding='ascii') as file:
        now = file.read().split()
    return max(1.0, max(float(now[0]), int(now[3].split('/')[0])) / len(os.sched_getaffinity(0)))


def check_time(seconds, crowd):
    if seconds > PROMISED_S * crowd:
        raise AssertionError('the report came after %.2f s, with %.1f threads for each processor' % (seconds, crowd))


def spread(values):
    ordered = sorted(values)
    return 'p50 %.2f s, p99 %.2f s, max %.2f s' % (
        statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * .99))], ordered[-1])


def run(programs, name, number):
    """The report; the seconds from the edge to it; and those to what ranks print by themselves."""
    exhibit = EXHIBITS[name]
    job = Job(programs, exhibit, name, number)
    try:
        at_edge = job.until(lambda: job.said.count(EDGE) == exhibit.edges, 'the edge')
        if exhibit.proved:
            told = job.until(lambda: 'LS-VERDICT' in job.said, 'the proof')
            lacks = [wanted for wanted in exhibit.proved if not re.search(wanted, job.said)]
            if lacks:
                raise AssertionError('the report lacks %s:\n%s' % (lacks, job.said))
            report = re.sub(r'(?m)^\[\d+\] (at the edge|rank \d+: LS_\w+)\n|^lockstep: .*\n', '', job.said)
            return report.rstrip().split('\n'), told - at_edge, told - at_edge
        while True:
            text = job.diagnose()
            told = time.monotonic()
            lacks = missing(exhibit, text, number)
            if not lacks:
                break
            if told > at_edge + LIMIT_S or job.process.poll() is not None:
                raise AssertionError('the report lacks %s:\n%s' % (lacks, '\n'.join(shorten(exhibit, text))))
        own = None
        if exhibit.own:
            own = job.until(lambda: 'LS-WAITING' in job.said, 'the ranks\' own report') - at_edge
            lacks = [wanted for wanted in exhibit.own if not re.search(wanted, job.said)]
            if lacks:
                raise AssertionError('the ranks\' own report lacks %s:\n%s' % (lacks, job.said))
        return shorten(exhibit, text), told - at_edge, own
    finally:
        job.close()


def numbers_of(name, times):
    """Arguments of each run."""
    given = EXHIBITS[name].arguments
    return [(given[i % len(given)],) if given else () for i in range(times)]


def measure(programs, name, times, promised=False):
    """The last report; the seconds of all reports, which must be as promised or not; and those of what ranks print by
    themselves."""
    seconds, own, lines = [], [], []
    for number in numbers_of(name, times):
        crowd = threads_per_core()
        lines, told, by_itself = run(programs, name, number)
        crowd = max(crowd, threads_per_core())
        seconds.append(told)
        if by_itself is not None and not EXHIBITS[name].proved:
            own.append(by_itself)
        if promised:
            check_time(max(told, by_itself or 0), crowd)
    return lines, seconds, own


def figures_of(seconds, own):
    figures = '%d of %d hang and are named, %.2f s after they hang (at most %.2f s)' % (
        len(seconds), len(seconds), statistics.median(seconds), max(seconds))
    if own:
        figures += '; by the ranks themselves after %.2f s (at most %.2f s)' % (statistics.median(own), max(own))
    return figures


def repeat(programs, name, times):
    """The last report; and the figures, as text."""
    lines, seconds, own = measure(programs, name, times)
    return lines, figures_of(seconds, own)


def finishes(programs):
    """serial-lane ends well if messages do not wait for each other."""
    job = Job(programs, Exhibit(3, 0), 'serial-lane', ())
    try:
        job.until(lambda: job.said.count('finished') == 3, 'the end')
    finally:
        job.close()


def forks(programs):
    """What calls in forked children return, if another thread keeps taking Lockstep's locks meanwhile."""
    job = Job(programs, Exhibit(2, 0), 'fork-on-lockstep', ())
    try:
        job.until(lambda: job.said.count('finished') == 2, 'the end')
        return re.search(r'(?m)^\[0\] (\d+ forks .*)', job.said)[1]
    finally:
        job.close()


def may_look():
    """Whether the system lets one process look into another."""
    try:
        with open('/proc/sys/kernel/yama/ptrace_scope', encoding='ascii') as file:
            return os.geteuid() == 0 or file.read().strip() == '0'
    except OSError:
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('lockstep')
    parser.add_argument('old_ways')
    parser.add_argument('--times', type=int, default=1, metavar='N')
    parser.add_argument('--quiet', action='store_true', help='figures alone')
    parser.add_argument('--promised', action='store_true', help='a report that comes later than promised fails')
    parser.add_argument('exhibit', nargs='*', help='one of ' + ', '.join(EXHIBITS))
    given = parser.parse_intermixed_args()
    if not may_look():
        print('skipped: the system does not let one process look into another')
        return 77
    programs = os.path.abspath(given.lockstep), os.path.abspath(given.old_ways)
    failed, all_seconds, proved, all_own = 0, [], [], []
    for name in given.exhibit or EXHIBITS:
        try:
            if name == 'serial-lane':
                finishes(programs)
            if name == 'fork-with-lock':
                forks(programs)
            lines, seconds, own = measure(programs, name, given.times, given.promised)
            (proved if EXHIBITS[name].proved else all_seconds).extend(seconds)
            all_own += own
            if not given.quiet:
                print('\n'.join('    ' + line for line in lines if line))
            print('%s: %s' % (name, figures_of(seconds, own)), flush=True)
        except AssertionError as error:
            failed += 1
            print('%s: NOT NAMED: %s' % (name, error), flush=True)
    for title, values in (('looked from outside (lockstep diagnose --stacks)', all_seconds), ('proved by the ranks', proved),
                          ("the ranks' own reports of mutexes", all_own)):
        if values:
            print('# figure: %d hangs of programs that do it the old way, %s: reported after %s (promised: %.0f s)'
                  % (len(values), title, spread(values), PROMISED_S))
    print('%d passed, %d failed' % (len(given.exhibit or EXHIBITS) - failed, failed))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
