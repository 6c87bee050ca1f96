//! A run's own memory on the device: what lies where.

/// Bytes of stack, of all functions together.
pub(super) const STACK: u32 = 512;
/// Where the key of a call of a helper is copied to.
pub(super) const KEY_AT: u32 = STACK;
pub(super) const KEY_BYTES: u32 = 64;
/// Where its value is copied to.
pub(super) const VALUE_AT: u32 = KEY_AT + KEY_BYTES;
pub(super) const VALUE_BYTES: u32 = 256;
/// What functions keep while they call others: by depth.
pub(super) const KEPT_AT: u32 = VALUE_AT + VALUE_BYTES;
pub(super) const KEPT_BYTES: u32 = 64;
pub(super) const DEPTHS: u32 = 16;
/// What `r1` was when the run began: several programs of a slot get it one after the other.
pub(super) const CONTEXT_AT: u32 = KEPT_AT + DEPTHS * KEPT_BYTES;
/// Bytes of the run's own memory.
pub(super) const AREA_BYTES: u32 = CONTEXT_AT + 16;
/// In what a function keeps, behind `r6` to `r9`: rounds that `may_goto` has left; how often
/// `bpf_loop` calls, its context and its number.
pub(super) const ROUNDS: u32 = 32;
pub(super) const LOOPS: u32 = 40;
pub(super) const LOOP_CONTEXT: u32 = 48;
pub(super) const LOOP_NUMBER: u32 = 56;
