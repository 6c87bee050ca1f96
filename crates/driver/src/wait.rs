//! Waiting for a stream, so that afterwards nothing of ours is under way even where the driver
//! would not wait.

use std::time::Duration;

use crate::handles::Stream;
use crate::result::DriverError;
use crate::safe::Driver;
use crate::sys;

/// Between two questions whether a stream is done that the driver did not wait for.
const PAUSE: Duration = Duration::from_micros(50);

impl Driver {
    /// Waits for a stream. After an error too nothing of it is under way any more, unless the
    /// driver does not even tell whether that is so, as in a context that a fault has ended: memory
    /// may be given back.
    ///
    /// # Errors
    /// [`DriverError`] of the wait.
    pub fn wait(&self, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: a live stream.
        let code = unsafe { (self.api.stream_synchronize)(stream.0) };
        let waited = self.check("cuStreamSynchronize", code, String::new);
        if waited.is_err() {
            // Unlike cuMemFree, cuMemUnmap waits for nobody: a fill or a copy that runs on would
            // fault, and with it the application.
            while let Ok(false) = self.is_idle(stream) {
                std::thread::sleep(PAUSE);
            }
        }
        waited
    }

    /// Everything in a stream is done. Does not wait.
    ///
    /// # Errors
    /// [`DriverError`] of the question.
    pub fn is_idle(&self, stream: Stream) -> Result<bool, DriverError> {
        // SAFETY: a live stream.
        match unsafe { (self.api.stream_query)(stream.0) } {
            sys::NOT_READY => Ok(false),
            code => self
                .check("cuStreamQuery", code, String::new)
                .map(|()| true),
        }
    }
}
