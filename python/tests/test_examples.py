# SPDX-License-Identifier: BSD-3-Clause
"""The examples of PyTorch, under each launcher that they name, and what survivors are told when a rank fails."""

import functools
import importlib.util
import os
import re
import sys

import processes
import pytest

EXAMPLES = os.path.join(processes.ROOT, "examples", "torch")
SMALL = ["--steps", "4", "--width", "96", "--layers", "2", "--context", "32", "--fault-step", "2"]


def some(kept, *more):
    """Cases, of which make check runs `kept` and make nightly the others: each takes seconds."""
    return kept + [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly) for case in more]


def command(launcher, script, *arguments, ranks=2):
    path = [os.path.join(EXAMPLES, script), *arguments]
    if launcher == "python":
        return [sys.executable, *path]
    if launcher == "torchrun":
        limits = ["--shutdown-timeout", "5"]  # a stopped rank is not ended by SIGTERM
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *limits, *path]
    program = processes.program("lockstep")
    if program is None:
        pytest.skip("the program lockstep is neither beside the library nor in PATH")
    return [program, "run", "-n", str(ranks), sys.executable, *path]


def run(launcher, script, *arguments, ranks=2, by=processes.run, **environment):
    port = processes.free_port()
    words = command(launcher, script, *arguments, ranks=ranks)
    if launcher == "torchrun":
        words[3:3] = ["--master-port", str(port)]
    return by(words, PYTHONUNBUFFERED=1, MASTER_PORT=port, **environment)


def check_difference(text):
    difference = re.search(r"largest difference to one process: (\S+)", text)
    assert difference and float(difference[1]) < 1e-4, text


def check_ended(ended):
    assert ended.code == 0, ended.text
    check_difference(ended.text)


# ---- train_gpt ----


@pytest.mark.parametrize("launcher", some(["python"], "torchrun", "lockstep run"))
def test_gpt_ends_with_the_same_loss_on_both(launcher):
    ended = run(launcher, "train_gpt.py", *SMALL)
    assert ended.code == 0, ended.text
    assert re.search(r"The same loss on both: \d\.\d+, difference \d\.\de[+-]\d\d", ended.text)
    for backend in ("lockstep", "gloo"):
        shown = rf"{backend} +step 4/4  loss \d\.\d{{4}}  +[\d,]+ tokens/s  communication +\d+\.\d %"
        assert re.search(shown, ended.text)
        assert re.search(rf"{backend} +\d\.\d{{5}} +[\d,]+ +\d+\.\d ms +\d+\.\d %", ended.text)
    assert "\r" not in ended.text and "\x1b" not in ended.text


def test_gpt_shows_a_bar_on_a_terminal():
    """One line that is drawn again, and no wider than the terminal."""
    import pty

    terminal, other = pty.openpty()
    process = processes.popen(
        [sys.executable, os.path.join(EXAMPLES, "train_gpt.py"), *SMALL, "--backend", "lockstep"],
        env=processes.environment(COLUMNS=90),
        stdin=processes.subprocess.DEVNULL,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    text = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        text += part
        if not part:
            break
    os.close(terminal)
    text = text.decode()
    assert process.wait(processes.LIMIT_S) == 0, text
    bars = re.findall(r"\r(lockstep [^\r\x1b]*)\x1b\[K", text)
    assert bars and "step 4/4" in bars[-1] and "█" in bars[-1]
    assert max(len(bar) for bar in bars) < 90
    assert text.count("\x1b[1A") == len(bars) - 1


def test_gpt_differs_where_losses_differ():
    """The comparison can fail: losses that are not of the same steps."""
    code = (
        "import sys; sys.argv = ['train_gpt.py']; import train_gpt; from display import Meter\n"
        "meters = [Meter(name, 1, 1, True) for name in ('lockstep', 'gloo')]; meters[0].loss = 2e-5\n"
        "sys.exit(0 if train_gpt.compare(meters) else 1)"
    )
    ended = processes.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {EXAMPLES!r})\n{code}"])
    assert ended.code == 1
    assert "THE LOSSES DIFFER: 0.0000200, difference 2.0e-05" in ended.text


# Exception, the ranks that survive, and what each of them is told; places are lines of the script.
FAULTS = {
    "leave": ("PeerLeft", [0], r"rank 1 finished after all-reduce #9 while rank 0 waits in all-reduce #10"),
    "killed": ("PeerDied", [0], r"rank 1 \(pid \d+\) (was killed by SIGKILL \(9\)|died of an unknown cause) after "),
    "stopped": ("TimedOut", [0], r"rank 1 \(pid \d+\) is stopped after all-reduce #9 while rank 0 waits in "),
    "operation": ("Mismatch", [0, 1], r"different operations as #11: rank 0 all-reduce, rank 1 broadcast"),
    "shape": ("Mismatch", [0, 1], r"all-reduce #11 with different counts: rank 0 has 1, rank 1 has 3"),
    "slow": ("TimedOut", [0], r"rank 1 is elsewhere \(its last operation was all-reduce #9, finished "),
}


def lines_of(pattern):
    with open(os.path.join(EXAMPLES, "train_gpt.py"), encoding="utf-8") as file:
        return [number for number, line in enumerate(file, 1) if re.search(pattern, line)]


# One under each launcher: test_hangs.py and test_campaign.py play the same faults, in less time.
STARTED = some(
    [("python", "operation"), ("torchrun", "shape"), ("lockstep run", "killed")],
    *[("python", fault) for fault in ("leave", "slow", "killed", "stopped", "shape")],
    *[("torchrun", "stopped"), ("torchrun", "killed"), ("lockstep run", "stopped"), ("lockstep run", "shape")],
)


@pytest.mark.parametrize("launcher, fault", STARTED)
def test_gpt_survivors_are_told(launcher, fault):
    kind, survivors, told = FAULTS[fault]
    ended = run(launcher, "train_gpt.py", *SMALL, "--fault", fault)
    assert ended.code != 0
    text = re.sub(r"(?m)^\[\d\] ", "", ended.text)  # of lockstep run
    ended_first = 0  # survivors that torchrun ended, as it does once a rank has died, before they came to print it
    for rank in survivors:
        block = re.search(rf"rank {rank}: lockstep\.{kind} in step 2, raised at train_gpt\.py:(\d+)\n((  .*\n)+)", text)
        if not block and re.search(rf"rank +: {rank} \(local_rank: {rank}\)\n +exitcode +: -15 ", text):
            assert launcher == "torchrun" and re.search(rf"{told}[^\n]*\n(.*\n)*?.*\[LS-VERDICT\]", text), ended.text
            ended_first += 1
            continue
        assert block, ended.text
        assert re.search(told, block[2]), ended.text
        called = [int(number) for number in re.findall(r"called from train_gpt\.py:(\d+) \(Training\.\w+\)", block[2])]
        assert int(block[1]) in called, ended.text
        assert int(block[1]) in lines_of(r"loss\.backward\(\)|dist\.all_reduce\(|dist\.broadcast\("), ended.text
    if kind == "TimedOut":
        assert "[LS-WAITING]" in text  # told long before the time limit
    assert len(re.findall(r"rank \d: lockstep\.\w+ in step", text)) == len(survivors) - ended_first


# ---- the usual scripts ----


def test_usual_ddp():
    check_ended(run("python", "usual_ddp.py"))


@pytest.mark.parametrize(
    "launcher, script",
    some([("torchrun", "fsdp2.py"), ("lockstep run", "pipeline.py")], ("torchrun", "pipeline.py"), ("lockstep run", "fsdp2.py")),
)
def test_usual_scripts_of_launchers(script, launcher):
    check_ended(run(launcher, script))


@pytest.mark.nightly
def test_a_pipeline_of_three():
    check_ended(run("torchrun", "pipeline.py", ranks=3))


# ---- packages that build on PyTorch ----


def need(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: {sys.executable} -m pip install {package}")


def said_over(backend, launcher, script, setting, last):
    """What a script says over that backend. Gloo's processes do not always end: destroying its group, with the interpreter
    held, waits for a thread that waits for the interpreter, to drop a tensor. Of them the `last` line is enough."""
    settings = {"LOCKSTEP_DDP": setting, "LOCKSTEP_LOG": "info"}
    if backend == "gloo":
        text = run(launcher, script, backend, by=functools.partial(processes.run_until, last), **settings)
    else:
        ended = run(launcher, script, backend, **settings)
        assert ended.code == 0, ended.text
        text = ended.text
    assert ("[LS-DDP-MAPPED]" in text) == (backend == "lockstep" and setting == "mapped"), text
    return text


@pytest.mark.parametrize("launcher, setting", some([("torchrun", "plain")], ("lockstep run", "plain"), ("torchrun", "mapped")))
def test_accelerate(launcher, setting):
    need("accelerate")
    said = []
    for backend in ("lockstep", "gloo"):
        text = said_over(backend, launcher, "accelerate_digits.py", setting, "largest difference")
        check_difference(text)
        said.append(re.search(rf"{backend}, 2 ranks: (.* of \d+ digits recognised)", text)[1])
    assert said[0] == said[1]


# It trains through Accelerate, which make check tries.
@pytest.mark.nightly
@pytest.mark.parametrize("launcher, setting", [("lockstep run", "plain"), ("torchrun", "plain"), ("lockstep run", "mapped")])
def test_trainer_of_transformers(launcher, setting):
    need("transformers")
    losses = {}
    for backend in ("lockstep", "gloo"):
        last = rf"{backend}: loss (\S+) in the first of 12 steps, (\S+) in the last"
        text = said_over(backend, launcher, "transformers_trainer.py", setting, last)
        losses[backend] = re.search(last, text)
        assert losses[backend], text
    assert losses["lockstep"].groups() == losses["gloo"].groups()
    assert float(losses["lockstep"][2]) < float(losses["lockstep"][1])


# ---- restart ----

MEETINGS = {"standalone": ["--standalone"], "static": ["--master-port"], "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint"]}


@pytest.mark.parametrize(
    "meeting, fault",
    some(
        [("standalone", "killed")],
        ("standalone", "raises"), ("standalone", "stopped"), ("static", "killed"), ("c10d", "raises"),
    ),
)
def test_the_second_life_trains_on(tmp_path, meeting, fault):
    place = {"standalone": [], "static": [str(processes.free_port())], "c10d": [f"127.0.0.1:{processes.free_port()}"]}
    script = [os.path.join(EXAMPLES, "restart.py"), str(tmp_path / "kept.pt"), "--fault", fault]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *MEETINGS[meeting], *place[meeting]]
    limits = ["--nproc-per-node", "2", "--max-restarts", "1", "--shutdown-timeout", "5"]
    ended = processes.run([*torchrun, *limits, *script])
    assert "life 0 begins at step 0" in ended.text and "life 1 begins at step 10" in ended.text, ended.text
    check_ended(ended)
