//! Constant expressions: their values, and what has none.

use warpbpf_ptx::constant::{
    Address, Constant, Initialiser, evaluate, evaluate_address, initialiser,
};

fn strides(name: &str) -> Option<Vec<u64>> {
    (name == "table").then(|| vec![12, 4])
}

fn value(text: &str) -> String {
    match evaluate(text, &strides) {
        Ok(Constant::Signed(value)) => format!("s{value}"),
        Ok(Constant::Unsigned(value)) => format!("u{value}"),
        Ok(Constant::F32(bits)) => format!("f{bits:x}"),
        Ok(Constant::F64(value)) => format!("d{value}"),
        Ok(Constant::Address(address)) => {
            let index = address
                .index
                .map(|(register, by)| format!("[{register}*{by}]"));
            let mask = address.mask.map(|mask| format!("&{mask:x}"));
            format!(
                "{}{}{}+{}{}",
                if address.is_generic { "generic " } else { "" },
                address.name,
                index.unwrap_or_default(),
                address.offset,
                mask.unwrap_or_default()
            )
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn values() {
    let rows = [
        ("1 + 2 * 3", "s7"),
        ("(1 + 2) * 3", "s9"),
        ("10 - 4 - 3", "s3"),
        ("-7 / 2", "s-3"),
        ("-7 % 4", "s-3"),
        ("7U / 2", "u3"),
        ("-1 > 0", "s0"),
        ("-1 > 0U", "s1"),
        ("0xffffffffffffffff", "u18446744073709551615"),
        ("0xffffffffffffffff >> 60", "u15"),
        ("-16 >> 2", "s-4"),
        ("1 << 64", "s0"),
        ("1 << 2 >> 1", "s2"),
        ("(.u64) -1 / 2", "u9223372036854775807"),
        ("(.s64) 5U", "s5"),
        ("!5", "s0"),
        ("!0 + ~0", "s0"),
        ("1 | 2 ^ 3 & 2", "s1"),
        ("1 || 0 && 0", "s1"),
        ("3 <= 3 == 1", "s1"),
        ("1 ? 2 : 0 ? 3 : 4", "s2"),
        ("0 ? 2 : 0 ? 3 : 4", "s4"),
        ("1.5 + 2", "d3.5"),
        ("1.5 < 2.0", "s1"),
        ("-0f3F800000", "fbf800000"),
        ("WARP_SZ / 2", "s16"),
        ("1 /* one */ + // more\n 1", "s2"),
        ("name + 4 * 2", "name+8"),
        ("name - 4", "name+-4"),
        ("generic(name) + 8", "generic name+8"),
        ("0xff00(name)", "name+0&ff00"),
        ("table[2]", "table+24"),
        ("table[2][1]", "table+28"),
        ("table[%r1]", "table[%r1*12]+0"),
        ("table[%r1 + 2]", "table[%r1*12]+24"),
        ("1 / 0", "`1 / 0` divides by zero"),
        ("5 % (1 - 1)", "`5 % (1 - 1)` divides by zero"),
        ("1 +", "`1 +` is not a constant expression"),
        ("(1", "`(1` is not a constant expression"),
        ("1 2", "`1 2` is not a constant expression"),
        (
            "1.5 % 2.0",
            "`%` in `1.5 % 2.0` does not take these operands",
        ),
        ("name * 2", "`*` in `name * 2` does not take these operands"),
        ("4 + name", "`+` in `4 + name` does not take these operands"),
        ("~1.0", "`~` in `~1.0` does not take these operands"),
        (
            "name[1]",
            "`name` in `name[1]` is not an array of that many dimensions",
        ),
        (
            "table[1][1][1]",
            "`table` in `table[1][1][1]` is not an array of that many dimensions",
        ),
    ];
    let mut wrong = String::new();
    for (text, expected) in rows {
        let found = value(text);
        if found != expected {
            wrong += &format!("{text}: {found}, not {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn deep_brackets_end_in_an_error() {
    for open in ["(", "-", "!", "1 ? ", "table["] {
        let text = open.repeat(100_000);
        assert!(evaluate(&text, &strides).is_err(), "{open}");
    }
    assert!(initialiser(&"{".repeat(100_000), &strides).is_err());
}

#[test]
fn addresses_and_initialisers() {
    let address = |text| match evaluate_address(text, &strides) {
        Ok(Constant::Address(Address { name, offset, .. })) => Some((Some(name), offset)),
        Ok(Constant::Signed(value)) => Some((None, value)),
        _ => None,
    };
    assert_eq!(address("[%rd1 + 4*2]"), Some((Some("%rd1"), 8)));
    assert_eq!(address("[a+(8)].unified"), Some((Some("a"), 8)));
    assert_eq!(address("table[1]"), Some((Some("table"), 12)));
    assert_eq!(address("[4 << 1]"), Some((None, 8)));
    assert_eq!(address("[generic(a)]"), None);
    assert_eq!(address("[1.5]"), None);
    let list = initialiser("{ 1, // one\n {2, /* three */ 3}, {} }", &strides).expect("a list");
    let one = |value| Initialiser::Value(Constant::Signed(value));
    let inner = Initialiser::List(vec![one(2), one(3)]);
    assert_eq!(
        list,
        Initialiser::List(vec![one(1), inner, Initialiser::List(vec![])])
    );
    for text in ["{1, 2,}", "{1 2}", "{1", "1}", ""] {
        assert!(initialiser(text, &strides).is_err(), "{text}");
    }
}
