//! One file per verb.

pub mod attach;
pub mod cache;
pub mod compile;
pub mod doctor;
pub mod generate;
pub mod kernels;
pub mod launch;
pub mod launch_inside;
pub mod link;
pub mod loader;
pub mod loader_late;
pub mod maps;
pub mod new;
pub mod ps;
pub mod replace;
pub mod report;
pub mod run;
pub mod serve;
pub mod sites;
pub mod splice;
pub mod tool;
pub mod trace;
pub mod trace_list;
pub mod verify;
