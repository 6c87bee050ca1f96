//! `bpf()` for several entries of a map at once.

use std::sync::Arc;

use rustix::io::Errno;

use crate::bpf_map::flags;
use crate::kernel::{Attr, Kernel};
use crate::uapi::{F_LOCK, attr};
use crate::user::User;
use crate::walk::Walk;

impl Kernel {
    /// Several entries at once. The place of a walk is a number, as for Linux's hashes.
    pub(crate) fn map_lookup_batch(
        &mut self,
        a: &Attr,
        user: &dyn User,
        take: bool,
    ) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::batch::MAP_FD))?;
        self.readable(at)?;
        let spec = self.map(at)?.spec;
        if a.u64(attr::batch::FLAGS) != 0 || a.u64(attr::batch::ELEM_FLAGS) & !F_LOCK != 0 {
            return Err(Errno::INVAL);
        }
        if spec.is_row() || (take && spec.has_indices()) {
            return Err(Errno::OPNOTSUPP);
        }
        let wanted = a.u32(attr::batch::COUNT);
        a.answer(user, attr::batch::COUNT, 0)?;
        if wanted == 0 {
            return Ok(0);
        }
        let start = match a.u64(attr::batch::IN) {
            0 => 0,
            address => {
                let mut place = [0; 4];
                user.read(address, &mut place)?;
                u32::from_ne_bytes(place)
            }
        };
        let keys = self.batch_keys(at, start)?;
        let bytes = self.user_bytes(&spec) as u64;
        let (mut place, mut done) = (start, 0u32);
        let mut failed = None;
        for key in keys.iter().skip(start as usize) {
            if done == wanted {
                break;
            }
            place += 1;
            let number = u64::from(done);
            let key_at = a.u64(attr::batch::KEYS) + number * u64::from(spec.key_size);
            let value_at = a.u64(attr::batch::VALUES) + number * bytes;
            let moved = if take {
                // Nothing is taken that cannot be given: first it is seen whether the places can be written.
                (user.write(key_at, key))
                    .and_then(|()| user.write(value_at, &vec![0; bytes as usize]))
                    .and_then(|()| self.take(at, key))
            } else {
                self.lookup(at, key)
            };
            let moved = moved.and_then(|value| {
                user.write(key_at, key)?;
                user.write(value_at, &value)
            });
            match moved {
                Ok(()) => done += 1,
                // It went while the walk went on.
                Err(Errno::NOENT) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        // Also before an error: what was taken is the tool's.
        a.answer(user, attr::batch::COUNT, done)?;
        if let Some(error) = failed {
            return Err(error);
        }
        user.write(a.u64(attr::batch::OUT), &place.to_ne_bytes())?;
        if place as usize >= keys.len() {
            return Err(Errno::NOENT);
        }
        Ok(0)
    }

    /// All keys, those of the walk that has come to `start`.
    fn batch_keys(&mut self, at: usize, start: u32) -> Result<Arc<Vec<Vec<u8>>>, Errno> {
        if start == 0 || self.map(at)?.walk.is_none() {
            // That of a walk before is not gone on with.
            self.map_mut(at)?.walk = None;
            let mut keys: Vec<Vec<u8>> = Vec::new();
            loop {
                match self.next_key(at, keys.last().map(Vec::as_slice)) {
                    Ok(key) => keys.push(key),
                    Err(Errno::NOENT) => break,
                    Err(error) => return Err(error),
                }
            }
            self.map_mut(at)?.walk = Some(Walk::new(keys));
        }
        let walk = self.map(at)?.walk.as_ref();
        Ok(walk.map(|walk| walk.keys().clone()).unwrap_or_default())
    }

    pub(crate) fn map_update_batch(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::batch::MAP_FD))?;
        self.writable(at)?;
        let flags = flags(a.u64(attr::batch::ELEM_FLAGS))?;
        let spec = self.map(at)?.spec;
        let bytes = self.user_bytes(&spec);
        self.each(a, user, &mut |kernel, number| {
            let key = a.u64(attr::batch::KEYS) + number * u64::from(spec.key_size);
            let key = user.bytes(key, spec.key_size as usize)?;
            let value = a.u64(attr::batch::VALUES) + number * bytes as u64;
            let value = user.bytes(value, bytes)?;
            kernel.update(at, &key, value, flags)
        })
    }

    pub(crate) fn map_delete_batch(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let at = self.map_at(a.fd(attr::batch::MAP_FD))?;
        self.writable(at)?;
        let spec = self.map(at)?.spec;
        self.each(a, user, &mut |kernel, number| {
            let key = a.u64(attr::batch::KEYS) + number * u64::from(spec.key_size);
            let key = user.bytes(key, spec.key_size as usize)?;
            kernel.delete(at, &key)
        })
    }

    /// As many as go, and says how many went.
    fn each(
        &mut self,
        a: &Attr,
        user: &dyn User,
        work: &mut dyn FnMut(&mut Kernel, u64) -> Result<(), Errno>,
    ) -> Result<i64, Errno> {
        let wanted = a.u32(attr::batch::COUNT);
        for number in 0..wanted {
            if let Err(error) = work(self, u64::from(number)) {
                a.answer(user, attr::batch::COUNT, number)?;
                return Err(error);
            }
        }
        a.answer(user, attr::batch::COUNT, wanted)?;
        Ok(0)
    }
}
