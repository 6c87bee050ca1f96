# SPDX-License-Identifier: MIT OR Apache-2.0
"""Python imports this before any script, where `profile` has put its folder into PYTHONPATH: so scripts need not be changed.

WARPBPF_TORCH=operators      each operator of PyTorch is an NVTX range, from the first use of CUDA on
WARPBPF_TORCH=count:FILE     torch.profiler counts launches by kernel, and each process writes its own to FILE.PID as JSON when Python ends
"""

import atexit
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def at_end(call):
    """Calls it when Python ends in this process. A forked child would call it, too, though it is not the one that counts and cannot use CUDA."""
    process = os.getpid()

    def end():
        if os.getpid() == process:
            call()

    atexit.register(end)


def operators(torch):
    ranges = torch.autograd.profiler.emit_nvtx()
    ranges.__enter__()
    at_end(lambda: ranges.__exit__(None, None, None))


def count(torch, file):
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    profiler.start()

    def write():
        torch.cuda.synchronize()
        profiler.stop()
        handle, trace = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        try:
            profiler.export_chrome_trace(trace)
            with open(trace) as text:
                events = json.load(text)["traceEvents"]
        finally:
            os.unlink(trace)
        launches = {}
        for event in events:
            if event.get("cat") == "kernel":
                launches[event["name"]] = launches.get(event["name"], 0) + 1
        # Of processes that the script starts, as torchrun does, each has its own.
        with open(f"{file}.{os.getpid()}", "w") as out:
            json.dump(launches, out)

    at_end(write)


def at_import(torch):
    wish = os.environ.get("WARPBPF_TORCH", "")

    def begin():
        if wish == "operators":
            operators(torch)
        elif wish.startswith("count:"):
            count(torch, wish[len("count:") :])

    # When CUDA is used first, as nothing is launched before, and a script may still choose its devices after the import.
    torch.cuda._lazy_call(begin)


class Finder:
    """Finds `torch` once, and calls us when it is there."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            at_import(module)

        spec.loader.exec_module = exec_module
        return spec


def the_next():
    """The `sitecustomize` that would have been imported without ours."""
    paths = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("WARPBPF_TORCH"):
    sys.meta_path.insert(0, Finder())
the_next()
