//! `bpf()`: which command is for whom.

use rustix::io::Errno;

use crate::kernel::Kernel;
use crate::tool::attr::Attr;
use crate::tool::user::User;
use crate::uapi::Command;

impl Kernel {
    /// `bpf(command, attr, size)`.
    ///
    /// # Errors
    /// What Linux says to the same.
    pub fn bpf(
        &mut self,
        number: u32,
        address: u64,
        size: u32,
        user: &dyn User,
    ) -> Result<i64, Errno> {
        let attr = Attr::read(user, address, size)?;
        let command = Command::from_number(number).ok_or(Errno::INVAL)?;
        if let Some(answer) = self.forwarded(command, &attr, user) {
            return answer;
        }
        match command {
            Command::MapCreate => self.map_create(&attr),
            Command::MapLookupElem => self.map_lookup(&attr, user),
            Command::MapUpdateElem => self.map_update(&attr, user),
            Command::MapDeleteElem => self.map_delete(&attr, user),
            Command::MapGetNextKey => self.map_next_key(&attr, user),
            Command::MapLookupAndDeleteElem => self.map_take(&attr, user),
            Command::MapFreeze => self.map_freeze(&attr),
            Command::MapLookupBatch => self.map_lookup_batch(&attr, user, false),
            Command::MapLookupAndDeleteBatch => self.map_lookup_batch(&attr, user, true),
            Command::MapUpdateBatch => self.map_update_batch(&attr, user),
            Command::MapDeleteBatch => self.map_delete_batch(&attr, user),
            Command::ProgLoad => self.prog_load(&attr, user),
            Command::ProgBindMap => self.prog_bind_map(&attr),
            Command::ProgTestRun => self.prog_test_run(&attr, user),
            Command::BtfLoad => self.btf_load(&attr, user),
            Command::ObjPin => self.pin(&attr, user),
            Command::ObjGet => self.get_pinned(&attr, user),
            Command::ObjGetInfoByFd => self.info(&attr, user),
            Command::ProgGetNextId
            | Command::MapGetNextId
            | Command::BtfGetNextId
            | Command::LinkGetNextId => self.next_id(command, &attr, user),
            Command::ProgGetFdById
            | Command::MapGetFdById
            | Command::BtfGetFdById
            | Command::LinkGetFdById => self.fd_by_id(command, &attr),
            Command::LinkCreate => self.link_create(&attr),
            Command::LinkUpdate => self.link_update(&attr),
            Command::LinkDetach => self.link_detach(&attr),
            Command::EnableStats => self.open(None),
            Command::RawTracepointOpen
            | Command::ProgAttach
            | Command::ProgDetach
            | Command::IterCreate => {
                (self.config.tell)(&format!(
                    "the tool asks for {command:?}, which is for programs of Linux, and this one is none, or `bpf()` is not permitted"
                ));
                Err(Errno::OPNOTSUPP)
            }
            // Nothing is attached in those ways.
            Command::ProgQuery | Command::TaskFdQuery => Err(Errno::OPNOTSUPP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Tool;

    #[test]
    fn what_is_not_known_is_refused_as_linux_does() {
        let mut tool = Tool::new();
        let at = tool.attr(&[]);
        let memory = &tool.memory;
        assert_eq!(tool.kernel.bpf(99, at, 144, memory), Err(Errno::INVAL));
        assert_eq!(tool.kernel.bpf(0, 8, 144, memory), Err(Errno::FAULT));
        assert_eq!(tool.kernel.bpf(0, at, 5000, memory), Err(Errno::TOOBIG));
        let long = memory.put(&[1; 512]);
        assert_eq!(tool.kernel.bpf(0, long, 512, memory), Err(Errno::TOOBIG));
        for command in [Command::RawTracepointOpen, Command::ProgAttach] {
            assert_eq!(tool.call(command, &[]), Err(Errno::OPNOTSUPP));
        }
    }
}
