# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of what is made of reports about PyTorch's loop, which need no GPU: python3 test_torch_attached.py"""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import torch_attached


def kernel(number, name, launches, method="slice"):
    return {"id": number, "name": name, "method": method, "launches": launches, "uninstrumented": 3, "instrumented": method == "slice"}


def report(kernels, counts, notes=()):
    maps = [{"name": name, "entries": [{"key": key, "value": value} for key, value in counts.items()]} for name in ("began", "ended")]
    return {"processes": [{"kernels": kernels, "maps": maps}], "notes": list(notes)}


class Attached(unittest.TestCase):
    def told(self, report, kind="eager"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            with open(path, "w") as file:
                json.dump(report, file)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                failed = torch_attached.main(path, kind, 64)
        return failed, out.getvalue()

    def own(self, squash=5, slope=4):
        return [kernel(0, "warpbpf_squash", squash), kernel(2, "warpbpf_slope", slope), kernel(None, "add", 0, "refused: no PTX")]

    def test_exact(self):
        failed, out = self.told(report(self.own(), {0: 320, 2: 256}))
        self.assertFalse(failed)
        self.assertIn("warpbpf_slope: 4 launches with programs, 3 uninstrumented, 256 and 256 threads, method `slice`: as it should be", out)

    def test_wrong(self):
        cases = [
            (report(self.own(), {0: 320, 2: 255}), "256 threads"),
            (report(self.own(slope=0), {0: 320}), "none had programs"),
            (report(self.own()[:1], {0: 320}), "one was not seen"),
            (report([kernel(0, "warpbpf_squash", 5), kernel(None, "warpbpf_slope", 0, "refused: no PTX")], {0: 320}), "not instrumented"),
            (report(self.own(), {0: 320, 2: 256}, ["its code is not as it was"]), "code"),
        ]
        for case, what in cases:
            self.assertTrue(self.told(case)[0], what)

    def test_graph(self):
        note = "7 launches of a graph that was instantiated before the programs came ran without them"
        failed, out = self.told(report([], {}, [note]), "graph")
        self.assertFalse(failed)
        self.assertIn(note, out)
        self.assertTrue(self.told(report([], {}), "graph")[0])


if __name__ == "__main__":
    unittest.main()
