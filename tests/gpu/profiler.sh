#!/usr/bin/env bash
# Beside what else is in a PyTorch process: torch.profiler (CUPTI) while programs are in its kernels, by PTX and by the splice, and attached while it
# runs; and NCCL's kernels, in a communicator of as many ranks as there are GPUs. Losses must be the same to the bit, torch.profiler's counts those that
# it has alone, and ours the same as its.
# usage: profiler.sh BUNDLE OUT
set -uo pipefail
bundle=$1
out=$2
here=$(dirname "$(readlink -f "$0")")
examples=$bundle/examples/torch
steps=300
failed=0

check() { # what expected got
    if [[ $2 == "$3" ]]; then echo "  $1: as it should be"; else echo "  $1: WRONG: $3, not $2"; failed=1; fi
}

# Runs the loop under torch.profiler; $1 names its files, the rest is what starts it.
loop() {
    local name=$1 kind=$2
    shift 2
    PYTHONPATH=$examples/hook WARPBPF_TORCH=count:$out/$name "$@" python3 "$here/torch_loop.py" $steps "$kind" "$out/$name.losses" || { echo "  $name: FAILED"; failed=1; }
}

# What torch.profiler counted in two runs, or in a run and what a report of ours has.
compare() { # what a b
    python3 - "$examples" "$1" "$2" "$3" <<'PY' || failed=1
import glob, json, sys
sys.path.insert(0, sys.argv[1])
import report
what, theirs, ours = sys.argv[2:]

def counts(path):
    sums = {}
    for part in glob.glob(path + ".[0-9]*"):
        for name, launches in json.load(open(part)).items():
            # Ours, which finds out how the clocks stand to each other.
            if not name.startswith("wbpf_"):
                sums[name] = sums.get(name, 0) + launches
    return sums

theirs = counts(theirs)
if ours.endswith(".json"):
    ours = json.load(open(ours))
    served = sum(k["launches"] for p in ours["processes"] for k in p["kernels"])
    by_method = {}
    for kernel in (k for p in ours["processes"] for k in p["kernels"]):
        method = kernel["method"].split("`")[0][:60]
        by_method[method] = by_method.get(method, 0) + kernel["launches"]
    print("   launches with programs:", served, by_method)
    differ, kernels = report.check_counts(ours, theirs, report.demangler())
else:
    other = counts(ours)
    names = theirs.keys() | other.keys()
    differ, kernels = [(n, other.get(n, 0), theirs.get(n, 0)) for n in sorted(names) if other.get(n, 0) != theirs.get(n, 0)], len(names)
for name, one, two in differ[:8]:
    print(f"   {name[:90]}: {one}, and torch.profiler has {two}")
right = theirs and not differ
print(f"  {what}: {sum(theirs.values())} launches of {kernels} kernels:", "as it should be" if right else f"WRONG in {len(differ)} kernels")
sys.exit(not right)
PY
}

for kind in eager graph; do
    echo "$kind, under torch.profiler"
    rm -f "$out/$kind-profiled".*
    loop "$kind-profiled" $kind
    for backend in auto splice; do
        name=$kind-profiled-$backend
        loop "$name" $kind "$bundle/warpbpf" run --device gpu --interval 0 --backend $backend --json -o "$out/$name.json" "$bundle/objects/bench-all-count.bpf.o" --
        check "losses with programs by $backend" "$(sha256sum <"$out/$kind-profiled.losses")" "$(sha256sum <"$out/$name.losses")"
        compare "torch.profiler with and without programs by $backend" "$out/$kind-profiled" "$out/$name"
        # Kernels of a graph that is launched are counted by it, and by us as one launch of theirs each.
        [[ $kind == eager ]] && compare "torch.profiler and our counts, by $backend" "$out/$name" "$out/$name.json"
    done
done

echo "eager, attached to under torch.profiler"
loop eager-profiled-attached eager >"$out/eager-profiled-attached.log" &
pid=$!
for _ in $(seq 600); do grep -q begin "$out/eager-profiled-attached.log" && break; sleep 0.05; done
python=$(pgrep -n -f "eager-profiled-attached.losses" || echo $pid)
"$bundle/warpbpf" attach -p "$python" --duration 1 --json -o "$out/eager-profiled-attached.json" "$bundle/objects/bench-all-count.bpf.o" || { echo "  attach FAILED"; failed=1; }
wait $pid || failed=1
check "losses" "$(sha256sum <"$out/eager-profiled.losses")" "$(sha256sum <"$out/eager-profiled-attached.losses")"
compare "torch.profiler with and without programs attached" "$out/eager-profiled" "$out/eager-profiled-attached"

echo "NCCL"
cat >"$out/nccl.py" <<'PY'
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def rank(me, ranks, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(me)
    dist.init_process_group("nccl", rank=me, world_size=ranks, device_id=torch.device("cuda", me))
    torch.manual_seed(me)
    x, sums = torch.randn(1 << 20, device="cuda"), []
    for step in range(50):
        y = x * (step + 1)
        dist.all_reduce(y, op=dist.ReduceOp.AVG)
        z = [torch.empty_like(y) for _ in range(ranks)]
        dist.all_gather(z, y)
        sums.append((y.sum() + z[-1][::7].sum()).item().hex())
    dist.barrier()
    dist.destroy_process_group()
    open(f"{path}.{me}", "w").write("\n".join(sums))

if __name__ == "__main__":
    ranks = torch.cuda.device_count()
    mp.spawn(rank, args=(ranks, sys.argv[1]), nprocs=ranks)
    print(f"NCCL {torch.cuda.nccl.version()}, {ranks} ranks", flush=True)
PY
timeout 120 python3 "$out/nccl.py" "$out/nccl-alone" || failed=1
for backend in auto splice; do
    timeout 120 "$bundle/warpbpf" run --device gpu --interval 0 --backend $backend --json -o "$out/nccl-$backend.json" "$bundle/objects/bench-all-count.bpf.o" -- \
        python3 "$out/nccl.py" "$out/nccl-$backend" || failed=1
    check "results of NCCL with programs by $backend" "$(cat "$out"/nccl-alone.? | sha256sum)" "$(cat "$out"/nccl-$backend.? | sha256sum)"
    python3 - "$out/nccl-$backend.json" <<'PY' || failed=1
import json, sys
kernels = [k for p in json.load(open(sys.argv[1]))["processes"] for k in p["kernels"]]
for k in kernels:
    if k["launches"] + k["uninstrumented"]:
        print("  ", k["mangled"][:60], k["launches"], k["uninstrumented"], k["method"][:80])
print("  ", sum(k["launches"] for k in kernels), "launches with programs of", sum(k["launches"] + k["uninstrumented"] for k in kernels))
sys.exit(not kernels)
PY
done
[[ $failed == 0 ]] && echo "beside torch.profiler and NCCL: passed" || echo "beside torch.profiler and NCCL: FAILED"
exit $failed
