//! Programs as functions for machine code: what the function is, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Select, bake, tools_function};

fn text(site: Site, scope: Scope, fragment: &Fragment) -> Result<String, String> {
    let select = Select::default();
    let attachment = Attachment {
        site,
        scope,
        select: &select,
        fragment,
        gate: None,
    };
    tools_function("probe", ("sm_90", 90), (8, 0), site, &[attachment]).map_err(|e| e.to_string())
}

fn counter() -> Fragment {
    Fragment {
        body: "\t{\n\t.reg .b64 %wbpf_m;\n\tld.const.u64 %wbpf_m, [wbpf_slots+8];\n\tred.global.add.u64 [%wbpf_m], 1;\n\t}\n".to_owned(),
        slots: BTreeSet::from([1]),
        ..Fragment::default()
    }
}

#[test]
fn a_function_with_addresses_in_it() {
    let text = text(Site::Entry, Scope::Thread, &counter()).unwrap();
    assert_eq!(
        bake(&text, &[0, 0x7f00]).unwrap(),
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .func (.param .b32 wbpf_result) probe(.param .b64 wbpf_userdata, .param .b64 wbpf_pc)\n{\n\t{\n\t.reg .b64 %wbpf_m;\n\tmov.b64 %wbpf_m, 0x7f00;\n\tred.global.add.u64 [%wbpf_m], 1;\n\t}\n\tst.param.b32 [wbpf_result], 0;\n\tret;\n}\n"
    );
}

#[test]
fn a_leader_is_elected_at_the_entry() {
    for scope in [Scope::Warp, Scope::Block] {
        let text = text(Site::Entry, scope, &counter()).unwrap();
        assert!(text.contains("@%wbpf_p bra "), "{text}");
    }
    let with = Fragment {
        functions: BTreeMap::from([("f".to_owned(), ".func f()\n{\n\tret;\n}\n".to_owned())]),
        ..counter()
    };
    let text = text(Site::Exit, Scope::Thread, &with).unwrap();
    assert_eq!(text.matches(".func f()").count(), 1);
    assert!(text.find(".func f()") < text.find(".visible .func"));
}

#[test]
fn what_only_ptx_has_is_refused_by_name() {
    let refused = |site, scope, fragment: &Fragment| text(site, scope, fragment).unwrap_err();
    assert_eq!(
        refused(Site::Exit, Scope::Block, &counter()),
        "`block` scope at exit is not to be had in a kernel without PTX; use `thread` scope, since arrivals are counted in a parameter that the kernel does not have"
    );
    assert_eq!(
        refused(Site::Mem, Scope::Thread, &counter()),
        "a program at `mem` is not to be had in a kernel without PTX; use `entry` or `exit`"
    );
    for (capture, name) in [
        (Capture::Arg(2), "`args[2]`"),
        (Capture::ArgCount, "`arg_count`"),
        (Capture::Launch, "`launch_id`"),
    ] {
        let fragment = Fragment {
            captures: BTreeSet::from([capture]),
            ..counter()
        };
        assert_eq!(
            refused(Site::Entry, Scope::Thread, &fragment),
            format!("{name} is not to be had in a kernel without PTX; do without it")
        );
    }
    let ends = Fragment {
        body: "\t{\n\texit;\n\t}\n".to_owned(),
        ..Fragment::default()
    };
    assert_eq!(
        refused(Site::Entry, Scope::Thread, &ends),
        "helper 507 (it ends the thread) is not to be had in a kernel without PTX; do without it"
    );
}
