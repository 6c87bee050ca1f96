//! A slice of the fuzzer for every build: other programs with each `PROPTEST_RNG_SEED`, the same
//! ones with the same.

use std::time::Duration;

use proptest::prelude::*;
use warpbpf_conformance::device::SoftDevice;
use warpbpf_conformance::fuzz::{Plan, fuzz};

proptest! {
    #![proptest_config(ProptestConfig { cases: if crate::is_deep() { 100 } else { 25 }, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// The fuzzer makes its own failures smaller, so proptest only brings seeds.
    #[test]
    fn engines_agree(seed in any::<u64>(), stressed in any::<bool>()) {
        let plan = Plan {
            seed,
            first: 0,
            count: 40,
            time: Duration::MAX,
            batch: 1,
            objects: Vec::new(),
        };
        let failures = std::sync::Mutex::new(Vec::new());
        let summary = fuzz(
            &plan,
            1,
            |_| Ok(SoftDevice::new(stressed.then_some(seed))),
            |text| failures.lock().expect("nobody panics").push(text.to_owned()),
        );
        let summary = summary.expect("the soft GPU runs");
        let failures = failures.into_inner().expect("nobody panics");
        prop_assert_eq!(summary.disagreements, 0, "{}", failures.join("\n"));
        prop_assert_eq!(summary.generated, 40);
        // A generator whose programs are refused tests nothing.
        prop_assert!(summary.verified >= 20, "{:?}", summary.refused);
    }
}
