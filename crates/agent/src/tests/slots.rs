//! What is in slots, in device memory: programs in one of two halves, and the words that say which
//! is in force.

use std::time::Duration;

use warpbpf_abi::layout::{env, fence, gate, slots};
use warpbpf_wire::{Change, Options, ToTool};

use super::attached::{Application, compile};
use super::world::World;

const LIMIT: Duration = Duration::from_secs(20);

const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
SEC("gpu/entry/inc")
int first(struct wbpf_kernel_ctx *ctx) { return 0; }
SEC("gpu/exit/inc")
int second(struct wbpf_kernel_ctx *ctx) { return 0; }
char LICENSE[] SEC("license") = "GPL";
"#;

/// One for the second of the two slots.
fn other(name: &str) -> Vec<u8> {
    let program =
        "SEC(\"gpu/exit/inc\") int other(struct wbpf_kernel_ctx *ctx) { return ctx->lane; }";
    let head = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"warpbpf.h\"\n";
    let end = "\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";
    compile(
        &format!("slots-{name}-other"),
        &format!("{head}{program}{end}"),
    )
}

fn started(name: &str) -> Application {
    let options = Options {
        slots: true,
        ..Options::default()
    };
    let object = compile(&format!("slots-{name}"), PROGRAM);
    let mut app = Application::with(options, &object, &[]);
    app.load();
    app
}

fn block(world: &World) -> *mut u8 {
    world.memory_of((env::SIZE + gate::SIZE + slots::SIZE) as usize)
}

fn word_at(world: &World, at: u64) -> u64 {
    // SAFETY: inside the allocation, and a multiple of 8; nobody writes it while it is looked at.
    unsafe { block(world).add(at as usize).cast::<u64>().read() }
}

/// The gate, open slots, and the number of the half in force with the program of the second slot:
/// the same in all copies.
fn words(world: &World) -> (u64, u64, Option<(u64, bool)>) {
    let copies: Vec<[u64; 3]> = (0..gate::COPIES)
        .map(|copy| {
            let at = gate::COPIES_AT + copy * gate::STRIDE;
            [0, gate::OPEN, gate::HALF].map(|word| word_at(world, at + word))
        })
        .collect();
    assert!(copies.iter().all(|copy| *copy == copies[0]), "{copies:x?}");
    let [word, open, half] = copies[0];
    let base = block(world) as u64 + slots::AT + slots::HALVES;
    let half = (half != 0).then(|| {
        let number = (half - base) / slots::HALF;
        let entry = |slot: u64| word_at(world, half + slot * 8 - block(world) as u64);
        let inside = entry(1) >= half + slots::PROGRAMS && entry(1) < half + slots::HALF;
        assert_eq!(entry(0), 0, "nothing came for the first");
        (number, inside)
    });
    (word, open, half)
}

fn set(app: &mut Application, change: Change, object: &[u8]) -> Result<Vec<String>, (i32, String)> {
    app.agent
        .change_programs(7, change, object.to_vec(), Duration::from_millis(300));
    let tool = app.tool.as_mut().unwrap();
    loop {
        let frame = tool.recv(LIMIT).unwrap().expect("an answer");
        if let ToTool::Changed(changed) = frame.message {
            assert_eq!((changed.token, changed.generation), (7, 1));
            return match changed.refused {
                Some(refused) => Err((refused.errno, refused.message)),
                None => Ok(changed.slots),
            };
        }
    }
}

#[test]
fn halves_take_turns_in_every_context() {
    let mut app = started("turns");
    let object = other("turns");
    assert_eq!(words(&app.world), (0, 0, None));
    let put = |app: &mut Application| set(app, Change::Slots, &object);
    assert_eq!(put(&mut app), Ok(vec!["other".to_owned()]));
    assert_eq!(words(&app.world), (0, 0b10, Some((1, true))));
    assert_eq!(put(&mut app), Ok(vec!["other".to_owned()]));
    assert_eq!(words(&app.world), (0, 0b10, Some((0, true))));
    // A context that comes has what the others have.
    let (later, context) = World::enter();
    let first = std::mem::replace(&mut app.world, later);
    app.context = context;
    app.load();
    assert_eq!(words(&app.world), (0, 0b10, Some((1, true))));
    // Where no program runs, none does in a slot.
    let gate = |open| Change::Gate {
        open,
        programs: Vec::new(),
    };
    assert!(set(&mut app, gate(false), &[]).is_ok());
    for world in [&first, &app.world] {
        assert_eq!(words(world), (gate::CLOSED, 0, None));
    }
    assert!(set(&mut app, gate(true), &[]).is_ok());
    assert_eq!(words(&first), (0, 0b10, Some((0, true))));
    assert_eq!(words(&app.world), (0, 0b10, Some((1, true))));
    assert_eq!(set(&mut app, Change::Clear, &[]), Ok(Vec::new()));
    for world in [&first, &app.world] {
        assert_eq!(words(world), (0, 0, None));
    }
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn a_half_that_somebody_is_in_is_left_alone() {
    let mut app = started("busy");
    let object = other("busy");
    let names = Ok(vec!["other".to_owned()]);
    assert_eq!(set(&mut app, Change::Slots, &object), names);
    // As one who came before that, and does not leave.
    let counter = slots::AT + fence::READERS + 3 * fence::COUNTER_STRIDE;
    // SAFETY: inside the allocation, and a multiple of 4.
    let counter = unsafe { block(&app.world).add(counter as usize).cast::<u32>() };
    // SAFETY: as above; nobody else writes it.
    unsafe { counter.write(1) };
    assert_eq!(
        set(&mut app, Change::Slots, &object),
        Err((-16, "slots are as they were: kernels still run what was in slots before the programs that are there now: try again".to_owned()))
    );
    assert_eq!(words(&app.world), (0, 0b10, Some((1, true))));
    // SAFETY: as above.
    unsafe { counter.write(0) };
    assert_eq!(set(&mut app, Change::Slots, &object), names);
    assert_eq!(words(&app.world), (0, 0b10, Some((0, true))));
}

#[test]
fn what_cannot_be_brought_or_put_changes_nothing() {
    let mut app = started("refused");
    let object = other("refused");
    assert_eq!(
        set(&mut app, Change::Slots, &compile("slots-refused", PROGRAM)),
        Ok(vec!["first".to_owned(), "second".to_owned()])
    );
    let before = words_of_both(&app.world);
    let unknown = PROGRAM.replace("gpu/exit/inc", "gpu/exit.warp/inc");
    let (errno, message) =
        set(&mut app, Change::Slots, &compile("slots-unknown", &unknown)).unwrap_err();
    assert_eq!(errno, -22);
    assert!(message.starts_with("program `second` is for `gpu/exit.warp/inc`, where there is no slot; there are those for `gpu/entry/inc`, `gpu/exit/inc`."), "{message}");
    let (errno, message) = set(&mut app, Change::Slots, b"no object").unwrap_err();
    assert_eq!(errno, -22);
    assert!(
        message.starts_with("the object cannot be loaded: "),
        "{message}"
    );
    assert_eq!(words_of_both(&app.world), before);
    // A copy that fails: the word is written last.
    app.world.tear(gate::SIZE as usize, 1);
    let (errno, message) = set(&mut app, Change::Slots, &object).unwrap_err();
    assert_eq!(errno, -5);
    assert!(
        message.starts_with("the gate cannot be written"),
        "{message}"
    );
    // It was noted: the next one writes it.
    let open = Change::Gate {
        open: true,
        programs: Vec::new(),
    };
    assert_eq!(set(&mut app, open, &[]), Ok(vec!["other".to_owned()]));
    assert_eq!(words(&app.world), (0, 0b10, Some((0, true))));
}

fn words_of_both(world: &World) -> [u64; 3] {
    [0, gate::OPEN, gate::HALF].map(|word| word_at(world, gate::COPIES_AT + word))
}
