//! `libcuda.so.1`: the driver API. [`table`] says which functions there are; the other modules hold
//! what they do, each a plain function that returns `Result` and is called through the stub that
//! the table makes.

pub(crate) mod arrays;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub mod fill;
pub(crate) mod function;
pub(crate) mod graph_exec;
pub mod graph_nodes;
pub(crate) mod graphs;
pub(crate) mod image;
pub(crate) mod images;
pub(crate) mod init;
pub(crate) mod launch;
pub mod launch_config;
pub(crate) mod linker;
pub(crate) mod memory;
pub mod missing;
pub(crate) mod module;
pub mod objects;
pub(crate) mod peers;
pub(crate) mod procs;
pub mod rows;
pub(crate) mod stream_handles;
pub(crate) mod streams;
pub mod table;
pub(crate) mod tensor_map;
pub(crate) mod virtuals;
