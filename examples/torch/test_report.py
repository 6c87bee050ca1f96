# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of `report.py` by itself: python3 test_report.py"""

import io
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import report


def event(number, name, begin, dur=10, nvtx=None, pid=7):
    args = {"id": number, **({"nvtx": nvtx} if nvtx else {})}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": pid * 1000 + 1, "ts": begin, "dur": dur, "args": args}


def timeline(*events, error=0):
    return report.Timeline({"traceEvents": list(events), "otherData": {"processes": [{"pid": 7, "device_error_ns": error}]}}, "innermost")


def launches(*begins, name="k"):
    kernel = report.Kernel(name)
    return {7: [(kernel, {"came": begin}) for begin in begins]}


def launch(**fields):
    usual = {"blocks": 4, "ended": 4, "busy_ns": 400, "peak": 2, "first_begin": 1000, "last_begin": 1200, "first_end": 1100, "last_end": 1250}
    return {**usual, **fields}


PROCESSES = {"processes": [{"pid": 7, "clock_error_ns": 500}]}


class Operators(unittest.TestCase):
    def test_names_lose_what_emit_nvtx_adds(self):
        path = "autograd::engine::evaluate_function: MulBackward0, seq = 3, op_id = 9/aten::mul, op_id = 10"
        self.assertEqual(report.operator_of(path, "innermost"), "aten::mul")
        self.assertEqual(report.operator_of(path, "outermost"), "autograd::engine::evaluate_function: MulBackward0")
        self.assertEqual(report.operator_of("aten::add, op_id = 4, sizes = [[2, 3]]", "innermost"), "aten::add")
        self.assertEqual(report.operator_of(None, "innermost"), report.NONE)

    def test_launches_are_joined_in_order(self):
        ops = timeline(event(1, "k", 100, nvtx="a"), event(2, "other", 110, nvtx="x"), event(3, "k", 120, nvtx="b"))
        joined, lost, elsewhere = report.join(PROCESSES, ops, launches(121_000, 101_000))
        self.assertEqual([(name, found["came"]) for name, _, found in joined], [("a", 101_000), ("b", 121_000)])
        self.assertEqual((lost, elsewhere), (0, 0))

    def test_where_launches_are_missing_they_are_joined_by_time(self):
        ops = timeline(event(1, "k", 100, nvtx="a"), event(2, "k", 200, nvtx="b"), event(3, "k", 300, nvtx="c"))
        joined, lost, elsewhere = report.join(PROCESSES, ops, launches(201_000, 305_000))
        self.assertEqual([name for name, *_ in joined], ["b", "c"])
        self.assertEqual((lost, elsewhere), (0, 0))
        joined, lost, elsewhere = report.join(PROCESSES, ops, launches(201_000, 260_000, 305_000, 400_000))
        self.assertEqual(sorted(name for name, *_ in joined), [report.NONE, report.NONE, "b", "c"])
        self.assertEqual((lost, elsewhere), (2, 0))

    def test_a_launch_at_another_time_is_told(self):
        joined, lost, elsewhere = report.join(PROCESSES, timeline(event(1, "k", 100, nvtx="a")), launches(190_000))
        self.assertEqual(([name for name, *_ in joined], lost, elsewhere), (["a"], 0, 1))


class Numbers(unittest.TestCase):
    def test_buckets_end_where_the_next_begins(self):
        # As `bucket_of` of blocktimes.bpf.c.
        def bucket_of(ns):
            if ns < 8:
                return ns
            log = ns.bit_length() - 1
            return min((log - 2) * 8 + ((ns >> (log - 3)) & 7), report.BUCKETS - 1)

        for bucket in range(report.BUCKETS - 1):
            end = report.bucket_end(bucket)
            self.assertEqual((bucket_of(end), bucket_of(end + 1)), (bucket, bucket + 1))

    def test_the_middle_of_a_histogram(self):
        self.assertEqual(report.percentile({3: 1, 5: 1, 7: 1}, 0.5), 5)
        self.assertIsNone(report.percentile({}, 0.5))

    def test_room_that_stood_empty(self):
        empty = report.Empty()
        self.assertEqual((empty.empty(), empty.ending()), (None, None))
        empty.add(launch())
        self.assertAlmostEqual(empty.empty(), 0.2)
        self.assertAlmostEqual(empty.ending(), 0.2)
        # Where all began at once, it is from the first end on.
        single = report.Empty()
        single.add(launch(last_begin=1010, first_end=1150))
        self.assertAlmostEqual(single.ending(), 0.4)
        # One with blocks that were not timed says nothing of it, and blocks that end at once may count in another order.
        empty.add(launch(ended=3))
        self.assertAlmostEqual(empty.empty(), 0.2)

    def test_what_is_not_known_is_a_dash(self):
        self.assertEqual((report.number(None), report.percent(None), report.speed(5, 0)), ("–", "–", None))
        out = io.StringIO()
        report.kernel_table([report.Op(event(1, "k", 0, dur=0), "innermost")], [], {}, {}, 5, out)
        self.assertEqual(out.getvalue().splitlines()[2].split(), ["k", "1", "0.000", "0.0"] + ["–"] * 10)


    def test_first_launches_count_as_the_others(self):
        ops = timeline(event(3, "k", 500, dur=12), event(1, "k", 0, dur=400), event(2, "k", 450, dur=8), event(4, "once", 900))
        self.assertEqual(ops.leave_out_loading(), (390_000, 1))
        self.assertEqual(sorted(op.time for op in ops.ops()), [8_000, 10_000, 10_000, 12_000])

    def test_how_much_slower_launches_are(self):
        self.assertEqual(report.slower([2, 100], [3, 450]), 3)
        self.assertIsNone(report.slower([2, 0], [2, 10]))
        self.assertIsNone(report.slower([2, 10], None))


def process(**maps):
    """A process of a report with these maps: entries by key."""
    usual = {"parts": {}, "peaks": {}, "launches": {}, "histograms": {}, "times": {}}
    entries = {name: [{"key": key, "value": value} for key, value in values.items()] for name, values in {**usual, **maps}.items()}
    return {"pid": 7, "maps": [{"name": name, "entries": those} for name, those in entries.items()]}


# Steps come round where this is: the time of some parts is beyond.
CLOCK = (7 << 36) - 160


class Timed(unittest.TestCase):
    RECORD = {"grid": 5, "kernel": 3, "blocks": 8, "timed": 8, "threads": 64, "came": 900, "clock": CLOCK}

    def part(self, grid, ended, begin, last_end):
        """Times are ahead of the launch's, in steps."""
        pair = lambda begin, end: ((CLOCK >> 4) + begin) % (1 << 32) << 32 | ((CLOCK >> 4) + end) % (1 << 32)
        return {"owner": grid << 11 | 1, "done": 10 * ended << 18 | ended, "first": pair(begin, begin + 10), "last": pair(last_end - 10, last_end)}

    def test_parts_of_a_launch_are_one(self):
        other = report.TIMED_LAUNCHES
        found = report.timed_launches(
            process(
                launches={5: self.RECORD},
                # Of the last part another launch with the same place was first.
                parts={5: self.part(5, 5, 7, 200), other + 5: self.part(5, 3, -20, 180), 2 * other + 5: self.part(5 + other, 9, 10, 999)},
                peaks={5: {"of": [0b11, 0b1, 0b11111, *[0] * 126, 0b100]}},
            )
        )
        times = {"first_begin": CLOCK - 320, "first_end": CLOCK - 160, "last_begin": CLOCK + 190 * 16, "last_end": CLOCK + 200 * 16}
        expected = {"ended": 8, "busy_ns": 80, "peak": 6, **times}
        record = {name: value for name, value in self.RECORD.items() if name not in ("grid", "clock")}
        self.assertEqual(found, [{**record, **expected}])

    def test_times_of_parts_are_near_their_launch(self):
        for ns in (-(4 << 30), 0, (60 << 30) - 16):
            steps = (CLOCK + ns) >> 4 & (1 << 32) - 1
            self.assertEqual(report.time_near(CLOCK, steps), CLOCK + ns)

    def test_there_are_no_more_places_than_blocks(self):
        (found,) = report.timed_launches(process(launches={5: self.RECORD}, parts={5: self.part(5, 8, 100, 200)}, peaks={5: {"of": [1 << 11]}}))
        self.assertEqual(found["peak"], 8)

    def test_a_launch_of_which_no_block_has_ended_is_told_of(self):
        (found,) = report.timed_launches(process(launches={5: self.RECORD}))
        self.assertEqual((found["ended"], found["busy_ns"], found["last_end"]), (0, 0, 0))

    def test_histograms_are_of_kernels(self):
        owners = {0: 1 + 40, 1: 1 + 3}
        spread = report.HISTOGRAMS * report.BUCKETS
        found = report.histograms(process(histograms=owners, times={17: 5, spread + 17: 2, report.BUCKETS + 4: 1, 2 * report.BUCKETS: 9}))
        self.assertEqual(list(found), [(40, 17, 5), (40, 17, 2), (3, 4, 1), (None, 0, 9)])


class Without(unittest.TestCase):
    def test_reasons_have_their_share(self):
        kernels = {}
        for name, methods in [("a", {}), ("b", {}), ("c", {"slice": [5, 1]}), ("d", {"slice": [5, 0]})]:
            kernels[name] = report.Kernel(name)
            kernels[name].methods = methods
        kernels["a"].methods = {"refused: `a` or `x`": [0, 2]}
        kernels["b"].methods = {"refused: `b` or `x`": [0, 1]}
        ops = [report.Op(event(1, name, 0, dur=dur), "innermost") for name, dur in [("a", 10), ("b", 20), ("c", 30), ("d", 20), ("e", 20)]]
        out = io.StringIO()
        report.without_programs(kernels, ops, out)
        self.assertEqual(
            [line.strip() for line in out.getvalue().splitlines()],
            [
                "without: 2 kernels, 3 launches, 30.0 % of the time: refused: `…` or `x`",
                "without: 1 kernels, 1 launches, 30.0 % of the time: the notes below say why",
                "not seen at all: 1 kernels, 20.0 % of the time",
            ],
        )


    def test_notes_of_kernels_that_were_not_launched_are_counted(self):
        notes = ["kernel `k`: slow", "kernel `other<1>`: slow", "a word to all"]
        ops = [report.Op(event(1, "k", 0), "innermost")]
        self.assertEqual(report.notes_of(notes, ops), (["kernel `k`: slow", "a word to all"], 1))


class Names(unittest.TestCase):
    def test_names_are_shortened(self):
        self.assertEqual(report.short("at::native::(anonymous namespace)::sum<float, at::Half>", 80), "sum<float, Half>")
        self.assertEqual(report.short("k" * 90, 10), "k" * 9 + "…")


class Counts(unittest.TestCase):
    def of(self, counted):
        rows = [
            {"mangled": "_Z1kv", "launches": 2, "uninstrumented": 1},
            {"mangled": "_Z1kv", "launches": 3, "uninstrumented": 0, "skipped": 4},
            {"mangled": "unused", "launches": 0, "uninstrumented": 0},
        ]
        return report.check_counts({"processes": [{"kernels": rows}]}, counted, {"_Z1kv": "k()", "unused": "unused"}.get)

    def test_launches_of_one_name_are_compared_together(self):
        self.assertEqual(self.of({"k()": 10}), ([], 1))
        self.assertEqual(self.of({"_Z1kv": 10}), ([], 1))
        self.assertEqual(self.of({"k()": 9, "more": 1}), ([("k()", 10, 9), ("more", 0, 1)], 2))

    def test_counts_of_all_processes_are_one(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(report.counts_of(folder))
            for name, text in [("7", '{"a": 1, "b": 2}'), ("8", '{"b": 3}'), ("8.bak", '{"b": 4}')]:
                with open(os.path.join(folder, f"count.json.{name}"), "w") as out:
                    out.write(text)
            self.assertEqual(report.counts_of(folder), {"a": 1, "b": 5})
            with open(os.path.join(folder, "count.json.9"), "w") as out:
                out.write("{")
            with self.assertRaisesRegex(report.Broken, "count.json.9"):
                report.counts_of(folder)

    def test_the_c_library_reads_names(self):
        name_of = report.demangler()
        self.assertEqual((name_of("_Z9vectorAddPKfS0_Pfi"), name_of("triton_poi_0")), ("vectorAdd(float const*, float const*, float*, int)", "triton_poi_0"))


class Threads(unittest.TestCase):
    def kernels(self, *those, unrecorded=0, graphs=0):
        kernels = {}
        for i, fields in enumerate(those):
            kernel = kernels["kl"[i]] = report.Kernel("kl"[i])
            usual = {"with_programs": 2, "recorded": 2, "entered": 64, "threads": 64}
            for name, value in {**usual, **fields}.items():
                setattr(kernel, name, value)
        return report.check_threads(kernels, unrecorded, graphs)

    def kernel(self, **fields):
        wrong, unknown = self.kernels(fields)
        self.assertEqual(unknown, 0)
        return wrong

    def test_each_thread_begins(self):
        self.assertEqual(self.kernel(), [])
        self.assertEqual(self.kernel(with_programs=0, recorded=0, entered=0, threads=0), [])
        self.assertEqual(self.kernel(threads=96), ["k: 64 threads began, where launches have 96"])
        self.assertEqual(self.kernel(recorded=1), ["k: 1 launches have a record, of 2"])
        self.assertEqual(self.kernel(is_counted=False, entered=0), ["k: not counted, as there are more than 12,288 kernels"])
        self.assertEqual(self.kernel(unfinished=1), ["k: 1 launches have blocks that were not seen to end"])

    def test_launches_without_room_are_a_loss_and_nothing_wrong(self):
        self.assertEqual(self.kernels({"recorded": 1, "threads": 32}, {}, unrecorded=1), ([], 1))
        # The others are compared as ever, and no more may be missing than were counted.
        self.assertEqual(self.kernels({"recorded": 1}, {"threads": 96}, unrecorded=1), (["l: 64 threads began, where launches have 96"], 1))
        self.assertEqual(self.kernels({"recorded": 0}, {}, unrecorded=1), (["k: 0 launches have a record, of 2"], 0))
        self.assertEqual(self.kernels({"recorded": 1, "unfinished": 1}, unrecorded=1), (["k: 1 launches have blocks that were not seen to end"], 1))
        # Launches of a graph may have one number.
        self.assertEqual(self.kernels({"recorded": 1, "threads": 32}, {}, graphs=4), ([], 1))
        self.assertEqual(self.kernels({"recorded": 3}, graphs=4), (["k: 3 launches have a record, of 2"], 0))

    def test_losses_are_told(self):
        self.assertEqual(report.losses(dict.fromkeys(report.LOSSES, 0)), [])
        self.assertEqual(
            [line.split(",")[0] for line in report.losses({"unrecorded": 1000, "untimed": 1, "met": 2, "unsorted": 3})],
            [
                "1",
                "1 blocks have no times",
                "2 blocks began where another launch's block was still timed: too many launches at once",
                "3 blocks are in no histogram",
            ],
        )


if __name__ == "__main__":
    unittest.main()
