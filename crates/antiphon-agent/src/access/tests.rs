use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Certificates for tests: the script beside them makes them.
fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("antiphon-access-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// All that an agent beyond its host needs.
    fn files(&self) -> Files {
        let copy = |name: &str| self.file(name, &fs::read(tls(name)).unwrap(), 0o600);
        Files {
            certificate: Some(copy("agent.pem")),
            key: Some(copy("agent.key")),
            client_ca: None,
            tokens: Some(self.file("tokens", FIRST.as_bytes(), 0o600)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const FIRST: &str = "0123456789abcdef0123456789abcdef";
const SECOND: &str = "fedcba9876543210fedcba9876543210";

fn refused(files: &Files) -> String {
    Access::read(files).unwrap_err()
}

#[test]
fn a_secret_that_every_user_may_read_is_refused() {
    let folder = Folder::new("modes");
    let files = folder.files();
    for secret in [files.key.as_ref().unwrap(), files.tokens.as_ref().unwrap()] {
        for (mode, expected) in [(0o644, false), (0o602, false), (0o640, true), (0o400, true)] {
            fs::set_permissions(secret, fs::Permissions::from_mode(mode)).unwrap();
            let read = Access::read(&files);
            assert_eq!(read.is_ok(), expected, "{secret:?} {mode:o}");
            if let Err(reason) = read {
                assert!(
                    reason.contains("chmod 600") && reason.contains(&format!("{mode:o}")),
                    "{reason}"
                );
            }
        }
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn what_is_no_file_or_too_large_is_not_waited_for() {
    let folder = Folder::new("kinds");
    let mut files = folder.files();
    for (path, expected) in [
        ("/dev/zero", "is no file"),
        ("/nonexistent/tokens", "cannot read"),
        (folder.0.to_str().unwrap(), "is no file"),
    ] {
        files.tokens = Some(path.into());
        assert!(refused(&files).contains(expected), "{}", refused(&files));
    }
    let long = vec![b'#'; MAX_FILE_BYTES as usize + 1];
    files.tokens = Some(folder.file("long", &long, 0o600));
    assert!(refused(&files).contains("more than 1048576 bytes"));
    let pipe = folder.0.join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    files.tokens = Some(pipe);
    assert!(refused(&files).contains("is no file"));
}

#[test]
fn certificates_and_keys_that_do_not_fit_are_refused() {
    let folder = Folder::new("pairs");
    let good = folder.files();
    let with = |change: &dyn Fn(&mut Files)| {
        let mut files = good.clone();
        change(&mut files);
        refused(&files)
    };
    let other = folder.file("other.key", &fs::read(tls("client.key")).unwrap(), 0o600);
    let text = folder.file("text", b"no PEM", 0o600);
    assert!(with(&|files| files.key = None).contains("give tls-key"));
    assert!(with(&|files| files.certificate = None).contains("give tls-cert"));
    let reason = with(&|files| files.key = Some(other.clone()));
    assert!(
        reason.contains("agent.pem") && reason.contains("other.key"),
        "{reason}"
    );
    assert!(with(&|files| files.key = Some(text.clone())).contains("private key in PEM"));
    assert!(with(&|files| files.certificate = Some(text.clone())).contains("no certificate"));
    assert!(with(&|files| files.client_ca = Some(text.clone())).contains("no certificate"));
    let without = Files {
        client_ca: Some(tls("ca.pem")),
        ..Files::default()
    };
    assert!(refused(&without).contains("give tls-cert"));
}

#[test]
fn beyond_the_host_it_takes_tls_and_a_token_or_certificates_of_clients() {
    let folder = Folder::new("enough");
    let all = folder.files();
    let is_enough = |files: &Files| Access::read(files).unwrap().is_enough_for_strangers();
    assert!(is_enough(&all));
    let tokens = Files {
        tokens: all.tokens.clone(),
        ..Files::default()
    };
    assert!(!is_enough(&tokens) && !is_enough(&Files::default()));
    let tls_alone = Files {
        tokens: None,
        ..all.clone()
    };
    assert!(!is_enough(&tls_alone));
    let mutual = Files {
        client_ca: Some(tls("ca.pem")),
        ..tls_alone
    };
    assert!(is_enough(&mutual));
}

#[test]
fn a_host_is_called_by_the_names_of_its_certificate() {
    let folder = Folder::new("names");
    let files = folder.files();
    let access = Access::read(&files).unwrap();
    let visitor = access.stranger(Arc::default()).unwrap();
    for (host, expected) in [
        ("agent.example", true),
        ("a.agents.example", true),
        ("10.1.2.3", true),
        ("evil.example", false),
        ("10.1.2.4", false),
        ("", false),
        ("agent.example ", false),
    ] {
        assert_eq!(visitor.is_called(host), expected, "{host}");
    }
    assert!(
        !Access::default()
            .stranger(Arc::default())
            .unwrap()
            .is_called("agent.example")
    );
}

#[tokio::test(start_paused = true)]
async fn a_reload_takes_new_files_and_keeps_the_old_where_a_file_is_bad() {
    let folder = Folder::new("reload");
    let files = folder.files();
    let access = Access::read(&files).unwrap();
    let visitor = access.stranger(Arc::default()).unwrap();
    assert!(visitor.needs_token());
    assert_eq!(visitor.admit(None).await, Err(Denied::Missing));
    let begun = tokio::time::Instant::now();
    assert_eq!(visitor.admit(Some(SECOND.as_bytes())).await, Err(Denied::Wrong));
    assert_eq!(begun.elapsed(), WRONG_WAITS);
    assert_eq!(visitor.admit(Some(FIRST.as_bytes())).await, Ok(()));
    // Both while they are rotated, then the new one alone.
    folder.file("tokens", format!("{FIRST}\n{SECOND}\n").as_bytes(), 0o600);
    let said = access.reload(&files);
    assert_eq!(said, [Ok("certificates".to_owned()), Ok("tokens: 2".to_owned())]);
    for token in [FIRST, SECOND] {
        assert_eq!(visitor.admit(Some(token.as_bytes())).await, Ok(()));
    }
    folder.file("tokens", SECOND.as_bytes(), 0o600);
    folder.file("agent.pem", b"cut off", 0o600);
    let said = access.reload(&files);
    assert!(
        said[0]
            .as_ref()
            .is_err_and(|reason| reason.contains("stay in force")),
        "{said:?}"
    );
    assert_eq!(said[1], Ok("tokens: 1".to_owned()));
    assert_eq!(visitor.admit(Some(FIRST.as_bytes())).await, Err(Denied::Wrong));
    assert!(access.certificates().is_some());
    folder.file("tokens", b"short", 0o600);
    assert!(access.reload(&files)[1].is_err());
    assert_eq!(visitor.admit(Some(SECOND.as_bytes())).await, Ok(()));
}

#[tokio::test]
async fn a_reload_never_asks_for_less_than_before() {
    let folder = Folder::new("weaker");
    let files = folder.files();
    let access = Access::read(&files).unwrap();
    let without_tokens = Files {
        tokens: None,
        ..files.clone()
    };
    let said = access.reload(&without_tokens);
    assert!(
        said[1].as_ref().is_err_and(|reason| reason.contains("restart")),
        "{said:?}"
    );
    let said = access.reload(&Files::default());
    assert!(said.iter().all(Result::is_err) && said.len() == 2, "{said:?}");
    let mut authorities = files.clone();
    authorities.client_ca = Some(tls("ca.pem"));
    assert!(access.reload(&authorities)[0].is_err());
    assert!(access.is_enough_for_strangers());
    assert!(access.stranger(Arc::default()).unwrap().needs_token());
}

#[tokio::test]
async fn strangers_are_bounded_and_those_that_have_shown_a_token_are_none() {
    let folder = Folder::new("strangers");
    let access = Access::read(&folder.files()).unwrap();
    let mut strangers: Vec<_> = (0..MAX_STRANGERS)
        .map(|_| access.stranger(Arc::default()).unwrap())
        .collect();
    assert!(access.stranger(Arc::default()).is_none());
    strangers[0].admit(Some(FIRST.as_bytes())).await.unwrap();
    let _another = access.stranger(Arc::default()).unwrap();
    assert!(access.stranger(Arc::default()).is_none());
    strangers[1].trust();
    assert!(!strangers[1].needs_token());
    assert!(access.stranger(Arc::default()).is_some());
    // Where nothing is asked for, there are none.
    let open = Access::default();
    let all: Vec<_> = (0..=MAX_STRANGERS)
        .map(|_| open.stranger(Arc::default()))
        .collect();
    assert!(all.iter().all(Option::is_some));
}
