//! Loads, stores and atomics: from an address operand to checked host pointers, lane by lane.

use crate::atomics::combine;
use crate::block::Env;
use crate::memory::{self, Region};
use crate::op::operand::{Address, AtomicOp, Base, NOWHERE, Row, Space, Type};
use crate::op::{Access, Atomic};
use crate::position::Position;
use crate::stack;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Warp, for_lanes, lanes};
use crate::windows;
use crate::worker::Worker;

/// One lane's access, for messages and checks.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub space: Space,
    pub address: u64,
    /// Bytes in all.
    pub bytes: u32,
    pub access: &'static str,
}

impl Address {
    /// The address that a lane forms.
    #[inline(always)]
    pub(crate) fn of(self, warp: &Warp, at: Position, lane: usize) -> u64 {
        match self.base {
            Base::Row { row, narrow: false } => warp.row(at.base, row)[lane]
                .get()
                .wrapping_add_signed(self.offset),
            Base::Row { row, narrow: true } => u64::from(
                (warp.row(at.base, row)[lane].get() as u32).wrapping_add(self.offset as u32),
            ),
            Base::Frame => u64::from(at.local).wrapping_add_signed(self.offset),
            Base::Absolute => self.offset as u64,
        }
    }

    /// The addresses of all lanes; those of lanes that do not run mean nothing.
    #[inline(always)]
    fn of_all(self, warp: &Warp, at: Position) -> [u64; 32] {
        match self.base {
            Base::Row { row, narrow } => {
                let row = warp.row(at.base, row);
                if narrow {
                    std::array::from_fn(|lane| {
                        u64::from((row[lane].get() as u32).wrapping_add(self.offset as u32))
                    })
                } else {
                    std::array::from_fn(|lane| row[lane].get().wrapping_add_signed(self.offset))
                }
            }
            Base::Frame => [u64::from(at.local).wrapping_add_signed(self.offset); 32],
            Base::Absolute => [self.offset as u64; 32],
        }
    }
}

/// A range of addresses, as the instruction's space counts them, and the host memory behind it.
#[derive(Clone, Copy)]
struct Window {
    base: u64,
    size: u64,
    host: *mut u8,
}

impl Window {
    const NONE: Window = Window {
        base: 0,
        size: 0,
        host: std::ptr::null_mut(),
    };

    #[inline(always)]
    fn get(self, address: u64, bytes: u32) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.base);
        let inside = offset < self.size && u64::from(bytes) <= self.size - offset;
        (inside && address & u64::from(bytes - 1) == 0)
            .then(|| self.host.wrapping_add(offset as usize))
    }
}

impl From<Region> for Window {
    fn from(region: Region) -> Window {
        Window {
            base: region.base,
            size: region.size,
            host: region.host,
        }
    }
}

impl Worker<'_> {
    /// The host pointer of one lane's access, after all checks.
    #[inline(always)]
    pub(crate) fn pointer(
        &mut self,
        env: &Env,
        warp: &Warp,
        lane: usize,
        reach: Reach,
    ) -> Exec<*mut u8> {
        let Reach {
            space,
            address,
            bytes,
            ..
        } = reach;
        if address & u64::from(bytes - 1) == 0 {
            let (space, offset) = match space {
                Space::Generic => windows::resolve(address),
                Space::Global
                | Space::Const
                | Space::Shared
                | Space::SharedCluster
                | Space::Local
                | Space::Param => (space, address),
            };
            let found = match space {
                Space::Global | Space::Const | Space::Generic => self.view.get(offset, bytes),
                Space::Shared | Space::SharedCluster => shared_pointer(env, offset, bytes),
                Space::Local => local_pointer(warp, lane, offset, bytes),
                Space::Param => self
                    .run
                    .param_pointer(offset, bytes)
                    .filter(|_| reach.access == "load"),
            };
            if let Some(pointer) = found {
                return Ok(pointer);
            }
        }
        Err(self.bad_access(env, warp, lane, reach))
    }

    #[cold]
    fn bad_access(&self, env: &Env, warp: &Warp, lane: usize, reach: Reach) -> Box<Fault> {
        let Reach {
            space,
            address,
            bytes,
            access,
        } = reach;
        let what = format!(
            "{bytes}-byte {access} at {} address {address:#x}",
            space.name()
        );
        if address & u64::from(bytes - 1) != 0 {
            let kind = TrapKind::Misaligned { address, bytes };
            return Fault::new(lane as u32, kind, format!("misaligned {what}"));
        }
        let resolved = if space == Space::Generic {
            windows::resolve(address).0
        } else {
            space
        };
        let place = match resolved {
            Space::Generic | Space::Global | Space::Const => self.view.memory().nearest(address),
            Space::Shared | Space::SharedCluster => {
                let declared = env.shared().bytes() - crate::limits::RESERVED_SHARED;
                format!(
                    "the block has {declared} bytes from {:#x} on",
                    crate::limits::RESERVED_SHARED
                )
            }
            Space::Local => {
                let bytes = warp.local.get(lane).map_or(0, |words| words.len() * 8);
                format!("the thread has {bytes} bytes")
            }
            Space::Param => format!("the kernel has {} bytes, read only", self.run.params_len),
        };
        let null = if matches!(resolved, Space::Global) && address < 4096 {
            "null pointer: "
        } else {
            ""
        };
        let kind = TrapKind::OutOfBounds {
            address,
            bytes,
            space: space.name(),
            access,
        };
        Fault::new(
            lane as u32,
            kind,
            format!("{null}{what} is out of bounds: {place}"),
        )
    }

    /// The range of addresses around one lane's that need no further look-up.
    #[inline]
    fn window(&mut self, env: &Env, reach: Reach) -> Window {
        let Reach {
            space,
            address,
            bytes,
            ..
        } = reach;
        let (space, offset) = if space == Space::Generic {
            windows::resolve(address)
        } else {
            (space, address)
        };
        match space {
            Space::Generic | Space::Global | Space::Const => {
                self.view.region(offset, bytes).map(Window::from)
            }
            Space::Shared | Space::SharedCluster if offset >> windows::RANK_SHIFT == 0 => {
                let shared = env.shared();
                let size = u64::from(shared.bytes());
                shared.get(0, 0).map(|host| Window {
                    base: address - offset,
                    size,
                    host,
                })
            }
            // Local memory is another for each lane; other blocks' and parameters are rare.
            Space::Shared | Space::SharedCluster | Space::Local | Space::Param => None,
        }
        .unwrap_or(Window::NONE)
    }

    pub(crate) fn load(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
    ) -> Exec<()> {
        if active == 0 {
            return Ok(());
        }
        self.view.refresh();
        match (a.bytes, &a.rows[..]) {
            (1, &[row]) if row != NOWHERE => self.load_one::<1>(env, warp, at, active, a, row),
            (2, &[row]) if row != NOWHERE => self.load_one::<2>(env, warp, at, active, a, row),
            (4, &[row]) if row != NOWHERE => self.load_one::<4>(env, warp, at, active, a, row),
            (8, &[row]) if row != NOWHERE => self.load_one::<8>(env, warp, at, active, a, row),
            _ => self.load_many(env, warp, at, active, a),
        }
    }

    fn load_one<const BYTES: u32>(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
        row: Row,
    ) -> Exec<()> {
        let reach = |address| Reach {
            space: a.space,
            address,
            bytes: BYTES,
            access: "load",
        };
        let row = warp.row(at.base, row);
        let first = active.trailing_zeros() as usize & 31;
        if let (Base::Absolute, Space::Param) = (a.address.base, a.space) {
            // Every lane reads the same value.
            let pointer = self.pointer(env, warp, first, reach(a.address.offset as u64))?;
            // SAFETY: `pointer` checked bounds and alignment of these bytes.
            let value = unsafe { memory::load(pointer, BYTES) };
            let value = if a.signed {
                sign_extend(value, BYTES)
            } else {
                value
            };
            for_lanes(active, |lane| row[lane].set(value));
            return Ok(());
        }
        let addresses = a.address.of_all(warp, at);
        let window = self.window(env, reach(addresses[first]));
        for lane in lanes(active) {
            let pointer = match window.get(addresses[lane], BYTES) {
                Some(pointer) => pointer,
                None => self.pointer(env, warp, lane, reach(addresses[lane]))?,
            };
            // SAFETY: the window or `pointer` checked bounds and alignment of these bytes.
            let value = unsafe { memory::load(pointer, BYTES) };
            row[lane].set(if a.signed {
                sign_extend(value, BYTES)
            } else {
                value
            });
        }
        Ok(())
    }

    fn load_many(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
    ) -> Exec<()> {
        let bytes = a.bytes * a.rows.len() as u32;
        for lane in lanes(active) {
            let address = a.address.of(warp, at, lane);
            let pointer = self.pointer(
                env,
                warp,
                lane,
                Reach {
                    space: a.space,
                    address,
                    bytes,
                    access: "load",
                },
            )?;
            for (i, &row) in a.rows.iter().enumerate() {
                // SAFETY: `pointer` checked bounds and alignment of these bytes.
                let value =
                    unsafe { memory::load(pointer.wrapping_add(i * a.bytes as usize), a.bytes) };
                if row != NOWHERE {
                    warp.row(at.base, row)[lane].set(if a.signed {
                        sign_extend(value, a.bytes)
                    } else {
                        value
                    });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn store(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
    ) -> Exec<()> {
        if active == 0 {
            return Ok(());
        }
        self.view.refresh();
        match (a.bytes, &a.rows[..]) {
            (1, &[row]) => self.store_one::<1>(env, warp, at, active, a, row),
            (2, &[row]) => self.store_one::<2>(env, warp, at, active, a, row),
            (4, &[row]) => self.store_one::<4>(env, warp, at, active, a, row),
            (8, &[row]) => self.store_one::<8>(env, warp, at, active, a, row),
            _ => self.store_many(env, warp, at, active, a),
        }
    }

    fn store_one<const BYTES: u32>(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
        row: Row,
    ) -> Exec<()> {
        let reach = |address| Reach {
            space: a.space,
            address,
            bytes: BYTES,
            access: "store",
        };
        let row = warp.row(at.base, row);
        let addresses = a.address.of_all(warp, at);
        let window = self.window(env, reach(addresses[active.trailing_zeros() as usize & 31]));
        for lane in lanes(active) {
            let pointer = match window.get(addresses[lane], BYTES) {
                Some(pointer) => pointer,
                None => self.pointer(env, warp, lane, reach(addresses[lane]))?,
            };
            // SAFETY: the window or `pointer` checked bounds and alignment of these bytes.
            unsafe { memory::store(pointer, BYTES, row[lane].get()) };
        }
        Ok(())
    }

    fn store_many(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Access,
    ) -> Exec<()> {
        let bytes = a.bytes * a.rows.len() as u32;
        for lane in lanes(active) {
            let address = a.address.of(warp, at, lane);
            let pointer = self.pointer(
                env,
                warp,
                lane,
                Reach {
                    space: a.space,
                    address,
                    bytes,
                    access: "store",
                },
            )?;
            for (i, &row) in a.rows.iter().enumerate() {
                let value = warp.row(at.base, row)[lane].get();
                // SAFETY: `pointer` checked bounds and alignment of these bytes.
                unsafe {
                    memory::store(pointer.wrapping_add(i * a.bytes as usize), a.bytes, value)
                };
            }
        }
        Ok(())
    }

    pub(crate) fn atomic(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        a: &Atomic,
    ) -> Exec<()> {
        self.view.refresh();
        let bytes = a.ty.bytes();
        for lane in lanes(active) {
            let address = a.address.of(warp, at, lane);
            let reach = Reach {
                space: a.space,
                address,
                bytes: bytes * a.b.len() as u32,
                access: "atomic",
            };
            let pointer = self.pointer(env, warp, lane, reach)?;
            let space = if a.space == Space::Generic {
                windows::resolve(address).0
            } else {
                a.space
            };
            // The ISA: f32 additions flush subnormals in global memory and keep them in shared
            // memory.
            let flush = a.ty == Type::F32 && a.op == AtomicOp::Add && space == Space::Global;
            let c = if a.c == NOWHERE {
                0
            } else {
                warp.row(at.base, a.c)[lane].get()
            };
            for (i, (&d, &b)) in a.d.iter().zip(a.b.iter()).enumerate() {
                let b = warp.row(at.base, b)[lane].get();
                let element = pointer.wrapping_add(i * bytes as usize);
                // SAFETY: `pointer` checked bounds and alignment of these bytes.
                let old = unsafe {
                    memory::update(element, bytes, |old| combine(a.op, a.ty, old, b, c, flush))
                };
                if d != NOWHERE {
                    warp.row(at.base, d)[lane].set(old);
                }
            }
        }
        Ok(())
    }

    /// Bytes that a pointer argument of a built-in function points at, up to and without a zero
    /// byte.
    pub(crate) fn text(
        &mut self,
        env: &Env,
        warp: &Warp,
        lane: usize,
        address: u64,
    ) -> Exec<Vec<u8>> {
        let mut text = Vec::new();
        // A text without an end would run to the end of its allocation: bounded, but the limit
        // keeps it readable.
        while text.len() < 1 << 16 {
            let at = address.wrapping_add(text.len() as u64);
            match self.value(env, warp, lane, at, 1)? as u8 {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(text)
    }

    /// A value of `bytes` at a generic address.
    pub(crate) fn value(
        &mut self,
        env: &Env,
        warp: &Warp,
        lane: usize,
        address: u64,
        bytes: u32,
    ) -> Exec<u64> {
        self.view.refresh();
        let pointer = self.pointer(
            env,
            warp,
            lane,
            Reach {
                space: Space::Generic,
                address,
                bytes,
                access: "load",
            },
        )?;
        // SAFETY: `pointer` checked bounds and alignment.
        Ok(unsafe { memory::load(pointer, bytes) })
    }
}

#[inline]
fn sign_extend(value: u64, bytes: u32) -> u64 {
    let shift = 64 - 8 * bytes;
    ((value << shift) as i64 >> shift) as u64
}

#[inline]
fn shared_pointer(env: &Env, offset: u64, bytes: u32) -> Option<*mut u8> {
    let rank = offset >> windows::RANK_SHIFT;
    let shared = match rank.checked_sub(1) {
        None => env.shared(),
        Some(rank) => env.cluster.get(usize::try_from(rank).ok()?)?,
    };
    shared.get(offset & ((1 << windows::RANK_SHIFT) - 1), bytes)
}

#[inline]
fn local_pointer(warp: &Warp, lane: usize, offset: u64, bytes: u32) -> Option<*mut u8> {
    let (words, offset) = match offset.checked_sub(stack::DYNAMIC) {
        None => (warp.local.get(lane)?, offset),
        Some(offset) => (warp.dynamic.get(lane)?, offset),
    };
    let length = words.len() as u64 * 8;
    let fits = offset <= length && u64::from(bytes) <= length - offset;
    fits.then(|| {
        words
            .as_ptr()
            .cast::<u8>()
            .cast_mut()
            .wrapping_add(offset as usize)
    })
}
