//! A lock with fencing: the file that it protects refuses a token lower than the highest that it has seen, so
//! a holder that was stopped and does not know that it lost the lock does no harm.
//!
//! `cargo run -p antiphon --example fenced_lock`

use std::sync::Mutex;

use antiphon::memory::MemoryNetwork;
use antiphon::replicated::locks::Token;
use antiphon::{Cluster, Locks, Profile};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What the lock protects, wherever it is: a file server, a database.
#[derive(Default)]
struct Store(Mutex<(Token, Vec<String>)>);

impl Store {
    /// Appends a line, unless a holder with a higher token was here before.
    fn append(&self, token: Token, line: &str) -> std::result::Result<(), String> {
        let mut store = self.0.lock().map_err(|error| error.to_string())?;
        if token < store.0 {
            return Err(format!("token {token} is older than {}", store.0));
        }
        store.0 = token;
        store.1.push(line.to_owned());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let network = MemoryNetwork::new();
    let node = |name: &str| {
        let builder = Cluster::builder("bank").name(name).bind("10.0.0.1:0");
        builder.memory(&network).profile(Profile::local())
    };
    let a = node("a").found().join().await?;
    let b = node("b").seeds([a.addr()]).join().await?;
    // A majority of three goes on without one.
    let c = node("c").seeds([a.addr()]).join().await?;
    let (of_a, of_b): (Locks, Locks) = (a.locks("locks").join().await?, b.locks("locks").join().await?);
    let store = Store::default();

    let first = of_a.lock("ledger").await?;
    store.append(first.token(), "a was here")?;
    // The node of the holder dies, with a write still on its way: say, in the queue of a network card.
    let on_its_way = first.token();
    a.abort();
    let second = of_b.lock("ledger").await?;
    assert!(!first.is_held() && second.is_held() && second.token() > on_its_way);
    store.append(second.token(), "b was here")?;
    let refused = store.append(on_its_way, "a was here, late");
    println!("refused: {}", refused.expect_err("it is fenced"));
    println!(
        "the ledger says {:?}",
        store.0.lock().map_err(|error| error.to_string())?.1
    );
    second.unlock().await?;
    b.leave().await?;
    c.leave().await?;
    Ok(())
}
