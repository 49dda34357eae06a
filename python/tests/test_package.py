# SPDX-License-Identifier: BSD-3-Clause
"""The package as pip makes it: the library and the program come along, in an environment without PyTorch; and its
sources are those of the oldest Python that is supported."""

import ast
import os
import re
import subprocess
import sys
import venv

import pytest
import torch
from lockstep.torch import _versions

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OLDEST = (3, 9)


def sources():
    yield os.path.join(ROOT, "python", "lockstep_autoload.py")
    for folder, _, names in os.walk(os.path.join(ROOT, "python", "lockstep")):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def run(*command):
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(sources()), ids=os.path.basename)
def test_the_oldest_python_can_read_it(path):
    with open(path, encoding="utf-8") as file:
        ast.parse(file.read(), path, feature_version=OLDEST)


def test_pip_knows_every_module():
    with open(os.path.join(ROOT, "python", "meson.build"), encoding="utf-8") as file:
        listed = set(re.findall(r"'(lockstep[\w/]+\.py)'", file.read()))
    assert listed == {os.path.relpath(path, os.path.join(ROOT, "python")) for path in sources()}


FORGOTTEN = """
import sys, torch, torch.distributed as dist
print([name for name in sys.modules if name.partition(".")[0] == "lockstep"])
dist.init_process_group("lockstep", store=dist.HashStore(), rank=0, world_size=1)
total = torch.ones(2)
dist.all_reduce(total)
print(type(dist.group.WORLD).__module__, total.tolist())
"""


def _check_forgotten_import(place):
    """Of PyTorch as these tests have it: the name of the backend is known, and nothing else is loaded before it is used;
    without the C library PyTorch is imported as ever."""
    (site,) = place.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(os.path.dirname(os.path.dirname(torch.__file__)))
    python = str(place / "bin" / "python")
    assert run(python, "-c", FORGOTTEN).splitlines() == ["[]", "lockstep.torch._group [1.0, 1.0]"]
    for library in (site / "lockstep").glob("liblockstep.so*"):
        library.unlink()
    failing = "import torch, torch.distributed as dist\n" + FORGOTTEN.replace(
        "dist.init", "try: dist.init"
    ).partition("total")[0] + "except ImportError as error: print(error)"
    assert "the C library cannot be loaded" in run(python, "-c", failing)


@pytest.mark.parametrize("found, works", [("2.8.0+cpu", False), ("1.13.1", False), ("2.9.0", True), ("2.15.0a0+git1", True)])
def test_the_oldest_pytorch(found, works):
    """A sentence that names both, and the metadata say the same."""
    if works:
        _versions.check(found)
    else:
        with pytest.raises(ImportError, match=rf"PyTorch {re.escape(found)}, and 2\.9 is the oldest that works"):
            _versions.check(found)
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        assert '"torch>={}.{}"'.format(*_versions.OLDEST) in file.read()


def test_pip_install(tmp_path):
    """Not optimised, as that takes most of the time."""
    venv.create(tmp_path / "venv", with_pip=True)
    program = str(tmp_path / "venv" / "bin")
    run(f"{program}/pip", "install", "-q", "-Csetup-args=-Doptimization=0", ROOT)
    version = run(f"{program}/python", "-c", "import lockstep; print(lockstep.__version__, lockstep.PeerDied.status)")
    assert version.split() == ["0.1.0", "PEER_DIED"]
    assert "0.1.0" in run(f"{program}/lockstep", "--version")
    _check_forgotten_import(tmp_path / "venv")
    assert sys.version_info >= OLDEST
