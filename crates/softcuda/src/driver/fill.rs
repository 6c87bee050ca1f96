//! Fills, and words written and waited for in stream order.

use crate::driver::copy::{Wait, Work, device_place};
use crate::driver::streams;
use crate::error::{CuError, CuResult};
use crate::state::{Handle, current, soft};
use crate::stream::Run;

/// Fills `rows` rows of `count` elements of `N` bytes.
fn set<const N: usize>(
    work: Work,
    address: u64,
    pitch: usize,
    element: [u8; N],
    count: usize,
    rows: usize,
) -> CuResult {
    if !address.is_multiple_of(N as u64) || !pitch.is_multiple_of(N) {
        return Err(CuError::INVALID_VALUE);
    }
    let width = (count as u64)
        .checked_mul(N as u64)
        .ok_or(CuError::INVALID_VALUE)?;
    if width == 0 || rows == 0 {
        return Ok(());
    }
    let length = (pitch as u64)
        .checked_mul(rows as u64 - 1)
        .and_then(|n| n.checked_add(width));
    device_place(work.soft, address, length.ok_or(CuError::INVALID_VALUE)?)?;
    if rows > 1 && (pitch as u64) < width {
        return Err(CuError::INVALID_VALUE);
    }
    work.run(move |soft| {
        let same = element.iter().all(|&byte| byte == element[0]);
        let pattern = element.repeat(if same { 1 } else { 4096 / N });
        for row in 0..rows as u64 {
            let start = address + row * pitch as u64;
            // Checked above; freed since then is the program's mistake, as in `transfer`.
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
    })
}

macro_rules! fills {
    ($($row:ident, $row_async:ident, $rows:ident, $rows_async:ident: $ty:ty;)*) => {
        $(
            pub(crate) unsafe fn $row(address: u64, value: $ty, count: usize) -> CuResult {
                set(Work::blocking()?, address, 0, value.to_ne_bytes(), count, 1)
            }

            pub(crate) unsafe fn $row_async(address: u64, value: $ty, count: usize, stream: Handle) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, address, 0, value.to_ne_bytes(), count, 1)
            }

            pub(crate) unsafe fn $rows(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize,
            ) -> CuResult {
                set(Work::blocking()?, address, pitch, value.to_ne_bytes(), width, height)
            }

            pub(crate) unsafe fn $rows_async(
                address: u64, pitch: usize, value: $ty, width: usize, height: usize, stream: Handle,
            ) -> CuResult {
                set(Work::in_stream(stream, Wait::No)?, address, pitch, value.to_ne_bytes(), width, height)
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
    let stream = streams::find(soft, &context, stream)?;
    device_place(soft, address, bytes as u64)?;
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
