//! The programs of the corpus.

/// A program of several kernels, `sources/NAME.cu`.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// What its kernels have in common.
    pub about: &'static str,
    /// How it is instrumented.
    pub expected: Expected,
    /// Kernels that end the whole program: they run by themselves, and what they count is not
    /// looked at.
    pub apart: &'static [&'static str],
    /// It is given the folder with PTX that a compiler other than nvcc made.
    pub captured: bool,
}

/// What must become of a group's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// All are instrumented.
    Instrumented,
    /// All are refused, for a reason that has this part.
    Refused(&'static str),
}

const fn group(name: &'static str, about: &'static str) -> Group {
    Group {
        name,
        about,
        expected: Expected::Instrumented,
        apart: &[],
        captured: false,
    }
}

/// All of them.
pub const GROUPS: &[Group] = &[
    group("tiling", "shared-memory tiling"),
    group("warps", "warp shuffles and votes"),
    group("cooperative", "cooperative groups and grid sync"),
    group("inline_ptx", "PTX written by hand"),
    group("tensor", "tensor cores: mma, ldmatrix, wmma"),
    group("wgmma", "tensor cores: wgmma"),
    group("async", "cp.async, bulk and tensor copies"),
    group("clusters", "clusters and distributed shared memory"),
    group("specialised", "warp specialisation with setmaxnreg"),
    group("recursion", "recursion"),
    group("indirect", "virtual calls and function pointers"),
    Group {
        apart: &["assertFires"],
        ..group("speak", "printf and assert")
    },
    group("heap", "malloc and free"),
    group("textures", "textures and surfaces"),
    group("params", "parameters of 4 KB and more"),
    group("doubles", "double precision"),
    group("halves", "half precision"),
    group(
        "limits",
        "the limit of registers and large dynamic shared memory",
    ),
    group("counted", "accesses in closed form"),
    Group {
        expected: Expected::Refused("starts other kernels from the device"),
        ..group("device_launch", "device-side launches")
    },
    Group {
        captured: true,
        ..group("captured", "PTX made by Triton")
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_source_is_a_group_and_every_group_has_a_source() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sources");
        let sources: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the folder of sources is there")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".cu").map(str::to_owned))
            .collect();
        let groups: BTreeSet<String> = GROUPS.iter().map(|g| g.name.to_owned()).collect();
        assert_eq!(sources, groups);
    }
}
