//! The addresses of a rule.

use std::net::IpAddr;

use crate::files::{Line, Token, Wrong};

/// An address of an interface of this host, or of a rule, with its netmask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Which of its bits count; they need not be the leading ones. Of another family it matches nothing.
    pub mask: IpAddr,
}

/// Which clients' addresses a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// `all`, and those of `local`.
    All,
    /// `samehost`: this host's own.
    SameHost,
    /// `samenet`: those of its networks.
    SameNet,
    /// Those of one network.
    In(Network),
    /// Those of a host with this name, or of all hosts of a domain, which is written with a dot in front.
    Named(String),
}

impl Network {
    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, self.mask, address) {
            (IpAddr::V4(own), IpAddr::V4(mask), IpAddr::V4(other)) => own & mask == other & mask,
            (IpAddr::V6(own), IpAddr::V6(mask), IpAddr::V6(other)) => own & mask == other & mask,
            _ => false,
        }
    }
}

impl Addresses {
    /// Reads the address at field `at` of a line, and the netmask behind it if there must be one; says how
    /// many fields it has.
    pub(crate) fn read(line: &Line, at: usize) -> Result<(Addresses, usize), Wrong> {
        let Some(token) = line.single(at, "host address")? else {
            let what = "end-of-line before IP address specification";
            return Err(Wrong::new(what, "add an address, as in 192.0.2.0/24, or all"));
        };
        let keyword = [
            ("all", Addresses::All),
            ("samehost", Addresses::SameHost),
            ("samenet", Addresses::SameNet),
        ];
        if let Some((_, addresses)) = keyword.into_iter().find(|(word, _)| token.is(word)) {
            return Ok((addresses, 1));
        }
        let (address, bits) = match token.text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (token.text.as_str(), None),
        };
        let address: IpAddr = match address.parse() {
            Ok(address) => address,
            Err(_) if is_host_name(address) && bits.is_none() => {
                return Ok((Addresses::Named(address.to_owned()), 1));
            }
            Err(_) if is_host_name(address) => return Err(name_with_prefix(token)),
            Err(_) => return Err(not_an_address(token)),
        };
        let (mask, fields) = match bits {
            Some(bits) => (prefix(address, bits).ok_or_else(|| no_prefix(token))?, 1),
            None => (netmask(line, at + 1, address)?, 2),
        };
        Ok((Addresses::In(Network { address, mask }), fields))
    }

    /// Whether a client's address is among them; `name` is that of its host.
    pub(crate) fn contain(
        &self,
        address: IpAddr,
        name: Option<&str>,
        networks: &[Network],
    ) -> bool {
        match self {
            Addresses::All => true,
            Addresses::SameHost => networks.iter().any(|own| own.address == address),
            Addresses::SameNet => networks.iter().any(|own| match own.mask.is_unspecified() {
                // No netmask is known, as in PostgreSQL.
                true => own.address == address,
                false => own.contains(address),
            }),
            Addresses::In(network) => network.contains(address),
            Addresses::Named(wanted) => name.is_some_and(|name| is_named(name, wanted)),
        }
    }

    /// Whether they are told by the name of the client's host.
    pub(crate) fn need_name(&self) -> bool {
        matches!(self, Addresses::Named(_))
    }

    pub(crate) fn need_networks(&self) -> bool {
        matches!(self, Addresses::SameHost | Addresses::SameNet)
    }
}

/// Whether a rule can mean a host by this. The last part of a name begins with a letter: otherwise this is an address
/// with a mistake in it, which PostgreSQL takes for a name that never matches.
fn is_host_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let last = text.rsplit('.').next().unwrap_or_default();
    text.bytes().all(allowed) && last.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether a host has this name, or is in this domain, if that is what it is.
fn is_named(name: &str, wanted: &str) -> bool {
    let compared = match wanted.starts_with('.') {
        true => name.len().checked_sub(wanted.len()).and_then(|from| name.get(from..)),
        false => Some(name),
    };
    compared.is_some_and(|part| part.eq_ignore_ascii_case(wanted))
}

/// The netmask with that many leading bits.
fn prefix(address: IpAddr, bits: &str) -> Option<IpAddr> {
    let bits: u32 = bits.parse().ok()?;
    let ones = |width: u32| (bits <= width).then(|| width - bits);
    Some(match address {
        IpAddr::V4(_) => u32::MAX.checked_shl(ones(32)?).unwrap_or(0).to_be_bytes().into(),
        IpAddr::V6(_) => u128::MAX.checked_shl(ones(128)?).unwrap_or(0).to_be_bytes().into(),
    })
}

fn netmask(line: &Line, at: usize, address: IpAddr) -> Result<IpAddr, Wrong> {
    let hint = "write the address with its number of leading bits, as in 192.0.2.0/24";
    let Some(token) = line.single(at, "netmask")? else {
        return Err(Wrong::new("end-of-line before netmask specification", hint));
    };
    let Ok(mask) = token.text.parse::<IpAddr>() else {
        return Err(Wrong::new(format!("invalid IP mask \"{}\"", token.text), hint));
    };
    if mask.is_ipv4() != address.is_ipv4() {
        return Err(Wrong::new("IP address and mask do not match", hint));
    }
    Ok(mask)
}

fn not_an_address(token: &Token) -> Wrong {
    let hint = "use an address, as in 192.0.2.0/24, or the name of a host";
    Wrong::new(format!("invalid IP address \"{}\"", token.text), hint)
}

fn name_with_prefix(token: &Token) -> Wrong {
    let what = format!("specifying both host name and CIDR mask is invalid: \"{}\"", token.text);
    Wrong::new(what, "leave out the mask, or use an address")
}

fn no_prefix(token: &Token) -> Wrong {
    let hint = "use 0 to 32 bits for IPv4, 0 to 128 for IPv6";
    Wrong::new(format!("invalid CIDR mask in address \"{}\"", token.text), hint)
}
