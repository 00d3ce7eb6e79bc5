//! The certification protocols that the RSSI paper compares (its section 6.1), by name.

use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::{Certifier, Limits};
use serde::Serialize;

/// A certification protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Write-write conflicts only: 1-copy-SI.
    Rsi,
    /// Any rw-conflict of writing transactions aborts: 1-copy serializable.
    CpRoo,
    /// Descending structures abort, with lsv chosen (`docs/decisions/0003`): 1-copy serializable.
    Rssi,
    /// The same with lsv as the paper defines it.
    RssiLetter,
}

impl Protocol {
    /// All of them, in the paper's order.
    pub const ALL: [Protocol; 4] =
        [Protocol::Rsi, Protocol::CpRoo, Protocol::Rssi, Protocol::RssiLetter];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Rsi => "rsi",
            Protocol::CpRoo => "cp-roo",
            Protocol::Rssi => "rssi",
            Protocol::RssiLetter => "rssi-letter",
        }
    }

    /// The protocol of this name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Whether transactions that only read have to be ordered and certified too.
    pub fn certifies_read_only(self) -> bool {
        matches!(self, Protocol::Rssi | Protocol::RssiLetter)
    }

    /// A certifier without history, of usual bounds.
    pub fn certifier(self) -> Box<dyn Certifier> {
        let limits = Limits::default();
        match self {
            Protocol::Rsi => Box::new(Rsi::new(limits)),
            Protocol::CpRoo => Box::new(CpRoo::new(limits)),
            Protocol::Rssi => Box::new(Rssi::new(limits)),
            Protocol::RssiLetter => Box::new(Rssi::by_the_letter(limits)),
        }
    }
}
