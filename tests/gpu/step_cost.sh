#!/usr/bin/env bash
# What programs cost in a whole step of training and at one launch, by the splice and by Compute Sanitizer: wall time, GPU time and the host's time of a step (benches/torch_step.py),
# and the host's time of a launch of an empty kernel of machine code (benches/launch.cu), each as ratio to the runs without programs. Prints Markdown tables last, for benches/results.
# Wrong is only another result, and a run without programs in it; times are for a reader.
# usage: step_cost.sh BUNDLE OUT
set -uo pipefail
bundle=$1
out=$2
here=$(dirname "$(readlink -f "$0")")
step=$here/../../benches/torch_step.py
failed=0
if [[ -z ${WARPBPF_PTXAS:-} ]] && ! command -v ptxas >/dev/null; then
    WARPBPF_PTXAS=$(python3 -c 'import os, triton; print(os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/ptxas"))') && export WARPBPF_PTXAS
fi

run() { # to backend object command...
    local to=$out/$1 backend=$2 object=$3
    shift 3
    "$bundle/warpbpf" run --device gpu --backend "$backend" --interval 0 --json -o "$to.json" "$bundle/objects/$object.bpf.o" -- \
        "$@" >"$to.txt" 2>"$to.err" || { echo "  $to: the run FAILED"; tail -5 "$to.err"; failed=1; }
}

python3 "$step" >"$out/step-before.txt" || failed=1
for object in bench-all-empty bench-all-count bench-all-blocks; do
    run "step-splice-$object" splice "$object" python3 "$step"
done
run step-sanitizer-bench-all-entry sanitizer bench-all-entry python3 "$step"
python3 "$step" >"$out/step-after.txt" || failed=1
"$bundle/apps/launch-machine" >"$out/launch-before.txt" || failed=1
for backend in splice sanitizer; do
    run "launch-$backend" $backend bench-launch "$bundle/apps/launch-machine"
done
"$bundle/apps/launch-machine" >"$out/launch-after.txt" || failed=1
python3 "$here/step_cost.py" "$out" || failed=1
exit $failed
