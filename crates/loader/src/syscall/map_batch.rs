//! `bpf()` for several entries of a map at once.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_maps::MapView;

use crate::kernel::Kernel;
use crate::objects::contents::Contents;
use crate::objects::session::errno;
use crate::objects::walk::{Entries, Walk};
use crate::syscall::map::flags;
use crate::tool::attr::Attr;
use crate::tool::user::User;
use crate::uapi::{F_LOCK, attr};

/// Where keys and values go, the bytes of a value there, and whose memory that is.
type Places<'u> = ((u64, u64, usize), &'u dyn User);

/// What came of a batch.
#[derive(Default)]
struct Batch {
    /// Keys that the walk has gone past.
    passed: u32,
    /// Entries that the tool has.
    done: u32,
    failed: Option<Errno>,
}

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
        let entries = self.batch_entries(at, start)?;
        let places = (
            a.u64(attr::batch::KEYS),
            a.u64(attr::batch::VALUES),
            self.user_bytes(&spec),
        );
        let left = start as usize..entries.len().max(start as usize);
        let batch = if take {
            self.take_batch(at, (&entries, left), wanted, (places, user))
        } else {
            self.look_up_batch(at, (&entries, left), wanted, (places, user))
        };
        // Also before an error: what was taken is the tool's.
        a.answer(user, attr::batch::COUNT, batch.done)?;
        if let Some(error) = batch.failed {
            return Err(error);
        }
        let place = start + batch.passed;
        user.write(a.u64(attr::batch::OUT), &place.to_ne_bytes())?;
        if place as usize >= entries.len() {
            return Err(Errno::NOENT);
        }
        Ok(0)
    }

    /// Values of all of them from one copy of the map, if there is a device that has it.
    fn look_up_batch(
        &self,
        at: usize,
        (entries, left): (&Entries, Range<usize>),
        wanted: u32,
        ((keys_at, values_at, bytes), user): Places<'_>,
    ) -> Batch {
        let mut batch = Batch::default();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let look = || {
            let map = self.map(at)?;
            let whole = map.shadow.is_none() && !matches!(map.contents, Contents::Maps(_));
            let copied = if whole { self.copied(at)? } else { None };
            let view = copied
                .as_ref()
                .map(|copied| MapView::merged(&copied.plan, &copied.parts))
                .transpose()
                .map_err(|error| errno(error.errno()))?;
            for place in left {
                let Some(key) = entries.key(place).filter(|_| batch.done < wanted) else {
                    break;
                };
                let known = copied
                    .as_ref()
                    .and_then(|c| entries.value_in(&c.parts, place));
                let found = match (known, &view) {
                    (Some(value), _) => {
                        values.extend_from_slice(value);
                        Ok(())
                    }
                    (None, Some(view)) => view
                        .lookup(key)
                        .map_err(|error| errno(error.errno()))
                        .and_then(|value| self.user_value(map, key, value.ok_or(Errno::NOENT)?))
                        .map(|value| values.extend(value)),
                    (None, None) => self.lookup(at, key).map(|value| values.extend(value)),
                };
                match found {
                    Ok(()) => {
                        keys.extend_from_slice(key);
                        batch.done += 1;
                    }
                    // It went while the walk went on.
                    Err(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                }
                batch.passed += 1;
            }
            Ok(())
        };
        batch.failed = look().err();
        debug_assert_eq!(values.len(), batch.done as usize * bytes);
        let given = (user.write(keys_at, &keys)).and_then(|()| user.write(values_at, &values));
        if let Err(error) = given {
            (batch.done, batch.failed) = (0, Some(error));
        }
        batch
    }

    /// One after the other: what is taken and what is given must be the same.
    fn take_batch(
        &mut self,
        at: usize,
        (entries, left): (&Entries, Range<usize>),
        wanted: u32,
        ((keys_at, values_at, bytes), user): Places<'_>,
    ) -> Batch {
        let mut batch = Batch::default();
        for key in left.map_while(|place| entries.key(place)) {
            if batch.done == wanted {
                break;
            }
            batch.passed += 1;
            let number = u64::from(batch.done);
            let key_at = keys_at + number * key.len() as u64;
            let value_at = values_at + number * bytes as u64;
            // Nothing is taken that cannot be given: first it is seen whether the places can be
            // written.
            let taken = (user.write(key_at, key))
                .and_then(|()| user.write(value_at, &vec![0; bytes]))
                .and_then(|()| self.take(at, key))
                .and_then(|value| user.write(value_at, &value));
            match taken {
                Ok(()) => batch.done += 1,
                // It went while the walk went on.
                Err(Errno::NOENT) => {}
                Err(error) => {
                    batch.failed = Some(error);
                    break;
                }
            }
        }
        batch
    }

    /// All keys, those of the walk that has come to `start`.
    fn batch_entries(&mut self, at: usize, start: u32) -> Result<Arc<Entries>, Errno> {
        if start == 0 || self.map(at)?.walk.is_none() {
            // That of a walk before is not gone on with.
            self.map_mut(at)?.walk = None;
            let keyed = matches!(self.map(at)?.contents, Contents::Keyed(_));
            if keyed && self.session_of(at).is_some() {
                self.start_walk(at)?;
            } else {
                let mut entries = Entries::new(self.map(at)?.spec.key_size);
                let mut last: Option<Vec<u8>> = None;
                loop {
                    match self.next_key(at, last.as_deref()) {
                        Ok(key) => {
                            entries.push(&key, &[]);
                            last = Some(key);
                        }
                        Err(Errno::NOENT) => break,
                        Err(error) => return Err(error),
                    }
                }
                self.map_mut(at)?.walk = Some(Walk::new(entries));
            }
        }
        let walk = self.map(at)?.walk.as_ref();
        Ok(walk.map(|walk| walk.entries().clone()).unwrap_or_default())
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
