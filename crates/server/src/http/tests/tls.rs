//! TLS on the API's port, and plain requests of this machine on the same port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use api::{Client, ClientError, Fingerprint, Trust};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::rig::Rig;
use crate::http::{Certificate, Listeners, serve, with_causes};

/// The rig's API on a real port, with the node's own certificate.
struct Served {
    address: SocketAddr,
    /// The fingerprint of the certificate.
    fingerprint: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(rig: &Rig) -> Served {
        let certificate = Certificate::load(None, rig.dir(), "san1", &[]).unwrap();
        let fingerprint = certificate.fingerprint.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let state = rig.state.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let listeners = Listeners { listeners: vec![listener], tls: Some(certificate.config) };
                serve(listeners, state, async { drop(stopped.await) }).await.unwrap();
            });
        });
        Served { address: told.recv().unwrap(), fingerprint, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends a request over TLS; the server must have this certificate.
    fn by_tls(&self, trusted: &Path, request: &str) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client =
            ClientConnection::new(Arc::new(config), ServerName::try_from("127.0.0.1").unwrap()).unwrap();
        exchange(StreamOwned::new(client, self.connect()), request)
    }

    fn plain(&self, request: &str) -> String {
        exchange(self.connect(), request).unwrap()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
}

#[test]
fn one_port_takes_tls_and_plain_requests() {
    let rig = Rig::new();
    rig.post("/v1/users", json!({"name": "alice", "role": "admin", "password": "correct horse battery"}))
        .json(201);
    let served = Served::start(&rig);
    let certificate = rig.dir().join("api/certificate.pem");
    let answer = served.by_tls(&certificate, &get("/v1/health")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = served.by_tls(&certificate, &get("/v1/volumes")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = served.plain(&get("/v1/health"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let body = json!({"name": "alice", "password": "correct horse battery"}).to_string();
    let length = body.len();
    let login = format!(
        "POST /v1/login HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let answer = served.by_tls(&certificate, &login).unwrap();
    assert!(answer.contains("SameSite=Strict; Secure"), "{answer}");
    assert!(answer.contains("set-cookie: __Host-ursa_session="), "{answer}");
    let secret = answer.split("__Host-ursa_session=").nth(1).unwrap().split(';').next().unwrap();
    let by_cookie = |name: &str| {
        format!(
            "GET /v1/volumes HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: {name}={secret}\r\nconnection: close\r\n\r\n"
        )
    };
    let answer = served.by_tls(&certificate, &by_cookie("__Host-ursa_session")).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("x-content-type-options: nosniff"),
        "{answer}"
    );
    let answer = served.by_tls(&certificate, &by_cookie("ursa_session")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = served.plain(&login);
    assert!(answer.contains("SameSite=Strict\r\n"), "{answer}");
}

#[test]
fn another_certificate_is_refused_and_garbage_ends_one_connection() {
    let rig = Rig::new();
    let served = Served::start(&rig);
    let other = tempfile::tempdir().unwrap();
    Certificate::load(None, other.path(), "san1", &[]).unwrap();
    served.by_tls(&other.path().join("api/certificate.pem"), &get("/v1/health")).unwrap_err();
    // Bytes that begin like TLS, but are not.
    let mut stream = served.connect();
    stream.write_all(&[22, 3, 1, 255, 255, 0, 0]).unwrap();
    stream.write_all(&[0; 4096]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    let answer = served.by_tls(&rig.dir().join("api/certificate.pem"), &get("/v1/health")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn the_command_lines_client_sends_its_token_to_nobody_but_the_node() {
    let rig = Rig::new();
    let served = Served::start(&rig);
    let token = rig.state.access.local_token();
    let client = || Client::new(&format!("https://{}", served.address)).with_token(&token);

    let known = Trust::Fingerprint(served.fingerprint.parse().unwrap());
    let client_of_node = client().with_trust(&known);
    assert_eq!(client_of_node.node().unwrap().name, rig.state.name);
    // Large responses, and several requests on one connection.
    assert!(client_of_node.metrics().unwrap().contains("ursa_build_info"));

    let signed = Trust::authorities(&rig.dir().join("api/certificate.pem")).unwrap();
    assert_eq!(client().with_trust(&signed).node().unwrap().name, rig.state.name);

    let other: Fingerprint = "00".repeat(32).parse().unwrap();
    let error = client().with_trust(&Trust::Fingerprint(other)).node().unwrap_err();
    assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
    let shown = with_causes(&error);
    assert!(shown.contains(&served.fingerprint), "{shown}");

    let error = client().node().unwrap_err();
    assert!(matches!(error, ClientError::Unknown { .. }), "{error:?}");
}
