//! One more parameter of a kernel, by which launches tell probes something: the file is as the
//! compiler would have made it of a kernel that was written with it.

use crate::common::{disassemble, is_deep, probe_cubin, ptxas};
use warpbpf_fatbin::{Cubin, Param};
use warpbpf_sass::check::{Put, check_all};
use warpbpf_sass::elf::Image;
use warpbpf_sass::word::{BYTES, Word};
use warpbpf_sass::{Addresses, File, Hidden, Hook, Launch, Probe, Refusal, info};

/// Reads the second and the fourth word of its launch arguments.
const ARGS: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc, .param .align 8 .b8 args[32]) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [args+8];
    ld.param.u64 %rd3, [args+24];
    red.global.add.u64 [%rd1], %rd2;
    red.global.add.u64 [%rd1+8], %rd3;
    st.param.b32 [r], 0;
    ret;
}";

/// The same in a loop, with memory of its own and by a function that is called.
const ARGS_FAR: &str = "
.func far(.param .b64 at, .param .b64 what) {
    .reg .b64 %rd<6>;
    .reg .pred %p<2>;
    .local .align 8 .b8 own[64];
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [what];
    mov.u64 %rd3, own;
    and.b64 %rd4, %rd2, 56;
    add.u64 %rd4, %rd3, %rd4;
    st.local.u64 [%rd4], %rd2;
L:
    red.global.add.u64 [%rd1], %rd2;
    sub.u64 %rd2, %rd2, 1;
    setp.ne.u64 %p1, %rd2, 0;
    @%p1 bra L;
    ld.local.u64 %rd5, [own+8];
    red.global.add.u64 [%rd1], %rd5;
    ret;
}
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc, .param .align 8 .b8 args[32]) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [args+8];
    ld.param.u64 %rd3, [args+24];
    { .param .b64 x; .param .b64 y; st.param.b64 [x], %rd1; st.param.b64 [y], %rd2; call far, (x, y); }
    { .param .b64 x; .param .b64 y; st.param.b64 [x], %rd1; st.param.b64 [y], %rd3; call far, (x, y); }
    st.param.b32 [r], 0;
    ret;
}";

fn probe(name: &str, text: &str, arch: &str) -> Probe {
    Probe::parse(&probe_cubin(name, text, arch), name).expect("a probe")
}

/// Two kernels with these parameters, and one without any beside them.
fn kernels(name: &str, arch: &str, parameters: &[String]) -> Vec<u8> {
    let entry = |name: &str, list: &[String]| {
        format!(
            ".visible .entry {name}({}) {{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    mov.u64 %rd1, 0x7f0012340000;
    mov.u32 %r1, %tid.x;
    setp.gt.u32 %p1, %r1, 40;
    @%p1 ret;
    st.global.u32 [%rd1], %r1;
    ret;
}}
",
            list.join(", ")
        )
    };
    let text = format!(
        ".version 8.1\n.target {arch}\n.address_size 64\n{}{}{}",
        entry("k", parameters),
        entry("other", &[]),
        entry("third", parameters)
    );
    ptxas(name, &text, arch, &[])
}

/// Kinds of parameters, by name.
fn shapes() -> Vec<(&'static str, Vec<String>)> {
    let list = |all: &[&str]| all.iter().map(|p| (*p).to_owned()).collect();
    vec![
        ("none", Vec::new()),
        ("byte", list(&[".param .u8 a"])),
        ("word", list(&[".param .u64 a"])),
        (
            "odd",
            list(&[".param .u64 a", ".param .u8 b", ".param .u16 c"]),
        ),
        ("three", list(&[".param .align 1 .b8 a[3]"])),
        (
            "many",
            (0..200).map(|i| format!(".param .u32 p{i}")).collect(),
        ),
        ("full", list(&[".param .align 8 .b8 a[4320]"])),
    ]
}

const WHOLE: Launch = Launch {
    bytes: 32,
    entry: 0b1010,
    exit: 0b1000,
};

/// The kernel's attributes but for those that tell of its code.
fn attributes(cubin: &[u8], kernel: &str) -> Vec<(u8, u16, Vec<u32>)> {
    let image = Image::parse(cubin).expect("a cubin");
    let name = format!(".nv.info.{kernel}");
    let data = image.data(image.section(&name).expect("its attributes"));
    let all = info::attributes(&name, data).expect("a list");
    let mut all: Vec<_> = (all.into_iter())
        .filter(|a| info::meaning(a.number) != Some(info::Meaning::Exits))
        .map(|a| (a.number, a.value, a.words(data)))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn a_file_is_as_the_compiler_makes_it_of_a_kernel_with_the_parameter() {
    for arch in ["sm_80", "sm_90"] {
        let near = probe("near", ARGS, arch);
        let far = probe("far_away", ARGS_FAR, arch);
        for (number, (shape, own)) in shapes().into_iter().enumerate() {
            // The gate has one of the two sizes for each shape, the other one for the other
            // processor.
            let sizes = if is_deep() {
                vec![24, 32]
            } else {
                vec![[24, 32][(number + usize::from(arch == "sm_90")) % 2]]
            };
            for bytes in sizes {
                let name = format!("hidden-{shape}-{bytes}");
                let original = kernels(&name, arch, &own);
                let mut all = own.clone();
                all.push(format!(".param .align 8 .b8 args[{bytes}]"));
                let wanted = kernels(&format!("{name}-written"), arch, &all);
                let words = |word: u8| if bytes == 32 { word } else { word & 0b111 };
                let launch = Launch {
                    bytes,
                    entry: words(WHOLE.entry),
                    exit: words(WHOLE.exit),
                };
                let (sm, near, far) = (arch, &near, &far);
                as_written(sm, &name, (&original, &wanted), (near, far), launch);
            }
        }
    }
}

fn as_written(
    arch: &str,
    name: &str,
    (original, wanted): (&[u8], &[u8]),
    (near, far): (&Probe, &Probe),
    launch: Launch,
) {
    let hook = |probe| {
        Some(Hook {
            probe,
            userdata: 0x7f12_3456_7890,
        })
    };
    let file = File::parse(original).expect("a cubin");
    let with_args = file
        .edit_with_launch_args("k", hook(near), hook(far), launch)
        .unwrap_or_else(|e| panic!("{name} for {arch}: {e}"));
    // Beside it a kernel with probes that have no launch arguments, and one with them at its exits
    // alone.
    let plain = file.edit("other", hook(near), hook(near)).expect("an edit");
    let only = Launch { entry: 0, ..launch };
    let third = file.edit_with_launch_args("third", None, hook(near), only);
    let edits = [with_args, plain, third.expect("an edit")];
    let written = file.write(&edits, &Addresses::new()).expect("a file");
    assert_eq!(written.left_out, [], "{name} for {arch}");
    let cubin = written.cubin;

    let facts = |cubin: &[u8]| Cubin::parse(cubin).expect("a cubin");
    let (before, after, meant) = (facts(original), facts(&cubin), facts(wanted));
    for kernel in ["k", "third"] {
        let parameters = |cubin: &Cubin| {
            let kernel = cubin.kernel(kernel).expect("the kernel");
            (kernel.params.clone(), kernel.param_bytes)
        };
        assert_eq!(parameters(&after), parameters(&meant), "{name} for {arch}");
        assert_eq!(attributes(&cubin, kernel), attributes(wanted, kernel));
        let bank = |cubin: &[u8]| {
            let image = Image::parse(cubin).expect("a cubin");
            let name = format!(".nv.constant0.{kernel}");
            let index = image.section(&name).expect("its constants");
            image.data(index).to_vec()
        };
        assert_eq!(bank(&cubin), bank(wanted), "{name} for {arch}");
        let own = parameters(&before).1;
        let hidden = Hidden {
            offset: own.next_multiple_of(8),
            bytes: launch.bytes,
        };
        let edit = &edits[if kernel == "k" { 0 } else { 2 }];
        assert_eq!(edit.change.hidden, Some(hidden));
        let last = parameters(&after).0.last().copied();
        let offset = hidden.offset;
        let size = launch.bytes;
        assert_eq!(last, Some(Param { offset, size }));
    }
    assert_eq!(edits[1].change.hidden, None);
    assert_eq!(
        after.kernel("other").expect("it").params,
        before.kernel("other").expect("it").params
    );
    in_segments(original, &cubin);

    let new = disassemble(&format!("{name}.{arch}.after"), &cubin);
    let base = if arch == "sm_80" { 0x160 } else { 0x210 };
    let hidden = edits[0].change.hidden.expect("a parameter");
    let loads = |words: u8| {
        let words = (0..4u32).filter(move |word| words & 1 << word != 0);
        let lines = words.flat_map(|word| {
            let (at, first) = (base + hidden.offset + 8 * word, 8 + 2 * word);
            match arch {
                "sm_80" => vec![
                    format!("MOV R{first}, c[0x0][{at:#x}]"),
                    format!("MOV R{}, c[0x0][{:#x}]", first + 1, at + 4),
                ],
                _ => vec![format!("LDC.64 R{first}, c[0x0][{at:#x}]")],
            }
        });
        lines.collect::<Vec<String>>()
    };
    for (kernel, edit, stubs) in [
        ("k", &edits[0], vec![launch.entry, launch.exit, launch.exit]),
        ("other", &edits[1], Vec::new()),
        ("third", &edits[2], vec![launch.exit, launch.exit]),
    ] {
        let of = |(name, _): &&(String, _)| *name == format!(".text.{kernel}");
        let (_, lines) = new.iter().find(of).expect("the code");
        let own = edit.change.code_bytes.0 as usize / BYTES;
        let added = &lines[own..];
        let found: Vec<String> = (added.iter().map(|line| line.text.clone()))
            .filter(|text| text.contains("c[0x0]") && !text.contains("[0x28]"))
            .collect();
        let expected: Vec<String> = stubs.into_iter().flat_map(loads).collect();
        assert_eq!(found, expected, "{kernel} of {name} for {arch}");
        assert_eq!(edit.change.exits.len(), 2);
    }
}

/// What is loaded is loaded: every section that was in a segment is in the same one, which ends
/// where the last of them does, but for alignment.
fn in_segments(before: &[u8], after: &[u8]) {
    let (old, new) = (
        Image::parse(before).expect("a cubin"),
        Image::parse(after).expect("a cubin"),
    );
    for (was, is) in old.segments.iter().zip(&new.segments) {
        assert_eq!(is.file_bytes, is.memory_bytes);
        let within = |segment: &warpbpf_sass::elf::Segment, at: u64, size: u64| {
            size > 0 && at >= segment.offset && at + size <= segment.offset + segment.file_bytes
        };
        let pairs = old.sections.iter().zip(&new.sections);
        for (section, moved) in pairs.filter(|(section, _)| section.is_stored()) {
            assert_eq!(
                within(was, section.offset, section.size),
                within(is, moved.offset, moved.size),
                "{}",
                section.name
            );
        }
        let end = |image: &Image, segment: &warpbpf_sass::elf::Segment| {
            let inside = image.sections.iter().filter(|s| s.is_stored());
            let inside = inside.filter(|s| within(segment, s.offset, s.size));
            let last = inside.map(|s| s.offset + s.size).max();
            last.map(|last| segment.offset + segment.file_bytes - last)
        };
        assert_eq!(end(&old, was), end(&new, is));
    }
}

#[test]
fn what_leaves_no_room_is_refused() {
    for arch in ["sm_80", "sm_90"] {
        let near = probe("near", ARGS, arch);
        let edit = |name: &str, own: &str, launch: Launch| {
            let own = [own.to_owned()];
            let cubin = kernels(&format!("room-{name}"), arch, &own);
            let file = File::parse(&cubin).expect("a cubin");
            let hook = Some(Hook {
                probe: &near,
                userdata: 0,
            });
            file.edit_with_launch_args("k", hook, hook, launch)
                .map(|_| ())
        };
        let list = |bytes: u32| format!(".param .align 8 .b8 a[{bytes}]");
        let full = |bytes, total| {
            Err(Refusal::ParametersFull {
                bytes,
                total,
                limit: 4352,
            })
        };
        assert_eq!(edit("most", &list(4320), WHOLE), Ok(()));
        assert_eq!(edit("small", &list(4321), WHOLE), full(4321, 4360));
        assert_eq!(edit("large", &list(20001), WHOLE), full(20001, 20040));
        for launch in [
            Launch { bytes: 40, ..WHOLE },
            Launch { bytes: 24, ..WHOLE },
            Launch { bytes: 30, ..WHOLE },
        ] {
            let refused = edit("odd", &list(8), launch).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "a launch cannot tell the kernel anything: that is more than probes can be given"
            );
        }
    }
}

/// Whatever of the file's new parts is another byte is found, and so is a load of something else.
#[test]
fn the_check_finds_what_is_not_the_parameter() {
    for arch in ["sm_80", "sm_90"] {
        let near = probe("near", ARGS, arch);
        for own in [Vec::new(), vec![".param .u64 a".to_owned()]] {
            let original = kernels(&format!("tampered-{}", own.len()), arch, &own);
            let file = File::parse(&original).expect("a cubin");
            let hook = Some(Hook {
                probe: &near,
                userdata: 0,
            });
            let edit = file
                .edit_with_launch_args("k", hook, hook, WHOLE)
                .expect("an edit");
            let good = file.write(&[edit], &Addresses::new()).expect("a file");
            let good = good.cubin;
            let put = Put {
                kernel: "k",
                entry: true,
                exit: true,
                accesses: false,
                launch: WHOLE,
            };
            let is_right = |cubin: &[u8], put: Put<'_>| {
                let found = check_all(&original, cubin, &[put], &Addresses::new());
                found.is_ok_and(|wrong| wrong.is_empty())
            };
            assert!(is_right(&good, put));
            // Not what was meant.
            for launch in [
                Launch::default(),
                Launch { bytes: 24, ..WHOLE },
                Launch { entry: 2, ..WHOLE },
                Launch { exit: 9, ..WHOLE },
            ] {
                assert!(!is_right(&good, Put { launch, ..put }), "{launch:?}");
            }
            let image = Image::parse(&good).expect("a cubin");
            let mut places = Vec::new();
            for name in [".nv.info.k", ".nv.constant0.k"] {
                let index = image.section(name).expect("the section");
                let section = &image.sections[index];
                let end = section.offset + section.size;
                let before = Image::parse(&original).expect("a cubin").data(index).len() as u64;
                let growth = section.size - before;
                assert!(growth > 0, "{name}");
                let filled = end + growth.next_multiple_of(128) - growth;
                // The exits' own numbers are checked elsewhere; lists of code are not told apart
                // here.
                places.extend(section.offset..filled);
            }
            for at in places {
                let mut bad = good.clone();
                bad[at as usize] ^= 1;
                assert!(!is_right(&bad, put), "byte {at:#x} for {arch}");
            }
            let text = image.section(".text.k").expect("the code");
            let code = image.data(text).len() / BYTES;
            let mut loads = 0;
            for index in 0..code {
                let word = Word::at(image.data(text), index * BYTES).expect("an instruction");
                let load = matches!(word.opcode(), 0xb82 | 0xa02);
                if !load || word.bits(40, 14) * 4 == 0x28 {
                    continue;
                }
                loads += 1;
                for bad in [
                    word.with(40, 14, word.bits(40, 14) + 2),
                    word.with(16, 8, word.bits(16, 8) ^ 2),
                    word.with(12, 4, 8),
                ] {
                    let mut image = image.clone();
                    let at = index * BYTES;
                    image.data_mut(text)[at..at + BYTES].copy_from_slice(&bad.bytes());
                    assert!(!is_right(&image.write(), put), "at {at:#x} for {arch}");
                }
            }
            assert_eq!(loads, if arch == "sm_80" { 8 } else { 4 });
        }
    }
}
