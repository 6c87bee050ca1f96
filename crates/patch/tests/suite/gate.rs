//! Gates in front of programs: what is closed does not run, whatever else stands at its site;
//! arrivals are counted all the same.

use crate::common::{ALL, OPTIONS, adder, attach, counter, counters, every, nvcc, ptxas, scratch};
use crate::device::{SHAPES, Session, alloc, gpu, run};
use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::gate;
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Gate, Select, clone_in_module, slice};

/// Counters behind those of [`ALL`]: two programs at accesses, of which one asks for its group.
const AT_ACCESS: [(usize, bool); 2] = [(12, false), (14, true)];

#[test]
fn what_is_closed_does_not_run() {
    let dir = scratch("gate");
    let text = nvcc(&dir, "exits.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let at_access = AT_ACCESS.map(|(index, lanes)| counter(index, lanes));
    let mut attachments = attach(&fragments, |_, _| true);
    attachments.extend(at_access.iter().map(|fragment| Attachment {
        site: Site::Mem,
        scope: Scope::Thread,
        select: every(),
        fragment,
        gate: None,
        choice: None,
    }));
    for (bit, attachment) in attachments.iter_mut().enumerate() {
        attachment.gate = Some(Gate::Program(bit as u32));
    }
    let index = |bit: usize| match bit.checked_sub(ALL.len()) {
        Some(further) => AT_ACCESS[further].0,
        None => bit,
    };
    let all = (1u64 << attachments.len()) - 1;
    let words = [0, all, gate::CLOSED]
        .into_iter()
        .chain((0..attachments.len()).map(|bit| 1 << bit))
        .chain((0..attachments.len()).map(|bit| all & !(1 << bit)));
    let words: Vec<u64> = words.collect();
    let (slice_ptx, slice_variant) = slice(&ast, "early", &attachments, &OPTIONS).unwrap();
    let (clone_ptx, clone_variants) =
        clone_in_module(&ast, &[("early", attachments.clone())], &OPTIONS).unwrap();
    for arch in ["80", "90"] {
        let target = slice_ptx.replace("sm_90", &format!("sm_{arch}"));
        ptxas(&dir, "gated", &target, arch, &[]);
    }
    let shape = &SHAPES[0];
    for (ptx, variant) in [
        (&slice_ptx, &slice_variant),
        (&clone_ptx, &clone_variants[0]),
    ] {
        let gpu = gpu(None);
        let session = Session::new(&gpu);
        let out = alloc(&gpu, shape.blocks() * shape.threads() * 4);
        let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
        let env = alloc(&gpu, gate::COPIES_AT + gate::SIZE);
        let original = gpu.load(&text).unwrap();
        run(&gpu, &original, "early", shape, &params);
        let module = gpu.load(ptx).unwrap();
        session.bind(&module, &original, variant);
        let (slots, _) = module.global("wbpf_slots").unwrap();
        gpu.write(slots, &env.to_le_bytes()).unwrap();
        let mut open = Vec::new();
        for word in &words {
            for copy in 0..gate::COPIES {
                let at = env + gate::COPIES_AT + copy * gate::STRIDE;
                gpu.write(at, &word.to_le_bytes()).unwrap();
            }
            let counts = session.launch(&module, variant, shape, &params);
            if open.is_empty() {
                open.clone_from(&counts);
                assert!(
                    (0..attachments.len()).all(|bit| open[index(bit)] > 0),
                    "{open:?}"
                );
            }
            for bit in 0..attachments.len() {
                let expected = match word >> bit & 1 {
                    0 => open[index(bit)],
                    _ => 0,
                };
                assert_eq!(counts[index(bit)], expected, "bit {bit}, word {word:#x}");
            }
        }
    }
}

/// A kernel that does nothing, with the fragment at its entry behind each of the gates.
fn empty_kernel(fragment: &Fragment, gates: &[Gate]) -> String {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let one = |gate: &Gate| Attachment {
        site: Site::Entry,
        scope: Scope::Thread,
        select: every(),
        fragment,
        gate: Some(*gate),
        choice: None,
    };
    let attachments: Vec<_> = gates.iter().map(one).collect();
    slice(&ast, "k", &attachments, &OPTIONS).unwrap().0
}

#[test]
fn a_site_reads_its_gate_once_and_first() {
    let ptx = empty_kernel(&counter(0, true), &[Gate::Program(3), Gate::Program(5)]);
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let at = |part: &str| {
        let found = lines.iter().enumerate();
        let found = found.filter(|(_, line)| line.contains(part));
        found.map(|(line, _)| line).collect::<Vec<_>>()
    };
    let (read, group) = (
        at("ld.relaxed.gpu.global.u64 %wbpf_gate,"),
        at("activemask.b32 %wbpf_mask;"),
    );
    assert_eq!((read.len(), group.len()), (1, 1), "{ptx}");
    assert!(read < group, "{ptx}");
    // Who goes around all of it meets the others behind it.
    let (here, meets) = (
        at("activemask.b32 %wbpf_here;"),
        at("bar.warp.sync %wbpf_here;"),
    );
    assert_eq!((here.len(), meets.len()), (1, 1), "{ptx}");
    assert!(here < read && at("wbpf_shut_0:") < meets, "{ptx}");
    // Two that can be closed one by one: the whole group asks for each.
    assert_eq!(at("vote.sync.any.pred").len(), 2, "{ptx}");
    let ptx = empty_kernel(&counter(0, true), &[Gate::Program(3)]);
    assert!(!ptx.contains("vote.sync"), "{ptx}");
    assert_eq!(
        ptx.matches("@%wbpf_shut bra wbpf_shut_0;").count(),
        1,
        "{ptx}"
    );
}

#[test]
fn the_time_at_a_barrier_is_without_the_gate() {
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
        gate: Some(Gate::Program(2)),
        choice: None,
    };
    let (ptx, _) = slice(&ast, "k", &[attachment], &OPTIONS).unwrap();
    let at = |part: &str| ptx.rfind(part).unwrap_or_else(|| panic!("{part}: {ptx}"));
    let order = [
        at("bar.sync 0;"),
        at("%clock64;"),
        at("ld.relaxed.gpu.global.u64 %wbpf_gate,"),
        // The group is there already.
        at("vote.sync.any.pred %wbpf_shut"),
        at("red.global.add.u64"),
    ];
    assert!(order.is_sorted(), "{order:?}\n{ptx}");
    ptxas(&scratch("gate"), "timed", &ptx, "80", &[]);
}

/// A slot's bit behind the word, in all copies.
fn open(gpu: &warpbpf_softgpu::Gpu, env: u64, words: [u64; 2]) {
    for copy in 0..gate::COPIES {
        let at = env + gate::COPIES_AT + copy * gate::STRIDE;
        gpu.write(at, &words[0].to_le_bytes()).unwrap();
        gpu.write(at + gate::OPEN, &words[1].to_le_bytes()).unwrap();
    }
}

#[test]
fn a_slot_is_passed_by_while_its_bit_is_not_set() {
    let dir = scratch("gate");
    let text = nvcc(&dir, "exits.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let mut attachments = attach(&fragments, |_, _| true);
    // Each second one stands for what is in a slot.
    for (bit, attachment) in (0..).zip(attachments.iter_mut()) {
        attachment.gate = Some(match bit % 2 {
            0 => Gate::Program(bit),
            _ => Gate::Slot(bit),
        });
    }
    let (ptx, variant) = slice(&ast, "early", &attachments, &OPTIONS).unwrap();
    let target = ptx.replace("sm_90", "sm_80");
    ptxas(&dir, "slots", &target, "80", &[]);
    let request = [("early", attachments.clone())];
    let (clone_ptx, mut clones) = clone_in_module(&ast, &request, &OPTIONS).unwrap();
    let shape = &SHAPES[0];
    for (ptx, variant) in [(ptx, variant), (clone_ptx, clones.remove(0))] {
        let gpu = gpu(None);
        let session = Session::new(&gpu);
        let out = alloc(&gpu, shape.blocks() * shape.threads() * 4);
        let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
        let env = alloc(&gpu, gate::COPIES_AT + gate::SIZE);
        let original = gpu.load(&text).unwrap();
        run(&gpu, &original, "early", shape, &params);
        let module = gpu.load(&ptx).unwrap();
        session.bind(&module, &original, &variant);
        let (slots, _) = module.global("wbpf_slots").unwrap();
        gpu.write(slots, &env.to_le_bytes()).unwrap();
        open(&gpu, env, [0, !0]);
        let all = session.launch(&module, &variant, shape, &params);
        let words = [[0, 0], [!0, !0], [!0, 0], [0b100, 0b1000], [0b1, 0b10_0010]];
        for [closed, slots] in words {
            open(&gpu, env, [closed, slots]);
            let counts = session.launch(&module, &variant, shape, &params);
            for bit in 0..attachments.len() {
                let runs = match bit % 2 {
                    0 => closed >> bit & 1 == 0,
                    _ => slots >> bit & 1 == 1,
                };
                assert!(all[bit] > 0);
                let expected = if runs { all[bit] } else { 0 };
                assert_eq!(counts[bit], expected, "{bit}: {closed:#x} {slots:#x}");
            }
        }
    }
}

#[test]
fn a_slot_and_its_gate_are_one_load() {
    let fragment = counter(0, false);
    let ptx = empty_kernel(&fragment, &[Gate::Program(3), Gate::Slot(1)]);
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let tests: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.contains(".relaxed.") || line.contains("setp") || line.contains("bra"))
        .collect();
    assert_eq!(
        tests,
        [
            "ld.relaxed.gpu.global.v2.u64 {%wbpf_gate, %wbpf_open}, [%wbpf_gate_at+256];",
            // Nothing of the site runs.
            "setp.eq.u64 %wbpf_shut, %wbpf_gate_at, 0x8;",
            "setp.eq.and.u64 %wbpf_shut, %wbpf_gate_at, 0, %wbpf_shut;",
            "@%wbpf_shut bra wbpf_shut_0;",
            "setp.ne.u64 %wbpf_shut, %wbpf_gate_at, 0;",
            "@%wbpf_shut bra wbpf_closed_0_0;",
            "setp.eq.u64 %wbpf_shut, %wbpf_gate_at, 0;",
            "@%wbpf_shut bra wbpf_closed_1_0;",
        ],
        "{ptx}"
    );
    let ptx = empty_kernel(&fragment, &[Gate::Slot(1)]);
    assert_eq!(ptx.matches("setp").count(), 1, "{ptx}");
    ptxas(&scratch("gate"), "one", &ptx, "80", &[]);
}
