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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OLDEST = (3, 9)


def sources():
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
        listed = set(re.findall(r"'(lockstep/[\w/]+\.py)'", file.read()))
    assert listed == {os.path.relpath(path, os.path.join(ROOT, "python")) for path in sources()}


def test_pip_install(tmp_path):
    """Not optimised, as that takes most of the time."""
    venv.create(tmp_path / "venv", with_pip=True)
    program = str(tmp_path / "venv" / "bin")
    run(f"{program}/pip", "install", "-q", "-Csetup-args=-Doptimization=0", ROOT)
    version = run(f"{program}/python", "-c", "import lockstep; print(lockstep.__version__, lockstep.PeerDied.status)")
    assert version.split() == ["0.1.0", "PEER_DIED"]
    assert "0.1.0" in run(f"{program}/lockstep", "--version")
    assert sys.version_info >= OLDEST
