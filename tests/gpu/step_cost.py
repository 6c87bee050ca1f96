# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of step_cost.sh, of the files that it has left.

usage: step_cost.py FOLDER
"""

import os
import re
import sys

from torch_cost import kernels_of, served, times_of

RUNS = [
    ("splice", "bench-all-empty"),
    ("splice", "bench-all-count"),
    ("splice", "bench-all-blocks"),
    ("sanitizer", "bench-all-entry"),
]
# As benches/launch.cu has them.
LAUNCHES = 100_000


def steps(folder, out):
    """1 if something is wrong."""
    path = lambda name, kind: os.path.join(folder, f"step-{name}.{kind}")
    (before, digest), (after, again) = (times_of(path(name, "txt")) for name in ("before", "after"))
    wrong = digest != again
    if wrong:
        print(f"the results differ without programs: {digest} and {again}: WRONG", file=out)
    mean = {name: (before[name] + after[name]) / 2 for name in before}
    print("| a step of training | " + " | ".join(mean) + " | launches with it |", file=out)
    print("|---" * (len(mean) + 2) + "|", file=out)
    print("| none | " + " | ".join(f"{before[name]:.0f}, {after[name]:.0f} µs" for name in mean) + " | |", file=out)
    for backend, program in RUNS:
        name = f"{backend}-{program}"
        times, its = times_of(path(name, "txt"))
        with_it, launches = served(path(name, "json"))
        cells = [f"{times[name]:.0f} µs ({times[name] / mean[name]:.3f}×)" for name in mean]
        print(f"| {backend}: `{program}` | " + " | ".join(cells) + f" | {with_it:,} of {launches:,} |", file=out)
        if its != digest:
            print(f"{name}: the results are others: WRONG: {its}, not {digest}", file=out)
            wrong = True
        if not with_it:
            print(f"{name}: no launch had programs: WRONG", file=out)
            wrong = True
    return wrong


def launch(path):
    """Nanoseconds of a launch of `plain` and of `probed`, and how many there were of each."""
    with open(path) as text:
        found = re.fullmatch(r"plain (\d+) probed (\d+) launches (\d+)\n", text.read())
    if not found:
        raise ValueError(f"`{path}` is no output of launch.cu")
    return [int(number) for number in found.groups()]


def hosts(folder, out):
    """1 if something is wrong."""
    wrong = False
    print("| the host's time of a launch | without a program | with one | launches with it |", file=out)
    print("|---|---|---|---|", file=out)
    for name in ("before", "splice", "sanitizer", "after"):
        plain, probed, count = launch(os.path.join(folder, f"launch-{name}.txt"))
        told = ""
        if name in ("splice", "sanitizer"):
            rows = {row["name"]: row for row in kernels_of(os.path.join(folder, f"launch-{name}.json"))}
            row = rows.get("probed", {"launches": 0, "uninstrumented": 0, "method": "it is not there"})
            told = f"{row['launches']:,} of {count:,}"
            if (row["launches"], row["uninstrumented"], row["method"]) != (count, 0, name) or count != LAUNCHES:
                print(f"{name}: {row['launches']} launches with the program, {row['uninstrumented']} uninstrumented, by `{row['method']}`: WRONG", file=out)
                wrong = True
        what = {"before": "no agent", "after": "no agent"}.get(name, name)
        print(f"| {what} | {plain} ns | {probed} ns ({probed / plain:.2f}×) | {told} |", file=out)
    return wrong


def show(folder, out=sys.stdout):
    """1 if a result is another one with programs than without, or programs were not there."""
    wrong = steps(folder, out)
    print(file=out)
    return int(hosts(folder, out) or wrong)


if __name__ == "__main__":
    sys.exit(show(sys.argv[1]))
