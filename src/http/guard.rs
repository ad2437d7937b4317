//! Keeps web pages out of a server without tokens (`api.md`, *Browsers*): by the name it is called under, and by the page that
//! a browser says the call comes from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Code, Problem};

/// The names by which a server may be called.
#[derive(Debug, Clone)]
pub struct Hosts {
    listen: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// Loopback, the address listened on, and `names`.
    pub fn new(listen: SocketAddr, names: Vec<String>) -> Self {
        Self {
            listen: listen.ip(),
            names,
        }
    }

    fn knows(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.eq_ignore_ascii_case("localhost") || self.names.iter().any(|name| name.eq_ignore_ascii_case(bare)) {
            return true;
        }
        bare.parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip == self.listen)
    }
}

/// Refuses calls under a name that is not the server's, and calls from pages of another origin.
pub(super) async fn only_invited(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    match check(&hosts, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(hosts: &Hosts, request: &Request) -> Result<(), Problem> {
    let called = called_authority(request)
        .ok_or_else(|| Problem::new(Code::Forbidden, "the request does not say which host it is for"))?;
    if !hosts.knows(called.host()) {
        let detail = format!(
            "{} is not a name of this server: start it with --host {0} if it is",
            called.host()
        );
        return Err(Problem::new(Code::Forbidden, detail));
    }
    match request.headers().get(header::ORIGIN) {
        None => Ok(()),
        Some(origin) if is_same_origin(origin.to_str().unwrap_or_default(), &called) => Ok(()),
        Some(_) => Err(Problem::new(
            Code::Forbidden,
            "the request comes from a web page of another origin",
        )),
    }
}

/// The authority of the request: of its URI in HTTP/2, of its `Host` in HTTP/1.
fn called_authority(request: &Request) -> Option<Authority> {
    request
        .uri()
        .authority()
        .cloned()
        .or_else(|| host(request.headers())?.parse().ok())
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

fn is_same_origin(origin: &str, called: &Authority) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(called.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, origin: Option<&str>) -> bool {
        let hosts = Hosts::new(SocketAddr::from(([10, 0, 0, 7], 8080)), vec!["berth".to_owned()]);
        let mut request = Request::builder().uri("/v1/runs").header(header::HOST, host);
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        check(&hosts, &request.body(axum::body::Body::empty()).expect("a request")).is_ok()
    }

    #[test]
    fn a_server_is_known_as_loopback_by_its_address_and_by_the_names_it_was_given() {
        for good in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:80",
            "10.0.0.7:1",
            "berth:8080",
        ] {
            assert!(asked(good, None), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.8",
            "127.0.0.1.evil.example:80",
            "",
        ] {
            assert!(!asked(bad, None), "{bad}");
        }
    }

    #[test]
    fn a_page_may_call_only_its_own_origin() {
        assert!(asked("localhost:8080", Some("http://localhost:8080")));
        for foreign in ["http://evil.example", "http://localhost:3000", "null", "localhost:8080"] {
            assert!(!asked("localhost:8080", Some(foreign)), "{foreign}");
        }
    }
}
