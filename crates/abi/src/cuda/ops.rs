//! Which functions of the driver API have the device do something in a stream, so that it has a
//! begin and an end there.

use super::api::Api;
use super::symbol::Kind;

/// What the device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Copies memory.
    Copy,
    /// Fills memory.
    Fill,
    /// Runs a kernel.
    Kernel,
    /// Runs a graph.
    Graph,
    /// Has the host called.
    Host,
    /// Waits for a word or an event, or writes a word.
    Order,
    /// Gets, frees or moves memory in the order of the stream.
    Memory,
}

impl OpKind {
    /// For people and files.
    pub const fn word(self) -> &'static str {
        match self {
            OpKind::Copy => "copy",
            OpKind::Fill => "fill",
            OpKind::Kernel => "kernel",
            OpKind::Graph => "graph",
            OpKind::Host => "host function",
            OpKind::Order => "order",
            OpKind::Memory => "memory",
        }
    }
}

/// A function that puts an operation into a stream.
#[derive(Debug)]
pub struct Op {
    /// Name of the API.
    pub api: &'static str,
    /// What it is.
    pub kind: OpKind,
}

macro_rules! ops {
    ($( $kind:ident: $($api:ident)*; )*) => {
        /// All of them.
        pub static OPS: &[Op] = &[ $($( Op { api: stringify!($api), kind: OpKind::$kind } ),*),* ];
    };
}

ops! {
    Copy: cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyHtoD cuMemcpyHtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync
        cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoA cuMemcpyAtoD cuMemcpyHtoA cuMemcpyHtoAAsync cuMemcpyAtoH cuMemcpyAtoHAsync
        cuMemcpyAtoA cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy2DAsync cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DPeer
        cuMemcpy3DPeerAsync cuMemcpyBatchAsync cuMemcpy3DBatchAsync;
    Fill: cuMemsetD8 cuMemsetD8Async cuMemsetD16 cuMemsetD16Async cuMemsetD32 cuMemsetD32Async cuMemsetD2D8 cuMemsetD2D8Async
        cuMemsetD2D16 cuMemsetD2D16Async cuMemsetD2D32 cuMemsetD2D32Async;
    Kernel: cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel;
    Graph: cuGraphLaunch;
    Host: cuLaunchHostFunc cuStreamAddCallback;
    Order: cuStreamWaitEvent cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64
        cuStreamBatchMemOp;
    Memory: cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPrefetchAsync;
}

/// What a function has the device do.
pub fn op_of(api: &str) -> Option<OpKind> {
    OPS.iter().find(|op| op.api == api).map(|op| op.kind)
}

/// The place of the argument that is the stream. A function without one works in the stream 0, or
/// says it in a struct.
pub fn stream_of(api: &Api) -> Option<usize> {
    let named = |name: &str| api.args.iter().position(|(known, _)| *known == name);
    named("hStream").or_else(|| named("stream"))
}

/// How many bytes a copy or fill is about, by its arguments, where they say that.
pub fn bytes_of(api: &Api, args: &[u64]) -> Option<u64> {
    let value = |name: &str| {
        let at = api.args.iter().position(|(known, kind)| {
            *known == name && matches!(kind, Kind::Size | Kind::U32 | Kind::U64)
        })?;
        args.get(at).copied()
    };
    if let Some(bytes) = value("ByteCount") {
        return Some(bytes);
    }
    let name = api.name.strip_prefix("cuMemset")?;
    let element = match name {
        _ if name.contains("D8") => 1,
        _ if name.contains("D16") => 2,
        _ => 4,
    };
    let elements = match value("N") {
        Some(n) => n,
        None => value("Width")?.checked_mul(value("Height")?)?,
    };
    elements.checked_mul(element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::apis;

    #[test]
    fn operations_are_functions_of_the_table() {
        let all = apis();
        for op in OPS {
            let api = all.iter().find(|api| api.name == op.api);
            let api = api.unwrap_or_else(|| panic!("{}", op.api));
            let waits =
                matches!(op.kind, OpKind::Copy | OpKind::Fill) && !op.api.ends_with("Async");
            let says = api.name == "cuLaunchKernelEx";
            assert_eq!(stream_of(api).is_none(), waits || says, "{}", op.api);
        }
        assert_eq!(op_of("cuMemAlloc"), None);
    }

    #[test]
    fn bytes_are_counted() {
        let all = apis();
        let bytes = |name: &str, args: &[u64]| {
            let api = all.iter().find(|api| api.name == name).unwrap();
            bytes_of(api, args)
        };
        assert_eq!(bytes("cuMemcpyHtoDAsync", &[1, 2, 77, 0]), Some(77));
        assert_eq!(bytes("cuMemsetD16Async", &[1, 9, 10, 0]), Some(20));
        assert_eq!(bytes("cuMemsetD2D32", &[1, 64, 9, 3, 5]), Some(60));
        assert_eq!(bytes("cuLaunchKernel", &[0; 11]), None);
    }
}
