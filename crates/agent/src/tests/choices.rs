//! Launches that are chosen for each program: how often that is asked, and what is counted.

use warpbpf_wire::{Change, Options};

use super::attached::{Application, compile};
use super::replace::asked;
use crate::hooks::choice::ASKED;

/// Programs that do nothing, by name and section.
fn object(file: &str, programs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::from(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"warpbpf.h\"\n",
    );
    for (name, section) in programs {
        text += &format!(
            "SEC(\"{section}\") int {name}(struct wbpf_kernel_ctx *ctx) {{ return ctx->lane; }}\n"
        );
    }
    text += "char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    compile(&format!("choices-{file}"), &text)
}

fn started(file: &str, programs: &[(&str, &str)]) -> Application {
    Application::with(Options::default(), &object(file, programs), &[])
}

/// Launches that each program was in.
type InPrograms = Vec<(String, u64)>;

fn programs(all: &[(&str, u64)]) -> InPrograms {
    all.iter().map(|(name, n)| (name.to_string(), *n)).collect()
}

/// Of the one kernel: launches with probes, uninstrumented and skipped; of each program; and those
/// of each program by context.
fn counts(app: &Application) -> ([u64; 3], InPrograms, Vec<(u32, InPrograms)>) {
    let counts = app.agent.kernel_registry.counts();
    let [kernel] = &counts.kernels[..] else {
        panic!("{counts:?}");
    };
    (
        [kernel.launches, kernel.uninstrumented, kernel.skipped],
        kernel.programs.clone(),
        kernel.context_programs.clone(),
    )
}

#[test]
fn a_launch_asks_once_for_each_choice() {
    let sections = [
        ("all", "gpu/entry/inc"),
        ("second", "gpu/entry/inc|every=2"),
        ("beside", "gpu/exit/inc|every=2"),
    ];
    let mut app = started("once", &sections);
    let module = app.load();
    let function = app.function(module);
    for _ in 0..4 {
        let before = ASKED.get();
        app.launch(function, 1, 32);
        assert_eq!(ASKED.get() - before, 2, "two choices");
    }
    let own = programs(&[("all", 4), ("beside", 2), ("second", 2)]);
    assert_eq!(counts(&app), ([4, 0, 0], own.clone(), vec![(0, own)]));
}

#[test]
fn what_nobody_chose_is_no_fallback() {
    // The kernel has no such parameter, so it has no variant.
    let sections = [
        ("refused", "gpu/entry/inc|args=nothing,every=3"),
        ("another", "gpu/entry/another"),
    ];
    let mut app = started("refused", &sections);
    let module = app.load();
    let function = app.function(module);
    for _ in 0..7 {
        app.launch(function, 1, 32);
    }
    assert_eq!(counts(&app), ([0, 3, 4], Vec::new(), Vec::new()));
}

#[test]
fn programs_keep_their_launches_when_an_image_is_loaded_again() {
    let mut app = started("first", &[("first", "gpu/entry/inc")]);
    let module = app.load();
    let function = app.function(module);
    for _ in 0..5 {
        app.launch(function, 1, 32);
    }
    assert_eq!(counts(&app), ([5, 0, 0], Vec::new(), Vec::new()));
    app.unload(module);
    let other = object("other", &[("other", "gpu/entry/inc|every=2")]);
    assert_eq!(asked(&mut app, Change::Add, &other).0.refused, None);
    let module = app.load();
    let function = app.function(module);
    for _ in 0..4 {
        app.launch(function, 1, 32);
    }
    // The seventh and the ninth.
    let all = programs(&[("first", 9), ("other", 2)]);
    assert_eq!(counts(&app), ([9, 0, 0], all.clone(), vec![(0, all)]));
}

/// Such a kernel has no programs, and yet is asked at each launch whether anybody chose it.
#[test]
fn launches_of_a_kernel_with_too_many_choices_are_uninstrumented_or_skipped() {
    let texts: Vec<(String, String)> = (2..=66)
        .map(|every| (format!("p{every}"), format!("gpu/entry/inc|every={every}")))
        .collect();
    let sections: Vec<(&str, &str)> = texts.iter().map(|(n, s)| (&**n, &**s)).collect();
    let mut app = started("many", &sections);
    let module = app.load();
    let function = app.function(module);
    for _ in 0..66 {
        app.launch(function, 1, 32);
    }
    // The first is nobody's, and the 66th also of the last, which has no bit of its own.
    assert_eq!(counts(&app).0, [0, 65, 1]);
}

#[test]
fn programs_have_launches_in_each_context() {
    let sections = [("all", "gpu/entry/inc"), ("third", "gpu/entry/inc|every=3")];
    let mut app = started("contexts", &sections);
    let launch = |app: &mut Application, times| {
        let module = app.load();
        let function = app.function(module);
        for _ in 0..times {
            app.launch(function, 1, 32);
        }
    };
    launch(&mut app, 4);
    app.world.another_context();
    launch(&mut app, 2);
    let expected = (
        [6, 0, 0],
        programs(&[("all", 6), ("third", 2)]),
        vec![
            (0, programs(&[("all", 4), ("third", 2)])),
            (1, programs(&[("all", 2), ("third", 0)])),
        ],
    );
    assert_eq!(counts(&app), expected);
}
