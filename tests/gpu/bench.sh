#!/usr/bin/env bash
# Times vec_add, and for accesses to memory a stencil too, with each probe against no probe and against hand-written CUDA for
# the same, in one run each, and checks that the probes fired; likewise hash operations against a hand-written table. Prints Markdown rows for benches/results.
set -uo pipefail
bundle=$1
out=$2
app=$bundle/apps/vecadd-bench
failed=0
# What is measured against a goal: its name, what came out, at most or at least, and how much; the table at the end is made of it.
goals=$out/goals.txt
: >"$goals"
export goals

run() { # name object hand-written-kernel [kernel]
    local name=$1 object=$2 hand=$3 kernel=${4:-vadd}
    local to=$out/$object-$kernel
    "$bundle/warpbpf" run --device gpu --interval 0 --json -o "$to.json" "$bundle/objects/$object.bpf.o" -- \
        "$app" "${kernel}_base" "$kernel" $hand >"$to.txt" 2>"$to.err" || { echo "  $name: the run FAILED"; failed=1; }
    [[ -s $to.err ]] && head -5 "$to.err"
    python3 - "$name" "$hand" "$to.txt" "$to.json" "$kernel" <<'PY' || failed=1
import json, os, sys
name, hand, text, report, kernel = sys.argv[1:6]
times, places, threads, accesses, wrong = {}, {}, 0, (0, 0), 0
for line in open(text):
    words = line.split()
    if words[0] == "threads":
        threads = int(words[2])
    elif words[0] == "accesses":
        accesses = int(words[2]), int(words[3])
    elif words[0] == "lost":
        # By hand. At 64 M elements a launch writes more than the rings hold; nothing else may be missing.
        print(f"  {name}: {words[3]} by hand had no room, or found what they should not, at {words[2]} elements")
        wrong += int(words[2]) < 1 << 26
    elif words[0] == "places":
        places[int(words[2])] = float(words[3])
        # By hand, with what all threads write at several places.
        print(f"  {name}: by hand {words[3]} to {words[4]} µs at {words[2]} elements, by the place of the table")
    else:
        times[words[0], int(words[1])] = float(words[2])
        wrong += words[3] != "right"
process = json.load(open(report))["processes"][0]
kernels = [k for k in process["kernels"] if k["name"] == kernel]
hits, counted = "no map", True
for m in process["maps"]:
    if m["name"] == "hits":
        hits, counted = f'{m["sum"]} of {threads} counted', m["sum"] == threads
    elif m["name"] == "slots":
        hits, counted = f'{m["sum"]} of {threads} counted in {m["threads"]["count"]} slots', m["sum"] == threads
    elif m["name"] == "memory":
        value = m["entries"][0]["value"] if m["entries"] else {"accesses": 0, "bytes": 0}
        hits = f'{value["accesses"]} of {accesses[0]} accesses, {value["bytes"]} of {accesses[1]} bytes'
        counted = (value["accesses"], value["bytes"]) == accesses
    elif m["name"] == "others":
        others = sum(e["value"] for e in m["entries"])
        hits, counted = f"{others} values that nobody wrote", others == 0
    elif m["name"] == "table" and name == "array update":
        right = [e for e in m["entries"] if e["value"] % 1024 == e["key"]]
        hits = f"{len(right)} of 1024 values are those of their threads"
        # Zeros are not told: thread 0 may have been the last to write there.
        counted = len(right) == len(m["entries"]) >= 1023 and any(e["value"] >= 1023 for e in right)
    elif m["name"] == "events":
        e = m["events"]
        all_of_them = e["received"] + e["lost"]
        hits, counted = f'{e["received"]} received + {e["lost"]} lost = {all_of_them} of {threads}', all_of_them == threads
registers = kernels[0]["registers"] if kernels else None
sizes = [n for n in (1000, 1000000, 1 << 26) if n <= int(os.environ.get("BENCH_LARGEST", 1 << 26))]
missing = [n for n in sizes if (kernel, n) not in times or (kernel + "_base", n) not in times]
if missing:
    sys.exit(f"  {name}: INVALID: no times for {missing} elements")
for n in sizes:
    base, ours = times[kernel + "_base", n], times[kernel, n]
    by_hand = times.get((hand, n))
    against = f"{by_hand / base:.2f}× | {ours / by_hand:.2f}×" if by_hand else "– | –"
    print(f"| {name} | {n} | {base:.2f} µs | {ours:.2f} µs | {ours / base:.2f}× | {against} |")
    if by_hand and name in ("counter", "array lookup", "array update", "ring"):
        with open(os.environ["goals"], "a") as goals:
            where = ", by hand at the median place" if n in places else ""
            print(f"{name}, {n} elements, of by hand{where}", ours / by_hand, "most", 1.05, "×", sep="\t", file=goals)
            if n in places:
                print(f"{name}, {n} elements, of by hand at its best place", ours / places[n], "most", 1.05, "×", sep="\t", file=goals)
print(f"  {name}: registers {registers}, {hits}, launches {kernels[0]['launches'] if kernels else 0}, results {'WRONG' if wrong else 'right'}")
# A time without hits, or of launches that ran the original, or with a wrong result, is no measurement.
instrumented = kernels and kernels[0]["instrumented"] and kernels[0]["launches"] > 0 and kernels[0]["uninstrumented"] == 0
if wrong or not counted or not threads or not instrumented:
    sys.exit(f"  {name}: INVALID: {kernels}")
PY
}

echo "| probe | elements | no probe | ours | ours / none | by hand / none | ours / by hand |"
echo "|---|---|---|---|---|---|---|"
run "empty" bench-empty ""
run "counter" bench-counter hand_counter
BENCH_LARGEST=1000000 run "slot per thread" bench-slot hand_slot
run "array lookup" bench-lookup hand_lookup
run "array update" bench-update hand_update
run "accesses" bench-memcount hand_memory
run "accesses, warp scope" bench-memcount-warp hand_memory
run "accesses, stencil" bench-memcount hand_stencil stencil
run "accesses, stencil, warp scope" bench-memcount-warp hand_stencil stencil
BENCH_REPLAYS=5 BENCH_PAUSE_MS=1500 run "ring" bench-ring hand_ring

echo
echo "host cost of a launch (benches/launch.cu), ns: two empty kernels, alone and with the agent; \`probed\` has a program"
"$bundle/apps/launch-bench" | sed 's/^/  no agent:   /'
"$bundle/warpbpf" run --device gpu --interval 0 --json -o "$out/launch.json" "$bundle/objects/bench-launch.bpf.o" -- \
    "$bundle/apps/launch-bench" 2>/dev/null | sed 's/^/  with agent: /' || failed=1
python3 - "$out/launch.json" <<'PY' || failed=1
import json, sys
kernels = {k["name"]: k for k in json.load(open(sys.argv[1]))["processes"][0]["kernels"]}
probed = kernels["probed"]
print(f"  redirected: {probed['launches']} launches of `probed`, {probed['uninstrumented']} uninstrumented")
if probed["launches"] != 100000 or probed["uninstrumented"] != 0 or kernels["plain"]["launches"] != 0:
    sys.exit("  launches: INVALID")
PY

echo
echo "modules with a kernel each (benches/modules.cu), loaded one by one and launched in turn: medians, and memory since before the first"
gpus=$(nvidia-smi -L | wc -l)
echo "| programs in each | GPUs | modules | load | launch | process | device |"
echo "|---|---|---|---|---|---|---|"
modules() { # name modules object, or nothing, [GPUs]
    local text gpus=${4:-1}
    text=$(if [[ -n ${3:-} ]]; then
        "$bundle/warpbpf" run --device gpu --interval 0 --json -o "$out/modules.json" "$bundle/objects/$3.bpf.o" -- \
            "$bundle/apps/modules-bench" "$2" "$gpus" 2>/dev/null
    else
        "$bundle/apps/modules-bench" "$2" "$gpus"
    fi) || { echo "  modules: the run FAILED"; failed=1; return; }
    python3 - "$1" "$2" "${3:+$out/modules.json}" "$text" <<'PY' || failed=1
import json, sys
name, modules, report, text = sys.argv[1:5]
words = text.split()
told = dict(zip(words[::2], map(int, words[1::2])))
print(f"| {name} | {told['gpus']} | {modules} | {told['load_us'] / 1000:.1f} ms | {told['launch_ns'] / 1000:.1f} µs | {told['resident_kib'] >> 10} MiB | {told['device_kib'] >> 10} MiB |")
wrong = told["right"] != int(modules)
if report:
    kernel = next(k for k in json.load(open(report))["processes"][0]["kernels"] if k["name"] == "probed")
    wrong |= (kernel["launches"], kernel["uninstrumented"]) != (told["launches"], 0)
    print(f"  {kernel['launches']} launches with programs of {told['launches']}, {kernel['uninstrumented']} uninstrumented")
if wrong:
    sys.exit("  modules: INVALID")
PY
}
for count in 1 100 1000; do modules "no agent" "$count" ""; done
modules "1, empty" 100 bench-launch
for links in 1 4 16; do modules "$links, a counter each" 100 "bench-links-$links"; done
modules "1, a counter" 1000 bench-links-1
if ((gpus > 1)); then
    modules "no agent" 100 "" "$gpus"
    for links in 1 16; do modules "$links, a counter each" 100 "bench-links-$links" "$gpus"; done
fi

echo
echo "making a small kernel's variant machine code and loading it, µs, median of 7 processes; without the driver's own cache, but in the last row"
echo "| code cache | its own cache | time | from the cache |"
echo "|---|---|---|---|"
attached() { # name cache-folder-or-off empty-each-time(0|1) CUDA_CACHE_DISABLE
    for n in 1 2 3 4 5 6 7; do
        [[ $3 == 1 ]] && rm -rf "$2"
        CUDA_CACHE_DISABLE=$4 "$bundle/warpbpf" run --device gpu --interval 0 --cache "$2" --json -o "$out/attached-$n.json" \
            "$bundle/objects/bench-launch.bpf.o" -- "$bundle/apps/launch-bench" 1 >/dev/null 2>&1 || failed=1
    done
    python3 - "$1" "$4" "$out"/attached-[1-7].json <<'PY' || failed=1
import json, sys
kernels = [k for f in sys.argv[3:] for k in json.load(open(f))["processes"][0]["kernels"] if k["name"] == "probed"]
times, hits = sorted(k["loaded_us"] for k in kernels), sum(k.get("cached", False) for k in kernels)
print(f"| {sys.argv[1]} | {'off' if sys.argv[2] == '1' else 'on'} | {times[len(times) // 2]} | {hits} of {len(times)} |")
# A launch that ran the original is no measurement, nor is a cache that has nothing.
if len(times) != 7 or any(k["launches"] != 500 or k["uninstrumented"] for k in kernels) or hits != (7 if sys.argv[1] == "warm" else 0):
    sys.exit(f"  attach: INVALID: {kernels}")
PY
}
attached off off 0 1
attached cold "$out/code-cache" 1 1
"$bundle/warpbpf" run --device gpu --interval 0 --cache "$out/code-cache" -o /dev/null "$bundle/objects/bench-launch.bpf.o" -- \
    "$bundle/apps/launch-bench" 1 >/dev/null || failed=1
attached warm "$out/code-cache" 0 1
attached off off 0 0

echo
echo "hash operations (benches/hash.cu), µs for as many threads as there are keys, of a table with 2^20 entries; by hand is a plain"
echo "open-addressing table of as many slots, 16 bytes each"
echo "| table | operation | ours | by hand | ours / by hand |"
echo "|---|---|---|---|---|"
for table in hash percpu lru; do
    "$bundle/warpbpf" run --device gpu --interval 0 --json -o "$out/bench-$table.json" "$bundle/objects/bench-$table.bpf.o" -- \
        "$bundle/apps/hash-bench" >"$out/bench-$table.txt" 2>"$out/bench-$table.err" || { echo "  $table: the run FAILED"; failed=1; }
    [[ -s $out/bench-$table.err ]] && head -5 "$out/bench-$table.err"
    python3 - "$table" "$out/bench-$table.txt" "$out/bench-$table.json" <<'PY' || failed=1
import json, os, sys
table, text, report = sys.argv[1:4]
times = {words[0]: (float(words[1]), int(words[2]), int(words[3])) for words in map(str.split, open(text))}
process = json.load(open(report))["processes"][0]
results = {m["name"]: m for m in process["maps"]}["results"]["entries"]
counts = {e["key"]: e["value"] for e in results}
kernels = {k["name"]: k for k in process["kernels"]}
bad = []
operations = ["insert", "count", "find", "miss", "crowd", "delete", "set", "again", "rush", "clear", "absent"]
# The probes of LRU tables have the first six; where each multiprocessor has a value, what finds a key finds its own.
chosen = {"lru": operations[:6], "percpu": ["insert", "find"]}.get(table, operations)
for i, operation in enumerate(operations):
    if operation not in chosen:
        continue
    hand, wanted, by_hand = times["hand_" + operation]
    if operation == "clear":
        # Of each of 20 launches' 64 keys one delete is the first.
        wanted = 20 * 64
    ours = times["ours_" + operation][0]
    print(f"| {table} | {operation} | {ours:.2f} µs | {hand:.2f} µs | {ours / hand:.2f}× |")
    with open(os.environ["goals"], "a") as goals:
        print(f"{table}, {operation}, of by hand", ours / hand, "most", 1.3, "×", sep="\t", file=goals)
    kernel = kernels["ours_" + operation]
    did, least = counts.get(i, 0), wanted
    if operation in ("rush", "clear"):
        # Who is overtaken too often is told so: that is part of what they cost, and is told here.
        print(f"  {table}: {operation}: {did} of {wanted}")
        least = wanted * 9 // 10
    # A time without hits, or of launches that ran the original, is no measurement.
    if by_hand != wanted or not least <= did <= wanted or not kernel["instrumented"] or kernel["uninstrumented"]:
        bad.append(f"{operation}: {did} of {wanted} ours, {by_hand} by hand, {kernel['uninstrumented']} launches uninstrumented")
print(f"  {table}: registers", {o: k["registers"] for o, k in kernels.items() if o.startswith("ours_")})
if bad:
    sys.exit(f"  {table}: INVALID: " + "; ".join(bad))
PY
done

echo
echo "events, lookups of the host and a large hash (cases of the suite)"
told() { # part of a case's name
    timeout 300 "$bundle/warpbpf-suite" gpu "$bundle" "$1" 2>&1 | tee -a "$out/told.txt" || failed=1
}
: >"$out/told.txt"
told "burst and drain against a bare copy"
told "host lookup of one value"
told "every entry of a large hash"

echo
echo "goals, all of this run; one that is missed is no failure of the run"
echo "| what | measured | goal | |"
echo "|---|---|---|---|"
python3 - "$goals" "$out/told.txt" <<'PY' || failed=1
import re, sys
rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[1])]
rows = [(what, float(value), side, float(limit), unit) for what, value, side, limit, unit in rows]
text, missing = open(sys.argv[2]).read(), []

def row(what, pattern, side, limit, unit):
    found = re.findall(pattern, text)
    if not found:
        missing.append(what)
    rows.extend((what.format(*match[:-1]), float(match[-1]), side, limit, unit) for match in found)

row("burst of records of {} bytes with header", r"(\d+) bytes: \d+ events[^;]*; burst ([\d.]+) G/s", "least", 30, " G/s")
row("drain of records of {} bytes, of a bare copy", r"(\d+) bytes: \d+ events[^;]*;[^;]*: ([\d.]+) of it", "least", 0.8, "×")
kind = r"beside {} that polls host memory: copy [\d.]+ us"
for who in ("a kernel", "one thread"):
    for what, words in (("array", "array"), ("per-SM array", "of copies for each multiprocessor"), ("hash", "hash")):
        pattern = kind.format(who) + r"[^;]*?, " + words + r" [\d.]+ us \(([\d.]+)x\)"
        found = re.findall(pattern, text)
        if not found:
            missing.append(f"lookup, {what}")
        rows.extend((f"lookup of the host, {what}, beside {who}, of a bare copy", float(value), "most", 1.5, "×") for value in found)
found = re.findall(r"(\d+) in ([\d.]+) ms \(median of", text)
if not found:
    missing.append("every entry")
rows.extend((f"every entry of a hash of {count}", float(value), "most", 50.0, " ms") for count, value in found)
for what, value, side, limit, unit in rows:
    met = value <= limit if side == "most" else value >= limit
    sign = "≤" if side == "most" else "≥"
    print(f"| {what} | {value:.2f}{unit} | {sign} {limit:g}{unit} | goal {'met' if met else 'missed'} |")
# A row that is not there was not measured.
if missing or not rows:
    sys.exit(f"  goals: INVALID: nothing was told of {', '.join(missing) or 'anything'}")
PY
exit $failed
