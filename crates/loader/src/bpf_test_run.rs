//! `BPF_PROG_TEST_RUN`: a GPU's program once, as one thread, on the CPU, against the tool's maps.
//!
//! There may be no GPU yet when a tool asks for it, so the reference interpreter runs the program. What it is given is the
//! context of a GPU's program (`struct wbpf_kernel_ctx` and the like), from which the helpers tell where the thread is;
//! nothing given is thread 0 of a grid of one. Maps are those that the tool sees by `bpf()`.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::io::Errno;
use warpbpf_abi::maps::{EAGAIN, EINVAL};
use warpbpf_maps::stops;
use warpbpf_session::cpu::{self, Coordinates, Surroundings};

use crate::kernel::{Attr, Kernel};
use crate::sink::Sink;
use crate::uapi::attr;
use crate::user::{Process, User};

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
        let section = prog.likely_section().to_owned();
        let gathered = (self.gather(&[(at, section)])).map_err(|_| Errno::INVAL)?;
        let object = warpbpf_object::load(&gathered.object).map_err(|_| Errno::INVAL)?;
        let proved = warpbpf_session::plan::prove(object, &self.config.options);
        let (programs, maps) = proved.map_err(|_| Errno::INVAL)?;
        let program = programs.first().ok_or(Errno::INVAL)?;
        let verified = &program.verified;
        if let Err(error) = cpu::check(verified.program(), &maps, true) {
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
            maps: gathered.numbers.iter().map(|(at, n)| (*n, *at)).collect(),
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
            result = cpu::execute_proved(verified, &maps, &context, &mut world);
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
