//! `BPF_PROG_TEST_RUN`: a GPU's program once, as one thread, on the CPU, against the tool's maps.
//!
//! There may be no GPU yet when a tool asks for it, so the reference interpreter runs the program.
//! What it is given is the context of a GPU's program (`struct wbpf_kernel_ctx` and the like), from
//! which the helpers tell where the thread is; nothing given is thread 0 of a grid of one. Maps are
//! those that the tool sees by `bpf()`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_F_RDONLY_PROG, EAGAIN, EINVAL};
use warpbpf_maps::stops;
use warpbpf_object::LoadOptions;
use warpbpf_session::cpu::{self, Coordinates, Surroundings};

use crate::kernel::Kernel;
use crate::kernel::program_error::ProveError;
use crate::objects::map::Map;
use crate::objects::prog::Prog;
use crate::objects::proved::{Basis, Proved};
use crate::objects::sink::Sink;
use crate::tool::attr::Attr;
use crate::tool::user::{Process, User};
use crate::uapi::attr;

/// Most runs that one command asks for.
const MOST_REPEATS: u32 = 1 << 20;

impl Kernel {
    pub(crate) fn prog_test_run(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.prog_at(a.fd(attr::test::PROG_FD))?;
        let prog = self.progs.get(at).ok_or(Errno::BADF)?;
        let name = prog.name.clone();
        if !prog.is_for_gpu() {
            (self.config.tell)(&format!(
                "program `{name}`: BPF_PROG_TEST_RUN is served for programs of GPU kernels only (`cuda__…`, `gpu/…`)"
            ));
            return Err(Errno::OPNOTSUPP);
        }
        let others = [
            attr::test::DATA_SIZE_IN,
            attr::test::DATA_SIZE_OUT,
            attr::test::FLAGS,
            attr::test::CPU,
            attr::test::BATCH_SIZE,
        ];
        if others.iter().any(|field| a.u32(*field) != 0) {
            (self.config.tell)(&format!(
                "program `{name}`: BPF_PROG_TEST_RUN takes a context and a number of runs; there are no packets, flags or CPUs"
            ));
            return Err(Errno::INVAL);
        }
        let tried = self.tried(at).map_err(|error| {
            (self.config.tell)(error.to_string().trim_end());
            Errno::INVAL
        })?;
        let Proved {
            numbers,
            program,
            maps,
            ..
        } = &*tried;
        let verified = &program.verified;
        if let Err(error) = cpu::check(verified.program(), maps, true) {
            (self.config.tell)(&error.to_string());
            return Err(Errno::OPNOTSUPP);
        }
        let size = program.spec.context().size as usize;
        let given = a.u32(attr::test::CTX_SIZE_IN) as usize;
        if given > size {
            return Err(Errno::TOOBIG);
        }
        let mut context = match given {
            0 => Coordinates {
                block_dim: [1; 3],
                grid_dim: [1; 3],
                ..Coordinates::default()
            }
            .context(size),
            _ => user.bytes(a.u64(attr::test::CTX_IN), given)?,
        };
        context.resize(size, 0);
        let repeat = a.u32(attr::test::REPEAT).clamp(1, MOST_REPEATS);
        let mut world = Tried {
            coordinates: Coordinates::of_context(&context),
            maps: numbers.iter().map(|(at, n)| (*n, *at)).collect(),
            stops: Stops {
                map: maps
                    .iter()
                    .position(|map| stops::program_of(&map.name).is_some()),
                count: [0; 8],
            },
            kernel: self,
        };
        let began = Instant::now();
        let mut result = Ok(0);
        for _ in 0..repeat {
            result = cpu::execute_proved(verified, maps, &context, &mut world);
            if result.is_err() {
                break;
            }
        }
        let average = began.elapsed().as_nanos() / u128::from(repeat);
        let stopped = u64::from_le_bytes(world.stops.count);
        if stopped > 0 {
            (self.config.tell)(&stops::told(&name, stopped));
        }
        let result = result.map_err(|error| {
            (self.config.tell)(&error.to_string());
            Errno::FAULT
        })?;
        a.answer(user, attr::test::RETVAL, result as u32)?;
        let duration = u32::try_from(average).unwrap_or(u32::MAX);
        a.answer(user, attr::test::DURATION, duration)?;
        let out = a.u64(attr::test::CTX_OUT);
        if out != 0 {
            // It is read-only, so what comes out is what went in.
            let room = a.u32(attr::test::CTX_SIZE_OUT) as usize;
            user.write(out, &context[..room.min(given)])?;
            a.answer(user, attr::test::CTX_SIZE_OUT, given as u32)?;
            if room < given {
                return Err(Errno::NOSPC);
            }
        }
        Ok(0)
    }
}

impl Kernel {
    fn basis(&self, prog: &Prog) -> Basis {
        let mut maps: Vec<usize> = prog.all_maps().collect();
        let used = maps.iter().filter_map(|at| self.maps.get(*at));
        let within: Vec<usize> = used.flat_map(Map::held).collect();
        maps.extend(within);
        let constants = maps.iter().filter_map(|at| self.maps.get(*at));
        let constants = constants
            .filter(|map| map.spec.flags & BPF_F_RDONLY_PROG != 0)
            .map(|map| {
                let slot = self.slot(&map.spec);
                map.contents.get(&map.spec, slot, &[0; 4])
            })
            .collect();
        Basis { maps, constants }
    }

    /// A program with its proof, which is made where there is none of the same. Options are those
    /// of this kernel, always.
    fn tried(&mut self, at: usize) -> Result<Arc<Proved>, ProveError> {
        let gone = || ProveError::Gone { program: at };
        let prog = self.progs.get(at).ok_or_else(gone)?;
        let of = self.basis(prog);
        if let Some(tried) = prog.tried.as_ref().filter(|tried| tried.of == of) {
            return Ok(Arc::clone(tried));
        }
        let gathered = self.gather(&[(at, prog.likely_section().to_owned())])?;
        let object = warpbpf_object::load_all(&gathered.object, &LoadOptions::default())?;
        let (programs, maps) = warpbpf_session::plan::prove(object, &self.config.options)?;
        let tried = Arc::new(Proved {
            of,
            numbers: gathered.numbers,
            program: programs.into_iter().next().ok_or_else(gone)?,
            maps,
        });
        self.progs.get_mut(at).ok_or_else(gone)?.tried = Some(Arc::clone(&tried));
        Ok(tried)
    }
}

/// The tool's maps as a program that is tried sees them.
struct Tried<'k> {
    kernel: &'k mut Kernel,
    /// By number in the object: place in the kernel's table.
    maps: BTreeMap<u32, usize>,
    stops: Stops,
    coordinates: Coordinates,
}

/// What counts that the program was ended in a loop: a map that the tool does not have.
struct Stops {
    /// Its number, if the program has such a loop.
    map: Option<usize>,
    count: [u8; 8],
}

fn number(errno: Errno) -> i64 {
    -i64::from(errno.raw_os_error())
}

impl Tried<'_> {
    fn place(&self, map: u32) -> Result<usize, i64> {
        self.maps.get(&map).copied().ok_or(EINVAL)
    }
}

impl Surroundings for Tried<'_> {
    fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, i64> {
        if self.stops.map == Some(map as usize) {
            return Ok(self.stops.count.to_vec());
        }
        let at = self.place(map)?;
        let mut value = self.kernel.lookup(at, key).map_err(number)?;
        let spec = self.kernel.map(at).map_err(number)?.spec;
        // Of a map with a value per CPU, that of the first.
        value.truncate(spec.value_size as usize);
        Ok(value)
    }

    fn update(&mut self, map: u32, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64> {
        if self.stops.map == Some(map as usize) {
            self.stops.count = value.try_into().map_err(|_| EINVAL)?;
            return Ok(());
        }
        let at = self.place(map)?;
        let spec = self.kernel.map(at).map_err(number)?.spec;
        let mut value = value.to_vec();
        if spec.is_percpu() {
            let all = self.kernel.lookup(at, key);
            let all = all.unwrap_or_else(|_| vec![0; self.kernel.user_bytes(&spec)]);
            value.extend_from_slice(&all[value.len()..]);
        }
        let updated = self.kernel.update(at, key, value, flags);
        updated.map_err(number)
    }

    fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), i64> {
        let at = self.place(map)?;
        self.kernel.delete(at, key).map_err(number)
    }

    fn push(&mut self, map: u32, value: &[u8], flags: u64) -> Result<(), i64> {
        self.update(map, &[], value, flags)
    }

    fn pop(&mut self, map: u32) -> Result<Vec<u8>, i64> {
        let at = self.place(map)?;
        self.kernel.take(at, &[]).map_err(number)
    }

    fn output(&mut self, map: u32, record: &[u8]) -> Result<(), i64> {
        let at = self.place(map)?;
        let sink = Sink::of(&self.kernel.map(at).map_err(number)?.contents);
        match sink {
            Sink::Nowhere => Err(EINVAL),
            sink if sink.push(0, record) => Ok(()),
            _ => Err(EAGAIN),
        }
    }

    fn print(&mut self, text: &str) {
        (self.kernel.config.tell)(text.trim_end_matches('\n'));
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        Process::own().read(address, into).is_ok()
    }

    fn cpu(&mut self) -> u32 {
        self.coordinates.sm
    }

    fn coordinates(&self) -> Option<Coordinates> {
        Some(self.coordinates)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use warpbpf_ebpf::Slot;

    use super::*;
    use crate::tests::Tool;
    use crate::uapi::{Command, prog_type};

    thread_local! {
        static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn loaded(tool: &mut Tool, name: &[u8], slots: &[(u8, u8, u8, i16, i32)]) -> i32 {
        let slot = |(opcode, dst, src, off, imm): &(u8, u8, u8, i16, i32)| Slot {
            opcode: *opcode,
            dst: *dst,
            src: *src,
            off: *off,
            imm: *imm,
        };
        let code: Vec<u8> = slots.iter().map(slot).flat_map(Slot::to_bytes).collect();
        let (code, license) = (tool.memory.put(&code), tool.memory.put(b"GPL\0"));
        let loaded = tool.call(
            Command::ProgLoad,
            &[
                (attr::prog::TYPE, &prog_type::KPROBE.to_ne_bytes()),
                (attr::prog::INSN_COUNT, &(slots.len() as u32).to_ne_bytes()),
                (attr::prog::INSNS, &code.to_ne_bytes()),
                (attr::prog::LICENSE, &license.to_ne_bytes()),
                (attr::prog::NAME, name),
            ],
        );
        loaded.unwrap() as i32
    }

    #[test]
    fn it_is_proved_once_for_all_runs_and_a_refusal_is_told() {
        let mut tool = Tool::new();
        tool.kernel.config.tell = |text| TOLD.with_borrow_mut(|told| told.push(text.to_owned()));
        let map = tool.map(2, 4, 8, 1);
        // Counts in a variable, and returns 5.
        let counts = [
            (0x18, 2, 2, 0, map),
            (0, 0, 0, 0, 0),
            (0xb7, 1, 0, 0, 1),
            (0xdb, 2, 1, 0, 0),
            (0xb7, 0, 0, 0, 5),
            (0x95, 0, 0, 0, 0),
        ];
        let prog = loaded(&mut tool, b"cuda__counts", &counts);
        let at = tool.kernel.prog_at(prog).unwrap();
        let run = |tool: &mut Tool| tool.call(Command::ProgTestRun, &[(0, &prog.to_ne_bytes())]);
        let proof = |tool: &Tool| tool.kernel.progs.get(at).unwrap().tried.clone();
        assert!(proof(&tool).is_none());
        assert_eq!(run(&mut tool), Ok(0));
        let first = proof(&tool).unwrap();
        for _ in 0..3 {
            assert_eq!(run(&mut tool), Ok(0));
        }
        assert!(Arc::ptr_eq(&first, &proof(&tool).unwrap()));
        assert_eq!(tool.kernel.lookup(0, &[0; 4]).unwrap()[0], 4);
        // With another map in it, it is proved anew.
        tool.map(2, 4, 8, 1);
        tool.kernel.progs.get_mut(at).unwrap().bound.push(1);
        assert_eq!(run(&mut tool), Ok(0));
        assert!(!Arc::ptr_eq(&first, &proof(&tool).unwrap()));
        // And where a constant has changed.
        let second = proof(&tool).unwrap();
        tool.kernel.maps.get_mut(1).unwrap().spec.flags |= BPF_F_RDONLY_PROG;
        assert_eq!(run(&mut tool), Ok(0));
        let third = proof(&tool).unwrap();
        assert!(!Arc::ptr_eq(&second, &third));
        tool.kernel.update(1, &[0; 4], vec![9; 8], 0).unwrap();
        assert_eq!(run(&mut tool), Ok(0));
        assert!(!Arc::ptr_eq(&third, &proof(&tool).unwrap()));
        assert!(TOLD.with_borrow(Vec::is_empty));
        tool.kernel.config.options.budget = Some(2);
        tool.kernel.progs.get_mut(at).unwrap().tried = None;
        assert_eq!(run(&mut tool), Err(Errno::INVAL));
        let told = TOLD.take();
        assert!(
            told.len() == 1 && told[0].contains("the budget is 2"),
            "{told:?}"
        );
    }

    #[test]
    fn it_runs_as_long_as_its_proof_allows() {
        let mut tool = Tool::new();
        tool.kernel.config.options.budget = Some(3 * cpu::FUEL);
        // Counts its rounds, of three instructions, until `may_goto` ends them, for which the proof
        // counts more.
        let counts = [
            (0xb7, 0, 0, 0, 0),
            (0xe5, 0, 0, 2, 0),
            (0x07, 0, 0, 0, 1),
            (0x05, 0, 0, -3, 0),
            (0x95, 0, 0, 0, 0),
        ];
        let prog = loaded(&mut tool, b"cuda__counts", &counts);
        let at = tool.attr(&[(attr::test::PROG_FD, &prog.to_ne_bytes())]);
        let ran = tool
            .kernel
            .bpf(Command::ProgTestRun as u32, at, 144, &tool.memory);
        assert_eq!(ran, Ok(0));
        let answered = tool.memory.bytes(at, 144).unwrap();
        let rounds = u32::from_ne_bytes(*answered[attr::test::RETVAL..].first_chunk().unwrap());
        let all = 3 * u64::from(rounds);
        assert!(cpu::FUEL < all && all <= 3 * cpu::FUEL, "{rounds}");
    }
}
