//! Whose a server and a log are (I5), where neither says so yet: a first start, and clusters made before
//! there were ids.

use hihooi_log::Log;
use hihooi_postgres::connection::Connection;
use hihooi_postgres::identity::{self, Error, Identity};
use hihooi_postgres::setup;

use crate::support::Server;

/// What says that a server belongs to nobody's cluster, or to one of an earlier version.
async fn forget(connection: &mut Connection) {
    let dropped = "SET session_replication_role = replica; DROP TABLE IF EXISTS hihooi.cluster";
    connection.simple(dropped).await.expect("a superuser may");
}

fn why(found: Result<(), Error>) -> String {
    match found {
        Err(Error::Stranger(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// The first log takes the primary, and no other; a replica without an id is one if it is a copy.
#[tokio::test]
async fn what_has_no_id_gets_one_from_the_first_log() {
    let (primary, plain) = (Server::start(), Server::start());
    let (mut at_primary, mut at_plain) = (primary.connect().await, plain.connect().await);
    forget(&mut at_primary).await;
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [first, second] = folders.each_ref().map(|folder| Log::open(folder.path()).expect("a log"));

    identity::check_primary(&mut at_primary, &first, "primary").await.expect("nobody's so far");
    setup::install(&mut at_primary).await.expect("installed");
    let made = Identity::read(&mut at_primary).await.expect("asked");
    assert!(made.cluster.is_some() && made.site.is_none(), "{made:?}");
    identity::take_primary(&mut at_primary, &first, "primary").await.expect("taken");
    let taken = Identity::read(&mut at_primary).await.expect("asked");
    assert_eq!(taken, Identity { site: Some("primary".to_owned()), ..made });
    identity::check_primary(&mut at_primary, &first, "primary").await.expect("its own log");
    identity::check_slot(&mut at_primary, &first).await.expect("nobody has read the slot");

    let refused = why(identity::check_primary(&mut at_primary, &second, "primary").await);
    assert!(refused.contains("whose log is not in this data directory"), "{refused}");
    let renamed = why(identity::check_primary(&mut at_primary, &first, "main").await);
    assert!(renamed.contains("it is primary of its cluster, not main"), "{renamed}");

    let nobody = why(identity::take_replica(&mut at_plain, &first, "replica1").await);
    assert!(nobody.contains("no copy of the primary"), "{nobody}");
    let later_copy = why(identity::take_replica(&mut at_primary, &first, "replica1").await);
    assert!(later_copy.contains("it is primary of its cluster"), "{later_copy}");
    // A copy from before there were ids: the same system, and nothing said.
    forget(&mut at_primary).await;
    identity::take_replica(&mut at_primary, &first, "replica1").await.expect("a copy");
    let copy = Identity::read(&mut at_primary).await.expect("asked");
    assert_eq!(copy, Identity { site: Some("replica1".to_owned()), ..taken });
}
