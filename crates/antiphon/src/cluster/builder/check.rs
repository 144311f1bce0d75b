//! What is wrong with settings that can be told before anything is opened or asked.

use std::net::SocketAddr;

use antiphon_core::{Enquirer, GroupOptions};

use super::Builder;
use super::addresses::{check_addresses_of, conflict, parse_all};
use crate::Error;

/// Where a node listens, and where the others reach it if that is said.
type Addresses = (Vec<SocketAddr>, Vec<SocketAddr>);

impl Builder {
    /// Whether a node with these settings and these resolved seeds could start and join groups with these
    /// options, as far as the settings alone tell. [`Builder::start`] and
    /// [`Cluster::group`](crate::Cluster::group) refuse the same, the latter when others have seen the node
    /// already.
    ///
    /// # Errors
    /// As theirs.
    #[doc(hidden)]
    pub fn check(&self, seeds: &[Vec<SocketAddr>], groups: &[(String, GroupOptions)]) -> Result<(), Error> {
        let (bind, advertise) = self.addresses()?;
        self.check_name()?;
        self.check_datagram()?;
        let (_, sources) = self.split_seeds()?;
        self.check_exposure(&bind, seeds)?;
        self.multicast_config(&bind)?;
        for source in sources.nodes() {
            self.announced_at(source, &bind)?;
        }
        let reached = match advertise.as_slice() {
            [] => with_ports(&bind),
            advertise => with_ports(advertise),
        };
        let config = self.core_config(self.name.as_deref().unwrap_or("node"), &reached, seeds);
        // It is asked nothing: it refuses what a node would refuse.
        Enquirer::new(&config, groups, [0; 3], Vec::new())
            .map(drop)
            .map_err(Error::Config)
    }

    /// Clients of a node are members by the name `NODE/CLIENT`, which must say which of the two is which.
    pub(super) fn check_name(&self) -> Result<(), Error> {
        match self.name.as_deref().filter(|name| name.contains('/')) {
            None => Ok(()),
            Some(name) => Err(conflict(format!(
                "name {name:?} must have no slash: clients of a node are called NODE/CLIENT"
            ))),
        }
    }

    /// The given addresses, or a port of its own on this host.
    pub(super) fn addresses(&self) -> Result<Addresses, Error> {
        let bind = match self.bind.as_slice() {
            [] => vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            given => parse_all(given)?,
        };
        let advertise = parse_all(&self.advertise)?;
        check_addresses_of(&bind, &advertise)?;
        Ok((bind, advertise))
    }

    /// Without a key all stays on this host.
    pub(super) fn check_exposure(&self, bind: &[SocketAddr], seeds: &[Vec<SocketAddr>]) -> Result<(), Error> {
        for bind in bind {
            self.check_loopback("bind", *bind)?;
        }
        for seed in seeds.iter().flatten() {
            self.check_loopback("seeds", *seed)?;
        }
        Ok(())
    }
}

/// Some port where the system is to choose one, a different one for each.
fn with_ports(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_given = |port: &u16| addrs.iter().any(|addr| addr.port() == *port);
    let mut free = (1..=u16::MAX).rev().filter(|port| !is_given(port));
    let with_port = |addr: &SocketAddr| match addr.port() {
        0 => SocketAddr::new(addr.ip(), free.next().unwrap_or(1)),
        _ => *addr,
    };
    addrs.iter().map(with_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;

    #[test]
    fn a_locator_that_is_given_often_is_one() {
        let node = Cluster::builder("c").name("n");
        let (_, found) = node.clone().locators(["127.0.0.1"; 17]).split_seeds().unwrap();
        assert!(!found.is_empty());
        let different = (1..18).map(|port| format!("127.0.0.1:{port}"));
        let error = node.locators(different).check(&[], &[]).unwrap_err().to_string();
        assert!(error.contains("`locators` has 17 sources"), "{error}");
    }

    #[test]
    fn what_a_node_would_refuse_later_is_refused_before_anything_is_opened() {
        let node = || Cluster::builder("c").name("n");
        let good = GroupOptions::default();
        let groups = |options| vec![("g".to_owned(), options)];
        node().check(&[], &groups(good)).unwrap();
        node()
            .bind("127.0.0.1:0")
            .bind("127.0.0.1:0")
            .check(&[], &groups(good))
            .unwrap();
        for (builder, options, expected) in [
            (node(), good.max_object_bytes(1), "`max_object_bytes` is 1"),
            (node().found().expect(2), good, "`found`"),
            (node().weight(0), good, "weight 0"),
            (node().max_datagram(9000), good, "`max_datagram`"),
            (
                node().locators(["10.0.0.9"]),
                good,
                "`locators` has 10.0.0.9:7410",
            ),
            (
                node().seeds(["multicast@10.0.0.9"]),
                good,
                "`seeds` multicast@10.0.0.9",
            ),
            (node().bind("127.0.0.1"), good, "an IP address and a port"),
            (node().metadata("", "x\n"), good, "metadata"),
        ] {
            let error = builder.check(&[], &groups(options)).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
