#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""run.py BUILD [--seconds 60] [--only NAME,…] [--keep]: runs every fuzzer for so long, and begins with its corpus. With
clang's libFuzzer, coverage chooses the inputs, under AddressSanitizer and UndefinedBehaviorSanitizer. Where that is not
installed, the fuzzers of BUILD draw their inputs. --keep adds inputs that have reached more to corpus/NAME.hex, as long as
that stays small. Prints TAP and "N passed, N failed", and an input that fails as a line of a corpus."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BY_COVERAGE = os.path.join(ROOT, "build", "fuzz")
NAMES = sorted(name[: -len("_fuzz.c")] for name in os.listdir(HERE) if name.endswith("_fuzz.c"))
HEAD = "# SPDX-License-Identifier: BSD-3-Clause\n"
KEPT_BYTES = 32 * 1024  # of each corpus
INPUT_BYTES = 512  # of each input that is kept


def has_libfuzzer():
    if not shutil.which("clang"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "empty.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int LLVMFuzzerTestOneInput(const char *data, long size) { return !data && size; }\n")
        command = ["clang", "-fsanitize=fuzzer,address,undefined", source, "-o", os.path.join(folder, "empty")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def build(names):
    if not os.path.exists(os.path.join(BY_COVERAGE, "build.ninja")):
        options = ["-Db_sanitize=address,undefined", "-Dc_args=-fsanitize=fuzzer-no-link"]
        subprocess.run(["meson", "setup", BY_COVERAGE, *options], env={**os.environ, "CC": os.environ.get("FUZZ_CC", "clang")},
                       cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    targets = [f"test/fuzz/{name}_fuzz" for name in names]
    subprocess.run(["ninja", "-C", BY_COVERAGE, *targets], stdout=subprocess.DEVNULL, check=True)


def corpus_of(name):
    return os.path.join(HERE, "corpus", name + ".hex")


def read_corpus(name):
    with open(corpus_of(name), encoding="utf-8") as file:
        return [bytes.fromhex(line) for line in file if not line.startswith("#")]


def keep(name, folder):
    """The smallest inputs first, as many as there is room for."""
    inputs = []
    for entry in os.listdir(folder):
        with open(os.path.join(folder, entry), "rb") as file:
            inputs.append(file.read())
    kept, used = [], 0
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        used += 2 * len(data) + 1
        if used > KEPT_BYTES or len(data) > INPUT_BYTES:
            break
        kept.append(data)
    with open(corpus_of(name), "w", encoding="utf-8") as file:
        file.write(HEAD + "".join(data.hex() + "\n" for data in kept))
    return len(kept)


def fuzz_by_coverage(name, options):
    """(what it did, what went wrong)"""
    program = os.path.join(BY_COVERAGE, "test", "fuzz", name + "_fuzz")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        before, after = os.path.join(folder, "before"), os.path.join(folder, "after")
        for place in (before, after):
            os.mkdir(place)
        for number, data in enumerate(read_corpus(name)):
            with open(os.path.join(before, f"{number:05}"), "wb") as file:
                file.write(data)
        quiet = ["-verbosity=1", "-print_final_stats=1", "-max_len=4096", "-timeout=30", "-rss_limit_mb=2048",
                 f"-artifact_prefix={folder}/failed-"]
        run = subprocess.run([program, *quiet, f"-max_total_time={options.seconds}", before], capture_output=True, text=True,
                             errors="replace", cwd=folder, check=False)
        failed = [entry for entry in os.listdir(folder) if entry.startswith("failed-")]
        if run.returncode or failed:
            text = run.stderr[-4000:]
            for entry in failed:
                with open(os.path.join(folder, entry), "rb") as file:
                    text += f"\nthe input:\n{file.read().hex()}"
            return "", text
        count = re.search(r"number_of_executed_units: (\d+)", run.stderr)
        reached = re.findall(r"cov: (\d+)", run.stderr)
        did = f"{int(count[1]) if count else 0} inputs chosen by coverage, {reached[-1] if reached else '?'} places reached"
        if options.keep:
            subprocess.run([program, "-merge=1", f"-max_len={INPUT_BYTES}", after, before], capture_output=True, check=True, cwd=folder)
            did += f", {keep(name, after)} kept"
        return did, ""


def fuzz_alone(name, options):
    program = os.path.join(options.build, "test", "fuzz", name + "_fuzz")
    run = subprocess.run([program, "--seconds", str(options.seconds), "--seed", str(os.getpid()), corpus_of(name)],
                         capture_output=True, text=True, errors="replace", check=False)
    done = re.search(r"^# figure: (.*): nothing wrong$", run.stdout, re.M)
    return (done[1], "") if run.returncode == 0 and done else ("", run.stdout + run.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", type=lambda text: text.split(","), default=NAMES)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    by_coverage = has_libfuzzer()
    if by_coverage:
        build(options.only)
    failed = 0
    print(f"1..{len(options.only)}")
    for number, name in enumerate(options.only, 1):
        did, wrong = (fuzz_by_coverage if by_coverage else fuzz_alone)(name, options)
        failed += bool(wrong)
        print(f"# figure: {name}: {did or 'FAILED'} in {options.seconds} s")
        print(f"{'not ' if wrong else ''}ok {number} - {name}")
        print("".join(f"# {line}\n" for line in wrong.splitlines()), end="", flush=True)
    print(f"{len(options.only) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
