//! Updates and lookups of hashes that have a value per multiprocessor, of which a kernel would see one.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::BPF_EXIST;
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::{AccessError, MapPlan};

use super::{Action, Answer, At, EIO, HostOp, fail_all, looked_up};

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
    /// What the kernel does, and what is left to do. Values of a wrong length stay as they are: the kernel's record refuses
    /// them before a key is made.
    pub(super) fn split(at: &At<'_>, mut ops: Vec<HostOp>) -> (Vec<HostOp>, Option<Copies>) {
        let plan = at.plan();
        let size = plan.value_size as usize;
        let copies = match plan.layout {
            MapLayout::Hash(layout) => layout.copies as usize,
            MapLayout::Lru(layout) => layout.copies as usize,
            // Others have no such values.
            _ => 0,
        };
        let all = size.next_multiple_of(8) * copies;
        let mut values = Vec::with_capacity(ops.len());
        for op in &mut ops {
            let fits = op.value.len() == size || op.value.len() == all;
            values.push(if op.action == Action::Update && fits {
                let first = op.value[..size].to_vec();
                std::mem::replace(&mut op.value, first)
            } else {
                Vec::new()
            });
        }
        let copies = Copies {
            plan: plan.clone(),
            base: at.base,
            values,
        };
        (ops, Some(copies))
    }

    /// Lookups of all values.
    pub(super) fn look_up(&self, driver: &Driver, stream: Stream, ops: &[HostOp]) -> Vec<Answer> {
        match self.read(driver, stream) {
            Ok(bytes) => looked_up(&self.plan, &bytes, ops),
            Err(_) => fail_all(ops, EIO),
        }
    }

    fn read(&self, driver: &Driver, stream: Stream) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0; self.plan.bytes() as usize];
        driver.read(self.base, &mut bytes, stream)?;
        Ok(bytes)
    }

    /// Writes all values of the updates among `done`, indices of operations that a launch has just done: a later one may
    /// remove the key, or fail.
    pub(super) fn fill(
        &self,
        driver: &Driver,
        stream: Stream,
        ops: &[HostOp],
        done: &[usize],
        answers: &mut [Answer],
    ) {
        let updates = done
            .iter()
            .copied()
            .filter(|index| ops[*index].action == Action::Update && answers[*index].is_ok())
            .collect::<Vec<usize>>();
        if updates.is_empty() {
            return;
        }
        let Ok(bytes) = self.read(driver, stream) else {
            for index in updates {
                answers[index] = Err(EIO);
            }
            return;
        };
        for index in updates {
            let (key, values) = (&ops[index].key, &self.values[index]);
            let filled = match warpbpf_maps::update(&self.plan, &bytes, key, values, BPF_EXIST) {
                Ok(writes) => writes.into_iter().try_for_each(|write| {
                    let to = self.base + write.offset;
                    driver.write(to, &write.bytes, stream).map_err(|_| EIO)
                }),
                // A program has removed it since, which it may do after any update.
                Err(AccessError::Missing { .. }) => Ok(()),
                Err(error) => Err(error.errno()),
            };
            if let Err(errno) = filled {
                answers[index] = Err(errno);
            }
        }
    }
}
