//! A TCP proxy that misbehaves on demand, between a server and its Redis or between a client and its server.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::{
    io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// What the proxy does with the bytes, those of connections that are open already included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Passes them on.
    Pass,
    /// Passes requests on, and hangs up instead of passing on what comes back: the work is done, nobody knows.
    CutAnswers,
    /// Passes requests on, and keeps what comes back: the work is done, and whoever asked still waits.
    KeepAnswers,
    /// Hangs up on every connection.
    Refuse,
    /// Keeps every connection open and loses what arrives, as a network that drops packets does.
    BlackHole,
}

/// A proxy on a free port, at first passing everything. It ends with the value, and its connections with it.
pub(crate) struct Proxy {
    address: SocketAddr,
    upstream: watch::Sender<Upstream>,
    traffic: watch::Sender<Traffic>,
    cuts: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to the Redis at `url`; reach it by [`redis_url`](Self::redis_url).
    pub(crate) async fn to_redis(url: &str) -> Self {
        let connection = url.into_connection_info().expect("the URL of a Redis");
        Self::to(match connection.addr() {
            ConnectionAddr::Tcp(host, port) => Upstream::Tcp(format!("{host}:{port}")),
            ConnectionAddr::Unix(path) => Upstream::Unix(path.clone()),
            other => panic!("no proxy to {other}"),
        })
        .await
    }

    /// A proxy to the HTTP server at `url`; reach it by [`http_url`](Self::http_url).
    pub(crate) async fn to_http(url: &str) -> Self {
        Self::to(http_upstream(url)).await
    }

    async fn to(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let upstream = watch::Sender::new(upstream);
        let traffic = watch::Sender::new(Traffic::Pass);
        let cuts = Arc::new(AtomicUsize::new(0));
        let link = Link {
            upstream: upstream.subscribe(),
            traffic: traffic.subscribe(),
            cuts: Arc::clone(&cuts),
        };
        let acceptor = tokio::spawn(accept(listener, link));
        Self {
            address,
            upstream,
            traffic,
            cuts,
            acceptor,
        }
    }

    pub(crate) fn redis_url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn http_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what happens from now on.
    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// Leads new connections to another HTTP server: one that was restarted listens on another port.
    pub(crate) fn lead_to_http(&self, url: &str) {
        self.upstream.send_replace(http_upstream(url));
    }

    /// How many connections [`Traffic::CutAnswers`] has cut.
    pub(crate) fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

#[derive(Clone)]
enum Upstream {
    Tcp(String),
    Unix(PathBuf),
}

fn http_upstream(url: &str) -> Upstream {
    let authority = url.strip_prefix("http://").expect("the URL of a plain HTTP server");
    Upstream::Tcp(authority.to_owned())
}

/// What each connection needs to know.
#[derive(Clone)]
struct Link {
    upstream: watch::Receiver<Upstream>,
    traffic: watch::Receiver<Traffic>,
    cuts: Arc<AtomicUsize>,
}

async fn accept(listener: TcpListener, link: Link) {
    // Dropped with this task, it ends the connections too.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(serve(client, link.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(client: TcpStream, mut link: Link) {
    link.leave_black_hole().await;
    let upstream = link.upstream.borrow().clone();
    match &upstream {
        Upstream::Tcp(address) => {
            if let Ok(upstream) = TcpStream::connect(address.as_str()).await {
                relay(client, upstream, link).await;
            }
        }
        Upstream::Unix(path) => {
            if let Ok(upstream) = UnixStream::connect(path).await {
                relay(client, upstream, link).await;
            }
        }
    }
}

/// Carries bytes both ways until one side hangs up or the proxy does; then both connections close.
async fn relay(client: TcpStream, upstream: impl AsyncRead + AsyncWrite, link: Link) {
    let (from_client, to_client) = client.into_split();
    let (from_upstream, to_upstream) = io::split(upstream);
    let mut refusals = link.traffic.clone();
    tokio::select! {
        () = carry(from_client, to_upstream, Direction::Request, link.clone()) => {}
        () = carry(from_upstream, to_client, Direction::Answer, link) => {}
        _ = refusals.wait_for(|traffic| *traffic == Traffic::Refuse) => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    mut link: Link,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        let Ok(length @ 1..) = read else {
            // A black hole loses the goodbye as well.
            return link.leave_black_hole().await;
        };
        match (link.now(), direction) {
            (Traffic::Refuse, _) => return,
            (Traffic::BlackHole, _) | (Traffic::KeepAnswers, Direction::Answer) => {}
            (Traffic::CutAnswers, Direction::Answer) => {
                link.cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            (Traffic::Pass | Traffic::CutAnswers | Traffic::KeepAnswers, _) => {
                if to.write_all(&bytes[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Link {
    fn now(&self) -> Traffic {
        *self.traffic.borrow()
    }

    async fn leave_black_hole(&mut self) {
        // An error says that the proxy is gone: nothing is left to wait for.
        let _ = self.traffic.wait_for(|traffic| *traffic != Traffic::BlackHole).await;
    }
}
