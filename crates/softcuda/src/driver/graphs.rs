//! Graphs as the API builds, copies and shows them: nodes by kind are in [`super::graph_nodes`].

use std::ffi::c_int;
use std::sync::Arc;

use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::work::{Edge, EdgeData, Graph, Operation};
use crate::state::{current, put, soft};

/// The graph of a handle.
pub(crate) fn graph(handle: Handle) -> Result<Arc<Graph>, CuError> {
    soft()?.graphs.get(handle).ok_or(CuError::INVALID_VALUE)
}

/// The graph that a node is in.
pub(crate) fn home(node: Handle) -> Result<Arc<Graph>, CuError> {
    soft()?.nodes.get(node).ok_or(CuError::INVALID_VALUE)
}

/// Nodes that something comes behind, as a program gives them.
///
/// # Safety
/// `nodes` must hold `count` handles, and `data`, if it is not null, as many.
pub(crate) unsafe fn behind(
    nodes: *const Handle,
    data: *const EdgeData,
    count: usize,
) -> Result<Vec<(Handle, EdgeData)>, CuError> {
    if count > 0 && nodes.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let at = |at| {
        // SAFETY: the caller's promise.
        unsafe {
            let data = if data.is_null() {
                EdgeData::default()
            } else {
                *data.add(at)
            };
            (*nodes.add(at), data)
        }
    };
    Ok((0..count).map(at).collect())
}

/// Adds a node and tells its handle.
///
/// # Safety
/// As for [`behind`]; `to` null or valid for a write.
pub(crate) unsafe fn add(
    to: *mut Handle,
    into: Handle,
    nodes: *const Handle,
    count: usize,
    operation: Operation,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let behind = behind(nodes, std::ptr::null(), count)?;
        add_behind(to, into, &behind, operation)
    }
}

/// As [`add`], with edges that were read.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn add_behind(
    to: *mut Handle,
    into: Handle,
    behind: &[(Handle, EdgeData)],
    operation: Operation,
) -> CuResult {
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let node = graph(into)?.add(soft()?, operation, behind)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, node) }
}

pub(crate) unsafe fn create(to: *mut Handle, flags: u32) -> CuResult {
    let soft = soft()?;
    current()?;
    if to.is_null() || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, Graph::new(soft, false).handle) }
}

pub(crate) unsafe fn destroy(handle: Handle) -> CuResult {
    let found = graph(handle)?;
    if found.embedded {
        return Err(CuError::INVALID_VALUE);
    }
    found.forget(soft()?);
    Ok(())
}

pub(crate) unsafe fn clone(to: *mut Handle, original: Handle) -> CuResult {
    let original = graph(original)?;
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, original.copy(soft()?, false)?.handle) }
}

pub(crate) unsafe fn find_in_clone(to: *mut Handle, node: Handle, copy: Handle) -> CuResult {
    let found = graph(copy)?.find_copy(node).ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, found) }
}

pub(crate) unsafe fn node_type(node: Handle, to: *mut c_int) -> CuResult {
    let kind = home(node)?.with(node, |node| node.operation.kind())?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, kind as c_int) }
}

pub(crate) unsafe fn destroy_node(node: Handle) -> CuResult {
    home(node)?.remove(soft()?, node)
}

/// An array to fill, and what of each item goes into it.
type Column<T> = (*mut Handle, fn(&T) -> Handle);

/// Hands out a list in CUDA's way: without an array its length is told; an array that is longer is
/// filled up with zeros.
///
/// # Safety
/// `count` is valid; each array is null or has `*count` elements.
unsafe fn list<T: Copy>(items: &[T], arrays: &[Column<T>], count: *mut usize) -> CuResult {
    if count.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let room = *count;
        for (array, field) in arrays.iter().filter(|(array, _)| !array.is_null()) {
            for at in 0..room {
                array.add(at).write(items.get(at).map_or(0, field));
            }
        }
        let all = arrays.iter().all(|(array, _)| array.is_null());
        count.write(if all {
            items.len()
        } else {
            items.len().min(room)
        });
    }
    Ok(())
}

pub(crate) unsafe fn get_nodes(of: Handle, to: *mut Handle, count: *mut usize) -> CuResult {
    let nodes = graph(of)?.nodes();
    // SAFETY: the caller's pointers.
    unsafe { list(&nodes, &[(to, |node| *node)], count) }
}

pub(crate) unsafe fn get_root_nodes(of: Handle, to: *mut Handle, count: *mut usize) -> CuResult {
    let graph = graph(of)?;
    let edges = graph.edges();
    let mut nodes = graph.nodes();
    nodes.retain(|node| !edges.iter().any(|e| e.to == *node));
    // SAFETY: the caller's pointers.
    unsafe { list(&nodes, &[(to, |node| *node)], count) }
}

/// Hands out edges, with their data if there is room for it.
///
/// # Safety
/// As for [`list`].
unsafe fn list_edges(
    edges: &[Edge],
    from: *mut Handle,
    to: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> CuResult {
    let wanted = !(from.is_null() && to.is_null());
    if wanted && data.is_null() && edges.iter().any(|e| e.data != EdgeData::default()) {
        return Err(CuError::LOSSY_QUERY);
    }
    // SAFETY: the caller's promise.
    unsafe {
        list(edges, &[(from, |e| e.from), (to, |e| e.to)], count)?;
        if !data.is_null() && wanted {
            for (at, edge) in edges.iter().enumerate().take(*count) {
                data.add(at).write(edge.data);
            }
        }
    }
    Ok(())
}

pub(crate) unsafe fn get_edges_v2(
    of: Handle,
    from: *mut Handle,
    to: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> CuResult {
    let edges = graph(of)?.edges();
    // SAFETY: the caller's pointers.
    unsafe { list_edges(&edges, from, to, data, count) }
}

pub(crate) unsafe fn get_edges(
    of: Handle,
    from: *mut Handle,
    to: *mut Handle,
    count: *mut usize,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { get_edges_v2(of, from, to, std::ptr::null_mut(), count) }
}

pub(crate) unsafe fn get_dependencies_v2(
    node: Handle,
    from: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> CuResult {
    let mut edges = home(node)?.edges();
    edges.retain(|e| e.to == node);
    // SAFETY: the caller's pointers.
    unsafe { list_edges(&edges, from, std::ptr::null_mut(), data, count) }
}

pub(crate) unsafe fn get_dependencies(
    node: Handle,
    from: *mut Handle,
    count: *mut usize,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { get_dependencies_v2(node, from, std::ptr::null_mut(), count) }
}

pub(crate) unsafe fn get_dependents_v2(
    node: Handle,
    to: *mut Handle,
    data: *mut EdgeData,
    count: *mut usize,
) -> CuResult {
    let mut edges = home(node)?.edges();
    edges.retain(|e| e.from == node);
    // SAFETY: the caller's pointers.
    unsafe { list_edges(&edges, std::ptr::null_mut(), to, data, count) }
}

pub(crate) unsafe fn get_dependents(node: Handle, to: *mut Handle, count: *mut usize) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { get_dependents_v2(node, to, std::ptr::null_mut(), count) }
}

/// Edges as a program gives them.
///
/// # Safety
/// The arrays have `count` elements; `data` may be null.
unsafe fn edges(
    from: *const Handle,
    to: *const Handle,
    data: *const EdgeData,
    count: usize,
) -> Result<Vec<Edge>, CuError> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (behind(from, data, count)?, behind(to, data, count)?) };
    let edge = |((from, data), (to, _))| Edge { from, to, data };
    Ok(from.into_iter().zip(to).map(edge).collect())
}

pub(crate) unsafe fn add_dependencies_v2(
    to_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    data: *const EdgeData,
    count: usize,
) -> CuResult {
    // SAFETY: the caller's arrays.
    graph(to_graph)?.connect(&unsafe { edges(from, to, data, count)? })
}

pub(crate) unsafe fn add_dependencies(
    to_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    count: usize,
) -> CuResult {
    // SAFETY: the caller's arrays.
    unsafe { add_dependencies_v2(to_graph, from, to, std::ptr::null(), count) }
}

pub(crate) unsafe fn remove_dependencies_v2(
    of: Handle,
    from: *const Handle,
    to: *const Handle,
    data: *const EdgeData,
    count: usize,
) -> CuResult {
    // SAFETY: the caller's arrays.
    graph(of)?.disconnect(&unsafe { edges(from, to, data, count)? })
}

pub(crate) unsafe fn remove_dependencies(
    of: Handle,
    from: *const Handle,
    to: *const Handle,
    count: usize,
) -> CuResult {
    // SAFETY: the caller's arrays.
    unsafe { remove_dependencies_v2(of, from, to, std::ptr::null(), count) }
}
