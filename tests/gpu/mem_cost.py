# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of mem_cost.sh, of the files that it has left.

usage: mem_cost.py FOLDER
"""

import json
import os
import sys

from torch_cost import kernels_of

EMPTY, BYTES = "bench-all-mem-empty", "bench-all-bytes"
KERNELS = ["addition", "stencil"]


def measured(path):
    """Microseconds by kernel, those whose results are wrong, and the bytes of all accesses."""
    times, wrong, accessed = {}, [], None
    with open(path) as text:
        for words in (line.split() for line in text):
            if words[0] == "accesses":
                accessed = int(words[2])
            else:
                times[words[0]] = float(words[1])
                wrong += [words[0]] if words[2] != "right" else []
    if list(times) != KERNELS or accessed is None:
        raise ValueError(f"`{path}` is no output of accesses.cu")
    return times, wrong, accessed


def counted(path):
    """What the counter of bytes has."""
    with open(path) as text:
        (process,) = json.load(text)["processes"]
    (sums,) = (m["entries"] for m in process["maps"] if m["name"] == "bytes")
    return sum(entry["value"] for entry in sums)


def show(folder, out=sys.stdout):
    """1 if something is wrong."""
    path = lambda name, kind: os.path.join(folder, f"mem-{name}.{kind}")
    problems, means, told = [], {}, {}
    for program in ("none", EMPTY, BYTES):
        runs = []
        for time in ("1", "2"):
            name = f"{program}-{time}"
            times, wrong, accessed = measured(path(name, "txt"))
            problems += [f"{name}: the results of `{kernel}` are WRONG" for kernel in wrong]
            runs.append(times)
            if program == "none":
                continue
            rows = {row["name"]: row for row in kernels_of(path(name, "json"))}
            for kernel in KERNELS:
                row = rows.get(kernel, {"launches": 0, "uninstrumented": 0, "method": "it is not there"})
                if row["method"] != "sanitizer" or row["uninstrumented"] or not row["launches"]:
                    problems.append(f"{name}: `{kernel}` had {row['launches']} launches with the program, {row['uninstrumented']} uninstrumented, by `{row['method']}`: WRONG")
            if program == BYTES:
                found = counted(path(name, "json"))
                told[name] = f"{found:,} of {accessed:,} bytes"
                if found != accessed:
                    problems.append(f"{name}: {found} bytes counted of {accessed}: WRONG")
        means[program] = {kernel: sum(run[kernel] for run in runs) / len(runs) for kernel in KERNELS}
        told[program] = {kernel: ", ".join(f"{run[kernel]:.1f}" for run in runs) for kernel in KERNELS}
    print("| program | " + " | ".join(KERNELS) + " | counted |", file=out)
    print("|---" * (len(KERNELS) + 2) + "|", file=out)
    for program in ("none", EMPTY, BYTES):
        ratio = lambda kernel: f" ({means[program][kernel] / means[EMPTY][kernel]:.2f}× the empty one)" if program == BYTES else ""
        cells = [f"{told[program][kernel]} µs{ratio(kernel)}" for kernel in KERNELS]
        hits = "; ".join(told[f"{BYTES}-{time}"] for time in ("1", "2")) if program == BYTES else ""
        print(f"| {program if program == 'none' else f'`{program}`'} | " + " | ".join(cells) + f" | {hits} |", file=out)
    for problem in problems:
        print(problem, file=out)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(show(sys.argv[1]))
