//! What a program must show before it is served over TCP: a token, or a certificate.
//!
//! ```text
//!   files ─► read, reload ─► Access ─┬─► certificates: TLS, and the clients' own
//!                                    └─► tokens ◄── HTTP Authorization, RESP AUTH, {"hello":{"token"}}
//!   connection ─► Visitor: trusted, or not yet ─► admit(token)
//! ```
//! # Rules
//! - Beyond loopback addresses nothing is served without TLS, and without a token or a client's certificate.
//! - Where tokens are in force, the agent trusts a connection that shows a token, or a certificate that the
//!   authorities of `--tls-client-ca` have signed: one of both is enough. With authorities and without
//!   tokens, a client without a certificate does not get through the handshake.
//! - At the Unix socket the kernel names the user; nothing more is to be shown there.
//!
//! # Reload
//! Certificates are replaced as a whole, and so are tokens: if a file is bad, nothing of it is used, and the
//! old ones stay in force. Trusted connections stay trusted. A reload changes which tokens, certificates and
//! authorities are in force, never whether they are asked for: that needs a restart, since listeners depend
//! on it.
//!
//! # Bounds
//! At most [`MAX_STRANGERS`] connections have shown nothing yet, each for the times of its carrier. A wrong
//! token is answered after [`WRONG_WAITS`]. A file has at most [`MAX_FILE_BYTES`].

mod certificates;
mod tokens;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::certificates::Certificates;
use self::tokens::Tokens;
use crate::metrics::{Failed, Meters};

/// Connections that have not shown what they must yet.
pub const MAX_STRANGERS: usize = 1024;
/// How long the answer to a wrong token waits.
pub const WRONG_WAITS: Duration = Duration::from_secs(1);
/// A larger file is a mistake.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where what is asked for stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The agent's certificates, its own first: PEM.
    pub certificate: Option<PathBuf>,
    /// The key of the first: PEM.
    pub key: Option<PathBuf>,
    /// The authorities that sign certificates of clients: PEM.
    pub client_ca: Option<PathBuf>,
    /// The tokens, one a line.
    pub tokens: Option<PathBuf>,
}

/// What a program must show. A cheap handle; what is in force may change while programs are served.
#[derive(Debug, Clone)]
pub struct Access(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    force: RwLock<Force>,
    strangers: Arc<Semaphore>,
}

/// What is in force.
#[derive(Debug, Clone, Default)]
struct Force {
    certificates: Option<Arc<Certificates>>,
    tokens: Option<Arc<Tokens>>,
}

impl Default for Access {
    fn default() -> Self {
        Self::of(Force::default())
    }
}

impl Access {
    /// Reads what is asked for. By default nothing is, and only loopback addresses are listened at.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(files: &Files) -> Result<Self, String> {
        Ok(Self::of(Force {
            certificates: read_certificates(files, files.tokens.is_none())?.map(Arc::new),
            tokens: read_tokens(files)?.map(Arc::new),
        }))
    }

    fn of(force: Force) -> Self {
        Self(Arc::new(Inner {
            force: RwLock::new(force),
            strangers: Arc::new(Semaphore::new(MAX_STRANGERS)),
        }))
    }

    /// Reads all files again. Each line says what is in force now, or why the old stays in force.
    pub fn reload(&self, files: &Files) -> Vec<Result<String, String>> {
        let now = self.force();
        let mut said = Vec::new();
        // As at the start: a client without a certificate is asked for a token, if there are tokens.
        match read_certificates(files, now.tokens.is_none()) {
            Ok(new) if asks(&new) != asks(&now.certificates.as_deref()) => {
                said.push(Err("tls-cert, tls-key and tls-client-ca cannot be given or left out while an agent runs: restart it".to_owned()));
            }
            Ok(Some(new)) => {
                self.change(|force| force.certificates = Some(Arc::new(new)));
                said.push(Ok("certificates".to_owned()));
            }
            Ok(None) => {}
            Err(reason) => said.push(Err(format!("{reason}; the certificates before stay in force"))),
        }
        match read_tokens(files) {
            Ok(new) if new.is_some() != now.tokens.is_some() => {
                said.push(Err(
                    "token-file cannot be given or left out while an agent runs: restart it".to_owned(),
                ));
            }
            Ok(Some(new)) => {
                let count = new.len();
                self.change(|force| force.tokens = Some(Arc::new(new)));
                said.push(Ok(format!("tokens: {count}")));
            }
            Ok(None) => {}
            Err(reason) => said.push(Err(format!("{reason}; the tokens before stay in force"))),
        }
        said
    }

    /// Whether programs of other hosts may be let in.
    pub(crate) fn is_enough_for_strangers(&self) -> bool {
        let force = self.force();
        let certificates = force.certificates.as_ref();
        certificates.is_some_and(|tls| force.tokens.is_some() || tls.asks_clients())
    }

    #[cfg(test)]
    pub(crate) fn certificates(&self) -> Option<Arc<Certificates>> {
        self.force().certificates
    }

    /// A connection over TCP that has shown nothing yet; none if there are too many of them.
    pub(crate) fn stranger(&self, meters: Arc<Meters>) -> Option<Visitor> {
        let force = self.force();
        let place = match force.certificates.is_some() || force.tokens.is_some() {
            true => Some(self.0.strangers.clone().try_acquire_owned().ok()?),
            false => None,
        };
        Some(Visitor {
            access: self.clone(),
            meters,
            is_trusted: false,
            certificates: force.certificates,
            place: Mutex::new(place),
            _seat: None,
        })
    }

    /// A connection that the kernel has named.
    pub(crate) fn local(&self, meters: Arc<Meters>) -> Visitor {
        Visitor {
            access: self.clone(),
            meters,
            is_trusted: true,
            certificates: None,
            place: Mutex::default(),
            _seat: None,
        }
    }

    fn force(&self) -> Force {
        let force = self.0.force.read().unwrap_or_else(PoisonError::into_inner);
        force.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Force)) {
        change(&mut self.0.force.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Whether there is TLS, and whether clients may show certificates.
fn asks(certificates: &Option<impl std::borrow::Borrow<Certificates>>) -> Option<bool> {
    let certificates = certificates.as_ref();
    certificates.map(|certificates| certificates.borrow().asks_clients())
}

/// A connection, and what it has shown.
#[derive(Debug)]
pub(crate) struct Visitor {
    access: Access,
    meters: Arc<Meters>,
    is_trusted: bool,
    certificates: Option<Arc<Certificates>>,
    /// Among those that have shown nothing.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    /// Among all connections.
    _seat: Option<OwnedSemaphorePermit>,
}

/// Why a token does not let a connection in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    Missing,
    Wrong,
}

impl Visitor {
    /// It keeps this place among all connections, whatever becomes of it.
    pub(crate) fn seated(self, seat: OwnedSemaphorePermit) -> Self {
        let _seat = Some(seat);
        Self { _seat, ..self }
    }

    /// With which its handshake is made, if it makes one.
    pub(crate) fn certificates(&self) -> Option<Arc<Certificates>> {
        self.certificates.clone()
    }

    /// It has shown a certificate in its handshake.
    pub(crate) fn trust(&mut self) {
        self.is_trusted = true;
        self.settle();
    }

    /// Whether it must show a token.
    pub(crate) fn needs_token(&self) -> bool {
        let needs = !self.is_trusted && self.knows_tokens();
        if !needs {
            self.settle();
        }
        needs
    }

    /// Whether it has shown nothing yet, and has to.
    pub(crate) fn is_stranger(&self) -> bool {
        self.place().is_some()
    }

    /// Whether there are tokens at all.
    pub(crate) fn knows_tokens(&self) -> bool {
        self.access.force().tokens.is_some()
    }

    /// Whether this token lets it in, if it needs one. A wrong one is answered only after a while.
    pub(crate) async fn admit(&self, token: Option<&[u8]>) -> Result<(), Denied> {
        if !self.needs_token() {
            return Ok(());
        }
        let tokens = self.access.force().tokens;
        match token {
            None => {
                self.missed();
                Err(Denied::Missing)
            }
            Some(token) if tokens.is_some_and(|tokens| tokens.have(token)) => {
                self.settle();
                Ok(())
            }
            Some(_) => {
                self.meters.denied(Failed::Wrong);
                tracing::debug!(target: "antiphon::agent", "a program has shown a wrong token");
                tokio::time::sleep(WRONG_WAITS).await;
                Err(Denied::Wrong)
            }
        }
    }

    /// It asked for something without a token.
    pub(crate) fn missed(&self) {
        self.meters.denied(Failed::Missing);
    }

    /// Whether the agent's certificate is for this name.
    pub(crate) fn is_called(&self, host: &str) -> bool {
        let certificates = self.certificates.as_ref();
        certificates.is_some_and(|certificates| certificates.are_for(host))
    }

    /// Its place is for another one.
    fn settle(&self) {
        self.place().take();
    }

    fn place(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_certificates(files: &Files, clients_must: bool) -> Result<Option<Certificates>, String> {
    let (certificate, key) = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            return match &files.client_ca {
                Some(_) => Err(
                    "tls-client-ca is for TLS: give tls-cert and tls-key with it, or leave it out".to_owned(),
                ),
                None => Ok(None),
            };
        }
        (Some(_), None) => return Err("tls-cert needs its key: give tls-key".to_owned()),
        (None, Some(_)) => return Err("tls-key needs its certificate: give tls-cert".to_owned()),
    };
    let client_ca = files.client_ca.as_deref();
    Certificates::read(certificate, key, client_ca, clients_must).map(Some)
}

fn read_tokens(files: &Files) -> Result<Option<Tokens>, String> {
    let tokens = files.tokens.as_deref().map(Tokens::read);
    tokens.transpose()
}

/// Reads a file within its bound. One that is secret must not be open to every user of the host.
fn read_file(what: &str, path: &Path, is_secret: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {what} {shown}: {error}");
    // A pipe would be waited for.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(format!("{what} {shown} is no file"));
    }
    // The bits of the file's group are not checked: with access lists, which systemd gives to credentials,
    // these bits belong to the lists.
    if is_secret && found.mode() & 0o007 != 0 {
        return Err(format!(
            "{what} {shown} is open to every user of this host (mode {:03o}): `chmod 600 {shown}`",
            found.mode() & 0o777
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "{what} {shown} has more than {MAX_FILE_BYTES} bytes: is it one?"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
