#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shows what `profile` has found: tables of kernels and of operators, and what was checked and lost."""

import argparse
import ctypes
import json
import os
import re
import sys

WORST = 2_000
"""Nanoseconds that the device's two clocks, as events and as programs have it, may differ beside the errors that are told."""


class Broken(Exception):
    """A file is missing or is none of ours."""


def load(folder, name):
    path = os.path.join(folder, name)
    try:
        with open(path) as text:
            return json.load(text)
    except (OSError, ValueError) as error:
        raise Broken(f"`{path}`: {error}") from error


# What programs and the timeline have told.


class Op:
    """A kernel's launch on the device, in nanoseconds, and the operator that asked for it."""

    def __init__(self, event, by):
        self.name = event["name"]
        self.begin = round(event["ts"] * 1000)
        self.end = self.begin + round(event["dur"] * 1000)
        self.time = self.end - self.begin
        self.operator = operator_of(event["args"].get("nvtx"), by)


NONE = "(no operator)"


def operator_of(path, by):
    """Of a path of NVTX ranges, each as `emit_nvtx` names it, one name: `aten::add` of `aten::add, op_id = 3`."""
    if not path:
        return NONE
    names = [re.sub(r", (seq|op_id|sizes|input_op_ids) = .*$", "", name).strip() for name in path.split("/")]
    names = [name for name in names if name] or [NONE]
    return names[0] if by == "outermost" else names[-1]


class Timeline:
    def __init__(self, file, by):
        self.by_process = {}
        self.graphs = 0
        for event in file["traceEvents"]:
            if event.get("ph") != "X":
                continue
            if event["cat"] == "kernel":
                # Rows of a device are numbered by the process's number and the context's.
                self.by_process.setdefault(event["pid"] // 1000, []).append(Op(event, by))
            elif event["cat"] == "graph":
                self.graphs += 1
        self.processes = {process["pid"]: process for process in file["otherData"]["processes"]}

    def ops(self):
        return [op for ops in self.by_process.values() for op in ops]

    def leave_out_loading(self):
        """The first launch of a kernel has the loading of its code in its time: it counts as the mean of the others, if there are others. Gives how many
        nanoseconds that leaves out, and how many kernels have one launch only."""
        left_out = single = 0
        for ops in self.by_process.values():
            by_name = {}
            for op in ops:
                by_name.setdefault(op.name, []).append(op)
            for those in by_name.values():
                if len(those) == 1:
                    single += 1
                    continue
                those.sort(key=lambda op: op.begin)
                mean = round(sum(op.time for op in those[1:]) / (len(those) - 1))
                left_out += those[0].time - mean
                those[0].time = mean
        return left_out, single

    def error(self, pid):
        return self.processes.get(pid, {}).get("device_error_ns", 0)


def map_of(process, name):
    for found in process["maps"]:
        if found["name"] == name:
            return found
    raise Broken(f"the report has no map `{name}`")


def records_of(process, name):
    """Entries of a map that is not summed: where there are several contexts, each has its own."""
    found = map_of(process, name)
    parts = found.get("contexts") or [found]
    return [(part.get("context", 0), entry["key"], entry["value"]) for part in parts for entry in part["entries"]]


# As the programs have them: launches of traffic.bpf.c, and behind them what blocktimes.bpf.c has.
KERNELS = 12288
LAUNCHES = 1 << 14
BUCKETS = 256
HISTOGRAMS = 1024
HISTOGRAM_BITS = 11
TIMED_LAUNCHES = 1 << 15
PARTS = 128
ENDED_BITS = 18
STEP_BITS = 4
# A block may have begun before that which tells of the launch.
BEFORE = 1 << 28


class Kernel:
    """All kernels of one name."""

    def __init__(self, name):
        self.name = name
        self.methods = {}
        self.is_counted = True
        self.with_programs = self.without = 0
        # Of launches that have a record.
        self.recorded = self.unfinished = 0
        self.blocks = self.timed = self.busy = self.threads = 0
        self.empty = Empty()
        # Of all launches.
        self.histogram = {}
        self.entered = 0
        self.read = self.written = 0


class Empty:
    """How much of the room that blocks had stood empty, and how long it took from where places became empty for good."""

    def __init__(self):
        self.busy = self.room = self.span = self.tail = 0

    def add(self, launch):
        span = launch["last_end"] - launch["first_begin"]
        if launch["ended"] == launch["blocks"] and span > 0:
            self.busy += launch["busy_ns"]
            self.room += launch["peak"] * span
            self.span += span
            # Blocks that end at the same moment may count in another order than the clock's.
            self.tail += max(launch["last_end"] - max(launch["last_begin"], launch["first_end"]), 0)

    def empty(self):
        return max(1 - self.busy / self.room, 0) if self.room else None

    def ending(self):
        return self.tail / self.span if self.span else None


def kernels_of(report):
    """Kernels by name, as the report has them, and by process their names by number."""
    kernels, numbers = {}, {}
    for process in report["processes"]:
        for row in process["kernels"]:
            kernel = kernels.setdefault(row["name"], Kernel(row["name"]))
            without = row["uninstrumented"] + row.get("skipped", 0) + row.get("unwanted", 0)
            kernel.with_programs += row["launches"]
            kernel.without += without
            if row["launches"] or without:
                method = kernel.methods.setdefault(row["method"], [0, 0])
                method[0] += row["launches"]
                method[1] += without
            if row["id"] is not None:
                numbers[process["pid"], row["id"]] = kernel
                kernel.is_counted &= row["id"] < KERNELS
    return kernels, numbers


def bucket_end(bucket):
    """The longest time, in nanoseconds, of those that a program counts in this bucket."""
    if bucket < 8:
        return bucket
    log = bucket // 8 + 2
    return ((8 + bucket % 8 + 1) << (log - 3)) - 1


def percentile(histogram, share):
    total = sum(histogram.values())
    passed = 0
    for bucket in sorted(histogram):
        passed += histogram[bucket]
        if passed >= share * total:
            return bucket_end(bucket)
    return None




LOSSES = ("unrecorded", "untimed", "met", "unsorted")


def time_near(clock, steps):
    """The time of a part, of which there are 32 bits of steps, in nanoseconds: from some seconds before the launch's to a minute after it."""
    ahead = (steps - (clock >> STEP_BITS) + BEFORE) % (1 << 32) - BEFORE
    return ((clock >> STEP_BITS) + ahead) << STEP_BITS


def part_of(part, clock):
    """What blocks on a part of the multiprocessors have told of a launch."""
    first, last = (tuple(time_near(clock, part[name] >> shift & (1 << 32) - 1) for shift in (32, 0)) for name in ("first", "last"))
    return {"ended": part["done"] & (1 << ENDED_BITS) - 1, "busy_ns": part["done"] >> ENDED_BITS, "first": first, "last": last}


def timed_launches(process):
    """Launches with block times: what is told of each, and what the parts of the multiprocessors and the multiprocessors have counted, together."""
    parts = {}
    for context, key, part in records_of(process, "parts"):
        number, place = divmod(key, TIMED_LAUNCHES)
        parts.setdefault((context, place, part["owner"] >> HISTOGRAM_BITS), {})[number] = part
    peaks = {(context, place): peak["of"] for context, place, peak in records_of(process, "peaks")}
    launches = []
    for context, place, launch in records_of(process, "launches"):
        # A part where it had no block may be another launch's, which has no place of its own.
        own = parts.get((context, place, launch["grid"]), {})
        its = [part_of(part, launch["clock"]) for part in own.values()]
        at_once = sum(blocks.bit_length() for sm, blocks in enumerate(peaks.get((context, place), [])) if sm % PARTS in own)
        launches.append(
            {
                **{name: launch[name] for name in ("kernel", "blocks", "timed", "threads", "came")},
                "ended": sum(part["ended"] for part in its),
                "busy_ns": sum(part["busy_ns"] for part in its),
                "peak": min(at_once, launch["blocks"]),
                "first_begin": min((part["first"][0] for part in its), default=0),
                "last_begin": max((part["last"][0] for part in its), default=0),
                "first_end": min((part["first"][1] for part in its), default=0),
                "last_end": max((part["last"][1] for part in its), default=0),
            }
        )
    return launches


def histograms(process):
    """Blocks by kernel's number and bucket. Where a process ended before all was told, there may be blocks of a kernel that is not known."""
    kernels = {(context, number): kernel - 1 for context, number, kernel in records_of(process, "histograms")}
    for context, key, blocks in records_of(process, "times"):
        yield kernels.get((context, key // BUCKETS % HISTOGRAMS)), key % BUCKETS, blocks


def read_blocks(report):
    """Kernels by name, launches by process with their kernel, and what the programs had no room for."""
    kernels, numbers = kernels_of(report)
    launches, lost = {}, dict.fromkeys(LOSSES, 0)
    for process in report["processes"]:
        pid = process["pid"]
        for launch in timed_launches(process):
            kernel = kernel_of(numbers, pid, launch["kernel"])
            launches.setdefault(pid, []).append((kernel, launch))
            kernel.recorded += 1
            kernel.blocks += launch["blocks"]
            kernel.timed += launch["ended"]
            # A graph has one number for all of its launches.
            kernel.unfinished += not launch["ended"] or launch["ended"] % launch["timed"] != 0
            lost["untimed"] += launch["blocks"] - launch["timed"]
            kernel.busy += launch["busy_ns"]
            kernel.threads += launch["blocks"] * launch["threads"]
            kernel.empty.add(launch)
        for _, number, entered in records_of(process, "threads"):
            kernel_of(numbers, pid, number).entered += entered
        for number, bucket, blocks in histograms(process):
            if number is None:
                lost["unsorted"] += blocks
                continue
            histogram = kernel_of(numbers, pid, number).histogram
            histogram[bucket] = histogram.get(bucket, 0) + blocks
        for _, _, counts in records_of(process, "lost"):
            for name, count in counts.items():
                lost[name] += count
    return kernels, launches, lost


def kernel_of(numbers, pid, number):
    if (pid, number) not in numbers:
        raise Broken(f"kernel {number} of process {pid} is not in the report")
    return numbers[pid, number]


def read_traffic(report):
    """Kernels by name, launches by process with their kernel and bytes, and how many kernels have launches without a record."""
    kernels, numbers = kernels_of(report)
    launches, rest = {}, 0
    for process in report["processes"]:
        pid = process["pid"]
        moved = {(context, key): value for context, key, value in records_of(process, "bytes")}
        for context, place, launch in records_of(process, "launches"):
            kernel = kernel_of(numbers, pid, launch["kernel"])
            its = moved.get((context, place), {"read": 0, "written": 0})
            launches.setdefault(pid, []).append((kernel, {**launch, **its}))
            kernel.read += its["read"]
            kernel.written += its["written"]
        for (_, place), its in moved.items():
            if place >= LAUNCHES:
                kernel = kernel_of(numbers, pid, place - LAUNCHES)
                rest += 1
                kernel.read += its["read"]
                kernel.written += its["written"]
    return kernels, launches, rest


def join(report, timeline, launches):
    """Gives each launch its operator. In order, where there are as many of a kernel's as the timeline has, else by time. Gives launches with the
    operator's name, how many have none, and how many are not when the timeline has them."""
    joined, lost, elsewhere = [], 0, 0
    errors = {process["pid"]: process.get("clock_error_ns") or 0 for process in report["processes"]}
    for pid, of_process in launches.items():
        slack = timeline.error(pid) + errors.get(pid, 0) + WORST
        ops = {}
        for op in timeline.by_process.get(pid, []):
            ops.setdefault(op.name, []).append(op)
        names = {}
        for kernel, launch in of_process:
            names.setdefault(kernel.name, []).append((kernel, launch))
        for name, those in names.items():
            those.sort(key=lambda pair: pair[1]["came"])
            there = sorted(ops.get(name, []), key=lambda op: op.begin)
            if len(there) == len(those):
                pairs = list(zip(those, there))
            else:
                pairs, rest = [], iter(there)
                op = next(rest, None)
                for pair in those:
                    while op and op.end + slack < pair[1]["came"]:
                        op = next(rest, None)
                    if op and op.begin - slack <= pair[1]["came"]:
                        pairs.append((pair, op))
                        op = next(rest, None)
                    else:
                        lost += 1
                        joined.append((NONE, *pair))
            for pair, op in pairs:
                if not op.begin - slack <= pair[1]["came"] <= op.end + slack:
                    elsewhere += 1
                joined.append((op.operator, *pair))
    return joined, lost, elsewhere


# Tables.


def short(name, wide):
    """Without namespaces, return type and parameters, and cut."""
    name = re.sub(r"\(anonymous namespace\)|\{anonymous\}|\{lambda[^}]*\}(#\d+)?", "λ", name)
    name = re.sub(r"\b\w+::(?=[\w~λ])", "", name)
    return name if len(name) <= wide else name[: wide - 1] + "…"


def number(value, unit=1.0, digits=1):
    return "–" if value is None else f"{value / unit:,.{digits}f}"


def percent(value):
    return "–" if value is None else f"{100 * value:.1f}"


def table(head, rows, out):
    if not rows:
        return
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))]
        print("  " + "  ".join(cells).rstrip(), file=out)
    print(file=out)


def speed(moved, ns):
    """Gigabytes per second; bytes per nanosecond are as many."""
    return moved / ns if moved is not None and ns else None


class Sum:
    """Of an operator."""

    def __init__(self):
        self.launches = self.time = self.blocks = self.timed = self.busy = 0
        self.empty = Empty()
        self.read = self.written = None
        self.least = False


def at_least(kernel):
    """Compute Sanitizer does not tell of asynchronous copies and those of tensors, so there may be more."""
    return "sanitizer" in kernel.methods if kernel else False


def moved_text(value, least, unit, digits=1):
    return ("≥" if least and value is not None else "") + number(value, unit, digits)


def sums_of(ops):
    """Launches and their nanoseconds, by kernel."""
    sums = {}
    for op in ops:
        entry = sums.setdefault(op.name, [0, 0])
        entry[0] += 1
        entry[1] += op.time
    return sums


def slower(without, with_programs):
    """How many times as long launches take with programs that time blocks."""
    if not without or not with_programs or not without[1]:
        return None
    return with_programs[1] / with_programs[0] / (without[1] / without[0])


def kernel_table(times, with_programs, blocks, traffic, rows, out):
    sums, more = sums_of(times), sums_of(with_programs)
    order = sorted(sums, key=lambda name: -sums[name][1])
    lines = []
    for name in order[:rows]:
        launches, ns = sums[name]
        b, t = blocks.get(name), traffic.get(name)
        b = b if b and b.with_programs else None
        t = t if t and t.with_programs else None
        # Bytes are of the launches with programs alone, and those in graphs have no times.
        read, written = (t.read, t.written) if t else (None, None)
        of_all = t and not t.without and t.with_programs == launches
        lines.append(
            [
                short(name, 56),
                f"{launches:,}",
                number(ns, 1e6, 3),
                number(ns / launches, 1e3),
                f"{b.blocks:,}" if b else "–",
                number(b.busy / b.timed if b and b.timed else None, 1e3, 2),
                number(percentile(b.histogram, 0.5) if b else None, 1e3, 2),
                number(percentile(b.histogram, 1) if b else None, 1e3, 2),
                percent(b.empty.empty() if b else None),
                percent(b.empty.ending() if b else None),
                number(slower(sums[name], more.get(name)) if b else None),
                moved_text(read, at_least(t), 1e6),
                moved_text(written, at_least(t), 1e6),
                moved_text(speed(read + written, ns) if of_all else None, at_least(t), 1),
            ]
        )
    head = ["kernel", "launches", "ms", "µs each", "blocks", "block µs", "half", "longest", "empty %", "tail %", "slower", "MB read", "written", "GB/s"]
    print(f"kernels: {len(order)}, by their time without programs", file=out)
    table(head, lines, out)
    if len(order) > rows:
        rest = sum(sums[name][1] for name in order[rows:])
        print(f"  {len(order) - rows} more take {rest / 1e6:,.3f} ms together (`--rows`)\n", file=out)


def operator_table(times, of_blocks, of_traffic, rows, out):
    sums = {}
    for op in times:
        entry = sums.setdefault(op.operator, Sum())
        entry.launches += 1
        entry.time += op.time
    for name, kernel, launch in of_blocks:
        entry = sums.setdefault(name, Sum())
        entry.blocks += launch["blocks"]
        entry.timed += launch["ended"]
        entry.busy += launch["busy_ns"]
        entry.empty.add(launch)
    for name, kernel, launch in of_traffic:
        entry = sums.setdefault(name, Sum())
        entry.read = (entry.read or 0) + launch["read"]
        entry.written = (entry.written or 0) + launch["written"]
        entry.least |= at_least(kernel)
    total = sum(entry.time for entry in sums.values())
    order = sorted(sums, key=lambda name: -sums[name].time)
    lines = []
    for name in order[:rows]:
        entry = sums[name]
        lines.append(
            [
                short(name, 56),
                f"{entry.launches:,}",
                number(entry.time, 1e6, 3),
                percent(entry.time / total if total else None),
                f"{entry.blocks:,}",
                number(entry.busy / entry.timed if entry.timed else None, 1e3, 2),
                percent(entry.empty.empty()),
                percent(entry.empty.ending()),
                moved_text(entry.read, entry.least, 1e6),
                moved_text(entry.written, entry.least, 1e6),
            ]
        )
    print(f"operators: {len(order)}", file=out)
    table(["operator", "launches", "ms", "%", "blocks", "block µs", "empty %", "tail %", "MB read", "written"], lines, out)


# What was checked, and what is missing.


def same_output(folder, names):
    """Runs whose standard output is not that of the application alone."""
    with open(os.path.join(folder, "alone.out"), "rb") as text:
        alone = text.read()
    differ = []
    for name in names:
        with open(os.path.join(folder, f"{name}.out"), "rb") as text:
            if text.read() != alone:
                differ.append(name)
    return differ


def check_threads(kernels, unrecorded, graphs=0):
    """Of each kernel that has launches with programs: what is not as it must be. And how many have launches without a record for want of room, of which
    nothing can be said: these are as many launches as the program has counted, or something else is amiss. Where there are graphs, a device gives all launches of
    one the same number, and they share a record."""
    seen = [kernel for kernel in kernels.values() if kernel.with_programs]
    no_room = sum(max(kernel.with_programs - kernel.recorded, 0) for kernel in seen) == unrecorded
    wrong, unknown = [], 0
    for kernel in seen:
        reasons = []
        if kernel.recorded < kernel.with_programs and (no_room or graphs):
            unknown += 1
        elif kernel.recorded != kernel.with_programs:
            reasons.append(f"{kernel.recorded:,} launches have a record, of {kernel.with_programs:,}")
        elif not kernel.is_counted:
            reasons.append(f"not counted, as there are more than {KERNELS:,} kernels")
        elif kernel.entered != kernel.threads:
            reasons.append(f"{kernel.entered:,} threads began, where launches have {kernel.threads:,}")
        if kernel.unfinished:
            reasons.append(f"{kernel.unfinished:,} launches have blocks that were not seen to end")
        if reasons:
            wrong.append(f"{short(kernel.name, 56)}: {'; '.join(reasons)}")
    return wrong, unknown


def demangler():
    """As torch.profiler has names: by the C++ library."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]

    def name_of(mangled):
        status = ctypes.c_int()
        text = demangle(mangled.encode(), None, None, ctypes.byref(status))
        if not text:
            return mangled
        try:
            return ctypes.string_at(text).decode()
        finally:
            free(text)

    return name_of


def check_counts(report, counted, name_of):
    """Launches by kernel, ours and those of torch.profiler, where they differ; and how many kernels there are."""
    ours = {}
    for process in report["processes"]:
        for row in process["kernels"]:
            launches = row["launches"] + row["uninstrumented"] + row.get("skipped", 0) + row.get("unwanted", 0)
            # It leaves very long names as they are.
            name = row["mangled"] if row["mangled"] in counted else name_of(row["mangled"])
            if launches:
                ours[name] = ours.get(name, 0) + launches
    names = sorted(ours.keys() | counted.keys())
    return [(name, ours.get(name, 0), counted.get(name, 0)) for name in names if ours.get(name, 0) != counted.get(name, 0)], len(names)


def without_programs(kernels, times, out):
    """Reasons for which launches had no programs, with the share of kernels' time."""
    ns = {}
    for op in times:
        ns[op.name] = ns.get(op.name, 0) + op.time
    total = sum(ns.values())
    reasons = {}
    for kernel in kernels.values():
        for method, (_, without) in kernel.methods.items():
            if without:
                # Reasons that name different kernels are one.
                method = re.sub(r"`([^`]*)`", lambda found: "`…`" if found[1] in kernels else found[0], method)
                entry = reasons.setdefault(method, [set(), 0])
                entry[0].add(kernel.name)
                entry[1] += without
    # Of such kernels some launches had programs.
    for method in [method for method in reasons if not method.startswith("refused")]:
        names, launches = reasons.pop(method)
        entry = reasons.setdefault("the notes below say why", [set(), 0])
        entry[0].update(names)
        entry[1] += launches
    for method, (names, launches) in sorted(reasons.items(), key=lambda item: (-sum(ns.get(name, 0) for name in item[1][0]), item[0])):
        share = sum(ns.get(name, 0) for name in names) / total if total else 0
        print(f"  without: {len(names)} kernels, {launches:,} launches, {100 * share:.1f} % of the time: {method}", file=out)
    unknown = {name for name in ns if name not in kernels}
    if unknown:
        share = sum(ns[name] for name in unknown) / total if total else 0
        print(f"  not seen at all: {len(unknown)} kernels, {100 * share:.1f} % of the time", file=out)


def losses(lost):
    """What programs had no room for."""
    told = {
        "unrecorded": "launches have no record, as launches before them have their places",
        "untimed": "blocks have no times, as their launches have more blocks than are timed",
        "unsorted": f"blocks are in no histogram, as most of the {HISTOGRAMS:,} are other kernels', or the application ended before all was told",
        "met": "blocks began where another launch's block was still timed: too many launches at once, and times of blocks are not to be trusted",
    }
    return [f"{lost[name]:,} {told[name]}" for name in LOSSES if lost[name]]


RUNS = ["times", "blocks", "traffic"]


def show(folder, arguments, out=sys.stdout):
    """Prints all of it. 1 if something that must be equal is not."""
    try:
        return show_all(folder, arguments, out)
    except Broken as error:
        print(f"profile: {error}", file=sys.stderr)
        return 2


def show_all(folder, arguments, out):
    about = load(folder, "profile.json")
    reports = {name: load(folder, f"{name}.json") for name in RUNS}
    timelines = {name: Timeline(load(folder, f"{name}.timeline"), arguments.by) for name in RUNS}
    left_out, single = timelines["times"].leave_out_loading()
    timelines["blocks"].leave_out_loading()
    times = timelines["times"].ops()
    blocks, block_launches, lost = read_blocks(reports["blocks"])
    traffic, traffic_launches, unrecorded = read_traffic(reports["traffic"])
    of_blocks, *lost_blocks = join(reports["blocks"], timelines["blocks"], block_launches)
    of_traffic, *lost_traffic = join(reports["traffic"], timelines["traffic"], traffic_launches)

    print(" ".join(about["command"]), file=out)
    for device in sorted({process["device"] for process in reports["times"]["processes"]}):
        print(device, file=out)
    print(file=out)
    kernel_table(times, timelines["blocks"].ops(), blocks, traffic, arguments.rows, out)
    operator_table(times, of_blocks, of_traffic, arguments.rows, out)

    bad = False
    runs = [*RUNS] + (["count"] if os.path.exists(os.path.join(folder, "count.out")) else [])
    differ = same_output(folder, runs)
    bad |= bool(differ)
    told = f"differ from the application's alone in: {', '.join(differ)}" if differ else f"the same, byte for byte, alone and in {len(runs)} runs"
    print(f"outputs: {told}", file=out)
    wrong, unknown = check_threads(blocks, lost["unrecorded"], timelines["blocks"].graphs)
    bad |= bool(wrong or lost["met"])
    seen = [kernel for kernel in blocks.values() if kernel.with_programs]
    if wrong:
        print(f"threads: not as launches have them, in {len(wrong)} of {len(seen)} kernels", file=out)
        for line in wrong:
            print(f"  {line}", file=out)
    elif len(seen) > unknown:
        compared = [kernel for kernel in seen if kernel.recorded == kernel.with_programs]
        entered, launches = sum(kernel.entered for kernel in compared), sum(kernel.recorded for kernel in compared)
        print(f"threads: {entered:,} began in {launches:,} launches of {len(compared)} kernels, as their grids say", file=out)
    if unknown:
        print(f"threads: not compared in {unknown} of {len(seen)} kernels, as launches of these have no record of their own", file=out)
    if not seen:
        print("threads: no kernel had programs", file=out)
    bad |= not check_launches(folder, reports["blocks"], out)
    for name, kernels in [("blocks", blocks), ("traffic", traffic)]:
        launched = sum(kernel.with_programs for kernel in kernels.values())
        without = sum(kernel.without for kernel in kernels.values())
        print(f"programs for {name}: in {launched:,} of {launched + without:,} launches", file=out)
        without_programs(kernels, times, out)
    if any(at_least(kernel) for kernel in traffic.values()):
        print("≥: Compute Sanitizer does not tell of asynchronous copies and of copies of tensors, by which such a kernel may read more", file=out)
    for name, (missing, elsewhere) in [("blocks", lost_blocks), ("traffic", lost_traffic)]:
        if missing or elsewhere:
            print(f"operators of {name}: {missing:,} launches are not in the timeline, {elsewhere:,} are there at another time", file=out)
    if left_out:
        print(f"ms: without {left_out / 1e6:,.3f} ms more that first launches took, in which code is loaded; they count as the mean of the others", file=out)
    if single:
        print(f"ms: {single} kernels were launched once, and have that in their time", file=out)
    if unrecorded:
        print(f"traffic: launches of {unrecorded} kernels had no record, so their bytes are of no operator", file=out)
    for line in losses(lost):
        print(f"blocks: {line}", file=out)
    graphs = timelines["times"].graphs
    if graphs:
        print(f"graphs: {graphs:,} launches of graphs are not in the tables, as their kernels have no times of their own", file=out)
    for name in RUNS:
        launched, others = notes_of(reports[name]["notes"], times)
        for note in launched:
            print(f"{name}: {note}", file=out)
        if others:
            print(f"{name}: {others:,} notes of kernels that were not launched", file=out)
        for process in reports[name]["processes"]:
            warnings = [warning for found in process["maps"] for warning in found["warnings"]]
            warnings += [] if process["complete"] else [f"process {process['pid']} ended before all was told"]
            for warning in warnings:
                print(f"{name}: {warning}", file=out)
    return int(bad)


def notes_of(notes, times):
    """Without those of kernels that were not launched, which are counted."""
    launched = {op.name for op in times}
    about = [re.match(r"kernel `([^`]*)`", note) for note in notes]
    kept = [note for note, kernel in zip(notes, about) if not kernel or kernel[1] in launched]
    return kept, len(notes) - len(kept)


def counts_of(folder):
    """Launches by kernel as torch.profiler has them, of all processes: each writes its own file. None if there is none."""
    names = [name for name in sorted(os.listdir(folder)) if re.fullmatch(r"count\.json\.[0-9]+", name)]
    sums = {}
    for name in names:
        for kernel, launches in load(folder, name).items():
            sums[kernel] = sums.get(kernel, 0) + launches
    return sums if names else None


def check_launches(folder, report, out):
    """Against torch.profiler, if it was asked."""
    if not os.path.exists(os.path.join(folder, "count.out")):
        return True
    counted = counts_of(folder)
    if counted is None:
        print("launches: torch.profiler told of none: the application does not use CUDA through PyTorch, or ended without Python's own end", file=out)
        return False
    name_of = demangler()
    if name_of is None:
        print("launches: not compared with torch.profiler's, as there is no C++ library to read kernels' names with", file=out)
        return True
    differ, kernels = check_counts(report, counted, name_of)
    if differ:
        print(f"launches: not those of torch.profiler, in {len(differ)} of {kernels} kernels", file=out)
        for name, ours, theirs in differ:
            print(f"  {short(name, 80)}: {ours:,}, torch.profiler has {theirs:,}", file=out)
        return False
    print(f"launches: {sum(counted.values()):,} of {kernels} kernels, each as torch.profiler counts them", file=out)
    return True


def add_arguments(parser):
    parser.add_argument("--rows", type=int, default=25, metavar="N", help="rows of each table (25)")
    parser.add_argument("--by", default="innermost", choices=["innermost", "outermost"], help="which of the operators around a launch it counts for (innermost)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    add_arguments(parser)
    arguments = parser.parse_args()
    sys.exit(show(arguments.folder, arguments))


if __name__ == "__main__":
    main()
