//! Hooks on functions assembled by hand: the shapes of real drivers, and everything that must be
//! refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::error::{BeneathError, WriteError};
use crate::memory::Region;
use crate::stage::stage;
use crate::stub::{link, stubs};
use crate::target::{Kind, Target};

/// Puts code into executable memory and returns its address.
fn place(code: &[u8]) -> usize {
    let here = place as *const () as usize;
    let region = Region::near(here, here, code.len().max(1), &REACHES[..1]).unwrap();
    let base = region.base();
    region.finish(code).unwrap();
    base
}

fn plan_of(code: &[u8]) -> Result<Plan, HookError> {
    plan(0x1000, code)
}

/// `push rbp; mov rbp,rsp; push r12; sub rsp,8; cmp dword [rip+d],0; lea eax,[rdi+rsi]; add rsp,8;
/// pop r12; pop rbp; ret`
fn driver_like(displacement: i32) -> Vec<u8> {
    let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x48, 0x83, 0xec, 0x08];
    code.extend([0x83, 0x3d]);
    code.extend(displacement.to_le_bytes());
    code.push(0);
    code.extend([
        0x8d, 0x04, 0x37, 0x48, 0x83, 0xc4, 0x08, 0x41, 0x5c, 0x5d, 0xc3,
    ]);
    code
}

static TRAMPOLINE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn replacement(a: i32, b: i32) -> i32 {
    // SAFETY: the trampoline of a function with this signature.
    let original: extern "C" fn(i32, i32) -> i32 =
        unsafe { std::mem::transmute(TRAMPOLINE.load(Ordering::SeqCst)) };
    1000 + original(a * 10, b)
}

extern "C" fn add(a: i32, b: i32) -> i32 {
    a + b
}

/// An entry of a procedure linkage table whose jump, of `jump` bytes from `at` on, leads to
/// [`add`], with a word behind it.
fn entry(before: &[u8], jump: &[u8], behind: &[u8]) -> Vec<u8> {
    let end = before.len() + jump.len() + 4;
    let mut code = [before, jump].concat();
    code.extend((24 - end as i32).to_le_bytes());
    code.extend(behind);
    code.resize(24, 0x90);
    code.extend((add as *const () as usize).to_le_bytes());
    code
}

/// What linkers make: with a word that leads behind the jump at first, with that in another table,
/// and with none.
fn entries() -> [(&'static str, Vec<u8>); 4] {
    // push 7; jmp -16
    let lazy = [0x68, 7, 0, 0, 0, 0xe9, 0xf0, 0xff, 0xff, 0xff];
    [
        (".plt", entry(&[], &[0xff, 0x25], &lazy)),
        (".plt.got", entry(&[], &[0xff, 0x25], &[0x66, 0x90])),
        (".plt.sec", entry(&ENDBR64, &[0xff, 0x25], &[])),
        (
            ".plt.sec with bnd",
            entry(&ENDBR64, &[0xf2, 0xff, 0x25], &[]),
        ),
    ]
}

/// Hooks `code` with [`replacement`] and returns what calling it with (2, 3) gives before and
/// after.
fn hook(kind: Kind, code: &[u8]) -> Result<(i32, i32), HookError> {
    let address = place(code);
    // SAFETY: `code` is a function of this signature.
    let function: extern "C" fn(i32, i32) -> i32 = unsafe { std::mem::transmute(address) };
    let before = function(2, 3);
    let target = Target {
        address,
        code: code.to_vec(),
        replacement: replacement as *const () as usize,
        kind,
    };
    let staged = stage(&[target]);
    if let Ok(original) = &staged.originals[0] {
        TRAMPOLINE.store(*original, Ordering::SeqCst);
    }
    // SAFETY: nobody is in the function.
    let result = unsafe { staged.commit() }.remove(0);
    result?;
    // SAFETY: readable code.
    let now = unsafe { std::slice::from_raw_parts(address as *const u8, code.len()) };
    if kind == Kind::Entry {
        let jump = now.iter().zip(code).position(|(now, was)| now != was);
        let jump = jump.unwrap();
        assert_eq!(now[jump], 0xe9);
        assert_eq!(now[jump + 5..], code[jump + 5..], "what is behind stays");
    } else {
        assert_eq!(now[0], code[0], "the first byte stays");
    }
    Ok((before, function(2, 3)))
}

/// What stands in the place of [`replacement`] in the next test; it goes on to it.
extern "C" fn in_front(a: i32, b: i32) -> i32 {
    // SAFETY: the address that the link gave, of a function with this signature.
    let behind: extern "C" fn(i32, i32) -> i32 =
        unsafe { std::mem::transmute(BEHIND.load(Ordering::SeqCst)) };
    behind(a, b) + 100_000
}

static BEHIND: AtomicUsize = AtomicUsize::new(0);

extern "C" fn seven(_: i32, _: i32) -> i32 {
    7
}

#[test]
fn a_hook_of_ours_gets_another_function_in_front() {
    let code = driver_like(0x10);
    let address = place(&code);
    // SAFETY: `code` is a function of this signature.
    let function: extern "C" fn(i32, i32) -> i32 = unsafe { std::mem::transmute(address) };
    let ours = [seven as *const () as usize];
    assert_eq!(link(address, &code, &ours), None, "nothing is hooked yet");
    let staged = stage(&[Target {
        address,
        code: code.clone(),
        replacement: ours[0],
        kind: Kind::Driver,
    }]);
    // SAFETY: nobody is in the function.
    unsafe { staged.commit() }.remove(0).unwrap();
    assert_eq!(function(2, 3), 7);
    // SAFETY: the function's own bytes.
    let now = unsafe { std::slice::from_raw_parts(address as *const u8, code.len()) }.to_vec();
    assert_eq!(link(address, &now, &[]), None, "somebody else's hook");
    let found = link(address, &now, &ours).unwrap();
    assert_eq!(found.replacement, ours[0]);
    BEHIND.store(found.replacement, Ordering::SeqCst);
    // SAFETY: it does as `seven`, and more.
    unsafe { found.exchange(in_front as *const () as usize) }.unwrap();
    assert_eq!(function(2, 3), 100_007);
    // What has been exchanged is no hook of ours any more.
    assert_eq!(link(address, &now, &ours), None);
    // SAFETY: as above; the word is not as the link says.
    let again = unsafe { found.exchange(0) };
    assert_eq!(again, Err(WriteError::Changed));
}

/// What a uprobe leaves in memory: the file's code with a breakpoint at its beginning.
#[test]
fn a_function_under_a_uprobe_is_hooked_and_moved_as_its_file_has_it() {
    let code = driver_like(0x10);
    // Within reach of what the function reads.
    let (path, address) = mapped("under", &code);
    let first = |from: u8, to: u8| {
        // SAFETY: nobody runs the function now.
        unsafe { crate::memory::patch(address, &[from], &[to]) }.unwrap();
    };
    // SAFETY: `code` is a function of this signature.
    let function: extern "C" fn(i32, i32) -> i32 = unsafe { std::mem::transmute(address) };
    assert_eq!(function(2, 3), 5);
    first(code[0], FILL);
    let now = || {
        // SAFETY: the function's own bytes.
        unsafe { std::slice::from_raw_parts(address as *const u8, code.len()) }.to_vec()
    };
    let ours = [seven as *const () as usize];
    let staged = stage(&[Target {
        address,
        code: now(),
        replacement: ours[0],
        kind: Kind::Driver,
    }]);
    let original = *staged.originals[0].as_ref().unwrap();
    // SAFETY: nobody is in the function.
    unsafe { staged.commit() }.remove(0).unwrap();
    // SAFETY: the trampoline, which holds the instruction and no breakpoint.
    let original: extern "C" fn(i32, i32) -> i32 = unsafe { std::mem::transmute(original) };
    assert_eq!(original(2, 3), 5);
    assert_eq!(now()[0], FILL, "the breakpoint stays");
    // A hook of ours is found behind it, too.
    assert_eq!(
        link(address, &now(), &ours).map(|link| link.replacement),
        Some(ours[0])
    );
    // As Linux does, which goes on behind the instruction.
    first(FILL, code[0]);
    assert_eq!(function(2, 3), 7);
    // With something else behind the breakpoint it is not known what was there.
    first(code[0], FILL);
    let mut other = now();
    other[10] ^= 1;
    let staged = stage(&[Target {
        address,
        code: other,
        replacement: ours[0],
        kind: Kind::Driver,
    }]);
    assert_eq!(
        staged.originals,
        [Err(HookError::Breakpoint {
            source: BeneathError::Other {
                path: path.display().to_string()
            }
        })]
    );
    std::fs::remove_file(&path).unwrap();
}

/// A file of one page with that code, mapped as code of a library is.
fn mapped(name: &str, code: &[u8]) -> (std::path::PathBuf, usize) {
    use std::os::fd::AsRawFd as _;
    let path = std::env::temp_dir().join(format!("warpbpf-{name}-{}", std::process::id()));
    let mut page = code.to_vec();
    page.resize(4096, FILL);
    std::fs::write(&path, page).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // SAFETY: a fresh mapping of a file that nobody else writes to.
    let address = unsafe {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let fd = file.as_raw_fd();
        libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_PRIVATE, fd, 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    (path, address as usize)
}

#[test]
fn a_uprobe_on_an_entry_stays_where_a_jump_fits_behind_it() {
    for (name, code) in entries() {
        let (path, address) = mapped("entry", &code);
        // SAFETY: nobody runs it now.
        unsafe { crate::memory::patch(address, &code[..1], &[FILL]) }.unwrap();
        let mut now = code.clone();
        now[0] = FILL;
        let target = Target {
            address,
            code: now,
            replacement: seven as *const () as usize,
            kind: Kind::Entry,
        };
        let result = stage(&[target]).originals.remove(0);
        if code[0] == ENDBR64[0] {
            assert!(result.is_ok(), "{name}");
        } else {
            assert_eq!(result, Err(HookError::Covered), "{name}");
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(
        HookError::Covered.to_string(),
        "a breakpoint of a debugger or a uprobe stands where the jump would"
    );
}

#[test]
fn a_jump_of_somebody_else_is_no_link() {
    // push rbp; jmp to where nothing is; then what our jump would be, as an immediate
    let mut code = vec![0x55, 0xe9, 0, 0, 0, 0x10, 0x48, 0xb8, 0xe9];
    code.extend([0; 7]);
    let ours = [seven as *const () as usize];
    assert_eq!(link(place(&code), &code, &ours), None);
    // mov eax, 0x10e90000; jmp +0: the first 0xe9 is no jump.
    let code = vec![
        0xb8, 0, 0, 0xe9, 0x10, 0xe9, 0, 0, 0, 0x10, 0x90, 0x90, 0x90, 0x90, 0xc3,
    ];
    assert_eq!(link(place(&code), &code, &ours), None);
}

#[test]
fn stubs_push_their_number_and_go_to_what_they_share() {
    // pop rax; ret
    let common = place(&[0x58, 0xc3]);
    let stubs = stubs(5..8, common, common).unwrap();
    assert_eq!(stubs.len(), 3);
    for (stub, number) in stubs.iter().zip(5..) {
        // SAFETY: a stub and the code above give a number and return.
        let stub: extern "C" fn() -> i32 = unsafe { std::mem::transmute(*stub) };
        assert_eq!(stub(), number);
    }
}

// One test, because the replacement finds its original through one static.
#[test]
fn hooked_functions_run_the_replacement_and_the_original_still_works() {
    let shapes: &[(&str, Vec<u8>)] = &[
        ("driver", driver_like(0x10)),
        (
            // endbr64; push rbp; mov rbp,rsp; lea eax,[rdi+rsi]; pop rbp; ret
            "endbr64",
            vec![
                0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x8d, 0x04, 0x37, 0x5d, 0xc3,
            ],
        ),
        (
            // sub rsp,24; mov [rsp+8],edi; lea eax,[rdi+rsi]; add rsp,24; ret
            "sub rsp",
            vec![
                0x48, 0x83, 0xec, 0x18, 0x89, 0x7c, 0x24, 0x08, 0x8d, 0x04, 0x37, 0x48, 0x83, 0xc4,
                0x18, 0xc3,
            ],
        ),
        (
            // push r15; push r14; push rbx; lea eax,[rdi+rsi]; pop rbx; pop r14; pop r15; ret
            "push r15",
            vec![
                0x41, 0x57, 0x41, 0x56, 0x53, 0x8d, 0x04, 0x37, 0x5b, 0x41, 0x5e, 0x41, 0x5f, 0xc3,
            ],
        ),
        (
            // xor eax,eax; lea eax,[rdi+rsi+0]; nop; ret
            "harmless first",
            vec![0x31, 0xc0, 0x8d, 0x84, 0x37, 0, 0, 0, 0, 0x90, 0xc3],
        ),
        (
            // push rbx; test edi,edi; je +2; jmp over nothing: a conditional branch is moved 0:
            // push rbx; 1: test edi,edi; 3: je 9; 5: lea eax,[rdi+rsi]; 8: nop; 9: nop; 10: pop
            // rbx; 11: ret
            "conditional branch",
            vec![
                0x53, 0x85, 0xff, 0x74, 0x04, 0x8d, 0x04, 0x37, 0x90, 0x90, 0x5b, 0xc3,
            ],
        ),
        (
            // push rax; call +2 (to 8); pop rcx; ret; 8: lea eax,[rdi+rsi]; ret
            "call",
            vec![
                0x50, 0xe8, 0x02, 0, 0, 0, 0x59, 0xc3, 0x8d, 0x04, 0x37, 0xc3,
            ],
        ),
        (
            // push rbx; mov eax,[rip+7]; lea eax,[rdi+rsi]; pop rbx; ret: the displaced load reads
            // relative to rip
            "rip-relative under the jump",
            vec![
                0x53, 0x8b, 0x05, 0x05, 0, 0, 0, 0x8d, 0x04, 0x37, 0x5b, 0xc3, 0, 0, 0, 0,
            ],
        ),
        (
            // push rbx; lea eax,[rdi+rsi]; pop rbx; ret: exactly five bytes, the last one leaves
            "ends with the jump",
            vec![0x53, 0x8d, 0x04, 0x37, 0x5b, 0xc3],
        ),
        (
            // push rbx; lea eax,[rdi+rsi]; nop; nop; cmp eax,100; jl to 0 would recurse: `call
            // 0`-like branches to the entry itself are fine. 0: push rbx 1: lea 4: nop 5: nop 6:
            // pop rbx 7: cmp eax,-1 10: je 0 12: ret
            "branch to the entry",
            vec![
                0x53, 0x8d, 0x04, 0x37, 0x90, 0x90, 0x5b, 0x83, 0xf8, 0xff, 0x74, 0xf4, 0xc3,
            ],
        ),
    ];
    for (name, code) in shapes {
        assert_eq!(hook(Kind::Driver, code), Ok((5, 1023)), "{name}");
    }
    for (name, code) in entries() {
        assert_eq!(hook(Kind::Entry, &code), Ok((5, 1023)), "{name}");
    }
}

#[test]
fn a_driver_prologue_leaves_exactly_mov_and_push_under_the_jump() {
    let plan = plan_of(&driver_like(0x100)).unwrap();
    assert_eq!(plan.jump_at, 0x1001);
    assert_eq!(plan.resume, 0x1006);
    assert_eq!(plan.displaced.len(), 3);
    assert_eq!(plan.undo.map(|i| i.code()), Some(Code::Pop_r64));
}

fn refused(code: &[u8]) -> String {
    plan_of(code).unwrap_err().to_string()
}

#[test]
fn what_is_no_jump_of_a_linkage_table_is_refused_with_a_reason() {
    let refused = |code: &[u8]| plan_entry(0x1000, code).unwrap_err().to_string();
    // endbr64; push 7: where the first call of a function goes, with another table
    assert_eq!(
        refused(&[0xf3, 0x0f, 0x1e, 0xfa, 0x68, 7, 0, 0, 0, 0x90]),
        "that is no entry of a procedure linkage table that jumps to a function, but `push 7`; where there is a `.plt.sec`, take the entry there"
    );
    // jmp rax
    assert_eq!(
        refused(&[0xff, 0xe0]),
        "that is no entry of a procedure linkage table that jumps to a function, but `jmp rax`; where there is a `.plt.sec`, take the entry there"
    );
    // jmp +0
    assert_eq!(
        refused(&[0xe9, 0, 0, 0, 0]),
        "it is hooked already by somebody else (`jmp 0000000000001005h`)"
    );
    assert_eq!(
        refused(&[0x06, 0x90]),
        "its code at 0x1000 cannot be decoded"
    );
    assert_eq!(
        refused(&[0xf3, 0x0f, 0x1e, 0xfa]),
        "its code at 0x1004 cannot be decoded"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    assert_eq!(
        refused(&[0xcc, 0x90]),
        "a breakpoint of a debugger or a uprobe is its first instruction, and what it stands on is not known: it is the function's own"
    );
    assert_eq!(
        refused(&[0x06, 0x90]),
        "its code at 0x1000 cannot be decoded"
    );
    // mov rdi,[rdi]
    assert_eq!(
        refused(&[0x48, 0x8b, 0x3f, 0x90]),
        "its first instruction `mov rdi,[rdi]` cannot be undone"
    );
    // mov [rdi],eax: a store cannot be taken back
    assert_eq!(
        refused(&[0x89, 0x07, 0x90]),
        "its first instruction `mov [rdi],eax` cannot be undone"
    );
    // pop rax
    assert_eq!(
        refused(&[0x58, 0x90]),
        "its first instruction `pop rax` cannot be undone"
    );
    // jmp +0
    assert_eq!(
        refused(&[0xe9, 0, 0, 0, 0, 0x90]),
        "it is hooked already by somebody else (`jmp 0000000000001005h`)"
    );
    // push rbp; jmp +0
    assert_eq!(
        refused(&[0x55, 0xe9, 0, 0, 0, 0, 0x90]),
        "it is hooked already by somebody else (`jmp 0000000000001006h`)"
    );
    // jmp [rip+0]
    assert_eq!(
        refused(&[0xff, 0x25, 0, 0, 0, 0]),
        "it is hooked already by somebody else (`jmp qword ptr [1006h]`)"
    );
    // push rbx; pop rbx; ret
    assert_eq!(
        refused(&[0x53, 0x5b, 0xc3]),
        "it ends 2 bytes behind its first instruction, a jump needs 5"
    );
    // push rbx; nop; nop, and no more code
    assert_eq!(
        refused(&[0x53, 0x90, 0x90]),
        "it ends 2 bytes behind its first instruction, a jump needs 5"
    );
    // ret
    assert_eq!(
        refused(&[0xc3, 0x90]),
        "its first instruction `ret` cannot be undone"
    );
    // push rbx; nop ×6; jmp back to the second nop
    assert_eq!(
        refused(&[0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xf9, 0x90]),
        "the branch at 0x1007 leads into its first instructions"
    );
    // push rbx; nop ×5; jrcxz back to the jump itself
    assert_eq!(
        refused(&[0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0xe3, 0xf9, 0x90]),
        "the branch at 0x1006 leads into its first instructions"
    );
}

#[test]
fn one_refusal_does_not_stop_the_others() {
    let good = driver_like(0x10);
    let bad = vec![0xc3, 0x90, 0x90, 0x90, 0x90, 0x90];
    let target = |code: &Vec<u8>| Target {
        address: place(code),
        code: code.clone(),
        replacement: replacement as *const () as usize,
        kind: Kind::Driver,
    };
    let staged = stage(&[target(&bad), target(&good), target(&bad)]);
    let kinds: Vec<bool> = staged.originals.iter().map(Result::is_ok).collect();
    assert_eq!(kinds, [false, true, false]);
    assert!(stage(&[]).originals.is_empty());
    assert_eq!(
        stage(&[target(&bad)]).originals,
        [Err(HookError::First { text: "ret".into() })]
    );
}

#[test]
fn a_function_that_changed_after_planning_is_left_alone() {
    let code = driver_like(0x10);
    let mut seen = code.clone();
    seen[2] = 0x8b; // mov ebp,esp in the other encoding: same length, other bytes
    seen[3] = 0xec;
    let staged = stage(&[Target {
        address: place(&code),
        code: seen,
        replacement: replacement as *const () as usize,
        kind: Kind::Driver,
    }]);
    // SAFETY: nobody is in the function.
    let result = unsafe { staged.commit() }.remove(0);
    assert_eq!(
        result.unwrap_err().to_string(),
        "its code cannot be changed: somebody else changed it in the meantime"
    );
}

#[test]
fn a_call_that_may_throw_is_not_moved() {
    // push rbp; call +0; pop rax; mov eax,7; pop rbp; ret
    let code = vec![0x55, 0xe8, 0, 0, 0, 0, 0x58, 0xb8, 7, 0, 0, 0, 0x5d, 0xc3];
    let target = |kind| Target {
        address: place(&code),
        code: code.clone(),
        replacement: replacement as *const () as usize,
        kind,
    };
    let refused = stage(&[target(Kind::Function)])
        .originals
        .remove(0)
        .unwrap_err();
    let said = refused.to_string();
    assert!(
        said.starts_with("its first instructions hold the call `call ")
            && said.ends_with("would not find its way back"),
        "{said}"
    );
    assert!(stage(&[target(Kind::Driver)]).originals[0].is_ok());
}
