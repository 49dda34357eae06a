#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shows that tools/check passes a small clean tree, and that each of its rules refuses a tree that breaks
just that rule, at the right place."""

import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "check")
C = "/* SPDX-License-Identifier: BSD-3-Clause */\n"
HASH = "# SPDX-License-Identifier: BSD-3-Clause\n"
PAGE = (
    "; SPDX-License-Identifier: BSD-3-Clause\n\n; begin: written by tools/check --write-docs\n"
    "; end: written by tools/check --write-docs\n\n# AUTHORS\n"
)
MESSAGES = '#define MESSAGE_BAD_WORD \\\n\t"LS-BAD-WORD", SETTING_LOG_ERROR, "bad word %s"\n'
SAYS = 'void plan_say(void);\nvoid plan_say(void)\n{\n\tMESSAGE_SAY(MESSAGE_BAD_WORD, "x");\n}\n'


PARTS = "\nFiles:\n\n- a\n\nRules (two):\n\n- b\n\nThreads and blocking: none\n\nTests: none\n"


def room(name, *sources):
    listed = ", ".join(f"'{source}'" for source in sources)
    return {
        f"src/{name}/meson.build": HASH + f"{name}_sources = files({listed})\n{name}_tests = []\n",
        f"src/{name}/README.md": f"# {name}: a room\n{PARTS}",
    }


CLEAN = {
    "src/floors": HASH + "0 base coll\n1 plan memory\n2 transport\n3 group\n",
    **room("coll", "coll.c"),
    "src/coll/coll.c": C,
    "src/coll/coll.h": C + "#define KINDS(X) \\\n\tX(SUM, \"sum-up\", SUM, ONE_COUNT, 'S', RED)\n",
    "include/lockstep/collective.h": C + "int ls_sum(void);\n",
    "doc/man/ls_collective.3.scd": HASH + "# NAME\n\nls_sum - all sing\n\n# SYNOPSIS\n\n*ls_sum* and *ls_sing*\n",
    **room("group", "collective.c"),
    "src/group/collective.c": C + "static const int kind = TRACE_SUM;\n",
    "test/ranks/collectives_test.c": C + "static const int swept = OPERATION_SUM;\n",
    "python/lockstep/torch/_recorder.py": HASH + '_NAMES = {"sum-up": "sum"}\n',
    "test/ranks/operation.c": C + "static const int kinds[] = {[OPERATION_SUM] = 1};\n",
    **room("base", "wait.c", "settings.c", "lock.c", "clock.c"),
    **room("plan", "plan.c"),
    **room("memory", "memory.c"),
    **room("transport", "shm.c", "shm_test.c"),
    "src/base/wait.h": C,
    "src/base/wait.c": C + "int wait_fds(void)\n{\n\treturn poll(0, 0, 1) + (int)syscall(SYS_futex, FUTEX_WAIT);\n}\n",
    "src/base/settings.c": C + 'int settings_read(void)\n{\n\treturn getenv("A") != 0;\n}\n',
    "src/base/lock.c": C + "void lock_take(void)\n{\n\tpthread_mutex_lock(0);\n}\n",
    "src/base/clock.c": C + '#include "base/wait.h"\n/* sleep(1), strcpy(a, b) and getenv are only spoken of */\n'
    'static const char *const words = "poll(x)";\n',
    "src/base/settings.def": C + 'X(wait_ms, WAIT_MS, U64, 5, 1, 10u, "how long")\n',
    "src/base/messages.def": C + 'X(BAD_WORD, ERROR, "A word is bad. "\n\t"Take another.")\n',
    "src/base/messages.h": C + MESSAGES,
    "include/lockstep/status.def": C + 'X(OK, 0, NONE, "success")\nX(TIMED_OUT, 1, GROUP, "late")\n',
    "include/lockstep/group.h": C + '#include "status.def"\n',
    "src/plan/plan.c": C + '#include "base/wait.h"\n' + SAYS,
    "src/memory/memory.h": C,
    "src/memory/memory.c": C + 'int memory_fd(void)\n{\n\treturn memfd_create("a", MFD_CLOEXEC);\n}\n',
    "src/transport/shm.c": C + '#include "memory/memory.h"\n',
    "src/transport/shm_test.c": C + "static int look(void)\n{\n\treturn waitpid(1, 0, 0) + poll(0, 0, 0);\n}\n",
    "examples/meson.build": HASH + "executable('hello', 'hello.c')\n",
    "examples/hello.c": C,
    "doc/man/lockstep-settings.7.scd": PAGE,
    "doc/man/lockstep-errors.7.scd": PAGE,
    "doc/man/lockstep-messages.7.scd": PAGE,
    "python/lockstep/_statuses.py": HASH + PAGE[PAGE.index("; begin") :].replace(";", "#"),
    "test/faults/run.sh": HASH + "# no sleep 1 here\n",
}


def function(body, name="plan_x"):
    return C + SAYS + f"int {name}(void)\n{{\n{body}}}\n"


def call(code):
    return {"src/plan/plan.c": function(f"\treturn {code};\n")}


# What a kind of collective has to be in.
FOLLOWING = (
    "include/lockstep/collective.h",
    "src/group/collective.c",
    "python/lockstep/torch/_recorder.py",
    "test/ranks/operation.c",
    "test/ranks/collectives_test.c",
)


# (rule, where the finding must stand, a word of it, files that break the rule in the clean tree)
REFUSED = [
    ("floor", "src/base/clock.c:2", "only lower floors", {"src/base/clock.c": C + '#include "plan/plan.h"\n'}),
    (
        "floor",
        "src/plan/plan.c:2",
        "memory is on floor 1",
        {"src/plan/plan.c": C + '#include "memory/memory.h"\n' + SAYS},
    ),
    ("floor", "src/plan/plan.c:2", "in no room", {"src/plan/plan.c": C + '#include "../memory/memory.h"\n' + SAYS}),
    ("floor", "src/plan/plan.c:2", "room/file.h", {"src/plan/plan.c": C + '#include "plan.h"\n' + SAYS}),
    ("floor", "include/lockstep/group.h:2", "installed", {"include/lockstep/group.h": C + '#include "base/wait.h"\n'}),
    ("floor", "src/attic/a.c:1", "not in src/floors", {"src/attic/a.c": C, **room("attic", "a.c")}),
    *[("collectives", f"{path}:1", "is missing", {path: (C if path.endswith((".c", ".h")) else HASH)}) for path in FOLLOWING],
    ("file-size", "src/plan/plan.c:501", "501 lines", {"src/plan/plan.c": C + SAYS + "\n" * 495}),
    ("file-size", "test/faults/run.sh:501", "501 lines", {"test/faults/run.sh": HASH + "\n" * 500}),
    ("columns", "src/plan/plan.c:2", "100 columns", {"src/plan/plan.c": C + f"/* {'x' * 95} */\n" + SAYS}),
    (
        "get-creates",
        "src/plan/plan.c:7",
        "calloc",
        {"src/plan/plan.c": function("\treturn calloc(1, 1) != 0;\n", "plan_get")},
    ),
    (
        "get-creates",
        "src/plan/plan.c:7",
        "plan_add",
        {"src/plan/plan.c": function("\treturn plan_add(1);\n", "plan_find")},
    ),
    (  # by way of another function of the file
        "get-creates",
        "src/plan/plan.c:7",
        "engine_open(…) in again",
        {
            "src/plan/plan.c": function("\treturn again();\n", "plan_get_it")
            + "static int again(void)\n{\n\treturn engine_open(1);\n}\n"
        },
    ),
    *[
        ("wait", "src/plan/plan.c:9", name, call(f"{name}(0)"))
        for name in (
            "poll",
            "ppoll",
            "select",
            "epoll_wait",
            "sleep",
            "usleep",
            "nanosleep",
            "pause",
            "sched_yield",
            "pthread_join",
            "pthread_cond_wait",
            "sem_wait",
            "wait",
            "_mm_pause",
            "getaddrinfo",
        )
    ],
    ("wait", "src/plan/plan.c:9", "SYS_futex", call("syscall(SYS_futex)")),
    ("flags", "src/plan/plan.c:9", "WNOHANG", call("waitpid(1, 0, 0)")),
    ("flags", "src/plan/plan.c:9", "WNOHANG", call("waitid(1, 0, 0, 0)")),
    ("flags", "src/plan/plan.c:9", "EFD_CLOEXEC", call("eventfd(0, 0)")),
    ("flags", "src/plan/plan.c:9", "SOCK_NONBLOCK", call("socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)")),
    ("banned", "src/plan/plan.c:9", "accept4", call("accept(1, 0, 0)")),
    ("lock", "src/plan/plan.c:9", "rank", call("pthread_mutex_lock(0)")),
    ("wait", "src/transport/shm_test.c:2", "usleep", {"src/transport/shm_test.c": C + "void f(void) { usleep(5); }\n"}),
    ("wait", "test/faults/a.c:2", "nanosleep", {"test/faults/a.c": C + "int x = nanosleep(0, 0);\n"}),
    ("wait", "test/faults/run.sh:2", "sleeps", {"test/faults/run.sh": HASH + "sleep 0.1\n"}),
    ("wait", "test/faults/run.py:2", "sleeps", {"test/faults/run.py": HASH + "time.sl" + "eep(1)\n"}),
    ("getenv", "src/plan/plan.c:9", "getenv", call('getenv("A") != 0')),
    ("getenv", "src/plan/plan.c:9", "environ", call("environ != 0")),
    *[
        ("banned", "src/plan/plan.c:9", name, call(f"{name}(0)"))
        for name in ("sprintf", "strcpy", "strcat", "strncpy", "atoi", "gets", "strtok", "alloca")
    ],
    ("spdx", "src/plan/plan.c:1", "licence", {"src/plan/plan.c": SAYS}),
    ("spdx", "src/plan/plan.c:1", "licence", {"src/plan/plan.c": C.replace(" */", " Plans. */") + SAYS}),
    ("spdx", "src/plan/meson.build:1", "licence", {"src/plan/meson.build": "plan_sources = files('plan.c')\n"}),
    ("words", "src/plan/README.md:1", "machine", {"src/plan/README.md": "# plan: see /wor" + "k/x\n"}),
    ("unlisted", "src/plan/new.c:1", "src/plan/meson.build", {"src/plan/new.c": C}),
    ("unlisted", "examples/new.c:1", "examples/meson.build", {"examples/new.c": C}),
    ("missing", "src/plan/README.md:1", "does not exist", {"src/plan/README.md": None}),
    ("readme", "src/plan/README.md:1", "begin with", {"src/plan/README.md": "# plan\n"}),
    *[
        ("readme", "src/plan/README.md:1", f"'{part}:'", {"src/plan/README.md": "# plan: steps\n" + PARTS.replace(f"\n{part}", "\n- a")})
        for part in ("Files", "Rules", "Threads and blocking", "Tests")
    ],
    ("readme", "src/plan/README.md:61", "more than 60 lines", {"src/plan/README.md": "# plan: steps\n" + "\n" * 60}),
    ("readme", "src/plan/README.md:2", "101 columns", {"src/plan/README.md": "# plan: steps\n" + "x" * 101 + "\n"}),
    (
        "settings",
        "src/base/settings.def:32",
        "at most 30",
        {"src/base/settings.def": C + "".join(f'X(a{i}, A{i}, U64, 1, 1, 2, "a")\n' for i in range(31))},
    ),
    (
        "docs",
        "doc/man/lockstep-settings.7.scd:3",
        "every setting",
        {"src/base/settings.def": C + 'X(new_ms, NEW_MS, U64, 5, 1, 10, "how long")\n'},
    ),
    (
        "docs",
        "doc/man/lockstep-errors.7.scd:3",
        "every status",
        {"include/lockstep/status.def": C + 'X(OK, 0, NONE, "success")\n'},
    ),
    (
        "docs",
        "doc/man/lockstep-messages.7.scd:3",
        "every message",
        {"src/base/messages.def": C + 'X(BAD_WORD, ERROR, "Another help.")\n'},
    ),
    ("docs", "python/lockstep/_statuses.py:1", "must stand here once", {"python/lockstep/_statuses.py": HASH}),
    ("docs", "doc/man/lockstep-errors.7.scd:1", "must stand here once", {"doc/man/lockstep-errors.7.scd": PAGE[:46]}),
    (
        "docs",
        "include/lockstep/group.h:2",
        "ls_sing",
        {"include/lockstep/group.h": C + "LS_EXPORT LS_CHECKED ls_status ls_sing(ls_group *group,\n\tint song);\n"},
    ),
    ("missing", "doc/man/lockstep-errors.7.scd:1", "does not exist", {"doc/man/lockstep-errors.7.scd": None}),
    ("table", "src/base/settings.def:1", "cannot be read", {"src/base/settings.def": C + "X(a, A, U64, 1, 1, 2)\n"}),
    ("messages", "src/base/messages.def:2", "not in messages.h", {"src/base/messages.h": C}),
    ("messages", "src/base/messages.h:2", "no help", {"src/base/messages.def": C}),
    (
        "messages",
        "src/base/messages.h:2",
        "must agree",
        {"src/base/messages.h": C + MESSAGES.replace("LS-BAD", "LS-SAD")},
    ),
    (
        "messages",
        "src/base/messages.def:2",
        "another level",
        {"src/base/messages.h": C + MESSAGES.replace("_ERROR", "_WARN")},
    ),
    ("messages", "src/base/messages.h:2", "nobody says", {"src/plan/plan.c": C}),
]

# The same for compiled code: (rule, where, word, room, file, code).
REFUSED_SYMBOLS = [
    ("prefix", "src/plan/plan.c:7", "helper", "plan", "plan.c", "int helper(void)\n{\n\treturn 1;\n}\n"),
    ("prefix", "src/plan/plan.c:7", "ls_plan", "plan", "plan.c", "int ls_plan(void)\n{\n\treturn 1;\n}\n"),
    ("prefix", "src/base/wait.c:7", "clock_now", "base", "wait.c", "int clock_now(void)\n{\n\treturn 1;\n}\n"),
    (
        "global",
        "src/plan/plan.c:7",
        "counter",
        "plan",
        "plan.c",
        "static int counter;\nint *plan_x(void)\n{\n\treturn &counter;\n}\n",
    ),
    (
        "global",
        "src/plan/plan.c:8",
        "a thread's",
        "plan",
        "plan.c",
        "\nstatic _Thread_local int depth = 1;\nint *plan_x(void)\n{\n\treturn &depth;\n}\n",
    ),
]
ACCEPTED_SYMBOLS = [
    (
        "plan",
        "plan.c",
        "static int one(void)\n{\n\treturn 1;\n}\nint (*const plan_table[])(void) = {one};\nint plan_x(void)\n{\n\treturn one();\n}\n",
    ),
    ("base", "wait.c", "int wait_x(void)\n{\n\treturn 1;\n}\nint ls_status_text(void)\n{\n\treturn 1;\n}\n"),
]


def write(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        if text is None:
            os.remove(full)
            continue
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


def check(root, *arguments):
    done = subprocess.run(
        [sys.executable, CHECK, "--root", root, *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def tree(folder, changes):
    write(folder, CLEAN)
    check(folder, "--write-docs")
    write(folder, changes)


def run_symbols(folder, room_name, file, code):
    """Checks a tree whose room holds `code`, compiled for shared libraries as the build does."""
    source = C + SAYS.replace("plan", room_name if room_name != "base" else "wait") + code
    tree(folder, {f"src/{room_name}/{file}": source})
    build = os.path.join(folder, "build", "x", "src")
    member = os.path.join(build, f"{room_name}_{file}.o")
    os.makedirs(build)
    subprocess.run(
        ["cc", "-fPIC", "-D", "MESSAGE_SAY(...)", "-c", "-o", member, os.path.join(folder, "src", room_name, file)],
        check=True,
    )
    subprocess.run(["ar", "rcs", os.path.join(build, f"lib{room_name}.a"), member], check=True)
    return check(folder, "--build", os.path.join(folder, "build", "x"))


def main():
    passed, problems = 0, []

    def judge(title, good, output):
        nonlocal passed
        if good:
            passed += 1
        else:
            problems.append(title)
            print(f"not ok - {title}\n{output}")

    with tempfile.TemporaryDirectory() as folder:
        write(folder, CLEAN)
        code, output = check(folder)
        judge("pages without tables are refused", code == 1 and output.count(": docs: ") == 4, output)
        check(folder, "--write-docs")
        code, output = check(folder)
        judge("the clean tree passes", code == 0 and output == "", output)
        with open(os.path.join(folder, "doc/man/lockstep-messages.7.scd"), encoding="utf-8") as file:
            text = file.read()
        judge(
            "the table holds the help",
            "*LS-BAD-WORD* (error)\n\tA word is bad. Take another.\n" in text and text.endswith("# AUTHORS\n"),
            text,
        )
    for rule, place, word, changes in REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, changes)
            code, output = check(folder)
            good = code == 1 and any(
                line.startswith(f"{place}: {rule}: ") and word in line for line in output.splitlines()
            )
            judge(f"{rule} refuses: {place}: {word}", good, output)
    for rule, place, word, room_name, file, text in REFUSED_SYMBOLS:
        with tempfile.TemporaryDirectory() as folder:
            code, output = run_symbols(folder, room_name, file, text)
            good = code == 1 and any(
                line.startswith(f"{place}: {rule}: ") and word in line for line in output.splitlines()
            )
            judge(f"{rule} refuses: {place}: {word}", good, output)
    for room_name, file, text in ACCEPTED_SYMBOLS:
        with tempfile.TemporaryDirectory() as folder:
            code, output = run_symbols(folder, room_name, file, text)
            judge(
                f"symbols of {room_name}/{file} pass", ": prefix:" not in output and ": global:" not in output, output
            )
    print(f"{passed} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
