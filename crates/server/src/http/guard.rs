//! What a connection must satisfy before [`super::access`] determines who the caller is.
//!
//! Other machines must use TLS. The danger is browsers, which run scripts of strangers: such a script may
//! name this address directly (then the browser sends where it comes from: `Origin`, `Sec-Fetch-Site`), or
//! its own host name may resolve to 127.0.0.1 (DNS rebinding: then `Host` has that name). So without TLS both
//! the peer and `Host` must be loopback. With or without TLS, a browser's request must come from a page of
//! this node. A page under another host name has no cookie of this node.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refusal::Refusal;

/// The other end of the connection that a request arrived on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Whether the connection uses TLS.
    pub(super) secure: bool,
}

impl Peer {
    /// Whether the peer is a program of this machine.
    pub(super) fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// The address as text, for logs.
    pub(super) fn ip(&self) -> String {
        self.address.ip().to_canonical().to_string()
    }
}

pub(super) async fn check(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let mut response = match judge(peer, request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            // Debug only: otherwise anybody could fill the log.
            tracing::debug!(?peer, path = request.uri().path(), reason = refusal.code(), "request refused");
            refusal.into_response()
        }
    };
    // A response may contain names that somebody chose: a browser must not guess another content type from
    // them.
    response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}

fn judge(peer: Option<Peer>, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let secure = peer.is_some_and(|peer| peer.secure);
    if !secure && !peer.is_some_and(|peer| peer.is_local()) {
        let detail = "without TLS, this interface accepts requests from its own machine only";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "peer_not_local", detail).hint("use https://"));
    }
    let host = single(headers, HOST).and_then(|host| host.parse::<Authority>().ok());
    // RFC 9112 3.2: an authority in the request line takes precedence over the header. Both must be right.
    let named = host.as_ref().into_iter().chain(uri.authority());
    let is_right = |authority: &Authority| match secure {
        true => Some(authority) == host.as_ref(),
        false => is_loopback_name(authority.host()),
    };
    if host.is_none() || !named.into_iter().all(is_right) {
        let detail = "the Host header is missing, or is not a loopback name of this machine";
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "host_not_local", detail)
            .hint("use http://127.0.0.1, http://[::1] or http://localhost"));
    }
    let from_elsewhere = headers.contains_key(ORIGIN) && {
        let origin = single(headers, ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
        let scheme = if secure { "https" } else { "http" };
        let origin = origin.filter(|origin| origin.scheme_str() == Some(scheme));
        origin.as_ref().and_then(Uri::authority) != host.as_ref()
    };
    let fetched_by = headers.contains_key("sec-fetch-site").then(|| single(headers, "sec-fetch-site"));
    let from_page_of_others = fetched_by.is_some_and(|site| !matches!(site, Some("same-origin" | "none")));
    if from_elsewhere || from_page_of_others && !opens_console(method, uri, headers) {
        let detail = "the request comes from a page of another site";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "cross_origin", detail));
    }
    Ok(())
}

/// Whether a user follows a link to the console. The page with the link sees nothing of the response, and the
/// console's files are the same for everybody.
fn opens_console(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let navigates = single(headers, "sec-fetch-mode") == Some("navigate")
        && single(headers, "sec-fetch-dest") == Some("document");
    let path = uri.path();
    reads && navigates && !path.starts_with("/v1") && !path.starts_with("/metrics")
}

/// The value of a header that occurs exactly once.
fn single(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn is_loopback_name(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        // RFC 6761 6.3: these names resolve to loopback addresses, whatever the resolver.
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(peer: &str, headers: &[(&'static str, &str)]) -> Option<u16> {
        judged_by(false, peer, headers)
    }

    fn judged_by(secure: bool, peer: &str, headers: &[(&'static str, &str)]) -> Option<u16> {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let peer = Some(Peer { address: peer.parse().unwrap(), secure });
        let uri = Uri::from_static("/v1/volumes");
        judge(peer, &Method::GET, &uri, &headers).err().map(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn programs_of_this_machine_may_ask() {
        for host in ["127.0.0.1:3280", "127.1.2.3", "localhost:3280", "LOCALHOST", "[::1]:3280"] {
            assert_eq!(judged("127.0.0.1:9", &[("host", host)]), None, "{host}");
        }
        assert_eq!(judged("[::1]:9", &[("host", "[::1]")]), None);
        assert_eq!(judged("[::ffff:127.0.0.1]:9", &[("host", "localhost")]), None);
    }

    #[test]
    fn other_machines_may_not() {
        assert_eq!(judged("10.0.0.1:9", &[("host", "127.0.0.1")]), Some(403));
        assert_eq!(
            judge(None, &Method::GET, &Uri::from_static("/"), &HeaderMap::new()).unwrap_err().status(),
            403
        );
    }

    #[test]
    fn names_that_were_made_to_resolve_here_are_refused() {
        for host in
            ["evil.example", "evil.example:3280", "127.0.0.1.evil.example", "localhost.evil.example", ""]
        {
            assert_eq!(judged("127.0.0.1:9", &[("host", host)]), Some(421), "{host}");
        }
        assert_eq!(judged("127.0.0.1:9", &[]), Some(421));
        assert_eq!(judged("127.0.0.1:9", &[("host", "localhost"), ("host", "evil.example")]), Some(421));
        let headers: HeaderMap = [(HOST, "localhost".parse().unwrap())].into_iter().collect();
        let uri = Uri::from_static("http://evil.example/v1/volumes");
        let peer = Peer { address: ([127, 0, 0, 1], 9).into(), secure: false };
        let refusal = judge(Some(peer), &Method::GET, &uri, &headers).unwrap_err();
        assert_eq!(refusal.status(), 421);
    }

    #[test]
    fn other_machines_may_by_tls_and_by_any_name() {
        let host = ("host", "san1.example:3280");
        assert_eq!(judged_by(true, "10.0.0.1:9", &[host]), None);
        assert_eq!(judged_by(true, "10.0.0.1:9", &[host, ("origin", "https://san1.example:3280")]), None);
        assert_eq!(judged_by(true, "10.0.0.1:9", &[]), Some(421));
        for origin in ["https://evil.example", "http://san1.example:3280", "null"] {
            assert_eq!(judged_by(true, "10.0.0.1:9", &[host, ("origin", origin)]), Some(403), "{origin}");
        }
        assert_eq!(judged_by(true, "10.0.0.1:9", &[host, ("sec-fetch-site", "same-site")]), Some(403));
    }

    #[test]
    fn a_link_of_another_site_opens_the_console_and_nothing_else() {
        let opened = |method: &str, path: &'static str, mode: &str, dest: &str| {
            let headers = [
                ("host", "127.0.0.1:3280"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let peer = Peer { address: ([127, 0, 0, 1], 9).into(), secure: false };
            let (method, headers) = (method.parse().unwrap(), HeaderMap::from_iter(headers));
            judge(Some(peer), &method, &Uri::from_static(path), &headers).is_ok()
        };
        assert!(opened("GET", "/", "navigate", "document") && opened("HEAD", "/x", "navigate", "document"));
        for path in ["/v1", "/v1/volumes", "/metrics"] {
            assert!(!opened("GET", path, "navigate", "document"), "{path}");
        }
        for (method, mode, dest) in [
            ("POST", "navigate", "document"),
            ("GET", "no-cors", "document"),
            ("GET", "navigate", "iframe"),
            ("GET", "no-cors", "image"),
        ] {
            assert!(!opened(method, "/", mode, dest), "{method} {mode} {dest}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:3280");
        assert_eq!(judged("127.0.0.1:9", &[host, ("origin", "http://127.0.0.1:3280")]), None);
        assert_eq!(judged("127.0.0.1:9", &[host, ("sec-fetch-site", "none")]), None);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:8080", ""] {
            assert_eq!(judged("127.0.0.1:9", &[host, ("origin", origin)]), Some(403), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(judged("127.0.0.1:9", &[host, ("sec-fetch-site", site)]), Some(403), "{site}");
        }
    }
}
