//! Applications that run, played by the other end of their connection: what they are asked for when
//! links begin and end.

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_wire::{
    AgentConnection, Change, Changed, ContextInfo, Frame, Hello, MapOp, OpCode, PROTOCOL, Ready,
    Refusal, SharedWriter, ToAgent, ToTool,
};

use super::linux::naming;
use super::progs::nothing;
use super::{Device, def};
use crate::app::live::Live;
use crate::app::offer::{Offer, OfferError, Preset};
use crate::app::replace::Wanted;
use crate::kernel::Kernel;
use crate::kernel::gather::MapNames;
use crate::kernel::program_error::GatherError;
use crate::objects::session::Session as _;
use crate::tests::Tool;
use crate::uapi::{Command, attr, prog_type};

thread_local! {
    static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn told() -> Vec<String> {
    TOLD.take()
}

/// A tool with two programs on one kernel, each with an array; the second is not attached.
struct World {
    tool: Tool,
    live: Live,
    /// Descriptors of the programs, and of the first one's link.
    progs: [i32; 2],
    link: i32,
}

impl World {
    fn new() -> World {
        let mut tool = Tool::new();
        let progs = [b"cuda__first\0", b"cuda__other\0"].map(|name| {
            let map = tool.map(2, 4, 8, 1);
            let loaded = tool.load_as(prog_type::KPROBE, name, &naming(map), 0);
            loaded.unwrap() as i32
        });
        let mut world = World {
            tool,
            live: Live::new(|text| TOLD.with_borrow_mut(|told| told.push(text.to_owned()))),
            progs,
            link: 0,
        };
        world.link = world.attach(world.progs[0]);
        world
    }

    fn attach(&mut self, prog: i32) -> i32 {
        let event = self.tool.event(b"_Zk", false);
        self.tool.link(prog, event).unwrap() as i32
    }

    /// An application that has what is attached now.
    fn application(&mut self, pid: u32) -> AgentConnection {
        self.welcomed(pid, None, |_| ())
    }

    /// The same in a process that launches a program, if its number is given; `meanwhile` happens
    /// while it is welcomed.
    fn welcomed(
        &mut self,
        pid: u32,
        launcher: Option<u32>,
        meanwhile: impl Fn(&mut Kernel),
    ) -> AgentConnection {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut agent = AgentConnection::trusted(theirs).unwrap();
        let hello = Hello {
            protocol: PROTOCOL,
            pid: 1,
            exe: String::new(),
            argv: Vec::new(),
            device: None,
        };
        say(&mut agent, &ToTool::Hello(hello));
        self.live.give(pid, ours.into());
        let (kernel, live) = (&mut self.tool.kernel, &self.live);
        assert!(live.round(&mut |pid| {
            let offer = live.offer(kernel, launcher.or(pid));
            meanwhile(kernel);
            offer
        }));
        assert!(matches!(heard(&mut agent).message, ToAgent::Attach { .. }));
        agent
    }

    /// A round of the thread that serves applications.
    fn round(&mut self) {
        self.live
            .round(&mut |_| Err(OfferError::NotAlone { pid: None }));
        for (at, names) in self.live.behind(self.tool.kernel.version) {
            let wanted = Wanted::new(&mut self.tool.kernel, &names);
            self.live.ask_for(at, wanted);
        }
    }

    fn is_settled(&self) -> bool {
        self.live.is_settled(self.tool.kernel.version)
    }
}

fn say(agent: &mut AgentConnection, message: &ToTool) {
    agent
        .send(message, &[], None, Duration::from_secs(5))
        .unwrap();
}

fn heard(agent: &mut AgentConnection) -> Frame<ToAgent> {
    agent.try_recv().unwrap().unwrap()
}

/// The change that is asked for, and names of the programs that come along.
fn asked(agent: &mut AgentConnection) -> (u64, Change, Vec<String>) {
    let frame = heard(agent);
    let ToAgent::Change { token, change, .. } = frame.message else {
        panic!("{:?}", frame.message);
    };
    let object = warpbpf_object::load(&frame.blob);
    let programs = object.map(|object| object.programs).unwrap_or_default();
    let names = programs.into_iter().map(|program| program.name).collect();
    (token, change, names)
}

fn answer(agent: &mut AgentConnection, token: u64, refused: Option<&str>) {
    let refused = refused.map(|message| Refusal {
        errno: -22,
        message: message.to_owned(),
    });
    let changed = Changed {
        token,
        refused,
        ..Changed::default()
    };
    say(agent, &ToTool::Changed(changed));
}

#[test]
fn maps_of_programs_that_are_only_loaded_come_along_and_keep_names() {
    let mut world = World::new();
    let attached = world.tool.kernel.attached();
    let loaded = world.tool.kernel.loaded_for_gpu();
    let kernel = &mut world.tool.kernel;
    let gathered = kernel.gather_beside(&attached, &loaded, &MapNames::new());
    let gathered = gathered.unwrap();
    assert_eq!(gathered.names, ["a_map", "a_map.2"]);
    assert_eq!(gathered.programs, ["cuda__first"]);
    // The second alone, for who knows both, and one more of that name.
    let names: MapNames = gathered
        .numbers
        .keys()
        .copied()
        .zip(gathered.names)
        .collect();
    let map = world.tool.map(2, 4, 8, 1);
    let third = world
        .tool
        .load_as(prog_type::KPROBE, b"cuda__third", &naming(map), 0);
    assert!(third.is_ok());
    let programs = [1, 2].map(|at| (at, "gpu/entry/_Zk".to_owned()));
    let gathered = world.tool.kernel.gather_beside(&programs, &[], &names);
    let gathered = gathered.unwrap();
    assert_eq!(gathered.names, ["a_map.2", "a_map.3"]);
    assert_eq!(gathered.numbers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_map_that_no_device_can_have_keeps_out_only_its_own_program() {
    let mut world = World::new();
    let huge = world.tool.map(1, 4, 8, 1 << 31);
    let third = world
        .tool
        .load_as(prog_type::KPROBE, b"cuda__third", &naming(huge), 0);
    assert!(third.is_ok());
    let offer = Offer::new(&mut world.tool.kernel, None).unwrap();
    assert_eq!(offer.gathered.names, ["a_map"]);
    assert_eq!(offer.gathered.programs, ["cuda__first"]);
}

#[test]
fn links_that_begin_and_end_are_asked_for_one_at_a_time() {
    let mut world = World::new();
    // Nobody is there: nothing to wait for.
    assert!(world.is_settled());
    let mut agent = world.application(7);
    assert!(world.is_settled());
    let second = world.attach(world.progs[1]);
    assert!(!world.is_settled());
    world.round();
    let (token, change, names) = asked(&mut agent);
    assert_eq!(change, Change::Replace);
    assert_eq!(names, ["cuda__first", "cuda__other"]);
    // It ends meanwhile; that waits for its turn.
    world.tool.kernel.closed(second);
    world.round();
    assert!(agent.try_recv().unwrap().is_none());
    answer(&mut agent, token, None);
    world.round();
    assert!(!world.is_settled());
    let (token, change, names) = asked(&mut agent);
    let programs = vec!["cuda__other".to_owned()];
    assert_eq!((change, names.len()), (Change::Remove { programs }, 0));
    // An answer to an earlier question is none to this one.
    answer(&mut agent, token - 1, None);
    world.round();
    assert!(!world.is_settled());
    answer(&mut agent, token, None);
    world.round();
    assert!(world.is_settled() && !world.live.is_slow());
    // What changes nothing in kernels is not asked for.
    world.attach(world.progs[0]);
    world.round();
    assert!(world.is_settled());
    assert!(agent.try_recv().unwrap().is_none());
    assert_eq!(told(), [""; 0]);
}

#[test]
fn a_refusal_and_an_end_are_no_reason_to_wait() {
    let mut world = World::new();
    let mut agents = [world.application(7), world.application(8)];
    let second = world.attach(world.progs[1]);
    world.round();
    let (token, ..) = asked(&mut agents[0]);
    answer(&mut agents[0], token, Some("no room"));
    world.round();
    assert!(!world.is_settled(), "the other one has not answered");
    let [mut first, gone] = agents;
    drop(gone);
    world.round();
    assert!(world.is_settled());
    assert_eq!(
        told(),
        [
            "process 7 does not get what is attached now, and only applications that start from now on do: no room"
        ]
    );
    assert_eq!(world.live.arrivals(), [(8, "left")]);
    // It still has the first alone, and so this is nothing new.
    world.tool.kernel.closed(second);
    world.round();
    assert!(world.is_settled());
    assert!(first.try_recv().unwrap().is_none());
    // One for whom there is nothing.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    world.live.give(9, ours.into());
    let gone = GatherError::MapGone { map: 0 };
    let mut gone = Some(OfferError::Gather(gone));
    world.live.round(&mut |_| Err(gone.take().unwrap()));
    assert_eq!(world.live.arrivals(), [(9, "refused")]);
    assert_eq!(told(), ["a map is gone"]);
    // All have ended: it is let go, and is asked for nothing more.
    world.tool.kernel.closed(world.link);
    world.live.detach();
    assert!(world.is_settled());
    assert_eq!(
        (world.live.was_left(), world.live.was_left()),
        (true, false)
    );
    assert!(matches!(heard(&mut first).message, ToAgent::Detach));
    world.attach(world.progs[0]);
    world.round();
    assert!(world.is_settled());
    assert!(first.try_recv().unwrap().is_none());
    // It says good-bye when that is done.
    assert!(!world.live.is_let_go());
    drop(first);
    world.round();
    assert!(world.live.is_let_go());
}

#[test]
fn a_program_with_other_maps_stays_out_and_keeps_nothing_in() {
    let mut world = World::new();
    let mut agent = world.application(7);
    let map = world.tool.map(2, 4, 8, 1);
    let third = world
        .tool
        .load_as(prog_type::KPROBE, b"cuda__third", &naming(map), 0);
    world.attach(third.unwrap() as i32);
    world.round();
    assert!(world.is_settled());
    assert!(agent.try_recv().unwrap().is_none());
    let why = "process 7: program `cuda__third` is only in applications that start from now on: this one has no map `a_map`, and maps are made when an application starts; load the program before";
    assert_eq!(told(), [why]);
    // Others come and end beside it, which is told once.
    world.attach(world.progs[1]);
    world.round();
    let (token, change, names) = asked(&mut agent);
    assert_eq!(change, Change::Replace);
    assert_eq!(names, ["cuda__first", "cuda__other"]);
    answer(&mut agent, token, None);
    world.round();
    let link = world.link;
    world.tool.kernel.closed(link);
    world.round();
    let (token, change, _) = asked(&mut agent);
    let programs = vec!["cuda__first".to_owned()];
    assert_eq!(change, Change::Remove { programs });
    answer(&mut agent, token, None);
    world.round();
    assert!(world.is_settled());
    assert_eq!(told(), [""; 0]);
}

#[test]
fn what_has_ended_ends_also_where_what_has_come_is_refused() {
    let mut world = World::new();
    let mut agent = world.application(7);
    world.attach(world.progs[1]);
    let link = world.link;
    world.tool.kernel.closed(link);
    world.round();
    let (token, change, names) = asked(&mut agent);
    assert_eq!(change, Change::Replace);
    assert_eq!(names, ["cuda__other"]);
    answer(&mut agent, token, Some("no room"));
    world.round();
    assert!(!world.is_settled());
    let (token, change, _) = asked(&mut agent);
    let programs = vec!["cuda__first".to_owned()];
    assert_eq!(change, Change::Remove { programs });
    answer(&mut agent, token, Some("busy"));
    world.round();
    // Nobody waits for it any more, and it is asked again after a while, but nothing is said again.
    assert!(world.is_settled());
    let (token, change) = asked_again(&mut world, &mut agent);
    let programs = vec!["cuda__first".to_owned()];
    assert_eq!(change, Change::Remove { programs });
    answer(&mut agent, token, Some("busy"));
    let (token, _) = asked_again(&mut world, &mut agent);
    answer(&mut agent, token, None);
    world.round();
    // Now there is nothing to end.
    world.attach(world.progs[1]);
    world.round();
    assert!(world.is_settled());
    assert!(agent.try_recv().unwrap().is_none());
    assert_eq!(
        told(),
        [
            "process 7 does not get what is attached now, and only applications that start from now on do: no room",
            "process 7 still runs programs that have ended: busy",
        ]
    );
}

/// Rounds until it is asked once more.
fn asked_again(world: &mut World, agent: &mut AgentConnection) -> (u64, Change) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        world.round();
        if let Some(frame) = agent.try_recv().unwrap() {
            let ToAgent::Change { token, change, .. } = frame.message else {
                panic!("{:?}", frame.message);
            };
            return (token, change);
        }
        assert!(Instant::now() < end, "it is not asked again");
    }
}

#[test]
fn an_end_of_all_reaches_one_that_is_being_welcomed() {
    let mut world = World::new();
    let link = world.link;
    let mut agent = world.welcomed(7, None, |kernel| kernel.closed(link));
    // Who ended them did not find it yet.
    world.round();
    assert!(matches!(heard(&mut agent).message, ToAgent::Detach));
    world.live.detach();
    assert!(agent.try_recv().unwrap().is_none(), "it is told once");
    assert!(world.is_settled() && !world.live.is_let_go());
    drop(agent);
    world.round();
    // The tool has let it go, and may live on as it does.
    assert!(world.live.is_let_go());
    assert_eq!(world.live.arrivals(), []);
}

#[test]
fn the_last_program_in_kernels_is_taken_out_where_others_go_on() {
    let mut world = World::new();
    // One without maps, on the CPU.
    let on_cpu = world
        .tool
        .load_as(prog_type::KPROBE, b"on_call", &nothing(), 0);
    let event = world.tool.event_of_function(b"/proc/self/exe", false);
    let on_cpu = world.tool.link(on_cpu.unwrap() as i32, event).unwrap();
    let mut agent = world.application(7);
    let detached = world
        .tool
        .call(Command::LinkDetach, &[(0, &world.link.to_ne_bytes())]);
    assert_eq!(detached, Ok(0));
    world.round();
    let (token, change, names) = asked(&mut agent);
    let programs = vec!["cuda__first".to_owned()];
    assert_eq!((change, names.len()), (Change::Remove { programs }, 0));
    answer(&mut agent, token, None);
    // It comes again, and the one on the CPU ends: that is first, and nobody waits for the answer.
    world.tool.kernel.closed(on_cpu as i32);
    world.attach(world.progs[0]);
    world.round();
    let (nobody, change, names) = asked(&mut agent);
    let programs = Vec::new();
    assert_eq!((change, names.len()), (Change::OnCpu { programs }, 0));
    let (token, change, names) = asked(&mut agent);
    assert_eq!(
        (change, names.as_slice()),
        (Change::Replace, &["cuda__first".to_owned()][..])
    );
    answer(&mut agent, nobody, None);
    answer(&mut agent, token, None);
    // A new one there would need a start.
    assert_eq!(told(), [""; 0]);
    let again = world
        .tool
        .load_as(prog_type::KPROBE, b"on_again", &nothing(), 0);
    let event = world.tool.event_of_function(b"/proc/self/exe", false);
    world.tool.link(again.unwrap() as i32, event).unwrap();
    world.round();
    assert!(world.is_settled());
    let told = told();
    assert!(
        told.len() == 1
            && told[0]
                .contains("programs at functions on the CPU come in when an application starts"),
        "{told:?}"
    );
}

#[test]
fn what_a_call_has_changed_is_noted_for_its_thread() {
    use crate::kernel::updates::{Change, take};

    let mut world = World::new();
    assert_eq!((take(), take()), (Some(Change::Began), None));
    let second = world.attach(world.progs[1]);
    take();
    world.tool.kernel.closed(second);
    assert_eq!(take(), Some(Change::Ended));
    let update = [
        (attr::link_update::LINK_FD, world.link.to_ne_bytes()),
        (attr::link_update::NEW_PROG_FD, world.progs[1].to_ne_bytes()),
    ];
    let fields = update.each_ref().map(|(at, bytes)| (*at, &bytes[..]));
    assert_eq!(world.tool.call(Command::LinkUpdate, &fields), Ok(0));
    assert_eq!(take(), Some(Change::Began));
    world.tool.map(2, 4, 8, 1);
    assert_eq!(take(), None);
}

#[test]
fn who_launches_a_program_gets_it_alone_with_what_the_tool_sees() {
    let mut world = World::new();
    let update = |tool: &mut Tool, at: usize, value: u64| {
        let value = value.to_ne_bytes().to_vec();
        tool.kernel.update(at, &[0; 4], value, 0).unwrap();
    };
    update(&mut world.tool, 0, 5);
    update(&mut world.tool, 1, 6);
    let kernel = &mut world.tool.kernel;
    assert_eq!(kernel.launch_wanted(9, "cuda__none"), Err(Errno::NOENT));
    let on_linux = world
        .tool
        .load_as(prog_type::KPROBE, b"on_call", &nothing(), 0);
    assert!(on_linux.is_ok());
    let kernel = &mut world.tool.kernel;
    assert_eq!(kernel.launch_wanted(9, "on_call"), Err(Errno::INVAL));
    assert_eq!(kernel.launch_wanted(9, "cuda__other"), Ok(0));
    let programs = |offer: &Offer| {
        let all = offer.object.programs.iter();
        all.map(|p| (p.name.clone(), p.section.clone()))
            .collect::<Vec<_>>()
    };
    let values = |offer: &Offer| {
        let all = offer.presets.iter();
        let value = |preset: &Preset| (preset.map.clone(), preset.entries[0].1[0]);
        all.map(value).collect::<Vec<_>>()
    };
    let offer = Offer::new(kernel, Some(9)).unwrap();
    assert!(offer.launches);
    let section = "gpu/entry/cuda__other".to_owned();
    assert_eq!(programs(&offer), [("cuda__other".to_owned(), section)]);
    let both = |first, second| [("a_map".to_owned(), first), ("a_map.2".to_owned(), second)];
    assert_eq!(values(&offer), both(5, 6));
    // What an application has left is seen by the tool, and by who launches; others begin as the
    // first one did.
    let device = Device::new(&def(2, 4, 8, 1), 2);
    device.set(&[0; 4], &7u64.to_ne_bytes());
    kernel.session = Some(device);
    let offer = Offer::new(kernel, Some(9)).unwrap();
    assert_eq!(values(&offer), both(7, 6));
    let offer = Offer::new(kernel, Some(8)).unwrap();
    assert!(!offer.launches);
    let section = "gpu/entry/_Zk".to_owned();
    assert_eq!(programs(&offer), [("cuda__first".to_owned(), section)]);
    assert_eq!(values(&offer), both(5, 6));
}

#[test]
fn who_launches_is_alone_and_leaves_the_tool_its_maps() {
    let mut world = World::new();
    // One that could be for Linux too.
    let map = world.tool.map(2, 4, 8, 1);
    let other = world
        .tool
        .load_as(prog_type::KPROBE, b"traced", &naming(map), 0);
    world.attach(other.unwrap() as i32);
    let kernel = &mut world.tool.kernel;
    assert_eq!(kernel.launch_wanted(9, "cuda__other"), Ok(0));
    assert_eq!(kernel.launch_wanted(9, "cuda__first"), Ok(0));
    assert_eq!(kernel.launch_wanted(8, "cuda__other"), Err(Errno::BUSY));
    let offer = Offer::new(kernel, Some(9)).unwrap();
    assert_eq!(offer.gathered.programs, ["cuda__first"]);
    assert_eq!(offer.gathered.names, ["a_map", "a_map.2", "a_map.3"]);
    // It launches what is not attached, and goes on when nothing is.
    let mut launcher = world.welcomed(9, Some(9), |_| ());
    world.tool.kernel.closed(world.link);
    world.live.detach();
    world.round();
    assert!(launcher.try_recv().unwrap().is_none());
    assert!(world.live.is_let_go());
    // Where an application has come meanwhile, it gets nothing.
    drop(launcher);
    world.round();
    let kernel = &mut world.tool.kernel;
    assert!(world.live.offer(kernel, Some(9)).is_ok());
    let _application = world.application(7);
    let kernel = &mut world.tool.kernel;
    assert_eq!(
        world
            .live
            .offer(kernel, Some(9))
            .err()
            .map(|e| e.to_string()),
        Some(
            "`launch-inside` gets no program: an application has come, which has maps of its own"
                .to_owned()
        )
    );
    assert!(world.live.offer(kernel, None).is_ok());
}

/// Says that it has maps now, as soon as it is asked for a copy, and that it has copied all; then
/// it is gone.
fn made_meanwhile(mut agent: AgentConnection) {
    let (_writer, fd) = SharedWriter::create(&[], 4096).unwrap();
    let frame = agent.recv(Duration::from_secs(60)).unwrap().unwrap();
    let ToAgent::Snapshot { token } = frame.message else {
        panic!("{:?}", frame.message);
    };
    let ready = ToTool::Ready(Ready {
        maps: Vec::new(),
        programs: Vec::new(),
        areas: Vec::new(),
        context: ContextInfo::default(),
    });
    agent
        .send(&ready, &[], Some(fd.into()), Duration::from_secs(60))
        .unwrap();
    say(&mut agent, &ToTool::Snapshotted { token });
}

#[test]
fn maps_that_were_made_just_now_are_those_that_are_looked_at() {
    let mut world = World::new();
    assert_eq!(world.live.number(0), None, "nobody is there");
    let agent = world.application(7);
    let agent = std::thread::spawn(|| made_meanwhile(agent));
    assert_eq!(world.live.number(0), Some(0));
    agent.join().unwrap();
    // It cannot be asked any more, and left nothing of a map that it does not know.
    let op = MapOp {
        code: OpCode::Lookup,
        flags: 0,
        key: &[0; 4],
        value: &[],
    };
    let outcome = world.live.operate(0, &[op]);
    assert_eq!(outcome.unwrap_err(), Errno::OPNOTSUPP);
    assert_eq!(told(), [""; 0]);
}

#[test]
fn who_does_not_answer_is_waited_for_once() {
    let mut world = World::new();
    let mut agent = world.application(7);
    for _ in 0..3 {
        assert_eq!(world.live.number(0), None);
    }
    let ToAgent::Snapshot { token } = heard(&mut agent).message else {
        panic!("something else was asked");
    };
    assert!(agent.try_recv().unwrap().is_none());
    // It goes on.
    say(&mut agent, &ToTool::Snapshotted { token });
    let agent = std::thread::spawn(|| made_meanwhile(agent));
    assert_eq!(world.live.number(0), Some(0));
    agent.join().unwrap();
}
