//! The suite on the engines that every machine has.

use std::path::Path;

use warpbpf_conformance::build::Way;
use warpbpf_conformance::device::{Bench, SoftDevice};
use warpbpf_conformance::refused::REFUSED;
use warpbpf_conformance::suite::{CASES, interpreter, on_device, read, table};

#[test]
fn every_case_on_interpreter_and_soft_gpu() {
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites");
    let mut cases = read(&suites.join("bpf_conformance")).expect("it is in the repository");
    assert_eq!(cases.len(), CASES);
    cases.extend(read(&suites.join("found")).expect("it is in the repository"));
    let columns = [
        interpreter(&cases),
        on_device(
            &cases,
            &mut Bench::new(SoftDevice::new(None)),
            Way::Compiled,
        )
        .expect("the soft GPU runs"),
        // The same with warps that split anywhere.
        on_device(
            &cases,
            &mut Bench::new(SoftDevice::new(Some(7))),
            Way::Compiled,
        )
        .expect("the soft GPU runs"),
        on_device(
            &cases,
            &mut Bench::new(SoftDevice::new(None)),
            Way::Interpreted,
        )
        .expect("the soft GPU runs"),
        on_device(
            &cases,
            &mut Bench::new(SoftDevice::new(Some(7))),
            Way::Interpreted,
        )
        .expect("the soft GPU runs"),
    ];
    let passed: Vec<usize> = columns.iter().map(|column| column.passed()).collect();
    let compiled = cases.len() - REFUSED.len();
    let expected = [cases.len(), compiled, compiled, compiled, compiled];
    assert_eq!(passed, expected, "{}", table(&cases, &columns));
    assert!(columns.iter().all(|column| column.failed() == 0));
}
