//! Whether UDP passes to each node that answers, and back: the doctor sends a hello and waits for its answer.
//!
//! Nothing fails without UDP. Then messages go by TCP, and so do heartbeats, which may be silent for seconds
//! where packets are lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon::Transport;
use antiphon_net::udp::{Greeted, greet};
use tokio::task::JoinSet;

use super::report::{Report, Step};
use super::seeds::Enquiries;
use crate::settings::Settings;

/// What this node would send by UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Udp {
    Messages,
    Probes,
    Nothing,
}

impl Udp {
    pub(super) fn of(settings: &Settings) -> Self {
        match settings.transport {
            Transport::Udp => Udp::Messages,
            _ if settings.udp_probes => Udp::Probes,
            _ => Udp::Nothing,
        }
    }

    /// What goes otherwise if it does not pass.
    fn instead(self) -> &'static str {
        match self {
            Udp::Messages => "messages to it go by TCP",
            _ => "heartbeats go by TCP alone, which is silent for seconds where packets are lost",
        }
    }
}

impl Enquiries {
    /// Greets all that took a question.
    pub(super) async fn greet(&self, report: &mut Report) {
        if self.udp == Udp::Nothing {
            return report.add(Step::skipped(
                "udp",
                "",
                "this node would send nothing by UDP (--transport tcp, --udp-probes=false)",
            ));
        }
        let mut greeting = JoinSet::new();
        for asked in self
            .asked
            .iter()
            .filter(|asked| asked.took_it() && !asked.locator)
        {
            let (to, from, within) = (asked.addr, self.port.reached_at[0], self.within);
            greeting.spawn(async move { (to, greet(to, from, within).await) });
        }
        if greeting.is_empty() {
            return report.add(Step::skipped("udp", "", "no node has taken a question"));
        }
        let mut greeted = BTreeMap::new();
        while let Some(Ok((to, found))) = greeting.join_next().await {
            greeted.insert(to, found);
        }
        for (to, found) in greeted {
            report.add(told(self.udp, to, found));
        }
    }
}

fn told(udp: Udp, to: SocketAddr, greeted: Greeted) -> Step {
    let instead = udp.instead();
    let warning = |code, cause: String, remedy: &str| {
        Step::failed("udp", code, to, format!("{cause}: {instead}"), remedy).but_harmless()
    };
    match greeted {
        Greeted::Welcome { after } | Greeted::ForProbes { after } if udp == Udp::Probes => {
            let ms = after.as_secs_f64() * 1000.0;
            Step::ok(
                "udp",
                to,
                format!("passes both ways: a datagram is answered in {ms:.1} ms"),
            )
        }
        Greeted::Welcome { after } => Step::ok(
            "udp",
            to,
            format!("answers a datagram in {:.1} ms", after.as_secs_f64() * 1000.0),
        ),
        Greeted::ForProbes { .. } => warning(
            "udp-transport",
            "UDP passes both ways, and the node there takes no messages by it".to_owned(),
            "start it with --transport udp as well, if messages to it are to go by UDP",
        ),
        Greeted::Refused => warning(
            "udp-refused",
            "nothing takes datagrams there".to_owned(),
            "the node there runs with --transport tcp and --udp-probes=false, or its UDP port was taken when it started (its log says so), or a firewall rejects UDP",
        ),
        Greeted::Silent => warning(
            "udp-silent",
            "no answer to a datagram, while TCP passes".to_owned(),
            "let UDP through on the port of the node as well as TCP, both ways, in the firewalls here, there and between (an older node that takes probes alone does not answer either)",
        ),
        Greeted::Unreachable(error) => warning(
            "udp-unreachable",
            format!("the system cannot send there ({error})"),
            antiphon::Lack::of(&error).map_or(
                "mend the route or the interface of this host",
                antiphon::Lack::remedy,
            ),
        ),
        _ => warning(
            "udp-stranger",
            "something else than Antiphon takes datagrams there".to_owned(),
            "look which process has that UDP port, and stop it or give the node another --bind",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_finding_has_a_word_a_cause_and_a_remedy_and_none_fails_a_node() {
        let to = SocketAddr::from(([127, 0, 0, 1], 7400));
        let after = Duration::from_millis(2);
        for udp in [Udp::Messages, Udp::Probes] {
            let step = |greeted| told(udp, to, greeted);
            assert_eq!(step(Greeted::Welcome { after }).code(), None);
            let probes = step(Greeted::ForProbes { after });
            assert_eq!(probes.code(), (udp == Udp::Messages).then_some("udp-transport"));
            for (greeted, code) in [
                (Greeted::Refused, "udp-refused"),
                (Greeted::Silent, "udp-silent"),
                (Greeted::Stranger, "udp-stranger"),
                (
                    Greeted::Unreachable(std::io::ErrorKind::NetworkUnreachable.into()),
                    "udp-unreachable",
                ),
            ] {
                let step = step(greeted);
                assert_eq!(step.code(), Some(code));
                assert!(step.text().contains("by TCP") && !step.is_failed(), "{step:?}");
            }
        }
    }
}
