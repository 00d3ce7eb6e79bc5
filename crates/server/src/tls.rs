//! TLS to clients (manual, "Secure TCP/IP Connections with SSL"). A renewed certificate needs no restart (see
//! [`hihooi_postgres::reloaded`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hihooi_postgres::certificates;
use hihooi_postgres::reloaded::{Files, Reloaded};
use hihooi_postgres::socket::{ALPN, Encrypted};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;

/// `commonName` (X.520).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Where certificates are, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that certify it, in their order.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificate authorities that clients' certificates may come from; without it, no client is asked for one.
    pub ca: Option<PathBuf>,
}

/// TLS to clients.
#[derive(Debug)]
pub struct Tls {
    loaded: Reloaded<Loaded>,
    /// Whether clients without TLS are refused.
    pub is_required: bool,
}

#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    end_point: Option<Arc<[u8]>>,
    /// When the certificate ends, and its file.
    end: Option<(Arc<Path>, u64)>,
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    /// One line that names the file, and what is wrong with it.
    pub fn load(files: TlsFiles, is_required: bool) -> Result<Tls, String> {
        let loaded = Reloaded::new("certificate", move |read| files.load(read))?;
        Ok(Tls { loaded, is_required })
    }

    /// The file of the certificate, and when that ends: seconds since 1970.
    #[must_use]
    pub fn end(&self) -> Option<(Arc<Path>, u64)> {
        self.loaded.get().end
    }

    /// Begins TLS as the server's side.
    ///
    /// # Errors
    /// The client has gone, or they don't agree.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let Loaded { config, end_point, .. } = self.loaded.get();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        Ok(Encrypted { stream: stream.into(), end_point })
    }
}

/// The common name of a certificate's subject, if it has exactly one.
#[must_use]
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let parts = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = parts.filter(|part| part.oid == COMMON_NAME);
    let (name, None) = (names.next()?, names.next()) else { return None };
    let text = std::str::from_utf8(name.value.value()).ok()?;
    // One with a zero byte may be meant to be taken for another.
    (!text.contains('\0')).then(|| text.to_owned())
}

/// A certificate's whole subject, as RFC 2253 writes it.
#[must_use]
pub fn subject(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let text = certificate.tbs_certificate.subject.to_string();
    (!text.is_empty() && !text.contains('\0')).then_some(text)
}

impl TlsFiles {
    fn load(&self, files: &Files) -> Result<Loaded, String> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates::chain(&self.cert, files)?;
        let key = certificates::key(&self.key, files)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let verifier = verifier(certificates::authorities(ca, files)?, provider);
                let verifier = verifier.map_err(|why| format!("{}: {why}", ca.display()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let end_point = certificates::end_point(&chain[0]);
        let end = certificates::end(&chain).map(|end| (self.cert.as_path().into(), end));
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            format!("{} with {}: {error}", self.cert.display(), self.key.display())
        })?;
        config.alpn_protocols.push(ALPN.to_vec());
        // As PostgreSQL: no session is resumed, so that each login presents its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Loaded { config: Arc::new(config), end_point, end })
    }
}

/// What checks the certificates of clients that have one.
fn verifier(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())
}
