//! `wmma.load` and `wmma.store`: a matrix in memory, row by row or column by column, from and to
//! fragments.

use super::fragment::{self, Place, place};
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::matrix::{Fragment, Part};
use crate::op::operand::NOWHERE;
use crate::position::Position;
use crate::trap::Exec;
use crate::warp::Warp;
use crate::worker::Worker;

impl Fragment {
    fn bits(&self) -> usize {
        match self.part {
            Part::A(element) | Part::B(element) => element.bits(),
            Part::C(accumulator) => accumulator.bits(),
        }
    }

    /// Bytes that are accessed at a time and how many such accesses fill a register: elements
    /// smaller than a byte only come in layouts that have a register's elements one after the
    /// other.
    fn access(&self) -> (u32, usize) {
        match self.bits() {
            ..8 => (4, 1),
            64 => (8, 1),
            bits => (bits as u32 / 8, 32 / bits),
        }
    }
}

impl Worker<'_> {
    /// Host pointer of element `i` of a lane's register.
    fn fragment_pointer(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        fragment: &Fragment,
        (lane, register, i, access): (usize, usize, usize, &'static str),
    ) -> Exec<*mut u8> {
        let unique = fragment::registers(fragment.shape, fragment.part);
        let Place { row, column } = place(
            fragment.shape,
            fragment.part,
            lane,
            register % unique.max(1),
            i,
        );
        let stride = warp.row(at.base, fragment.stride)[lane].get() & 0xffff_ffff;
        let (line, inside) = if fragment.column_major {
            (column, row)
        } else {
            (row, column)
        };
        let bits = fragment.bits() as u64;
        let offset = (line as u64 * stride + inside as u64).wrapping_mul(bits) / 8;
        let base = fragment.address.of(warp, at, lane);
        let reach = Reach {
            space: fragment.space,
            address: base.wrapping_add(offset),
            bytes: fragment.access().0,
            access,
        };
        self.pointer(env, warp, lane, reach)
    }

    pub(super) fn load_fragment(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        fragment: &Fragment,
    ) -> Exec<()> {
        self.view.refresh();
        let (bytes, count) = fragment.access();
        let mut loaded = Vec::with_capacity(fragment.rows.len());
        for register in 0..fragment.rows.len() {
            let mut words = [0u64; 32];
            for (lane, word) in words.iter_mut().enumerate() {
                for i in 0..count {
                    let which = (lane, register, i, "load");
                    let pointer = self.fragment_pointer(env, warp, at, fragment, which)?;
                    // SAFETY: the pointer's bounds and alignment were checked for these bytes.
                    *word |= unsafe { memory::load(pointer, bytes) } << (8 * bytes as usize * i);
                }
            }
            loaded.push(words);
        }
        // The address is read before any result is written: they may share registers.
        for (words, &row) in loaded.iter().zip(&fragment.rows) {
            if row != NOWHERE {
                for (cell, &word) in warp.row(at.base, row).iter().zip(words) {
                    cell.set(word);
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_fragment(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        fragment: &Fragment,
    ) -> Exec<()> {
        self.view.refresh();
        let (bytes, count) = fragment.access();
        for (register, &row) in fragment.rows.iter().enumerate() {
            for lane in 0..32 {
                let word = warp.row(at.base, row)[lane].get();
                for i in 0..count {
                    let which = (lane, register, i, "store");
                    let pointer = self.fragment_pointer(env, warp, at, fragment, which)?;
                    let element = word >> (8 * bytes as usize * i);
                    // SAFETY: the pointer's bounds and alignment were checked for these bytes.
                    unsafe { memory::store(pointer, bytes, element) };
                }
            }
        }
        Ok(())
    }
}
