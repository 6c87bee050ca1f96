//! Graphs: instrumented kernels in nodes, however they came there, and how often executable graphs
//! run them.
//!
//! The driver keeps the graphs, and is asked what is in them: a node whose function is a variant is
//! one of ours, in copies and children of graphs too, so that little has to be remembered here.
//! What is: which captures go on (a captured launch is no launch yet), what the nodes of each
//! executable graph are (its launches are theirs), and which graphs are bodies of conditional
//! nodes: what is in those runs as often as the device likes, which nobody tells the host, and is
//! no launch.
//!
//! A graph may have nodes in several contexts: a variant is known with the context that it lives
//! in, and its launch record is memory there. What is known of graphs that need a context goes with
//! that.
//!
//! A node's launch record is chosen when its graph is instantiated, as an executable graph never
//! runs twice at once: its nodes get records that no other launch uses, and that two of them share
//! only if one has ended before the other begins.

mod capture_hooks;
mod execs;
mod nodes;
mod walk;

pub(crate) use capture_hooks::*;
pub(crate) use execs::*;
pub(crate) use nodes::*;
