#!/usr/bin/env bash
# PyTorch's training loop (torch_loop.py), eager and as a CUDA graph: alone, started by `warpbpf run`, and with programs attached
# and detached while it runs, where its two own kernels are in a library, as those of an extension are (squash.cu). Its losses must be the same
# to the bit, and what was counted exact: from the start all launches, attached those that the report says had programs.
# usage: torch.sh BUNDLE OUT
set -uo pipefail
bundle=$1
out=$2
here=$(dirname "$(readlink -f "$0")")
# 16 * 32 * 128 elements, one in each thread.
threads=65536
failed=0
object=$bundle/objects/threads.bpf.o
extension=$bundle/apps/libtorch_squash.so

check() { # what expected got
    if [[ $2 == "$3" ]]; then echo "  $1: as it should be"; else echo "  $1: WRONG: $3, not $2"; failed=1; fi
}

for kind in ${TORCH_KINDS:-eager graph}; do
    # So many that the attaches fit well: eager ones last long enough for PyTorch's libraries to be searched, which takes seconds.
    steps=7500
    seconds=15
    turns="1 2"
    [[ $kind == graph ]] && steps=40000 && seconds=3 && turns="1 2 3"
    loop() { python3 "$here/torch_loop.py" "$steps" "$kind" "$@"; }
    echo "$kind: alone"
    loop "$out/$kind-alone.txt" || failed=1
    echo "$kind: from the start"
    "$bundle/warpbpf" run --device gpu --interval 0 --json -o "$out/$kind-run.json" "$bundle/objects/launchcount.bpf.o" -- \
        python3 "$here/torch_loop.py" "$steps" "$kind" "$out/$kind-run.txt" || failed=1
    check "losses" "$(sha256sum <"$out/$kind-alone.txt")" "$(sha256sum <"$out/$kind-run.txt")"
    # Three steps come before; a captured one is no launch.
    launches=$((steps + 3))
    python3 - "$out/$kind-run.json" "$launches" "$threads" <<'PY' || failed=1
import json, sys
report, launches, threads = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
wrong = False
for kernel in report["processes"][0]["kernels"]:
    if kernel["name"].startswith("warpbpf_"):
        right = kernel["instrumented"] and (kernel["launches"], kernel["uninstrumented"]) == (launches, 0)
        print(f'  {kernel["name"]}: {kernel["launches"]} launches, {kernel["uninstrumented"]} uninstrumented:', "as it should be" if right else f"WRONG: not {launches}")
        wrong |= not right
seen = [k["name"] for k in report["processes"][0]["kernels"] if k["instrumented"]]
print(f'  kernels with programs: {len(seen)} of {len(report["processes"][0]["kernels"])}')
sys.exit(wrong)
PY
    echo "$kind: alone, with the kernels in a library"
    loop "$out/$kind-library.txt" "$extension" || failed=1
    echo "$kind: attached several times"
    loop "$out/$kind-attached.txt" "$extension" >"$out/$kind-attached.log" &
    pid=$!
    for _ in $(seq 300); do grep -q begin "$out/$kind-attached.log" && break; sleep 0.1; done
    python=$(pgrep -P $pid python3 || echo $pid)
    for turn in $turns; do
        "$bundle/warpbpf" attach -p "$python" --duration $seconds --json -o "$out/$kind-attached-$turn.json" "$object" || { echo "  attach $turn FAILED"; failed=1; }
    done
    wait $pid || failed=1
    cat "$out/$kind-attached.log"
    check "losses" "$(sha256sum <"$out/$kind-library.txt")" "$(sha256sum <"$out/$kind-attached.txt")"
    for turn in $turns; do
        python3 "$here/torch_attached.py" "$out/$kind-attached-$turn.json" "$kind" "$threads" || { echo "  attach $turn: WRONG"; failed=1; }
    done
done
exit $failed
