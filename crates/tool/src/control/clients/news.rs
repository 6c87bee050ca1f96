//! What a second tool is told: of what this tool knows of the application, what concerns the
//! other's programs, under the names that it gave them.

use std::os::fd::OwnedFd;

use warpbpf_abi::names::plain;
use warpbpf_wire::{
    Counts, Hello, Kernel, KernelCount, MapInfo, MoreMaps, PROTOCOL, Program, Ready, Sites, ToTool,
};

use crate::heard::note::Note;
use crate::heard::state::State;

/// Something to be sent.
#[derive(Debug)]
pub(super) struct News {
    pub(super) message: ToTool,
    pub(super) fd: Option<OwnedFd>,
}

/// How far a second tool has been told.
#[derive(Debug)]
pub(super) struct Told {
    client: u32,
    hello: bool,
    /// Where its maps are in the shared memory; known once it has been told of the first context.
    pub(super) areas: Vec<u32>,
    /// Parts of the memory of each context.
    parts: Vec<usize>,
    /// Rows of kernels, and what was known of kernels then.
    rows: Vec<Option<Kernel>>,
    changes: u64,
    counted: u64,
    sites: usize,
    notes: usize,
    /// It was told that the agent has failed.
    failed: bool,
    own_notes: usize,
}

impl Told {
    pub(super) fn new(client: u32, notes: usize) -> Told {
        Told {
            client,
            hello: false,
            areas: Vec::new(),
            parts: Vec::new(),
            rows: Vec::new(),
            changes: 0,
            counted: 0,
            sites: 1,
            notes,
            failed: false,
            own_notes: 0,
        }
    }

    /// What came since the last time.
    pub(super) fn news(&mut self, state: &State) -> Vec<News> {
        let mut news = Vec::new();
        let mut say = |message: ToTool, fd: Option<OwnedFd>| news.push(News { message, fd });
        let first = !std::mem::replace(&mut self.hello, true);
        if first {
            say(ToTool::Hello(hello(state)), None);
        }
        self.memory(state, &mut say);
        if first {
            say(ToTool::Attached, None);
        }
        if self.changes != state.client_views.changes {
            self.changes = state.client_views.changes;
            let rows = state.rows_of(self.client);
            self.rows.resize(rows.len(), None);
            for (told, row) in self.rows.iter_mut().zip(rows) {
                // What is not known just now is as it was told.
                if let Some(kernel) = row.filter(|row| told.as_ref() != Some(row)) {
                    *told = Some(kernel.clone());
                    say(ToTool::Kernel(kernel), None);
                }
            }
        }
        if state.site_names.len() > self.sites {
            let sites = Sites {
                first: self.sites as u32,
                names: state.site_names[self.sites..].to_vec(),
            };
            self.sites = state.site_names.len();
            say(ToTool::Sites(sites), None);
        }
        for note in state.notes.iter().skip(self.notes) {
            say(plain_note(note), None);
        }
        self.notes = state.notes.len();
        if state.failed && !std::mem::replace(&mut self.failed, true) {
            say(ToTool::Failed, None);
        }
        for (clients, note) in state.client_views.notes.iter().skip(self.own_notes) {
            if clients.contains(&self.client) {
                say(plain_note(note), None);
            }
        }
        self.own_notes = state.client_views.notes.len();
        if self.counted != state.client_views.counted {
            self.counted = state.client_views.counted;
            let kernels = state.client_views.counts_of(self.client).map(plain_count);
            let counts = Counts {
                kernels: kernels.collect(),
                clients: Vec::new(),
            };
            say(ToTool::Counts(counts), None);
        }
        news
    }

    /// Contexts, and memory of maps that came to them.
    fn memory(&mut self, state: &State, say: &mut dyn FnMut(ToTool, Option<OwnedFd>)) {
        for (number, context) in state.contexts.iter().enumerate() {
            if number == self.parts.len() {
                let info = context.info.clone();
                let message = match number {
                    0 => ToTool::Ready(self.ready(state, info)),
                    _ => ToTool::Context(info),
                };
                let memory = context.memory.first();
                say(message, memory.and_then(|memory| memory.try_clone().ok()));
                self.parts.push(1);
            }
            let told = &mut self.parts[number];
            let more = context.memory.iter().zip(&context.firsts).skip(*told);
            for (memory, first) in more {
                let maps = MoreMaps {
                    context: context.info.number,
                    first: *first,
                    device_bytes: context.info.device_bytes,
                };
                say(ToTool::Maps(maps), memory.try_clone().ok());
            }
            *told = context.memory.len();
        }
    }

    /// Its programs and maps.
    fn ready(&mut self, state: &State, context: warpbpf_wire::ContextInfo) -> Ready {
        let client = self.client;
        let maps = (0..).zip(&state.maps);
        let own: Vec<(u32, &MapInfo)> = maps.filter(|(_, map)| map.client == client).collect();
        self.areas = own.iter().map(|(area, _)| *area).collect();
        let programs = state.programs.iter().filter(|p| p.client == client);
        Ready {
            maps: own
                .iter()
                .map(|(_, map)| MapInfo {
                    name: plain(&map.name).to_owned(),
                    client: 0,
                    ..(*map).clone()
                })
                .collect(),
            programs: programs
                .map(|program| Program {
                    name: plain(&program.name).to_owned(),
                    client: 0,
                    ..program.clone()
                })
                .collect(),
            areas: self.areas.clone(),
            context,
        }
    }
}

fn hello(state: &State) -> Hello {
    Hello {
        protocol: PROTOCOL,
        pid: state.pid,
        exe: state.exe.clone(),
        argv: state.argv.clone(),
        device: state.device.clone(),
    }
}

fn plain_note(note: &Note) -> ToTool {
    ToTool::Note {
        level: note.level,
        text: note.text.clone(),
        clients: Vec::new(),
    }
}

fn plain_count(count: &KernelCount) -> KernelCount {
    let named = |programs: &[(String, u64)]| {
        let programs = programs.iter();
        let programs = programs.map(|(name, launches)| (plain(name).to_owned(), *launches));
        programs.collect()
    };
    let contexts = count.context_programs.iter();
    KernelCount {
        programs: named(&count.programs),
        context_programs: contexts
            .map(|(context, programs)| (*context, named(programs)))
            .collect(),
        ..count.clone()
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_wire::Method;

    use super::*;

    #[test]
    fn a_row_is_told_once_though_it_is_not_known_for_a_while() {
        let program = |name: &str, client| Program {
            name: name.into(),
            section: String::new(),
            glob: String::new(),
            client,
        };
        let list = [program("a", 0), program("a@c1", 1)];
        let know = |state: &mut State, generation| {
            state.programs = list.to_vec();
            state.know(generation);
        };
        let row = |generation| Kernel {
            mangled: "k".into(),
            method: Method::Slice,
            programs: vec![0],
            generation,
            ..Kernel::default()
        };
        let mut state = State::default();
        let mut told = Told::new(1, 0);
        let mut rows = |state: &mut State, generation| {
            state.kernels = vec![row(generation)];
            state.client_views.changes += 1;
            let news = told.news(state).into_iter();
            let rows = news.filter_map(|news| match news.message {
                ToTool::Kernel(kernel) => Some((kernel.method.to_string(), kernel.generation)),
                _ => None,
            });
            rows.collect::<Vec<_>>()
        };
        know(&mut state, 2);
        state.client_views.left_out(Kernel {
            method: Method::refused("why"),
            programs: vec![1],
            client: 1,
            ..row(2)
        });
        let refused = [("refused: why".to_owned(), 2)];
        assert_eq!(rows(&mut state, 2), refused);
        // The first tool's row comes before it is known what the replacement brings.
        assert_eq!(rows(&mut state, 3), []);
        know(&mut state, 3);
        assert_eq!(rows(&mut state, 3), []);
    }

    #[test]
    fn what_is_for_other_clients_is_not_told() {
        let mut state = State::default();
        let note = |text: &str, clients: &[u32]| ToTool::Note {
            level: warpbpf_wire::NoteLevel::Info,
            text: text.into(),
            clients: clients.to_vec(),
        };
        let told = |state: &State, told: &mut Told| {
            let news = told.news(state).into_iter();
            let texts = news.filter_map(|news| match news.message {
                ToTool::Note { text, clients, .. } => Some((text, clients)),
                _ => None,
            });
            texts.collect::<Vec<_>>()
        };
        let mut of_first = Told::new(1, 0);
        state.take(note("all", &[]), Vec::new(), None);
        state.take(note("one", &[1]), Vec::new(), None);
        state.take(note("two", &[2, 3]), Vec::new(), None);
        let plain = |text: &str| (text.to_owned(), Vec::new());
        assert_eq!(told(&state, &mut of_first), [plain("all"), plain("one")]);
        assert_eq!(told(&state, &mut of_first), []);
        assert_eq!(told(&state, &mut Told::new(3, 1)), [plain("two")]);
        // Nor is the first tool.
        let own: Vec<&str> = state.notes.iter().map(|note| note.text.as_str()).collect();
        assert_eq!(own, ["all"]);
    }

    #[test]
    fn programs_are_counted_under_the_names_of_their_tool() {
        let programs = vec![("a@c1".to_owned(), 3)];
        let count = KernelCount {
            mangled: "k".into(),
            launches: 3,
            uninstrumented: 0,
            skipped: 0,
            contexts: vec![(0, 3)],
            unwanted: 0,
            generations: Vec::new(),
            programs: programs.clone(),
            context_programs: vec![(0, programs)],
        };
        let told = plain_count(&count);
        let programs = vec![("a".to_owned(), 3)];
        assert_eq!(told.programs, programs);
        assert_eq!(told.context_programs, [(0, programs)]);
    }
}
