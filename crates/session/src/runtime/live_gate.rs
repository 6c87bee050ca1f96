//! Tells kernels that run in a context which programs are stopped, and what is in slots.

use std::time::Duration;

use crate::plan::session::{Filling, Session};
use crate::runtime::device_slots::Unwritten;
use crate::runtime::live::Live;

impl Live {
    /// Kernels that run in this context are told which programs are closed, and what is in slots;
    /// nothing where no gate was asked for. The context must be current.
    ///
    /// # Errors
    /// [`Unwritten`]: kernels that run go on as they were.
    pub fn write_gate(&self) -> Result<(), Unwritten> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        let gates = &self.session().lineage.gates;
        let maps = |session: &Session| self.map_addresses(session);
        self.driver
            .relaxed(|| gate.write(&self.driver, gates, maps))
    }

    /// Brings programs for slots to this context, where nothing runs them until
    /// [`Session::fill_slots`] and [`Live::write_gate`]. The context must be current.
    ///
    /// # Errors
    /// [`Unwritten::Busy`] if that took longer than `limit`, because the half that they come to is
    /// not left, or `goes_on` said no; a copy.
    pub fn bring_to_slots(
        &self,
        filling: &Filling,
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        let maps = self.map_addresses(filling.base())?;
        let gates = &self.session().lineage.gates;
        let what = (filling, maps.as_slice());
        self.driver.relaxed(|| match gate.lock().as_mut() {
            Some(slots) => gate.fill(&self.driver, gates, slots, what, limit, goes_on),
            None => Ok(()),
        })
    }
}
