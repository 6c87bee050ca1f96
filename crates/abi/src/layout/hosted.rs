//! A hash that the user forced to the host: the host keeps it, and programs ask for each operation.

use crate::align::align_up;

/// Two blocks. The *control block* is in device memory, and programs know its address. It says
/// where the *host block* is, in page-locked memory, where requests, answers and the entries
/// themselves lie.
///
/// A lane takes one of [`HostedLayout::SLOTS`] slots by a CAS on its claim, writes the operation,
/// the key and the value into the slot, and then the slot's next ticket into its request word. The
/// host sees a ticket that it has not answered, does the operation, and writes ticket and result
/// into the answer word, in one store. Each word of the host block has one writer, because a CAS of
/// the device and one of the host on the same word are not atomic across a PCI bus; the claims,
/// which only lanes change, are in device memory.
///
/// A lane looks [`HostedLayout::ROUNDS`] times at most, and no longer than the limit in the control
/// block. Then it leaves its claim *abandoned*: the next lane takes the slot over once the host has
/// answered. It also notes in `STALLED` how many rounds the host had made; who comes later and
/// finds that it has made none since gives up at once. So a host that stands still costs a kernel
/// its limit about once, and not once per call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostedLayout {
    /// Most keys at once.
    pub max_entries: u32,
    /// Key size as declared.
    pub key_size: u32,
    /// Value size as declared.
    pub value_size: u32,
}

impl HostedLayout {
    /// Requests that can be under way at once; a power of two.
    pub const SLOTS: u64 = 512;
    /// Most rounds of a lane's loop, each of which looks at memory that lanes share at least.
    pub const ROUNDS: u32 = 1 << 24;
    /// Longest limit in nanoseconds: below it the clock ends a call, and not the number of rounds.
    pub const LONGEST: u64 = 10_000_000_000;
    /// Limit in nanoseconds where nobody chose one.
    pub const DEFAULT_LIMIT: u64 = 1_000_000_000;
    /// Entries more than `max_entries`: what is deleted or replaced keeps its contents until so
    /// many others were.
    pub const SPARE: u64 = 4096;

    /// In the control block: device address of the host block (u64).
    pub const HOST: u64 = 0;
    /// In the control block: nanoseconds that a call may take (u64).
    pub const LIMIT: u64 = 8;
    /// In the control block: [`HostedLayout::ALIVE`] plus one as it was when a call last ran out of
    /// time; 0 if none did (u64).
    pub const STALLED: u64 = 16;
    /// In the control block: claims (u64 per slot), `tickets used << 2 | state`.
    pub const CLAIMS: u64 = 128;
    /// State of a claim: nobody's.
    pub const FREE: u64 = 0;
    /// State of a claim: a lane waits for its answer.
    pub const TAKEN: u64 = 1;
    /// State of a claim: its lane has gone, the answer to its ticket may be outstanding.
    pub const ABANDONED: u64 = 2;
    /// Bytes of the control block.
    pub const CONTROL_BYTES: u64 = Self::CLAIMS + 8 * Self::SLOTS;

    /// In the host block: calls that ran out of time (u64; lanes add).
    pub const TIMED_OUT: u64 = 0;
    /// In the host block: updates refused because the map was full (u64).
    pub const COUNT_FULL: u64 = 64;
    /// In the host block: rounds of the host over the requests (u64).
    pub const ALIVE: u64 = 72;
    /// In the host block: request words (u64 per slot), the last ticket asked.
    pub const REQUESTS: u64 = 128;
    /// In the host block: answer words (u64 per slot), `ticket << 32 | result` with the lower
    /// halves of both. A result is an error number, or the number of an entry, or 0.
    pub const ANSWERS: u64 = Self::REQUESTS + 8 * Self::SLOTS;
    /// In the host block: first slot. A slot is the operation, the flags, the key and the value, in
    /// words.
    pub const FIRST_SLOT: u64 = Self::ANSWERS + 8 * Self::SLOTS;
    /// In a slot: what to do (u64).
    pub const OP: u64 = 0;
    /// In a slot: flags of an update (u64).
    pub const FLAGS: u64 = 8;
    /// In a slot: the key, and the value behind it.
    pub const KEY: u64 = 16;
    /// In [`HostedLayout::OP`]: the entry of a key.
    pub const LOOKUP: u64 = 1;
    /// In [`HostedLayout::OP`]: give a key a value.
    pub const UPDATE: u64 = 2;
    /// In [`HostedLayout::OP`]: remove a key.
    pub const DELETE: u64 = 3;
    /// An entry begins with a word: 1 if its key is in the map. Key and value follow.
    pub const ENTRY_KEY: u64 = 8;

    /// Bytes of a key in words.
    pub const fn key_stride(&self) -> u64 {
        align_up(self.key_size as u64, 8)
    }
    /// Bytes of a value in words.
    pub const fn value_stride(&self) -> u64 {
        align_up(self.value_size as u64, 8)
    }
    /// Distance of slots.
    pub const fn slot_stride(&self) -> u64 {
        align_up(Self::KEY + self.key_stride() + self.value_stride(), 64)
    }
    /// Number of entries.
    pub const fn entries(&self) -> u64 {
        self.max_entries as u64 + Self::SPARE
    }
    /// Distance of entries.
    pub const fn entry_stride(&self) -> u64 {
        Self::ENTRY_KEY + self.key_stride() + self.value_stride()
    }
    /// Position of the first entry in the host block.
    pub const fn entries_at(&self) -> u64 {
        Self::FIRST_SLOT + Self::SLOTS * self.slot_stride()
    }
    /// Position of an entry in the host block.
    pub const fn entry(&self, number: u64) -> u64 {
        self.entries_at() + number * self.entry_stride()
    }
    /// Bytes of the host block.
    pub const fn size(&self) -> u64 {
        self.entry(self.entries())
    }
}
