//! Lanes that came to a place together are together behind it: where they may go through the code
//! differently they meet, and only there.

use crate::common::{OPTIONS, adder, every, ptxas, scratch};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Gate, Options, slice};

const BRANCH: &str = "{\n\t.reg .pred %q;\n\t.reg .b32 %s;\n\tmov.u32 %s, %laneid;\n\tsetp.ne.u32 %q, %s, 0;\n\t@%q bra out;\nout:\n}\n";
const STRAIGHT: &str = "{\n\t.reg .b32 %q;\n\tmov.u32 %q, %laneid;\n}\n";

fn fragment(body: &str) -> Fragment {
    Fragment {
        body: body.to_owned(),
        ..Fragment::default()
    }
}

fn kernel(version: &str) -> String {
    format!(
        ".version {version}\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\t.reg .pred %p;\n\t.reg .b32 %r;\n\t.reg .b64 %a;\n\
         \tld.param.u64 %a, [p];\n\tmov.u32 %r, %laneid;\n\tsetp.ne.u32 %p, %r, 3;\n\tst.global.u32 [%a], %r;\n\tbar.sync 0;\n\t@%p st.global.u32 [%a+4], %r;\n\tret;\n}}\n"
    )
}

/// The kernel with one program, line by line.
fn lines(
    version: &str,
    site: Site,
    (scope, gate): (Scope, Option<Gate>),
    fragment: &Fragment,
    options: &Options,
) -> Vec<String> {
    let text = kernel(version);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let attachment = Attachment {
        site,
        scope,
        select: every(),
        fragment,
        gate,
        choice: None,
    };
    let (ptx, _) = slice(&ast, "k", &[attachment], options).unwrap();
    // Tests run side by side.
    let thread = std::thread::current().id();
    ptxas(&scratch("rejoin"), &format!("{thread:?}"), &ptx, "75", &[]);
    ptx.lines().map(|line| line.trim().to_owned()).collect()
}

/// Where lanes meet, each with the register of the mask and where that is set.
fn meetings(lines: &[String]) -> Vec<(usize, usize)> {
    let found = lines.iter().enumerate();
    let found = found.filter_map(|(at, line)| {
        let mask = line
            .strip_prefix("bar.warp.sync ")?
            .strip_suffix(';')?
            .to_owned();
        let set = format!("activemask.b32 {mask};");
        let from = lines[..at].iter().rposition(|line| *line == set);
        Some((from.expect("the mask is set before"), at))
    });
    found.collect()
}

fn at(lines: &[String], what: &str) -> usize {
    let found = lines.iter().position(|line| line.contains(what));
    found.unwrap_or_else(|| panic!("no `{what}` in\n{}", lines.join("\n")))
}

#[test]
fn straight_code_has_no_meeting_and_branches_have_one() {
    let (straight, branch) = (fragment(STRAIGHT), fragment(BRANCH));
    let plain = (Scope::Thread, None);
    for site in [Site::Entry, Site::Barrier] {
        let of = |fragment| meetings(&lines("8.0", site, plain, fragment, &OPTIONS)).len();
        assert_eq!((of(&straight), of(&branch)), (0, 1), "{site:?}");
    }
    // One access is guarded: some lanes go around its code.
    let with = lines("8.0", Site::Mem, plain, &straight, &OPTIONS);
    let [(mask, meets)] = meetings(&with)[..] else {
        panic!("{with:?}");
    };
    let (around, label) = (at(&with, "@!%p bra wbpf_skip_"), at(&with, "@%p st.global"));
    assert!(mask < around && around < meets && meets < label, "{with:?}");
    assert!(at(&with, "st.global.u32 [%a], %r;") < mask, "{with:?}");
    let of = |fragment| meetings(&lines("8.0", Site::Mem, plain, fragment, &OPTIONS)).len();
    // The parameter is read, too.
    assert_eq!(of(&branch), 3);
}

#[test]
fn calls_elections_and_gates_take_lanes_apart() {
    let straight = fragment(STRAIGHT);
    let plain = (Scope::Thread, None);
    let out_of_line = Options {
        out_of_line: true,
        ..OPTIONS
    };
    let gate = (Scope::Thread, Some(Gate::Program(3)));
    for site in [Site::Entry, Site::Barrier] {
        let called = lines("8.0", site, plain, &straight, &out_of_line);
        assert_eq!(meetings(&called).len(), 1, "{site:?}");
        for scope in [Scope::Warp, Scope::Block] {
            let led = lines("8.0", site, (scope, None), &straight, &OPTIONS);
            assert_eq!(meetings(&led).len(), 1, "{site:?} {scope:?}");
        }
        // Also those meet that the gate keeps from all of it.
        let gated = lines("8.0", site, gate, &straight, &OPTIONS);
        let [(mask, meets)] = meetings(&gated)[..] else {
            panic!("{gated:?}");
        };
        let leaves = at(&gated, "@%wbpf_shut bra ");
        let label = gated[leaves].replace("@%wbpf_shut bra ", "");
        let back = at(&gated, &label.replace(';', ":"));
        assert!(mask < leaves && leaves < back && back < meets, "{gated:?}");
    }
}

#[test]
fn no_meeting_where_nothing_follows_or_the_module_is_too_old() {
    let plain = (Scope::Thread, None);
    let branch = fragment(BRANCH);
    let exit = lines("8.0", Site::Exit, plain, &branch, &OPTIONS);
    assert_eq!(meetings(&exit), []);
    let old = lines("6.1", Site::Mem, plain, &branch, &OPTIONS);
    assert_eq!(meetings(&old), []);
    // What adds and asks for nothing costs nothing.
    let counts = adder(0, &[]);
    assert_eq!(
        meetings(&lines("8.0", Site::Entry, plain, &counts, &OPTIONS)),
        []
    );
}
