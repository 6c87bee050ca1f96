# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of `hook/sitecustomize.py`, with something that stands for PyTorch: python3 test_hook.py"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# What the hook uses of it.
TORCH = '''
import json, types

class Ranges:
    def __enter__(self): print("ranges begin")
    def __exit__(self, *how): print("ranges end")

class Profile:
    def __init__(self, activities): print("counts", activities)
    def start(self): print("starts")
    def stop(self): print("stops")
    def export_chrome_trace(self, path):
        kernel = lambda name: {"cat": "kernel", "name": name}
        events = [kernel("a()"), kernel("b()"), kernel("a()"), {"cat": "gpu_memcpy", "name": "copy"}, {"ph": "M"}]
        with open(path, "w") as out:
            json.dump({"traceEvents": events}, out)

queued = []
cuda = types.SimpleNamespace(_lazy_call=queued.append, synchronize=lambda: None)
autograd = types.SimpleNamespace(profiler=types.SimpleNamespace(emit_nvtx=Ranges))
profiler = types.SimpleNamespace(profile=Profile, ProfilerActivity=types.SimpleNamespace(CUDA="CUDA"))

def use_cuda():
    for call in queued:
        call()
'''

COUNTED = {"a()": 2, "b()": 1}

# What the parent does first, and what its child does.
FORK = """
import os, sys, torch
{}
sys.stdout.flush()
if os.fork() == 0:
    {}
    sys.exit()
os.wait()
"""


class Hook(unittest.TestCase):
    def run_script(self, script, wish, also=""):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in [("torch.py", TORCH), ("sitecustomize.py", also)]:
                if text:
                    with open(os.path.join(folder, name), "w") as out:
                        out.write(text)
            counted = os.path.join(folder, "count.json")
            paths = os.pathsep.join([os.path.join(HERE, "hook"), folder])
            environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
            environment.pop("WARPBPF_TORCH", None)
            if wish:
                environment["WARPBPF_TORCH"] = wish.replace("FILE", counted)
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            found = []
            for name in os.listdir(folder):
                if name.startswith("count.json"):
                    self.assertRegex(name, r"^count\.json\.[0-9]+$")
                    with open(os.path.join(folder, name)) as text:
                        found.append(json.load(text))
            return done.stdout.split("\n")[:-1], found

    def test_ranges_are_there_from_the_first_use_of_cuda_on(self):
        script = "import torch; print('imported'); torch.use_cuda(); print('works')"
        self.assertEqual(self.run_script(script, "operators")[0], ["imported", "ranges begin", "works", "ranges end"])

    def test_launches_are_counted(self):
        told, counted = self.run_script("import torch; torch.use_cuda(); print('works')", "count:FILE")
        self.assertEqual(told, ["counts ['CUDA']", "starts", "works", "stops"])
        self.assertEqual(counted, [COUNTED])

    def test_without_cuda_nothing_is_counted(self):
        self.assertEqual(self.run_script("import torch; print('works')", "count:FILE"), (["works"], []))

    def test_each_process_that_uses_cuda_has_its_own_counts(self):
        started = "import subprocess, sys, torch; torch.use_cuda(); subprocess.run([sys.executable, '-c', 'import torch; torch.use_cuda()'])"
        self.assertEqual(self.run_script(started, "count:FILE")[1], [COUNTED, COUNTED])
        told, counted = self.run_script(FORK.format("pass", "torch.use_cuda()"), "count:FILE")
        self.assertEqual((told, counted), (["counts ['CUDA']", "starts", "stops"], [COUNTED]))

    def test_a_forked_child_does_not_end_what_its_parent_began(self):
        told, counted = self.run_script(FORK.format("torch.use_cuda()", "pass"), "count:FILE")
        self.assertEqual((told, counted), (["counts ['CUDA']", "starts", "stops"], [COUNTED]))
        self.assertEqual(self.run_script(FORK.format("torch.use_cuda()", "pass"), "operators")[0], ["ranges begin", "ranges end"])

    def test_scripts_without_pytorch_and_other_customizations_go_on(self):
        self.assertEqual(self.run_script("print(6 * 7)", "operators", also="print('theirs')")[0], ["theirs", "42"])
        self.assertEqual(self.run_script("import torch; torch.use_cuda(); print('works')", None)[0], ["works"])


if __name__ == "__main__":
    unittest.main()
