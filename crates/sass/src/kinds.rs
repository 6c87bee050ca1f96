//! What a word of machine code does, as far as probes have to know it.

use crate::arch::Arch;
use crate::table::{Late, base};
use crate::word::{Control, Insn, RZ, Word};

/// What the instruction does late. The lists are what `ptxas` itself was seen to give such barriers
/// to; memory and texture instructions beside them are unknown.
pub fn late(word: Word) -> Late {
    const REGISTERS_ONLY: u16 = 1;
    let rz = u128::from(RZ);
    let (target, address) = (word.bits(16, 8), word.bits(24, 8));
    let form = word.opcode() >> 9;
    match word.base() {
        // ST, STG, STL, STS, RED on either architecture, STSM, LDGSTS.
        0x185..=0x188 | 0x18e | 0x1a6 | 0x044 | 0x1ae => Late::Reads,
        // The stack pointer is the same value whenever it comes.
        0x182 if address == rz && target == 1 => Late::Nothing,
        // LD, LDG, LDC, LDL, LDS, LDSM, SHFL, FLO, MUFU.
        0x180..=0x184 | 0x03b | 0x189 | 0x100 | 0x108 => Late::Writes,
        // ATOM, ATOMS, SYNCS.
        0x18a | 0x18c | 0x1a7 if target == rz => Late::Reads,
        0x18a | 0x18c => Late::Writes,
        // CCTL without an address, MEMBAR, ERRBAR, LDGDEPBAR.
        0x18f if address == rz => Late::Nothing,
        0x192 | 0x1ab | 0x1af => Late::Nothing,
        // The uniform data path's own, and matrix products of a warp group, which have a barrier of
        // another kind.
        0x1c0..=0x1cf | 0x1f0..=0x1f7 => Late::Nothing,
        0x160..=0x1ff => Late::Unknown,
        // Conversions, S2R; BMOV and BAR that take a register.
        0x101..=0x10f | 0x119 => Late::Unknown,
        base::BMOV_64 => Late::Unknown,
        0x11d if form == REGISTERS_ONLY => Late::Unknown,
        _ => Late::Nothing,
    }
}

/// Accesses of global memory, or of any, that are no `LDG` or `STG`: `LD`, `ST`, `ATOM`, `ATOMG`,
/// `RED` and `REDG`, `LDGSTS`; copies and reductions of the tensor memory accelerator. Textures and
/// surfaces are not among them.
pub fn is_other_access(word: Word) -> bool {
    matches!(
        word.base(),
        0x180 | 0x185 | 0x18a | 0x18b | 0x1a2 | 0x1a8 | 0x1a9 | 0x18e | 0x1a6 | 0x1ae | 0x1b4
            ..=0x1b6 | 0x1ba | 0x1bb
    )
}

/// Reads or writes registers that a warp has once for all of its lanes.
pub fn is_uniform(word: Word) -> bool {
    // The form of the operands, where it says that; then the uniform data path, `R2UR`, `ELECT`,
    // `S2UR`, `REDUX` and what else begins as they do.
    matches!(word.opcode() >> 9, 6 | 7) && word.base() < 0x160
        || matches!(word.base(), 0x02f | 0x080..=0x0cf | 0x1b0..=0x1ff)
        || is_global(word) && word.bits(90, 2) & above(word) != 0
}

/// Of the two bits by which an access says that its address has a part in uniform registers, those
/// that do not say which operation it is: an `ATOMG` has four bits for that.
fn above(word: Word) -> u128 {
    match word.base() {
        0x1a8 => 2,
        _ => 3,
    }
}

fn is_global(word: Word) -> bool {
    matches!(word.base(), base::LDG | base::STG | 0x180 | 0x185) || is_other_access(word)
}

/// `IMMA`, `HMMA`, `BMMA`, `DMMA`.
pub(crate) fn is_matrix_product(word: Word) -> bool {
    matches!(word.base(), 0x037 | 0x03c | 0x03d | 0x03f)
}

/// `HGMMA` and its like: they read and write registers until the warp group waits for them.
pub fn is_group_product(word: Word) -> bool {
    matches!(word.base(), 0x1f0..=0x1f7)
}

/// `WARPGROUP.DEPBAR.LE gsb0, 0x0`: waits until all such products are done.
pub fn ends_group_products(word: Word) -> bool {
    word.opcode() == 0x9c5 && word.bits(47, 1) == 1 && word.bits(38, 6) == 0
}

/// The convergence barrier that `BMOV` takes into a register and clears, or gets back from one, as
/// a function does that keeps its callers' for them. `None`: it is no such instruction, or one of
/// another form.
pub(crate) fn kept_barrier(word: Word) -> Option<u8> {
    const CLEAR: u128 = 1 << 84;
    let bare = word.with(105, 23, 0);
    let barrier = word.bits(24, 8) as u8;
    // Without the operands: the register to write or to read, the barrier.
    let form = match word.opcode() {
        0x355 => bare.with(16, 16, 0).0 == CLEAR | 0x7355,
        0x356 => bare.with(24, 16, 0).0 == 0x7356,
        _ => false,
    };
    (form && barrier < 16).then_some(barrier)
}

/// Convergence barriers that an instruction of the flow of control names, as bits. `None`: not
/// known.
pub(crate) fn regions(word: Word, arch: Arch) -> Option<u16> {
    match word.base() {
        base::BSSY | base::BSYNC | base::BREAK => {
            let insn = Insn::decode(word, arch);
            insn.map(|insn| 1 << insn.barrier)
        }
        // Into a register, and from one; other numbers are no barriers.
        base::BMOV | base::BMOV_64 => (word.bits(24, 8) < 16).then(|| 1 << word.bits(24, 4)),
        base::CALL_ABS
        | base::CALL_REL
        | base::YIELD
        | base::BRA
        | base::WARPSYNC
        | base::BRX
        | base::BRX_UNIFORM
        | base::JMP
        | base::JMX
        | base::EXIT
        | base::LEPC
        | base::RET
        | base::BPT
        | base::NANOSLEEP => Some(0),
        _ => None,
    }
}

/// The instruction without what it asks to be kept. That makes it slower at most.
pub(crate) fn without_hints(word: Word) -> Word {
    let control = word.control();
    word.with_control(Control {
        reuse: 0,
        ..control
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ptxas 13.0 writes them for sm_90, with and without a descriptor in uniform registers.
    #[test]
    fn an_operation_of_an_atomic_is_no_uniform_register() {
        for (low, high, uniform) in [
            (0x0000_080a_10ff_73a8, 0x0003_6200_041e_e500, false),
            (0x0000_0008_0408_73a8, 0x000e_a200_001e_e500, false),
            (0x0000_0002_0408_79a8, 0x000e_a800_0c1e_e5c4, true),
            (0x0000_0808_040a_79a8, 0x004e_a800_081e_e5c4, true),
            (0x0000_1008_040a_73a9, 0x004e_a800_001e_e50a, false),
            (0x0000_280a_0400_798e, 0x000f_e800_0c10_e584, true),
            (0x0000_3006_0400_7986, 0x004f_e200_0c10_1b04, true),
        ] {
            let word = Word(low | high << 64);
            assert_eq!(is_uniform(word), uniform, "{low:#018x} {high:#018x}");
        }
    }
}
