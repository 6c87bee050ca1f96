//! Updates of hashes that have a value per multiprocessor.

use warpbpf_abi::maps::BPF_EXIST;
use warpbpf_driver::{Driver, Stream};
use warpbpf_maps::MapPlan;

use super::{Action, Answer, At, EIO, HostOp};

/// Updates of a map with a value per multiprocessor: the kernel makes the key, with the value of the one that it runs on;
/// then all values are written as those of an array are.
#[derive(Debug)]
pub(super) struct Copies {
    plan: MapPlan,
    base: u64,
    /// By operation: all values.
    values: Vec<Vec<u8>>,
}

impl Copies {
    /// What the kernel does, and what is left to do.
    pub(super) fn split(at: &At<'_>, mut ops: Vec<HostOp>) -> (Vec<HostOp>, Option<Copies>) {
        let size = at.plan().value_size as usize;
        let mut values = Vec::with_capacity(ops.len());
        for op in &mut ops {
            let first = op.value.len().min(size);
            values.push(std::mem::take(&mut op.value));
            op.value = values.last().map_or(&[][..], |all| &all[..first]).to_vec();
        }
        let copies = Copies {
            plan: at.plan().clone(),
            base: at.base,
            values,
        };
        (ops, Some(copies))
    }

    pub(super) fn fill(
        self,
        driver: &Driver,
        stream: Stream,
        ops: &[HostOp],
        answers: &mut [Answer],
    ) {
        let wanted =
            |(op, answer): (&HostOp, &Answer)| op.action == Action::Update && answer.is_ok();
        if !ops.iter().zip(&*answers).any(wanted) {
            return;
        }
        let mut bytes = vec![0; self.plan.bytes() as usize];
        let read = driver.read(self.base, &mut bytes, stream);
        for ((op, answer), values) in ops.iter().zip(answers).zip(&self.values) {
            if op.action != Action::Update || answer.is_err() {
                continue;
            }
            let writes = warpbpf_maps::update(&self.plan, &bytes, &op.key, values, BPF_EXIST);
            let done = match (&read, writes) {
                (Ok(()), Ok(writes)) => writes.into_iter().try_for_each(|write| {
                    let to = self.base + write.offset;
                    driver.write(to, &write.bytes, stream).map_err(|_| EIO)
                }),
                (Err(_), _) => Err(EIO),
                // It was removed again meanwhile, or the values are too few.
                (Ok(()), Err(error)) => Err(error.errno()),
            };
            if let Err(errno) = done {
                *answer = Err(errno);
            }
        }
    }
}
