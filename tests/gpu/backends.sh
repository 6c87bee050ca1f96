#!/usr/bin/env bash
# PTX, splice and Compute Sanitizer compared kernel by kernel: the same work in PyTorch, Triton and CuPy (backends_work.py) under a program that counts threads. What
# it computes must be the same to the bit as alone, and what two back ends count in a kernel the same.
#
# Kernels of PyTorch have machine code alone. Triton and CuPy keep theirs on disk. Under `--backend ptx` the PTX of both is there: CuPy asks NVRTC, as its
# cache is empty, and Triton's has it beside the machine code. For the others both come from a cache without PTX: so all three serve the same two kernels.
# usage: backends.sh BUNDLE OUT
set -uo pipefail
bundle=$1
out=$2/backends
here=$(dirname "$(readlink -f "$0")")
failed=0
reports=()
mkdir -p "$out" || exit 2
rm -rf "$out/cupy" "$out/cupy-empty" "$out/triton"
export TRITON_CACHE_DIR=$out/triton
# Else the machine code has the PTX in it.
export TRITON_DISABLE_LINE_INFO=1
if [[ -z ${WARPBPF_PTXAS:-} ]] && ! command -v ptxas >/dev/null; then
    WARPBPF_PTXAS=$(python3 -c 'import os, triton; print(os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/ptxas"))') && export WARPBPF_PTXAS
fi

work() { CUPY_CACHE_DIR=$1 "${@:2}" python3 "$here/backends_work.py"; }

served() { # backend cache
    work "$2" "$bundle/warpbpf" run --device gpu --backend "$1" --interval 0 --json -o "$out/$1.json" "$bundle/objects/threads.bpf.o" -- \
        >"$out/$1.txt" 2>"$out/$1.err" || { echo "  $1: the run FAILED"; tail -5 "$out/$1.err"; failed=1; return; }
    reports+=("$1=$out/$1.json")
    if cmp -s "$out/alone.txt" "$out/$1.txt"; then
        echo "  $1: outputs as alone"
    else
        echo "  $1: outputs WRONG:"
        diff "$out/alone.txt" "$out/$1.txt"
        failed=1
    fi
}

# Twice: what is compiled the first time comes from the caches the second time.
work "$out/cupy" env >"$out/first.txt" && work "$out/cupy" env >"$out/alone.txt" || { echo "  alone: the run FAILED"; exit 1; }
cmp "$out/first.txt" "$out/alone.txt" || failed=1
served ptx "$out/cupy-empty"
find "$out/triton" -name '*.ptx' -delete
served splice "$out/cupy"
served sanitizer "$out/cupy"
python3 "$here/backends.py" "${reports[@]}" || failed=1
exit $failed
