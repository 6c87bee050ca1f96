//! Stacks on the CPU in a timeline: addresses get names from the symbols of their files, which the
//! application has not to be asked for.

use std::collections::{BTreeMap, HashMap};

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _, ReadCache, SymbolKind};
use serde_json::{Value, json};
use warpbpf_session::names::demangle;
use warpbpf_tool::{HostModule, HostStacks, Operation};

/// Stacks by number, each from the outermost frame in.
#[derive(Debug, Default)]
pub(super) struct Named(HashMap<u32, Vec<Frame>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    name: String,
    file: String,
}

/// A function's place in a file.
struct Symbol {
    start: u64,
    size: u64,
    name: String,
}

impl Named {
    /// Names all frames.
    pub(super) fn of(told: &HostStacks) -> Named {
        let mut symbols: HashMap<&str, Vec<Symbol>> = HashMap::new();
        let mut known: HashMap<u64, Frame> = HashMap::new();
        let mut named = HashMap::new();
        for stack in &told.stacks {
            let mut frames = Vec::new();
            for address in stack.frames.iter().rev() {
                let frame = known.entry(*address).or_insert_with(|| {
                    let module = (told.modules.iter()).find(|m| (m.start..m.end).contains(address));
                    let Some(module) = module else {
                        return Frame::unknown(*address);
                    };
                    let all = symbols
                        .entry(&module.path)
                        .or_insert_with(|| read(&module.path));
                    Frame::at(*address, module, all)
                });
                frames.push(frame.clone());
            }
            named.insert(stack.number, frames);
        }
        Named(named)
    }
}

impl Frame {
    fn unknown(address: u64) -> Frame {
        Frame {
            name: format!("{address:#x}"),
            file: String::new(),
        }
    }

    /// A return address is behind its call, which may be the function's last instruction.
    fn at(address: u64, module: &HostModule, symbols: &[Symbol]) -> Frame {
        let place = address.wrapping_sub(module.bias).wrapping_sub(1);
        let file = module
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let behind = symbols.partition_point(|symbol| symbol.start <= place);
        let symbol = behind.checked_sub(1).map(|at| &symbols[at]);
        let name = match symbol.filter(|symbol| place - symbol.start < symbol.size) {
            Some(symbol) => demangle(&symbol.name),
            None => format!("{file}+{:#x}", place + 1),
        };
        Frame { name, file }
    }
}

/// A file's functions in order; none if it cannot be read, or is of another machine.
fn read(path: &str) -> Vec<Symbol> {
    let Ok(file) = warpbpf_descriptor::open(path) else {
        return Vec::new();
    };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<'_, object::Endianness, _>::parse(&cache) else {
        return Vec::new();
    };
    let mut symbols: Vec<Symbol> = (elf.symbols().chain(elf.dynamic_symbols()))
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            Some(Symbol {
                start: symbol.address(),
                size: symbol.size(),
                name: symbol.name().ok()?.to_owned(),
            })
        })
        .collect();
    symbols.sort_by_key(|symbol| symbol.start);
    symbols
}

/// The frames of a file, each with the one around it.
#[derive(Debug, Default)]
pub(super) struct Frames {
    numbers: HashMap<(u32, Option<u64>, String), u64>,
    table: BTreeMap<String, Value>,
}

impl Frames {
    /// The innermost frame of a stack of a process.
    pub(super) fn of(&mut self, pid: u32, named: &Named, stack: u32) -> Option<u64> {
        let mut parent = None;
        for frame in named.0.get(&stack)? {
            let next = self.numbers.len() as u64 + 1;
            let key = (pid, parent, frame.name.clone());
            let number = *self.numbers.entry(key).or_insert(next);
            if number == next {
                let mut entry = json!({ "name": frame.name, "category": frame.file });
                if let Some(parent) = parent {
                    entry["parent"] = json!(parent.to_string());
                }
                self.table.insert(number.to_string(), entry);
            }
            parent = Some(number);
        }
        parent
    }

    /// As the format has them.
    pub(super) fn table(self) -> Value {
        json!(self.table)
    }
}

/// A line for each stack and what it had the device do: names with semicolons between, and
/// nanoseconds on the device.
pub(super) fn folded(named: &Named, operations: &[Operation]) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for operation in operations {
        let Some((begin, end)) = operation.device else {
            continue;
        };
        let frames = named.0.get(&operation.stack).into_iter().flatten();
        let mut words: Vec<String> = frames.map(|frame| frame.name.replace(';', ":")).collect();
        words.push(name_of(operation).replace(';', ":"));
        *sums.entry(words.join(";")).or_default() += end - begin;
    }
    let lines = sums.iter().map(|(stack, ns)| format!("{stack} {ns}\n"));
    lines.collect()
}

/// The name of what the device did.
pub(super) fn name_of(operation: &Operation) -> String {
    let kernel = operation.kernel.as_deref().map(demangle);
    kernel.unwrap_or_else(|| operation.api.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Named {
        let frame = |name: &str| Frame {
            name: name.into(),
            file: "app".into(),
        };
        let stacks = [
            (1, vec![frame("main"), frame("train")]),
            (2, vec![frame("main"), frame("test")]),
        ];
        Named(stacks.into_iter().collect())
    }

    #[test]
    fn frames_are_shared_from_the_outermost_in() {
        let (named, mut frames) = (named(), Frames::default());
        assert_eq!(frames.of(7, &named, 1), Some(2));
        assert_eq!(frames.of(7, &named, 2), Some(3));
        assert_eq!(frames.of(7, &named, 1), Some(2));
        assert_eq!(frames.of(7, &named, 9), None);
        let expected = json!({
            "1": { "name": "main", "category": "app" },
            "2": { "name": "train", "category": "app", "parent": "1" },
            "3": { "name": "test", "category": "app", "parent": "1" },
        });
        assert_eq!(frames.table(), expected);
    }

    #[test]
    fn folded_lines_have_the_sum_of_times() {
        let operation = |stack, api: &str, device| Operation {
            stack,
            api: api.into(),
            device,
            ..Operation::default()
        };
        let operations = [
            operation(1, "cuMemsetD8", Some((10, 15))),
            operation(1, "cuMemsetD8", Some((20, 27))),
            operation(2, "cuMemsetD8", Some((30, 31))),
            operation(2, "cuMemsetD8", None),
            operation(0, "cuMemcpy", Some((40, 48))),
        ];
        let expected = "cuMemcpy 8\nmain;test;cuMemsetD8 1\nmain;train;cuMemsetD8 12\n";
        assert_eq!(folded(&named(), &operations), expected);
    }

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        let module = HostModule {
            path: "/bin/app".into(),
            start: 0x5000,
            end: 0x6000,
            bias: 0x5000,
        };
        let symbol = |start, size, name: &str| Symbol {
            start,
            size,
            name: name.into(),
        };
        let symbols = [
            symbol(0x100, 0x10, "_Z5trainv"),
            symbol(0x110, 0x10, "next"),
        ];
        let name = |address| Frame::at(address, &module, &symbols).name;
        assert_eq!(name(0x5108), "train");
        assert_eq!(name(0x5110), "train", "its last instruction is a call");
        assert_eq!(name(0x5111), "next");
        assert_eq!(name(0x5121), "app+0x121");
        assert_eq!(name(0x5100), "app+0x100");
    }
}
