//! What programs on the CPU find around them.

use warpbpf_abi::maps::BPF_ANY;
use warpbpf_maps::words;

use super::clock::Clock;

/// Where a GPU's thread would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coordinates {
    /// `blockIdx`
    pub block: [u32; 3],
    /// `blockDim`
    pub block_dim: [u32; 3],
    /// `threadIdx`
    pub thread: [u32; 3],
    /// `gridDim`
    pub grid_dim: [u32; 3],
    /// Lane in the warp.
    pub lane: u32,
    /// Warp in the block.
    pub warp: u32,
    /// Multiprocessor.
    pub sm: u32,
}

/// Fields of a context that say where a thread is, with their offsets; every context begins with
/// them.
pub(super) fn places(at: &mut Coordinates) -> Vec<(usize, &mut u32)> {
    use warpbpf_abi::context::{FieldSource, KERNEL};
    let offset = |source: FieldSource| {
        let field = KERNEL.fields.iter().find(|field| field.source == source);
        field.map_or(usize::MAX, |field| field.offset as usize)
    };
    type Component = fn(u8) -> FieldSource;
    let threes = [
        (&mut at.block, FieldSource::BlockIdx as Component),
        (&mut at.block_dim, FieldSource::BlockDim),
        (&mut at.thread, FieldSource::ThreadIdx),
        (&mut at.grid_dim, FieldSource::GridDim),
    ];
    let mut places = vec![
        (offset(FieldSource::Lane), &mut at.lane),
        (offset(FieldSource::Warp), &mut at.warp),
        (offset(FieldSource::Sm), &mut at.sm),
    ];
    for (values, source) in threes {
        places.extend(
            (0..)
                .zip(values)
                .map(|(i, value)| (offset(source(i)), value)),
        );
    }
    places
}

impl Coordinates {
    /// Those that a context says.
    pub fn of_context(context: &[u8]) -> Coordinates {
        let mut at = Coordinates::default();
        for (offset, value) in places(&mut at) {
            if let Some(bytes) = context.get(offset..).and_then(|rest| rest.first_chunk()) {
                *value = u32::from_le_bytes(*bytes);
            }
        }
        at
    }

    /// A context that says them and nothing else.
    pub fn context(mut self, bytes: usize) -> Vec<u8> {
        let mut context = vec![0; bytes];
        for (offset, value) in places(&mut self) {
            if let Some(place) = context.get_mut(offset..).and_then(|rest| rest.get_mut(..4)) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
        context
    }
}

/// [`Surroundings::store`] where a value can only be given as a whole.
///
/// # Errors
/// As there.
pub fn store_by_update<W: Surroundings + ?Sized>(
    world: &mut W,
    map: u32,
    key: &[u8],
    value: &[u8],
    meant: &[usize],
) -> Result<(), i64> {
    let mut there = world.lookup(map, key)?;
    there.resize(value.len(), 0);
    let packed = words::pack(value, meant.iter().copied());
    if let Some((words, marks)) = words::unpack(&packed, value.len()) {
        words::apply(words, marks, &mut there);
    }
    world.update(map, key, &there, BPF_ANY)
}

/// What a program on the CPU sees of the world. Errors are Linux's numbers, negative.
pub trait Surroundings {
    /// The value of a key, of one CPU where each has one.
    ///
    /// # Errors
    /// `-ENOENT` if there is no such key.
    fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, i64>;
    /// Gives a key a value.
    ///
    /// # Errors
    /// As the helper's.
    fn update(&mut self, map: u32, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64>;
    /// Stores some words of a value, by number, over what stands there now, and leaves the others.
    ///
    /// # Errors
    /// `-ENOENT` if there is no such key any more, else as for an update.
    fn store(&mut self, map: u32, key: &[u8], value: &[u8], meant: &[usize]) -> Result<(), i64> {
        store_by_update(self, map, key, value, meant)
    }
    /// Removes a key.
    ///
    /// # Errors
    /// As the helper's.
    fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), i64>;
    /// Adds a value to a queue, stack or bloom filter.
    ///
    /// # Errors
    /// As the helper's.
    fn push(&mut self, map: u32, value: &[u8], flags: u64) -> Result<(), i64>;
    /// Takes the next value out.
    ///
    /// # Errors
    /// As the helper's.
    fn pop(&mut self, map: u32) -> Result<Vec<u8>, i64>;
    /// Hands over an event.
    ///
    /// # Errors
    /// `-EAGAIN` if there is no room.
    fn output(&mut self, map: u32, record: &[u8]) -> Result<(), i64>;
    /// Takes a message, formatted.
    fn print(&mut self, text: &str);
    /// Copies memory of the process; false, and what is in `into` does not matter, if not all of it
    /// can be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;
    /// Process in the upper half, thread in the lower.
    fn pid_tgid(&mut self) -> u64 {
        let pid = u64::from(std::process::id());
        pid << 32
            | u64::from(
                rustix::thread::gettid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned(),
            )
    }
    /// Group in the upper half, user in the lower.
    fn uid_gid(&mut self) -> u64 {
        let (gid, uid) = (rustix::process::getgid(), rustix::process::getuid());
        u64::from(gid.as_raw()) << 32 | u64::from(uid.as_raw())
    }
    /// Name of the thread, with a NUL and zeroes.
    fn comm(&mut self) -> [u8; 16] {
        let mut name = [0; 16];
        let text = rustix::thread::name().unwrap_or_default();
        let text = text.as_bytes();
        let bytes = text.len().min(15);
        name[..bytes].copy_from_slice(&text[..bytes]);
        name
    }
    /// Number of the CPU.
    fn cpu(&mut self) -> u32;
    /// Nanoseconds of a clock.
    fn clock(&mut self, clock: Clock) -> u64 {
        crate::cpu::clock::host_ns(clock)
    }
    /// A random number.
    fn random(&mut self) -> u32 {
        use std::hash::{BuildHasher as _, RandomState};
        // Each state has random keys.
        RandomState::new().hash_one(0) as u32
    }
    /// The run has taken as long as it may. Asked before each helper and atomic, for instructions
    /// alone are bounded by `FUEL`.
    fn out_of_time(&mut self) -> bool {
        false
    }
    /// Address of the function whose start or end the program is at; 0 if it is at none.
    fn function(&self) -> u64 {
        0
    }
    /// Where the thread is, if the program is a GPU's.
    fn coordinates(&self) -> Option<Coordinates>;
}
