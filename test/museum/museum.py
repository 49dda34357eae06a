#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shows how programs deadlock on devices: museum.py EXPLORE [--safe N] [--programs LOCKSTEP OLD_WAYS] [EXHIBIT…]
Runs each exhibit under drawn schedules until it hangs, and the same work on Lockstep under N schedules (300). With
--programs it also shows how Lockstep reports the hang of a program that does it the old way (reports.py). Exits with 1 if
an exhibit does not hang, if its report is wrong, or if the same work hangs on Lockstep."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import reports

EXHIBITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'exhibits.c')
ENTRY = re.compile(r'{"([a-z-]+)",\s*"([^"]+)"')
THREAD = re.compile(r'(?m)^thread \d+, (rank \d+) (.*): (.*)\n((?:    .*\n)*)')
OURS = re.compile(r'\((exhibits|blocks|calls|queue)\.c:')
LONGEST = 5000  # schedules until it hangs
# Where the threads of an exhibit must be: any other hang is not the one that it shows.
STANDS = {
    'allocator-lock': ('collective_then_record', 'allocator_lock'),
    'allocator-retry': ('collective_then_record', 'allocator_retry'),
    'free-between-launches': ('sim_launch', 'sim_free'),
    'launch-excludes-free': ('launch_excludes_free', 'sim_free'),
    'retry-synchronises': ('sim_stream_sync', 'exhibit_await'),
    'lazy-pairs': ('make_pair',),
    'opposite-order': ('sim_stream_close',),
    'serial-lane': ('sim_stream_close',),
    'failed-launch': ('sim_stream_sync', 'failed_launch'),
    'abort-in-error-path': ('sim_stream_sync', 'exhibit_await'),
    'lazy-loading': ('sim_launch', 'exhibit_await'),
    'callback-lock': ('sim_stream_sync', 'exhibit_take_lock'),
}


def explore(program, folder, exhibit, *options, safe=False):
    environment = dict(os.environ, EXHIBIT=exhibit, SAFE='1' if safe else '0')
    done = subprocess.run([program, '--only', 'museum', '--folder', folder, *options], env=environment,
                          stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def tell_threads(said):
    """Shows where each thread is, except threads of a device that only wait for work."""
    first = said.split('\nseed ')[1]  # another worker may have found one, too
    for rank, name, state, frames in THREAD.findall(first):
        where = [frame.strip() for frame in frames.splitlines()]
        if not any('exhibits.c' in frame for frame in where):
            continue
        print('    %s, %s thread: %s' % (rank, {'main': 'first', 'library': "the device's"}.get(name, name), state))
        for frame in where:
            if OURS.search(frame) and not frame.startswith('__wrap_'):
                print('        ' + frame)


def show(program, folder, name, title, safe):
    print('%s: %s' % (name, title))
    status, said = explore(program, folder, name, '--first', '--schedules', str(LONGEST))
    count = re.search(r'(?m)^(\d+) schedules', said)
    hangs = status == 1 and 'a hang that nobody reports' in said and all(
        re.search(r'(?m)^    %s \(' % function, said.split('\nseed ')[1]) for function in STANDS[name])
    if hangs:
        print('  deadlocks, here after %s schedules:' % count[1])
        tell_threads(said)
    else:
        print('  DOES NOT DEADLOCK as it should:\n' + said)
    status, said = explore(program, folder, name, '--schedules', str(safe), safe=True)
    rate = re.search(r'(?m)^%d schedules, (\d+) a second' % safe, said)
    fine = status == 0 and rate is not None
    print('  on Lockstep: %s\n' % ('%d schedules, %s a second, no deadlock' % (safe, rate[1]) if fine else 'FAILED\n' + said), flush=True)
    return hangs and fine


def show_report(programs, name, title):
    print('  %s:' % title)
    try:
        lines, figures = reports.repeat(programs, name, 1)
    except AssertionError as error:
        print('  NOT NAMED as it should be: %s\n' % error)
        return False
    print('\n'.join('    ' + line for line in lines if line))
    print('    (%s)\n' % figures, flush=True)
    return True


def show_reports(programs, name):
    shown = show_report(programs, name, 'Lockstep says of a program that does it the old way')
    if name == 'opposite-order':
        shown = show_report(programs, 'opposite-groups', "the same order in Lockstep's own collectives ends with a proof") and shown
    if name == 'serial-lane':
        reports.finishes(programs)
        print('    without LOCKSTEP_P2P=serial it finishes\n')
    if name == 'fork-with-lock':
        print('  on Lockstep: %s\n' % reports.forks(programs))
    return shown


def main():
    with open(EXHIBITS, encoding='utf-8') as file:
        source = re.sub(r'"\s*\n\s*"', '', file.read())
    known = dict(ENTRY.findall(source))
    known['fork-with-lock'] = 'a process forks while another thread holds a lock'
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('explore')
    parser.add_argument('--safe', type=int, default=300, metavar='N')
    parser.add_argument('--programs', nargs=2, metavar='PATH')
    parser.add_argument('exhibit', nargs='*', help='one of ' + ', '.join(known))
    given = parser.parse_intermixed_args()
    for name in given.exhibit:
        if name not in known:
            parser.error("there is no exhibit '%s'; there are %s" % (name, ', '.join(known)))
    programs = [os.path.abspath(path) for path in given.programs or []]
    if programs and not reports.may_look():
        print('without reports: the system does not let one process look into another\n')
        programs = []
    results, exhibits, begin = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.exhibit or known:
            if name == 'fork-with-lock':  # of processes, which the scheduler does not have
                print('%s: %s' % (name, known[name]))
            else:
                exhibits += 1
                results.append(show(given.explore, folder, name, known[name], given.safe))
            if programs:
                results.append(show_reports(programs, name))
    seconds = time.monotonic() - begin
    if all(results) and exhibits:
        print('# figure: %d schedules of each of %d exhibits on Lockstep: 0 deadlocks; %.0f a second'
              % (given.safe, exhibits, exhibits * given.safe / seconds))
    print('%d as they should be, %d not' % (sum(results), len(results) - sum(results)))
    return not all(results)


if __name__ == '__main__':
    sys.exit(main())
