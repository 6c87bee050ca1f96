//! Gates in front of programs: what is closed does not run, whatever else stands at its site; arrivals are counted all the same.

use crate::common::{ALL, OPTIONS, adder, attach, counter, counters, every, nvcc, ptxas, scratch};
use crate::device::{SHAPES, Session, alloc, gpu, run};
use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::gate;
use warpbpf_patch::{Attachment, Select, clone_in_module, slice};

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
    }));
    for (bit, attachment) in attachments.iter_mut().enumerate() {
        attachment.gate = Some(bit as u32);
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

#[test]
fn a_site_reads_its_gate_once_and_first() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n\tret;\n}\n";
    let ast = warpbpf_ptx::index(text).unwrap();
    let fragment = counter(0, true);
    let one = |gate| Attachment {
        site: Site::Entry,
        scope: Scope::Thread,
        select: every(),
        fragment: &fragment,
        gate: Some(gate),
    };
    let (ptx, _) = slice(&ast, "k", &[one(3), one(5)], &OPTIONS).unwrap();
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let at = |part: &str| {
        let found = lines.iter().enumerate();
        let found = found.filter(|(_, line)| line.contains(part));
        found.map(|(line, _)| line).collect::<Vec<_>>()
    };
    let (read, group) = (
        at("ld.relaxed.gpu.global.u64 %wbpf_gate,"),
        at("activemask"),
    );
    assert_eq!((read.len(), group.len()), (1, 1), "{ptx}");
    assert!(read < group, "{ptx}");
    // Two that can be closed one by one: the whole group asks for each.
    assert_eq!(at("vote.sync.any.pred").len(), 2, "{ptx}");
    let (ptx, _) = slice(&ast, "k", &[one(3)], &OPTIONS).unwrap();
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
        gate: Some(2),
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
