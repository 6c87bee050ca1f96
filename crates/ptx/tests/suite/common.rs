//! Operations written as PTX writes them.

use warpbpf_ptx::eval::{Bits, LANES, Op, SOURCES, eval, eval_lanes, eval_warp};

/// `mad.lo.s32` decoded.
pub fn decode(name: &str) -> Option<Op> {
    let mut words = name.split('.');
    let opcode = words.next()?;
    Op::decode(opcode, &words.collect::<Vec<_>>())
}

/// The operation of `name` on `sources`; it must take exactly that many, an implicit carry
/// included.
pub fn op(name: &str, sources: usize) -> Op {
    let op = decode(name).unwrap_or_else(|| panic!("`{name}` is not decoded"));
    let op = op
        .for_sources(sources - usize::from(op.reads_carry()))
        .unwrap_or_else(|| panic!("`{name}` takes no {sources} sources"));
    assert_eq!(op.sources(), sources, "`{name}`");
    op
}

/// Both results, after checking that warps agree with single lanes, masked lanes stay and high
/// source bits are ignored.
pub fn both(name: &str, sources: &[Bits]) -> [Bits; 2] {
    let op = op(name, sources.len());
    let expected = eval(op, sources);
    let mut rows = [[0; LANES]; SOURCES];
    for (row, source) in rows.iter_mut().zip(sources) {
        *row = [*source; LANES];
    }
    let [a, b, c, d, e] = &rows;
    for mask in [u32::MAX, 0x8000_0101, 0] {
        let expect = |result: Bits| {
            std::array::from_fn(|lane| if mask >> lane & 1 == 1 { result } else { 77 })
        };
        let (mut first, mut second) = ([77; LANES], [77; LANES]);
        eval_warp(op, &mut first, &mut second, [a, b, c, d, e], mask);
        assert_eq!(first, expect(expected[0]), "`{name}` {sources:x?}");
        if second != [77; LANES] {
            assert_eq!(second, expect(expected[1]), "`{name}` {sources:x?}");
        }
        if sources.len() <= 3 {
            let mut first = [77; LANES];
            eval_lanes(op, &mut first, a, b, c, mask);
            assert_eq!(first, expect(expected[0]), "`{name}` {sources:x?}");
        }
    }
    expected
}

pub fn one(name: &str, sources: &[Bits]) -> Bits {
    both(name, sources)[0]
}

/// Rows of sources and the result.
pub fn table(name: &str, rows: &[(&[Bits], Bits)]) {
    for (sources, expected) in rows {
        let found = one(name, sources);
        assert_eq!(
            found, *expected,
            "`{name}` {sources:x?}: {found:#x} for {expected:#x}"
        );
    }
}
