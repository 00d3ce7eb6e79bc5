//! One line of `pg_hba.conf`: connection type, databases, roles, addresses, method, options.

use super::address::Addresses;
use super::{ClientCert, ClientName, Connection, Database, Method, Rule};
use crate::files::{Field, Line, Token, Wrong};
use crate::names::Role;

/// Methods that PostgreSQL has and hihooi has not.
const OTHER_METHODS: [&str; 8] = ["gss", "sspi", "ident", "ldap", "radius", "pam", "bsd", "oauth"];

pub(super) fn parse(line: &Line) -> Result<Rule, Wrong> {
    let connection = connection(line)?;
    let databases = list(line, 1, "database", Database::read)?;
    let roles = list(line, 2, "role", Role::read)?;
    let (addresses, width) = match connection {
        Connection::Local => (Addresses::All, 0),
        _ => Addresses::read(line, 3)?,
    };
    let mut rule = Rule {
        file: line.file.clone(),
        line: line.number,
        connection,
        databases,
        roles,
        addresses,
        method: method(line, 3 + width, connection)?,
        map: None,
        client_cert: ClientCert::Optional,
        client_name: ClientName::Cn,
    };
    for token in line.fields.iter().skip(4 + width).flatten() {
        set(&mut rule, token)?;
    }
    if rule.method == Method::Cert {
        rule.client_cert = ClientCert::VerifyFull;
    }
    Ok(rule)
}

fn connection(line: &Line) -> Result<Connection, Wrong> {
    let text = line.single(0, "connection type")?.map_or("", |token| token.text.as_str());
    Ok(match text {
        "local" => Connection::Local,
        "host" => Connection::Host,
        "hostssl" => Connection::HostSsl,
        "hostnossl" => Connection::HostNoSsl,
        "hostgssenc" => Connection::HostGssEnc,
        "hostnogssenc" => Connection::HostNoGssEnc,
        other => {
            let what = format!("invalid connection type \"{other}\"");
            return Err(Wrong::new(what, "use local, host, hostssl or hostnossl"));
        }
    })
}

fn list<T>(
    line: &Line,
    at: usize,
    of: &str,
    read: fn(&Token) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let missing = || {
        let what = format!("end-of-line before {of} specification");
        Wrong::new(what, format!("add the {of}'s name, or all"))
    };
    let field: &Field = line.fields.get(at).ok_or_else(missing)?;
    field.iter().map(read).collect()
}

fn method(line: &Line, at: usize, connection: Connection) -> Result<Method, Wrong> {
    let supported = "use trust, reject, scram-sha-256, md5, password, cert or peer";
    let Some(token) = line.single(at, "authentication type")? else {
        return Err(Wrong::new("end-of-line before authentication method", supported));
    };
    let is_local = connection == Connection::Local;
    match token.text.as_str() {
        "trust" => Ok(Method::Trust),
        "reject" => Ok(Method::Reject),
        "scram-sha-256" => Ok(Method::Scram),
        "md5" => Ok(Method::Md5),
        "password" => Ok(Method::Password),
        "cert" if connection == Connection::HostSsl => Ok(Method::Cert),
        "cert" => {
            let what = "cert authentication is only supported on hostssl connections";
            Err(Wrong::new(what, "use hostssl"))
        }
        // PostgreSQL takes ident for peer here.
        "peer" | "ident" if is_local => Ok(Method::Peer),
        "peer" => {
            let what = "peer authentication is only supported on local sockets";
            Err(Wrong::new(what, "use local"))
        }
        other if OTHER_METHODS.contains(&other) => {
            let what = format!("authentication method \"{other}\" is not supported by hihooi");
            Err(Wrong::new(what, supported))
        }
        other => Err(Wrong::new(format!("invalid authentication method \"{other}\""), supported)),
    }
}

/// Sets one option; the last of several with the same name counts.
fn set(rule: &mut Rule, token: &Token) -> Result<(), Wrong> {
    let Some((name, value)) = token.text.split_once('=') else {
        let what = format!("authentication option not in name=value format: {}", token.text);
        return Err(Wrong::new(what, "write name=value"));
    };
    match name {
        "map" => set_map(rule, value),
        "clientcert" | "clientname" if rule.connection != Connection::HostSsl => {
            let what = format!("{name} can only be configured for \"hostssl\" rows");
            Err(Wrong::new(what, "use hostssl"))
        }
        "clientcert" => set_client_cert(rule, value),
        "clientname" => set_client_name(rule, value),
        _ => {
            let what = format!("unrecognized authentication option name: \"{name}\"");
            Err(Wrong::new(what, "hihooi knows map, clientcert and clientname"))
        }
    }
}

fn set_map(rule: &mut Rule, value: &str) -> Result<(), Wrong> {
    if !matches!(rule.method, Method::Peer | Method::Cert) {
        let what =
            "authentication option \"map\" is only valid for authentication methods peer and cert";
        return Err(Wrong::new(what, "leave it out"));
    }
    // PostgreSQL takes an empty name for none.
    rule.map = Some(value.to_owned()).filter(|map| !map.is_empty());
    Ok(())
}

fn set_client_cert(rule: &mut Rule, value: &str) -> Result<(), Wrong> {
    rule.client_cert = match value {
        "verify-full" => ClientCert::VerifyFull,
        "verify-ca" if rule.method == Method::Cert => {
            let what =
                "clientcert can only be set to \"verify-full\" when using \"cert\" authentication";
            return Err(Wrong::new(what, "leave it out"));
        }
        "verify-ca" => ClientCert::VerifyCa,
        _ => {
            let what = format!("invalid value for clientcert: \"{value}\"");
            return Err(Wrong::new(what, "use verify-ca or verify-full"));
        }
    };
    Ok(())
}

fn set_client_name(rule: &mut Rule, value: &str) -> Result<(), Wrong> {
    rule.client_name = match value {
        "CN" => ClientName::Cn,
        "DN" => ClientName::Dn,
        _ => {
            let what = format!("invalid value for clientname: \"{value}\"");
            return Err(Wrong::new(what, "use CN or DN"));
        }
    };
    Ok(())
}
