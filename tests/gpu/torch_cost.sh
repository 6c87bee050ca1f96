#!/usr/bin/env bash
# What programs by the splice cost in PyTorch's kernels: GPU time of benches/torch_ops.py under each, as ratio to the runs without, before and after.
# Prints a Markdown table for benches/results. Wrong is only another result; times are for a reader.
# usage: torch_cost.sh BUNDLE OUT [BACKEND]
set -uo pipefail
bundle=$1
out=$2
backend=${3:-splice}
here=$(dirname "$(readlink -f "$0")")
ops=$here/../../benches/torch_ops.py
failed=0

run() { # name object
    local to=$out/cost-$backend-$1
    "$bundle/warpbpf" run --device gpu --backend "$backend" --interval 0 --json -o "$to.json" "$bundle/objects/$2.bpf.o" -- \
        python3 "$ops" >"$to.txt" 2>"$to.err" || { echo "  $1: the run FAILED"; tail -5 "$to.err"; failed=1; }
}

python3 "$ops" >"$out/cost-$backend-before.txt" || failed=1
for object in bench-all-entry bench-all-empty bench-all-count bench-all-blocks torch_blocktimes; do
    run "$object" "$object"
done
python3 "$ops" >"$out/cost-$backend-after.txt" || failed=1
python3 "$here/torch_cost.py" "$out" "$backend" || failed=1
exit $failed
