//! What is lost between the members of a story, by the texts of messages.

use antiphon_wire::group::GroupData;

use super::world::{Id, World};

/// The text of the first message that a record brings, if it brings one.
pub(super) fn text(record: &GroupData) -> Option<String> {
    match record {
        GroupData::Batch { messages, .. } | GroupData::Repair { messages, .. } => {
            let first = messages.iter().next()?;
            Some(String::from_utf8_lossy(first).into_owned())
        }
        _ => None,
    }
}

impl World {
    /// From here on, loses what begins with these texts of a sender on its way to these members, and all
    /// questions that are asked of the sender.
    pub(super) fn lose(&mut self, sender: Id, lost: &'static [(Id, &'static str)]) {
        self.drop_data = Some(Box::new(move |from, to, record| {
            let named = |(who, what): &(Id, &str)| *who == to && text(record).as_deref() == Some(*what);
            from == sender && lost.iter().any(named)
                || to == sender && matches!(record, GroupData::Nak { .. })
        }));
    }

    /// Sends these texts, each in a block of its own.
    pub(super) fn send_each(&mut self, sender: Id, texts: &[&str]) {
        for text in texts {
            self.send(sender, text).unwrap();
            self.run(2);
        }
    }
}
