//! The file of what a joiner holds beyond its memory: an operation takes a while, and the disk may fail.

use antiphon_core::Time;
use antiphon_replica::{Spill, SpillId};

use super::*;

/// The file, and what is being done with it.
#[derive(Debug, Default)]
pub(super) struct Disk {
    bytes: Vec<u8>,
    doing: Option<Doing>,
    failed: bool,
}

#[derive(Debug)]
struct Doing {
    due: Micros,
    spill: SpillId,
    outcome: Result<Bytes, String>,
}

impl Disk {
    /// When what is being done is done.
    pub(super) fn due(&self) -> Option<Micros> {
        self.doing.as_ref().map(|doing| doing.due)
    }

    /// Whether an operation has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (begin, end) = (at as usize, at as usize + bytes.len());
        self.bytes.resize(end.max(self.bytes.len()), 0);
        self.bytes[begin..end].copy_from_slice(bytes);
    }

    fn read(&self, at: u64, length: usize) -> Bytes {
        let read = self.bytes.get(at as usize..at as usize + length);
        Bytes::copy_from_slice(read.unwrap_or_default())
    }
}

impl World {
    /// Tells the replica what is done, and does what it wants next. Whether there was anything.
    pub(super) fn use_disk(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        it: &mut Replicating,
        now: Time,
    ) -> bool {
        let Some(plan) = self.plan.replicated.as_ref() else {
            return false;
        };
        let (bound, takes, fails) = (plan.spill_bytes, plan.disk, plan.disk_fails_percent);
        let done = it.disk.doing.take_if(|doing| doing.due <= self.now);
        let mut any = done.is_some();
        if let Some(Doing { spill, outcome, .. }) = done {
            it.replica.handle_spilled(now, spill, outcome);
        }
        if it.disk.doing.is_none()
            && let Some((spill, wanted)) = it.replica.poll_spill()
        {
            any = true;
            let bytes = match wanted {
                Spill::Write { at, bytes } => {
                    self.count("replica_spilled");
                    it.disk.write(at, &bytes);
                    Bytes::new()
                }
                Spill::Read { at, length } => {
                    self.count("replica_read_back");
                    it.disk.read(at, length)
                }
            };
            let fails = fails > 0 && self.random.percent(fails);
            it.disk.failed |= fails;
            it.disk.doing = Some(Doing {
                due: self.now + 1 + self.random.below(takes.max(1)),
                spill,
                outcome: match fails {
                    true => Err("the disk fails".to_owned()),
                    false => Ok(bytes),
                },
            });
        }
        let most = it.disk.bytes.len() as u64;
        if most > bound {
            let what = format!("its file has {most} bytes, the limit is {bound}");
            self.note(id, Seen::Replica(group, Deed::Wrong(what)));
        }
        any
    }
}
