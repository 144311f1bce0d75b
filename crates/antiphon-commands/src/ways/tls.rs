//! TLS below a way. A peer's certificate is for the *name of its node*: that is what the view knows of it.

use std::fmt;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Boxed, Endpoint, Lost, Stream, not_sent};

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
