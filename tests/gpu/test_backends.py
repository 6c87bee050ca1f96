# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of what compares back ends and of the table of costs, which need no GPU: python3 test_backends.py"""

import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import backends
import torch_cost


def report(*kernels):
    """Of kernels: name, way, launches, missed, threads that began, threads that ended."""
    rows = [{"mangled": name, "id": number, "way": way, "launches": launches, "missed": missed} for number, (name, way, launches, missed, *_) in enumerate(kernels)]
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

    def machine(self, name, backend, launches=5, missed=0, began=960, ended=None):
        return (name, backend, launches, missed, began, began if ended is None else ended)

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
        missed = self.machine("nvrtc", "sanitizer", launches=3, missed=2, began=576)
        status, wrong, lines = self.told([self.NVRTC], [self.machine("nvrtc", "splice")], [missed])
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
                    json.dump({"processes": [{"kernels": [{"launches": 4, "missed": 1}]}]}, out)
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


if __name__ == "__main__":
    unittest.main()
