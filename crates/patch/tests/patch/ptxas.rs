//! ptxas accepts every variant of every sample, for every architecture.

use crate::common::{ALL, OPTIONS, attach, counters, nvcc, ptxas, scratch};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_patch::{Way, clone_in_module, slice, way};

const SOURCES: [&str; 6] = [
    "vecadd.cu",
    "globals.cu",
    "exits.cu",
    "barriers.cu",
    "closures.cu",
    "features.cu",
];

/// Instruments every kernel of every sample for `arch`, in every way that it allows.
fn check(arch: &str, nvcc_options: &[&str], ptxas_options: &[&str], name: &str) {
    let dir = scratch(name);
    let fragments = counters();
    assert_eq!(fragments.len(), ALL.len());
    let (mut slices, mut clones) = (0, 0);
    for source in SOURCES {
        let text = nvcc(&dir, source, arch, nvcc_options);
        let module = warpbpf_ptx::index(&text).unwrap();
        let mut requests = Vec::new();
        for kernel in module.functions.iter().filter(|f| f.is_entry) {
            // Where a device function ends threads, only thread scope is possible at exit.
            let inner = kernel.name == "in_function"
                && text.contains(".func  (.param .b32 func_retval0) _Z5leavei");
            let attachments = attach(&fragments, |site, scope| {
                !inner || site == Site::Entry || scope == Scope::Thread
            });
            match way(&module, kernel.name).unwrap() {
                Way::Slice => {
                    let (ptx, variant) =
                        slice(&module, kernel.name, &attachments, &OPTIONS).unwrap();
                    assert_eq!(variant.entry, kernel.name);
                    assert_eq!(variant.slot_count, 2 + variant.globals.len() as u32);
                    ptxas(&dir, &format!("{source}.{}", kernel.name), &ptx, arch, &[]);
                    slices += 1;
                }
                Way::Clone { .. } => {}
                Way::Refused { reason, .. } => panic!("{}: {reason}", kernel.name),
            }
            requests.push((kernel.name, attachments));
            clones += 1;
        }
        let (ptx, _) = clone_in_module(&module, &requests, &OPTIONS).unwrap();
        ptxas(&dir, &format!("{source}.clones"), &ptx, arch, ptxas_options);
    }
    assert_eq!(clones, 20);
    assert!(slices >= 16, "{slices}");
}

macro_rules! architectures {
    ($($name:ident $arch:literal)*) => {$(
        #[test]
        fn $name() {
            check($arch, &[], &[], stringify!($name));
        }
    )*};
}

architectures! {
    sm_75 "75"
    sm_80 "80"
    sm_86 "86"
    sm_89 "89"
    sm_90 "90"
    sm_90a "90a"
    sm_100 "100"
    sm_120 "120"
}

#[test]
fn line_information() {
    check("90", &["-lineinfo"], &["-lineinfo"], "line_information");
}

#[test]
fn debug_information() {
    check("90", &["-G"], &["-g"], "debug_information");
}
