//! Memory as the interpreter sees it: every access is checked, and a bad one is a trap, never
//! undefined behaviour.

use crate::insn::{AtomicOp, Width};
use crate::trap::TrapKind;

/// Byte-addressed, little-endian memory.
pub trait Memory {
    /// Reads `width` at `address`, zero-extended.
    ///
    /// # Errors
    /// The trap, if the access is not allowed.
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind>;

    /// Writes the low `width` of `value` at `address`.
    ///
    /// # Errors
    /// The trap, if the access is not allowed.
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind>;

    /// Read-modify-write; returns the old value, zero-extended. `expected` matters to
    /// [`AtomicOp::CmpXchg`] only. Whoever shares memory between threads overrides this.
    ///
    /// # Errors
    /// The trap, if the access is not allowed.
    fn atomic(
        &mut self,
        address: u64,
        width: Width,
        op: AtomicOp,
        operand: u64,
        expected: u64,
    ) -> Result<u64, TrapKind> {
        if !address.is_multiple_of(u64::from(width.bytes())) {
            return Err(TrapKind::Misaligned { address, width });
        }
        let old = self.load(address, width)?;
        let mask = u64::MAX >> (64 - width.bits());
        let new = match op {
            AtomicOp::Add { .. } => old.wrapping_add(operand),
            AtomicOp::Or { .. } => old | operand,
            AtomicOp::And { .. } => old & operand,
            AtomicOp::Xor { .. } => old ^ operand,
            AtomicOp::Xchg => operand,
            AtomicOp::CmpXchg if old == expected & mask => operand,
            AtomicOp::CmpXchg => old,
        };
        self.store(address, width, new)?;
        Ok(old)
    }
}

/// A range of [`FlatMemory`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Address of the first byte.
    pub base: u64,
    /// Contents.
    pub bytes: Vec<u8>,
    /// Whether stores are allowed.
    pub writable: bool,
}

/// A few disjoint regions; whatever lies between them traps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlatMemory {
    /// Sorted by base, disjoint.
    regions: Vec<Region>,
}

impl FlatMemory {
    /// No memory at all.
    pub fn new() -> FlatMemory {
        FlatMemory::default()
    }

    /// Adds a region. `false`, and nothing is added, if it overlaps another or wraps around.
    pub fn add(&mut self, region: Region) -> bool {
        let Some(end) = region.base.checked_add(region.bytes.len() as u64) else {
            return false;
        };
        let at = self
            .regions
            .partition_point(|other| other.base < region.base);
        let before = at.checked_sub(1).is_none_or(|i| {
            self.regions[i].base + self.regions[i].bytes.len() as u64 <= region.base
        });
        let after = self.regions.get(at).is_none_or(|other| end <= other.base);
        if before && after {
            self.regions.insert(at, region);
        }
        before && after
    }

    /// The region that holds `address`.
    pub fn region(&self, address: u64) -> Option<&Region> {
        let at = self
            .regions
            .partition_point(|region| region.base <= address)
            .checked_sub(1)?;
        let region = &self.regions[at];
        (address - region.base < region.bytes.len() as u64).then_some(region)
    }

    /// `len` bytes at `address`, if one region holds them all.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let region = self.region(address)?;
        let start = (address - region.base) as usize;
        region.bytes.get(start..start.checked_add(len)?)
    }

    /// The same for writing, whether or not the program may write there.
    pub fn bytes_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let at = self
            .regions
            .partition_point(|region| region.base <= address)
            .checked_sub(1)?;
        let region = &mut self.regions[at];
        let start = usize::try_from(address - region.base).ok()?;
        region.bytes.get_mut(start..start.checked_add(len)?)
    }
}

impl Memory for FlatMemory {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        let bytes = self.bytes(address, width.bytes() as usize);
        let bytes = bytes.ok_or(TrapKind::OutOfBounds {
            address,
            width,
            write: false,
        })?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        if self.region(address).is_some_and(|region| !region.writable) {
            return Err(TrapKind::ReadOnly { address, width });
        }
        let len = width.bytes() as usize;
        let bytes = self.bytes_mut(address, len);
        let bytes = bytes.ok_or(TrapKind::OutOfBounds {
            address,
            width,
            write: true,
        })?;
        bytes.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }
}
