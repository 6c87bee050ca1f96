//! Bounds of the numbers that an agent tells, which readers of reports add up and multiply: what is
//! beyond them was counted by nobody, and is taken for the bound.

use warpbpf_wire::{ContextInfo, Counts, Device, Kernel, KernelCount, ToTool};

/// Launches, bytes, microseconds: a sum of thousands of them fits into 64 bits.
const MANY: u64 = 1 << 48;
/// Registers, multiprocessors, blocks, numbers of versions, bytes of a thread or a block.
const FEW: u32 = 1 << 24;

/// Contexts, and multiprocessors of each: CPU numbers of all contexts are 32 bits.
const CONTEXTS: u32 = (1 << 16) - 1;
const PROCESSORS: u32 = 1 << 15;

/// Brings all numbers of a message into their bounds.
pub(crate) fn clamp(message: &mut ToTool) {
    match message {
        ToTool::Hello(hello) => hello.device.iter_mut().for_each(device),
        ToTool::Ready(ready) => context(&mut ready.context),
        ToTool::Context(info) => context(info),
        ToTool::Maps(maps) => maps.device_bytes = maps.device_bytes.min(MANY),
        ToTool::Kernel(of) => kernel(of),
        ToTool::Counts(of) => counts(of),
        ToTool::Changed(changed) => changed.generation = changed.generation.min(MANY),
        // Without numbers, or with such as only name something.
        ToTool::Refused { .. }
        | ToTool::Launches
        | ToTool::Attached
        | ToTool::Failed
        | ToTool::Sites(_)
        | ToTool::Note { .. }
        | ToTool::Operations(_)
        | ToTool::Ranges(_)
        | ToTool::Stacks(_)
        | ToTool::Snapshotted { .. }
        | ToTool::MapOps { .. }
        | ToTool::Leaving { .. }
        | ToTool::Bye { .. } => {}
    }
}

fn most(all: &mut [&mut u64]) {
    for number in all {
        **number = (**number).min(MANY);
    }
}

fn few(all: &mut [&mut u32]) {
    for number in all {
        **number = (**number).min(FEW);
    }
}

fn device(device: &mut Device) {
    let (major, minor) = &mut device.capability;
    few(&mut [major, minor, &mut device.sms, &mut device.cpus]);
    device.driver_version = device.driver_version.clamp(0, FEW.cast_signed());
}

fn context(info: &mut ContextInfo) {
    for number in [&mut info.number, &mut info.device] {
        *number = (*number).min(CONTEXTS);
    }
    for number in [&mut info.sms, &mut info.cpus] {
        *number = (*number).min(PROCESSORS);
    }
    most(&mut [&mut info.device_bytes]);
}

fn kernel(kernel: &mut Kernel) {
    let registers = [&mut kernel.registers_before, &mut kernel.registers_after];
    few(&mut registers.into_iter().flatten().collect::<Vec<_>>());
    let pairs = [&mut kernel.local_bytes, &mut kernel.shared_bytes];
    for (before, after) in pairs.into_iter().flatten() {
        few(&mut [before, after]);
    }
    if let Some(occupancy) = &mut kernel.occupancy {
        few(&mut [
            &mut occupancy.block_threads,
            &mut occupancy.before,
            &mut occupancy.after,
        ]);
    }
    few(&mut [&mut kernel.sites]);
    kernel.left_out.iter_mut().for_each(|(_, n)| few(&mut [n]));
    kernel.placed.iter_mut().for_each(|(_, n)| few(&mut [n]));
    most(&mut [&mut kernel.generation]);
    kernel.loaded_us.iter_mut().for_each(|n| most(&mut [n]));
}

fn counts(counts: &mut Counts) {
    counts.kernels.iter_mut().for_each(count);
    for one in &mut counts.clients {
        one.kernels.iter_mut().for_each(count);
    }
}

fn count(count: &mut KernelCount) {
    most(&mut [
        &mut count.launches,
        &mut count.uninstrumented,
        &mut count.skipped,
        &mut count.unwanted,
    ]);
    count.contexts.iter_mut().for_each(|(_, n)| most(&mut [n]));
    count
        .generations
        .iter_mut()
        .for_each(|(of, n)| most(&mut [of, n]));
    let named = |programs: &mut Vec<(String, u64)>| {
        programs.iter_mut().for_each(|(_, n)| most(&mut [n]));
    };
    named(&mut count.programs);
    count
        .context_programs
        .iter_mut()
        .for_each(|(_, programs)| named(programs));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_all_are_the_bound_and_others_stay() {
        let count = |n| KernelCount {
            mangled: "k".into(),
            launches: n,
            uninstrumented: n,
            skipped: n,
            contexts: vec![(1, n)],
            unwanted: n,
            generations: vec![(n, n)],
            programs: vec![("p".into(), n)],
            context_programs: vec![(1, vec![("p".into(), n)])],
        };
        let counts = |n| {
            ToTool::Counts(Counts {
                kernels: vec![count(n)],
                ..Counts::default()
            })
        };
        let kernel = |n, few| {
            ToTool::Kernel(Kernel {
                registers_before: Some(few),
                local_bytes: Some((few, 7)),
                left_out: vec![("why".into(), few)],
                loaded_us: Some(n),
                generation: n,
                ..Kernel::default()
            })
        };
        for (mut told, expected) in [
            (counts(u64::MAX), counts(MANY)),
            (counts(7), counts(7)),
            (kernel(u64::MAX, u32::MAX), kernel(MANY, FEW)),
            (kernel(9, 9), kernel(9, 9)),
        ] {
            clamp(&mut told);
            assert_eq!(told, expected);
        }
    }
}
