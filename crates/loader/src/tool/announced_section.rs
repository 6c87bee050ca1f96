//! The section of a program that is about to be loaded: no part of `union bpf_attr`, so libbpf's
//! handler of ours notes it just before.

use std::cell::RefCell;

thread_local! {
    /// Name and section of the program that libbpf is about to load on this thread.
    static NEXT: RefCell<(String, String)> = const { RefCell::new((String::new(), String::new())) };
}

/// Bytes of a program's name that libbpf passes on.
const NAME_BYTES: usize = 15;

/// Notes name and section of the program that is loaded next on this thread.
pub fn announce(name: &str, section: &str) {
    NEXT.with(|next| *next.borrow_mut() = (name.to_owned(), section.to_owned()));
}

/// The section of a program with this shortened name, if it is the one that was announced. libbpf
/// loads a program that is refused a second time, for the verifier's text.
pub fn section_of(short_name: &str) -> Option<String> {
    NEXT.with(|next| {
        let next = next.borrow();
        let announced = &next.0.as_bytes()[..next.0.len().min(NAME_BYTES)];
        (!announced.is_empty() && announced == short_name.as_bytes()).then(|| next.1.clone())
    })
}
