//! TLS of an agent: its certificates and its key, and the authorities of its clients'.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

#[derive(Debug)]
pub(crate) struct Certificates {
    config: Arc<ServerConfig>,
    own: CertificateDer<'static>,
    asks_clients: bool,
}

impl Certificates {
    /// Reads them, and checks that they fit each other. With authorities a client may show a certificate, or
    /// must.
    pub(super) fn read(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        clients_must: bool,
    ) -> Result<Self, String> {
        let chain = all("certificate file", certificate)?;
        let own = chain[0].clone();
        let text = super::read_file("key file", key, true)?;
        let key_of = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            format!(
                "key file {}: {error}; expected a private key in PEM",
                key.display()
            )
        })?;
        // The provider is named: the process has no default one.
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let refused =
                    |error: &dyn std::fmt::Display| format!("client authorities {}: {error}", path.display());
                let mut roots = RootCertStore::empty();
                for authority in all("client authorities", path)? {
                    roots.add(authority).map_err(|error| refused(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match clients_must {
                    true => verifier,
                    false => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| refused(&error))?)
            }
        };
        let config = builder.with_single_cert(chain, key_of).map_err(|error| {
            format!(
                "certificate {} and key {}: {error}",
                certificate.display(),
                key.display()
            )
        })?;
        Ok(Self {
            config: Arc::new(config),
            own,
            asks_clients: client_ca.is_some(),
        })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether clients may show certificates.
    pub(super) fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Whether they are for this name or address.
    pub(super) fn are_for(&self, host: &str) -> bool {
        let (Ok(own), Ok(name)) = (ParsedCertificate::try_from(&self.own), ServerName::try_from(host)) else {
            return false;
        };
        verify_server_name(&own, &name).is_ok()
    }
}

/// All certificates of a file: at least one.
fn all(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = super::read_file(what, path, false)?;
    let shown = path.display();
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| format!("{what} {shown}: {error}; expected certificates in PEM"))?;
    match all.is_empty() {
        false => Ok(all),
        true => Err(format!(
            "{what} {shown}: there is no certificate in it; expected PEM"
        )),
    }
}
