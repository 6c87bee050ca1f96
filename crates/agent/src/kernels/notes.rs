//! What people are told: each text once, and not without end, because hooks tell of what they meet
//! again and again.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use warpbpf_abi::names::of_client;
use warpbpf_session::client::OWN;

use crate::sys::lock::lock;

/// Texts that are told at most, to all and to each second tool.
const MOST: usize = 1000;

/// What each second tool was told; under [`OWN`] what all tools were.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<HashMap<u32, HashSet<String>>>);

impl Said {
    /// Who of these second tools is to be told; all tools, if none is named. `None` if there is
    /// nobody to tell.
    pub(crate) fn new_for(&self, clients: &[u32], text: &str) -> Option<Vec<u32>> {
        let mut said = lock(&self.0);
        let mut is_new = |of: &u32| {
            let texts = said.entry(*of).or_default();
            texts.len() < MOST && texts.insert(text.to_owned())
        };
        if clients.is_empty() {
            return is_new(&OWN).then(Vec::new);
        }
        let new: Vec<u32> = clients.iter().copied().filter(|of| is_new(of)).collect();
        (!new.is_empty()).then_some(new)
    }

    /// A second tool has gone for good: it is told nothing, and nobody of its programs and maps.
    /// Else those who come and go would use up what those who stay may be told.
    pub(crate) fn forget(&self, client: u32) {
        let mut said = lock(&self.0);
        said.remove(&client);
        let its = format!("{}`", of_client("", client));
        if let Some(texts) = said.get_mut(&OWN) {
            texts.retain(|text| !text.contains(&its));
        }
    }
}

/// What is told of a failure of ours.
pub(crate) fn internal_failure(whose: &str, said: &str) -> String {
    format!(
        "warpbpf failed internally in {whose}: `{said}`; what that had to do is missing. Please report this with the program"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_told_once() {
        let said = Said::default();
        let told = |clients: &[u32], text| said.new_for(clients, text);
        assert_eq!([told(&[], "a"), told(&[], "a")], [Some(vec![]), None]);
        assert_eq!([told(&[1], "a"), told(&[1], "a")], [Some(vec![1]), None]);
        // Who has heard it is left out.
        assert_eq!(told(&[1, 2, 3], "a"), Some(vec![2, 3]));
        assert_eq!(told(&[3, 2], "a"), None);
    }

    #[test]
    fn no_tool_uses_up_what_others_may_be_told() {
        let said = Said::default();
        for number in 0..MOST {
            assert!(said.new_for(&[1], &number.to_string()).is_some());
        }
        assert_eq!(said.new_for(&[1, 2], "one more"), Some(vec![2]));
        for number in 0..MOST {
            assert!(said.new_for(&[], &number.to_string()).is_some());
        }
        assert_eq!(said.new_for(&[], "one more"), None);
        assert_eq!(said.new_for(&[3], "one more"), Some(vec![3]));
    }

    #[test]
    fn who_comes_and_goes_leaves_nothing_behind() {
        let said = Said::default();
        let texts = || lock(&said.0).values().map(HashSet::len).sum::<usize>();
        assert!(said.new_for(&[], "stays").is_some());
        for client in 1..=MOST as u32 + 1 {
            let text = format!("program `count@c{client}` does not run there");
            assert_eq!(said.new_for(&[], &text), Some(vec![]));
            assert_eq!(said.new_for(&[client], "a"), Some(vec![client]));
            said.forget(client);
            assert_eq!(texts(), 1);
        }
        // Another's number begins like it.
        assert!(said.new_for(&[], "map `total@c12` is full").is_some());
        said.forget(1);
        assert_eq!((texts(), said.new_for(&[], "stays")), (2, None));
    }
}
