//! Versions of PTX by processor.

/// First PTX version that knows every architecture up to a number (PTX ISA, "Release Notes").
pub(crate) const VERSIONS: &[(u32, (u32, u32))] =
    &[(90, (8, 0)), (101, (8, 6)), (u32::MAX, (8, 8))];

/// The PTX version of a module of ours for `sm_NN`.
pub(crate) fn ptx_version(sm: u32) -> (u32, u32) {
    let known = VERSIONS.iter().find(|(last, _)| sm <= *last);
    known.map_or((8, 8), |(_, version)| *version)
}
