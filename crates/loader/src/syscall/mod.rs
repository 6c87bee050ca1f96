//! The commands of `bpf()` and `perf_event_open`: each is a method of the kernel, beside those of
//! its kind.

pub mod commands;

pub mod info;

pub mod map;
pub mod map_batch;

pub mod btf;
pub mod link;
pub mod perf_event;
pub mod prog;
pub mod test_run;
