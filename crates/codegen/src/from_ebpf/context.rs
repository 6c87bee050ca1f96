//! Reads of the context: it exists nowhere in memory, so a read becomes a special register or a
//! constant, and a narrow read the wanted part of it.

use warpbpf_abi::context::{self, Capture, Field, FieldSource};
use warpbpf_ebpf::Width;

use super::translator::Translator;
use crate::error::CodegenError;
use crate::fragment::SlotSpace;
use crate::ir::{BinOp, Op, Special, Ty, Value};

impl Translator<'_> {
    /// The register value of a read of the context.
    pub(super) fn context_read(
        &mut self,
        offset: Option<i64>,
        width: Width,
        signed: bool,
    ) -> Result<Value, CodegenError> {
        let offset = offset.and_then(|o| u32::try_from(o).ok());
        let fields = context::of(self.env.site);
        let Some((offset, field)) =
            offset.and_then(|o| Some((o, fields.containing(o, width.bytes())?)))
        else {
            return self.missing("a field of the context");
        };
        let mut value = self.context_field(field);
        let skip = (offset - field.offset) * 8;
        if skip != 0 {
            value = self.bin_const(BinOp::Shr, value, skip.into());
        }
        if width == Width::W64 {
            return Ok(value);
        }
        let low = self.trunc(value);
        Ok(self.extend(low, width, signed))
    }

    /// The kernel's number: what it is if the code is for one kernel, else what its table says.
    pub(super) fn kernel_id(&mut self) -> Value {
        match self.env.slots {
            SlotSpace::Const | SlotSpace::Global => self.constant(self.env.kernel_id),
            SlotSpace::Table { kernel, .. } => self.push(Ty::B64, Op::Slot(kernel)),
        }
    }

    /// The whole of a field, zero-extended.
    fn context_field(&mut self, field: &Field) -> Value {
        match field.source {
            FieldSource::BlockIdx(i) => self.special64(Special::Ctaid(i)),
            FieldSource::BlockDim(i) => self.special64(Special::Ntid(i)),
            FieldSource::ThreadIdx(i) => self.special64(Special::Tid(i)),
            FieldSource::GridDim(i) => self.special64(Special::Nctaid(i)),
            FieldSource::Lane => self.special64(Special::Lane),
            FieldSource::Sm => self.special64(Special::Sm),
            FieldSource::GridId => self.special64(Special::GridId),
            FieldSource::KernelId => self.kernel_id(),
            FieldSource::DynamicShared => self.special64(Special::DynamicShared),
            // A block without a cluster is a cluster of one.
            FieldSource::ClusterRank if !self.has_clusters() => self.constant(0),
            FieldSource::ClusterDim(_) if !self.has_clusters() => self.constant(1),
            FieldSource::ClusterRank => self.special64(Special::ClusterRank),
            FieldSource::ClusterDim(i) => self.special64(Special::ClusterDim(i)),
            FieldSource::Captured(Capture::Arg(i)) if !self.env.args.is_empty() => {
                match self.env.args.get(usize::from(i)) {
                    Some(position) => self.special64(Special::Captured(Capture::Arg(*position))),
                    None => self.constant(0),
                }
            }
            FieldSource::Captured(capture) => self.special64(Special::Captured(capture)),
            FieldSource::ActiveMask => {
                let mask = self.push(Ty::B32, Op::GroupMask);
                self.zext(mask)
            }
            FieldSource::Warp => {
                let thread = self.thread_in_block();
                let warp = self.bin_const(BinOp::Shr, thread, 5);
                self.zext(warp)
            }
        }
    }

    /// The target has cluster registers, PTX ISA "Special Registers: %cluster_ctarank".
    pub(super) fn has_clusters(&self) -> bool {
        self.env.target.sm >= 90 && self.env.target.ptx >= (7, 8)
    }

    /// Linear index of the thread in its block, `b32`: a block has at most 1024.
    fn thread_in_block(&mut self) -> Value {
        let (z, y, x) = (
            self.special(Special::Tid(2)),
            self.special(Special::Tid(1)),
            self.special(Special::Tid(0)),
        );
        let (nx, ny) = (
            self.special(Special::Ntid(0)),
            self.special(Special::Ntid(1)),
        );
        let rows = self.bin(BinOp::Mul, z, ny);
        let rows = self.bin(BinOp::Add, rows, y);
        let before = self.bin(BinOp::Mul, rows, nx);
        self.bin(BinOp::Add, before, x)
    }

    /// Linear index of the thread in its grid, `b64`.
    pub(super) fn thread_in_grid(&mut self) -> Value {
        let block = self.block_in_grid();
        let [tx, ty, tz] = [0, 1, 2].map(|i| self.special(Special::Ntid(i)));
        let threads = self.bin(BinOp::Mul, tx, ty);
        let threads = self.bin(BinOp::Mul, threads, tz);
        let threads = self.zext(threads);
        let before = self.bin(BinOp::Mul, block, threads);
        let inner = self.thread_in_block();
        let inner = self.zext(inner);
        self.bin(BinOp::Add, before, inner)
    }

    /// Linear index of the block in its grid, `b64`.
    pub(super) fn block_in_grid(&mut self) -> Value {
        let (y, z) = (
            self.special(Special::Ctaid(1)),
            self.special(Special::Ctaid(2)),
        );
        let (nx, ny) = (
            self.special64(Special::Nctaid(0)),
            self.special(Special::Nctaid(1)),
        );
        // y and z are below 2^16 (CUDA C++ Programming Guide, "Compute Capabilities"): this fits 32
        // bits.
        let row = self.bin(BinOp::Mul, z, ny);
        let row = self.bin(BinOp::Add, row, y);
        let row = self.zext(row);
        let block = self.bin(BinOp::Mul, row, nx);
        let x = self.special64(Special::Ctaid(0));
        self.bin(BinOp::Add, block, x)
    }
}
