//! What these tests share: the driver of this process, which some must have for themselves.

use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use warpbpf_softcuda::Handle;
use warpbpf_softcuda::driver::table::*;

/// How many of [`Sharing`] there are.
static SHARING: Mutex<u32> = Mutex::new(0);
static NOBODY_SHARES: Condvar = Condvar::new();

fn sharing() -> MutexGuard<'static, u32> {
    SHARING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No test captures meanwhile. A thread may have several; one that is forgotten keeps those that
/// capture waiting for ever.
pub struct Sharing(());

impl Sharing {
    pub fn new() -> Sharing {
        *sharing() += 1;
        Sharing(())
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        *sharing() -= 1;
        NOBODY_SHARES.notify_all();
    }
}

/// For a test that captures, which restricts other threads: no test that captures or shares runs
/// meanwhile.
pub struct Alone {
    _nobody: MutexGuard<'static, u32>,
}

impl Alone {
    pub fn new() -> Alone {
        let nobody = NOBODY_SHARES.wait_while(sharing(), |sharing| *sharing != 0);
        Alone {
            _nobody: nobody.unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// A context, current on this thread until the end of the test.
pub struct Context {
    pub handle: Handle,
    _sharing: Sharing,
}

impl Context {
    pub fn new() -> Context {
        let sharing = Sharing::new();
        let mut handle = 0;
        // SAFETY: a valid pointer.
        unsafe {
            assert_eq!(cuInit(0), 0);
            assert_eq!(cuCtxCreate_v2(&raw mut handle, 0, 0), 0);
        }
        Context {
            handle,
            _sharing: sharing,
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { cuCtxDestroy_v2(self.handle) };
    }
}

/// Runs `test`, the body of the test `name`, in a process of its own: this binary again, with this
/// one test.
pub fn in_a_process(name: &str, test: impl FnOnce()) {
    const CHILD: &str = "WARPBPF_TEST_IN_A_PROCESS";
    if std::env::var_os(CHILD).is_some_and(|child| child == name) {
        return test();
    }
    let ran = Command::new(std::env::current_exe().expect("path of the test"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&ran.stdout), text(&ran.stderr));
    // A name that is none of a test would run nothing, and pass.
    assert!(
        ran.status.success() && out.contains("test result: ok. 1 passed"),
        "{}\n{out}\n{error}",
        ran.status
    );
}
