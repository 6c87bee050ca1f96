//! Programs that are in different launches: which run is what the launch says, in kernels and in
//! their functions; arrivals are counted all the same.

use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch;
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Gate, PatchError, Select, Variant, clone_in_module, slice};

use crate::common::{ALL, OPTIONS, adder, attach, counter, counters, every, nvcc, ptxas, scratch};
use crate::device::{SHAPES, Session, alloc, gpu, run};

/// Counters behind those of [`ALL`]: at accesses, of which one asks for its group, and at the start
/// of functions.
const INSIDE: [(usize, bool, Site); 3] = [
    (12, false, Site::Mem),
    (14, true, Site::Mem),
    (16, false, Site::Func),
];

#[test]
fn what_a_launch_does_not_choose_does_not_run() {
    let dir = scratch("launch_bits");
    let text = nvcc(&dir, "exits.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let inside = INSIDE.map(|(index, lanes, _)| counter(index, lanes));
    let mut attachments = attach(&fragments, |_, _| true);
    let more = INSIDE.iter().zip(&inside);
    attachments.extend(more.map(|((.., site), fragment)| Attachment {
        site: *site,
        scope: Scope::Thread,
        select: every(),
        fragment,
        gate: None,
        choice: None,
    }));
    // Two of them have the same bit.
    let bits: Vec<u32> = (0..attachments.len() as u32).map(|at| at.max(1)).collect();
    for (attachment, bit) in attachments.iter_mut().zip(&bits) {
        attachment.choice = Some(*bit);
    }
    let index = |at: usize| match at.checked_sub(ALL.len()) {
        Some(further) => INSIDE[further].0,
        None => at,
    };
    let all = (1u64 << attachments.len()) - 1;
    let masks = [u64::MAX, all, 0, 0b10_1010_1010].into_iter();
    let masks = masks.chain(bits.iter().map(|bit| 1 << bit));
    let masks: Vec<u64> = masks.chain(bits.iter().map(|bit| !(1 << bit))).collect();
    for kernel in ["early", "in_function"] {
        let (ptx, variant) = slice(&ast, kernel, &attachments, &OPTIONS).unwrap();
        let requests = [(kernel, attachments.clone())];
        let (clone_ptx, clones) = clone_in_module(&ast, &requests, &OPTIONS).unwrap();
        for arch in ["80", "90"] {
            let target = ptx.replace("sm_90", &format!("sm_{arch}"));
            ptxas(&dir, &format!("chosen_{kernel}"), &target, arch, &[]);
        }
        let hidden = variant.hidden.unwrap();
        assert!(hidden.chosen && hidden.counts());
        assert_eq!(hidden.size(), 32);
        for (ptx, variant) in [(&ptx, &variant), (&clone_ptx, &clones[0])] {
            let shape = &SHAPES[0];
            let gpu = gpu(None);
            let session = Session::new(&gpu);
            let out = alloc(&gpu, shape.blocks() * shape.threads() * 4);
            let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
            let original = gpu.load(&text).unwrap();
            run(&gpu, &original, kernel, shape, &params);
            let module = gpu.load(ptx).unwrap();
            session.bind(&module, &original, variant);
            let mut whole = Vec::new();
            for mask in &masks {
                let counts = session.launch_chosen(&module, variant, shape, &params, *mask);
                if whole.is_empty() {
                    whole.clone_from(&counts);
                    let seen = (0..attachments.len()).filter(|at| whole[index(*at)] > 0);
                    let functions = usize::from(kernel == "in_function");
                    assert_eq!(seen.count(), attachments.len() - 1 + functions);
                }
                for (at, bit) in bits.iter().enumerate() {
                    let expected = match mask >> bit & 1 {
                        1 => whole[index(at)],
                        _ => 0,
                    };
                    assert_eq!(counts[index(at)], expected, "{kernel}: {at}, {mask:#x}");
                }
            }
        }
    }
}

/// A kernel that does nothing, with the fragment at its entry for each of these choices and gates.
fn empty_kernel(fragment: &Fragment, all: &[(Option<u32>, Option<Gate>)]) -> (String, Variant) {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n) {\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let one = |(choice, gate): &(Option<u32>, Option<Gate>)| Attachment {
        site: Site::Entry,
        scope: Scope::Thread,
        select: every(),
        fragment,
        gate: *gate,
        choice: *choice,
    };
    let attachments: Vec<_> = all.iter().map(one).collect();
    slice(&ast, "k", &attachments, &OPTIONS).unwrap()
}

fn steps(ptx: &str) -> Vec<&str> {
    let told = |line: &&str| {
        [
            "ld.param.u64",
            "setp",
            "bra",
            "activemask",
            "relaxed",
            "and.b64",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    ptx.lines().map(str::trim).filter(told).collect()
}

#[test]
fn a_site_asks_once_and_first() {
    let fragment = counter(0, true);
    let (ptx, variant) = empty_kernel(&fragment, &[(Some(0), None), (Some(3), None)]);
    let hidden = variant.hidden.unwrap();
    assert_eq!(
        (hidden.offset, hidden.size(), hidden.counts()),
        (8, 32, false)
    );
    assert!(ptx.contains(".param .align 8 .b8 wbpf_launch[32]"), "{ptx}");
    assert_eq!(
        steps(&ptx),
        [
            "ld.param.u64 %wbpf_chosen, [wbpf_launch+24];",
            // Nothing of the site is in this launch.
            "and.b64 %wbpf_chosen_of, %wbpf_chosen, 0x9;",
            "setp.eq.u64 %wbpf_not_here, %wbpf_chosen_of, 0;",
            "@%wbpf_not_here bra wbpf_shut_0;",
            "activemask.b32 %wbpf_mask;",
            "and.b64 %wbpf_chosen_of, %wbpf_chosen, 0x1;",
            "setp.eq.u64 %wbpf_not_here, %wbpf_chosen_of, 0;",
            "@%wbpf_not_here bra wbpf_closed_0_0;",
            "and.b64 %wbpf_chosen_of, %wbpf_chosen, 0x8;",
            "setp.eq.u64 %wbpf_not_here, %wbpf_chosen_of, 0;",
            "@%wbpf_not_here bra wbpf_closed_1_0;",
        ],
        "{ptx}"
    );
    // One alone is asked for once, and before its gate.
    let (ptx, _) = empty_kernel(&fragment, &[(Some(2), Some(Gate::Program(5)))]);
    assert_eq!(ptx.matches("@%wbpf_not_here bra wbpf_shut_0;").count(), 1);
    assert_eq!(ptx.matches("@%wbpf_shut bra wbpf_shut_0;").count(), 1);
    assert!(
        ptx.find("%wbpf_not_here bra") < ptx.find("ld.relaxed"),
        "{ptx}"
    );
    ptxas(&scratch("launch_bits"), "gated", &ptx, "80", &[]);
    // Where all are in the same launches nothing is asked.
    let (ptx, variant) = empty_kernel(&fragment, &[(None, None), (None, None)]);
    assert_eq!(variant.hidden, None);
    assert!(!ptx.contains("wbpf_chosen") && !ptx.contains("wbpf_launch"));
}

#[test]
fn the_time_at_a_barrier_is_without_the_question() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n\tbar.sync 0;\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let fragment = adder(0, &[Capture::Waited]);
    let select = Select {
        when: When::After,
        ..Select::default()
    };
    let attachment = Attachment {
        site: Site::Barrier,
        scope: Scope::Thread,
        select: &select,
        fragment: &fragment,
        gate: None,
        choice: Some(1),
    };
    let (ptx, _) = slice(&ast, "k", &[attachment], &OPTIONS).unwrap();
    let at = |part: &str| ptx.rfind(part).unwrap_or_else(|| panic!("{part}: {ptx}"));
    let order = [
        at("bar.sync 0;"),
        at("%clock64;"),
        at("ld.param.u64 %wbpf_chosen,"),
        at("red.global.add.u64"),
    ];
    assert!(order.is_sorted(), "{order:?}\n{ptx}");
    ptxas(&scratch("launch_bits"), "timed", &ptx, "80", &[]);
}

#[test]
fn a_function_that_cannot_be_told_is_named() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .func f(.reg .b32 %a) {\n\tst.local.u32 [0], %a;\n\tret;\n}\n\
        .visible .entry k() {\n\t.reg .b32 %r;\n\tmov.u32 %r, 1;\n\tcall f, (%r);\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let fragment = counter(0, false);
    let attachment = |choice| Attachment {
        site: Site::Mem,
        scope: Scope::Thread,
        select: every(),
        fragment: &fragment,
        gate: None,
        choice,
    };
    let error = slice(&ast, "k", &[attachment(Some(0))], &OPTIONS).unwrap_err();
    assert!(matches!(error, PatchError::Refused { .. }));
    let text = error.to_string();
    for part in [
        "its function `f` has programs that are in different launches and takes its parameters in registers, so that which those are cannot be handed to it",
        "choose the same launches for all programs of the kernel",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(slice(&ast, "k", &[attachment(None)], &OPTIONS).is_ok());
}

#[test]
fn functions_are_handed_what_they_ask() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .func f(.param .b32 a) {\n\t.reg .b32 %r;\n\tld.param.u32 %r, [a];\n\tst.local.u32 [0], %r;\n\tret;\n}\n\
        .func g() {\n\t.param .b32 x;\n\tst.param.b32 [x], 3;\n\tcall f, (x);\n\tret;\n}\n\
        .func plain() {\n\tret;\n}\n\
        .visible .entry k() {\n\tcall g;\n\tcall plain;\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let fragment = counter(0, false);
    let attachment = Attachment {
        site: Site::Mem,
        scope: Scope::Thread,
        select: every(),
        fragment: &fragment,
        gate: None,
        choice: Some(4),
    };
    let (ptx, _) = slice(&ast, "k", &[attachment], &OPTIONS).unwrap();
    let handed = format!(".b8 wbpf_launch[{}]", launch::param_size(true));
    // `f`, `g` and the kernel.
    assert_eq!(ptx.matches(&handed).count(), 3, "{ptx}");
    assert_eq!(ptx.matches("+24], %wbpf_handed;").count(), 2, "{ptx}");
    assert!(ptx.contains("call plain;"), "{ptx}");
    ptxas(&scratch("launch_bits"), "handed", &ptx, "80", &[]);
}
