//! Who holds a user object, and its end.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::objects::user_object::{Held, UserObject};
use crate::state::{Soft, soft};

impl UserObject {
    pub(crate) fn hold(&self, count: u32) {
        self.holders.fetch_add(count, Ordering::AcqRel);
    }

    pub(crate) fn release(&self, soft: &Soft, count: u32) {
        if self.holders.fetch_sub(count, Ordering::AcqRel) == count {
            soft.user_objects.remove(self.handle);
            // SAFETY: the program asked for this call.
            unsafe { (self.destroy)(self.data as *mut c_void) };
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        self.object.hold(self.count);
        Held {
            object: Arc::clone(&self.object),
            count: self.count,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(soft) = soft() {
            self.object.release(soft, self.count);
        }
    }
}
