//! The entry points that are hooked: one row each, and everything else follows from the row.
//!
//! A row names the driver's symbol, its signature, when the hook has work at all (anything else
//! goes straight to the original, without the guard), and the handler. The handler gets the agent
//! and an outcome, and must tell the outcome what the driver answered to the application's own
//! call.

/// Gives all rows to a macro.
macro_rules! for_each_hook {
    ($use:ident) => {
        $use! {
    init = "cuInit"(flags: c_uint)
        when (agent => agent.is_forked()) => child::init;
    module_load = "cuModuleLoad"(module: *mut CUmodule, path: *const c_char)
        when (agent => agent.is_on()) => loads::module_load;
    #[essential]
    module_load_data = "cuModuleLoadData"(module: *mut CUmodule, image: *const c_void)
        when (agent => agent.is_on()) => loads::module_load_data;
    #[essential]
    module_load_data_ex = "cuModuleLoadDataEx"(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void)
        when (agent => agent.is_on()) => loads::module_load_data_ex;
    module_load_fatbin = "cuModuleLoadFatBinary"(module: *mut CUmodule, image: *const c_void)
        when (agent => agent.is_on()) => loads::module_load_fatbin;
    #[essential]
    module_unload = "cuModuleUnload"(module: CUmodule)
        when (agent => agent.is_on() || agent.memory.is_watched()) => loads::module_unload;
    #[essential]
    module_get_function = "cuModuleGetFunction"(function: *mut CUfunction, module: CUmodule, name: *const c_char)
        when (agent => agent.is_on()) => loads::module_get_function;
    #[essential]
    library_load_data = "cuLibraryLoadData"(library: *mut CUlibrary, image: *const c_void, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint)
        when (agent => agent.is_on()) => loads::library_load_data;
    library_load_file = "cuLibraryLoadFromFile"(library: *mut CUlibrary, path: *const c_char, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint)
        when (agent => agent.is_on()) => loads::library_load_file;
    #[essential]
    library_unload = "cuLibraryUnload"(library: CUlibrary)
        when (agent => agent.is_on() || agent.memory.is_watched()) => loads::library_unload;
    #[essential]
    library_get_kernel = "cuLibraryGetKernel"(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
        when (agent => agent.is_on()) => loads::library_get_kernel;
    library_get_module = "cuLibraryGetModule"(module: *mut CUmodule, library: CUlibrary)
        when (agent => agent.is_on() || agent.memory.is_watched()) => loads::library_get_module;
    kernel_get_function = "cuKernelGetFunction"(function: *mut CUfunction, kernel: CUkernel)
        when (agent => agent.is_on()) => loads::kernel_get_function;
    link_create = "cuLinkCreate_v2"(count: c_uint, options: *mut c_int, values: *mut *mut c_void, link: *mut CUlinkState)
        when (agent => agent.is_on()) => link_hooks::link_create;
    link_create_v1 = "cuLinkCreate"(count: c_uint, options: *mut c_int, values: *mut *mut c_void, link: *mut CUlinkState)
        when (agent => agent.is_on()) => link_hooks::link_create_v1;
    link_add_data = "cuLinkAddData_v2"(link: CUlinkState, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void)
        when (agent => agent.is_on()) => link_hooks::link_add_data;
    link_add_data_v1 = "cuLinkAddData"(link: CUlinkState, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void)
        when (agent => agent.is_on()) => link_hooks::link_add_data_v1;
    link_add_file = "cuLinkAddFile_v2"(link: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void)
        when (agent => agent.is_on()) => link_hooks::link_add_file;
    link_add_file_v1 = "cuLinkAddFile"(link: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void)
        when (agent => agent.is_on()) => link_hooks::link_add_file_v1;
    link_complete = "cuLinkComplete"(link: CUlinkState, image: *mut *mut c_void, bytes: *mut usize)
        when (agent => agent.is_on()) => link_hooks::link_complete;
    link_destroy = "cuLinkDestroy"(link: CUlinkState)
        when (agent => agent.is_on()) => link_hooks::link_destroy;
    ctx_set_current = "cuCtxSetCurrent"(context: CUcontext)
        when (agent => agent.has_pending()) => contexts::set_current;
    ctx_push_current = "cuCtxPushCurrent_v2"(context: CUcontext)
        when (agent => agent.has_pending()) => contexts::ctx_push_current;
    ctx_push_current_v1 = "cuCtxPushCurrent"(context: CUcontext)
        when (agent => agent.has_pending()) => contexts::ctx_push_current_v1;
    ctx_create_v2 = "cuCtxCreate_v2"(context: *mut CUcontext, flags: c_uint, device: CUdevice)
        when (agent => agent.has_pending()) => contexts::ctx_create_v2;
    ctx_create_v3 = "cuCtxCreate_v3"(context: *mut CUcontext, affinities: *mut c_void, count: c_int, flags: c_uint, device: CUdevice)
        when (agent => agent.has_pending()) => contexts::ctx_create_v3;
    ctx_create_v4 = "cuCtxCreate_v4"(context: *mut CUcontext, params: *mut c_void, flags: c_uint, device: CUdevice)
        when (agent => agent.has_pending()) => contexts::ctx_create_v4;
    ctx_create_v1 = "cuCtxCreate"(context: *mut CUcontext, flags: c_uint, device: CUdevice)
        when (agent => agent.has_pending()) => contexts::ctx_create_v1;
    ctx_destroy = "cuCtxDestroy_v2"(context: CUcontext)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::destroy;
    ctx_destroy_v1 = "cuCtxDestroy"(context: CUcontext)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::destroy_v1;
    primary_retain = "cuDevicePrimaryCtxRetain"(context: *mut CUcontext, device: CUdevice)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::primary_retain;
    primary_release = "cuDevicePrimaryCtxRelease_v2"(device: CUdevice)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::primary_release;
    primary_release_v1 = "cuDevicePrimaryCtxRelease"(device: CUdevice)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::primary_release_v1;
    primary_reset = "cuDevicePrimaryCtxReset_v2"(device: CUdevice)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::primary_reset;
    primary_reset_v1 = "cuDevicePrimaryCtxReset"(device: CUdevice)
        when (agent => agent.is_on() || agent.memory.is_watched() || agent.graphs.captures.is_used()) => contexts::primary_reset_v1;
    func_set_attribute = "cuFuncSetAttribute"(function: CUfunction, attribute: c_int, value: c_int)
        when (agent => agent.table.get(function as usize).is_some()) => attributes::func_set_attribute;
    kernel_set_attribute = "cuKernelSetAttribute"(attribute: c_int, value: c_int, kernel: CUkernel, device: CUdevice)
        when (agent => agent.table.get(kernel as usize).is_some()) => attributes::kernel_set_attribute;
    func_set_cache = "cuFuncSetCacheConfig"(function: CUfunction, config: c_int)
        when (agent => agent.table.get(function as usize).is_some()) => attributes::func_set_cache;
    kernel_set_cache = "cuKernelSetCacheConfig"(kernel: CUkernel, config: c_int, device: CUdevice)
        when (agent => agent.table.get(kernel as usize).is_some()) => attributes::kernel_set_cache;
    #[asked]
    func_get_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: CUfunction)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::func_get_attribute;
    #[asked]
    kernel_get_attribute = "cuKernelGetAttribute"(value: *mut c_int, attribute: c_int, kernel: CUkernel, device: CUdevice)
        when (agent => agent.answers_for_variant(kernel as usize)) => occupancy::kernel_get_attribute;
    #[asked]
    active_blocks = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::active_blocks;
    #[asked]
    active_blocks_flags = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"(blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize, flags: c_uint)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::active_blocks_flags;
    #[asked]
    block_size = "cuOccupancyMaxPotentialBlockSize"(grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of: *mut c_void, shared: usize, limit: c_int)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::block_size;
    #[asked]
    block_size_flags = "cuOccupancyMaxPotentialBlockSizeWithFlags"(grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of: *mut c_void, shared: usize, limit: c_int, flags: c_uint)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::block_size_flags;
    #[asked]
    available_shared = "cuOccupancyAvailableDynamicSMemPerBlock"(bytes: *mut usize, function: CUfunction, blocks: c_int, threads: c_int)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::available_shared;
    #[asked]
    cluster_size = "cuOccupancyMaxPotentialClusterSize"(size: *mut c_int, function: CUfunction, config: *const CUlaunchConfig)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::cluster_size;
    #[asked]
    active_clusters = "cuOccupancyMaxActiveClusters"(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig)
        when (agent => agent.answers_for_variant(function as usize)) => occupancy::active_clusters;
    #[essential]
    launch_kernel = "cuLaunchKernel"(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::kernel;
    launch_kernel_ptsz = "cuLaunchKernel_ptsz"(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::kernel_ptsz;
    #[essential]
    launch_kernel_ex = "cuLaunchKernelEx"(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::kernel_ex;
    launch_kernel_ex_ptsz = "cuLaunchKernelEx_ptsz"(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::kernel_ex_ptsz;
    launch_cooperative = "cuLaunchCooperativeKernel"(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::cooperative;
    launch_cooperative_ptsz = "cuLaunchCooperativeKernel_ptsz"(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        when (agent => agent.has_launch(function as usize)) => launch::cooperative_ptsz;
    stream_create = "cuStreamCreate"(to: *mut CUstream, flags: c_uint)
        when (agent => agent.is_on()) => stream_hooks::create;
    stream_create_with_priority = "cuStreamCreateWithPriority"(to: *mut CUstream, flags: c_uint, priority: c_int)
        when (agent => agent.is_on()) => stream_hooks::create_with_priority;
    stream_destroy = "cuStreamDestroy_v2"(stream: CUstream)
        when (agent => agent.quiet.is_watched() || agent.graphs.captures.is_used()) => stream_hooks::stream_destroy;
    stream_destroy_v1 = "cuStreamDestroy"(stream: CUstream)
        when (agent => agent.quiet.is_watched() || agent.graphs.captures.is_used()) => stream_hooks::stream_destroy_v1;
    begin_capture = "cuStreamBeginCapture_v2"(stream: CUstream, mode: c_int)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture;
    begin_capture_ptsz = "cuStreamBeginCapture_v2_ptsz"(stream: CUstream, mode: c_int)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture_ptsz;
    begin_capture_v1 = "cuStreamBeginCapture"(stream: CUstream)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture_v1;
    begin_capture_v1_ptsz = "cuStreamBeginCapture_ptsz"(stream: CUstream)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture_v1_ptsz;
    begin_capture_into = "cuStreamBeginCaptureToGraph"(stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, data: *const c_void, count: usize, mode: c_int)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture_into;
    begin_capture_into_ptsz = "cuStreamBeginCaptureToGraph_ptsz"(stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, data: *const c_void, count: usize, mode: c_int)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::begin_capture_into_ptsz;
    end_capture = "cuStreamEndCapture"(stream: CUstream, graph: *mut CUgraph)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::end_capture;
    end_capture_ptsz = "cuStreamEndCapture_ptsz"(stream: CUstream, graph: *mut CUgraph)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::end_capture_ptsz;
    graph_destroy = "cuGraphDestroy"(graph: CUgraph)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::destroy;
    node_destroy = "cuGraphDestroyNode"(node: CUgraphNode)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::destroy_node;
    graph_add_kernel_v2 = "cuGraphAddKernelNode_v2"(node: *mut CUgraphNode, graph: CUgraph, behind: *const CUgraphNode, count: usize, params: *const KernelNodeParams2)
        when (agent => agent.graphs.is_used()) => graphs::add_kernel_node_v2;
    graph_add_kernel = "cuGraphAddKernelNode"(node: *mut CUgraphNode, graph: CUgraph, behind: *const CUgraphNode, count: usize, params: *const KernelNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::add_kernel_node;
    graph_get_kernel_v2 = "cuGraphKernelNodeGetParams_v2"(node: CUgraphNode, params: *mut KernelNodeParams2)
        when (agent => agent.graphs.is_used()) => graphs::get_kernel_node_v2;
    graph_get_kernel = "cuGraphKernelNodeGetParams"(node: CUgraphNode, params: *mut KernelNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::get_kernel_node;
    graph_set_kernel_v2 = "cuGraphKernelNodeSetParams_v2"(node: CUgraphNode, params: *const KernelNodeParams2)
        when (agent => agent.graphs.is_used()) => graphs::set_kernel_node_v2;
    graph_set_kernel = "cuGraphKernelNodeSetParams"(node: CUgraphNode, params: *const KernelNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::set_kernel_node;
    graph_add_node_v2 = "cuGraphAddNode_v2"(node: *mut CUgraphNode, graph: CUgraph, behind: *const CUgraphNode, data: *const c_void, count: usize, params: *mut GraphNodeParams)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::add_node_v2;
    graph_add_node = "cuGraphAddNode"(node: *mut CUgraphNode, graph: CUgraph, behind: *const CUgraphNode, count: usize, params: *mut GraphNodeParams)
        when (agent => agent.graphs.sees_captures(agent.is_on())) => graphs::add_node;
    node_set = "cuGraphNodeSetParams"(node: CUgraphNode, params: *mut GraphNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::set_node;
    instantiate_with_flags = "cuGraphInstantiateWithFlags"(exec: *mut CUgraphExec, graph: CUgraph, flags: u64)
        when (agent => agent.graphs.is_used()) => graphs::instantiate_with_flags;
    instantiate_v1 = "cuGraphInstantiate"(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, bytes: usize)
        when (agent => agent.graphs.is_used()) => graphs::instantiate_v1;
    instantiate_v2 = "cuGraphInstantiate_v2"(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, bytes: usize)
        when (agent => agent.graphs.is_used()) => graphs::instantiate_v2;
    instantiate_with_params = "cuGraphInstantiateWithParams"(exec: *mut CUgraphExec, graph: CUgraph, params: *mut c_void)
        when (agent => agent.graphs.is_used()) => graphs::instantiate_with_params;
    instantiate_with_params_ptsz = "cuGraphInstantiateWithParams_ptsz"(exec: *mut CUgraphExec, graph: CUgraph, params: *mut c_void)
        when (agent => agent.graphs.is_used()) => graphs::instantiate_with_params_ptsz;
    exec_destroy = "cuGraphExecDestroy"(exec: CUgraphExec)
        when (agent => agent.graphs.is_used()) => graphs::exec_destroy;
    exec_set_kernel_v2 = "cuGraphExecKernelNodeSetParams_v2"(exec: CUgraphExec, node: CUgraphNode, params: *const KernelNodeParams2)
        when (agent => agent.graphs.is_used()) => graphs::set_kernel_node_in_exec_v2;
    exec_set_kernel = "cuGraphExecKernelNodeSetParams"(exec: CUgraphExec, node: CUgraphNode, params: *const KernelNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::set_kernel_node_in_exec;
    exec_set_graph = "cuGraphExecChildGraphNodeSetParams"(exec: CUgraphExec, node: CUgraphNode, child: CUgraph)
        when (agent => agent.graphs.is_used()) => graphs::exec_set_graph;
    exec_set_node = "cuGraphExecNodeSetParams"(exec: CUgraphExec, node: CUgraphNode, params: *mut GraphNodeParams)
        when (agent => agent.graphs.is_used()) => graphs::set_node_in_exec;
    exec_update_v2 = "cuGraphExecUpdate_v2"(exec: CUgraphExec, graph: CUgraph, result: *mut c_void)
        when (agent => agent.graphs.is_used()) => graphs::exec_update_v2;
    exec_update_v1 = "cuGraphExecUpdate"(exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut c_uint)
        when (agent => agent.graphs.is_used()) => graphs::exec_update_v1;
    node_set_enabled = "cuGraphNodeSetEnabled"(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint)
        when (agent => agent.graphs.sees_launches()) => graphs::node_set_enabled;
    graph_launch = "cuGraphLaunch"(exec: CUgraphExec, stream: CUstream)
        when (agent => agent.graphs.sees_launches() || agent.launch_barrier.is_used()) => graphs::graph_launch;
    graph_launch_ptsz = "cuGraphLaunch_ptsz"(exec: CUgraphExec, stream: CUstream)
        when (agent => agent.graphs.sees_launches() || agent.launch_barrier.is_used()) => graphs::graph_launch_ptsz;
    mem_alloc = "cuMemAlloc_v2"(address: *mut CUdeviceptr, bytes: usize)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc;
    mem_alloc_pitch = "cuMemAllocPitch_v2"(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_pitch;
    mem_alloc_managed = "cuMemAllocManaged"(address: *mut CUdeviceptr, bytes: usize, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_managed;
    mem_free = "cuMemFree_v2"(address: CUdeviceptr)
        when (agent => agent.memory.is_watched()) => memory_hooks::free;
    mem_alloc_async = "cuMemAllocAsync"(address: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_async;
    mem_alloc_async_ptsz = "cuMemAllocAsync_ptsz"(address: *mut CUdeviceptr, bytes: usize, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_async_ptsz;
    mem_alloc_from_pool = "cuMemAllocFromPoolAsync"(address: *mut CUdeviceptr, bytes: usize, pool: *mut c_void, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_from_pool;
    mem_alloc_from_pool_ptsz = "cuMemAllocFromPoolAsync_ptsz"(address: *mut CUdeviceptr, bytes: usize, pool: *mut c_void, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_from_pool_ptsz;
    mem_free_async = "cuMemFreeAsync"(address: CUdeviceptr, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::free_async;
    mem_free_async_ptsz = "cuMemFreeAsync_ptsz"(address: CUdeviceptr, stream: CUstream)
        when (agent => agent.memory.is_watched()) => memory_hooks::free_async_ptsz;
    mem_alloc_host = "cuMemAllocHost_v2"(pointer: *mut *mut c_void, bytes: usize)
        when (agent => agent.memory.is_watched()) => memory_hooks::alloc_host;
    host_alloc = "cuMemHostAlloc"(pointer: *mut *mut c_void, bytes: usize, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::host_alloc;
    free_host = "cuMemFreeHost"(pointer: *mut c_void)
        when (agent => agent.memory.is_watched()) => memory_hooks::free_host;
    host_register = "cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::host_register;
    host_unregister = "cuMemHostUnregister"(pointer: *mut c_void)
        when (agent => agent.memory.is_watched()) => memory_hooks::host_unregister;
    ipc_open = "cuIpcOpenMemHandle_v2"(address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::ipc_open;
    ipc_close = "cuIpcCloseMemHandle"(address: CUdeviceptr)
        when (agent => agent.memory.is_watched()) => memory_hooks::ipc_close;
    mem_create = "cuMemCreate"(handle: *mut u64, bytes: usize, properties: *const c_void, flags: u64)
        when (agent => agent.memory.is_watched()) => memory_hooks::create;
    mem_release = "cuMemRelease"(handle: u64)
        when (agent => agent.memory.is_watched()) => memory_hooks::release;
    mem_map = "cuMemMap"(address: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64)
        when (agent => agent.memory.is_watched()) => memory_hooks::map;
    mem_unmap = "cuMemUnmap"(address: CUdeviceptr, bytes: usize)
        when (agent => agent.memory.is_watched()) => memory_hooks::unmap;
    mem_set_access = "cuMemSetAccess"(address: CUdeviceptr, bytes: usize, access: *const AccessDescription, count: usize)
        when (agent => agent.memory.is_watched()) => memory_hooks::set_access;
    attach_async = "cuStreamAttachMemAsync"(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::attach_async;
    attach_async_ptsz = "cuStreamAttachMemAsync_ptsz"(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint)
        when (agent => agent.memory.is_watched()) => memory_hooks::attach_async_ptsz;
    module_global = "cuModuleGetGlobal_v2"(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char)
        when (agent => agent.memory.is_watched()) => memory_hooks::module_global;
    library_global = "cuLibraryGetGlobal"(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char)
        when (agent => agent.memory.is_watched()) => memory_hooks::library_global;
    library_managed = "cuLibraryGetManaged"(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char)
        when (agent => agent.memory.is_watched()) => memory_hooks::library_managed;
        }
    };
}
pub(crate) use for_each_hook;
