//! Which mutants may go to a GPU: those that the soft GPU finishes without a trap, and in every
//! order of warps with the same result. What it computes and counts is what others must.

use warpbpf_softgpu as soft;

use super::count::{COUNTERS, Counting};
use super::subject::{Argument, Shape};
use crate::probes::Counts;
use warpbpf_conformance::lines::Text;

/// Warp instructions after which a mutant is given up. None of the originals needs a tenth.
const STEPS: u64 = 1 << 20;
/// Orders of warps that are tried beside the usual one.
const ORDERS: [u64; 3] = [1, 2, 3];

/// What a mutant does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The buffers after it, in the order of the arguments.
    pub buffers: Vec<Vec<u8>>,
    /// Its accesses.
    pub accesses: Counts,
    /// Its conditional branches.
    pub branches: Counts,
}

/// Why a mutant is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// The soft GPU cannot read it.
    Unreadable,
    /// It does what it must not.
    Trap,
    /// It takes too long.
    Steps,
    /// Its result depends on the order of warps.
    Order,
    /// The driver refuses it.
    Refused,
    /// The GPU's result depends on what was in shared memory before, or on the moment.
    Undefined,
}

impl Dropped {
    /// For the table.
    pub fn word(self) -> &'static str {
        match self {
            Dropped::Unreadable => "not read by the soft GPU",
            Dropped::Trap => "trap",
            Dropped::Steps => "too many steps",
            Dropped::Order => "depends on the order of warps",
            Dropped::Refused => "refused by the driver",
            Dropped::Undefined => "gives one thing and another on the GPU",
        }
    }
}

/// Runs a mutant. `written` is its text as it will be used, `text` the same in lines.
///
/// # Errors
/// Why it is not used, and what was said.
pub fn judge(
    text: &Text,
    written: &str,
    kernel: &str,
    shape: &Shape,
) -> Result<Judged, (Dropped, String)> {
    let (buffers, _) = run(written, kernel, shape, None, false)?;
    for order in ORDERS {
        let (again, _) = run(written, kernel, shape, Some(order), false)?;
        if again != buffers {
            return Err((Dropped::Order, format!("order {order}")));
        }
    }
    let counting = Counting::of(text);
    let (same, counters) = run(&counting.text, kernel, shape, None, true)
        .map_err(|(why, said)| (why, format!("counting: {said}\n{}", counting.text)))?;
    if same != buffers {
        return Err((
            Dropped::Order,
            "it computes something else where it counts".into(),
        ));
    }
    let (accesses, branches) = counting.read(&counters);
    Ok(Judged {
        buffers,
        accesses,
        branches,
    })
}

type Ran = (Vec<Vec<u8>>, Vec<u8>);

fn run(
    text: &str,
    kernel: &str,
    shape: &Shape,
    seed: Option<u64>,
    counting: bool,
) -> Result<Ran, (Dropped, String)> {
    let unreadable = |said: String| (Dropped::Unreadable, said);
    let gpu = soft::Gpu::new(soft::Config {
        sms: 2,
        threads: 1,
        seed,
        memory: 1 << 24,
        step_limit: Some(STEPS),
        ..soft::Config::default()
    });
    let module = gpu.load(text).map_err(|e| unreadable(e.to_string()))?;
    let found = module.kernel(kernel);
    let found = found.ok_or_else(|| unreadable(format!("it has no kernel `{kernel}`")))?;
    let mut params = vec![0; found.param_bytes()];
    let mut buffers: Vec<(u64, usize)> = Vec::new();
    for (argument, param) in shape.arguments.iter().zip(found.params()) {
        let value = match argument {
            Argument::Buffer(bytes) => {
                let address = gpu.alloc(bytes.len() as u64);
                let address = address.ok_or_else(|| unreadable("no memory".into()))?;
                gpu.write(address, bytes)
                    .map_err(|e| unreadable(e.to_string()))?;
                buffers.push((address, bytes.len()));
                address
            }
            Argument::Number(number) => *number,
        };
        let bytes = value.to_le_bytes();
        let size = param.size.min(bytes.len());
        params[param.offset..param.offset + size].copy_from_slice(&bytes[..size]);
    }
    let launch = soft::Launch {
        kernel: &found,
        grid: shape.grid,
        block: shape.block,
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params: &params,
        grid_id: 1,
        stdout: None,
    };
    match gpu.launch(launch) {
        Ok(soft::Outcome::Done { .. }) => {}
        Ok(soft::Outcome::Trapped(trap)) => return Err((Dropped::Trap, trap.to_string())),
        Err(error @ soft::LaunchError::StepLimit { .. }) => {
            return Err((Dropped::Steps, error.to_string()));
        }
        Err(error) => return Err(unreadable(error.to_string())),
    }
    let read = |(address, bytes): (u64, usize)| {
        let mut into = vec![0; bytes];
        gpu.read(address, &mut into)
            .map_err(|e| unreadable(e.to_string()))?;
        Ok(into)
    };
    let counters = match module.global(COUNTERS).filter(|_| counting) {
        Some((address, _)) => read((address, Counting::bytes()))?,
        None => Vec::new(),
    };
    let buffers = buffers
        .into_iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    Ok((buffers, counters))
}
