#!/usr/bin/env bash
# A counter of bytes at each access to global memory against an empty program there, by Compute Sanitizer, in kernels of which there is only machine code (benches/accesses.cu).
# Twice each, between runs without programs. Prints a Markdown table for benches/results. Wrong is another result, and bytes that are not those of the
# accesses; times are for a reader: the target is 1.2×.
# usage: mem_cost.sh BUNDLE OUT
set -uo pipefail
bundle=$1
out=$2
here=$(dirname "$(readlink -f "$0")")
app=$bundle/apps/accesses-machine
failed=0
if [[ -z ${WARPBPF_PTXAS:-} ]] && ! command -v ptxas >/dev/null; then
    WARPBPF_PTXAS=$(python3 -c 'import os, triton; print(os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/ptxas"))') && export WARPBPF_PTXAS
fi

"$app" >"$out/mem-none-1.txt" || failed=1
for time in 1 2; do
    for object in bench-all-mem-empty bench-all-bytes; do
        to=$out/mem-$object-$time
        "$bundle/warpbpf" run --device gpu --backend sanitizer --interval 0 --json -o "$to.json" "$bundle/objects/$object.bpf.o" -- \
            "$app" >"$to.txt" 2>"$to.err" || { echo "  $object: the run FAILED"; tail -5 "$to.err"; failed=1; }
    done
done
"$app" >"$out/mem-none-2.txt" || failed=1
python3 "$here/mem_cost.py" "$out" || failed=1
exit $failed
