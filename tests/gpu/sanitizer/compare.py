"""Compares what `gpu/mem` counted with what Compute Sanitizer counted, for tests/gpu/memcount.sh.

usage: compare.py DIFFERENCES FOLDER NAME...     FOLDER has NAME's files: memcount-NAME.ours, memcount-NAME.sanitizer
Without the second file only the first is shown. Exit status 1: a difference without a reason, or a reason without one.
"""

import json
import os
import sys

# Numbers of the field `kind`, include/warpbpf.h. Tensor and bulk copies are no GLOBAL_MEMORY_ACCESS; prefetches move nothing.
COLUMN_OF_KIND = {1: "loads", 10: "loads", 2: "stores", 11: "stores", 3: "atomics", 4: "atomics", 5: "copies"}
NOT_COMPARED = {6, 7, 12}
GENERIC = 0
COLUMNS = ["loads", "stores", "atomics", "bytes", "copies"]
# First words of reasons: the compiler made one access of several, left one out, made several of one; the address of a generic
# access was one of shared or local memory; or a function that is only called through a pointer has no programs.
WHY = {"merged", "removed", "split", "elsewhere", "narrowed", "unreached"}


def read_differences(path):
    """{(name, kernel, column): (sanitizer, ours, reason)}"""
    differences = {}
    for number, line in enumerate(open(path), 1):
        line = line.strip()
        what, _, reason = line.partition(": ")
        words = what.split()
        if not line or line.startswith("#") or words[-1] == "skipped":
            continue
        if len(words) < 5 or words[-3] not in COLUMNS or reason.split(":")[0] not in WHY:
            sys.exit(f"{path}:{number}: not `NAME KERNEL COLUMN SANITIZER OURS: {'|'.join(sorted(WHY))}: …`: {line}")
        differences[words[0], " ".join(words[1:-3]), words[-3]] = int(words[-2]), int(words[-1]), reason
    return differences


def read_ours(path, problems, notes):
    """{mangled name: (name, launches, {column: count}, generic accesses)} of kernels that were, or may have been, launched."""
    report = json.load(open(path))
    kernels = {}
    for process in report["processes"]:
        counts = {}
        for m in process["maps"]:
            if m["name"] == "counts":
                for entry in m["entries"]:
                    counts[int(entry["key"])] = entry["value"]["accesses"], entry["value"]["bytes"]
        for kernel in process["kernels"]:
            launches, uninstrumented = kernel["launches"], kernel["uninstrumented"]
            if kernel["method"] == "no site":
                # It runs as it is, and its launches are not counted.
                kernels[kernel["mangled"]] = kernel["name"], None, dict.fromkeys(COLUMNS, 0), 0
            if launches + uninstrumented == 0:
                continue
            if uninstrumented or not kernel["instrumented"]:
                problems.append(f"`{kernel['name']}` ran {uninstrumented} times without our program: {kernel['method']}")
                continue
            for reason, sites in kernel["left_out"]:
                notes.append(f"`{kernel['name']}`: {sites} sites are left out: {reason}")
            columns, generic = dict.fromkeys(COLUMNS, 0), 0
            for key, (accesses, size) in counts.items():
                kind, space = key % 256 // 8, key % 8
                if key // 256 != kernel["id"] or kind in NOT_COMPARED:
                    continue
                if kind not in COLUMN_OF_KIND:
                    problems.append(f"`{kernel['name']}`: {accesses} accesses of kind {kind} have no column")
                    continue
                columns[COLUMN_OF_KIND[kind]] += accesses
                if COLUMN_OF_KIND[kind] != "copies":
                    columns["bytes"] += size
                generic += accesses if space == GENERIC else 0
            kernels[kernel["mangled"]] = kernel["name"], launches, columns, generic
    return kernels


def read_sanitizer(path, problems):
    """{mangled name: (launches, {column: count}, accesses to shared memory)}"""
    kernels = {}
    for line in open(path):
        kernel = json.loads(line)
        if "error" in kernel:
            problems.append(f"Compute Sanitizer: {kernel['error']}")
            continue
        of = kernel["global"]
        if of["unknown"][0]:
            problems.append(f"Compute Sanitizer: {of['unknown'][0]} accesses of `{kernel['kernel']}` neither read nor write")
        columns = {column: of[column][0] for column in ("loads", "stores", "atomics")}
        columns["bytes"] = sum(of[column][1] for column in ("loads", "stores", "atomics"))
        columns["copies"] = kernel["copied"]["loads"][0]
        shared = sum(kernel["shared"][column][0] for column in ("loads", "stores", "atomics"))
        launches, before, elsewhere = kernels.get(kernel["kernel"], (0, dict.fromkeys(COLUMNS, 0), 0))
        added = {column: before[column] + columns[column] for column in COLUMNS}
        kernels[kernel["kernel"]] = launches + kernel["launches"], added, elsewhere + shared
    return kernels


def main():
    differences, folder, names = read_differences(sys.argv[1]), sys.argv[2], sys.argv[3:]
    problems, notes, unexplained, explained, equal = [], [], [], {}, 0
    print("Sanitizer / ours where they differ.\n")
    print("| program | kernel | " + " | ".join(COLUMNS) + " | |")
    print("|---|---|" + "---|" * len(COLUMNS) + "---|")
    for name in names:
        files = [os.path.join(folder, f"memcount-{name}.{who}") for who in ("ours", "sanitizer")]
        here, noted = [], []
        if not os.path.exists(files[0]):
            problems.append(f"{name}: there is no report of ours")
            continue
        ours = read_ours(files[0], here, noted)
        alone = not os.path.exists(files[1])
        theirs = {} if alone else read_sanitizer(files[1], here)
        shown = [kernel[0] for kernel in ours.values()]
        for mangled in sorted(set(ours) | set(theirs), key=lambda m: list(ours).index(m) if m in ours else len(ours)):
            if mangled not in ours:
                here.append(f"`{mangled}` was launched, and our program was not in it")
                continue
            kernel, launches, mine, generic = ours[mangled]
            if shown.count(kernel) > 1:
                kernel = mangled
            if alone and launches is not None:
                print(f"| {name} | {kernel} | " + " | ".join(str(mine[c]) for c in COLUMNS) + " | not compared |")
            if alone:
                continue
            if mangled not in theirs:
                if launches is None:
                    continue
                here.append(f"Compute Sanitizer saw no launch of `{kernel}`")
                continue
            their_launches, reference, shared = theirs[mangled]
            if launches not in (None, their_launches):
                here.append(f"`{kernel}`: {their_launches} launches for Compute Sanitizer, {launches} for us")
            cells, reasons = [], []
            for column in COLUMNS:
                pair = reference[column], mine[column]
                if pair[0] == pair[1]:
                    cells.append(str(pair[0]))
                    continue
                cells.append(f"{pair[0]} / {pair[1]}")
                known = differences.get((name, kernel, column))
                if known and known[:2] == pair:
                    explained[name, kernel, column] = known[2]
                    reasons.append(known[2])
                else:
                    note = f" ({generic} of ours are generic, {shared} of Sanitizer's are to shared memory)" if generic else ""
                    unexplained.append(f"{name} {kernel} {column} {pair[0]} {pair[1]}: WHY{note}")
                    reasons.append("UNEXPLAINED")
            equal += not reasons
            print(f"| {name} | {kernel} | " + " | ".join(cells) + f" | {'; '.join(dict.fromkeys(reasons)) or 'equal'} |")
        problems += [f"{name}: {problem}" for problem in here]
        notes += [f"{name}: {note}" for note in noted]
        if not alone:
            for (of, kernel, column), (_, _, reason) in differences.items():
                differs = any(line.startswith(f"{of} {kernel} {column} ") for line in unexplained)
                if of == name and (of, kernel, column) not in explained and not differs:
                    problems.append(f"{of} {kernel}: its {column} do not differ, take out `{reason}`")
    print()
    for line in unexplained:
        print(f"no such line in differences.txt: {line}")
    for line in notes + problems:
        print(line)
    print(f"{equal} kernels equal, {len(explained)} differences explained, {len(unexplained)} not, {len(problems)} problems")
    return 1 if unexplained or problems else 0


if __name__ == "__main__":
    sys.exit(main())
