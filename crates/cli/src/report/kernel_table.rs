//! Kernels of a report as a table: what ran with programs, what that cost it, and which families
//! they are of.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use warpbpf_session::short_name::{family, short};
use warpbpf_wire::Occupancy;

use crate::report::model::Kernel;
use crate::report::table::{Table, counted, group};
use crate::term::plain;

/// Kernels that were not launched are only counted where there are more rows.
const MOST: usize = 24;
/// So many kernels are not looked over at once: their families are told.
const MANY: usize = 8;

/// Appends the table; `with_counts` for a report, else for a listing.
pub fn kernel_table(out: &mut String, kernels: &[Kernel], with_counts: bool) {
    if !with_counts {
        let mut table = Table::new(&["kernel", "registers", "source", "method"]);
        for kernel in kernels {
            table.row(vec![
                kernel.name.clone(),
                registers(kernel),
                kernel.source.clone(),
                kernel.method.to_string(),
            ]);
        }
        table.write(out);
        return;
    }
    // A column that has nothing to say of any kernel is left away.
    let any = |says: fn(&Kernel) -> bool| kernels.iter().any(says);
    let sites = any(|k| k.sites > 0);
    let local = any(|k| k.local_bytes.is_some_and(|(b, a)| b.max(a) > 0));
    let shared = any(|k| k.shared_bytes.is_some_and(|(b, a)| b != a));
    let blocks = any(|k| k.occupancy.is_some());
    let skipped = any(|k| k.skipped > 0);
    let mut heads = vec!["kernel", "launches", "uninstrumented"];
    heads.extend(skipped.then_some("skipped"));
    let unwanted = any(|k| k.unwanted > 0);
    heads.extend(unwanted.then_some("unwanted"));
    heads.extend(sites.then_some("sites"));
    heads.push("registers");
    heads.extend(local.then_some("local bytes"));
    heads.extend(shared.then_some("shared bytes"));
    heads.extend(blocks.then_some("blocks/SM"));
    heads.push("method");
    let mut table = Table::new(&heads);
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for kernel in kernels {
        *rows.entry(short(&kernel.name)).or_default() += 1;
    }
    // A name that stands for one row alone, so that it can be used as a glob.
    let name = |kernel: &Kernel| {
        let short = short(&kernel.name);
        match rows.get(&short) {
            Some(1) => short,
            _ => kernel.name.clone(),
        }
    };
    let idle = |k: &&Kernel| k.launches + k.uninstrumented + k.skipped + k.unwanted == 0;
    let folds = kernels.len() > MOST && !kernels.iter().all(|k| idle(&k));
    for kernel in kernels.iter().filter(|k| !folds || !idle(k)) {
        let pair = |pair: Option<(u32, u32)>| pair.map_or_else(String::new, change);
        let mut row = vec![
            name(kernel),
            group(kernel.launches.into()),
            group(kernel.uninstrumented.into()),
        ];
        row.extend(skipped.then(|| group(kernel.skipped.into())));
        row.extend(unwanted.then(|| group(kernel.unwanted.into())));
        row.extend(sites.then(|| group(kernel.sites.into())));
        row.push(registers(kernel));
        row.extend(local.then(|| pair(kernel.local_bytes)));
        row.extend(shared.then(|| pair(kernel.shared_bytes)));
        row.extend(blocks.then(|| pair(kernel.occupancy.map(|o| (o.before, o.after)))));
        row.push(kernel.method.to_string());
        table.row(row);
    }
    table.write(out);
    let folded = kernels.iter().filter(idle).count();
    if folds && folded > 0 {
        let counted = counted(folded as u128, "kernel");
        let _ = writeln!(out, "  {counted} that were not launched");
    }
    for kernel in kernels.iter().filter(|k| !k.programs.is_empty()) {
        let of = |(program, launches): &(String, u64)| {
            format!("`{program}` in {}", group((*launches).into()))
        };
        let programs: Vec<String> = kernel.programs.iter().map(of).collect();
        let _ = writeln!(
            out,
            "  launches of `{}` by program: {}",
            plain::name(&name(kernel)),
            plain::name(&programs.join(", "))
        );
    }
    families(out, kernels);
    for kernel in kernels {
        for warning in kernel_warnings(kernel) {
            let _ = writeln!(out, "  warning: {}", plain::message(&warning));
        }
    }
}

/// Many kernels of few families, as libraries choose them.
fn families(out: &mut String, kernels: &[Kernel]) {
    let launched: Vec<&Kernel> = kernels.iter().filter(|k| k.launches > 0).collect();
    let mut families: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for kernel in &launched {
        let (members, launches) = families.entry(family(&kernel.name)).or_default();
        *members += 1;
        *launches += kernel.launches;
    }
    if launched.len() <= MANY || families.len() == launched.len() {
        return;
    }
    let mut rows: Vec<_> = families.into_iter().collect();
    rows.sort_by_key(|(_, (_, launches))| std::cmp::Reverse(*launches));
    let mut table = Table::new(&["family", "kernels", "launches"]);
    for (name, (members, launches)) in rows {
        table.row(vec![name, group(members as u128), group(launches.into())]);
    }
    out.push('\n');
    table.write(out);
}

fn registers(kernel: &Kernel) -> String {
    match kernel.registers {
        Some((before, _)) if !kernel.instrumented => before.to_string(),
        Some(pair) => change(pair),
        None => "?".into(),
    }
}

fn change((before, after): (u32, u32)) -> String {
    if before == after {
        before.to_string()
    } else {
        format!("{before} → {after}")
    }
}

/// What probes cost a kernel beyond their own time, or could not do, with the ways out.
fn kernel_warnings(kernel: &Kernel) -> Vec<String> {
    let name = &kernel.name;
    let mut warnings = Vec::new();
    if let Some(room) = kernel.occupancy.filter(|room| room.after < room.before) {
        let mut ways = Vec::new();
        if let (Some(limit), Some((_, after))) = (registers_for(room), kernel.registers)
            && limit < after
        {
            ways.push(format!("`--max-registers {limit}`"));
        }
        ways.push("`--out-of-line`".into());
        warnings.push(format!(
            "probes cost `{name}` occupancy: blocks of {} threads per SM {} → {}; try {}",
            room.block_threads,
            room.before,
            room.after,
            ways.join(" or ")
        ));
    }
    warnings.extend(
        kernel
            .compiler_warnings
            .iter()
            .map(|warning| format!("`{name}` with probes: {warning}")),
    );
    warnings.extend(kernel.left_out.iter().map(|(reason, count)| {
        format!(
            "{} in `{name}` left out: {reason}",
            counted((*count).into(), "site")
        )
    }));
    warnings
}

/// The most registers per thread with which one SM, which has 65536, runs as many blocks as without
/// probes.
fn registers_for(room: Occupancy) -> Option<u32> {
    let threads = room.before.checked_mul(room.block_threads)?;
    let each = 65_536u32.checked_div(threads)?;
    // They are given out in eights.
    Some(each.min(255) & !7).filter(|limit| *limit >= 16)
}

#[cfg(test)]
mod tests {
    use warpbpf_tool::Method;

    use super::*;

    #[test]
    fn kernels_show_what_probes_cost_them() {
        let kernel = |name: &str| Kernel {
            name: name.into(),
            method: Method::Slice,
            instrumented: true,
            registers: Some((12, 40)),
            launches: 3,
            ..Kernel::default()
        };
        let shown = |kernels: &[Kernel]| {
            let mut out = String::new();
            kernel_table(&mut out, kernels, true);
            out
        };
        assert_eq!(
            shown(&[kernel("k")]),
            "  kernel  launches  uninstrumented  registers  method\n  k              3               0  12 → 40    slice\n"
        );
        let costly = Kernel {
            sites: 2,
            local_bytes: Some((0, 16)),
            shared_bytes: Some((1024, 1024)),
            occupancy: Some(Occupancy {
                block_threads: 256,
                before: 8,
                after: 6,
            }),
            programs: vec![("all".into(), 3000), ("third".into(), 1000)],
            compiler_warnings: vec!["ptxas info : (C7510) wgmma is serialized".into()],
            left_out: vec![("inside a wgmma group".into(), 2), ("in a call".into(), 1)],
            ..kernel("inc")
        };
        assert_eq!(
            shown(&[kernel("k"), costly]),
            "  kernel  launches  uninstrumented  sites  registers  local bytes  blocks/SM  method\n  \
               k              3               0      0  12 → 40                            slice\n  \
               inc            3               0      2  12 → 40    0 → 16       8 → 6      slice\n  \
               launches of `inc` by program: `all` in 3,000, `third` in 1,000\n  \
               warning: probes cost `inc` occupancy: blocks of 256 threads per SM 8 → 6; try `--max-registers 32` or `--out-of-line`\n  \
               warning: `inc` with probes: ptxas info : (C7510) wgmma is serialized\n  \
               warning: 2 sites in `inc` left out: inside a wgmma group\n  \
               warning: 1 site in `inc` left out: in a call\n"
        );
    }

    #[test]
    fn registers_that_leave_room_for_as_many_blocks() {
        let room = |before, block_threads| {
            registers_for(Occupancy {
                block_threads,
                before,
                after: 0,
            })
        };
        assert_eq!(room(8, 256), Some(32));
        assert_eq!(room(1, 1024), Some(64));
        assert_eq!(room(5, 256), Some(48));
        assert_eq!(room(1, 32), Some(248));
        assert_eq!(room(0, 256), None);
        assert_eq!(room(u32::MAX, 256), None);
    }

    #[test]
    fn names_that_would_be_the_same_are_whole() {
        let kernel = |name: &str| Kernel {
            name: name.into(),
            ..Kernel::default()
        };
        let shown = |names: [&str; 2]| {
            let mut out = String::new();
            kernel_table(&mut out, &names.map(kernel), true);
            let first = |line: &str| line.trim().split("  ").next().unwrap_or("").to_owned();
            out.lines().skip(1).map(first).collect::<Vec<_>>()
        };
        assert_eq!(shown(["a::k<1>", "k<2>"]), ["k<1>", "k<2>"]);
        assert_eq!(shown(["a::k<1>", "b::k<1>"]), ["a::k<1>", "b::k<1>"]);
    }

    #[test]
    fn many_kernels_are_folded_and_have_families() {
        let kernels: Vec<Kernel> = (0..30)
            .map(|n| Kernel {
                name: format!("lib::apply<lib::Op<{n}>, 4>"),
                method: Method::Splice,
                launches: u64::from(n < 10) * n,
                ..Kernel::default()
            })
            .collect();
        let mut out = String::new();
        kernel_table(&mut out, &kernels, true);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines[0],
            "  kernel           launches  uninstrumented  registers  method"
        );
        assert_eq!(
            lines[1],
            "  apply<Op<1>, 4>         1               0  ?          splice"
        );
        assert_eq!(
            lines[10..],
            [
                "  21 kernels that were not launched",
                "",
                "  family  kernels  launches",
                "  apply         9        45",
            ]
        );
    }
}
