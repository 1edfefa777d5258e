//! The web console: files that are embedded in the program, compressed (by `build.rs`).
//!
//! They are the same for everybody and contain nothing of the node, so they need no login. The page may only
//! run the scripts that came with it, and only talk to the node that it came from.

use axum::Router;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::refusal::Refusal;

#[derive(Debug)]
struct File {
    /// The path, without the leading slash.
    path: &'static str,
    /// The entity tag in quotes, which changes with the content.
    tag: &'static str,
    gzip: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The page at `/`.
const INDEX: &str = "index.html";
/// The names of the files there contain a hash of the content.
const HASHED: &str = "assets/";

/// Only our own scripts, and no other site. The component kit sets its variables in `style` elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'; \
     font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A route for each file, and `/`.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let serve = get(move |headers: HeaderMap| async move { answer(file, &headers) });
        let router = router.route(&format!("/{}", file.path), serve.clone());
        if file.path == INDEX { router.route("/", serve) } else { router }
    })
}

fn answer(file: &File, headers: &HeaderMap) -> Response {
    if !takes_gzip(headers) {
        let detail = "the console's files are gzip-compressed, which the request does not accept";
        return Refusal::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
            .hint("omit the Accept-Encoding header, or include gzip in it")
            .into_response();
    }
    let fixed = [
        (ETAG, file.tag),
        (
            CACHE_CONTROL,
            if file.path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" },
        ),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let mut response = if is_known(file, headers) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, media_type(file.path)), (CONTENT_ENCODING, "gzip")], file.gzip).into_response()
    };
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether the client accepts gzip. Without `Accept-Encoding` it accepts any coding (RFC 9110 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(ACCEPT_ENCODING).iter().peekable();
    named.peek().is_none()
        || named.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
            matches!(name.trim(), "gzip" | "x-gzip" | "*") && !refused
        })
}

/// Whether the client has this version of the file (RFC 9110 13.1.2, where a weak comparison is sufficient).
fn is_known(file: &File, headers: &HeaderMap) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|value| value.split(',')).any(|tag| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == file.tag
    })
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    fn file(path: &str) -> &'static File {
        FILES.iter().find(|file| file.path == path).unwrap()
    }

    fn header<'a>(response: &'a Response, name: &str) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn the_page_is_there_with_a_script_and_a_style_sheet_that_never_change() {
        let page = answer(file(INDEX), &headers(&[]));
        assert_eq!(page.status(), 200);
        assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header(&page, "content-encoding"), "gzip");
        assert_eq!(header(&page, "cache-control"), "no-cache");
        assert!(header(&page, "content-security-policy").contains("script-src 'self';"));
        for (extension, media_type) in
            [(".js", "text/javascript; charset=utf-8"), (".css", "text/css; charset=utf-8")]
        {
            let file = FILES
                .iter()
                .find(|file| file.path.starts_with(HASHED) && file.path.ends_with(extension))
                .unwrap();
            let answer = answer(file, &headers(&[("accept-encoding", "gzip, deflate, br")]));
            assert_eq!(header(&answer, "content-type"), media_type);
            assert!(header(&answer, "cache-control").contains("immutable"));
        }
    }

    #[test]
    fn cached_files_are_not_sent_again() {
        let page = file(INDEX);
        for (tag, status) in [(page.tag, 304), ("*", 304), ("\"other\"", 200)] {
            let asked = [(IF_NONE_MATCH, HeaderValue::from_static(tag))].into_iter().collect();
            let answer = answer(page, &asked);
            assert_eq!(answer.status(), status, "{tag}");
            assert_eq!(header(&answer, "etag"), page.tag);
        }
    }

    #[test]
    fn a_client_without_gzip_is_refused_with_a_reason() {
        for (named, status) in
            [("gzip", 200), ("br, *", 200), ("gzip;q=0.5", 200), ("identity", 406), ("gzip;q=0", 406)]
        {
            let asked = [(ACCEPT_ENCODING, HeaderValue::from_static(named))].into_iter().collect();
            assert_eq!(answer(file(INDEX), &asked).status(), status, "{named}");
        }
    }

    /// All that the first visit loads over the network: at most 1 MB in total.
    #[test]
    fn the_console_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(bytes < 1_000_000, "{bytes} bytes");
    }
}
