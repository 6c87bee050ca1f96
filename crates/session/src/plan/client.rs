//! Programs of a second tool in the session of a first: named apart, so that one object may be
//! there any number of times, and told apart wherever somebody counts.
//!
//! A *client* is a tool that has its programs in a session which another tool began. It is a
//! number; the tool that began the session is [`OWN`]. Names of its programs and maps get that
//! number behind them here, and nowhere else; who shows them to the client takes it away again
//! ([`warpbpf_abi::names::plain`]).

use std::collections::HashSet;

use warpbpf_abi::method::Method;
use warpbpf_abi::names::of_client;
use warpbpf_abi::options::Options;
use warpbpf_object::{MapDef, Program};

use crate::plan::image::ImageInfo;

pub use crate::plan::planned::OWN;
use crate::plan::planned::PlannedProgram;
use crate::plan::prepared::Prepared;
use crate::plan::replace::error::ReplaceError;
use crate::plan::session::Session;

/// Gives programs and maps the names that they have in a session.
pub(crate) fn rename(programs: &mut [Program], maps: &mut [MapDef], client: u32) {
    if client == OWN {
        return;
    }
    for program in programs {
        program.name = of_client(&program.name, client);
    }
    for map in maps {
        map.name = of_client(&map.name, client);
    }
}

/// What holds for a client's programs: of what it asks for how they are proved and which launches
/// they are in, all else as in the session.
pub(crate) fn options(session: &Options, request: &Options, client: u32) -> Options {
    let choose = request.choose.iter();
    Options {
        allow_modify: request.allow_modify,
        budget: request.budget,
        bound_loops: request.bound_loops,
        strict_uniform: request.strict_uniform,
        threads: request.threads,
        choice: request.choice.clone(),
        choose: choose
            .map(|(name, request)| (of_client(name, client), request.clone()))
            .collect(),
        map_memory: Vec::new(),
        ..session.clone()
    }
}

impl ReplaceError {
    /// The message for a client, who knows its programs and maps by the names in its object.
    pub fn told_to(&self, client: u32) -> String {
        let tagged = format!("{}`", of_client("", client));
        self.to_string().replace(&tagged, "`")
    }
}

impl Session {
    /// There are programs of clients.
    pub fn has_clients(&self) -> bool {
        self.programs.iter().any(|program| program.client != OWN)
    }

    /// Programs of the tool that began it.
    pub(crate) fn own_programs(&self) -> impl Iterator<Item = &PlannedProgram> {
        self.programs.iter().filter(|program| program.client == OWN)
    }

    /// All but those of a client.
    pub(crate) fn without_client(
        &self,
        client: u32,
    ) -> Result<(Vec<PlannedProgram>, Vec<u64>), ReplaceError> {
        let (left, ids) = self.those(|program| program.client != client);
        match client != OWN && left.len() < self.programs.len() {
            true => Ok((left, ids)),
            false => Err(ReplaceError::NoClient { client }),
        }
    }

    /// Whose a map is: a client's number, or [`OWN`].
    pub fn map_client(&self, map: usize) -> u32 {
        self.lineage.clients[map]
    }

    /// The numbers here of programs of another session of the same line, by what identifies them.
    /// `None` if one is not here.
    pub fn numbers(&self, ids: &[u64]) -> Option<Vec<usize>> {
        let all = &self.lineage.program_ids;
        let number = |id: &u64| all.iter().position(|known| known == id);
        ids.iter().map(number).collect()
    }

    /// Code of a kernel with programs of another session of the same line may stay where none can
    /// be made with all that want the kernel here: it lacks programs of clients alone. The numbers
    /// here of those that it has.
    pub fn may_keep(&self, mangled: &str, ids: &[u64]) -> Option<Vec<usize>> {
        let numbers = self.numbers(ids)?;
        let mut wanted = self.matching(mangled).into_iter();
        let kept = wanted.all(|p| self.programs[p].client != OWN || numbers.contains(&p));
        kept.then_some(numbers)
    }

    /// Kernels that `is_lost` says with the programs of the tool that began it alone, of those that
    /// it wants beside clients; nothing else is made.
    pub fn prepare_own(&self, image: &ImageInfo, is_lost: &dyn Fn(&str) -> bool) -> Prepared {
        self.prepare_for(image, &|mangled| {
            let wanted = match is_lost(mangled) {
                true => self.matching(mangled),
                false => Vec::new(),
            };
            let clients = self.clients_of(&wanted);
            match clients.len() > 1 {
                true => (wanted.into_iter())
                    .filter(|program| self.programs[*program].client == OWN)
                    .collect(),
                false => Vec::new(),
            }
        })
    }

    /// Where nothing can be made of a kernel with clients' programs too, it is to have those of the
    /// tool that began it, if that can be. Names of these kernels, and why clients are not in them.
    /// `advice` is for kernels that would need to be loaded with it.
    pub fn without_clients_where_refused(
        &self,
        image: &ImageInfo,
        prepared: &mut Prepared,
        advice: &str,
    ) -> Vec<(String, Method)> {
        let refused = prepared.kernels.iter();
        let refused = refused.filter(|kernel| !kernel.wanted && !kernel.programs.is_empty());
        let refused: HashSet<String> = refused.map(|kernel| kernel.mangled.clone()).collect();
        if refused.is_empty() || !self.has_clients() {
            return Vec::new();
        }
        let mut own = self.prepare_own(image, &|mangled| refused.contains(mangled));
        own.refuse_clones(advice);
        prepared.fall_back(&own, |_, programs| Some(programs.to_vec()))
    }

    /// Whose programs these are, each once.
    pub fn clients_of(&self, programs: &[usize]) -> Vec<u32> {
        let clients = programs
            .iter()
            .map(|program| self.programs[*program].client);
        let mut clients: Vec<u32> = clients.collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_its_own_names() {
        let refused = ReplaceError::ClientPrints {
            program: "count@c1".into(),
        };
        let told = "program `count` prints, and what is printed goes to the first tool: attach when that has ended, or count in a map";
        assert_eq!(refused.told_to(1), told);
        let others = ReplaceError::ClientMap {
            map: "ring@c12".into(),
            why: "why",
        };
        assert!(others.told_to(1).starts_with("map `ring@c12` cannot"));
    }
}
