//! How an access or a barrier is described to a program: numbers of the context's fields, and the
//! words for them in selectors (`|kind=load,space=global`) and tables.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $number:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u32)]
        pub enum $name { $($(#[$item_doc])* $item = $number,)* }

        impl $name {
            /// All of them, by number.
            pub const ALL: &'static [$name] = &[$($name::$item),*];

            /// Its word in selectors and tables.
            pub const fn word(self) -> &'static str {
                match self { $($name::$item => $word,)* }
            }

            /// The one with this word.
            pub fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|item| item.word() == word)
            }
        }
    };
}

words! {
    /// What an access does. Numbers are those of the field `kind` of `gpu/mem`.
    Kind {
        /// `ld`, `ldu`
        Load = 1 "load",
        /// `st`
        Store = 2 "store",
        /// `atom`: gives back what was there.
        Atomic = 3 "atomic",
        /// `red`: as an atomic, with nothing given back.
        Reduction = 4 "reduction",
        /// `cp.async` of 4 to 16 bytes.
        AsyncCopy = 5 "async_copy",
        /// `cp.async.bulk`, `cp.reduce.async.bulk`: a run of bytes, by one thread.
        BulkCopy = 6 "bulk_copy",
        /// `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`: a box of a tensor, by one thread.
        TensorCopy = 7 "tensor_copy",
        /// `ldmatrix`: the row that this lane points to.
        MatrixLoad = 8 "matrix_load",
        /// `stmatrix`
        MatrixStore = 9 "matrix_store",
        /// `wmma.load`: the address of the whole matrix.
        WmmaLoad = 10 "wmma_load",
        /// `wmma.store`
        WmmaStore = 11 "wmma_store",
        /// `prefetch`, `cp.async.bulk.prefetch`: moves lines between caches, gives nothing.
        Prefetch = 12 "prefetch",
        /// `tex`, `tld4`: the texture's handle stands in for an address.
        Texture = 13 "texture",
        /// `suld`
        SurfaceLoad = 14 "surface_load",
        /// `sust`, `sured`
        SurfaceStore = 15 "surface_store",
        /// An instruction with an address that this version does not know.
        Other = 16 "other",
    }
}

words! {
    /// The state space of an access, PTX ISA "State Spaces". Numbers are those of the field
    /// `space`.
    Space {
        /// No space is named: the address says which.
        Generic = 0 "generic",
        /// `.global`
        Global = 1 "global",
        /// `.shared`, `.shared::cta`
        Shared = 2 "shared",
        /// `.shared::cluster`: another block's, too.
        Cluster = 3 "cluster",
        /// `.local`
        Local = 4 "local",
        /// `.const`
        Const = 5 "const",
        /// `.param`
        Param = 6 "param",
        /// Textures and surfaces.
        Texture = 7 "texture",
    }
}

words! {
    /// The cache operator or ordering that an access asks for, PTX ISA "Cache Operators" and
    /// "Memory Consistency Model".
    Cache {
        /// None named.
        Default = 0 "default",
        /// `.ca`
        Ca = 1 "ca",
        /// `.cg`
        Cg = 2 "cg",
        /// `.cs`
        Cs = 3 "cs",
        /// `.lu`
        Lu = 4 "lu",
        /// `.cv`
        Cv = 5 "cv",
        /// `.wb`
        Wb = 6 "wb",
        /// `.wt`
        Wt = 7 "wt",
        /// `.nc`: read-only data.
        Nc = 8 "nc",
        /// `.volatile`
        Volatile = 9 "volatile",
        /// `.relaxed`
        Relaxed = 10 "relaxed",
        /// `.acquire`
        Acquire = 11 "acquire",
        /// `.release`
        Release = 12 "release",
        /// `.acq_rel`
        AcqRel = 13 "acq_rel",
        /// `.mmio`
        Mmio = 14 "mmio",
    }
}

words! {
    /// A barrier. Numbers are those of the field `kind` of `gpu/barrier`.
    Barrier {
        /// `bar.sync`, `barrier.sync`, and those that reduce: arrive and wait.
        Sync = 1 "sync",
        /// `bar.arrive`: does not wait.
        Arrive = 2 "arrive",
        /// `bar.warp.sync`
        Warp = 3 "warp",
        /// `barrier.cluster.arrive`
        ClusterArrive = 4 "cluster_arrive",
        /// `barrier.cluster.wait`
        ClusterWait = 5 "cluster_wait",
        /// `mbarrier.arrive` and its forms.
        MbarrierArrive = 6 "mbarrier_arrive",
        /// `mbarrier.try_wait`, `mbarrier.test_wait`: one try; a loop around it waits.
        MbarrierWait = 7 "mbarrier_wait",
        /// `cp.async.wait_group`, `cp.async.bulk.wait_group`, `wgmma.wait_group`: waits for this
        /// thread's own work.
        GroupWait = 8 "group_wait",
    }
}
