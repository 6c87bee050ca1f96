//! How objects are named: by their kind and their place in the table of that.

/// A kind of object, and its place in the table of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Handle {
    Map(usize),
    Prog(usize),
    Link(usize),
    Btf(usize),
    Perf(usize),
}

/// Objects of one kind by place. Places are never used twice, so a place and 1 is an id, and order
/// is order of creation.
#[derive(Debug)]
pub struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Vec::new())
    }
}

impl<T> Table<T> {
    /// Puts one in and says where.
    pub fn add(&mut self, value: T) -> usize {
        self.0.push(Some(value));
        self.0.len() - 1
    }
    /// The one at a place.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at)?.as_ref()
    }
    /// The one at a place.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.0.get_mut(at)?.as_mut()
    }
    /// All with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (self.0.iter().enumerate()).filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }
    /// Drops those at other places.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        for (at, value) in self.0.iter_mut().enumerate() {
            if value.is_some() && !keep(at) {
                *value = None;
            }
        }
    }
}
