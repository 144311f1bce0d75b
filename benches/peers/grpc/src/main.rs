//! gRPC by tonic, without generated code: a message is its bytes.
//!
//! `grpc serve ADDR BYTES` answers each call with so many bytes, and prints "serves" when it does. `grpc call
//! ADDR WARMUP_S MEASURED_S` calls, one call after the other, and prints "done" and a JSON object with
//! "p50_us" and "p99_us". Server and client have one thread each.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

/// What it is compared with has it, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let bytes = from.remaining();
        Ok(Some(from.copy_to_bytes(bytes)))
    }
}

/// Answers with a value.
#[derive(Clone)]
struct Get(Bytes);

impl NamedService for Get {
    const NAME: &'static str = "bench.Get";
}

impl UnaryService<Bytes> for Get {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}

impl tower_service::Service<http::Request<Body>> for Get {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let get = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(get, request).await) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr, bytes] => runtime.block_on(serve(addr.parse()?, bytes.parse()?)),
        ["call", addr, warmup, measured] => runtime.block_on(call(addr, warmup.parse()?, measured.parse()?)),
        _ => Err("serve ADDR BYTES, or call ADDR WARMUP_S MEASURED_S".into()),
    }
}

async fn serve(addr: SocketAddr, bytes: usize) -> Result<(), Box<dyn Error>> {
    let incoming = tonic::transport::server::TcpIncoming::bind(addr)?.with_nodelay(Some(true));
    println!("serves");
    let get = Get(vec![b'x'; bytes].into());
    Ok(Server::builder()
        .add_service(get)
        .serve_with_incoming(incoming)
        .await?)
}

async fn call(addr: &str, warmup: u64, measured: u64) -> Result<(), Box<dyn Error>> {
    let channel = Endpoint::new(format!("http://{addr}"))?
        .tcp_nodelay(true)
        .connect()
        .await?;
    let mut client = tonic::client::Grpc::new(channel);
    let from = Instant::now() + Duration::from_secs(warmup);
    let until = from + Duration::from_secs(measured);
    let mut took = Vec::new();
    loop {
        let began = Instant::now();
        if began >= until {
            break;
        }
        client.ready().await?;
        let path = PathAndQuery::from_static("/bench.Get/get");
        client
            .unary(Request::new(Bytes::from_static(&[0; 8])), path, Raw)
            .await?;
        if began >= from {
            took.push(began.elapsed());
        }
    }
    took.sort_unstable();
    let quantile = |part: f64| {
        let at = (took.len() as f64 * part) as usize;
        took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e6)
    };
    println!(
        "done {{\"p50_us\":{:.2},\"p99_us\":{:.2}}}",
        quantile(0.5),
        quantile(0.99)
    );
    Ok(())
}
