//! One look at a source, to learn what a node would find there.

use std::fmt;
use std::net::SocketAddr;

use super::board::admit;
use super::source::{Kind, Source};
use super::{Resolver, dns, file};

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Looked {
    /// The addresses.
    pub found: Vec<SocketAddr>,
    /// What is wrong, if something is: with all of it, if nothing was found.
    pub problem: Option<String>,
}

/// `10.0.0.1:7400, 10.0.0.2:7400`, and what is wrong.
impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found: Vec<String> = self.found.iter().map(ToString::to_string).collect();
        match found.as_slice() {
            [] => f.write_str("nobody")?,
            found => f.write_str(&found.join(", "))?,
        }
        match &self.problem {
            Some(problem) => write!(f, "; {problem}"),
            None => Ok(()),
        }
    }
}

impl Source {
    /// Looks once, as a node does again and again; names are asked of these DNS servers, or of the system's
    /// if there are none. It takes at most a few seconds for each name. `None` if there is nothing to look
    /// at: `multicast`, and a source of the application's own, find nothing before another node or the
    /// application speaks.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn look(&self, dns_servers: &[SocketAddr]) -> Option<Looked> {
        let resolver = match Resolver::new(dns_servers) {
            Ok(resolver) => resolver,
            Err(problem) => return Some(Looked::nothing(problem)),
        };
        let kinds = match &self.0 {
            Kind::Multicast { .. } | Kind::Own { .. } => return None,
            Kind::File { path, port } => match file::entries(path, *port).await {
                Ok(kinds) => kinds,
                Err(problem) => return Some(Looked::nothing(format!("{}: {problem}", path.display()))),
            },
            kind @ (Kind::Fixed(_) | Kind::Dns { .. } | Kind::Srv { .. }) => vec![kind.clone()],
        };
        let (found, problem) = dns::Names::default().resolve(&kinds, &resolver).await;
        Some(Looked { found, problem })
    }
}

impl Looked {
    /// What of it a node uses: addresses that can be dialled, and without a key and leave to trust the
    /// network (`confined`) those of the loopback interface alone. What is left out is said as its problem.
    pub fn admitted(mut self, confined: bool) -> Self {
        self.found = admit(confined, self.found, &mut self.problem);
        self
    }

    fn nothing(problem: String) -> Self {
        Self {
            found: Vec::new(),
            problem: Some(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_looked_at_once_and_what_is_wrong_is_said() {
        let folder = std::env::temp_dir().join(format!("antiphon-look-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("nodes");
        let source = Source::file(&path);
        let missing = source.look(&[]).await.unwrap();
        assert!(missing.found.is_empty());
        assert!(missing.problem.unwrap().contains("cannot be read"));
        std::fs::write(&path, "127.0.0.1:7400\n# none\n[::1]:7401\n").unwrap();
        let looked = source.look(&[]).await.unwrap();
        assert_eq!(
            looked.found,
            ["127.0.0.1:7400".parse().unwrap(), "[::1]:7401".parse().unwrap()]
        );
        assert_eq!(looked.problem, None);
        std::fs::write(&path, "127.0.0.1:7400\nno address!\n").unwrap();
        let spoilt = source.look(&[]).await.unwrap();
        assert!(spoilt.found.is_empty(), "half a list is none");
        assert!(spoilt.problem.unwrap().contains("line 2"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn of_multicast_nothing_is_known_before_somebody_speaks() {
        let source: Source = "multicast@127.0.0.1".parse().unwrap();
        assert_eq!(source.look(&[]).await, None);
        let (_, own) = crate::discovery::channel("catalogue");
        assert_eq!(own.look(&[]).await, None);
    }
}
