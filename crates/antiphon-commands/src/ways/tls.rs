//! TLS below a way. A peer's certificate is for the *name of its node*: that is what the view knows of it.
//!
//! # Renewal
//! The files are read again while the node runs, all of them before anything changes: one that cannot be
//! used changes nothing. A handshake is by what is in force when it begins. A connection that is there stays;
//! but a node asks no more by one that it keeps from before, for its peer may have been known by an authority
//! that is not trusted any more.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Boxed, Endpoint, Lost, Stream, not_sent};
use crate::list::ListError;

/// How a node shows what it is at its gate, and knows its peers at theirs. A cheap handle.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Force>>);

/// What is in force.
#[derive(Clone)]
struct Force {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// How often it was renewed.
    renewal: u64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// With the certificate of this node, for its name, and those by which its peers' are signed.
    pub fn new(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Self {
        Self(Arc::new(RwLock::new(Force {
            acceptor: server.into(),
            connector: client.into(),
            renewal: 0,
        })))
    }

    /// Reads both from files in PEM.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(certificate: &Path, key: &Path, authorities: &Path) -> Result<Self, ListError> {
        let (server, client) = configs(certificate, key, authorities)?;
        Ok(Self::new(server, client))
    }

    /// Reads both again, perhaps from other files. They hold from here on for all that have this handle.
    ///
    /// # Errors
    /// Which file cannot be used, and why. The former ones hold.
    pub fn renew(&self, certificate: &Path, key: &Path, authorities: &Path) -> Result<(), ListError> {
        let (server, client) = configs(certificate, key, authorities)?;
        let mut force = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *force = Force {
            acceptor: server.into(),
            connector: client.into(),
            renewal: force.renewal + 1,
        };
        Ok(())
    }

    fn force(&self) -> Force {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often it was renewed.
    pub(crate) fn renewal(&self) -> u64 {
        self.force().renewal
    }

    pub(crate) async fn connect(&self, stream: TcpStream, to: &Endpoint) -> Result<Boxed, Lost> {
        let name = ServerName::try_from(to.name.clone())
            .map_err(|_| not_sent(format_args!("a node named {} can have no certificate", to.name)))?;
        let stream = self.force().connector.connect(name, stream).await;
        Ok(Box::new(
            stream.map_err(|error| not_sent(format_args!("TLS: {error}")))?,
        ))
    }

    pub(crate) async fn accept(&self, stream: impl Stream + 'static) -> std::io::Result<Boxed> {
        Ok(Box::new(self.force().acceptor.accept(stream).await?))
    }
}

/// What the files say, if all of them can be used, and fit each other.
fn configs(
    certificate: &Path,
    key: &Path,
    authorities: &Path,
) -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), ListError> {
    let of = |path: &Path, reason: &dyn fmt::Display| ListError(format!("{}: {reason}", path.display()));
    let certificates = |path: &Path| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| of(path, &error));
        match all {
            Ok(all) if all.is_empty() => Err(of(path, &"it has no certificate")),
            all => all,
        }
    };
    let chain = certificates(certificate)?;
    let mut roots = RootCertStore::empty();
    for root in certificates(authorities)? {
        roots.add(root).map_err(|error| of(authorities, &error))?;
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, &error))?;
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| of(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| of(certificate, &error))?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| of(authorities, &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}
