# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of torch_cost.sh, of the files that it has left.

usage: torch_cost.py FOLDER BACKEND
"""

import json
import os
import re
import sys

PROGRAMS = ["bench-all-entry", "bench-all-empty", "bench-all-count", "bench-all-blocks", "torch_blocktimes"]


def times_of(path):
    """Microseconds by operation, and the digest of the results: the last line."""
    with open(path) as text:
        *rows, digest = text.read().split("\n")[:-1]
    if not re.fullmatch("[0-9a-f]{16}", digest):
        raise ValueError(f"`{path}` does not end with a digest: {digest}")
    return {name: float(time) for name, time in (row.split() for row in rows)}, digest


def kernels_of(path):
    """Of all processes of a report."""
    with open(path) as text:
        return [row for process in json.load(text)["processes"] for row in process["kernels"]]


def served(path):
    """Launches with programs, and all of kernels that the report knows."""
    rows = kernels_of(path)
    launches = sum(row["launches"] for row in rows)
    return launches, launches + sum(row["uninstrumented"] for row in rows)


def show(folder, backend, out=sys.stdout):
    """1 if a result is another one with programs than without."""
    path = lambda name, kind: os.path.join(folder, f"cost-{backend}-{name}.{kind}")
    (before, digest), (after, again) = (times_of(path(name, "txt")) for name in ("before", "after"))
    wrong = digest != again
    if wrong:
        print(f"the results differ without programs: {digest} and {again}: WRONG", file=out)
    mean = {name: (before[name] + after[name]) / 2 for name in before}
    print("| program | " + " | ".join(mean) + " | launches with it |", file=out)
    print("|---" * (len(mean) + 2) + "|", file=out)
    print("| none | " + " | ".join(f"{before[name]:.1f}, {after[name]:.1f} µs" for name in mean) + " | |", file=out)
    for program in PROGRAMS:
        times, its = times_of(path(program, "txt"))
        with_it, launches = served(path(program, "json"))
        cells = [f"{times[name]:.1f} µs ({times[name] / mean[name]:.2f}×)" for name in mean]
        print(f"| {backend}: `{program}` | " + " | ".join(cells) + f" | {with_it:,} of {launches:,} |", file=out)
        if its != digest:
            print(f"{program}: the results are others: WRONG: {its}, not {digest}", file=out)
            wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(show(sys.argv[1], sys.argv[2]))
