#!/usr/bin/env bash
# Accesses to global memory that `gpu/mem` counts, against those that NVIDIA's Compute Sanitizer counts in the same kernels
# made from the same PTX. Every difference must stand in sanitizer/differences.txt with its reason, and nothing else may.
# usage: tests/gpu/memcount.sh [BUNDLE [NAME...]]     a name: vectoradd, matmul, reduction, variants, or a group of tests/kernels
# MEMCOUNT_DEVICE=soft prints what `gpu/mem` counts on the soft GPU, where there is nothing to compare with.
set -uo pipefail
bundle=$(realpath "${1:-target/gpu-bundle}")
shift || true
names=${*:-vectoradd matmul reduction variants counted tiling warps inline_ptx tensor recursion indirect params doubles halves async captured}
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$(mktemp -d)}
device=${MEMCOUNT_DEVICE:-gpu}
failed=0

if [[ $device == gpu ]] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU"
    exit 0
fi

# NVIDIA's library is part of a CUDA toolkit, beside the tool itself or, for the tool's wrapper script, in a folder next to it.
library_folder() {
    local tool folder
    tool=$(command -v compute-sanitizer) && tool=$(dirname "$(readlink -f "$tool")")
    for folder in "${SANITIZER_HOME:-}" ${tool:+"$tool" "$tool/../compute-sanitizer" "$tool/../lib"} \
        /usr/local/cuda/compute-sanitizer /usr/local/cuda-*/compute-sanitizer; do
        [[ -n $folder && -f $folder/libsanitizer-public.so ]] && { realpath "$folder"; return; }
    done
    return 1
}
if [[ $device == gpu ]] && ! library=$(library_folder); then
    echo "memcount: there is no libsanitizer-public.so: set SANITIZER_HOME to its folder" >&2
    exit 1
fi

# How an application is started with nothing of ours; on the soft GPU with the shared runtime.
alone=() suffix=
[[ $device == soft ]] && alone=(env "LD_LIBRARY_PATH=$bundle/soft") suffix=-shared

for name in $names; do
    case $name in
        vectoradd | reduction) command=("$bundle/apps/$name$suffix" 20000 2) ;;
        variants) command=("$bundle/apps/$name$suffix") ;;
        matmul) command=("$bundle/apps/$name$suffix" 64 2) ;;
        *)
            command=("$bundle/kernels/$name$suffix")
            [[ $name == captured ]] && command+=("$bundle/kernels/triton")
            # By its own list, less those that are not compared.
            listed=$("${alone[@]}" "$bundle/kernels/$name$suffix" --list) ||
                { echo "memcount: $name does not list its kernels" >&2; failed=1; continue; }
            skipped=$(sed -n "s/^$name \\([^ ]*\\) skipped: .*/\\1/p" "$here/sanitizer/differences.txt")
            for kernel in $skipped; do
                grep -qxF "$kernel" <<<"$listed" ||
                    { echo "memcount: differences.txt skips \`$kernel\` of $name, which has no such kernel"; failed=1; }
            done
            chosen=$(grep -vxFf <(echo "$skipped") <<<"$listed")
            mapfile -t -O "${#command[@]}" command <<<"$chosen"
            ;;
    esac
    to=$out/memcount-$name
    rm -f "$to".*
    timeout 120 "$bundle/warpbpf" run --device "$device" --interval 0 --json -o "$to.ours" "$bundle/objects/memcount.bpf.o" -- \
        "${command[@]}" >"$to.output" 2>"$to.errors" || { echo "memcount: $name with our program FAILED:"; tail -3 "$to.errors"; failed=1; }
    [[ $device == gpu ]] || continue
    # The driver compiles the PTX that our program is put into, and not the machine code beside it.
    CUDA_FORCE_PTX_JIT=1 CUDA_MODULE_LOADING=EAGER LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        CUDA_INJECTION64_PATH=$bundle/sanitizer/libmemcount.so MEMCOUNT_OUT=$to.sanitizer \
        timeout 240 "${command[@]}" >"$to.sanitized" 2>"$to.errors" ||
        { echo "memcount: $name under Compute Sanitizer FAILED:"; tail -3 "$to.errors"; failed=1; }
    [[ -s $to.sanitizer ]] || { echo "memcount: Compute Sanitizer counted nothing in $name"; failed=1; }
    cmp -s "$to.output" "$to.sanitized" || { echo "memcount: $name prints something else under Compute Sanitizer"; failed=1; }
done

python3 "$here/sanitizer/compare.py" "$here/sanitizer/differences.txt" "$out" $names || failed=1
[[ $failed == 0 ]] && echo "memcount: all passed" || echo "memcount: FAILED"
exit $failed
