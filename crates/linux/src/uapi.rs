//! Numbers of Linux's interface that no other crate knows: commands of `bpf()`, types of programs,
//! offsets in `union bpf_attr` and in what `BPF_OBJ_GET_INFO_BY_FD` answers
//! (`include/uapi/linux/bpf.h`, `perf_event.h` of Linux 6.12).

/// Commands of `bpf()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are Linux's without `BPF_`")]
pub enum Command {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    MapGetNextKey = 4,
    ProgLoad = 5,
    ObjPin = 6,
    ObjGet = 7,
    ProgAttach = 8,
    ProgDetach = 9,
    ProgTestRun = 10,
    ProgGetNextId = 11,
    MapGetNextId = 12,
    ProgGetFdById = 13,
    MapGetFdById = 14,
    ObjGetInfoByFd = 15,
    ProgQuery = 16,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfGetFdById = 19,
    TaskFdQuery = 20,
    MapLookupAndDeleteElem = 21,
    MapFreeze = 22,
    BtfGetNextId = 23,
    MapLookupBatch = 24,
    MapLookupAndDeleteBatch = 25,
    MapUpdateBatch = 26,
    MapDeleteBatch = 27,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    EnableStats = 32,
    IterCreate = 33,
    LinkDetach = 34,
    ProgBindMap = 35,
}

const COMMANDS: [Command; 36] = [
    Command::MapCreate,
    Command::MapLookupElem,
    Command::MapUpdateElem,
    Command::MapDeleteElem,
    Command::MapGetNextKey,
    Command::ProgLoad,
    Command::ObjPin,
    Command::ObjGet,
    Command::ProgAttach,
    Command::ProgDetach,
    Command::ProgTestRun,
    Command::ProgGetNextId,
    Command::MapGetNextId,
    Command::ProgGetFdById,
    Command::MapGetFdById,
    Command::ObjGetInfoByFd,
    Command::ProgQuery,
    Command::RawTracepointOpen,
    Command::BtfLoad,
    Command::BtfGetFdById,
    Command::TaskFdQuery,
    Command::MapLookupAndDeleteElem,
    Command::MapFreeze,
    Command::BtfGetNextId,
    Command::MapLookupBatch,
    Command::MapLookupAndDeleteBatch,
    Command::MapUpdateBatch,
    Command::MapDeleteBatch,
    Command::LinkCreate,
    Command::LinkUpdate,
    Command::LinkGetFdById,
    Command::LinkGetNextId,
    Command::EnableStats,
    Command::IterCreate,
    Command::LinkDetach,
    Command::ProgBindMap,
];

impl Command {
    /// The command with this number.
    pub fn from_number(number: u32) -> Option<Command> {
        COMMANDS.get(number as usize).copied()
    }
}

/// Program types that something here depends on.
pub mod prog_type {
    /// Probes of functions, which GPU programs are loaded as.
    pub const KPROBE: u32 = 2;
    /// Probes of tracepoints.
    pub const TRACEPOINT: u32 = 5;
    /// At raw tracepoints.
    pub const RAW_TRACEPOINT: u32 = 17;
    /// The same, which may write.
    pub const RAW_TRACEPOINT_WRITABLE: u32 = 24;
    /// `fentry`, `fexit`, `iter`, `tp_btf`.
    pub const TRACING: u32 = 26;
    /// In place of functions of the kernel.
    pub const STRUCT_OPS: u32 = 27;
    /// In place of other programs.
    pub const EXT: u32 = 28;
    /// At hooks of security modules.
    pub const LSM: u32 = 29;
    /// Those that are attached in ways of their own: without Linux there is nothing that could look
    /// like an attachment.
    pub const OF_LINUX: &[u32] = &[
        RAW_TRACEPOINT,
        RAW_TRACEPOINT_WRITABLE,
        TRACING,
        STRUCT_OPS,
        EXT,
        LSM,
    ];
    /// The highest number that Linux knows.
    pub const LAST: u32 = 32;
}

/// The highest map type that Linux knows (`BPF_MAP_TYPE_ARENA`).
pub const LAST_MAP_TYPE: u32 = 33;

/// Map types that only programs of the host use, and what they hold.
pub mod map_type {
    /// Programs by index.
    pub const PROG_ARRAY: u32 = 3;
    /// Stacks by number.
    pub const STACK_TRACE: u32 = 7;
}

/// `BPF_F_MMAPABLE`.
pub const F_MMAPABLE: u32 = 1 << 10;
/// `BPF_F_RDONLY`: not to be written by `bpf()`.
pub const F_RDONLY: u32 = 1 << 3;
/// `BPF_F_WRONLY`: not to be read by `bpf()`.
pub const F_WRONLY: u32 = 1 << 4;
/// `BPF_F_LOCK`, a flag of operations.
pub const F_LOCK: u64 = 4;

/// `BPF_F_SLEEPABLE`, of programs.
pub const F_SLEEPABLE: u32 = 1 << 4;

/// `enum bpf_attach_type`: `tp_btf`.
pub const ATTACH_TRACE_RAW_TP: u32 = 23;
/// The same: `fentry`.
pub const ATTACH_TRACE_FENTRY: u32 = 24;
/// The same: `fexit`.
pub const ATTACH_TRACE_FEXIT: u32 = 25;
/// The same: a program at a perf event.
pub const ATTACH_PERF_EVENT: u32 = 41;
/// `enum bpf_link_type`: the same.
pub const LINK_TYPE_PERF_EVENT: u32 = 7;

/// Offsets of `union bpf_attr`, by the names of its parts and fields.
#[expect(missing_docs, reason = "the names are Linux's")]
pub mod attr {
    /// Bytes of all that is known here; what is longer must be zero.
    pub const SIZE: usize = 152;
    pub mod map {
        pub const TYPE: usize = 0;
        pub const KEY_SIZE: usize = 4;
        pub const VALUE_SIZE: usize = 8;
        pub const MAX_ENTRIES: usize = 12;
        pub const FLAGS: usize = 16;
        pub const INNER_MAP_FD: usize = 20;
        pub const NAME: usize = 28;
        pub const BTF_FD: usize = 48;
        pub const KEY_TYPE: usize = 52;
        pub const VALUE_TYPE: usize = 56;
        pub const EXTRA: usize = 64;
    }
    pub mod elem {
        pub const MAP_FD: usize = 0;
        pub const KEY: usize = 8;
        pub const VALUE: usize = 16;
        pub const FLAGS: usize = 24;
    }
    pub mod batch {
        pub const IN: usize = 0;
        pub const OUT: usize = 8;
        pub const KEYS: usize = 16;
        pub const VALUES: usize = 24;
        pub const COUNT: usize = 32;
        pub const MAP_FD: usize = 36;
        pub const ELEM_FLAGS: usize = 40;
        pub const FLAGS: usize = 48;
    }
    pub mod prog {
        pub const TYPE: usize = 0;
        pub const INSN_COUNT: usize = 4;
        pub const INSNS: usize = 8;
        pub const LICENSE: usize = 16;
        pub const LOG_LEVEL: usize = 24;
        pub const LOG_SIZE: usize = 28;
        pub const LOG: usize = 32;
        pub const FLAGS: usize = 44;
        pub const NAME: usize = 48;
        pub const ATTACH_TYPE: usize = 68;
        pub const BTF_FD: usize = 72;
        pub const FUNC_INFO_SIZE: usize = 76;
        pub const FUNC_INFO: usize = 80;
        pub const FUNC_INFO_COUNT: usize = 88;
        pub const LINE_INFO_SIZE: usize = 92;
        pub const LINE_INFO: usize = 96;
        pub const LINE_INFO_COUNT: usize = 104;
        pub const ATTACH_BTF_ID: usize = 108;
        pub const ATTACH_BTF_OBJ_FD: usize = 112;
        pub const FD_ARRAY: usize = 120;
        pub const LOG_TRUE_SIZE: usize = 140;
        pub const FD_ARRAY_COUNT: usize = 148;
    }
    pub mod prog_attach {
        pub const PROG_FD: usize = 4;
    }
    pub mod raw_tracepoint {
        pub const NAME: usize = 0;
        pub const PROG_FD: usize = 8;
    }
    pub mod obj {
        pub const PATH: usize = 0;
        pub const FD: usize = 8;
    }
    pub mod id {
        pub const START: usize = 0;
        pub const NEXT: usize = 4;
    }
    pub mod info {
        pub const FD: usize = 0;
        pub const LENGTH: usize = 4;
        pub const INFO: usize = 8;
    }
    pub mod btf {
        pub const BTF: usize = 0;
        pub const LOG: usize = 8;
        pub const SIZE: usize = 16;
        pub const LOG_SIZE: usize = 20;
        pub const LOG_LEVEL: usize = 24;
        pub const LOG_TRUE_SIZE: usize = 28;
    }
    pub mod link {
        pub const PROG_FD: usize = 0;
        pub const TARGET_FD: usize = 4;
        pub const ATTACH_TYPE: usize = 8;
        pub const FLAGS: usize = 12;
        pub const COOKIE: usize = 16;
    }
    pub mod link_update {
        pub const LINK_FD: usize = 0;
        pub const NEW_PROG_FD: usize = 4;
        pub const FLAGS: usize = 8;
        pub const OLD_PROG_FD: usize = 12;
    }
    pub mod test {
        pub const PROG_FD: usize = 0;
        pub const RETVAL: usize = 4;
        pub const DATA_SIZE_IN: usize = 8;
        pub const DATA_SIZE_OUT: usize = 12;
        pub const REPEAT: usize = 32;
        pub const DURATION: usize = 36;
        pub const CTX_SIZE_IN: usize = 40;
        pub const CTX_SIZE_OUT: usize = 44;
        pub const CTX_IN: usize = 48;
        pub const CTX_OUT: usize = 56;
        pub const FLAGS: usize = 64;
        pub const CPU: usize = 68;
        pub const BATCH_SIZE: usize = 72;
    }
    pub mod bind {
        pub const PROG_FD: usize = 0;
        pub const MAP_FD: usize = 4;
    }
}

/// `src_reg` of an `lddw`: what its immediate is.
pub mod pseudo {
    /// A map's descriptor.
    pub const MAP_FD: u8 = 1;
    /// The same, and in the second half an offset in the map's value.
    pub const MAP_VALUE: u8 = 2;
    /// An index in `fd_array`.
    pub const MAP_INDEX: u8 = 5;
    /// The same, and an offset.
    pub const MAP_INDEX_VALUE: u8 = 6;
}

/// `struct perf_event_attr` and its ring.
#[expect(missing_docs, reason = "the names are Linux's")]
pub mod perf {
    pub const TYPE: usize = 0;
    pub const SIZE: usize = 4;
    pub const CONFIG: usize = 8;
    pub const SAMPLE_PERIOD: usize = 16;
    pub const SAMPLE_TYPE: usize = 24;
    /// `PERF_SAMPLE_RAW`.
    pub const SAMPLE_RAW: u64 = 1 << 10;
    /// `kprobe_func`, `uprobe_path`.
    pub const CONFIG1: usize = 56;
    /// `probe_offset`.
    pub const CONFIG2: usize = 64;
    /// Bytes that are looked at.
    pub const ATTR_SIZE: usize = 72;
    /// `PERF_FLAG_FD_CLOEXEC`.
    pub const FD_CLOEXEC: u64 = 8;
    pub const TYPE_SOFTWARE: u32 = 1;
    pub const TYPE_TRACEPOINT: u32 = 2;
    pub const COUNT_SW_BPF_OUTPUT: u64 = 10;
    pub const IOC_ENABLE: u64 = 0x2400;
    pub const IOC_DISABLE: u64 = 0x2401;
    pub const IOC_SET_BPF: u64 = 0x4004_2408;
    /// In `struct perf_event_mmap_page`.
    pub const DATA_HEAD: u64 = 1024;
    pub const DATA_TAIL: u64 = 1032;
    pub const DATA_OFFSET: u64 = 1040;
    pub const DATA_SIZE: u64 = 1048;
    pub const RECORD_LOST: u32 = 2;
    pub const RECORD_SAMPLE: u32 = 9;
}

/// Header of a record in a `BPF_MAP_TYPE_RINGBUF`.
#[expect(missing_docs, reason = "the names are Linux's")]
pub mod ringbuf {
    use rustix::io::Errno;

    /// Bytes of data of a ring with so many `max_entries`: a power of two, and whole pages.
    ///
    /// # Errors
    /// `EINVAL` for any other number, as in Linux.
    pub fn data_size(max_entries: u32) -> Result<u64, Errno> {
        let size = u64::from(max_entries);
        if !size.is_power_of_two() || !size.is_multiple_of(crate::memory::PAGE) {
            return Err(Errno::INVAL);
        }
        Ok(size)
    }

    pub const BUSY: u32 = 1 << 31;
    pub const DISCARD: u32 = 1 << 30;
    pub const HEADER: u64 = 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_numbers() {
        for (number, command) in COMMANDS.iter().enumerate() {
            assert_eq!(*command as usize, number);
        }
        assert_eq!(Command::from_number(18), Some(Command::BtfLoad));
        assert_eq!(Command::from_number(36), None);
    }
}
