//! A node's port and an agent's port for programs, taken for one another.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use antiphon_core::wire::frame::Kind;
use antiphon_core::{Class, PathTrouble};
use antiphon_net::{Input, Transport};
use common::{PATIENCE, codec, frame, send, tcp};
use tokio::io::AsyncWriteExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_at_a_nodes_port_is_told_so_in_what_it_speaks() {
    let (node, _inputs, addr) = tcp("127.0.0.1:0", |_| {});
    let long = format!("POST /x HTTP/1.1\r\n\r\n{}", "x".repeat(30_000));
    for (says, begins) in [
        ("GET / HTTP/1.1\r\nHost: shop\r\n\r\n", "HTTP/1.1 421 "),
        (long.as_str(), "HTTP/1.1 421 "),
        ("{\"hello\":{\"v\":1}}\n", "{\"event\":\"refused\","),
        ("*1\r\n$4\r\nPING\r\n", "-ERR "),
    ] {
        let mut program = TcpStream::connect(addr).expect("the port is open");
        program.write_all(says.as_bytes()).expect("it takes bytes");
        program.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let told = tokio::task::spawn_blocking(move || {
            let mut told = String::new();
            program.read_to_string(&mut told).map(|_| told)
        });
        let told = told.await.expect("no panic").expect("an end in order");
        assert!(
            told.starts_with(begins) && told.contains("programs connect to an agent's --listen"),
            "{told}"
        );
    }
    assert_eq!(node.counters().connections_refused, 4);
}

#[tokio::test]
async fn an_agents_port_that_is_dialled_as_a_nodes_is_told_before_the_trouble_with_it() {
    let (mut a, mut inputs, _) = tcp("127.0.0.1:0", |_| {});
    let agent = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let to = agent.local_addr().expect("an address");
    send(
        &mut a,
        to,
        Class::Control,
        frame(&mut codec(1), Kind::Control, "hello"),
    );
    let (mut stream, _) = agent.accept().await.expect("a connection");
    let refused = b"{\"event\":\"refused\",\"group\":null,\"reason\":\"no node\",\"fatal\":true}\n";
    stream.write_all(refused).await.expect("it takes bytes");
    let first = common::next(&mut inputs).await;
    assert!(
        matches!(first, Input::AgentPort { to: at } if at == to),
        "{first:?}"
    );
    let then = common::next(&mut inputs).await;
    let lost = matches!(then, Input::PathTrouble { to: at, trouble: PathTrouble::Lost } if at == to);
    assert!(lost, "{then:?}");
}
