//! How many sectors of global memory warps touch, and how many words they ask of one bank, in
//! kernels that are made for known numbers.

use serde_json::json;

use crate::run::{Bench, Case, Told, same};
use crate::trace::traced_in;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("sectors and bank conflicts, in C", of_programs),
        case("trace: sectors and bank conflicts", of_scripts),
    ]
}

const APP: &str = "patterns";
/// Each kernel has so many, and each of them one load of global memory; `parted` has two.
const WARPS: u64 = 32;

fn of_programs(bench: &Bench) -> Told {
    let run = bench.both_with(&["--budget", "2000"], "touched", APP, &[])?;
    for (sectors, times) in [
        // Side by side, and both squares.
        (4, 3 * WARPS),
        // One too far.
        (5, WARPS),
        // Every other one.
        (8, WARPS),
        // In columns.
        (32, WARPS),
        // 24 lanes side by side, and 8 at one word.
        (3, WARPS),
        (1, WARPS),
    ] {
        let found = run.value("sectors", sectors)?;
        same(&format!("loads of {sectors} sectors"), found, times)?;
    }
    for (words, times) in [(1, 3 * WARPS), (32, WARPS)] {
        let found = run.value("conflicts", words)?;
        same(&format!("accesses with {words} words"), found, times)?;
    }
    Ok(format!("{} accesses", 12 * WARPS))
}

fn of_scripts(bench: &Bench) -> Told {
    let script = "
        gpu:mem.warp:*|space=global,kind=load { @sectors[kernel, sectors] = count(); @most = max(sectors) }
        gpu:mem.warp:*Padded*|space=shared, gpu:mem.warp:*Tile*|space=shared {
            @conflicts[kernel, kind, conflicts] = count()
        }
        gpu:mem:sideBySide*|space=global,kind=load /lane == 3/ { if (sectors == 4) { @lanes = count() } }
        gpu:mem.warp:oneTooFar* /conflicts > 0/ { @none = count() }
        gpu:mem.warp:parted*|space=global,kind=load { @parted[active, sectors] = count() }";
    let run = traced_in(bench, (APP, &[]), &[], script)?;
    run.is(
        "@sectors",
        json!({
            "sideBySide,4": WARPS, "everyOther,8": WARPS, "inColumns,32": WARPS,
            "oneTooFar,5": WARPS, "parted,3": WARPS, "parted,1": WARPS,
            "transposeTile,4": WARPS, "transposePadded,4": WARPS,
        }),
    )?;
    run.is("@most", json!(32))?;
    run.is(
        "@conflicts",
        json!({
            "transposeTile,store,1": WARPS, "transposeTile,load,32": WARPS,
            "transposePadded,store,1": WARPS, "transposePadded,load,1": WARPS,
        }),
    )?;
    run.is("@lanes", json!(WARPS))?;
    run.is("@parted", json!({ "24,3": WARPS, "8,1": WARPS }))?;
    same(
        "space of another kind",
        run.map("@none").unwrap_or(json!(0)),
        json!(0),
    )?;
    Ok(format!("{} loads", 8 * WARPS))
}
