//! What scripts have besides counts in kernels: lists of probes.

use std::process::Command;

use serde_json::json;

use crate::run::{Bench, Case, Told, same, says};
use crate::trace::traced_in;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("trace: lists of probes", lists),
        case("trace: text of the application", text),
    ]
}

/// Exit status, standard output and standard error of a list.
fn listed(
    bench: &Bench,
    probe: &str,
    app: Option<&str>,
) -> Result<(Option<i32>, String, String), String> {
    // The device does not matter, and an application is not started.
    let mut command = Command::new(bench.folder().join("warpbpf"));
    command.args(["trace", "-l", probe]);
    if let Some(app) = app {
        command.arg("--").arg(bench.app(app));
    }
    let output = command.output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn lists(bench: &Bench) -> Told {
    for (probe, app, lines) in [
        (
            "gpu:mem.warp:*arted|space=global",
            Some("patterns"),
            "gpu:mem.warp:parted|space=global,kind=load,size=4  2 places\n\
             gpu:mem.warp:parted|space=global,kind=store,size=4  2 places\n",
        ),
        (
            "gpu:barrier:*",
            Some("patterns"),
            "gpu:barrier:transposeTile|kind=sync  1 place\n\
             gpu:barrier:transposePadded|kind=sync  1 place\n",
        ),
        (
            "gpu:exit.block:*Tile",
            Some("patterns"),
            "gpu:exit.block:transposeTile\n",
        ),
        (
            "gpu:insn:parted|op=ld.global*",
            Some("patterns"),
            "gpu:insn:parted|op=ld.global.f32  2 places\n",
        ),
        ("cudaret:cuMemAllocM*", None, "cudaret:cuMemAllocManaged\n"),
    ] {
        let found = listed(bench, probe, app)?;
        same(probe, found, (Some(0), lines.into(), String::new()))?;
    }
    let (_, lines, _) = listed(bench, "gpu:line:parted", Some("patterns"))?;
    says(&lines, "gpu:line:parted|at=")?;
    for (probe, app, status, text) in [
        ("cuda:cuMemAlok", None, 1, "did you mean `cuMemAlloc`"),
        ("gpu:mem:*", None, 125, "name the file that has them"),
        ("gpu:memm:*", None, 1, "did you mean `mem`?"),
        (
            "gpu:mem:*gemm*",
            Some("patterns"),
            1,
            "nothing there is like `gpu:mem:*gemm*`",
        ),
        (
            "gpu:mem:*|at=a.cu:9",
            Some("patterns"),
            125,
            "does not tell places by `at=`",
        ),
        ("interval:s:1", None, 125, "stands for itself"),
    ] {
        let (found, lines, error) = listed(bench, probe, app)?;
        same(probe, (found, lines), (Some(status), String::new()))?;
        says(&error, text)?;
    }
    Ok("places and functions".into())
}

/// Names of the application, of functions, and what it passes to the driver.
fn text(bench: &Bench) -> Told {
    // A name has 15 bytes.
    let script = "
        cudaret:cuMemcpy* { @copies[func] = count(); @probes[probe] = count() }
        cuda:cuMemcpyHtoD* /comm == \"vectoradd-shared\" || comm == \"none\"/ { @never = count() }
        cuda:cuLaunchKernel* /str(arg1) != \"\"/ { @texts = count() }
        cuda:cuLibraryGetKernel {
            @names[str(arg2)] = count(); @short[str(arg2, 3)] = count(); @none[str(7)] = count();
            @is = sum(str(arg2) == \"_Z9vectorAddPKfS0_Pfi\"); @not = sum(\"vectorAdd\" != str(arg2));
            @longer = sum(str(arg2, 4) == \"_Z9vectorAddPKfS0_Pfi\"); @part = sum(str(arg2, 4) == \"_Z9v\");
            printf(\"%s %s|%-6s|%d\\n\", func, str(arg2), str(arg2, 3), uid == 0 || uid > 0)
        }
        gpu:entry.block:* { @blocks[comm, kernel] = count() }";
    let run = traced_in(bench, ("vectoradd", &["5000", "2"]), &[], script)?;
    let name = if bench.soft {
        "vectoradd-share"
    } else {
        "vectoradd"
    };
    run.is("@blocks", json!({ format!("{name},vectorAdd"): 40 }))?;
    run.is("@never", json!(0))?;
    run.is("@texts", json!(0))?;
    if bench.soft {
        // What NVIDIA's runtime calls is up to its version.
        const MANGLED: &str = "_Z9vectorAddPKfS0_Pfi";
        run.is("@copies", json!({ "cuMemcpyHtoD": 2, "cuMemcpyDtoH": 1 }))?;
        run.is("@probes", json!({ "cudaret:cuMemcpy*": 3 }))?;
        run.is("@names", json!({ MANGLED: 1 }))?;
        run.is("@short", json!({ "_Z9": 1 }))?;
        run.is("@none", json!({ "": 1 }))?;
        for (map, value) in [("@is", 1), ("@not", 1), ("@longer", 0), ("@part", 1)] {
            run.is(map, json!(value))?;
        }
        let line = run.lines.iter().find(|line| line["type"] == "printf");
        let line = line.map(|line| line["data"].clone());
        let expected = format!("cuLibraryGetKernel {MANGLED}|_Z9   |1\n");
        same("a line", line, Some(json!(expected)))?;
    }
    Ok("names and strings".into())
}
