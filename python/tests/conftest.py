# SPDX-License-Identifier: BSD-3-Clause
"""What all tests of the package share: the pool of ranks, what belongs to make nightly, how two processes of pytest share
the files, and the closing line that tools/verify counts."""

import gc
import os
import sys

import pytest

gc.disable()  # until all is imported, of which nothing is garbage

# The package of this tree, and no other that may be installed; the processes of ranks inherit both.
_PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, _PYTHON)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_PYTHON, os.environ.get("PYTHONPATH")]))
for _name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCKSTEP_RENDEZVOUS"):
    os.environ.pop(_name, None)  # those of a launcher that runs the tests are not ours

_POOLS = {"ranks", "on_hosts"}
_begun = {}  # file → whether this process runs it


def pytest_addoption(parser):
    parser.addoption("--write-docs", action="store_true", help="write the tables that tests generate into doc/")
    parser.addoption("--nightly", action="store_true", help="only what make check leaves to make nightly")
    parser.addoption("--share", metavar="FOLDER", help="run the files that no other pytest with this folder has begun")
    parser.addoption("--scripts-first", action="store_true", help="before the files whose tests use the pools of ranks")


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: takes long and rarely finds anything; test/README.md says why")


def pytest_collection_modifyitems(config, items):
    """make check runs what is not marked, make nightly what is; whoever names one test by its id gets it."""
    if any("::" in argument for argument in config.args):
        return
    wanted = config.getoption("--nightly")
    left = [item for item in items if (item.get_closest_marker("nightly") is not None) != wanted]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    if config.getoption("--share"):
        pooled = {item.path for item in items if not _POOLS.isdisjoint(getattr(item, "fixturenames", ()))}
        items.sort(key=lambda item: (item.path in pooled) == config.getoption("--scripts-first"))


def pytest_collection_finish():
    gc.enable()
    gc.freeze()


def pytest_runtest_protocol(item):
    """Skips, without a word, the tests of a file that another process has begun. One begins with those that use the
    pools, the other with the others: so mostly only one of them has pools."""
    folder = item.config.getoption("--share")
    if folder and item.path not in _begun:
        try:
            os.close(os.open(os.path.join(folder, item.path.name), os.O_CREAT | os.O_EXCL))
            _begun[item.path] = True
        except FileExistsError:
            _begun[item.path] = False
    return None if _begun.get(item.path, True) else True


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    from pool import Pool

    pool = Pool(str(tmp_path_factory.mktemp("ranks")))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def on_hosts(tmp_path_factory):
    """Of ranks on two hosts: on_hosts(0, 0, 1, 1) is a pool of four, of which the first two share a host."""
    from host_ranks import HostPool, NoHosts

    folder = tmp_path_factory.mktemp("hosts")
    secret = folder / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    try:
        pool = HostPool(str(folder), str(secret))
    except NoHosts as reason:
        pytest.skip(str(reason))
    yield pool.on
    pool.close()


def pytest_terminal_summary(terminalreporter):
    count = {kind: len(terminalreporter.stats.get(kind, ())) for kind in ("passed", "failed", "error")}
    terminalreporter.write_line(f"{count['passed']} passed, {count['failed'] + count['error']} failed")
