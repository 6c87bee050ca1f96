//! `st.async` and `red.async`: a store to another block of the cluster whose barrier object learns
//! that the bytes have come. Like all copies here they are done when they are issued.

use crate::async_copy;
use crate::atomics::combine;
use crate::block::Env;
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::AsyncStore;
use crate::op::operand::{Address, Space};
use crate::position::Position;
use crate::trap::Exec;
use crate::warp::{Warp, lanes};
use crate::worker::Worker;

impl Worker<'_> {
    pub(crate) fn store_async(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        store: &AsyncStore,
    ) -> Exec<()> {
        let bytes = store.bytes * store.rows.len() as u32;
        for lane in lanes(active) {
            let reach = |address: Address, bytes, access| Reach {
                space: Space::SharedCluster,
                address: address.of(warp, at, lane),
                bytes,
                access,
            };
            let to = self.pointer(env, warp, lane, reach(store.to, bytes, "store"))?;
            let barrier = self.pointer(env, warp, lane, reach(store.barrier, 8, "atomic"))?;
            for (i, &row) in store.rows.iter().enumerate() {
                let value = warp.row(at.base, row)[lane].get();
                let element = to.wrapping_add(i * store.bytes as usize);
                match store.reduce {
                    // SAFETY: `pointer` checked bounds and alignment of all elements.
                    None => unsafe { memory::store(element, store.bytes, value) },
                    Some((op, ty)) => {
                        // SAFETY: as above.
                        unsafe {
                            memory::update(element, store.bytes, |old| {
                                combine(op, ty, old, value, 0, false)
                            })
                        };
                    }
                }
            }
            // SAFETY: `pointer` checked bounds and alignment of the object.
            unsafe { async_copy::complete_tx(barrier, bytes) };
        }
        Ok(())
    }
}
