//! Access of one device's kernels to another's memory: a program asks for it, context by context.
//! Copies between devices need none of it.

use std::ffi::c_int;

use crate::driver::device;
use crate::error::{CuError, CuResult};
use crate::objects::context::Context;
use crate::objects::handle::{Handle, lock};
use crate::state::{Soft, context, current, put, soft};

/// Tells the devices what their kernels reach: what any context of theirs was allowed.
fn open(soft: &Soft) {
    let contexts = soft.contexts.all();
    for (ordinal, device) in soft.devices.iter().enumerate() {
        let mut reached = vec![false; soft.devices.len()];
        for context in contexts.iter().filter(|c| c.device == ordinal) {
            for peer in lock(&context.peers).iter() {
                if let Some(peer) = soft.contexts.get(*peer) {
                    reached[peer.device] = true;
                }
            }
        }
        let peers = soft.devices.iter().zip(reached);
        let peers = peers.filter(|(_, reached)| *reached).map(|(d, _)| &d.gpu);
        device.gpu.set_peers(peers);
    }
}

pub(crate) unsafe fn enable(peer: Handle, flags: u32) -> CuResult {
    let soft = soft()?;
    let own = current()?;
    let peer = context(soft, peer).map_err(|_| CuError::INVALID_CONTEXT)?;
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if peer.device == own.device {
        return Err(match peer.handle == own.handle {
            true => CuError::INVALID_CONTEXT,
            false => CuError::PEER_ACCESS_UNSUPPORTED,
        });
    }
    if !lock(&own.peers).insert(peer.handle) {
        return Err(CuError::PEER_ACCESS_ALREADY_ENABLED);
    }
    open(soft);
    Ok(())
}

pub(crate) unsafe fn disable(peer: Handle) -> CuResult {
    let soft = soft()?;
    let own = current()?;
    context(soft, peer).map_err(|_| CuError::INVALID_CONTEXT)?;
    // Kernels that use it may still run.
    own.synchronize()?;
    if !lock(&own.peers).remove(&peer) {
        return Err(CuError::PEER_ACCESS_NOT_ENABLED);
    }
    open(soft);
    Ok(())
}

/// `CU_DEVICE_P2P_ATTRIBUTE_…`: performance rank, access, native atomics, access to arrays.
pub(crate) unsafe fn attribute(to: *mut c_int, which: c_int, from: c_int, peer: c_int) -> CuResult {
    device::check(from)?;
    device::check(peer)?;
    let value = match which {
        1 => 0,
        2 | 3 => c_int::from(from != peer),
        4 => 0,
        _ => return Err(CuError::INVALID_VALUE),
    };
    if from == peer {
        return Err(CuError::INVALID_DEVICE);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, value) }
}

/// What a context was allowed, and what others were allowed in it, ends with it.
pub(crate) fn forget_context(soft: &Soft, own: &Context) {
    let had = !lock(&own.peers).is_empty();
    lock(&own.peers).clear();
    let mut was_peer = false;
    for context in soft.contexts.all() {
        was_peer |= lock(&context.peers).remove(&own.handle);
    }
    if had || was_peer {
        open(soft);
    }
}
