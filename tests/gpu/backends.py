# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares, kernel by kernel, what back ends have counted in runs that were the same.

usage: backends.py BACKEND=REPORT.json...    (reports of `warpbpf run ... threads.bpf.o`)

Wrong is a kernel of which two back ends have counted other numbers of threads or launches, or one has seen other threads begin than end; a back end that served
no kernel; and that no kernel was served by all of them.
"""

import json
import sys


class Kernel:
    """All kernels of one name."""

    def __init__(self):
        self.launches = self.uninstrumented = self.began = self.ended = 0
        self.methods = set()

    def by(self):
        """By which back end its launches had programs: whatever is made of PTX is one."""
        return "+".join(sorted({method if method in ("splice", "sanitizer") else "ptx" for method in self.methods}))


def kernels_of(report):
    kernels = {}
    for process in report["processes"]:
        maps = {found["name"]: {entry["key"]: entry["value"] for entry in found["entries"]} for found in process["maps"]}
        for row in process["kernels"]:
            kernel = kernels.setdefault(row["mangled"], Kernel())
            kernel.launches += row["launches"]
            kernel.uninstrumented += row["uninstrumented"] + row.get("skipped", 0) + row.get("unwanted", 0)
            if row["launches"]:
                kernel.methods.add(row["method"])
            if row["id"] is not None:
                kernel.began += maps["began"].get(row["id"], 0)
                kernel.ended += maps["ended"].get(row["id"], 0)
    return kernels


def short(name):
    return name if len(name) <= 60 else name[:40] + "…" + name[-19:]


def compare(reports, out):
    """1 if something is wrong. `reports` are by back end."""
    found = {backend: kernels_of(report) for backend, report in reports.items()}
    launched = [{name for name, kernel in kernels.items() if kernel.launches + kernel.uninstrumented} for kernels in found.values()]
    wrong, alike, by_all, parted = [], 0, 0, 0
    for backend, kernels in found.items():
        if not any(backend in kernel.by().split("+") for kernel in kernels.values()):
            wrong.append(f"no kernel had programs by {backend}")
    for name in sorted(set.union(*launched)):
        its = {backend: kernels[name] for backend, kernels in found.items() if name in kernels}
        cells = []
        for backend, kernel in its.items():
            if not kernel.launches:
                continue
            cells.append(f"{backend} ({kernel.by()}): {kernel.launches:,} launches, {kernel.began:,} threads" + (f", {kernel.uninstrumented:,} uninstrumented" if kernel.uninstrumented else ""))
            if kernel.began != kernel.ended or not kernel.began:
                wrong.append(f"{short(name)}: by {backend} {kernel.began:,} threads began and {kernel.ended:,} ended")
        print(f"  {short(name)}", *(f"    {cell}" for cell in cells or ["by none"]), sep="\n", file=out)
        # A kernel that a run does not tell of was not launched there.
        launches = {kernels[name].launches + kernels[name].uninstrumented if name in kernels else 0 for kernels in found.values()}
        if len(launches) > 1:
            wrong.append(f"{short(name)}: launches differ: {', '.join(f'{number:,}' for number in sorted(launches))}")
        # Launches without programs have threads that nobody has counted.
        served = [kernel for kernel in its.values() if kernel.launches]
        whole = [kernel for kernel in served if not kernel.uninstrumented]
        parted += len(whole) < len(served)
        if len({kernel.began for kernel in whole}) > 1:
            wrong.append(f"{short(name)}: threads differ: {', '.join(f'{kernel.began:,} by {kernel.by()}' for kernel in whole)}")
        else:
            methods = {kernel.by() for kernel in whole}
            alike += len(methods) > 1
            by_all += len(methods) >= len(found)
    print(f"{alike} kernels served by several back ends, {by_all} by all {len(found)}; {parted} had launches without programs and are not compared there", file=out)
    if not by_all:
        wrong.append(f"no kernel was served by all of {', '.join(found)}")
    for line in wrong:
        print(f"WRONG: {line}", file=out)
    return int(bool(wrong))


def main():
    reports = {}
    for argument in sys.argv[1:]:
        backend, path = argument.split("=", 1)
        with open(path) as text:
            reports[backend] = json.load(text)
    if len(reports) < 2:
        sys.exit("usage: backends.py BACKEND=REPORT.json BACKEND=REPORT.json...")
    sys.exit(compare(reports, sys.stdout))


if __name__ == "__main__":
    main()
