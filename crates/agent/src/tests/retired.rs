//! Agents of sessions that are over: kept while somebody may be in their code, and freed with all
//! that they own.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use warpbpf_session::choices::Choices;

use super::fake;
use crate::kernels::entry::{Entry, Place};
use crate::runtime::agent::Agent;
use crate::startup::retired::retire;
use crate::sys::descriptors::FileThread;
use crate::sys::lock::lock;

/// Retired agents are of the whole process.
static ONE: Mutex<()> = Mutex::new(());

/// An agent with a kernel that was launched, and what it shares with its thread for descriptors.
fn agent() -> (&'static Agent, Arc<FileThread>) {
    let (agent, _) = fake::agent();
    let entry: &Entry = agent.kernel_registry.add("kernel", None);
    entry.add(Place::new(16, (0, 4), 1, (None, Choices::default())));
    entry.tally(agent.generations.now());
    agent.table.insert(16, entry);
    (agent, Arc::clone(&agent.files))
}

#[test]
fn an_agent_is_freed_when_no_thread_can_be_in_its_code() {
    let _one = lock(&ONE);
    let (first, first_files) = agent();
    let (second, second_files) = agent();
    let holders = || [&first_files, &second_files].map(Arc::strong_count);
    let before = holders();
    // A thread is in the code, or threads of ours have not ended.
    retire(first, || true, || false);
    assert_eq!(holders(), before);
    let asked = Cell::new(false);
    retire(
        second,
        || false,
        || {
            asked.set(true);
            true
        },
    );
    assert_eq!((holders(), asked.get()), (before, false));
    // The next one takes those with it that waited.
    let (third, third_files) = agent();
    let third_before = Arc::strong_count(&third_files);
    retire(third, || true, || true);
    assert_eq!(holders(), before.map(|count| count - 1));
    assert_eq!(Arc::strong_count(&third_files), third_before - 1);
}
