//! Several modules made one.

use std::process::Command;

use warpbpf_ptx::index;
use warpbpf_ptx::link::link;

use crate::tools::home::cuda_home;
use crate::tools::ptxas::ptxas;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn units(bodies: &[&str]) -> Vec<String> {
    bodies.iter().map(|body| format!("{HEAD}{body}")).collect()
}

fn linked(bodies: &[&str]) -> Result<String, String> {
    let units = units(bodies);
    let texts: Vec<&str> = units.iter().map(String::as_str).collect();
    link(&texts).map_err(|error| error.to_string())
}

#[test]
fn what_one_declares_another_defines() {
    let text = linked(&[
        ".extern .func (.param .b32 r) twice(.param .b32 x);
         .extern .global .align 4 .u32 factor;
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
         .visible .entry k(.param .u64 p) { .reg .b32 r; ld.global.u32 r, [factor];
           { .param .b32 x; .param .b32 y; st.param.b32 [x], r; call (y), twice, (x); ld.param.b32 r, [y]; } ret; }",
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
         .visible .global .align 4 .u32 factor = 5;
         .visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 r1; ld.param.b32 r1, [x]; add.u32 r1, r1, r1; st.param.b32 [r], r1; ret; }",
    ])
    .expect("links");
    let module = index(&text).expect("reads");
    assert!(module.function("twice").expect("there").body.is_some());
    let named = |name: &str| module.functions.iter().filter(|f| f.name == name).count();
    assert_eq!((named("vprintf"), named("twice"), named("k")), (1, 2, 1));
    let factors: Vec<_> = module.variables.iter().map(|v| (v.name, v.init)).collect();
    assert_eq!(factors, [("factor", Some("5"))]);
    assert_eq!(ptxas("linked-0", "sm_90", &text), Ok(()));
}

#[test]
fn what_is_local_stays_apart() {
    let unit = |n: u32, name: &str| {
        format!(
            ".global .align 1 .b8 $str[2] = {{{n}, 0}};
             .func (.reg .b32 o) help() {{ .reg .b64 $str2; mov.b32 o, {n}; ret; }}
             .visible .entry {name}(.param .u64 p) {{ .reg .b32 r; .reg .b64 a; mov.u64 a, $str; // help $str
               call (r), help; ret; }}"
        )
    };
    let text = linked(&[&unit(1, "one"), &unit(2, "two"), &unit(3, "three")]).expect("links");
    let module = index(&text).expect("reads");
    let names: Vec<&str> = module.variables.iter().map(|v| v.name).collect();
    assert_eq!(names, ["$str$unit0", "$str$unit1", "$str$unit2"]);
    assert_eq!(text.matches("call (r), help$unit1;").count(), 1);
    assert_eq!(text.matches("// help $str\n").count(), 3, "comments stay");
    assert_eq!(text.matches("$str2;").count(), 3, "other names stay");
    assert_eq!(ptxas("linked-1", "sm_90", &text), Ok(()));
}

#[test]
fn weak_definitions_are_taken_once_and_strong_ones_win() {
    let weak = ".weak .func (.reg .b32 o) f() { mov.b32 o, 1; ret; } .weak .entry k() { ret; }";
    let strong = ".visible .func (.reg .b32 o) f() { mov.b32 o, 2; ret; }";
    let text = linked(&[weak, weak, strong]).expect("links");
    assert_eq!(
        (
            text.matches("mov.b32 o, 1;").count(),
            text.matches("mov.b32 o, 2;").count()
        ),
        (0, 1)
    );
    let text = linked(&[weak, weak]).expect("links");
    assert_eq!(text.matches("mov.b32 o, 1;").count(), 1);
    let module = index(&text).expect("reads");
    assert_eq!(module.functions.iter().filter(|f| f.name == "k").count(), 1);
    let common = [".common .global .u32 c;", ".common .global .u32 c[4];"];
    let text = linked(&common).expect("links");
    let module = index(&text).expect("reads");
    assert_eq!(module.variables.len(), 1);
    assert_eq!(module.variables[0].size(), Some(16));
}

#[test]
fn lines_and_strings_of_each_module_stay_its_own() {
    let unit = |file: &str, name: &str| {
        format!(
            ".file 1 \"{file}\"\n.visible .entry {name}() {{ .loc 1 7 3\n .loc 1 8 1, function_name $L__info_string0, inlined_at 1 7 3\n ret; }}
             .section .debug_str {{ $L__info_string0: .b8 102,0 }}\n.section .debug_abbrev {{ .b8 0 }}"
        )
    };
    let text = linked(&[&unit("a.cu", "a"), &unit("b.cu", "b")]).expect("links");
    let module = index(&text).expect("reads");
    assert_eq!(module.files, [(1, "a.cu"), (2, "b.cu")]);
    assert!(text.contains(".loc 1 8 1, function_name $L__info_string0, inlined_at 1 7 3"));
    assert!(text.contains(".loc 2 8 1, function_name $L__info_string0$unit1, inlined_at 2 7 3"));
    assert_eq!(
        (
            text.matches(".debug_str").count(),
            text.matches(".debug_abbrev").count()
        ),
        (1, 0)
    );
    assert_eq!(ptxas("linked-2", "sm_90", &text), Ok(()));
}

#[test]
fn headers_are_those_of_the_newest() {
    let text = link(&[
        ".version 7.8\n.target sm_90a\n.address_size 64\n.extern .func f();",
        ".version 8.4\n.target sm_80, debug\n.address_size 64\n.visible .func f() { ret; }",
    ])
    .expect("links");
    let module = index(&text).expect("reads");
    assert_eq!(
        (module.version, &module.targets[..]),
        ((8, 4), &["sm_90a"][..])
    );
    let one = format!("{HEAD}// all of it\n.entry k() {{ ret; }}");
    assert_eq!(link(&[&one]), Ok(one));
}

#[test]
fn what_cannot_be_linked_says_why() {
    let f = ".visible .func f() { ret; }";
    let error = |bodies: &[&str]| linked(bodies).expect_err("refused");
    assert_eq!(
        error(&[f, "", f]),
        "`f` is defined by module 0 and by module 2"
    );
    assert_eq!(
        error(&["", ".extern .global .u32 x;"]),
        "variable `x` is declared by module 1 and defined by none"
    );
    assert_eq!(
        error(&["", "what"]),
        "module 1: PTX line 4, column 1: expected a module-scope directive, found `what`"
    );
    let narrow = ".version 8.0\n.target sm_80\n.address_size 32\n";
    assert_eq!(
        link(&[HEAD, narrow]).expect_err("refused").to_string(),
        "module 1 has `.address_size 32`, the first one has `64`"
    );
    assert_eq!(
        link(&[]).expect_err("refused").to_string(),
        "there is no module to link"
    );
}

/// As `nvcc -rdc=true` makes them.
#[test]
fn units_of_separate_compilation() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("linking");
    std::fs::create_dir_all(&folder).expect("a scratch directory");
    let compile = |name: &str, source: &str| {
        let (cu, ptx) = (
            folder.join(format!("{name}.cu")),
            folder.join(format!("{name}.ptx")),
        );
        std::fs::write(&cu, source).expect("written");
        let done = Command::new(cuda_home().join("bin/nvcc"))
            .args(["-rdc=true", "-ptx", "-lineinfo", "-arch=sm_90", "-o"])
            .arg(&ptx)
            .arg(&cu)
            .output()
            .expect("nvcc runs");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        std::fs::read_to_string(ptx).expect("PTX")
    };
    let one = compile(
        "one",
        "#include <cstdio>\nextern __device__ int seen; __device__ int twice(int); static __device__ int mine = 1;
         static __device__ __noinline__ int help(int x) { printf(\"one %d\\n\", x); return x + mine; }
         __global__ void k(int *p) { *p = twice(help(*p)) + seen; }",
    );
    let two = compile(
        "two",
        "#include <cstdio>\n__device__ int seen = 3; static __device__ int mine = 2;
         static __device__ __noinline__ int help(int x) { printf(\"two %d\\n\", x); return x - mine; }
         __device__ int twice(int x) { return 2 * help(x); }",
    );
    let text = link(&[&one, &two]).expect("links");
    assert_eq!(ptxas("linked-3", "sm_90", &text), Ok(()));
}
