//! Fills, and words written and waited for in stream order.

use crate::driver::copy::{Wait, Work};
use crate::driver::{capture, stream_handles, streams};
use crate::error::{CuError, CuResult};
use crate::objects::fill::{Fill, FillParams};
use crate::objects::handle::Handle;
use crate::objects::stream::Run;
use crate::objects::work::Operation;
use crate::state::{Soft, current, soft};
use crate::work::bytes::device_place;

impl Fill {
    /// # Errors
    /// What is wrong with the parameters.
    pub(crate) fn of(soft: &Soft, params: FillParams) -> Result<Fill, CuError> {
        let element = u64::from(params.element);
        let pitch = if params.height > 1 {
            params.pitch as u64
        } else {
            0
        };
        if !matches!(element, 1 | 2 | 4)
            || !params.address.is_multiple_of(element)
            || !pitch.is_multiple_of(element)
        {
            return Err(CuError::INVALID_VALUE);
        }
        let width = (params.width as u64)
            .checked_mul(element)
            .ok_or(CuError::INVALID_VALUE)?;
        if width == 0 || params.height == 0 {
            return Ok(Fill { params });
        }
        let length = pitch
            .checked_mul(params.height as u64 - 1)
            .and_then(|n| n.checked_add(width));
        let length = length.ok_or(CuError::INVALID_VALUE)?;
        device_place(soft, params.address, length)?;
        if params.height > 1 && pitch < width {
            return Err(CuError::INVALID_VALUE);
        }
        Ok(Fill { params })
    }
}

fn set(work: Work, params: FillParams) -> CuResult {
    let fill = Fill::of(work.soft, params)?;
    if fill.is_empty() {
        return Ok(());
    }
    work.perform(Operation::Fill(fill))
}

/// The parameters of a fill with elements of this type.
fn params<T: Into<u32>>(
    address: u64,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
) -> FillParams {
    FillParams {
        address,
        pitch,
        value: value.into(),
        element: size_of::<T>() as u32,
        width,
        height,
    }
}

macro_rules! fills {
    ($($row:ident, $row_async:ident, $rows:ident, $rows_async:ident: $ty:ty;)*) => {
        $(
            pub(crate) unsafe fn $row(address: u64, value: $ty, count: usize) -> CuResult {
                set(Work::blocking()?, params(address, 0, value, count, 1))
            }

            pub(crate) unsafe fn $row_async(address: u64, value: $ty, count: usize, stream: Handle) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, params(address, 0, value, count, 1))
            }

            pub(crate) unsafe fn $rows(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize,
            ) -> CuResult {
                set(Work::blocking()?, params(address, pitch, value, width, height))
            }

            pub(crate) unsafe fn $rows_async(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize, stream: Handle,
            ) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, params(address, pitch, value, width, height))
            }
        )*
    };
}

fills! {
    set_8, set_8_async, set_2d_8, set_2d_8_async: u8;
    set_16, set_16_async, set_2d_16, set_2d_16_async: u16;
    set_32, set_32_async, set_2d_32, set_2d_32_async: u32;
}

/// Writes a word in stream order.
fn write_value<const N: usize>(stream: Handle, address: u64, value: [u8; N]) -> CuResult {
    let work = Work::in_stream(stream, Wait::No)?;
    device_place(work.soft, address, N as u64)?;
    work.run(move |soft| {
        let _ = soft.write(address, &value);
    })
}

pub(crate) unsafe fn write_value_32(
    stream: Handle,
    address: u64,
    value: u32,
    _flags: u32,
) -> CuResult {
    write_value(stream, address, value.to_ne_bytes())
}

pub(crate) unsafe fn write_value_64(
    stream: Handle,
    address: u64,
    value: u64,
    _flags: u32,
) -> CuResult {
    write_value(stream, address, value.to_ne_bytes())
}

/// Holds a stream until a word compares as asked: `>=` (cyclic), `==`, `&`, `nor`.
fn wait_value(
    stream: Handle,
    address: u64,
    bytes: usize,
    flags: u32,
    fits: fn(u64, u64, u32) -> bool,
    value: u64,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    let stream = stream_handles::find(soft, &context, stream)?;
    device_place(soft, address, bytes as u64)?;
    capture::refuse(soft, &context, &stream)?;
    streams::submit(soft, &context, &stream, Run::Elsewhere, move || {
        let mut word = [0u8; 8];
        loop {
            let read = soft.read(address, &mut word[..bytes]);
            if read.is_err() || fits(u64::from_ne_bytes(word), value, flags & 3) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
    });
    Ok(())
}

pub(crate) unsafe fn wait_value_32(
    stream: Handle,
    address: u64,
    value: u32,
    flags: u32,
) -> CuResult {
    let fits = |found: u64, value: u64, how: u32| {
        let (found, value) = (found as u32, value as u32);
        match how {
            0 => found.wrapping_sub(value) as i32 >= 0,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) != 0,
        }
    };
    wait_value(stream, address, 4, flags, fits, u64::from(value))
}

pub(crate) unsafe fn wait_value_64(
    stream: Handle,
    address: u64,
    value: u64,
    flags: u32,
) -> CuResult {
    let fits = |found: u64, value: u64, how: u32| match how {
        0 => found.wrapping_sub(value) as i64 >= 0,
        1 => found == value,
        2 => found & value != 0,
        _ => !(found | value) != 0,
    };
    wait_value(stream, address, 8, flags, fits, value)
}
