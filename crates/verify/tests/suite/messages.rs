//! How a rejection looks to people: whole texts.

use std::sync::Arc;

use crate::common::{code, maps, platform};
use warpbpf_ebpf::Pc;
use warpbpf_object::{FunctionInfo, LineInfo, Program};
use warpbpf_verify::{Rejection, verify};

fn program() -> Program {
    let code = code(
        "r6 = *(u32 *)(r1 + 48)\nif r6 > 3 goto out\n*(u32 *)(r10 - 4) = 16\nr2 = r10\nr2 += -4\nr1 = map[0]\ncall 1\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nout:\nr0 = 0\nexit",
    );
    let line = |pc: u32, line: u32, text: &str| LineInfo {
        pc: Pc(pc),
        file: Arc::from("count.bpf.c"),
        line,
        column: 7,
        text: Arc::from(text),
    };
    let end = Pc(code.insns().len() as u32);
    Program {
        name: "count".to_owned(),
        section: "gpu/entry/*".to_owned(),
        code,
        functions: vec![FunctionInfo {
            name: "count".to_owned(),
            start: Pc(0),
            end,
            btf: None,
        }],
        lines: vec![
            line(0, 12, "if (ctx->lane <= 3) {"),
            line(2, 13, "u64 *v = bpf_map_lookup_elem(&counts, &key);"),
            line(7, 14, "\t\t(*v)++;"),
            line(10, 16, "return 0;"),
        ],
        unresolved: std::collections::BTreeMap::new(),
    }
}

fn rejection() -> Box<Rejection> {
    verify(program(), &maps(), &platform())
        .err()
        .unwrap_or_else(|| panic!("accepted"))
}

#[test]
fn one_line_says_what_where_and_what_to_do() {
    assert_eq!(
        rejection().to_string(),
        "`count` is refused: instruction 8 (count.bpf.c:14:7): `r0` may be null here: it is a pointer to a value of map `counts`, or null; compare it with NULL first and use it only where it is not"
    );
}

#[test]
fn the_long_form_shows_source_instruction_values_and_path() {
    assert_eq!(
        rejection().render(),
        "\
error[maybe-null]: `r0` may be null here: it is a pointer to a value of map `counts`, or null
  --> count.bpf.c:14:7
   |
14 |         (*v)++;
   |             ^^ instruction 8: r1 = *(u64 *)(r0 + 0)
   |
   = note: r0 is a pointer to a value of map `counts`, or null
   = note: on this path:
             count.bpf.c:12: `if (ctx->lane <= 3) {`: instruction 1 (`if r6 > 3 goto +9`) not taken
   = help: compare it with NULL first and use it only where it is not"
    );
}

#[test]
fn without_lines_the_instruction_stands_alone() {
    let r = verify(code("r0 = r3\nexit"), &maps(), &platform())
        .err()
        .unwrap_or_else(|| panic!("accepted"));
    assert_eq!(
        r.render(),
        "\
error[uninitialised]: `r3` is read but holds nothing: nothing was written to it
  |
0 | r0 = r3
  | ^^^^^^^
  |
  = help: set it on every path that leads here"
    );
    assert_eq!(r.rule.name(), "uninitialised");
}

#[test]
fn what_is_passed_for_an_address_is_told_how() {
    let help = |text: &str| {
        let r = verify(code(text), &maps(), &platform()).err();
        r.unwrap_or_else(|| panic!("accepted")).help()
    };
    assert_eq!(
        help("r1 = map[0]\nr2 = 5\ncall 1\nexit"),
        "pass its address: `&key`, of a variable that holds it"
    );
    assert_eq!(
        help(
            "*(u32 *)(r10 - 4) = 0\nr1 = map[0]\nr2 = r10\nr2 += -4\nr3 = 5\nr4 = 0\ncall 2\nexit"
        ),
        "pass its address: `&value`, of a variable that holds it"
    );
    assert_eq!(
        help("r1 = map[1]\nr2 = 5\nr3 = 8\nr4 = 0\ncall 130\nexit"),
        "pass the address of a variable: `&x`"
    );
    assert_eq!(
        help("r1 = 5\nr2 = r10\nr2 += -4\ncall 1\nexit"),
        "pass the map's address: `&map`"
    );
    // A pointer of the wrong kind is another mistake.
    assert_eq!(
        help("r2 = r1\nr1 = map[1]\nr3 = 8\nr4 = 0\ncall 131\nexit"),
        "see the helper's prototype in `warpbpf.h`"
    );
    assert!(
        help("r1 = *(u64 *)(r1 + 104)\nr0 = *(u64 *)(r1 + 0)\nexit")
            .contains("`bpf_probe_read_user(&x, sizeof x, address)`")
    );
}
