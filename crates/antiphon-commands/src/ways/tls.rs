//! TLS below a way. A peer's certificate is for the *name of its node*: that is what the view knows of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Boxed, Endpoint, Lost, Stream, not_sent};
use crate::list::ListError;

/// How a node shows what it is at its gate, and knows its peers at theirs.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// With the certificate of this node, for its name, and those by which its peers' are signed.
    pub fn new(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Self {
        Self {
            acceptor: server.into(),
            connector: client.into(),
        }
    }

    /// Reads both from files in PEM.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(certificate: &Path, key: &Path, authorities: &Path) -> Result<Self, ListError> {
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
        Ok(Self::new(Arc::new(server), Arc::new(client)))
    }

    pub(crate) async fn connect(&self, stream: TcpStream, to: &Endpoint) -> Result<Boxed, Lost> {
        let name = ServerName::try_from(to.name.clone())
            .map_err(|_| not_sent(format_args!("a node named {} can have no certificate", to.name)))?;
        let stream = self.connector.connect(name, stream).await;
        Ok(Box::new(
            stream.map_err(|error| not_sent(format_args!("TLS: {error}")))?,
        ))
    }

    pub(crate) async fn accept(&self, stream: impl Stream + 'static) -> std::io::Result<Boxed> {
        Ok(Box::new(self.acceptor.accept(stream).await?))
    }
}
