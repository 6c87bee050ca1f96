//! Where bytes are, and their copies and fills.

use crate::error::CuError;
use crate::objects::fill::Fill;
use crate::objects::transfer::{Place, Side, Transfer};
use crate::state::Soft;

fn in_arena(soft: &Soft, address: u64) -> bool {
    soft.device_at(address).is_some()
}

/// A device address: the whole range must be in one allocation.
pub(crate) fn device_place(soft: &Soft, address: u64, bytes: u64) -> Result<Place, CuError> {
    let (base, size) = soft.range_of(address).ok_or(CuError::INVALID_VALUE)?;
    if bytes > size - (address - base) {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(if in_arena(soft, address) {
        Place::Arena(address)
    } else {
        Place::Host(address)
    })
}

/// An address of either side, as unified addressing lets a program give everywhere.
pub(crate) fn any_place(soft: &Soft, address: u64, bytes: u64) -> Result<Place, CuError> {
    if in_arena(soft, address) {
        device_place(soft, address, bytes)
    } else if address == 0 {
        Err(CuError::INVALID_VALUE)
    } else {
        Ok(Place::Host(address))
    }
}

/// Moves bytes. Device memory that was freed since the call is left alone: the program's mistake,
/// seen by its sticky neighbours on a real device too.
fn transfer(soft: &Soft, to: Place, from: Place, bytes: u64) {
    let length = bytes as usize;
    match (to, from) {
        // SAFETY: host ranges are valid by the caller's promise.
        (Place::Host(to), Place::Host(from)) => unsafe {
            std::ptr::copy(from as *const u8, to as *mut u8, length);
        },
        (Place::Arena(to), Place::Host(from)) => {
            // SAFETY: as above.
            let data = unsafe { std::slice::from_raw_parts(from as *const u8, length) };
            let _ = soft.write(to, data);
        }
        (Place::Host(to), Place::Arena(from)) => {
            // SAFETY: as above.
            let out = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, length) };
            let _ = soft.read(from, out);
        }
        (Place::Arena(to), Place::Arena(from)) => {
            const CHUNK: u64 = 64 << 10;
            let mut buffer = vec![0u8; bytes.min(CHUNK) as usize];
            let mut done = 0;
            while done < bytes {
                let part = &mut buffer[..(bytes - done).min(CHUNK) as usize];
                if soft.read(from + done, part).is_err() || soft.write(to + done, part).is_err() {
                    return;
                }
                done += part.len() as u64;
            }
        }
    }
}

impl Transfer {
    pub(crate) fn run(&self, soft: &Soft) {
        for z in 0..self.extent[2] {
            for y in 0..self.extent[1] {
                let at = |side: Side| side.start.add(z * side.slice + y * side.pitch);
                transfer(soft, at(self.to), at(self.from), self.extent[0]);
            }
        }
    }
}

impl Fill {
    pub(crate) fn run(&self, soft: &Soft) {
        let params = &self.params;
        let size = params.element as usize;
        let element = &params.value.to_le_bytes()[..size];
        let width = (params.width * size) as u64;
        let same = element.iter().all(|&byte| byte == element[0]);
        let pattern = element.repeat(if same { 1 } else { 4096 / size });
        for row in 0..params.height as u64 {
            let start = params.address + row * params.pitch as u64;
            // Checked before; freed since then is the program's mistake, as in `transfer`.
            if same {
                let _ = soft.fill(start, element[0], width);
                continue;
            }
            let mut done = 0;
            while done < width {
                let part = &pattern[..(width - done).min(pattern.len() as u64) as usize];
                let _ = soft.write(start + done, part);
                done += part.len() as u64;
            }
        }
    }
}
