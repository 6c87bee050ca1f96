//! The names we put into other people's modules. One prefix, so that ours are recognised
//! everywhere.

use alloc::format;
use alloc::string::String;

/// Prefix of every symbol, label and register that we add to a module.
pub const PREFIX: &str = "wbpf_";
/// The table of 64-bit addresses that a variant reads: `.const` (or `.global`) `.b64
/// wbpf_slots[n]`.
pub const SLOTS: &str = "wbpf_slots";
/// Register (`.b64`) with the address of that table, in a function for machine code, which is given
/// it.
pub const TABLE: &str = "%wbpf_table";
/// The hidden trailing kernel parameter (16 bytes), see [`crate::layout::launch`]. A device
/// function that gets the launch record's address has it as a parameter of the same name.
pub const LAUNCH_PARAM: &str = "wbpf_launch";
/// Register (`.b32`) holding the mask of lanes that arrived at the site together, declared by the
/// splicer.
pub const GROUP_MASK: &str = "%wbpf_mask";
/// Register (`.b64`) with the address of the first of a program's cells of this block
/// ([`crate::layout::launch::CELLS`]), set by the splicer.
pub const BLOCK_CELLS: &str = "%wbpf_cells";
/// Name of the hidden ring that carries `bpf_trace_printk` records.
pub const PRINTK_RING: &str = "wbpf.printk";
/// The name of the hidden array that counts how often a program was ended in a loop without a bound
/// begins so; the program's name follows.
pub const STOPS: &str = "wbpf.stops.";
/// Between the name of a second tool's program or map and the number of that tool (`count@c1`); no
/// C function and no map of an object is called so.
pub const CLIENT: &str = "@c";
/// `cuDeviceGetName` of the built-in soft GPU. Its %globaltimer is the host's CLOCK_REALTIME.
pub const SOFT_DEVICE: &str = "warpbpf soft GPU";

/// What a second tool's program or map is called where several tools are.
pub fn of_client(name: &str, client: u32) -> String {
    format!("{name}{CLIENT}{client}")
}

/// What it is called in its object.
pub fn plain(name: &str) -> &str {
    name.rsplit_once(CLIENT).map_or(name, |(plain, _)| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_second_tool_are_told_apart_and_found_again() {
        let name = of_client(".rodata", 12);
        assert_eq!((name.as_str(), plain(&name)), (".rodata@c12", ".rodata"));
        assert_eq!(plain("count"), "count");
    }
}
