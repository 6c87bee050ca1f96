//! What is refused, in which words, and that a clone leaves every original byte where it was.

use std::collections::BTreeMap;

use crate::common::{OPTIONS, arriver, attach, counter, counters, every};
use crate::words::{attached, wanted};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::{Fragment, SlotSpace};
use warpbpf_patch::{
    Attachment, Gate, Method, Options, PatchError, clone_in_module, list_sites, method, slice,
};

const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

fn sliced(text: &str, attachments: &[Attachment<'_>]) -> Result<String, PatchError> {
    let module = warpbpf_ptx::index(text).unwrap();
    slice(&module, "k", attachments, &OPTIONS).map(|(ptx, _)| ptx)
}

fn method_of(text: &str) -> Method {
    let text = format!("{HEAD}{text}");
    let module = warpbpf_ptx::index(&text).unwrap();
    method(&module, "k").unwrap()
}

fn refused(text: &str) -> (String, String) {
    match method_of(text) {
        Method::Refused { reason, advice } => (reason, advice),
        other => panic!("{other:?}"),
    }
}

fn reasons(text: &str) -> Vec<String> {
    match method_of(text) {
        Method::Clone { reasons } => reasons,
        other => panic!("{other:?}"),
    }
}

#[test]
fn kernels_that_cannot_be_instrumented_say_why() {
    let (reason, advice) =
        refused(".extern .func cudaLaunchDeviceV2;\n.entry k() { call cudaLaunchDeviceV2; ret; }");
    assert_eq!(
        reason,
        "it starts other kernels from the device (`cudaLaunchDeviceV2`)"
    );
    assert_eq!(
        advice,
        "instrument the kernels that it starts, if the host starts them too"
    );
    let (reason, advice) = refused(".extern .func f;\n.entry k() { call f; ret; }");
    assert_eq!(reason, "it calls `f`, which this module does not define");
    assert_eq!(
        advice,
        "build the application without relocatable device code (`-rdc=false`), or link it before loading"
    );
    let (reason, advice) = refused(
        ".extern .global .u32 g;\n.entry k() { .reg .b32 %r<2>; ld.global.u32 %r1, [g]; ret; }",
    );
    assert_eq!(
        reason,
        "it uses the variable `g`, which this module does not define"
    );
    assert_eq!(advice, "link the module before loading it");
    let (reason, advice) = refused(".entry k() { .global .u32 inner; ret; }");
    assert_eq!(
        reason,
        "`k` declares the `.global` variable `inner` inside its body, of which a copy would be another"
    );
    assert_eq!(advice, "declare it at module scope");
}

#[test]
fn a_refusal_is_the_same_error_in_both_ways() {
    let text = format!("{HEAD}.extern .func f;\n.entry k() {{ call f; ret; }}");
    let module = warpbpf_ptx::index(&text).unwrap();
    let expected = "kernel `k` cannot be instrumented: it calls `f`, which this module does not define; build the \
                    application without relocatable device code (`-rdc=false`), or link it before loading";
    assert_eq!(
        slice(&module, "k", &[], &OPTIONS).unwrap_err().to_string(),
        expected
    );
    let requests = [("k", Vec::new())];
    assert_eq!(
        clone_in_module(&module, &requests, &OPTIONS)
            .unwrap_err()
            .to_string(),
        expected
    );
}

#[test]
fn what_a_slice_may_not_have_is_named() {
    assert_eq!(
        reasons(".const .u32 c;\n.entry k() { .reg .b32 %r<2>; ld.const.u32 %r1, [c]; ret; }"),
        ["it uses the constant `c`, and each module has a constant bank of its own"]
    );
    assert_eq!(
        reasons(
            ".func f { ret; }\n.func g { .reg .b64 %rd<2>; mov.u64 %rd1, f; ret; }\n.entry k() { call g; call g; ret; }"
        ),
        ["`g` takes the address of function `f`, and function pointers belong to one module"]
    );
    assert_eq!(
        reasons(".global .surfref s;\n.entry k() { .reg .b64 %rd<2>; mov.u64 %rd1, s; ret; }"),
        ["it uses `s`, a surfref that the application binds in its own module"]
    );
    assert_eq!(
        reasons(".strange thing;\n.entry k() { ret; }"),
        ["its module has a `.strange` directive that is not known"]
    );
}

#[test]
fn what_the_driver_brings_is_allowed() {
    assert_eq!(
        method_of(".extern .func __assertfail;\n.entry k() { call __assertfail; ret; }"),
        Method::Slice
    );
    // Nobody calls what is undefined here.
    assert_eq!(
        method_of(".extern .func f;\n.entry k() { ret; }"),
        Method::Slice
    );
}

#[test]
fn modules_that_are_not_ours_to_change() {
    let error = sliced(&format!("{HEAD}.entry other() {{ ret; }}"), &[]).unwrap_err();
    assert_eq!(error.to_string(), "the module has no kernel `k`");
    let error = sliced(&format!("{HEAD}.func k {{ ret; }}"), &[]).unwrap_err();
    assert_eq!(error.to_string(), "the module has no kernel `k`");
    let error = sliced(
        ".version 8.3\n.target sm_90\n.address_size 32\n.entry k() { ret; }",
        &[],
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the module has 32-bit addresses; only 64-bit modules can be instrumented, recompile with `-m64`"
    );
    let text = format!("{HEAD}.const .b64 wbpf_slots[3];\n.entry k() {{ ret; }}");
    assert_eq!(
        sliced(&text, &[]).unwrap_err().to_string(),
        "the module is instrumented already: it declares `wbpf_slots`; detach the other warpbpf first"
    );
    let error = sliced(
        &format!("{HEAD}.func f {{ ret \n }}\n.entry k() {{ call f; ret; }}"),
        &[],
    )
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("kernel `k`: cannot read function `f`: PTX line "),
        "{text}"
    );
}

#[test]
fn old_modules_have_no_groups() {
    let fragments = counters();
    let text = ".version 6.1\n.target sm_70\n.address_size 64\n.entry k() { ret; }";
    let warp = attach(&fragments, |site, scope| {
        site == Site::Entry && scope == Scope::Warp
    });
    assert_eq!(
        sliced(text, &warp).unwrap_err().to_string(),
        "kernel `k`: `activemask` needs PTX 6.2 but the module is PTX 6.1; use `thread` scope or compile the kernel with \
         a newer nvcc"
    );
    let plain = attach(&fragments, |site, scope| {
        site == Site::Entry && scope != Scope::Warp
    });
    assert!(sliced(text, &plain).is_ok());
}

#[test]
fn groups_in_the_middle_need_activemask_too() {
    let text = ".version 6.1\n.target sm_70\n.address_size 64\n.entry k() { .reg .pred p; @p bra A; A: ret; }";
    for (word, fits) in [
        ("branch.thread:taken", true),
        ("branch.block", true),
        ("branch.thread:takenmask", false),
        ("branch.warp", false),
        ("insn.thread|lanes", false),
    ] {
        let wanted = [wanted(word, 0)];
        let made = sliced(text, &attached(&wanted));
        assert_eq!(made.is_ok(), fits, "{word}: {made:?}");
    }
}

#[test]
fn no_program_in_the_middle_leaves_a_count_open() {
    let text = format!("{HEAD}.entry k() {{ .local .u32 x; st.local.u32 [x], 1; ret; }}");
    let mut wanted = [wanted("mem.thread", 0), wanted("exit.warp", 0)];
    wanted[0].fragment.body = "\t{\n\texit;\n\t}\n".to_owned();
    let error = sliced(&text, &attached(&wanted)).unwrap_err().to_string();
    assert!(
        error.contains("a program ends threads (helper 507) while another waits"),
        "{error}"
    );
    assert!(sliced(&text, &attached(&wanted[..1])).is_ok());
}

#[test]
fn a_kernel_without_the_place_is_not_changed() {
    let text = format!("{HEAD}.visible .entry k() {{ ret; }}");
    let wanted = [wanted("mem.thread", 0), wanted("line.thread|at=a.cu:1", 0)];
    let ptx = sliced(&text, &attached(&wanted)).unwrap();
    assert!(ptx.ends_with(".visible .entry k() { ret; }\n"), "{ptx}");
    let error = list_sites(&warpbpf_ptx::index(&text).unwrap(), "j").unwrap_err();
    assert_eq!(error.to_string(), "the module has no kernel `j`");
}

#[test]
fn the_hidden_parameter_must_fit() {
    let fragments = counters();
    let block = attach(&fragments, |site, scope| {
        site == Site::Exit && scope == Scope::Block
    });
    let text = |version: &str, bytes: u64| {
        format!(
            ".version {version}\n.target sm_90\n.address_size 64\n.entry k(.param .b8 p[{bytes}]) {{ ret; }}"
        )
    };
    assert!(sliced(&text("8.0", 4328), &block).is_ok());
    assert_eq!(
        sliced(&text("8.0", 4329), &block).unwrap_err().to_string(),
        "kernel `k`: its parameters take 4329 bytes and with the launch's record and number 4360, more than the 4352 that \
         PTX allows; use `thread` scope, which needs no launch record, and do without `launch_id`, \
         `bpf_gpu_graph_node` and aggregates over blocks"
    );
    assert!(sliced(&text("8.1", 32736), &block).is_ok());
    assert!(matches!(
        sliced(&text("8.1", 32744), &block),
        Err(PatchError::Parameters {
            limit: 32764,
            total: 32768,
            ..
        })
    ));
    let strange = format!("{HEAD}.entry k(.param .b7 p) {{ ret; }}");
    assert_eq!(
        sliced(&strange, &block).unwrap_err().to_string(),
        "kernel `k`: parameter `p` has type `b7`, whose size is not known"
    );
}

#[test]
fn a_program_that_ends_threads_leaves_no_count_open() {
    let text = format!("{HEAD}.entry k() {{ ret; }}");
    let leaving = Fragment {
        body: "\t{\n\texit;\n\t}\n".to_owned(),
        ..Fragment::default()
    };
    let counting = counter(5, false);
    let attachments = [
        Attachment {
            site: Site::Entry,
            scope: Scope::Thread,
            select: every(),
            fragment: &leaving,
            gate: None,
            choice: None,
        },
        Attachment {
            site: Site::Exit,
            scope: Scope::Block,
            select: every(),
            fragment: &counting,
            gate: None,
            choice: None,
        },
    ];
    assert_eq!(
        sliced(&text, &attachments).unwrap_err().to_string(),
        "kernel `k` cannot be instrumented: a program ends threads (helper 507) while another waits for all threads of a \
         warp or block to leave; use `thread` scope at exit, or do without the helper"
    );
    assert!(sliced(&text, &attachments[..1]).is_ok());
}

#[test]
fn an_aggregate_over_the_block_is_left_open_by_nobody() {
    let text = format!("{HEAD}.entry k() {{ ret; }}");
    let aggregates = arriver(1);
    let leaving = Fragment {
        body: "\t{\n\texit;\n\t}\n".to_owned(),
        ..Fragment::default()
    };
    let placed = |site, fragment| Attachment {
        site,
        scope: Scope::Thread,
        select: every(),
        fragment,
        gate: None,
        choice: None,
    };
    for site in [Site::Entry, Site::Exit] {
        let mut attachments = [placed(site, &aggregates), placed(Site::Entry, &leaving)];
        assert_eq!(
            sliced(&text, &attachments).unwrap_err().to_string(),
            "kernel `k` cannot be instrumented: a program ends threads (helper 507) while another aggregates over all threads \
             of their block; do without one of them"
        );
        assert!(sliced(&text, &attachments[..1]).is_ok());
        attachments[0].gate = Some(Gate::Program(3));
        assert_eq!(
            sliced(&text, &attachments[..1]).unwrap_err().to_string(),
            "kernel `k` cannot be instrumented: a program aggregates over its block, and a gate may keep some of the block's \
             threads from it; do without the gate, or add to a value of a map"
        );
    }
    // Where threads end in a function that the launch record cannot be handed to.
    let text = format!(
        "{HEAD}.func f(.reg .b32 x) {{ exit; }} .entry k() {{ .reg .b32 r; mov.b32 r, 1; call f, (r); ret; }}"
    );
    assert!(sliced(&text, &[placed(Site::Entry, &aggregates)]).is_ok());
    assert_eq!(
        sliced(&text, &[placed(Site::Exit, &aggregates)])
            .unwrap_err()
            .to_string(),
        "kernel `k` cannot be instrumented: its function `f` ends threads by `exit` and takes its parameters in registers, so \
         that the launch record cannot be handed to it; aggregate over blocks at entry"
    );
}

#[test]
fn mistakes_of_the_caller_are_reported() {
    let text = format!("{HEAD}.entry k() {{ ret; }}");
    let module = warpbpf_ptx::index(&text).unwrap();
    let fragment = counter(0, false);
    let attachment = Attachment {
        site: Site::Entry,
        scope: Scope::Thread,
        select: every(),
        fragment: &fragment,
        gate: None,
        choice: None,
    };
    let options = Options {
        first_global_slot: 1,
        ..OPTIONS
    };
    assert_eq!(
        slice(&module, "k", &[attachment], &options)
            .unwrap_err()
            .to_string(),
        "a fragment reads slot 1, but slots from 1 on are for globals"
    );
    let with = |body: &str| Fragment {
        functions: BTreeMap::from([("wbpf_f".to_owned(), body.to_owned())]),
        ..counter(0, false)
    };
    let (one, two) = (
        with(".func wbpf_f { ret; }"),
        with(".func wbpf_f { trap; }"),
    );
    let attachments = [&one, &one, &two].map(|fragment| Attachment {
        fragment,
        ..attachment
    });
    assert_eq!(
        slice(&module, "k", &attachments, &OPTIONS)
            .unwrap_err()
            .to_string(),
        "two fragments define the function `wbpf_f` differently"
    );
    let (ptx, _) = slice(&module, "k", &attachments[..2], &OPTIONS).unwrap();
    assert_eq!(ptx.matches(".func wbpf_f").count(), 1);
    let requests = [("k", vec![attachment]), ("k", vec![attachment])];
    assert_eq!(
        clone_in_module(&module, &requests, &OPTIONS)
            .unwrap_err()
            .to_string(),
        "kernel `k` is requested twice; put all attachments into one request"
    );
}

#[test]
fn a_clone_leaves_every_original_byte() {
    let fragments = counters();
    let all = attach(&fragments, |_, _| true);
    let original =
        format!("// first\r\n{HEAD}// second\n.entry k() {{ ret; }} // last, without a line's end");
    let module = warpbpf_ptx::index(&original).unwrap();
    let (ptx, _) = clone_in_module(&module, &[("k", all)], &OPTIONS).unwrap();
    let (head, rest) = original.split_at(module.header_end);
    assert!(ptx.starts_with(head));
    let at = ptx.find(rest).unwrap();
    assert!(ptx[at + rest.len()..].starts_with('\n'));
    assert!(
        ptx[head.len()..at]
            .trim()
            .starts_with(".visible .const .align 8 .b64 wbpf_slots[2];")
    );
    // What we made is read as instrumented.
    assert!(matches!(
        method(&warpbpf_ptx::index(&ptx).unwrap(), "k"),
        Err(PatchError::AlreadyInstrumented { .. })
    ));
}

#[test]
fn the_slot_table_fits_beside_the_constants() {
    let text = |bytes: u32| format!("{HEAD}.const .b8 c[{bytes}];\n.entry k() {{ ret; }}");
    let cloned = |text: &str, options: &Options| {
        let module = warpbpf_ptx::index(text).unwrap();
        clone_in_module(&module, &[("k", Vec::new())], options).map(|(ptx, _)| ptx)
    };
    assert!(cloned(&text(65536 - 16), &OPTIONS).is_ok());
    assert_eq!(
        cloned(&text(65536 - 15), &OPTIONS).unwrap_err().to_string(),
        "the module's constants take 65521 bytes, and with the slot table 65537 do not fit the constant bank of 65536; \
         put the slot table into `.global`"
    );
    let global = Options {
        slot_space: SlotSpace::Global,
        ..OPTIONS
    };
    let ptx = cloned(&text(65536), &global).unwrap();
    assert!(ptx.contains(".visible .global .align 8 .b64 wbpf_slots[2];"));
}

#[test]
fn a_variant_says_how_many_registers_it_may_have() {
    let text = format!(
        "{HEAD}.visible .const .b32 c;\n.visible .entry k() {{ .reg .b32 %r; ld.const.u32 %r, [c]; ret; }}\n\
         .visible .entry own() .maxnreg 64\n{{ .reg .b32 %r; ld.const.u32 %r, [c]; ret; }}"
    );
    let module = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let attached = || {
        attach(&fragments, |site, scope| {
            site == Site::Entry && scope == Scope::Thread
        })
    };
    let requests = [("k", attached()), ("own", attached())];
    let options = Options {
        max_registers: Some(40),
        ..OPTIONS
    };
    let (ptx, _) = clone_in_module(&module, &requests, &options).unwrap();
    assert!(
        ptx.contains(".visible .entry wbpf_kernel_k()\n.maxnreg 40 {"),
        "{ptx}"
    );
    // What the application says of its kernel is lowered in ours and stays in its own.
    assert!(
        ptx.contains(".visible .entry wbpf_kernel_own() .maxnreg 40\n{"),
        "{ptx}"
    );
    assert!(
        ptx.contains(".visible .entry own() .maxnreg 64\n{"),
        "{ptx}"
    );
    assert!(ptx.contains(".visible .entry k() {"), "{ptx}");
    let bounded = format!("{HEAD}.visible .entry k() .maxntid 128 {{ ret; }}");
    let module = warpbpf_ptx::index(&bounded).unwrap();
    let (ptx, _) = slice(&module, "k", &attached(), &options).unwrap();
    assert!(
        ptx.contains(".visible .entry k()\n.maxnreg 40 .maxntid 128 {"),
        "{ptx}"
    );
}

#[test]
fn names_like_ours_are_refused() {
    let wanted = [wanted("mem.thread", 0)];
    for kernel in [
        "k() { .reg .b32 %wbpf_mask; ret; }",
        // Nobody reads it, but ours may be called so.
        "k(.param .u64 wbpf_launch) { ret; }",
        "k() { .reg /* a mask */ .b32 %wbpf_mask; ret; }",
    ] {
        let text = format!("{HEAD}.visible .entry {kernel}");
        let error = sliced(&text, &attached(&wanted)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `k` cannot be instrumented: `k` has names with `wbpf_` in them, which warpbpf's own code has; name them otherwise"
        );
    }
    for comment in ["// as %wbpf_mask\n", "/* wbpf_launch */"] {
        let text = format!(
            "{HEAD}.visible .entry k() {{ .reg .b32 {comment} %mask, {comment} %other; {comment} ret; }}"
        );
        assert!(sliced(&text, &attached(&wanted)).is_ok(), "{comment}");
    }
}
