//! Numbers of processes in namespaces: a tool knows an application by the number that its user
//! would type, and the application itself may have another one (in a container).

use warpbpf_inject::{status_field, text};

/// The number by which a process knows itself, as Linux says of it.
fn own(pid: u32) -> Option<u32> {
    let status = text(format!("/proc/{pid}/status")).ok()?;
    last(&status_field(&status, "NSpid")?)
}

/// Of numbers from our namespace inwards, the innermost.
fn last(numbers: &str) -> Option<u32> {
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The number by which a process knows itself, where that is another one.
pub(crate) fn inside(pid: u32) -> Option<u32> {
    own(pid).filter(|own| *own != pid)
}

/// Our number of an agent's process that calls itself `told`, if the process at the other end of
/// its connection is that one: it may also be a tool that speaks of it, or one that we cannot see.
pub(crate) fn outside(peer: Option<u32>, told: u32) -> u32 {
    peer.filter(|peer| own(*peer) == Some(told)).unwrap_or(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_has_one_number() {
        let here = std::process::id();
        assert_eq!(last("4711\t31\t1"), Some(1));
        assert_eq!(last("4711"), Some(4711));
        assert_eq!(last(""), None);
        // Where this runs in a container we have the inner number, and see no other.
        assert_eq!(inside(here), None);
        assert_eq!(outside(Some(here), here), here);
        assert_eq!(outside(Some(here), here + 1), here + 1, "not that one");
        assert_eq!(outside(None, 7), 7, "nobody that we see");
    }
}
