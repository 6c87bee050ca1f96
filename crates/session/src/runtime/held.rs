//! What a session takes from the application's context, so that all of it is given back when the
//! session does not come to stand: the application must not run out of memory because of something
//! that never worked.

use warpbpf_driver::{Driver, DriverError, Module, Stream};

/// Things of ours in one context.
#[derive(Debug)]
pub(crate) struct Held<'d> {
    driver: &'d Driver,
    things: Vec<Thing>,
}

#[derive(Debug, Clone, Copy)]
enum Thing {
    Stream(Stream),
    Device(u64),
    /// Address and size; it does not end with the context.
    Fixed(u64, u64),
    Host(*mut u8),
    Module(Module),
}

impl<'d> Held<'d> {
    pub(crate) fn new(driver: &'d Driver) -> Held<'d> {
        Held {
            driver,
            things: Vec::new(),
        }
    }

    pub(crate) fn stream(&mut self) -> Result<Stream, DriverError> {
        let stream = self.driver.stream()?;
        self.things.push(Thing::Stream(stream));
        Ok(stream)
    }

    /// See [`Driver::alloc_zeroed`].
    pub(crate) fn alloc_zeroed(&mut self, bytes: u64, stream: Stream) -> Result<u64, DriverError> {
        let address = self.driver.alloc_zeroed(bytes, stream)?;
        self.things.push(Thing::Device(address));
        Ok(address)
    }

    /// See [`Driver::alloc_fixed`].
    pub(crate) fn alloc_fixed(
        &mut self,
        address: u64,
        bytes: u64,
        stream: Stream,
    ) -> Result<Option<u64>, DriverError> {
        let size = self.driver.alloc_fixed(address, bytes, stream)?;
        self.things
            .extend(size.map(|size| Thing::Fixed(address, size)));
        Ok(size)
    }

    /// See [`Driver::host_alloc`].
    pub(crate) fn host_alloc(&mut self, bytes: usize) -> Result<(*mut u8, u64), DriverError> {
        let (pointer, address) = self.driver.host_alloc(bytes)?;
        self.things.push(Thing::Host(pointer));
        Ok((pointer, address))
    }

    /// See [`Driver::load_ptx`].
    pub(crate) fn load_ptx(&mut self, ptx: &str) -> Result<Module, DriverError> {
        let module = self.driver.load_ptx(ptx)?;
        self.things.push(Thing::Module(module));
        Ok(module)
    }

    /// Everything stays, until the context ends or it is given back.
    pub(crate) fn keep(mut self) -> Kept {
        Kept(std::mem::take(&mut self.things))
    }
}

/// Things of a session that stands.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<Thing>);

// SAFETY: handles, which are the driver's affair, and memory that is only named here.
unsafe impl Send for Kept {}

impl Kept {
    /// Things that came later.
    pub(crate) fn add(&mut self, more: Kept) {
        self.0.extend(more.0);
    }

    /// Gives back what stays when its context ends, which it has.
    pub(crate) fn give_back_fixed(&self, driver: &Driver) {
        for thing in &self.0 {
            if let Thing::Fixed(address, size) = thing {
                // Else it is lost until the process ends.
                let _ = driver.free_fixed(*address, *size);
            }
        }
    }

    /// Gives everything back, the last thing first.
    pub(crate) fn give_back(self, driver: &Driver) {
        drop(Held {
            driver,
            things: self.0,
        });
    }
}

impl Drop for Held<'_> {
    /// Gives everything back, the last thing first. Nothing can be done about a thing that the
    /// driver keeps.
    fn drop(&mut self) {
        for thing in self.things.drain(..).rev() {
            let _ = match thing {
                Thing::Stream(stream) => self.driver.destroy(stream),
                Thing::Device(address) => self.driver.free(address),
                Thing::Fixed(address, size) => self.driver.free_fixed(address, size),
                // SAFETY: a session that never came to stand has not handed this memory out, and
                // one that did is used no more.
                Thing::Host(pointer) => unsafe { self.driver.host_free(pointer) },
                Thing::Module(module) => self.driver.unload(module),
            };
        }
    }
}
