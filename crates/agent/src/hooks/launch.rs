//! One launch: the variant if it can run here and now, else the original, and each is counted.
//!
//! Nothing is loaded, compiled or waited for here, but at the first launch in a context where the
//! driver itself loads the kernel only then (`modules::place_at_launch`).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use warpbpf_driver::sys::{self, CUfunction, CUlaunchConfig, CUresult, CUstream};
use warpbpf_session::{LoadedVariant, Room};

use crate::contexts::sanitizer;
use crate::device::graphs::state::Captured;
use crate::device::watchdog::Sample;
use crate::hooks::choice::Candidate;
use crate::hooks::launch_notes::{tell, tell_of_alone};
use crate::instrument::modules::pending::place_at_launch;
use crate::instrument::preloaded;
use crate::instrument::watch::look_for_life;
use crate::kernels::entry::{Chosen, Entry, Place, Runs};
use crate::kernels::fallback::{FallbackReason, Residency};
use crate::kernels::generation::Generation;
use crate::kernels::shape::{Shape, count};
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;
use crate::sys::params::with_hidden;
use crate::sys::stack::large;
use crate::uprobe::api::numbered;

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const ATTRIBUTE_COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
const ATTRIBUTE_OVERLAP: u32 = 6;
/// `sizeof(CUlaunchAttribute)`
const ATTRIBUTE_BYTES: usize = 72;

impl FallbackReason {
    /// What runs of a kernel then, by the programs of a generation, in launches like this one for
    /// the current context.
    pub(crate) fn runs(
        &self,
        agent: &Agent,
        entry: &Entry,
        generation: &'static Generation,
        candidate: Candidate,
    ) -> Runs {
        let tally = entry.tally(generation);
        match self {
            FallbackReason::Skipped => Runs::Skipped(tally),
            FallbackReason::Unwanted => Runs::Unwanted(tally),
            _ => Runs::Original(tally, agent.not_for(tally, generation, candidate)),
        }
    }
}

/// Launches `function`'s variant or `function`. `run` calls the driver's function by which the
/// launch came.
///
/// # Safety
/// `params` and `extra` are what CUDA asks for, for this function.
unsafe fn dispatch(
    agent: &'static Agent,
    outcome: &Outcome,
    function: CUfunction,
    (shape, stream): (Shape, StreamName),
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> CUresult {
    let plain = || outcome.keep(run(function, params, extra));
    // All that this launch runs is of the programs that are in force now.
    let flight = agent.begin_launch(stream);
    let known = agent.table.get(function as usize);
    let Some(entry) = known.or_else(|| large(|| preloaded::ask(agent, function))) else {
        large(|| look_for_life(agent));
        agent.graphs.look_for_capture(&agent.driver, stream);
        return plain();
    };
    warpbpf_faults::bug("agent/launch-panics");
    // A program at the call may have been told it already.
    let number = numbered(function as usize).unwrap_or_else(|| entry.next_launch());
    // Who detaches waits for those that are under way, and sees this one, or this one sees it.
    if !agent.is_on() {
        drop(flight);
        return agent.count_late(entry, plain());
    }
    agent.launch_happened();
    let captured = agent.graphs.captured(&agent.driver, stream);
    let shape = match captured {
        None => shape,
        Some(_) => Shape {
            overlaps: false,
            in_graph: true,
            ..shape
        },
    };
    let record = |place: &Place| {
        let variant = place.variant.as_deref()?;
        match captured {
            None => variant.launch_record(stream.key(), shape.grid, shape.block),
            // The executable graph gives each node a record of its own.
            Some(_) => variant.record_to_replace(shape.grid, shape.block),
        }
    };
    let candidate = Candidate {
        number: captured.is_none().then_some(number),
        blocks: count(shape.grid),
        stream: captured.is_none().then_some(stream),
        now: true,
    };
    let attempt = |chosen| {
        let context = agent.driver.current().map(|c| c.0 as usize);
        // SAFETY: the caller's promise.
        unsafe {
            try_variant(
                agent,
                entry,
                context,
                (flight.generation, number, 0),
                (candidate, chosen),
                &shape,
                &record,
                params,
                extra,
                run,
            )
        }
    };
    let mut measured = None;
    let tried = match captured {
        Some(Captured::Unknown(code)) => Err(FallbackReason::Captured(code)),
        Some(Captured::Graph | Captured::Body) if agent.graphs.is_blind() => {
            Err(FallbackReason::None)
        }
        _ if entry.is_too_dear(flight.generation.number) => Err(FallbackReason::Skipped),
        _ => match agent.chosen(flight.generation, entry, candidate) {
            Some(0) => Err(FallbackReason::Skipped),
            chosen if captured.is_some() => attempt(chosen),
            _ if warpbpf_faults::strikes("agent/gate") => Err(FallbackReason::Compaction),
            chosen => match agent.quiet.enter(stream.key()) {
                Some(_pass) => {
                    let of = (flight.generation.number, chosen);
                    measured =
                        agent
                            .watchdog
                            .measure(&agent.driver, entry, stream.handle(), &shape, of);
                    match &measured {
                        Some(measured) if measured.is_of_original() => Err(FallbackReason::Skipped),
                        _ => attempt(chosen),
                    }
                }
                None => Err(FallbackReason::Compaction),
            },
        },
    };
    let reason = match tried {
        Ok((place, chosen)) => {
            // At once: whatever goes wrong from here on, it is not launched again.
            let code = outcome.keep(sys::SUCCESS);
            agent
                .watchdog
                .was_measured(&agent.driver, measured, Some(Sample::Variant));
            if captured.is_some() {
                agent.graphs.hold(place);
            } else {
                Runs::Variant(place, chosen).count();
                agent.launch_happened();
            }
            warpbpf_faults::bug("agent/launched-panics");
            return code;
        }
        Err(reason) => reason,
    };
    let code = plain();
    agent.watchdog.was_measured(
        &agent.driver,
        measured,
        (code == sys::SUCCESS).then_some(Sample::Original),
    );
    if code == sys::SUCCESS {
        // What is captured runs, and is counted, when its graph is launched. Not so in a body.
        let unknown = matches!(captured, Some(Captured::Unknown(_)));
        if captured != Some(Captured::Graph) && !unknown {
            let runs = reason.runs(agent, entry, flight.generation, candidate);
            runs.count();
        }
        if captured.is_some() && matches!(reason, FallbackReason::Skipped) {
            agent.tell_of_choice_in_graph(entry);
        }
        large(|| tell(agent, entry, reason));
    }
    code
}

/// Has `run` use the variant, in the context that the launch is for. `node` is what programs are
/// told of the graph's node; 0 where that is not known yet. `chosen` is what [`Agent::chosen`]
/// said. Gives the choices that take the launch.
///
/// # Safety
/// `params` and `extra` are what CUDA asks for, for the kernel of this entry.
#[expect(clippy::too_many_arguments, reason = "a launch is many things")]
pub(crate) unsafe fn try_variant(
    agent: &'static Agent,
    entry: &Entry,
    launched_in: Option<usize>,
    (generation, number, node): (&'static Generation, u64, u64),
    (candidate, chosen): (Candidate, Option<u64>),
    shape: &Shape,
    record: &dyn Fn(&Place) -> Option<u64>,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> Result<(&'static Place, Chosen), FallbackReason> {
    let place = launched_in.and_then(|context| {
        let known = entry.place(context, generation.number);
        known.or_else(|| large(|| place_at_launch(agent, entry, (context, generation.number))))
    });
    let place = place.ok_or_else(|| {
        // Its programs are just being replaced.
        let known = launched_in.and_then(|context| entry.places_in(context).next());
        known.map_or(FallbackReason::Context(launched_in), |_| {
            FallbackReason::None
        })
    })?;
    if !place.is_wanted() {
        return Err(FallbackReason::Unwanted);
    }
    // Where it was not known, the place has just been made.
    let chosen = chosen.unwrap_or_else(|| agent.chosen_of(&place.choices, candidate));
    if chosen == 0 {
        return Err(FallbackReason::Skipped);
    }
    let attempt = |place: &'static Place| match place.of_variant(chosen) {
        // It was chosen for programs that have no place in it.
        0 => Err(FallbackReason::None),
        own => {
            if place.has_clients() {
                agent.drain.note();
            }
            // SAFETY: the caller's promise.
            unsafe {
                try_place(
                    agent,
                    entry,
                    place,
                    (number, node, candidate.stream),
                    own,
                    shape,
                    record,
                    params,
                    extra,
                    run,
                )?;
            }
            Ok((place, Chosen { own, all: chosen }))
        }
    };
    match (attempt(place), place.alone) {
        (Err(reason), Some(alone)) => match attempt(alone) {
            Ok(done) => {
                // Who came later is not to take from others what they would have alone.
                tell_of_alone(agent, entry, (place, alone), &reason);
                Ok(done)
            }
            Err(FallbackReason::None) => Err(reason),
            other => other,
        },
        (tried, _) => tried,
    }
}

/// The same with the variant of a place, of whose choices `chosen` are those that take the launch.
///
/// # Safety
/// As [`try_variant`].
#[expect(clippy::too_many_arguments, reason = "a launch is many things")]
unsafe fn try_place(
    agent: &'static Agent,
    entry: &Entry,
    place: &'static Place,
    (number, node, stream): (u64, u64, Option<StreamName>),
    chosen: u64,
    shape: &Shape,
    record: &dyn Fn(&Place) -> Option<u64>,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    run: &dyn Fn(CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult,
) -> Result<(), FallbackReason> {
    let variant = place.variant.as_deref().ok_or(FallbackReason::None)?;
    if shape.in_graph && variant.args_at_launch {
        return Err(FallbackReason::Graph);
    }
    let change = &variant.resources;
    if count(shape.block) > u64::from(change.after.max_threads) {
        return Err(FallbackReason::Threads(change.after.max_threads));
    }
    if (shape.cooperative || change.needs_more())
        && let Some(short) = residency_lost(agent, place.sms, variant, shape)
    {
        return Err(FallbackReason::Residency(short, variant));
    }
    // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    warpbpf_faults::check("agent/variant-refused", || FallbackReason::Refused(701))?;
    let code = match (variant.hidden, &variant.tables) {
        (None, Some(tables)) => {
            let words = [
                record(place).ok_or(FallbackReason::Record)?,
                number,
                node,
                chosen,
            ];
            let run = || run(variant.function.0, params, extra);
            sanitizer::with_table(agent, tables, (stream, shape), words, &run)?
        }
        (None, None) => run(variant.function.0, params, extra),
        (Some(hidden), _) if shape.overlaps && hidden.counts() => {
            return Err(FallbackReason::Overlap);
        }
        (Some(hidden), _) => {
            warpbpf_faults::check("agent/launch-record", || FallbackReason::Record)?;
            let record = record(place).ok_or(FallbackReason::Record)?;
            let given = variant.params.len();
            let hidden_values = [record, number, node, chosen];
            let call = |params, extra| run(variant.function.0, params, extra);
            // SAFETY: the caller's promise.
            unsafe { with_hidden(given, &hidden, hidden_values, params, extra, &call) }
                .ok_or(FallbackReason::Params)?
        }
    };
    if code == sys::SUCCESS {
        if shape.in_graph {
            agent.tell_of_programs_in_graph(entry, &variant.choices, chosen);
        }
        Ok(())
    } else {
        Err(FallbackReason::Refused(code))
    }
}

/// The residency that this launch would lose; `None` if it loses none.
fn residency_lost(
    agent: &'static Agent,
    sms: u32,
    variant: &LoadedVariant,
    shape: &Shape,
) -> Option<Residency> {
    let (blocks, threads) = (count(shape.grid), count(shape.block));
    // No block has so many threads: the driver's refusal is the application's affair.
    let threads = u32::try_from(threads).ok()?;
    // Where the driver cannot say, the original is what is known to work.
    let room = variant.room(&agent.driver, threads, shape.shared);
    let room = room.unwrap_or(Room {
        before: u32::MAX,
        after: 0,
    });
    let all = |per_sm: u32| u64::from(per_sm) * u64::from(sms);
    (blocks <= all(room.before) && blocks > all(room.after)).then_some(Residency {
        blocks,
        threads,
        sms,
        room,
    })
}

macro_rules! launches {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint,
            bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: false, overlaps: false, in_graph: false };
            let stream_name = StreamName { stream, null_is_per_thread: $per_thread };
            // SAFETY: the application's own arguments, with another function of the same
            // parameters.
            let run = |f, params, extra| unsafe { original::$original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra) };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, (shape, stream_name), params, extra, &run) }
        }
    )* };
}

macro_rules! launches_ex {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, config: *const CUlaunchConfig, function: CUfunction,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> CUresult {
            // SAFETY: the application's own arguments, with another function of the same
            // parameters.
            let run = |f, params, extra| unsafe { original::$original(config, f, params, extra) };
            // SAFETY: null or a configuration.
            let Some(given) = (unsafe { config.as_ref() }) else {
                return outcome.keep(run(function, params, extra));
            };
            let shape = Shape {
                grid: [given.grid_dim_x, given.grid_dim_y, given.grid_dim_z],
                block: [given.block_dim_x, given.block_dim_y, given.block_dim_z],
                shared: given.shared_mem_bytes,
                // SAFETY: a configuration has as many attributes as it says.
                cooperative: unsafe { has_attribute(given, ATTRIBUTE_COOPERATIVE) },
                // SAFETY: as above.
                overlaps: unsafe { has_attribute(given, ATTRIBUTE_OVERLAP) },
                in_graph: false,
            };
            let stream_name = StreamName { stream: given.stream, null_is_per_thread: $per_thread };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, (shape, stream_name), params, extra, &run) }
        }
    )* };
}

macro_rules! launches_cooperative {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint,
            bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void,
        ) -> CUresult {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: true, overlaps: false, in_graph: false };
            let stream_name = StreamName { stream, null_is_per_thread: $per_thread };
            // SAFETY: the application's own arguments, with another function of the same
            // parameters.
            let run = |f, params, _extra: *mut *mut c_void| unsafe { original::$original(f, gx, gy, gz, bx, by, bz, shared, stream, params) };
            // SAFETY: as above.
            unsafe { dispatch(agent, outcome, function, (shape, stream_name), params, ptr::null_mut(), &run) }
        }
    )* };
}

launches! {
    kernel = launch_kernel, false;
    kernel_ptsz = launch_kernel_ptsz, true;
}
launches_ex! {
    kernel_ex = launch_kernel_ex, false;
    kernel_ex_ptsz = launch_kernel_ex_ptsz, true;
}
launches_cooperative! {
    cooperative = launch_cooperative, false;
    cooperative_ptsz = launch_cooperative_ptsz, true;
}

/// The configuration sets the attribute `id`, whose value begins with an int, to something other
/// than 0.
///
/// # Safety
/// `config.attrs` points to `config.num_attrs` attributes.
unsafe fn has_attribute(config: &CUlaunchConfig, id: u32) -> bool {
    if config.attrs.is_null() {
        return false;
    }
    (0..config.num_attrs as usize).any(|i| {
        // SAFETY: the caller's promise: an attribute is a u32 id, padding to 8, and a union of 64
        // bytes.
        unsafe {
            let attribute = config.attrs.cast::<u8>().add(i * ATTRIBUTE_BYTES);
            attribute.cast::<u32>().read_unaligned() == id
                && attribute.add(8).cast::<c_int>().read_unaligned() != 0
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_a_configuration_are_found() {
        let mut attributes = [0u8; ATTRIBUTE_BYTES * 2];
        let mut config = CUlaunchConfig {
            grid_dim_x: 1,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: 1,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: ptr::null_mut(),
            attrs: attributes.as_mut_ptr().cast(),
            num_attrs: 2,
        };
        // SAFETY: two attributes.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        attributes[ATTRIBUTE_BYTES] = 2;
        // SAFETY: as above.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        attributes[ATTRIBUTE_BYTES + 8] = 1;
        config.attrs = attributes.as_mut_ptr().cast();
        // SAFETY: as above.
        assert!(unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
        // SAFETY: as above.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_OVERLAP) });
        config.attrs = ptr::null_mut();
        // SAFETY: no attributes are read.
        assert!(!unsafe { has_attribute(&config, ATTRIBUTE_COOPERATIVE) });
    }
}
