"""What a report says of a PyTorch loop (torch_loop.py with squash.cu's library) that was attached to while it ran.

usage: torch_attached.py REPORT eager|graph THREADS

Of the eager loop both own kernels must be instrumented by a slice, have launches with programs, and THREADS threads counted for each of these at their begin and at
their end (threads.bpf.c), neither more nor fewer. A graph that was there before is told of, and what is in it runs as it was.
"""
import collections
import json
import sys

OWN = ("warpbpf_squash", "warpbpf_slope")


def value(process, name, key):
    """The value of a key in a map; 0 if it is not there."""
    entries = next(m["entries"] for m in process["maps"] if m["name"] == name)
    return next((e["value"] for e in entries if e["key"] == key), 0)


def own_kernels(process, threads):
    """A line for each own kernel, and what is wrong with it."""
    for name in OWN:
        kernel = next((k for k in process["kernels"] if k["name"] == name), None)
        if kernel is None:
            yield f"{name} was not seen", True
            continue
        launches, method = kernel["launches"], kernel["method"]
        counted = [value(process, which, kernel["id"]) for which in ("began", "ended")] if kernel["instrumented"] else [0, 0]
        wrong = method != "slice" or launches == 0 or counted != [launches * threads] * 2
        yield f"{name}: {launches} launches with programs, {kernel['uninstrumented']} uninstrumented, {counted[0]} and {counted[1]} threads, method `{method}`", wrong


def main(path, kind, threads):
    with open(path) as file:
        report = json.load(file)
    process, notes = report["processes"][0], report["notes"]
    failed = False
    methods = collections.Counter(k["method"].split("`")[0] for k in process["kernels"])
    print("  ", len(process["kernels"]), "kernels,", sum(k["uninstrumented"] for k in process["kernels"]), "launches uninstrumented")
    for method, kernels in methods.most_common(4):
        print("    ", kernels, method)
    left = [note for note in notes if "not as it was" in note]
    print("\n".join(left) or "   its code is as it was")
    failed |= bool(left)
    if kind == "eager":
        for line, wrong in own_kernels(process, threads):
            print("  ", line + (": WRONG" if wrong else ": as it should be"))
            failed |= wrong
    else:
        graphs = [note for note in notes if "launches of a graph that was instantiated before" in note]
        print("  ", graphs[0] if graphs else "WRONG: its graph is not told of")
        failed |= not graphs
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
