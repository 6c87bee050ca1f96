# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of what compares back ends and of the tables of costs, which need no GPU: python3 test_backends.py"""

import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import backends
import mem_cost
import step_cost
import torch_cost


def report(*kernels):
    """Of kernels: name, method, launches, uninstrumented, threads that began, threads that ended."""
    rows = [{"mangled": name, "id": number, "method": method, "launches": launches, "uninstrumented": uninstrumented} for number, (name, method, launches, uninstrumented, *_) in enumerate(kernels)]
    counted = [("began", 4), ("ended", 5)]
    maps = [{"name": name, "entries": [{"key": key, "value": kernel[at]} for key, kernel in enumerate(kernels)]} for name, at in counted]
    return {"processes": [{"kernels": rows, "maps": maps}]}


class Compared(unittest.TestCase):
    NVRTC = ("nvrtc", "slice", 5, 0, 960, 960)
    ADD = ("add", "refused: no PTX", 0, 5, 0, 0)

    def told(self, ptx, splice, sanitizer):
        out = io.StringIO()
        status = backends.compare({"ptx": report(*ptx), "splice": report(*splice), "sanitizer": report(*sanitizer)}, out)
        lines = out.getvalue().splitlines()
        return status, [line.removeprefix("WRONG: ") for line in lines if line.startswith("WRONG")], lines

    def machine(self, name, backend, launches=5, uninstrumented=0, began=960, ended=None):
        return (name, backend, launches, uninstrumented, began, began if ended is None else ended)

    def test_all_alike(self):
        status, wrong, lines = self.told(
            [self.NVRTC, self.ADD],
            [self.machine("nvrtc", "splice"), self.machine("add", "splice", began=128)],
            [self.machine("nvrtc", "sanitizer"), self.machine("add", "sanitizer", began=128)],
        )
        self.assertEqual((status, wrong), (0, []))
        self.assertIn("    sanitizer (sanitizer): 5 launches, 128 threads", lines)
        self.assertIn("2 kernels served by several back ends, 1 by all 3; 0 had launches without programs and are not compared there", lines)

    def test_threads_that_differ(self):
        status, wrong, _ = self.told([self.NVRTC], [self.machine("nvrtc", "splice", began=959)], [self.machine("nvrtc", "sanitizer")])
        self.assertEqual(
            (status, wrong),
            (1, ["nvrtc: threads differ: 960 by ptx, 959 by splice, 960 by sanitizer", "no kernel was served by all of ptx, splice, sanitizer"]),
        )

    def test_threads_that_do_not_end(self):
        status, wrong, _ = self.told([self.NVRTC], [self.machine("nvrtc", "splice", ended=1)], [self.machine("nvrtc", "sanitizer")])
        self.assertEqual((status, wrong), (1, ["nvrtc: by splice 960 threads began and 1 ended"]))

    def test_launches_that_differ(self):
        status, wrong, _ = self.told([self.NVRTC], [self.machine("nvrtc", "splice", launches=4)], [self.machine("nvrtc", "sanitizer")])
        self.assertEqual((status, wrong), (1, ["nvrtc: launches differ: 4, 5"]))
        status, wrong, _ = self.told([self.NVRTC, self.machine("more", "slice")], [self.machine("nvrtc", "splice")], [self.machine("nvrtc", "sanitizer")])
        self.assertEqual((status, wrong), (1, ["more: launches differ: 0, 5"]))

    def test_launches_without_programs_are_not_compared(self):
        uninstrumented = self.machine("nvrtc", "sanitizer", launches=3, uninstrumented=2, began=576)
        status, wrong, lines = self.told([self.NVRTC], [self.machine("nvrtc", "splice")], [uninstrumented])
        self.assertEqual((status, wrong), (1, ["no kernel was served by all of ptx, splice, sanitizer"]))
        self.assertIn("1 kernels served by several back ends, 0 by all 3; 1 had launches without programs and are not compared there", lines)

    def test_a_back_end_that_serves_nothing(self):
        status, wrong, _ = self.told([self.NVRTC], [self.NVRTC], [self.machine("nvrtc", "sanitizer")])
        self.assertEqual((status, wrong), (1, ["no kernel had programs by splice", "no kernel was served by all of ptx, splice, sanitizer"]))


class Costs(unittest.TestCase):
    def told(self, **others):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["before", "after", *torch_cost.PROGRAMS]:
                with open(os.path.join(folder, f"cost-splice-{name}.txt"), "w") as out:
                    out.write(others.get(name, "add 100.00\n0123456789abcdef\n"))
                with open(os.path.join(folder, f"cost-splice-{name}.json"), "w") as out:
                    json.dump({"processes": [{"kernels": [{"launches": 4, "uninstrumented": 1}]}]}, out)
            out = io.StringIO()
            return torch_cost.show(folder, "splice", out), out.getvalue()

    def test_ratios_are_to_the_runs_without(self):
        status, told = self.told(after="add 300.00\n0123456789abcdef\n", torch_blocktimes="add 210.00\n0123456789abcdef\n")
        self.assertEqual(status, 0)
        self.assertIn("| splice: `torch_blocktimes` | 210.0 µs (1.05×) | 4 of 5 |", told)

    def test_another_result_is_wrong(self):
        status, told = self.told(torch_blocktimes="add 210.00\n0123456789abcdee\n")
        self.assertEqual(status, 1)
        self.assertIn("torch_blocktimes: the results are others: WRONG: 0123456789abcdee, not 0123456789abcdef", told)
        with self.assertRaisesRegex(ValueError, "does not end with a digest"):
            self.told(after="add 1.0\n")


class Steps(unittest.TestCase):
    DIGEST = "0123456789abcdef"

    def told(self, **others):
        """`others` by the files' names, with `_` for what a name cannot have."""
        step = f"wall 2000.00\ngpu 1000.00\nhost 500.00\n{self.DIGEST}\n"
        launch = "plain 1000 probed 1100 launches 100000\n"
        report = lambda method, launches=100_000, uninstrumented=0: json.dumps({"processes": [{"kernels": [{"name": "probed", "method": method, "launches": launches, "uninstrumented": uninstrumented}]}]})
        files = {"step-before.txt": step, "step-after.txt": step, "launch-before.txt": launch, "launch-after.txt": launch}
        for backend, program in step_cost.RUNS:
            files[f"step-{backend}-{program}.txt"] = step
            files[f"step-{backend}-{program}.json"] = report(backend, 30, 10)
        for backend in ("splice", "sanitizer"):
            files[f"launch-{backend}.txt"] = launch
            files[f"launch-{backend}.json"] = report(backend)
        for name, text in others.items():
            name = name.replace("__", ".").replace("_", "-")
            self.assertIn(name, files)
            files[name] = text if isinstance(text, str) else report(*text)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w") as out:
                    out.write(text)
            out = io.StringIO()
            return step_cost.show(folder, out), out.getvalue()

    def test_ratios_of_steps_and_launches(self):
        slower = f"wall 2200.00\ngpu 1010.00\nhost 500.00\n{self.DIGEST}\n"
        status, told = self.told(step_splice_bench_all_empty__txt=slower)
        self.assertEqual(status, 0, told)
        self.assertIn("| splice: `bench-all-empty` | 2200 µs (1.100×) | 1010 µs (1.010×) | 500 µs (1.000×) | 30 of 40 |", told)
        self.assertIn("| sanitizer | 1000 ns | 1100 ns (1.10×) | 100,000 of 100,000 |", told)
        self.assertTrue(told.startswith("| a step of training | wall | gpu | host | launches with it |"))

    def test_what_is_wrong_is_told(self):
        status, told = self.told(step_sanitizer_bench_all_entry__txt="wall 1.00\ngpu 1.00\nhost 1.00\n0123456789abcdee\n")
        self.assertEqual(status, 1)
        self.assertIn("sanitizer-bench-all-entry: the results are others: WRONG: 0123456789abcdee, not 0123456789abcdef", told)
        status, told = self.told(step_splice_bench_all_count__json=("splice", 0))
        self.assertEqual(status, 1)
        self.assertIn("splice-bench-all-count: no launch had programs: WRONG", told)
        status, told = self.told(launch_sanitizer__json=("splice", 100_000))
        self.assertEqual(status, 1)
        self.assertIn("sanitizer: 100000 launches with the program, 0 uninstrumented, by `splice`: WRONG", told)
        with self.assertRaisesRegex(ValueError, "is no output of launch.cu"):
            self.told(launch_before__txt="plain\n")


class Accesses(unittest.TestCase):
    def told(self, bytes_counted=400, **others):
        text = lambda addition: f"addition {addition} right\nstencil 200.00 right\naccesses 100 400\n"
        rows = [{"name": name, "method": "sanitizer", "launches": 43, "uninstrumented": 0} for name in mem_cost.KERNELS]
        report = {"processes": [{"kernels": rows, "maps": [{"name": "bytes", "entries": [{"key": 0, "value": bytes_counted}]}]}]}
        with tempfile.TemporaryDirectory() as folder:
            for program, addition in (("none", "50.00"), (mem_cost.EMPTY, "100.00"), (mem_cost.BYTES, "110.00")):
                for time in ("1", "2"):
                    name = os.path.join(folder, f"mem-{program}-{time}")
                    with open(name + ".txt", "w") as out:
                        out.write(others.get(f"{program}-{time}", text(addition)))
                    with open(name + ".json", "w") as out:
                        json.dump(report, out)
            out = io.StringIO()
            return mem_cost.show(folder, out), out.getvalue()

    def test_the_counter_is_compared_with_the_empty_one(self):
        status, told = self.told()
        self.assertEqual(status, 0, told)
        self.assertIn("| `bench-all-bytes` | 110.0, 110.0 µs (1.10× the empty one) | 200.0, 200.0 µs (1.00× the empty one) | 400 of 400 bytes; 400 of 400 bytes |", told)

    def test_what_is_wrong_is_told(self):
        status, told = self.told(bytes_counted=399)
        self.assertEqual(status, 1)
        self.assertIn("bench-all-bytes-2: 399 bytes counted of 400: WRONG", told)
        status, told = self.told(**{"none-1": "addition 50.00 WRONG\nstencil 1.00 right\naccesses 100 400\n"})
        self.assertEqual(status, 1)
        self.assertIn("none-1: the results of `addition` are WRONG", told)
        with self.assertRaisesRegex(ValueError, "is no output of accesses.cu"):
            self.told(**{"none-2": "addition 50.00 right\n"})


if __name__ == "__main__":
    unittest.main()
