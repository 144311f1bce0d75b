//! What can be set, and the limits that go with it.

use std::time::Duration;

/// How a [`Replica`](super::Replica) works. `digest_every`, `found_anew` and `agreed` are the same at
/// all members: they are compared when a member joins.
#[derive(Debug, Clone)]
pub struct Config {
    /// A joiner holds at most so many bytes of messages in memory while it waits for the state. Designed for
    /// half a second of a full 1 Gbit/s. What is more goes to a file, from half of this on; if that is full
    /// as well, or slower than what is delivered, the joiner leaves with the reason `state-overrun`.
    pub held_bytes: usize,
    /// The file has at most so many bytes; 0: no file. It is the owner's: without one that does what
    /// [`Replica::poll_spill`](super::Replica::poll_spill) says, all stays in memory. Designed for ten
    /// seconds of a full 1 Gbit/s.
    pub spill_bytes: u64,
    /// A joiner takes no larger state.
    pub max_state_bytes: u64,
    /// A source has at most so many bytes of the state under way to one joiner, and reads about as many
    /// ahead. It begins with an eighth, and takes more while no queue shows, so that writes are not held up.
    /// Below the 1 MiB that a group takes of direct messages for one member, so that acknowledgements to the
    /// same member find room. It bounds the rate over a long path: 38 MB/s where an answer takes 20 ms.
    pub transfer_bytes: usize,
    /// Requests of this member that wait for their answer; more are refused as full. At least 1.
    pub max_requests: usize,
    /// Bytes of commands that wait to be sent; more are refused as full. One command is always taken.
    pub max_queued_bytes: usize,
    /// A longer command is refused. Below the 1 MiB that a message may have, and below the group's window:
    /// what is larger goes as an object, which messages overtake, and replicas count on the order of a
    /// sender.
    pub max_command_bytes: usize,
    /// Members compare digests after each so many commands; 0: never.
    pub digest_every: u64,
    /// The last member with the state waits so long for a joiner that receives it before it leaves.
    pub leave_timeout: Duration,
    /// If no member with the state is left, the most senior member founds it anew, with the machine as it was
    /// made. Otherwise the members report the loss and refuse writes.
    pub found_anew: bool,
    /// The owner sends ordered messages as agreed ones, and not as safe ones.
    pub agreed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            held_bytes: 64 << 20,
            spill_bytes: 1 << 30,
            max_state_bytes: 1 << 30,
            transfer_bytes: 768 << 10,
            max_requests: 4096,
            max_queued_bytes: 8 << 20,
            max_command_bytes: (1 << 20) - 256,
            digest_every: 1024,
            leave_timeout: Duration::from_secs(10),
            found_anew: false,
            agreed: false,
        }
    }
}
