# SPDX-License-Identifier: BSD-3-Clause
"""The package as a wheel: the library and the program come along, in an environment without PyTorch and without a
compiler; its sources are those of the oldest Python that is supported, and what type checkers read of it is true."""

import ast
import inspect
import os
import re
import subprocess
import sys
import venv
import zipfile

import pytest
import torch

import lockstep.torch
from lockstep import errors
from lockstep.torch import _versions

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OLDEST = (3, 9)


def sources():
    yield os.path.join(ROOT, "python", "lockstep_autoload.py")
    for folder, _, names in os.walk(os.path.join(ROOT, "python", "lockstep")):
        yield from (os.path.join(folder, name) for name in names if name.endswith((".py", ".pyi", "py.typed")))


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(sources()), ids=os.path.basename)
def test_the_oldest_python_can_read_it(path):
    with open(path, encoding="utf-8") as file:
        ast.parse(file.read(), path, feature_version=OLDEST)


def test_pip_knows_every_module():
    with open(os.path.join(ROOT, "python", "meson.build"), encoding="utf-8") as file:
        listed = set(re.findall(r"'(lockstep[\w/]+\.(?:py|pyi|typed))'", file.read()))
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
    """Of PyTorch as these tests have it: the name of the backend is known, and nothing else is loaded before it is used,
    unless that is switched off; without the C library PyTorch is imported as ever."""
    (site,) = place.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(os.path.dirname(os.path.dirname(torch.__file__)))
    python = str(place / "bin" / "python")
    assert run(python, "-c", FORGOTTEN).splitlines() == ["[]", "lockstep.torch._group [1.0, 1.0]"]
    off = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    caught = FORGOTTEN.replace("dist.init", "try: dist.init").partition("total")[0] + "except AssertionError as error: print(error)"
    assert "Unknown backend type lockstep" in run(python, "-c", caught, **off)
    assert run(python, "-c", "import lockstep.torch" + FORGOTTEN, **off).splitlines()[1:] == ["lockstep.torch._group [1.0, 1.0]"]
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


def _stub(*path):
    """What a file for type checkers says: its names, and each as a node of syntax."""
    with open(os.path.join(ROOT, "python", "lockstep", *path), encoding="utf-8") as file:
        body = ast.parse(file.read()).body
    listed = next(ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign))
    return listed, {node.name: node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def test_types_of_errors():
    listed, nodes = _stub("errors.pyi")
    assert listed == errors.__all__
    for name in listed[1:]:
        assert [base.id for base in nodes[name].bases] == [base.__name__ for base in getattr(errors, name).__bases__]
    assert issubclass(errors.Error, RuntimeError)
    attributes = {node.target.id for node in nodes["Error"].body if isinstance(node, ast.AnnAssign)}
    assert attributes == {"status", *vars(errors.Error())}


def _shape(arguments):
    """Names, and which have a default."""
    plain = arguments.posonlyargs + arguments.args
    without = len(plain) - len(arguments.defaults)
    rest = [(argument.arg, default is not None) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    several = [(arguments.vararg.arg, False)] if arguments.vararg else []
    return [(argument.arg, i >= without) for i, argument in enumerate(plain)] + several + rest


def _check_shape(node, function):
    assert _shape(node.args) == [
        (parameter.name, parameter.default is not parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]


def test_types_of_functions():
    listed, nodes = _stub("torch", "__init__.pyi")
    assert listed == lockstep.torch.__all__ and sorted(nodes) == listed
    for name, node in nodes.items():
        if isinstance(node, ast.FunctionDef):
            _check_shape(node, getattr(lockstep.torch, name))
            continue
        for method in (part for part in node.body if isinstance(part, ast.FunctionDef)):
            _check_shape(method, getattr(getattr(lockstep.torch, name), method.name))


def _check_wheel(path):
    """Whatever Python installs it, with no library but those of the system, and with nothing that only a debugger reads."""
    assert re.fullmatch(r"lockstep-0\.1\.0-py3-none-manylinux_2_\d+_\w+\.whl", path.name)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        metadata = archive.read("lockstep-0.1.0.dist-info/METADATA").decode()
        libraries = [name for name in names if "liblockstep" in name]
        archive.extractall(path.parent, libraries)
    assert "License-Expression: BSD-3-Clause\n" in metadata and "Classifier: Typing :: Typed\n" in metadata
    assert not [name for name in names if ".libs/" in name]
    assert {"lockstep/py.typed", "lockstep/errors.pyi", "lockstep/torch/__init__.pyi"} < set(names)
    assert [os.path.basename(name).partition(".")[0] for name in sorted(libraries)] == ["liblockstep", "liblockstep_torch"]
    for library in libraries:
        assert ".debug" not in run("readelf", "-S", "-W", str(path.parent / library))


HELLO = """
import os, lockstep, sys
print(lockstep.__version__, lockstep.PeerDied.status, os.environ["RANK"])
"""


EDITABLE = """
import lockstep, lockstep.torch._recorder as recorder
print(lockstep.__file__, recorder.program(), lockstep._library.FOLDER)
"""


def _check_editable(place, options):
    """What is imported is this tree, and the library and the program lie where they are built."""
    venv.create(place, with_pip=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(os.path.dirname(os.path.dirname(torch.__file__)))
    pip = [str(place / "bin" / "pip"), "install", "-q"]
    run(*pip, "meson-python", "meson", "ninja")
    run(*pip, "--no-build-isolation", "--no-deps", *options, "-e", ROOT)
    build = options[0].partition("build-dir=")[2]
    said = run(str(place / "bin" / "python"), "-c", EDITABLE).split()
    assert said == [os.path.join(ROOT, "python", "lockstep", "__init__.py"), os.path.join(build, "lockstep"), build]


@pytest.mark.nightly
def test_wheel_and_editable_installation(tmp_path):
    """Both from one build, which is not optimised, as that takes most of the time."""
    options = [f"-Cbuild-dir={tmp_path}/build", "-Csetup-args=-Doptimization=0"]
    run(os.path.join(ROOT, "tools", "wheel"), str(tmp_path), *options, PYTHON=sys.executable)
    (wheel,) = tmp_path.glob("*.whl")
    _check_wheel(wheel)
    venv.create(tmp_path / "venv", with_pip=True)
    program = str(tmp_path / "venv" / "bin")
    run(f"{program}/pip", "install", "-q", "--no-index", str(wheel), PATH=program)
    said = run(f"{program}/lockstep", "run", "-n", "2", f"{program}/python", "-c", HELLO, PATH=program)
    assert sorted(said.split("\n")[:2]) == ["[0] 0.1.0 PEER_DIED 0", "[1] 0.1.0 PEER_DIED 1"]
    version = run(f"{program}/python", "-c", "import lockstep; print(lockstep.__version__, lockstep.PeerDied.status)")
    assert version.split() == ["0.1.0", "PEER_DIED"]
    assert "0.1.0" in run(f"{program}/lockstep", "--version")
    _check_forgotten_import(tmp_path / "venv")
    _check_editable(tmp_path / "editable", options)
    assert sys.version_info >= OLDEST
