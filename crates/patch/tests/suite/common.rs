//! What the tests share: fragments that count, and NVIDIA's compilers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch::{CELL, CELL_COUNT};
use warpbpf_abi::names::BLOCK_CELLS;
use warpbpf_codegen::{Fragment, Tally};
use warpbpf_patch::{Attachment, Options, Select};

/// All sites and scopes, in the order of their counters.
pub const ALL: [(Site, Scope); 6] = [
    (Site::Entry, Scope::Thread),
    (Site::Entry, Scope::Warp),
    (Site::Entry, Scope::Block),
    (Site::Exit, Scope::Thread),
    (Site::Exit, Scope::Warp),
    (Site::Exit, Scope::Block),
];

/// Slots of the tests' session: environment and one map, the counters.
pub const OPTIONS: Options = Options {
    first_global_slot: 2,
    slot_space: warpbpf_codegen::SlotSpace::Const,
    first_site: 1,
    out_of_line: false,
    max_registers: None,
    tensors: None,
};

/// A filter that lets every site through.
pub fn every() -> &'static Select {
    static ANY: LazyLock<Select> = LazyLock::new(Select::default);
    &ANY
}

/// Adds 1 to the u64 counter with number `index`, and the lanes of its group to the one 8 further
/// on.
pub fn counter(index: usize, lanes: bool) -> Fragment {
    let at = index * 8;
    let mut body = format!(
        "\t{{\n\t.reg .b64 %rd1;\n\tld.const.u64 %rd1, [wbpf_slots+8];\n\tred.global.add.u64 [%rd1+{at}], 1;\n"
    );
    if lanes {
        body.push_str(&format!(
            "\t.reg .b32 %r1;\n\t.reg .b64 %rd2;\n\tpopc.b32 %r1, %wbpf_mask;\n\tcvt.u64.u32 %rd2, %r1;\n\tred.global.add.u64 [%rd1+{}], %rd2;\n",
            at + 8
        ));
    }
    body.push_str("\t}\n");
    Fragment {
        body,
        functions: BTreeMap::new(),
        uses_group_mask: lanes,
        captures: BTreeSet::new(),
        slots: BTreeSet::from([1]),
        local_bytes: 0,
        block_cells: 0,
        tallies: BTreeSet::new(),
    }
}

/// Adds 1 to the u64 counter with number `index`, and the value of each capture to one of those
/// behind it.
pub fn adder(index: usize, captures: &[Capture]) -> Fragment {
    let mut body = format!(
        "\t{{\n\t.reg .b64 %rd<3>;\n\tld.const.u64 %rd1, [wbpf_slots+8];\n\tred.global.add.u64 [%rd1+{}], 1;\n",
        index * 8
    );
    for (capture, at) in captures.iter().zip(index + 1..) {
        let (register, at) = (capture.register(), at * 8);
        let value = if capture.bits() == 32 {
            body.push_str(&format!("\tcvt.u64.u32 %rd2, {register};\n"));
            "%rd2"
        } else {
            register.as_str()
        };
        body.push_str(&format!("\tred.global.add.u64 [%rd1+{at}], {value};\n"));
    }
    body.push_str("\t}\n");
    Fragment {
        body,
        captures: captures.iter().copied().collect(),
        slots: BTreeSet::from([1]),
        ..Fragment::default()
    }
}

/// Adds 1 and 2^30 to two sums in registers: the u64 counter with number `index`, and the u32
/// behind it.
pub fn keeper(index: usize) -> Fragment {
    let tally = |at: usize, bits| Tally {
        slot: 1,
        shards: 4,
        stride: 256,
        at: at as u64 * 8,
        bits,
    };
    let tallies = BTreeSet::from([tally(index, 64), tally(index + 1, 32)]);
    let mut body = String::from("\t{\n");
    for (tally, addend) in tallies.iter().zip([1, 1 << 30]) {
        let (bits, register) = (tally.bits, tally.register());
        body.push_str(&format!(
            "\tadd.u{bits} {register}, {register}, {addend};\n"
        ));
    }
    body.push_str("\t}\n");
    Fragment {
        body,
        slots: BTreeSet::from([1]),
        tallies,
        ..Fragment::default()
    }
}

/// Comes to each of its `cells`, and leaves its mark there.
pub fn arriver(cells: u32) -> Fragment {
    let mut body = String::from("\t{\n");
    for cell in 0..cells {
        let at = u64::from(cell) * CELL + CELL_COUNT;
        body.push_str(&format!("\tred.global.add.u32 [{BLOCK_CELLS}+{at}], 1;\n"));
    }
    body.push_str("\t}\n");
    Fragment {
        body,
        uses_group_mask: true,
        block_cells: cells,
        ..Fragment::default()
    }
}

/// One counter per element of [`ALL`], in their order.
pub fn counters() -> Vec<Fragment> {
    (0..ALL.len()).map(|i| counter(i, false)).collect()
}

/// The elements of [`ALL`] that `keep` says, with their counters.
pub fn attach<'f>(
    fragments: &'f [Fragment],
    keep: impl Fn(Site, Scope) -> bool,
) -> Vec<Attachment<'f>> {
    ALL.iter()
        .zip(fragments)
        .filter(|((site, scope), _)| keep(*site, *scope))
        .map(|((site, scope), fragment)| Attachment {
            site: *site,
            scope: *scope,
            select: every(),
            fragment,
            gate: None,
            choice: None,
        })
        .collect()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The CUDA toolkit's folder.
pub fn cuda() -> PathBuf {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| root().join(".toolchain/cuda/nvidia/cu13"));
    assert!(
        home.join("bin/ptxas").exists(),
        "no CUDA toolkit in `{}`: run `cargo xtask setup`, or set WARPBPF_CUDA_HOME",
        home.display()
    );
    home
}

/// A folder for one test's files.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// PTX of `filetests/patch/cuda/<source>` for one architecture.
pub fn nvcc(dir: &Path, source: &str, arch: &str, options: &[&str]) -> String {
    // Two tests may compile one source at once.
    let thread = std::thread::current().id();
    let out = dir.join(format!("{source}.{arch}.{thread:?}.ptx"));
    let home = cuda();
    let run = Command::new(home.join("bin/nvcc"))
        .args(["-ptx", "-arch", &format!("sm_{arch}"), "-I"])
        .arg(home.join("include"))
        .args(options)
        .arg(root().join("filetests/patch/cuda").join(source))
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "nvcc: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    std::fs::read_to_string(out).unwrap()
}

/// Whether searches by chance, and what is like them, are to be whole.
pub fn is_deep() -> bool {
    std::env::var_os("WARPBPF_DEEP").is_some()
}

/// What ptxas is to do with a text beside accepting it: nothing. It optimises in `cargo xtask test
/// --deep` alone, which takes three times as long.
fn level(arch: &str, options: &[&str]) -> Option<&'static str> {
    // Without it, ptxas has something to say of warpgroups, which the architectures `sm_NNa` have.
    let is_chosen =
        arch.ends_with('a') || options.iter().any(|o| o.starts_with("-O") || *o == "-g");
    (!is_chosen && !is_deep()).then_some("-O0")
}

/// ptxas accepts `text` for `arch` and has nothing to say about it.
pub fn ptxas(dir: &Path, name: &str, text: &str, arch: &str, options: &[&str]) {
    let file = dir.join(format!("{name}.{arch}.ptx"));
    std::fs::write(&file, text).unwrap();
    let run = Command::new(cuda().join("bin/ptxas"))
        .arg(format!("-arch=sm_{arch}"))
        .args(level(arch, options))
        .args(options)
        .arg(&file)
        .args(["-o", "/dev/null"])
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&run.stderr).into_owned() + &String::from_utf8_lossy(&run.stdout);
    let complaints: Vec<&str> = said
        .lines()
        // About the application's own code.
        .filter(|line| !line.contains("Stack size for entry function") && !line.trim().is_empty())
        .collect();
    assert!(
        run.status.success() && complaints.is_empty(),
        "ptxas -arch=sm_{arch} of {}: {}",
        file.display(),
        complaints.join("\n")
    );
}
