//! Certificates and private keys in PEM, ours and others'.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;

use crate::cluster::plain;
use crate::reloaded::Files;

/// Bits of a file's mode that let others than its owner read or write it.
const OTHERS: u32 = 0o077;
/// Those that are allowed if root owns it.
const GROUP_READS: u32 = 0o040;

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

/// The certificates of a file, in their order; at least one.
///
/// # Errors
/// One line that names the file.
pub fn chain(path: &Path, files: &Files) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, files)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{} holds no certificate in PEM", path.display())),
    }
}

/// When the first of these certificates ends, if they can be read: seconds since 1970.
#[must_use]
pub fn end(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let end = |certificate: &CertificateDer<'_>| {
        let certificate = Certificate::from_der(certificate).ok()?;
        Some(certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
    };
    chain.iter().filter_map(end).min()
}

/// The certificates of a file, as authorities.
///
/// # Errors
/// One line that names the file.
pub fn authorities(path: &Path, files: &Files) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in chain(path, files)? {
        roots.add(authority).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// The private key of a file, which others than its owner can't read.
///
/// # Errors
/// One line that names the file.
pub fn key(path: &Path, files: &Files) -> Result<PrivateKeyDer<'static>, String> {
    let key = read(path, files)?;
    check_mode(path)?;
    PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| format!("{} holds no private key in PEM", path.display()))
}

fn read(path: &Path, files: &Files) -> Result<Vec<u8>, String> {
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

/// The hash of a server's certificate for the channel binding `tls-server-end-point`: by the hash of its signature,
/// but never by MD5 or SHA-1 (RFC 5929). `None` if that isn't known.
#[must_use]
pub fn end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    let algorithm = Certificate::from_der(certificate).ok()?.signature_algorithm.oid;
    let hash: &[u8] = match HASHES.iter().find(|(oid, _)| *oid == algorithm)?.1 {
        384 => &Sha384::digest(certificate),
        512 => &Sha512::digest(certificate),
        _ => &Sha256::digest(certificate),
    };
    Some(hash.into())
}
