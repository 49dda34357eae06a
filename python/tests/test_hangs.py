# SPDX-License-Identifier: BSD-3-Clause
"""The programs of examples/hangs, each with a usual mistake: what `lockstep run` prints names ranks, operation, lines of the
script and cause, and no rank hangs. doc/common-hangs.md shows each script and its report, which --write-docs writes."""

import concurrent.futures
import os
import pathlib
import re
import sys

import processes
import pytest

EXAMPLES = os.path.join(processes.ROOT, "examples", "hangs")
PAGE = pathlib.Path(processes.ROOT, "doc", "common-hangs.md")
AT_ONCE = 2  # other tests may run beside them
STRAGGLES = r"rank 1 spends (?:\S+x the median in data|\S+ m?s in data, where the median rank spends \S+ [mu]?s), which costs \d+ %"
PHASES = re.compile(rf"(?m)^{STRAGGLES} of the step$")
SLOW_S = (2, 8, 32)  # a rank is slow for so long, until the others have waited for it on a busy machine

EITHER = "?"  # an exception, or that of another rank
VERDICT, WAITING = r"\[LS-VERDICT\]$", r"\[LS-WAITING\]$"


class Case:
    """told: what the report says, with {0}, {1} … for the lines of the script that begin so, or end with that comment;
    ends: the last line of the report; raises: the exception of each rank, None: none; fails: the job, without one."""

    def __init__(self, told, *lines, ends=VERDICT, raises=(None, None), fails=False, gloo=None, options=(), **environment):
        self.told, self.lines, self.ends, self.raises, self.gloo = told, lines, ends, raises, gloo
        self.options, self.environment, self.fails = options, environment, fails or any(raises)


# What gloo says of it within its time limit, on one of the ranks; None: it says nothing, as nothing fails or it waits on.
LATE = r"Timed out waiting 10000ms for (recv|send) operation to complete"
GONE = r"Connection (closed|reset) by peer"
DIES = r"terminate called after throwing an instance of 'gloo::EnforceNotMet'"

CASES = {
    "if_rank_0": Case(
        "ranks 0 and 1 called different operations as #1: rank 0 all-reduce, rank 1 barrier, "
        "called from {0} (rank 0) and {1} (rank 1)",
        "dist.all_reduce(loss)", "dist.barrier()",
        raises=("Mismatch", "Mismatch"), gloo=LATE,
    ),
    "barrier_missed": Case(
        "ranks 0 and 1 called different operations as #1: rank 0 barrier, rank 1 all-reduce, "
        "called from {0} (evaluate) (rank 0) and {1} (rank 1)",
        "dist.barrier()", "dist.all_reduce(",
        raises=("Mismatch", "Mismatch"), gloo=LATE,
    ),
    "world_size": Case(
        "lockstep.RankMissing: rank 1 has waited N for ranks 0 and 2 of 3 (rank 0 may itself wait",
        ends="", raises=(None, "RankMissing"), gloo=r"2/3 clients joined",
    ),
    "uneven_loaders": Case(
        "rank 1 finished after all-reduce #9 while rank 0 waits in all-reduce #10, called from {0}",
        "model(batch)", raises=("PeerLeft", None), gloo=GONE,
    ),
    "early_exit": Case(
        "rank 1 finished after all-reduce #3 while rank 0 waits in all-reduce #4, called from {0}",
        "dist.all_reduce(loss)", raises=("PeerLeft", None), gloo=GONE,
    ),
    "except_branch": Case(
        "ranks 0 and 1 called all-reduce #4 with different counts: rank 0 has 1000, rank 1 has 1, "
        "called from {0} (rank 0) and {1} (rank 1)",
        "dist.all_reduce(torch", "dist.all_reduce(failed)",
        raises=("Mismatch", "Mismatch"), gloo=DIES,
    ),
    "both_send_first": Case(
        "ranks 0 and 1 wait for each other and can never go on: rank 0 waits for rank 1 (send #1, tag 0, called from {0}), "
        "rank 1 waits for rank 0 (send #1, tag 0, called from {0})",
        "dist.send(", raises=("Deadlock", "Deadlock"), gloo=LATE,
    ),
    "shapes": Case(
        "ranks 0 and 1 called all-gather #4 with different counts: rank 0 has 8, rank 1 has 4, called from {0}",
        "dist.all_gather(", raises=("Mismatch", "Mismatch"), gloo=DIES,
    ),
    "dtypes": Case(
        "ranks 0 and 1 called all-reduce #1 with different dtypes: rank 0 has float32, rank 1 has int64, called from {0}",
        "dist.all_reduce(total)", raises=("Mismatch", "Mismatch"), gloo=DIES,
    ),
    "killed": Case(
        "rank 1 (pid N) was killed by SIGKILL (9) after all-reduce #3 while rank 0 waits in all-reduce #4, called from {0}",
        "dist.all_reduce(", raises=("PeerDied", None), gloo=GONE,
    ),
    "two_groups": Case(
        "ranks 0 and 1 wait for each other and can never go on: "
        "rank 0 waits for rank 1 (all-reduce #1 of group N (ranks 0 and 1), called from {0}), "
        "rank 1 waits for rank 0 (all-reduce #1 of group N (ranks 0 and 1), called from {0})",
        "dist.all_reduce(", raises=("Deadlock", "Deadlock"), gloo=LATE,
    ),
    "blocking_mode": Case(
        "ranks 0 and 1 wait for each other and can never go on: "
        "rank 0 waits for rank 1 (all-reduce #1 of group N (ranks 0 and 1), called from {0}), "
        "rank 1 waits for rank 0 (all-reduce #1 of group N (ranks 0 and 1), called from {0})",
        "works.append(", raises=("Deadlock", "Deadlock"), LOCKSTEP_BLOCKING=1,
    ),
    "async_buffer": Case(
        "lockstep.BadArgument: the tensor at N (float32, 8) was changed while all_reduce was under way: "
        "its element 0 (of 8) is not what it was\n  all_reduce was called from {0}\n  the change was seen at {1}, ",
        "work = dist.all_reduce(", "work.wait()",
        ends="", raises=(EITHER, EITHER), LOCKSTEP_CHECK=1,
    ),
    "two_streams": Case(
        "lockstep: rank 0: all-reduce on stream N, called from {1}, reads the 4000 bytes at N while all-reduce #1 on stream N, "
        "called from {0}, may still write them",
        "ls_status status = ls_allreduce(", "status = ls_allreduce(group, sum,",
        ends=r"\[LS-RACE-OVERLAP\]$", fails=True, LOCKSTEP_CHECK=1,
    ),
    "one_stream": Case(
        "ranks 0 and 1 wait for each other and can never go on: "
        "rank 0 waits for rank 1 (all-reduce #1 of group N (ranks 0 and 1), called from {0}), "
        "rank 1 waits for rank 0 (all-reduce #1 of group N (ranks 0 and 1), called from {0})",
        "ls_status status = ls_allreduce(", fails=True,
    ),
    "workers": Case(
        "lockstep.Forked: LS_FORKED: the group belongs to the parent of this forked process",
        ends="", raises=("Forked", "Forked"),
    ),
    "slow_loader": Case(
        "rank 1 is elsewhere (its last operation was broadcast #3, finished N ago, called from {0}; its main thread is in "
        "load at {1}) while rank 0 waits in all-reduce #4 for N, called from {2}",
        "model = ", "time.sleep(", "model(batch)",
        ends=WAITING, options=("--phases",), LOCKSTEP_PATIENCE_MS=500,
    ),
    "checkpoint": Case(
        "rank 0 is elsewhere (it has called nothing yet; its main thread is in save at {0}) "
        "while rank 1 waits in barrier #1 for N, called from {1}",
        "time.sleep(", "dist.barrier()", ends=WAITING, LOCKSTEP_PATIENCE_MS=500,
    ),
    "set_epoch": Case(
        "{0}: UserWarning: lockstep: a second pass over the data begins, and the DistributedSampler still has epoch 0",
        "model(batch)", ends="",
    ),
}
UNSEEN = {"other_thread": Case("", LOCKSTEP_CHECK=1)}
SLOW = ("slow_loader", "checkpoint", "two_streams", "world_size")


# ---- what the ranks wrote ----


def script(name):
    in_c = os.path.join(EXAMPLES, f"{name}.c")
    return in_c if os.path.exists(in_c) else os.path.join(EXAMPLES, f"{name}.py")


def command(name):
    """What runs it. Of a program in C, what the build folder has."""
    if script(name).endswith(".py"):
        return [sys.executable, script(name)]
    built = os.path.join(os.path.dirname(processes.program("lockstep")), "examples", name)
    if not os.path.exists(built):
        pytest.skip(f"{name} is in no folder beside the program lockstep")
    return [built]


def place(name, begin):
    """file:line of the line that begins so, after its indentation."""
    with open(script(name), encoding="utf-8") as file:
        found = [number for number, line in enumerate(file, 1) if line.strip().startswith(begin)]
    assert len(found) == 1, f"{name}: {begin!r} begins {len(found)} lines"
    return f"{os.path.basename(script(name))}:{found[0]}"


def plain(text):
    """Without what differs from run to run: process ids, times, addresses, numbers of groups, states of processes."""
    text = re.sub(STRAGGLES, "rank 1 is slow in data", text)
    text = re.sub(r"\bpid \d+|(?<=--stacks )\d+|0x[0-9a-f]+|\b\d+(\.\d+)? (us|ms|s|min)\b", _number, text)
    text = re.sub(r"\bgroup \d+", "group N", text)
    text = re.sub(r"; (it is )?(running|asleep|sleeping in a system call)(?=\))", "", text)
    return text.replace("a thread that is not seen to wait may still act; ", "")


def _number(match):
    return "pid N" if match[0].startswith("pid") else "N"


def of_rank(text, rank):
    """Its lines, without the prefixes of the launcher and of PyTorch, and whether PyTorch wrote them."""
    for line in text.replace(EXAMPLES + os.sep, "").splitlines():
        match = re.match(rf"\[{rank}\] (\[rank{rank}\]: ?)?", line)
        if match:
            yield line[match.end() :], match[1] is not None


def report(name, text):
    """The first report that says what is told, without its lines on single ranks; None: there is none."""
    case = CASES[name]
    told = case.told.format(*(place(name, line) for line in case.lines))
    for rank in (0, 1):
        lines = list(of_rank(text, rank))
        for i, (_, theirs) in enumerate(lines):
            end = i + 1
            while end < len(lines) and lines[end][1] == theirs and not (
                re.search(case.ends, lines[end - 1][0]) if case.ends else not theirs
            ):
                end += 1
            block = [line for line, _ in lines[i:end]]
            if plain("\n".join(block)).startswith(told) and re.search(case.ends, block[-1]):
                return "\n".join(line for line in block if not re.match(r"  rank \d: ", line))
    return None


# ---- runs ----


def run(name, folder):
    program = processes.program("lockstep")
    case = {**CASES, **UNSEEN}[name]
    for seconds in SLOW_S if name in SLOW else (0,):
        ended = processes.run(
            [program, "run", "-n", "2", *case.options, *command(name)],
            SLOW_S=4 * seconds if name == "world_size" else seconds,
            PYTHONUNBUFFERED=1,
            TMPDIR=folder,
            **case.environment,
        )
        if name in UNSEEN or report(name, ended.text):
            break
    return ended


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """A future for each script that is asked for: several run at once, as some wait for time limits."""
    if processes.program("lockstep") is None:
        pytest.skip("the program lockstep is neither beside the library nor in PATH")
    wanted = [item.callspec.params["name"] for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    yield {name: pool.submit(run, name, tmp_path_factory.mktemp(name)) for name in dict.fromkeys(wanted)}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_the_mistake_is_told(runs, name):
    case, ended = CASES[name], runs[name].result()
    found = report(name, ended.text)
    assert found, ended.text
    assert (ended.code != 0) == case.fails, ended.text
    for rank, kind in enumerate(case.raises):
        raised = [line for line, _ in of_rank(ended.text, rank) if kind and line.startswith(f"lockstep.{kind}: ")]
        assert kind == EITHER or bool(raised) == bool(kind), ended.text


@pytest.mark.parametrize("name", UNSEEN)
def test_what_the_page_says_is_not_found(runs, name):
    ended = runs[name].result()
    assert (ended.code, ended.text) == (0, "")


@pytest.mark.parametrize("name", ["slow_loader"])
def test_phases_name_the_slow_rank(runs, name):
    text = runs[name].result().text
    assert PHASES.search(text), text


# ---- gloo ----


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.gloo])
def test_what_gloo_says(tmp_path, name):
    """The page says it, in other words."""
    with open(script(name), encoding="utf-8") as file:
        text = file.read()
    limit = "timeout=timedelta(seconds=10)"
    text = text.replace("import lockstep.torch\n", "from datetime import timedelta\n").replace("new_group()", f"new_group({limit})")
    text = text.replace('"lockstep")', f'"lockstep", {limit})').replace('"lockstep"', '"gloo"')
    (tmp_path / "train.py").write_text(text)
    ended = processes.run_ranks(tmp_path / "train.py", world_size=2, SLOW_S=10)
    assert any(re.search(CASES[name].gloo, one.text) for one in ended), ended


# ---- the page ----

MARKS = "<!-- begin: {}, written by pytest --write-docs -->", "<!-- end: {} -->"


def shown(name):
    """The script past what all scripts begin with, or a program's function train_step, with the numbers of its lines."""
    with open(script(name), encoding="utf-8") as file:
        lines = file.read().splitlines()
    last = len(lines)
    if script(name).endswith(".c"):
        first = next(i for i, line in enumerate(lines) if re.match(r"\w.* train_step\(", line))
        last = lines.index("}", first) + 1
    else:
        begins = [number for number, line in enumerate(lines) if line.startswith("rank = dist.get_rank()")]
        first = begins[0] + 1 if begins else next(i for i, line in enumerate(lines) if "init_process_group(" in line)
    rest = [f"{number:2d}  {lines[number - 1]}".rstrip() for number in range(first + 1, last + 1)]
    return re.sub(r"(?m)(^ ?\d+\n)+", "", "\n".join(rest))


def section(name, text):
    phases = PHASES.findall(text) if "--phases" in CASES[name].options else []
    language = "c" if script(name).endswith(".c") else "python"
    return "\n".join([f"```{language}", shown(name), "```", "```", report(name, text), *phases, "```"])


@pytest.mark.parametrize("name", CASES)
def test_the_page_shows_it(runs, name, request):
    new = section(name, runs[name].result().text)
    page = PAGE.read_text(encoding="utf-8")
    begin, end = (mark.format(name) for mark in MARKS)
    assert page.count(begin) == page.count(end) == 1, f"{PAGE.name} has no place for {name}"
    before, rest = page.split(f"{begin}\n")
    old, after = rest.split(f"\n{end}")
    if plain(old) == plain(new):
        return
    if request.config.getoption("--write-docs"):
        PAGE.write_text(f"{before}{begin}\n{new}\n{end}{after}", encoding="utf-8")
    else:
        assert plain(old) == plain(new), f"{PAGE.name} shows {name} otherwise; run pytest --write-docs"
