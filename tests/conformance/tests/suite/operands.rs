//! The soft GPU runs what `ptx::eval` says, through its own decoder and scheduler.

use warpbpf_conformance::device::SoftDevice;
use warpbpf_conformance::operands::run;

#[test]
fn the_soft_gpu_runs_what_eval_says() {
    let report = run(&mut SoftDevice::new(None), 1, 128).unwrap_or_else(|error| panic!("{error}"));
    let table = report.table();
    assert_eq!(report.failed(), 0, "{table}");
    // One line, the sum: no operation differs from `eval` in a single bit, approximations included.
    assert_eq!(table.lines().count(), 1, "{table}");
}
