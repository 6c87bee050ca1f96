//! Programs and links: what is proved when, what runs where.

use rustix::io::Errno;
use warpbpf_ebpf::Slot;

use crate::interpose::files::PROBE_TYPES;
use crate::tests::Tool;
use crate::tool::user::User as _;
use crate::uapi::{ATTACH_PERF_EVENT, Command, attr, perf, prog_type};

/// `r0 = 0; exit`.
pub(super) fn nothing() -> Vec<u8> {
    code(&[(0xb7, 0, 0, 0, 0), (0x95, 0, 0, 0, 0)])
}

pub(super) fn code(slots: &[(u8, u8, u8, i16, i32)]) -> Vec<u8> {
    let slot = |(opcode, dst, src, off, imm): &(u8, u8, u8, i16, i32)| Slot {
        opcode: *opcode,
        dst: *dst,
        src: *src,
        off: *off,
        imm: *imm,
    };
    slots.iter().map(slot).flat_map(Slot::to_bytes).collect()
}

impl Tool {
    fn load(&mut self, name: &[u8], code: &[u8], log: u64) -> Result<i64, Errno> {
        self.load_as(prog_type::KPROBE, name, code, log)
    }

    pub(super) fn load_as(
        &mut self,
        kind: u32,
        name: &[u8],
        code: &[u8],
        log: u64,
    ) -> Result<i64, Errno> {
        let insns = self.memory.put(code);
        let license = self.memory.put(b"GPL\0");
        self.call(
            Command::ProgLoad,
            &[
                (attr::prog::TYPE, &kind.to_ne_bytes()),
                (
                    attr::prog::INSN_COUNT,
                    &(code.len() as u32 / 8).to_ne_bytes(),
                ),
                (attr::prog::INSNS, &insns.to_ne_bytes()),
                (attr::prog::LICENSE, &license.to_ne_bytes()),
                (attr::prog::LOG_LEVEL, &u32::from(log != 0).to_ne_bytes()),
                (attr::prog::LOG_SIZE, &4096u32.to_ne_bytes()),
                (attr::prog::LOG, &log.to_ne_bytes()),
                (attr::prog::NAME, name),
            ],
        )
    }

    pub(super) fn event(&mut self, name: &[u8], ret: bool) -> i32 {
        let name = self.memory.put(&[name, b"\0"].concat());
        let mut bytes = [0u8; perf::ATTR_SIZE];
        bytes[..4].copy_from_slice(&PROBE_TYPES.kprobe.to_ne_bytes());
        bytes[perf::CONFIG] = u8::from(ret);
        bytes[perf::CONFIG1..perf::CONFIG1 + 8].copy_from_slice(&name.to_ne_bytes());
        let at = self.memory.put(&bytes);
        let opened = self
            .kernel
            .perf_event_open(at, PROBE_TYPES, |_| false, &self.memory);
        opened.unwrap().unwrap() as i32
    }

    /// A function of a file, on the CPU.
    pub(super) fn event_of_function(&mut self, path: &[u8], ret: bool) -> i32 {
        let path = self.memory.put(&[path, b"\0"].concat());
        let mut bytes = [0u8; perf::ATTR_SIZE];
        bytes[..4].copy_from_slice(&PROBE_TYPES.uprobe.to_ne_bytes());
        bytes[perf::CONFIG] = u8::from(ret);
        bytes[perf::CONFIG1..perf::CONFIG1 + 8].copy_from_slice(&path.to_ne_bytes());
        bytes[perf::CONFIG2..perf::CONFIG2 + 8].copy_from_slice(&0x1230u64.to_ne_bytes());
        let at = self.memory.put(&bytes);
        let opened = (self.kernel).perf_event_open(at, PROBE_TYPES, |_| false, &self.memory);
        opened.unwrap().unwrap() as i32
    }

    pub(super) fn link(&mut self, prog: i32, event: i32) -> Result<i64, Errno> {
        self.call(
            Command::LinkCreate,
            &[
                (attr::link::PROG_FD, &prog.to_ne_bytes()),
                (attr::link::TARGET_FD, &event.to_ne_bytes()),
                (attr::link::ATTACH_TYPE, &ATTACH_PERF_EVENT.to_ne_bytes()),
            ],
        )
    }

    fn attached(&self) -> Vec<String> {
        let attached = self.kernel.attached();
        attached.into_iter().map(|(_, section)| section).collect()
    }
}

#[test]
fn probes_of_kernels_become_sections_and_others_do_not_run() {
    let mut tool = Tool::new();
    let cuda = tool.load(b"cuda__probe", &nothing(), 0).unwrap() as i32;
    let other = tool.load(b"probe", &nothing(), 0).unwrap() as i32;
    for (prog, name, ret) in [
        (cuda, &b"_Z6kernelPf"[..], false),
        (cuda, b"_Z6kernelPf", true),
        (cuda, b"__directly_run", false),
        (cuda, b"__bpftime_cuda__kernel_trace", false),
        (cuda, b"do_exit", false),
        (cuda, b"cuda__Z6kernelPf", true),
        (other, b"cuda__Z6kernelPf", true),
        (other, b"vectorAdd", true),
        (other, b"do_exit", true),
    ] {
        let event = tool.event(name, ret);
        tool.link(prog, event).unwrap();
    }
    assert_eq!(
        tool.attached(),
        [
            "gpu/entry/_Z6kernelPf",
            "gpu/exit/_Z6kernelPf",
            "kprobe/__directly_run",
            "kprobe/__bpftime_cuda__kernel_trace",
            "gpu/entry/do_exit",
            "gpu/exit/[cuda_]_Z6kernelPf",
            "gpu/exit/cuda__Z6kernelPf",
            "gpu/exit/vectorAdd",
        ]
    );
}

#[test]
fn a_link_ends_with_its_descriptor_its_event_or_a_call() {
    let mut tool = Tool::new();
    let prog = tool.load(b"cuda__probe", &nothing(), 0).unwrap() as i32;
    let event = tool.event(b"_Zk", false);
    let link = tool.link(prog, event).unwrap() as i32;
    let version = tool.kernel.version;
    tool.kernel.closed(event);
    tool.kernel.closed(prog);
    assert_eq!(tool.attached(), ["gpu/entry/_Zk"]);
    tool.kernel.closed(link);
    assert_eq!(tool.attached(), [""; 0]);
    assert!(tool.kernel.version > version);
    assert!(tool.kernel.progs.get(0).is_none());

    let prog = tool.load(b"cuda__probe", &nothing(), 0).unwrap() as i32;
    let event = tool.event(b"_Zk", false);
    let set = tool
        .kernel
        .perf_ioctl(event, perf::IOC_SET_BPF, prog as u64);
    assert_eq!(set, Some(Ok(0)));
    let disabled = tool.kernel.perf_ioctl(event, perf::IOC_DISABLE, 0);
    assert_eq!(disabled, Some(Ok(0)));
    assert_eq!(tool.attached(), [""; 0]);
    tool.kernel.perf_ioctl(event, perf::IOC_ENABLE, 0);
    assert_eq!(tool.attached(), ["gpu/entry/_Zk"]);
    assert_eq!(tool.kernel.perf_ioctl(event, 1, 0), Some(Err(Errno::NOTTY)));
    assert_eq!(tool.kernel.perf_ioctl(prog, perf::IOC_ENABLE, 0), None);
    tool.kernel.closed(event);
    assert_eq!(tool.attached(), [""; 0]);

    let event = tool.event(b"_Zk", false);
    let link = tool.link(prog, event).unwrap() as i32;
    let detached = tool.call(Command::LinkDetach, &[(0, &link.to_ne_bytes())]);
    assert_eq!((detached, tool.attached().len()), (Ok(0), 0));
    // That is for good, whatever becomes of its event.
    let version = tool.kernel.version;
    tool.kernel.perf_ioctl(event, perf::IOC_DISABLE, 0);
    tool.kernel.perf_ioctl(event, perf::IOC_ENABLE, 0);
    let again = tool.call(Command::LinkDetach, &[(0, &link.to_ne_bytes())]);
    assert_eq!((again, tool.attached().len()), (Ok(0), 0));
    let update = [
        (attr::link_update::LINK_FD, link.to_ne_bytes()),
        (attr::link_update::NEW_PROG_FD, prog.to_ne_bytes()),
    ];
    let fields = update.each_ref().map(|(at, bytes)| (*at, &bytes[..]));
    let updated = tool.call(Command::LinkUpdate, &fields);
    assert_eq!(updated, Err(Errno::NOLINK));
    assert_eq!(tool.kernel.version, version);
}

#[test]
fn a_link_can_get_another_program() {
    let mut tool = Tool::new();
    let first = tool.load(b"cuda__first", &nothing(), 0).unwrap() as i32;
    let second = tool.load(b"cuda__second", &nothing(), 0).unwrap() as i32;
    let event = tool.event(b"_Zk", false);
    let link = tool.link(first, event).unwrap() as i32;
    let mut update = |flags: u32, old: i32| {
        tool.call(
            Command::LinkUpdate,
            &[
                (attr::link_update::LINK_FD, &link.to_ne_bytes()),
                (attr::link_update::NEW_PROG_FD, &second.to_ne_bytes()),
                (attr::link_update::FLAGS, &flags.to_ne_bytes()),
                (attr::link_update::OLD_PROG_FD, &old.to_ne_bytes()),
            ],
        )
    };
    assert_eq!(update(4, second), Err(Errno::PERM));
    assert_eq!(update(4, first), Ok(0));
    assert_eq!(tool.kernel.attached(), [(1, "gpu/entry/_Zk".to_owned())]);
}

#[test]
fn a_gpu_program_is_proved_when_it_is_loaded() {
    let mut tool = Tool::new();
    // It reads a register that nobody has set.
    let bad = code(&[(0xbf, 0, 3, 0, 0), (0x95, 0, 0, 0, 0)]);
    let log = tool.memory.put(&[0; 4096]);
    assert_eq!(tool.load(b"cuda__bad", &bad, log), Err(Errno::ACCESS));
    let said = tool.memory.text(log, 4096).unwrap();
    assert!(
        said.starts_with("program `cuda__bad` was refused"),
        "{said}"
    );
    assert!(tool.kernel.progs.get(0).is_none());
    // Any other may be for something else, until it is attached to a kernel.
    let prog = tool.load(b"other", &bad, 0).unwrap() as i32;
    let event = tool.event(b"do_exit", false);
    assert!(tool.link(prog, event).is_ok());
    let event = tool.event(b"_Zk", false);
    assert_eq!(tool.link(prog, event), Err(Errno::INVAL));
}

#[test]
fn what_libbpf_asks_a_kernel_for_is_there() {
    let mut tool = Tool::new();
    // Links of perf events: an event that is none gives `EBADF`.
    let prog = tool.load(b"", &nothing(), 0).unwrap() as i32;
    assert_eq!(tool.link(prog, -1), Err(Errno::BADF));
    assert_eq!(tool.link(-1, -1), Err(Errno::BADF));
    // Variables: a reference to a map's value.
    let map = tool.map(2, 4, 32, 1);
    let variables = code(&[
        (0x18, 1, 2, 0, map),
        (0, 0, 0, 0, 16),
        (0x7a, 1, 0, 0, 42),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ]);
    assert!(tool.load(b"", &variables, 0).is_ok());
    let bound = tool.call(
        Command::ProgBindMap,
        &[(0, &prog.to_ne_bytes()), (4, &map.to_ne_bytes())],
    );
    assert_eq!(bound, Ok(0));
    assert!(tool.call(Command::EnableStats, &[]).is_ok());
    let run = tool.call(Command::ProgTestRun, &[(0, &prog.to_ne_bytes())]);
    assert_eq!(run, Err(Errno::OPNOTSUPP));
}

#[test]
fn a_gpus_program_can_be_tried_as_one_thread() {
    let mut tool = Tool::new();
    let map = tool.map(2, 4, 32, 1);
    // Adds `threadIdx.x` to a variable, and gives it back.
    let adds = code(&[
        (0x61, 0, 1, 24, 0),
        (0x18, 2, 2, 0, map),
        (0, 0, 0, 0, 16),
        (0xdb, 2, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ]);
    let prog = tool.load(b"cuda__adds", &adds, 0).unwrap() as i32;
    let mut context = [0u8; 48];
    context[24] = 5;
    let given = tool.memory.put(&context);
    let out = tool.memory.put(&[1; 48]);
    let at = tool.attr(&[
        (attr::test::PROG_FD, &prog.to_ne_bytes()),
        (attr::test::REPEAT, &3u32.to_ne_bytes()),
        (attr::test::CTX_SIZE_IN, &48u32.to_ne_bytes()),
        (attr::test::CTX_SIZE_OUT, &48u32.to_ne_bytes()),
        (attr::test::CTX_IN, &given.to_ne_bytes()),
        (attr::test::CTX_OUT, &out.to_ne_bytes()),
    ]);
    let ran = tool.kernel.bpf(10, at, 144, &tool.memory);
    assert_eq!(ran, Ok(0));
    let answered = tool.memory.bytes(at, 144).unwrap();
    assert_eq!(answered[attr::test::RETVAL], 5);
    assert_eq!(answered[attr::test::CTX_SIZE_OUT], 48);
    assert_eq!(tool.memory.bytes(out, 48).unwrap(), context);
    assert_eq!(tool.kernel.lookup(0, &[0; 4]).unwrap()[16], 15);

    let mut refuses = |fields: &[(usize, &[u8])]| tool.call(Command::ProgTestRun, fields);
    let prog = &prog.to_ne_bytes();
    let field = |at: usize, value: u32| (at, value.to_ne_bytes());
    for ((at, value), error) in [
        (field(attr::test::DATA_SIZE_IN, 64), Errno::INVAL),
        (field(attr::test::FLAGS, 1), Errno::INVAL),
        (field(attr::test::CTX_SIZE_IN, 4096), Errno::TOOBIG),
        (field(attr::test::CTX_SIZE_IN, 8), Errno::FAULT),
    ] {
        assert_eq!(refuses(&[(0, prog), (at, &value)]), Err(error));
    }
    assert_eq!(refuses(&[(0, &77i32.to_ne_bytes())]), Err(Errno::BADF));
    // A helper over a group of lanes is more than one thread.
    let sums = code(&[(0xb7, 1, 0, 0, 1), (0x85, 0, 0, 0, 528), (0x95, 0, 0, 0, 0)]);
    let sums = tool.load(b"cuda__sums", &sums, 0).unwrap() as i32;
    let run = tool.call(Command::ProgTestRun, &[(0, &sums.to_ne_bytes())]);
    assert_eq!(run, Err(Errno::OPNOTSUPP));
}

#[test]
fn of_a_map_with_a_value_per_cpu_a_program_that_is_tried_has_the_first() {
    let mut tool = Tool::new();
    let map = tool.map(6, 4, 4, 1);
    // *(u32 *)(r10 - 4) = 0; r0 = lookup(map, r10 - 4); if (r0) *(u32 *)r0 += 3; r0 = 0
    let adds = code(&[
        (0x62, 10, 0, -4, 0),
        (0xbf, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -4),
        (0x18, 1, 1, 0, map),
        (0, 0, 0, 0, 0),
        (0x85, 0, 0, 0, 1),
        (0x15, 0, 0, 3, 0),
        (0x61, 1, 0, 0, 0),
        (0x07, 1, 0, 0, 3),
        (0x63, 0, 1, 0, 0),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ]);
    let prog = tool.load(b"cuda__adds", &adds, 0).unwrap() as i32;
    let before: Vec<u8> = (1..=32).collect();
    tool.kernel.update(0, &[0; 4], before.clone(), 0).unwrap();
    let run = tool.call(Command::ProgTestRun, &[(0, &prog.to_ne_bytes())]);
    assert_eq!(run, Ok(0));
    let mut expected = before;
    expected[0] += 3;
    let after = tool.kernel.lookup(0, &[0; 4]).unwrap();
    assert_eq!(after[..4], expected[..4]);
    assert_eq!(after[8..], expected[8..], "those of other CPUs stay");
}

#[test]
fn probes_of_functions_are_known_by_file_and_offset() {
    let mut tool = Tool::new();
    let counts = tool.load(b"on_call", &nothing(), 0).unwrap() as i32;
    // Of the task, which is none of the application's alone.
    let asks = code(&[(0x85, 0, 0, 0, 35), (0x95, 0, 0, 0, 0)]);
    let asks = tool.load(b"on_task", &asks, 0).unwrap() as i32;
    for (prog, path, ret) in [
        (counts, &b"/proc/self/exe"[..], false),
        (counts, b"/proc/self/exe", true),
        (counts, b"/nowhere/app", false),
        (asks, b"/proc/self/exe", false),
    ] {
        let event = tool.event_of_function(path, ret);
        tool.link(prog, event).unwrap();
    }
    let exe = std::fs::canonicalize("/proc/self/exe").unwrap();
    let exe = exe.display();
    assert_eq!(
        tool.attached(),
        [
            format!("uprobe/{exe}+0x1230"),
            format!("uretprobe/{exe}+0x1230")
        ]
    );
}

#[test]
fn programs_and_maps_become_an_object() {
    let mut tool = Tool::new();
    let counts = tool.map(1, 4, 8, 16);
    let variables = tool.map(2, 4, 24, 1);
    let mut value = [0; 24];
    value[8] = 5;
    let (key, value) = (tool.memory.put(&[0; 4]), tool.memory.put(&value));
    tool.call(
        Command::MapUpdateElem,
        &[
            (attr::elem::MAP_FD, &variables.to_ne_bytes()),
            (attr::elem::KEY, &key.to_ne_bytes()),
            (attr::elem::VALUE, &value.to_ne_bytes()),
        ],
    )
    .unwrap();
    // It adds to a variable, and calls a function that looks up a key.
    let body = code(&[
        (0x18, 1, 2, 0, variables),
        (0, 0, 0, 0, 8),
        (0xb7, 2, 0, 0, 1),
        (0xdb, 1, 2, 0, 0),
        (0x85, 0, 1, 0, 2),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
        (0x62, 10, 0, -4, 3),
        (0xbf, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -4),
        (0x18, 1, 1, 0, counts),
        (0, 0, 0, 0, 0),
        (0x85, 0, 0, 0, 1),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ]);
    let prog = tool.load(b"cuda__probe", &body, 0).unwrap() as i32;
    for ret in [false, true] {
        let event = tool.event(b"_Zk", ret);
        tool.link(prog, event).unwrap();
    }
    let gathered = tool.kernel.gather(&tool.kernel.attached()).unwrap();
    assert_eq!(
        gathered.numbers.into_iter().collect::<Vec<_>>(),
        [(0, 0), (1, 1)]
    );
    assert_eq!(gathered.names, ["a_map", ".data"]);
    let object = warpbpf_object::load(&gathered.object).unwrap();
    let names: Vec<_> = (object.programs.iter())
        .map(|p| (p.name.as_str(), p.section.as_str(), p.functions.len()))
        .collect();
    assert_eq!(
        names,
        [
            ("cuda__probe", "gpu/entry/_Zk", 2),
            ("cuda__probe.2", "gpu/exit/_Zk", 2),
        ]
    );
    assert_eq!(object.license.as_deref(), Some("GPL"));
    let map = &object.maps[0];
    assert_eq!(
        (map.map_type, map.key_size, map.value_size, map.max_entries),
        (1, 4, 8, 16)
    );
    let warpbpf_object::MapKind::Data {
        image, read_only, ..
    } = &object.maps[1].kind
    else {
        panic!("{:?}", object.maps[1]);
    };
    assert_eq!((image[8], image.len(), *read_only), (5, 24, false));
}
