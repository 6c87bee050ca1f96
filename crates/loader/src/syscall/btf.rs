//! `BPF_BTF_LOAD`.

use rustix::io::Errno;

use crate::kernel::Kernel;
use crate::objects::btf::Btf;
use crate::objects::handle::Handle;
use crate::tool::attr::Attr;
use crate::tool::log::Log;
use crate::tool::user::User;
use crate::uapi::attr;

/// Most bytes of types that Linux takes.
const LIMIT: u32 = 16 << 20;

impl Kernel {
    pub(crate) fn btf_load(&mut self, a: &Attr, user: &dyn User) -> Result<i64, Errno> {
        let size = a.u32(attr::btf::SIZE);
        if size > LIMIT {
            return Err(Errno::TOOBIG);
        }
        let bytes = user.bytes(a.u64(attr::btf::BTF), size as usize)?;
        let log = Log {
            address: a.u64(attr::btf::LOG),
            size: a.u32(attr::btf::LOG_SIZE),
            level: a.u32(attr::btf::LOG_LEVEL),
        };
        match warpbpf_object::Btf::parse(&bytes) {
            Ok(_) => {
                let at = self.btfs.add(Btf {
                    bytes: bytes.into(),
                    in_linux: None,
                });
                let wrote = log.write(user, "");
                a.answer(user, attr::btf::LOG_TRUE_SIZE, wrote?)?;
                self.open(Some(Handle::Btf(at)))
            }
            Err(error) => {
                let wrote = log.write(user, &format!("{error}\n"))?;
                a.answer(user, attr::btf::LOG_TRUE_SIZE, wrote)?;
                Err(Errno::INVAL)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Tool;
    use crate::uapi::Command;

    #[test]
    fn types_that_cannot_be_read_are_refused_with_a_reason() {
        let mut tool = Tool::new();
        let bad = tool.memory.put(b"no types at all, and quite long enough");
        let log = tool.memory.put(&[0xff; 64]);
        let load = |tool: &mut Tool, level: u32| {
            tool.call(
                Command::BtfLoad,
                &[
                    (attr::btf::BTF, &bad.to_ne_bytes()),
                    (attr::btf::SIZE, &38u32.to_ne_bytes()),
                    (attr::btf::LOG, &log.to_ne_bytes()),
                    (attr::btf::LOG_SIZE, &64u32.to_ne_bytes()),
                    (attr::btf::LOG_LEVEL, &level.to_ne_bytes()),
                ],
            )
        };
        assert_eq!(load(&mut tool, 0), Err(Errno::INVAL));
        assert_eq!(tool.memory.get(log, 1), [0xff]);
        assert_eq!(load(&mut tool, 1), Err(Errno::INVAL));
        let said = tool.memory.text(log, 256).unwrap();
        assert!(said.contains("0x6f6e") || said.contains("magic"), "{said}");
    }
}
