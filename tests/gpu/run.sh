#!/usr/bin/env bash
# Everything that must hold on a real GPU, from a bundle made by `cargo xtask gpu-bundle`. Builds nothing.
# usage: tests/gpu/run.sh [BUNDLE [PART...]]     parts: suite conformance sanitizer bench (default: all)
set -uo pipefail
bundle=${1:-target/gpu-bundle}
shift || true
parts=${*:-suite conformance sanitizer bench}
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$(mktemp -d)}
failed=0

for part in $parts; do
    case $part in
        suite | conformance | sanitizer | bench) ;;
        *) echo "run.sh: there is no part \`$part\`: suite conformance sanitizer bench" >&2; exit 2 ;;
    esac
done

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU"
    exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$bundle/warpbpf" doctor || failed=1

wants() { [[ " $parts " == *" $1 "* ]]; }

if wants suite; then
    echo "== suite, on the GPU"
    timeout 240 "$bundle/warpbpf-suite" gpu "$bundle" 2>&1 | tee "$out/suite.txt" || failed=1
fi

if wants conformance; then
    echo "== bpf_conformance on every engine"
    timeout 240 "$bundle/warpbpf-conformance" suite "$bundle"/suites/{bpf_conformance,found} --driver libcuda.so.1 \
        >"$out/conformance.txt" 2>&1 || failed=1
    sed -n '1p;/^passed/,$p' "$out/conformance.txt"
    # The driver compiles for one thread of a process at a time, so these are processes.
    echo "== generated programs on the interpreter and the GPU"
    fuzzers=()
    for seed in 1 2 3 4 5 6 7 8; do
        timeout 120 "$bundle/warpbpf-conformance" fuzz --engine gpu --seconds 60 --seed "$((RANDOM * 8 + seed))" \
            >"$out/fuzz-$seed.txt" 2>&1 &
        fuzzers+=($!)
    done
    for fuzzer in "${fuzzers[@]}"; do
        wait "$fuzzer" || failed=1
    done
    grep -h '^seed\|^fuzz\|^warpbpf' "$out"/fuzz-?.txt
fi

if wants sanitizer; then
    echo "== compute-sanitizer memcheck over instrumented kernels (the agent comes in by LD_PRELOAD)"
    for app in vectoradd matmul reduction; do
        for program in threadhist kernelretsnoop launchcount; do
            arguments=(20000 2)
            [[ $app == matmul ]] && arguments=(64 2)
            report=$out/sanitizer-$app-$program
            timeout 120 "$bundle/warpbpf" run --device gpu --inject preload --json -o "$report.json" \
                "$bundle/objects/$program.bpf.o" -- \
                compute-sanitizer --tool memcheck --error-exitcode 9 "$bundle/apps/$app" "${arguments[@]}" >"$report.txt" 2>&1
            status=$?
            plain=$("$bundle/apps/$app" "${arguments[@]}")
            launches=$(grep -o '"launches":[0-9]*' "$report.json" | head -1)
            if [[ $status == 0 ]] && grep -q 'ERROR SUMMARY: 0 errors' "$report.txt" && grep -qxF "$plain" "$report.txt" \
                && [[ $launches == '"launches":2' ]]; then
                echo "memcheck $app $program: 0 errors, output identical, $launches"
            else
                echo "memcheck $app $program: FAIL (status $status, $launches)"
                tail -5 "$report.txt"
                failed=1
            fi
        done
    done
fi

if wants bench; then
    echo "== GPU time of probes, vec_add (benches/vecadd.cu)"
    timeout 280 "$here/bench.sh" "$bundle" "$out" || failed=1
fi

[[ $failed == 0 ]] && echo "gpu: all passed" || echo "gpu: FAILED"
exit $failed
