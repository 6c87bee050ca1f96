//! How long a consumer takes for each event out of shared memory, in nanoseconds: events of their
//! own, and in chunks as devices write them, of 32 bytes with their headers. `cargo bench -p
//! warpbpf-wire --bench events`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::time::{Duration, Instant};

use warpbpf_abi::layout::RingLayout;
use warpbpf_wire::{SharedError, SharedReader, SharedWriter};

const RING: u64 = 64 << 20;
const RECORD: u64 = 32;
const PAYLOAD: usize = (RECORD - RingLayout::HEADER) as usize;
/// Chunks as large as a device's ring.
const CHUNK: u64 = 4 << 20;
const ROUNDS: usize = 9;

fn main() {
    match measure() {
        Ok((singly, in_chunks)) => {
            println!("events of their own {singly:.1} ns, in chunks {in_chunks:.1} ns");
        }
        Err(error) => println!("{error}"),
    }
}

fn measure() -> Result<(f64, f64), SharedError> {
    let (mut writer, fd) = SharedWriter::create(&[0], RING)?;
    let mut reader = SharedReader::open(&fd)?;
    let (mut singly, mut in_chunks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        while writer.try_push(0, 0, &[7; PAYLOAD]) {}
        singly.push(read(&mut reader)?);
        let mut chunks = writer.chunks();
        while let Some(spans) = chunks.reserve(0, 0, CHUNK) {
            for span in spans {
                for at in (0..span.bytes).step_by(RECORD as usize) {
                    // SAFETY: room that was reserved. A record does not lie over its end: both are
                    // multiples of its size.
                    unsafe {
                        let record = span.start.add(at as usize);
                        record.cast::<u64>().write(PAYLOAD as u64);
                        record.add(8).write_bytes(7, PAYLOAD);
                    }
                }
            }
        }
        chunks.publish();
        in_chunks.push(read(&mut reader)?);
    }
    Ok((median(singly), median(in_chunks)))
}

/// Nanoseconds for each event that is there.
fn read(reader: &mut SharedReader) -> Result<f64, SharedError> {
    let begun = Instant::now();
    let mut sum = 0;
    let events = reader.events(|event| sum += u64::from(event.payload[0]))?;
    let took: Duration = begun.elapsed();
    assert_eq!(sum, events * 7);
    Ok(took.as_secs_f64() * 1e9 / events as f64)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
