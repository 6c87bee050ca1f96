//! Images: read when the application loads them, instrumented when they have a context, forgotten
//! when they go.

pub(crate) mod enter;
pub(crate) mod leave;
pub(crate) mod load;
pub(crate) mod loaded;
pub(crate) mod pending;
pub(crate) mod read;
pub(crate) mod report;

mod failure;
mod instrument;
mod replace_images;

pub(crate) use leave::{context_gone, forget};
pub(crate) use loaded::{alias, loaded, named};
pub(crate) use pending::{instrument_pending, place_at_launch};
pub(crate) use read::prepare;
pub(crate) use replace_images::{
    IN_A_SECTION, catch_up, forgot_images, make_maps, make_ready, n_kept, put_in_force, retire,
    take_back, unload_together, unmade, without,
};
#[cfg(test)]
pub(crate) use report::has_reported;
pub(crate) use report::{own_handle, report_never_instrumented, send_kernel};
