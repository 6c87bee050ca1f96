//! What scripts see of `verify`, `compile` and `link`: one JSON document on standard output, and an
//! exit status.

use std::process::Stdio;

use crate::common::Folder;
use serde_json::{Value, json};

const GOOD: &str = "const volatile unsigned char bytes[4];
    SEC(\"gpu/entry/*\") int enter(void *ctx) { return bytes[0]; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";
const ENDLESS: &str = "int x;
    SEC(\"gpu/entry/*\") int enter(void *ctx) { while (*(volatile int *)&x) ; return 0; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

fn failure(message: &str) -> Value {
    json!({ "ok": false, "error": message })
}

#[test]
fn failures_are_answers() {
    let folder = Folder::new("failures");
    folder.compile("good.o", GOOD);
    std::fs::write(folder.0.join("bad.o"), "hello").expect("it is written");
    let elf = "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`";
    for verb in ["verify", "compile"] {
        let run = |rest: &str| folder.json(&format!("{verb} --json {rest}"));
        assert_eq!(run("bad.o"), (Some(1), failure(&format!("bad.o: {elf}"))));
        assert_eq!(
            run("good.o bad.o"),
            (Some(1), failure(&format!("good.o + bad.o: `bad.o`: {elf}")))
        );
        assert_eq!(
            run("good.o --set bytes"),
            (
                Some(125),
                failure("`--set bytes` has no value; write `--set NAME=VALUE`")
            )
        );
        assert_eq!(
            run("good.o --set bytes=5"),
            (
                Some(1),
                failure(
                    "good.o: `bytes` cannot be `5`: `const volatile unsigned char[4]` is set element by element (`bytes[0]=5`)"
                )
            )
        );
        assert_eq!(
            run("none.o"),
            (
                Some(125),
                failure("cannot read `none.o`: No such file or directory (os error 2)")
            )
        );
    }
    assert_eq!(
        folder.json("compile --json good.o --program-name other"),
        (Some(125), failure("no such program; the object has enter"))
    );
    assert_eq!(
        folder.json("link --json good.o bad.o -o out.o"),
        (Some(1), failure(&format!("out.o: `bad.o`: {elf}")))
    );
    assert_eq!(
        folder.json("link --json good.o -o none/out.o"),
        (
            Some(125),
            failure("cannot write `none/out.o`: No such file or directory (os error 2)")
        )
    );
    // As text nothing is on standard output, and the status is the same.
    assert_eq!(
        folder.text("verify bad.o"),
        (Some(1), format!("warpbpf: bad.o: {elf}\n"))
    );
    assert_eq!(
        folder.text("link good.o bad.o -o out.o"),
        (Some(1), format!("warpbpf: out.o: `bad.o`: {elf}\n"))
    );
}

/// Three programs, of which two are refused, and one with a section that is none.
const SEVERAL: &str = "int x;
    SEC(\"gpu/entry/*\") int first(void *ctx) { while (*(volatile int *)&x) ; return 0; }
    SEC(\"gpu/entry/*\") int fine(void *ctx) { return 0; }
    SEC(\"gpu/exit/*\") int second(unsigned long long *ctx) { return *(int *)ctx[16]; }
    SEC(\"gpu/enrty/*\") int third(void *ctx) { return 0; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

#[test]
fn all_refusals_of_an_object_are_told() {
    let folder = Folder::new("several");
    folder.compile("several.o", SEVERAL);
    for verb in ["verify", "compile"] {
        let (status, answer) = folder.json(&format!("{verb} --json several.o"));
        assert_eq!(status, Some(1));
        let errors = answer["errors"].as_array().expect("a list");
        let told = errors
            .iter()
            .map(|error| (&error["program"], &error["rule"]));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (&json!("first"), &json!("spin")),
                (&json!("second"), &json!("not-a-pointer")),
                (&Value::Null, &Value::Null),
            ]
        );
        let third = errors[2]["error"].as_str().expect("a text");
        assert!(third.contains("did you mean `entry`?"), "{third}");
        // Who reads one reads the first.
        assert_eq!(answer["program"], json!("first"));
        let (status, text) = folder.text(&format!("{verb} several.o"));
        assert_eq!(status, Some(1));
        for part in [
            "program `first` was refused",
            "program `second` was refused",
            "`third`: there is no place `enrty`",
            "copy it with `bpf_probe_read_user(&x, sizeof x, address)`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// Lanes go different ways.
const VARYING: &str =
    "SEC(\"gpu/entry/*\") int enter(unsigned int *ctx) { return ctx[12] > 3 ? 1 : ctx[0]; }
    char LICENSE[] SEC(\"license\") = \"GPL\";";

#[test]
fn strict_uniform_refuses_what_varies() {
    let folder = Folder::new("strict");
    folder.compile("varying.o", VARYING);
    folder.compile("good.o", GOOD);
    for verb in ["verify", "compile"] {
        let (status, _) = folder.json(&format!("{verb} --json varying.o"));
        assert_eq!(status, Some(0), "{verb}");
        let (status, answer) = folder.json(&format!("{verb} --json --strict-uniform varying.o"));
        assert_eq!((status, &answer["rule"]), (Some(1), &json!("varies")));
        let (status, _) = folder.json(&format!("{verb} --json --strict-uniform good.o"));
        assert_eq!(status, Some(0), "{verb}");
    }
    let (status, text) = folder.text("run --device soft --strict-uniform varying.o -- true");
    assert_eq!(status, Some(1));
    assert!(text.contains("`--strict-uniform` refuses"), "{text}");
}

#[test]
fn a_refusal_is_the_same_for_every_verb() {
    let folder = Folder::new("refusal");
    folder.compile("endless.o", ENDLESS);
    let (status, verified) = folder.json("verify --json endless.o");
    assert_eq!(status, Some(1));
    assert_eq!(
        (&verified["ok"], &verified["program"]),
        (&json!(false), &json!("enter"))
    );
    for field in ["error", "rule", "message", "help"] {
        assert!(verified[field].is_string(), "{verified}");
    }
    assert_eq!(folder.json("compile --json endless.o"), (Some(1), verified));
    let (status, text) = folder.text("compile endless.o");
    assert_eq!(status, Some(1));
    assert!(
        text.starts_with("warpbpf: endless.o: program `enter` was refused\n"),
        "{text}"
    );
}

#[test]
fn successes_are_answers_too() {
    let folder = Folder::new("successes");
    folder.compile("good.o", GOOD);
    let (status, linked) = folder.json("link --json good.o -o out.o");
    let bytes = std::fs::metadata(folder.0.join("out.o"))
        .expect("it is written")
        .len();
    assert_eq!(
        (status, linked),
        (
            Some(0),
            json!({ "ok": true, "output": "out.o", "bytes": bytes })
        )
    );
    assert_eq!(
        folder.text("link good.o -o out.o"),
        (Some(0), String::new())
    );
    let (status, verified) = folder.json("verify --json out.o");
    assert_eq!((status, &verified["ok"]), (Some(0), &json!(true)));
    let (status, compiled) = folder.json("compile --json out.o --emit ebpf");
    assert_eq!(
        (status, &compiled[0]["program"]),
        (Some(0), &json!("enter"))
    );
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let folder = Folder::new("flags");
    folder.compile("good.o", GOOD);
    for emit in ["", " --emit ptx", " --emit ebpf"] {
        assert_eq!(
            folder.text(&format!("compile good.o --after all{emit}")),
            (
                Some(125),
                "warpbpf: `--after all` is a pass over the intermediate representation; add `--emit ir`\n"
                    .to_owned()
            )
        );
    }
    let output = folder.output("compile good.o --emit ir --after all");
    assert_eq!(output.status.code(), Some(0));
    for verb in ["verify", "compile"] {
        let (status, text) = folder.text(&format!("{verb} good.o --threads 0"));
        assert_eq!(status, Some(2));
        assert!(
            text.starts_with(
                "error: invalid value '0' for '--threads <N>': 0 is not in 1..18446744073709551615\n"
            ),
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = Folder::new("pipe");
    folder.compile("good.o", GOOD);
    for line in ["compile good.o", "compile --json good.o", "verify good.o"] {
        let mut child = folder
            .command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "`{line}`");
        assert_eq!(output.status.code(), Some(0), "`{line}`");
    }
}

#[test]
fn launching_needs_a_device() {
    let folder = Folder::new("launch");
    folder.compile("good.o", GOOD);
    let run = |line: &str| {
        let mut command = folder.command(line);
        command.env("WARPBPF_SOFT_DIR", "/nonexistent");
        command.output().expect("it starts")
    };
    let output = run("launch --json --device soft good.o");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).expect("it is JSON"),
        failure(
            "the soft GPU is missing: looked for `/nonexistent/libcuda.so.1`; build it with `cargo xtask build`, or name it with WARPBPF_SOFT_DIR"
        )
    );
    let (status, text) = folder.text("launch good.o --block 1,2,0");
    assert_eq!(status, Some(2));
    assert!(
        text.starts_with(
            "error: invalid value '1,2,0' for '--block <X[,Y[,Z]]>': `0` is not a number of at least 1\n"
        ),
        "{text}"
    );
}

#[test]
fn registers_are_given_within_bounds() {
    let folder = Folder::new("registers");
    for limit in ["15", "256"] {
        let (status, text) = folder.text(&format!("run --max-registers {limit} p.o -- app"));
        assert_eq!(status, Some(2));
        assert!(
            text.starts_with(&format!(
                "error: invalid value '{limit}' for '--max-registers <N>': {limit} is not in 16..=255\n"
            )),
            "{text}"
        );
    }
}

#[test]
fn sections_are_refused_with_what_may_stand_there() {
    let folder = Folder::new("sections");
    folder.compile(
        "bad.o",
        "SEC(\"gpu/mem/*|kind=lod\") int loads(void *ctx) { return 0; } char LICENSE[] SEC(\"license\") = \"GPL\";",
    );
    let (status, text) = folder.text("verify bad.o");
    assert_eq!(status, Some(1));
    assert!(
        text.starts_with(
            "warpbpf: bad.o: `loads`: `kind` cannot be `lod` in section `gpu/mem/*|kind=lod`; it is one of `load`, `store`, "
        ),
        "{text}"
    );
}

#[test]
fn programs_of_linux_are_told_apart_from_those_in_kernels() {
    let folder = Folder::new("linux-programs");
    let license = "char LICENSE[] SEC(\"license\") = \"GPL\";";
    let kernel = "SEC(\"gpu/entry/*\") int in_kernel(void *ctx) { return 0; }";
    folder.compile(
        "mixed.o",
        &format!("SEC(\"fentry/f\") int on_f(void *ctx) {{ return 0; }} {kernel} {license}"),
    );
    let text = folder.said("verify mixed.o");
    let last = "on_f (fentry/f): runs in Linux, whose verifier proves it when it is loaded\n";
    assert!(
        text.starts_with("in_kernel (gpu/entry/*): safe") && text.ends_with(last),
        "{text}"
    );
    let text = folder.said("verify --json mixed.o");
    assert!(
        text.contains(r#"{"program":"on_f","section":"fentry/f","on":"linux"}"#),
        "{text}"
    );
    // A section that names nothing, and an object without a program for an application.
    folder.compile(
        "bad.o",
        &format!("SEC(\"tracepoint/x\") int on_x(void *ctx) {{ return 0; }} {kernel} {license}"),
    );
    folder.compile(
        "alone.o",
        &format!("SEC(\"raw_tp/x\") int on_x(void *ctx) {{ return 0; }} {license}"),
    );
    for (object, why) in [
        (
            "bad.o",
            "`on_x`: section `tracepoint/x` names no place in Linux; write `tracepoint/CATEGORY/NAME`",
        ),
        (
            "alone.o",
            "all of its programs are for Linux; one at least must be for kernels or functions of the application \
             (`SEC(\"gpu/entry/KERNEL\")` or the like)",
        ),
    ] {
        let (status, text) = folder.text(&format!("run --device soft {object} -- true"));
        assert_eq!(
            (status, text),
            (Some(1), format!("warpbpf: {object}: {why}\n"))
        );
    }
}

#[test]
fn fields_of_what_linux_runs_are_not_looked_for_in_other_types() {
    let folder = Folder::new("linux-fields");
    let license = "char LICENSE[] SEC(\"license\") = \"GPL\";";
    let fields = "struct task { int pid; } __attribute__((preserve_access_index));
        struct own { int at; } __attribute__((preserve_access_index));
        volatile int seen;";
    let program = |name: &str, section: &str, of: &str| {
        format!(
            "SEC(\"{section}\") int {name}(void *ctx) {{
                seen = __builtin_preserve_field_info(({of}, 0); return 0; }}"
        )
    };
    let kernel = program("in_kernel", "gpu/entry/*", "(struct own *)0)->at");
    let on_f = program("on_f", "fentry/f", "(struct task *)0)->pid");
    folder.compile("mixed.o", &format!("{fields} {on_f} {kernel} {license}"));
    folder.compile(
        "all.o",
        &format!(
            "{fields} {} {license}",
            on_f.replace("fentry/f", "gpu/entry/*")
        ),
    );
    // Two types that fit with different results: nothing can be said of `pid`, and `at` lies
    // elsewhere.
    folder.compile(
        "types.o",
        "struct task___1 { int pid; } a; struct task___2 { int x; int pid; } b; struct own { long x; int at; } c;",
    );
    let (status, text) = folder.text("verify all.o --btf types.o");
    assert_eq!(status, Some(1));
    assert!(text.contains("of `struct task.pid` is ambiguous"), "{text}");
    let text = folder.said("verify mixed.o --btf types.o");
    assert!(text.starts_with("in_kernel (gpu/entry/*): safe"), "{text}");
    assert!(text.contains("on_f (fentry/f): runs in Linux"), "{text}");
    // What is stored is where the field lies.
    let plain = folder.said("compile mixed.o --emit ir");
    let moved = folder.said("compile mixed.o --btf types.o --emit ir");
    let changed: Vec<(&str, &str)> = plain
        .lines()
        .zip(moved.lines())
        .filter(|(a, b)| a != b)
        .collect();
    let [(from, to)] = changed[..] else {
        panic!("{changed:?}");
    };
    assert!(from.ends_with(" 0") && to.ends_with(" 8"), "{from}, {to}");
}
