//! Section names by table: what each becomes, and what is said of those that are refused.

use warpbpf_abi::attach::When;
use warpbpf_abi::choice::Choice;

use super::*;

fn shown(spec: &AttachSpec) -> String {
    let select = &spec.select;
    let mut text = format!(
        "{} {} {}",
        spec.site.word(),
        spec.scope.word(),
        spec.kernels
    );
    match spec.form {
        Form::Probe => {}
        Form::MemCapture => text += " (memcapture)",
        Form::Run => text += " (run)",
    }
    let mut add = |name: &str, words: Vec<&str>| {
        if !words.is_empty() {
            text += &format!(" {name}={}", words.join("+"));
        }
    };
    add("kind", select.kinds.iter().map(|k| k.word()).collect());
    add("kind", select.barriers.iter().map(|k| k.word()).collect());
    add("space", select.spaces.iter().map(|k| k.word()).collect());
    add("cache", select.caches.iter().map(|k| k.word()).collect());
    if let Some(range) = &select.bytes {
        text += &format!(" size={}..={}", range.start(), range.end());
    }
    if let Some(op) = &select.op {
        text += &format!(" op={op}");
    }
    if !spec.arguments.is_empty() {
        text += &format!(" args={}", spec.arguments.join("+"));
    }
    if let Some((file, line)) = &select.at {
        text += &format!(" at={file}:{line}");
    }
    if let Some(glob) = &spec.functions {
        text += &format!(" func={glob}");
    }
    if select.when == When::After {
        text += " after";
    }
    if !spec.launches.is_empty() {
        text += &format!(" in {}", spec.launches.over(&Choice::default()));
    }
    text
}

fn check(program: &str, section: &str, expect: &str) {
    let got = match parse(program, section) {
        Ok(spec) => {
            assert_eq!(spec.select.functions, None, "{section}");
            shown(&spec)
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(got, expect, "{section}");
}

#[test]
fn places_and_scopes() {
    check("p", "gpu/entry/vectorAdd", "entry thread vectorAdd");
    check("p", "gpu/exit.warp/*", "exit warp *");
    check("p", "gpu/exit.block/ns::gemm<*>", "exit block ns::gemm<*>");
    check("p", "gpu/mem/*", "mem thread *");
    check("p", "gpu/barrier.warp/*", "barrier warp *");
    check("p", "gpu/func.thread/k", "func thread k");
    check("p", "gpu/funcret/k", "funcret thread k");
    check("p", "gpu/branch/k", "branch thread k");
    check(
        "p",
        "gpu/mem/ns::gemm<float, 4>",
        "mem thread ns::gemm<float, 4>",
    );
    check("p", "gpu/mem/a/b", "mem thread a/b");
}

#[test]
fn selectors() {
    for (section, expect) in [
        (
            "gpu/exit.block/k|args=n+alpha+n",
            "exit block k args=n+alpha+n",
        ),
        (
            "gpu/mem/*|kind=load,space=global,size>=16",
            "mem thread * kind=load space=global size=16..=4294967295",
        ),
        (
            "gpu/mem/*|kind=load+store+load,cache=nc+ca",
            "mem thread * kind=load+store cache=nc+ca",
        ),
        (
            "gpu/entry/*|every=10,after=1,at_most=3,gpus=0+2",
            "entry thread * in every=10,after=1,at_most=3,gpus=0+2",
        ),
        (
            "gpu/mem/f<a, b>|kind=load,nvtx=step/f<a, b>+warm up,stream=default+3",
            "mem thread f<a, b> kind=load in nvtx=step/f<a, b>+warm up,stream=default+3",
        ),
        (
            "gpu/line/*|at=k.cu:212,min_blocks=2,max_blocks=9",
            "line thread * at=k.cu:212 in min_blocks=2,max_blocks=9",
        ),
        ("gpu/exit/*|every=1", "exit thread * in all launches"),
        ("gpu/mem/*|size=4", "mem thread * size=4..=4"),
        ("gpu/mem/*|size<=8,size>2", "mem thread * size=3..=8"),
        ("gpu/mem/*|size<8", "mem thread * size=0..=7"),
        ("gpu/mem/*|size>=4,size<=4", "mem thread * size=4..=4"),
        ("gpu/mem/*|when=after", "mem thread * after"),
        ("gpu/mem/*|when=before", "mem thread *"),
        (
            "gpu/barrier/*|kind=sync+mbarrier_wait,when=after",
            "barrier thread * kind=sync+mbarrier_wait after",
        ),
        (
            "gpu/insn/k|op=mma.*, at=src/k.cu:7",
            "insn thread k op=mma.* at=src/k.cu:7",
        ),
        (
            "gpu/insn.warp/k|op=cp.async*,when=after",
            "insn warp k op=cp.async* after",
        ),
        ("gpu/line/*|at=k.cu:212", "line thread * at=k.cu:212"),
        ("gpu/line/*|at=C:/k.cu:212", "line thread * at=C:/k.cu:212"),
        (
            "gpu/mem/k<int, 2>|func=ns::f<float, 4>(int, int),size<8",
            "mem thread k<int, 2> size=0..=7 func=ns::f<float, 4>(int, int)",
        ),
        ("gpu/func/*|func=_Z3foo*", "func thread * func=_Z3foo*"),
        (
            "gpu/mem/k|func=ns::operator<,size<8",
            "mem thread k size=0..=7 func=ns::operator<",
        ),
        (
            "gpu/mem/k|func=A::operator->,size<8",
            "mem thread k size=0..=7 func=A::operator->",
        ),
        (
            "gpu/mem/k|func=operator< <A, B>,size<8",
            "mem thread k size=0..=7 func=operator< <A, B>",
        ),
        ("gpu/branch/*|at=a.cu:3", "branch thread * at=a.cu:3"),
    ] {
        check("p", section, expect);
    }
}

#[test]
fn forms_of_bpftime() {
    check(
        "cuda__probe",
        "kprobe/_Z9vectorAddPKfS0_Pf",
        "entry thread _Z9vectorAddPKfS0_Pf",
    );
    check(
        "cuda__probe",
        "kretprobe/_Z9vectorAddPKfS0_Pf",
        "exit thread _Z9vectorAddPKfS0_Pf",
    );
    check(
        "cuda__probe",
        "kretprobe/cuda__Z9vectorAddPKfS0_Pf",
        "exit thread [cuda_]_Z9vectorAddPKfS0_Pf",
    );
    check("cuda__probe", "kprobe/cuda_", "entry thread cuda_");
    check("p", "gpu/entry/cuda_fill", "entry thread cuda_fill");
    check(
        "cuda__trace",
        "kprobe/__memcapture",
        "mem thread * (memcapture) kind=load+store after",
    );
    check(
        "cuda__gemm",
        "kprobe/__directly_run",
        "entry thread cuda__gemm (run)",
    );
    check(
        "cuda__kernel_trace",
        "kprobe/__bpftime_cuda__kernel_trace",
        "func thread * func=__bpftime_cuda__kernel_trace",
    );
    check(
        "cuda__kernel_trace",
        "kretprobe/__bpftime_cuda__kernel_trace",
        "`cuda__kernel_trace`: section `kretprobe/__bpftime_cuda__kernel_trace` is bpftime's `__bpftime_cuda__kernel_trace`, which goes with `kprobe/`",
    );
    check("p", "gpu/run", "entry thread p (run)");
    check("p", "gpu/run/gemm", "entry thread gemm (run)");
    check(
        "cuda__p",
        "kretprobe/__directly_run",
        "`cuda__p`: section `kretprobe/__directly_run` is bpftime's `__directly_run`, which goes with `kprobe/`",
    );
    check(
        "cuda__p",
        "kprobe/",
        "`cuda__p`: section `kprobe/` names no kernel; write a name or a glob, for example `gpu/entry/*`",
    );
}

#[test]
fn the_text_of_a_captured_instruction_cannot_be_read() {
    let of = |program, section| parse(program, section).map(|spec| spec.context());
    let captured = of("cuda__p", "kprobe/__memcapture").unwrap();
    assert!(captured.fields.is_empty());
    assert_eq!(captured.containing(0, 1), None);
    assert_eq!(of("p", "gpu/mem/*").unwrap().c_name, "wbpf_mem_ctx");
    assert_eq!(of("p", "gpu/run").unwrap().c_name, "wbpf_kernel_ctx");
}

#[test]
fn refusals_say_what_to_do() {
    for (section, expect) in [
        (
            "gpu/entry",
            "`p`: section `gpu/entry` names no kernel; write a name or a glob, for example `gpu/entry/*`",
        ),
        (
            "gpu/mem/|kind=load",
            "`p`: section `gpu/mem/|kind=load` names no kernel; write a name or a glob, for example `gpu/mem/*`",
        ),
        (
            "gpu/loop/k",
            "`p`: there is no place `loop` (section `gpu/loop/k`); places are `entry`, `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`",
        ),
        (
            "gpu/entry.grid/k",
            "`p`: scope `grid` in section `gpu/entry.grid/k` is unknown; scopes are `thread`, `warp` and `block`",
        ),
        (
            "gpu/mem.block/k",
            "`p`: scope `block` has no meaning at `mem` (section `gpu/mem.block/k`); scopes there are `thread` and `warp`",
        ),
        (
            "gpu/run.warp/k",
            "`p`: scope `warp` has no meaning at `run` (section `gpu/run.warp/k`); scopes there are `thread`",
        ),
        (
            "gpu/entry/k|args=n++m",
            "`p`: `args` cannot be `n++m` in section `gpu/entry/k|args=n++m`; it is up to 16 names of parameters, joined by `+`, for example `n+alpha`",
        ),
        (
            "gpu/exit/k|args=n,args=m",
            "`p`: `args` is given twice in section `gpu/exit/k|args=n,args=m`; join its words by `+`",
        ),
        (
            "gpu/entry/k|sm=90",
            "`p`: `gpu/entry` has no key `sm` (section `gpu/entry/k|sm=90`); its key is `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/barrier/k|space=shared",
            "`p`: `gpu/barrier` has no key `space` (section `gpu/barrier/k|space=shared`); its keys are `kind`, `op`, `at`, `func`, `when` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/mem/k|kind",
            "`p`: `kind` in section `gpu/mem/k|kind` is not `key=value`; `gpu/mem`: its keys are `kind`, `space`, `cache`, `size`, `op`, `at`, `func`, `when` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/mem/k|",
            "`p`: `` in section `gpu/mem/k|` is not `key=value`; `gpu/mem`: its keys are `kind`, `space`, `cache`, `size`, `op`, `at`, `func`, `when` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/func/k|func>f",
            "`p`: `func>f` in section `gpu/func/k|func>f` is not `key=value`; `gpu/func`: its keys are `func` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/mem/k|kind=load,kind=store",
            "`p`: `kind` is given twice in section `gpu/mem/k|kind=load,kind=store`; join its words by `+`",
        ),
        (
            "gpu/entry/k|every=0",
            "`p`: `every` cannot be `0`; it is a number from 1 (section `gpu/entry/k|every=0`)",
        ),
        (
            "gpu/entry/k|gpus=0,gpus=1",
            "`p`: `gpus` is given twice; join its words by `+` (section `gpu/entry/k|gpus=0,gpus=1`)",
        ),
        (
            "gpu/func/k|every>2",
            "`p`: `every>2` in section `gpu/func/k|every>2` is not `key=value`; `gpu/func`: its keys are `func` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gpu/insn/k|op=a,op=b",
            "`p`: `op` is given twice in section `gpu/insn/k|op=a,op=b`; write a program for each",
        ),
        (
            "gpu/mem/k|space=global+host",
            "`p`: `space` cannot be `host` in section `gpu/mem/k|space=global+host`; it is one of `generic`, `global`, `shared`, `cluster`, `local`, `const`, `param` or `texture`, or several joined by `+`",
        ),
        (
            "gpu/barrier/k|kind=load",
            "`p`: `kind` cannot be `load` in section `gpu/barrier/k|kind=load`; it is one of `sync`, `arrive`, `warp`, `cluster_arrive`, `cluster_wait`, `mbarrier_arrive`, `mbarrier_wait` or `group_wait`, or several joined by `+`",
        ),
        (
            "gpu/mem/k|when=now",
            "`p`: `when` cannot be `now` in section `gpu/mem/k|when=now`; it is `before` or `after`",
        ),
        (
            "gpu/mem/k|size>=big",
            "`p`: `size` cannot be `big` in section `gpu/mem/k|size>=big`; it is a number of bytes",
        ),
        (
            "gpu/mem/k|size>8,size<8",
            "`p`: no access has the size that section `gpu/mem/k|size>8,size<8` asks for",
        ),
        (
            "gpu/mem/k|size<0",
            "`p`: no access has the size that section `gpu/mem/k|size<0` asks for",
        ),
        (
            "gpu/mem/k|size>4294967295",
            "`p`: no access has the size that section `gpu/mem/k|size>4294967295` asks for",
        ),
        (
            "gpu/line/k|at=212",
            "`p`: `at` cannot be `212` in section `gpu/line/k|at=212`; it is a file and a line, for example `kernel.cu:212`",
        ),
        (
            "gpu/line/k|at=k.cu:0",
            "`p`: `at` cannot be `k.cu:0` in section `gpu/line/k|at=k.cu:0`; it is a file and a line, for example `kernel.cu:212`",
        ),
        (
            "gpu/mem/k|op=",
            "`p`: `op` cannot be `` in section `gpu/mem/k|op=`; it is a glob over opcodes, for example `ld.global.*`",
        ),
        (
            "gpu/mem/k|func=",
            "`p`: `func` cannot be `` in section `gpu/mem/k|func=`; it is a glob over function names, for example `ns::*`",
        ),
        (
            "gpu/insn/k",
            "`p`: `gpu/insn` needs `op=` (section `gpu/insn/k`); write for example `gpu/insn/*|op=mma.*`",
        ),
        (
            "gpu/line/k|func=f",
            "`p`: `gpu/line` needs `at=` (section `gpu/line/k|func=f`); write for example `gpu/line/*|at=kernel.cu:212`",
        ),
        (
            "kprobe/do_exit",
            "`p`: section `kprobe/do_exit` is none that runs here: in kernels it is `gpu/…`, or bpftime's `kprobe/` and `kretprobe/` on functions named `cuda__*`; `warpbpf run`, `attach` and `serve` bring programs to Linux, beside some for kernels (`tracepoint/`, `raw_tp/`, `tp_btf/`, `fentry/`, `fexit/`, `kprobe/`, `uprobe.k/FILE:FUNCTION`)",
        ),
        (
            "uretprobe//bin/app:main",
            "`p`: section `uretprobe//bin/app:main` is for a function on the CPU: write `uretprobe.k/FILE:FUNCTION` to have Linux run it (`warpbpf run`, `attach` and `serve`, beside a program for kernels), attach it from a tool of libbpf under `warpbpf loader`, or write it as a script (`warpbpf trace -e 'uretprobe:FILE:FUNCTION { … }'`)",
        ),
        (
            "gpu/entri/k",
            "`p`: there is no place `entri` (section `gpu/entri/k`) (did you mean `entry`?); places are `entry`, `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`",
        ),
        (
            "gpu/entry.wrap/k",
            "`p`: scope `wrap` in section `gpu/entry.wrap/k` is unknown (did you mean `warp`?); scopes are `thread`, `warp` and `block`",
        ),
        (
            "gpu/mem/k|knid=load",
            "`p`: `gpu/mem` has no key `knid` (section `gpu/mem/k|knid=load`) (did you mean `kind`?); its keys are `kind`, `space`, `cache`, `size`, `op`, `at`, `func`, `when` and `args`; of every place are `every`, `after`, `at_most`, `min_blocks`, `max_blocks`, `gpus`, `nvtx` and `stream`, which choose launches",
        ),
        (
            "gup/exit/k",
            "`p`: section `gup/exit/k` is not an attach point (did you mean `gpu/exit/k`?); write `gpu/PLACE/KERNEL`, where the place is `entry`, `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`, with `.warp` or `.block` after it for another scope",
        ),
        (
            "enrty/k",
            "`p`: section `enrty/k` is not an attach point (did you mean `gpu/entry/k`?); write `gpu/PLACE/KERNEL`, where the place is `entry`, `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`, with `.warp` or `.block` after it for another scope",
        ),
        (
            "xdp",
            "`p`: section `xdp` is not an attach point; write `gpu/PLACE/KERNEL`, where the place is `entry`, `exit`, `mem`, `barrier`, `func`, `funcret`, `insn`, `line`, `branch` or `run`, with `.warp` or `.block` after it for another scope",
        ),
    ] {
        check("p", section, expect);
    }
}
