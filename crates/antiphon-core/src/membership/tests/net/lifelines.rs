//! The lifelines of the tiny network: what is written arrives in order, however long it takes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::Incarnation;

use super::{Connection, LATENCY, Net, Parcel, Written, index};
use crate::{DialId, LifelineCommand, LifelineEnd};

impl Net {
    pub(super) fn lifeline(&mut self, node: usize, me: Incarnation, process: u64, command: LifelineCommand) {
        let find = |net: &Net, dial: DialId| {
            net.connections
                .iter()
                .find(|(_, connection)| {
                    connection.writer_process == process
                        && connection.dial == dial
                        && !matches!(connection.written.back(), Some(Written::End(_)))
                })
                .map(|(id, _)| *id)
        };
        match command {
            LifelineCommand::Open { dial, addr, .. } => {
                let watcher = index(addr);
                let target = self.hosts.get(watcher).and_then(Option::as_ref);
                let reachable = !self.cut.contains(&(node, watcher)) && !self.cut.contains(&(watcher, node));
                match target.filter(|target| reachable && !target.stopped) {
                    Some(target) => {
                        self.next += 1;
                        let connection = self.next;
                        let port = 20_000 + u16::try_from(connection % 30_000).unwrap();
                        let entry = Connection {
                            written: VecDeque::new(),
                            writer: node,
                            writer_process: process,
                            watcher,
                            watcher_process: target.process,
                            dial,
                            local: SocketAddr::from(([127, 0, 0, 1], port)),
                        };
                        self.connections.insert(connection, entry);
                        let opened = Parcel::Opened { dial, connection };
                        self.post(LATENCY, node, me, node, Some(process), opened);
                    }
                    None => self.post(
                        LATENCY * 3,
                        node,
                        me,
                        node,
                        Some(process),
                        Parcel::Failed { dial },
                    ),
                }
            }
            LifelineCommand::Write { dial, record } => {
                if let Some(connection) = find(self, dial) {
                    self.write(connection, me, Written::Record(record));
                }
            }
            LifelineCommand::Reset { dial } => {
                if let Some(connection) = find(self, dial) {
                    self.write(connection, me, Written::End(LifelineEnd::Broken));
                }
            }
        }
    }

    pub(super) fn write(&mut self, connection: u64, writer: Incarnation, written: Written) {
        let Some(open) = self.connections.get_mut(&connection) else {
            return;
        };
        open.written.push_back(written);
        let (from, to, process) = (open.writer, open.watcher, open.watcher_process);
        self.post(
            LATENCY,
            from,
            writer,
            to,
            Some(process),
            Parcel::Stream { connection },
        );
    }
}

impl Net {
    /// What goes by the channels from one node to another takes this long from now on, unlike
    /// what goes by lifelines.
    pub(in crate::membership::tests) fn delay(&mut self, from: usize, to: usize, by: Duration) {
        let on_the_way = self.queue.iter().filter(|(_, delivery)| {
            let goes = (delivery.from, delivery.to) == (from, to);
            goes && matches!(delivery.parcel, Parcel::Message { .. })
        });
        let soon: Vec<_> = on_the_way.map(|(at, _)| *at).collect();
        for at in soon {
            if let Some(delivery) = self.queue.remove(&at) {
                self.queue.insert((self.now + by, at.1), delivery);
            }
        }
    }
}
