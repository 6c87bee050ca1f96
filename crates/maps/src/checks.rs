//! Checks of a definition that several types of maps share.

use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::error::MapError;
use crate::map_plan::MAX_BYTES;

/// The checks that all indexed types share: a u32 key, some entries, a value.
pub(crate) fn check_indexed(def: &MapDef, map_type: MapType) -> Result<(), MapError> {
    if def.key_size != 4 {
        return Err(MapError::KeySize {
            map: def.name.clone(),
            map_type: map_type.name(),
            found: def.key_size,
            wanted: "4 (an index)",
        });
    }
    check_filled(def, map_type)
}

/// Some entries and a value.
pub(crate) fn check_filled(def: &MapDef, map_type: MapType) -> Result<(), MapError> {
    for (what, size) in [
        ("max_entries", def.max_entries),
        ("value_size", def.value_size),
    ] {
        if size == 0 {
            return Err(MapError::Zero {
                map: def.name.clone(),
                what,
                map_type: map_type.name(),
            });
        }
    }
    Ok(())
}

/// Refuses `bytes` over `limit`.
pub(crate) fn check_bytes(
    def: &MapDef,
    what: impl FnOnce() -> String,
    bytes: u128,
    advice: &'static str,
) -> Result<(), MapError> {
    if bytes <= u128::from(MAX_BYTES) {
        return Ok(());
    }
    Err(MapError::TooLarge {
        map: def.name.clone(),
        what: what(),
        bytes,
        limit: MAX_BYTES,
        advice,
    })
}

/// `n` rounded up to 8, without overflow.
pub(crate) fn stride(n: u32) -> u128 {
    u128::from(n).next_multiple_of(8)
}
