//! The hooks by which captures begin and end, and graphs go.

use std::ffi::c_int;

use warpbpf_driver::sys::{self, CUgraph, CUgraphNode, CUresult, CUstream};
use warpbpf_wire::NoteLevel;

use crate::device::graphs::captures::{self, is_capturing};
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;

macro_rules! captures {
    ($($begin_v1:ident = $v1_original:ident, $begin:ident = $begin_original:ident, $into:ident = $into_original:ident, $end:ident = $end_original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $begin_v1(agent: &'static Agent, outcome: &Outcome, stream: CUstream) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$v1_original(stream) });
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $begin(agent: &'static Agent, outcome: &Outcome, stream: CUstream, mode: c_int) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$begin_original(stream, mode) });
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $into(
            agent: &'static Agent, outcome: &Outcome, stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode,
            data: *const std::ffi::c_void, count: usize, mode: c_int,
        ) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = unsafe { original::$into_original(stream, graph, nodes, data, count, mode) };
            outcome.keep(code);
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $end(
            agent: &'static Agent, outcome: &Outcome, stream: CUstream, graph: *mut CUgraph,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$end_original(stream, graph) });
            let stream = StreamName { stream, null_is_per_thread: $per_thread };
            // One that failed may be over, or not.
            if code == sys::SUCCESS || is_capturing(&agent.driver, stream) == Ok(false) {
                agent.graphs.captures.note(captures::current(&agent.driver), stream.key(), false);
            }
            code
        }
    )* };
}

captures! {
    begin_capture_v1 = begin_capture_v1, begin_capture = begin_capture, begin_capture_into = begin_capture_into, end_capture = end_capture, false;
    begin_capture_v1_ptsz = begin_capture_v1_ptsz, begin_capture_ptsz = begin_capture_ptsz, begin_capture_into_ptsz = begin_capture_into_ptsz,
        end_capture_ptsz = end_capture_ptsz, true;
}

fn began(agent: &'static Agent, code: CUresult, stream: StreamName) {
    if code == sys::SUCCESS {
        (agent.graphs.captures).note(captures::current(&agent.driver), stream.key(), true);
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn destroy(agent: &'static Agent, outcome: &Outcome, graph: CUgraph) -> CUresult {
    let mut code = sys::SUCCESS;
    agent.graphs.bodies.without_graph(graph, || {
        // SAFETY: the application's own argument.
        code = outcome.keep(unsafe { original::graph_destroy(graph) });
        code == sys::SUCCESS
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn destroy_node(
    agent: &'static Agent,
    outcome: &Outcome,
    node: CUgraphNode,
) -> CUresult {
    let mut code = sys::SUCCESS;
    agent.graphs.bodies.without_node(node, || {
        // SAFETY: the application's own argument.
        code = outcome.keep(unsafe { original::node_destroy(node) });
        code == sys::SUCCESS
    });
    code
}

/// Says how many there were, as the session ends.
pub(crate) fn report(agent: &Agent) {
    let (graphs, launches) = agent.graphs.older.counts();
    if launches == 0 {
        return;
    }
    let of = match graphs {
        1 => "a graph that was".to_owned(),
        many => format!("{many} graphs that were"),
    };
    agent.note(
        NoteLevel::Warning,
        format!("{launches} launches of {of} instantiated before the programs came ran without them: what is in an executable graph cannot be known; start the application under `warpbpf run`, or have it instantiate its graphs again"),
    );
}
