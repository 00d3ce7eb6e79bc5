//! TLS to clients (manual, "Secure TCP/IP Connections with SSL"). A renewed certificate needs no restart (see
//! `reloaded`).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{ProtocolVersion, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;

use crate::reloaded::{Files, Reloaded};

/// The protocol's name in a TLS handshake (manual, "SSL Session Encryption").
const ALPN: &[u8] = b"postgresql";
/// Bits of a file's mode that let others than its owner read or write it.
const OTHERS: u32 = 0o077;
/// Those that are allowed if root owns it.
const GROUP_READS: u32 = 0o040;

/// `commonName` (X.520).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Algorithms of signatures, and the length in bits of the hash that RFC 5929 takes with each.
const HASHES: [(ObjectIdentifier, u32); 9] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4"), 256), // md5WithRSAEncryption
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"), 256), // sha1WithRSAEncryption
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"), 256),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"), 384),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"), 512),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"), 256), // ecdsa-with-SHA1
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), 256),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"), 384),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"), 512),
];

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
}

/// A client's encrypted connection.
#[derive(Debug)]
pub struct Encrypted {
    /// What carries its bytes.
    pub stream: TlsStream<TcpStream>,
    /// The hash of the certificate that it was opened with, by which the client can make sure that nobody stands
    /// between (`tls-server-end-point`, RFC 5929).
    pub end_point: Option<Arc<[u8]>>,
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

    /// Begins TLS as the server's side.
    ///
    /// # Errors
    /// The client has gone, or they don't agree.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let Loaded { config, end_point } = self.loaded.get();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        Ok(Encrypted { stream, end_point })
    }
}

impl Encrypted {
    /// Whether the client said that it wants to speak PostgreSQL's protocol, as one must that begins with TLS.
    #[must_use]
    pub fn names_protocol(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(ALPN)
    }

    /// The version of TLS, in the words of `pg_stat_ssl`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        }
    }

    /// The client's certificate, which one of the authorities has certified, if it has one.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.stream.get_ref().1.peer_certificates()?.first()
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

/// The hash of a certificate for `tls-server-end-point`: by the hash of its signature, but never by MD5 or SHA-1
/// (RFC 5929). `None` if that isn't known.
fn end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    let algorithm = Certificate::from_der(certificate).ok()?.signature_algorithm.oid;
    let hash: &[u8] = match HASHES.iter().find(|(oid, _)| *oid == algorithm)?.1 {
        384 => &Sha384::digest(certificate),
        512 => &Sha512::digest(certificate),
        _ => &Sha256::digest(certificate),
    };
    Some(hash.into())
}

impl TlsFiles {
    fn load(&self, files: &Files) -> Result<Loaded, String> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&self.cert, files)?;
        let key = read(&self.key, files)?;
        check_mode(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| format!("{} holds no private key in PEM", self.key.display()))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let verifier = verifier(certificates(ca, files)?, provider);
                let verifier = verifier.map_err(|why| format!("{}: {why}", ca.display()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let end_point = end_point(&chain[0]);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            format!("{} with {}: {error}", self.cert.display(), self.key.display())
        })?;
        config.alpn_protocols.push(ALPN.to_vec());
        // As PostgreSQL: no session is resumed, so that each login presents its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Loaded { config: Arc::new(config), end_point })
    }
}

/// What checks the certificates of clients that have one.
fn verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())
}

fn certificates(path: &Path, files: &Files) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, files)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{} holds no certificate in PEM", path.display())),
    }
}

fn read(path: &Path, files: &Files) -> Result<Vec<u8>, String> {
    let plain = hihooi_postgres::cluster::plain;
    files.read(path).map_err(|error| format!("{}: {}", path.display(), plain(&error)))
}

/// As PostgreSQL checks it: a key that others can read is none.
fn check_mode(key: &Path) -> Result<(), String> {
    let found = std::fs::metadata(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let allowed = if found.uid() == 0 { GROUP_READS } else { 0 };
    if found.mode() & OTHERS & !allowed != 0 {
        return Err(format!(
            "{} can be read or changed by others than its owner: chmod 600 it, or 640 if root owns it",
            key.display()
        ));
    }
    Ok(())
}
