//! Golden scripts: what a client sends, what is sent to servers for it, which actions are requested, and what
//! the client gets. `UPDATE_GOLDEN=1 cargo test` rewrites the indented lines; read the diff before you commit
//! it.
//!
//! ```text
//! == name
//! own                     nothing to compare with: PostgreSQL knows no hihooi
//! > Q select 1            what the client sends; lines with nothing in between are one packet
//! .                       the end of a packet of which nothing comes
//! ~                       it says nothing for long
//! foreign                 connections that it gets have other sessions' sequence numbers
//! forked                  one more answer of a replica is discarded
//! voided                  so is one, since the replica went on without rows of a table
//! expired                 the next exported snapshot can't be imported any more
//! closed                  pools have no connections left
//! behind, known           the catalog lacks what the stream brought; it has it again
//! ```
//! Messages: `Q text`, `F` (function call), `P name text`, `B portal name`, `Dp portal`, `Ds name`, `E portal`,
//! `Cs name`, `Cp portal`, `S`, `H` (Flush), `d` (COPY data), `c` (its end), `f` (its failure). `-` is the
//! empty name. `Pt oid name text` has a parameter of that type (replicas know 30000 as 20000).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use bytes::BytesMut;
use hihooi_wire::frontend::{self, Parse, Target};

use super::world::{Pieces, World, direct, frames, show_all};

/// A script.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    pub(super) name: String,
    /// It has no counterpart in PostgreSQL.
    is_own: bool,
    pub(super) packets: Vec<Packet>,
    given: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    Wait,
    Foreign,
    Forked,
    Voided,
    Expired,
    Closed,
    Behind(bool),
}

impl Packet {
    fn play(&self, world: &mut World) {
        match self {
            Packet::Bytes(bytes) => world.send(bytes),
            Packet::Wait => world.wait(),
            Packet::Foreign => world.numbers_are_foreign = true,
            Packet::Forked => world.forked(),
            Packet::Voided => world.voided(),
            Packet::Expired => world.expires_next = true,
            Packet::Closed => world.close_idle(),
            Packet::Behind(is_behind) => world.set_behind(*is_behind),
        }
    }
}

fn golden() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/session.txt");
    std::fs::read_to_string(file).expect("a golden file")
}

/// All scripts.
pub(super) fn scripts() -> Vec<Script> {
    golden().split("== ").skip(1).map(Script::read).collect()
}

/// The messages of all scripts in which the client gets what a server would answer; not what ends the session, nor
/// statements that a block parses later than a server would (docs/blocks.md), nor hihooi's own, nor what
/// lists prepared statements: these are prepared in front of the unit then, also what it prepares itself; nor what changes
/// columns: it is noticed only of statements that were described, and EXECUTE of what can't be prepared any more fails in
/// other words (docs/differences.md).
pub(super) fn messages() -> Vec<Vec<u8>> {
    let scripts = scripts();
    let of_servers = scripts.iter().filter(|script| !script.is_own);
    let lines: BTreeSet<&str> = of_servers
        .flat_map(|script| script.given.iter().flatten())
        .filter_map(|line| line.strip_prefix("> ").filter(|line| *line != "X"))
        .filter(|line| !(line.starts_with('P') && line.contains("syntax error")))
        .filter(|line| {
            let left_out = ["hihooi", "pg_prepared_statements", "alter", "drop"];
            !left_out.iter().any(|word| line.contains(word))
        })
        .collect();
    let write = |line: &str| {
        let mut out = BytesMut::new();
        write_message(line, &mut out);
        out.to_vec()
    };
    lines.into_iter().map(write).collect()
}

impl Script {
    fn read(part: &str) -> Script {
        let (name, lines) = part.split_once('\n').expect("a name");
        let mut script = Script { name: name.to_owned(), ..Script::default() };
        let mut is_open = false;
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(message) = line.strip_prefix("> ") {
                if !is_open {
                    script.packets.push(Packet::Bytes(Vec::new()));
                    script.given.push(Vec::new());
                }
                is_open = true;
                if let Some(Packet::Bytes(bytes)) = script.packets.last_mut() {
                    let mut out = BytesMut::new();
                    write_message(message, &mut out);
                    bytes.extend_from_slice(&out);
                }
                script.given.last_mut().expect("a packet").push(line.to_owned());
                continue;
            }
            is_open = false;
            match line {
                "own" => script.is_own = true,
                "~" | "foreign" | "forked" | "voided" | "expired" | "closed" | "behind"
                | "known" => {
                    script.packets.push(match line {
                        "~" => Packet::Wait,
                        "foreign" => Packet::Foreign,
                        "forked" => Packet::Forked,
                        "voided" => Packet::Voided,
                        "expired" => Packet::Expired,
                        "closed" => Packet::Closed,
                        line => Packet::Behind(line == "behind"),
                    });
                    script.given.push(vec![line.to_owned()]);
                }
                _ => assert!(line == "." || line.starts_with("  "), "{name}: {line:?}"),
            }
        }
        script
    }

    /// Plays it; with the client's answer if that must be PostgreSQL's.
    pub(super) fn play(&self, mut world: World) -> World {
        for packet in &self.packets {
            packet.play(&mut world);
        }
        world
    }

    /// What the client must get, a frame each.
    pub(super) fn expected(&self) -> Option<Vec<Vec<u8>>> {
        let bytes = |packet: &Packet| match packet {
            Packet::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let packets: Vec<_> = self.packets.iter().filter_map(bytes).collect();
        (!self.is_own).then(|| direct(&packets))
    }

    fn render(&self, out: &mut String) {
        let _ = writeln!(out, "== {}", self.name);
        if self.is_own {
            out.push_str("own\n");
        }
        let mut world = World::new(Pieces::Frames, None);
        for (packet, given) in self.packets.iter().zip(&self.given) {
            given.iter().for_each(|line| writeln!(out, "{line}").expect("writing"));
            world.trace.clear();
            packet.play(&mut world);
            world.trace.iter().for_each(|line| writeln!(out, "{line}").expect("writing"));
            if world.trace.is_empty() {
                out.push_str(".\n");
            }
        }
        out.push('\n');
    }
}

fn write_message(message: &str, out: &mut BytesMut) {
    let (kind, rest) = message.split_once(' ').unwrap_or((message, ""));
    let name = |name: &str| if name == "-" { Vec::new() } else { name.as_bytes().to_vec() };
    let two = || rest.split_once(' ').expect("two words");
    match kind {
        "Q" => frontend::query(rest.as_bytes(), out),
        "F" => frontend::message(frontend::tag::FUNCTION_CALL, out, |out| {
            out.extend_from_slice(&[0, 0, 0, 177, 0, 0, 0, 0, 0, 0]);
        }),
        "P" => {
            let (named, query) = two();
            Parse { statement: &name(named), query: query.as_bytes(), types: &[0, 0] }.write(out);
        }
        "Pt" => {
            let (oid, rest) = two();
            let (named, query) = rest.split_once(' ').expect("two words");
            let oid: u32 = oid.parse().expect("an OID");
            let types = [&[0, 1][..], &oid.to_be_bytes()].concat();
            Parse { statement: &name(named), query: query.as_bytes(), types: &types }.write(out);
        }
        "B" => {
            let (portal, named) = two();
            frontend::bind(&name(portal), &name(named), std::iter::empty(), out);
        }
        "Dp" => frontend::describe(Target::Portal, &name(rest), out),
        "Ds" => frontend::describe(Target::Statement, &name(rest), out),
        "E" => {
            let (portal, rows) = rest.split_once(' ').unwrap_or((rest, "0"));
            frontend::execute(&name(portal), rows.parse().expect("a number of rows"), out);
        }
        "Cs" => frontend::close(Target::Statement, &name(rest), out),
        "Cp" => frontend::close(Target::Portal, &name(rest), out),
        "S" => frontend::sync(out),
        "H" => frontend::flush(out),
        "d" => frontend::copy_data(b"1\n", out),
        "c" => frontend::copy_done(out),
        "f" => frontend::copy_fail("no more", out),
        "X" => frontend::terminate(out),
        other => panic!("script: no message is called {other:?}"),
    }
}

#[test]
fn sessions_do_what_the_scripts_say() {
    let before = golden();
    let (head, _) = before.split_once("== ").expect("scripts");
    let mut after = head.to_owned();
    scripts().iter().for_each(|script| script.render(&mut after));
    let after = format!("{}\n", after.trim_end());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/session.txt");
        return std::fs::write(file, after).expect("writing the golden file");
    }
    for (number, (after, before)) in after.lines().zip(before.lines()).enumerate() {
        assert_eq!(after, before, "session.txt:{}", number + 1);
    }
    assert_eq!(after.len(), before.len());
}

/// Not a byte is another than a server's own (I1), however the bytes come.
#[test]
fn i1_the_client_gets_what_a_server_says_however_it_comes() {
    let pieces =
        [Pieces::Frames, Pieces::All, Pieces::Bytes(1), Pieces::Bytes(2), Pieces::Bytes(7)];
    for script in scripts() {
        for pieces in pieces {
            let mut world = script.play(World::new(pieces, None));
            if let Some(expected) = script.expected() {
                let got = show_all(&frames(&world.client));
                assert_eq!(got, show_all(&expected), "{} ({pieces:?})", script.name);
                assert_eq!(world.client, expected.concat(), "{} ({pieces:?})", script.name);
            }
            world.end();
            assert_eq!(world.wrong, [""; 0], "{} ({pieces:?})", script.name);
        }
    }
}
