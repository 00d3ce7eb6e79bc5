//! TLS to servers, asked for as libpq does (manual, "SSL Support"; protocol, "SSL Session Encryption").
//!
//! Nothing is weaker than the mode says: `require` and `verify-full` never go on without encryption, and what arrives
//! unencrypted behind the server's consent is refused. Files are read again when they have changed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme,
};
use tracing::debug;
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};

use crate::certificates;
use crate::connection::{Address, Error, Result};
use crate::reloaded::{Files, Reloaded};
use crate::socket::{ALPN, Encrypted, Socket};

/// What a server answers to the request for TLS.
const CONSENT: u8 = b'S';
const REFUSAL: u8 = b'N';
const FAILURE: u8 = b'E';

/// How much of a connection to a server is protected: libpq's `sslmode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: TLS is never used.
    Disable,
    /// TLS if the server has it. Protects from nobody who can change what is sent.
    #[default]
    Prefer,
    /// TLS always, with whatever certificate: protects from those who only listen.
    Require,
    /// TLS with a certificate that an authority of ours has issued for the server's host.
    VerifyFull,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Disable => "disable",
            Mode::Prefer => "prefer",
            Mode::Require => "require",
            Mode::VerifyFull => "verify-full",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Mode, String> {
        let all = [Mode::Disable, Mode::Prefer, Mode::Require, Mode::VerifyFull];
        let found = all.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| "it is one of disable, prefer, require and verify-full".to_owned())
    }
}

/// How connections to a server are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether, and what is checked.
    pub mode: Mode,
    /// The authorities that the server's certificate may come from, in PEM; for `verify-full` only.
    pub ca_file: Option<PathBuf>,
    /// Our certificate for servers that ask for one, followed by those that certify it, in PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key_file: Option<PathBuf>,
    /// Certificates for logins as these roles, instead of ours.
    pub roles: BTreeMap<String, Identity>,
}

/// A certificate, followed by those that certify it, and its private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file of the certificate.
    pub cert_file: PathBuf,
    /// That of the key.
    pub key_file: PathBuf,
}

impl Identity {
    /// One of both files, if they are given.
    ///
    /// # Errors
    /// Which of them is missing.
    pub fn of(
        cert_file: Option<&PathBuf>,
        key_file: Option<&PathBuf>,
    ) -> std::result::Result<Option<Identity>, String> {
        match (cert_file.cloned(), key_file.cloned()) {
            (Some(cert_file), Some(key_file)) => Ok(Some(Identity { cert_file, key_file })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("cert_file needs its private key: set key_file".to_owned()),
            (None, Some(_)) => Err("key_file needs its certificate: set cert_file".to_owned()),
        }
    }
}

/// What was made of the files.
#[derive(Clone)]
struct Loaded {
    config: Arc<ClientConfig>,
    /// With the certificates of these roles.
    roles: Arc<BTreeMap<String, Arc<ClientConfig>>>,
    /// When our certificates end, by file: seconds since 1970.
    ends: Arc<BTreeMap<PathBuf, u64>>,
}

impl Settings {
    /// Checks that they fit together; the files are not looked at.
    ///
    /// # Errors
    /// What to change, by the names of libpq's and our settings' files: `ca_file` …
    pub fn check(&self) -> std::result::Result<(), String> {
        let bad = |text: &str| Err(text.to_owned());
        match (self.mode, &self.ca_file) {
            (Mode::VerifyFull, None) => bad(
                "verify-full needs the authorities that servers' certificates may come from: give their file, \
                 or that of the system, such as /etc/ssl/certs/ca-certificates.crt",
            ),
            (Mode::Require | Mode::Prefer | Mode::Disable, Some(ca)) => Err(format!(
                "{} is not used with {}, which checks no certificate: say verify-full, or leave it out",
                ca.display(),
                self.mode
            )),
            _ => match self.identity()? {
                Some(_) if self.mode == Mode::Disable => {
                    bad("cert_file is not used without TLS: don't say disable, or leave it out")
                }
                _ => Ok(()),
            },
        }
    }

    fn identity(&self) -> std::result::Result<Option<Identity>, String> {
        Identity::of(self.cert_file.as_ref(), self.key_file.as_ref())
    }

    fn load(&self, files: &Files) -> std::result::Result<Loaded, String> {
        self.check()?;
        let own = self.identity()?;
        let mut ends = BTreeMap::new();
        for Identity { cert_file, .. } in own.iter().chain(self.roles.values()) {
            let end = certificates::end(&certificates::chain(cert_file, files)?);
            ends.extend(end.map(|end| (cert_file.clone(), end)));
        }
        let of_role = |(role, identity): (&String, _)| {
            let made = self.config(Some(identity), files);
            Ok((role.clone(), made.map_err(|why| format!("role \"{role}\": {why}"))?))
        };
        let roles: std::result::Result<_, String> = self.roles.iter().map(of_role).collect();
        let config = self.config(own.as_ref(), files)?;
        Ok(Loaded { config, roles: Arc::new(roles?), ends: Arc::new(ends) })
    }

    fn config(
        &self,
        identity: Option<&Identity>,
        files: &Files,
    ) -> std::result::Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match &self.ca_file {
            None => Arc::new(AnyCertificate(provider.clone())),
            Some(ca) => {
                let roots = Arc::new(certificates::authorities(ca, files)?);
                WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                    .build()
                    .map_err(|error| format!("{}: {error}", ca.display()))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            Some(Identity { cert_file, key_file }) => {
                let chain = certificates::chain(cert_file, files)?;
                let key = certificates::key(key_file, files)?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    format!("{} with {}: {error}", cert_file.display(), key_file.display())
                })?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.push(ALPN.to_vec());
        // Servers keep no sessions either.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Encrypts connections to a server as its settings say. Clones share what was made of the files.
#[derive(Clone, Default)]
pub struct Connector(Arc<Shared>);

#[derive(Default)]
struct Shared {
    settings: Settings,
    /// Made for the first connection.
    loaded: Mutex<Option<Reloaded<Loaded>>>,
}

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        self.0.settings == other.0.settings
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.settings.fmt(f)
    }
}

impl Connector {
    /// With these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Connector {
        Connector(Arc::new(Shared { settings, loaded: Mutex::default() }))
    }

    /// One that never encrypts.
    #[must_use]
    pub fn disabled() -> Connector {
        Connector::new(Settings { mode: Mode::Disable, ..Settings::default() })
    }

    /// What it does.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.settings.mode
    }

    /// Reads the files, so that what is wrong with them is known before a connection needs them.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn load(&self) -> std::result::Result<(), String> {
        match self.mode() {
            Mode::Disable => self.0.settings.check(),
            _ => self.loaded().map(drop),
        }
    }

    /// When the certificates end that we show to servers, by file: seconds since 1970.
    #[must_use]
    pub fn ends(&self) -> Arc<BTreeMap<PathBuf, u64>> {
        match self.mode() {
            Mode::Disable => Arc::default(),
            _ => self.loaded().map(|loaded| loaded.ends).unwrap_or_default(),
        }
    }

    fn loaded(&self) -> std::result::Result<Loaded, String> {
        let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match &mut *loaded {
            Some(loaded) => loaded,
            none => {
                let settings = self.0.settings.clone();
                let load = move |files: &Files| settings.load(files);
                none.insert(Reloaded::new("certificate for servers", load)?)
            }
        };
        Ok(loaded.get())
    }

    /// Asks the server for TLS, and begins it; `None` if the server has none, which only `prefer` accepts.
    async fn negotiate(
        &self,
        mut stream: TcpStream,
        address: &Address,
        role: Option<&str>,
    ) -> Result<std::result::Result<Encrypted, TcpStream>> {
        let refuse = |why: String| Error::Encryption { address: address.clone(), why };
        let lost = |source| Error::Lost { address: address.clone(), source };
        let Loaded { config, roles, .. } = self.loaded().map_err(refuse)?;
        let config = role.and_then(|role| roles.get(role)).cloned().unwrap_or(config);
        let name = match ServerName::try_from(address.host.clone()) {
            Ok(name) => name,
            // Nothing compares it: one that isn't sent to the server either.
            Err(_) if self.mode() != Mode::VerifyFull => {
                ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED))
            }
            Err(_) => {
                return Err(refuse(format!("no certificate can be for {:?}", address.host)));
            }
        };
        let mut request = bytes::BytesMut::new();
        hihooi_wire::startup::ssl_request(&mut request);
        stream.write_all(&request).await.map_err(lost)?;
        // The server says nothing more before the handshake: a second byte would be another's.
        let mut answer = [0; 2];
        let count = stream.read(&mut answer).await.map_err(lost)?;
        match &answer[..count] {
            [] => return Err(lost(std::io::ErrorKind::UnexpectedEof.into())),
            [CONSENT] => {}
            [REFUSAL] if self.mode() == Mode::Prefer => return Ok(Err(stream)),
            [REFUSAL] => {
                return Err(refuse(format!(
                    "the server has no TLS (ssl is off there), and {} needs it",
                    self.mode()
                )));
            }
            [CONSENT, _] => {
                return Err(refuse("received unencrypted data after SSL response".to_owned()));
            }
            [FAILURE, ..] => {
                return Err(refuse("the server failed when it was asked for TLS".to_owned()));
            }
            _ => return Err(refuse("the answer to the request for TLS is none".to_owned())),
        }
        let begun = TlsConnector::from(config).connect(name, stream).await;
        let stream =
            begun.map_err(|error| match error.get_ref().and_then(|e| e.downcast_ref()) {
                Some(why) => refuse(self.explain(why, address)),
                None => lost(error),
            })?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let end_point = certificate.and_then(|certificate| certificates::end_point(certificate));
        Ok(Ok(Encrypted { stream: stream.into(), end_point }))
    }

    /// Why TLS can't begin.
    fn explain(&self, error: &TlsError, address: &Address) -> String {
        let TlsError::InvalidCertificate(what) = error else {
            return format!("TLS with the server fails: {error}");
        };
        match what {
            CertificateError::UnknownIssuer => {
                let ca = self.0.settings.ca_file.as_deref().unwrap_or("".as_ref()).display();
                format!("the server's certificate is from an authority that is not in {ca}")
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| name_in(name)).collect();
                let names = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
                format!("the server's certificate is for {names}, not for {}", address.host)
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            CertificateError::Other(other) => match other.to_string().as_str() {
                "UnsupportedCertVersion" => {
                    "the server's certificate is of version 1 of X.509, which names no host: \
                     make one of version 3, with subjectAltName"
                        .to_owned()
                }
                "CaUsedAsEndEntity" => {
                    "the server's certificate is that of an authority (CA:TRUE): let an authority \
                     issue another one for the server"
                        .to_owned()
                }
                other => format!("the server's certificate can't be accepted: {other}"),
            },
            other => format!("the server's certificate can't be accepted: {other}"),
        }
    }
}

/// A name in the words of a certificate's checker, `DnsName("a.example")`.
fn name_in(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

/// Connects to a server, encrypted as its address says, to log in as a role, if it is for that.
///
/// # Errors
/// It can't be reached, or the connection would be weaker than the mode allows.
pub async fn connect(address: &Address, role: Option<&str>) -> Result<Socket> {
    let stream = match connect_plainly(address).await? {
        Socket::Plain(stream) if address.tls.mode() != Mode::Disable => stream,
        other => return Ok(other),
    };
    match address.tls.negotiate(stream, address, role).await {
        Ok(Ok(encrypted)) => Ok(Socket::Tls(Box::new(encrypted))),
        Ok(Err(stream)) => Ok(Socket::Plain(stream)),
        // As libpq.
        Err(Error::Encryption { why, .. })
            if address.tls.mode() == Mode::Prefer && address.tls.load().is_ok() =>
        {
            debug!(%address, why, "a connection without TLS");
            connect_plainly(address).await
        }
        Err(error) => Err(error),
    }
}

/// Connects to a server without TLS.
///
/// # Errors
/// It can't be reached.
pub(crate) async fn connect_plainly(address: &Address) -> Result<Socket> {
    let lost = |source| Error::Lost { address: address.clone(), source };
    if let Some(path) = address.unix_socket() {
        return UnixStream::connect(path).await.map(Socket::Unix).map_err(lost);
    }
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    Ok(Socket::Plain(stream))
}

/// Accepts any certificate, but only from who has its key: a SCRAM exchange that is bound to it is safe then.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    /// By the key alone: the certificates that PostgreSQL's manual shows how to make are of X.509's first version,
    /// which the usual function doesn't read.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        let unreadable = |_| TlsError::InvalidCertificate(CertificateError::BadEncoding);
        let certificate = Certificate::from_der(certificate).map_err(unreadable)?;
        let key = certificate.tbs_certificate.subject_public_key_info.to_der();
        let key = SubjectPublicKeyInfoDer::from(key.map_err(unreadable)?);
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
