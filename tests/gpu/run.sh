#!/usr/bin/env bash
# Everything that must hold on a real GPU, from a bundle made by `cargo xtask gpu-bundle`. Builds nothing.
# usage: tests/gpu/run.sh [BUNDLE [PART...]]     the bundle: a folder, or the archive of it
#       parts: suite kernels conformance sanitizer bench (default: these), memcount mutants fuzz faults torch profiler torchcost stepcost memcost backends
# `suite` takes SUITE_CASES, a part of names or `K/N`, and at most SUITE_SECONDS (default 590).
# `mutants` takes MUTANTS_SECONDS (default 120) on as many processes as there are cores to 8, from seed MUTANTS_SEED.
# `fuzz` keeps every core of the machine busy for FUZZ_SECONDS (default 540), starting from seed FUZZ_SEED.
set -uo pipefail
bundle=${1:-target/gpu-bundle}
shift || true
parts=${*:-suite kernels conformance sanitizer bench}
here=$(cd "$(dirname "$0")" && pwd)
if [[ -f $bundle ]]; then
    unpacked=$(mktemp -d)
    tar --extract --file "$bundle" --directory "$unpacked" || exit 2
    bundle=$unpacked/gpu-bundle
fi
out=${OUT:-$(mktemp -d)}
failed=0

for part in $parts; do
    case $part in
        suite | kernels | conformance | memcount | sanitizer | bench | mutants | fuzz | faults | torch | profiler | torchcost | stepcost | memcost | backends) ;;
        *) echo "run.sh: there is no part \`$part\`: suite kernels conformance memcount sanitizer bench mutants fuzz faults torch profiler torchcost stepcost memcost backends" >&2; exit 2 ;;
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
    timeout "${SUITE_SECONDS:-590}" "$bundle/warpbpf-suite" gpu "$bundle" ${SUITE_CASES:+"$SUITE_CASES"} 2>&1 | tee "$out/suite.txt" || failed=1
fi

if wants faults; then
    echo "== everything of ours made to fail (needs a bundle of \`cargo xtask gpu-bundle dev\`)"
    timeout "${FAULTS_SECONDS:-540}" "$bundle/warpbpf-suite" faults gpu "$bundle" 2>&1 | tee "$out/faults.txt" || failed=1
fi

if wants kernels; then
    echo "== the corpus of kernels, with programs at every kind of place"
    timeout 300 "$bundle/warpbpf-kernels" gpu "$bundle" 2>&1 | tee "$out/kernels.txt" || failed=1
fi

if wants torch; then
    echo "== PyTorch's training loop, started with programs and attached to"
    timeout 450 "$here/torch.sh" "$bundle" "$out" 2>&1 | tee "$out/torch.txt" || failed=1
fi

if wants profiler; then
    echo "== beside torch.profiler and NCCL"
    timeout 400 "$here/profiler.sh" "$bundle" "$out" 2>&1 | tee "$out/profiler.txt" || failed=1
fi

if wants torchcost; then
    echo "== what programs by the splice cost in PyTorch's kernels"
    timeout 400 "$here/torch_cost.sh" "$bundle" "$out" 2>&1 | tee "$out/torchcost.txt" || failed=1
fi

if wants stepcost; then
    echo "== what programs by splice and Compute Sanitizer cost in a whole step of training, and the host at a launch"
    timeout 500 "$here/step_cost.sh" "$bundle" "$out" 2>&1 | tee "$out/stepcost.txt" || failed=1
fi

if wants memcost; then
    echo "== a counter of bytes at each access against an empty program, by Compute Sanitizer"
    timeout 300 "$here/mem_cost.sh" "$bundle" "$out" 2>&1 | tee "$out/memcost.txt" || failed=1
fi

if wants backends; then
    echo "== back ends compared, kernel by kernel, in PyTorch"
    timeout 500 "$here/backends.sh" "$bundle" "$out" 2>&1 | tee "$out/backends.txt" || failed=1
fi

if wants mutants; then
    # The driver compiles for one thread of a process at a time, so these are processes.
    seconds=${MUTANTS_SECONDS:-120}
    seed=${MUTANTS_SEED:-$((RANDOM * 8))}
    processes=$(nproc)
    ((processes > 8)) && processes=8
    echo "== mutants of kernels for $seconds s on $processes processes, seeds from $seed: as they are, recompiled, with programs"
    mutators=()
    for ((process = 0; process < processes; process++)); do
        timeout $((seconds + 90)) "$bundle/warpbpf-kernels" mutants gpu "$bundle" --seconds "$seconds" \
            --seed "$((seed + process))" --keep "$out" >"$out/mutants-$process.txt" 2>&1 &
        mutators+=($!)
    done
    for process in "${!mutators[@]}"; do
        wait "${mutators[$process]}" || { failed=1; echo "process $process failed"; }
    done
    cat "$out"/mutants-?.txt
    awk '/^mutants made=/ {
        for (i = 2; i <= NF; i++) { split($i, pair, "="); sum[pair[1]] += pair[2] }
        n++
    } END {
        printf "mutants: %d processes, %d made, %d compared, %d runs, %d counts, %d wrong\n",
            n, sum["made"], sum["compared"], sum["runs"], sum["counts"], sum["wrong"]
    }' "$out"/mutants-?.txt
fi

if wants conformance; then
    echo "== bpf_conformance on every engine"
    timeout 240 "$bundle/warpbpf-conformance" suite "$bundle"/suites/{bpf_conformance,found} --driver libcuda.so.1 \
        >"$out/conformance.txt" 2>&1 || failed=1
    sed -n '1p;/^passed/,$p' "$out/conformance.txt"
    echo "== every lane-local operation on random operands"
    timeout 240 "$bundle/warpbpf-conformance" operands --engine gpu --seed "$RANDOM" >"$out/operands.txt" 2>&1 || failed=1
    cat "$out/operands.txt"
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

if wants fuzz; then
    # A process that the driver's own compiler took down has lost its summary; its last `batch` line says how far it came.
    seconds=${FUZZ_SECONDS:-540}
    seed=${FUZZ_SEED:-$((RANDOM * 1000))}
    cores=$(nproc)
    gpus=$(nvidia-smi -L | wc -l)
    on_gpu=$((cores * 2 / 3))
    echo "== generated programs for $seconds s: $on_gpu processes on $gpus GPUs, $((cores - on_gpu)) threads on the soft GPU, seeds from $seed"
    fuzzers=()
    for ((process = 0; process < on_gpu; process++)); do
        CUDA_VISIBLE_DEVICES=$((process % gpus)) timeout $((seconds + 60)) "$bundle/warpbpf-conformance" fuzz --engine gpu \
            --seconds "$seconds" --seed "$((seed + process))" >"$out/fuzz-gpu-$process.txt" 2>&1 &
        fuzzers+=($!)
    done
    timeout $((seconds + 60)) "$bundle/warpbpf-conformance" fuzz --engine soft --seconds "$seconds" \
        --threads $((cores - on_gpu)) --seed "$((seed + on_gpu))" >"$out/fuzz-soft.txt" 2>&1 &
    fuzzers+=($!)
    for fuzzer in "${fuzzers[@]}"; do
        wait "$fuzzer"
        status=$?
        [[ $status == 0 ]] || { failed=1; echo "a fuzzer ended with status $status"; }
    done
    grep -h '^seed\|^warpbpf' "$out"/fuzz-gpu-*.txt "$out/fuzz-soft.txt"
    for unfinished in $(grep -L '^fuzz ' "$out"/fuzz-gpu-*.txt "$out/fuzz-soft.txt"); do
        echo "$(basename "$unfinished") has no end: $(grep '^batch' "$unfinished" | tail -1)"
    done
    cat "$out"/fuzz-gpu-*.txt "$out/fuzz-soft.txt" | awk '/^fuzz / {
        for (i = 2; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] }
        engine = value["engine"]; n[engine]++
        for (name in value) sum[engine, name] += value[name]
    } END {
        for (engine in n) printf "fuzz %s: %d processes, %.2f CPU hours, %d programs verified, %d launches, %d GPU threads, %d disagreements\n",
            engine, n[engine], sum[engine, "cpu_seconds"] / 3600, sum[engine, "verified"], sum[engine, "launches"],
            sum[engine, "gpu_threads"], sum[engine, "disagreements"]
    }'
    # Too many files to come home one by one.
    tar -C "$out" -czf "$out/fuzz.tar.gz" --remove-files $(cd "$out" && ls fuzz-gpu-*.txt fuzz-soft.txt)
fi

if wants memcount; then
    echo "== accesses counted by programs, and by Compute Sanitizer"
    timeout 240 "$here/memcount.sh" "$bundle" 2>&1 | tee "$out/memcount.txt" || failed=1
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
