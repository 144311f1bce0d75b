//! The instruments must do what they say, or the stories show nothing.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;

/// Runs something on a host.
fn on<T: Send + 'static>(network: &Network, host: usize, what: impl FnOnce() -> T + Send + 'static) -> T {
    let path = format!("/run/netns/{}", network.namespace(host));
    let entered = std::thread::spawn(move || {
        let namespace = File::open(&path).expect("the namespace is there");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter it");
        what()
    });
    entered.join().expect("nothing panics on the host")
}

fn dial(network: &Network, from: usize, to: usize) -> Result<TcpStream, ErrorKind> {
    let address = network.address(to);
    on(network, from, move || {
        TcpStream::connect_timeout(&address, Duration::from_millis(1500)).map_err(|e| e.kind())
    })
}

#[test]
fn cables_and_firewalls_do_what_they_say() {
    let network = match Network::new("aplab", 3, 1) {
        Ok(network) => network,
        Err(missing) => return eprintln!("SKIPPED: {missing}"),
    };
    let listeners: Vec<TcpListener> = (1..=3)
        .map(|host| {
            let address = network.address(host);
            on(&network, host, move || TcpListener::bind(address)).expect("the port is free")
        })
        .collect();
    let mut stream = dial(&network, 1, 2).expect("all are connected at first");
    let (mut far_end, _) = listeners[1].accept().expect("it was dialled");

    network.partition(&[&[1], &[2, 3]]);
    assert_eq!(
        dial(&network, 1, 2).err(),
        Some(ErrorKind::TimedOut),
        "a cut cable is silence"
    );
    assert_eq!(
        dial(&network, 3, 1).err(),
        Some(ErrorKind::TimedOut),
        "in both directions"
    );
    assert!(dial(&network, 2, 3).is_ok(), "one side stays connected");

    network.heal();
    assert!(dial(&network, 1, 2).is_ok(), "a mended cable works");

    network.drop_from_to(3, 1);
    assert_eq!(
        dial(&network, 1, 3).err(),
        Some(ErrorKind::TimedOut),
        "the answer is lost"
    );
    assert!(dial(&network, 1, 2).is_ok());
    network.heal();

    network.refuse(&[&[1], &[2, 3]], Refusal::Icmp);
    let refused = dial(&network, 1, 2).err();
    assert!(
        refused.is_some() && refused != Some(ErrorKind::TimedOut),
        "ICMP answers at once: {refused:?}"
    );
    assert!(dial(&network, 2, 3).is_ok());
    network.heal();

    far_end
        .write_all(b"still there")
        .expect("silence breaks no connection so soon");
    let mut heard = [0; 11];
    stream.read_exact(&mut heard).expect("it was written");

    network.refuse(&[&[1], &[2, 3]], Refusal::Reset);
    assert_eq!(
        dial(&network, 1, 2).err(),
        Some(ErrorKind::ConnectionRefused),
        "a reset refuses at once"
    );
    let _ = stream.write_all(b"x");
    let broken = stream.read(&mut heard).err().map(|e| e.kind());
    assert_eq!(
        broken,
        Some(ErrorKind::ConnectionReset),
        "and breaks what was connected"
    );
    network.heal();
    assert!(dial(&network, 1, 2).is_ok());

    network.lose_packets(1, 100);
    assert_eq!(
        dial(&network, 1, 2).err(),
        Some(ErrorKind::TimedOut),
        "all is lost"
    );
    assert_eq!(dial(&network, 2, 1).err(), Some(ErrorKind::TimedOut));
    network.lose_nothing(1);
    assert!(dial(&network, 1, 2).is_ok());

    let left = network.namespace(1);
    drop(network);
    let listed = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .expect("ip was there a moment ago")
        .stdout;
    assert!(
        !String::from_utf8_lossy(&listed).contains(&left),
        "nothing is left behind"
    );
}
