# SPDX-License-Identifier: BSD-3-Clause
"""python -m lockstep.torch.flight_recorder SOURCE PREFIX: what the ranks of a job did, as files <PREFIX><rank> of
PyTorch's flight recorder, for torchfrtrace."""

import argparse
import os
import sys

from lockstep import errors
from lockstep.torch import _recorder


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.torch.flight_recorder",
        description="Writes what the ranks of a job did as files of PyTorch's flight recorder, one for each rank, also "
        "of ranks that are stopped or dead. torchfrtrace reads them.",
    )
    parser.add_argument(
        "source",
        help="a running job (its number, or one of its processes), or a file: a snapshot of a job that ended badly, or "
        "what lockstep run --trace FILE has kept",
    )
    parser.add_argument("prefix", help="of the files; the rank follows")
    options = parser.parse_args(arguments)
    try:
        paths, unknown = _recorder.write(options.source, options.prefix)
    except (errors.Error, OSError) as error:
        print(f"lockstep: {error}", file=sys.stderr)
        return 1
    for rank in unknown:
        print(f"lockstep: nothing is known of rank {rank}, so it gets no file", file=sys.stderr)
    folder, name = os.path.split(options.prefix)
    print(f"{len(paths)} files written, {paths[0]} and so on; now: torchfrtrace -p '{name}' {folder or '.'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
