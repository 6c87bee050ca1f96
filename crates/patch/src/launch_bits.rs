//! The launches that programs are in, where those may be others for each: the launch says by bits
//! which choices of the programs take it, and what no bit is set for is passed by.
//!
//! The bits are a parameter of the kernel, so they are the same for all of its lanes: whoever is
//! together stays together, and a site that is passed by costs a load from the constant bank and a
//! branch. Arrivals at exit are counted whatever they say, as with a gate.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warpbpf_abi::layout::launch;

use crate::launch_args::LaunchArgs;

/// The choices of the programs of one site.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaunchBits {
    bits: BTreeSet<u32>,
    /// Something runs there in each launch.
    always: bool,
}

impl LaunchBits {
    /// Of a site where such programs stand; without a bit, one always runs.
    pub(crate) fn of(all: impl Iterator<Item = Option<u32>>) -> LaunchBits {
        let mut chosen = LaunchBits::default();
        for bit in all {
            match bit {
                Some(bit) => drop(chosen.bits.insert(bit)),
                None => chosen.always = true,
            }
        }
        chosen
    }

    /// Registers that it uses: type and name.
    pub(crate) fn registers() -> [(&'static str, &'static str); 3] {
        [
            ("pred", "%wbpf_not_here"),
            ("b64", "%wbpf_chosen"),
            ("b64", "%wbpf_chosen_of"),
        ]
    }

    /// There is nothing to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// All of the site can be left out at once.
    pub(crate) fn leaves_all(&self) -> bool {
        !self.is_empty() && !self.always
    }

    /// Reads the bits. With `skip`, a label behind all programs of the site, goes there if none of
    /// theirs is set.
    pub(crate) fn read(&self, args: LaunchArgs, skip: Option<&str>) -> String {
        let load = args.load("%wbpf_chosen", launch::PARAM_CHOSEN);
        let mut out = format!("\t{load}\n");
        if let Some(label) = skip {
            let all = self.bits.iter().fold(0, |all, bit| all | 1u64 << bit);
            leave(all, label, &mut out);
        }
        out
    }

    /// Goes to `label` if a program of a site whose bits were read is not in this launch; nothing
    /// where the site as a whole was left out then.
    pub(crate) fn test(&self, bit: Option<u32>, skipped: bool, label: &str) -> String {
        let mut out = String::new();
        let alone = skipped && self.bits.len() == 1;
        if let Some(bit) = bit.filter(|_| !alone) {
            leave(1 << bit, label, &mut out);
        }
        out
    }
}

/// Goes to `label` if none of these bits is set.
fn leave(bits: u64, label: &str, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "\tand.b64 %wbpf_chosen_of, %wbpf_chosen, {bits:#x};\n\tsetp.eq.u64 %wbpf_not_here, %wbpf_chosen_of, 0;\n\
         \t@%wbpf_not_here bra {label};\n"
    );
}
