//! A TCP relay that can drop all data while its connections remain open, as a broken load balancer or a lost route does: sent data is
//! acknowledged and discarded.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Directions in which a dead connection drops data.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Dead {
    Both,
    /// Requests arrive, responses do not.
    Responses,
}

/// Handle of a relay. The relay and its connections end with the runtime.
#[derive(Clone)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

#[derive(Default)]
struct Shared {
    connections: Mutex<BTreeMap<usize, Arc<Connection>>>,
    /// Whether requests, and responses, of new connections are dropped.
    cut: [AtomicBool; 2],
}

#[derive(Default)]
struct Connection {
    /// Whether requests, and responses, are dropped.
    dead: [AtomicBool; 2],
    /// Number of reads, in both directions.
    reads: AtomicUsize,
}

impl Relay {
    /// Starts a relay to `server`.
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let relay = Self { shared: Arc::default(), address };
        let shared = Arc::clone(&relay.shared);
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let connection = Arc::new(Connection::default());
                for direction in 0..2 {
                    connection.dead[direction].store(shared.cut[direction].load(SeqCst), SeqCst);
                }
                shared.all().insert(number, Arc::clone(&connection));
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    connection.relay(client, server).await;
                    shared.all().remove(&number);
                });
            }
        });
        relay
    }

    /// Drops the data of all current and future connections.
    pub(crate) fn die(&self, dead: Dead) {
        self.shared.cut[0].store(dead == Dead::Both, SeqCst);
        self.shared.cut[1].store(true, SeqCst);
        self.shared.all().values().for_each(|connection| connection.die(dead));
    }

    /// Counts reads for `time`, then kills all current connections except the busiest, and returns their number. New connections work.
    pub(crate) async fn kill_all_but_the_busiest(&self, time: std::time::Duration) -> usize {
        let reads = || -> BTreeMap<usize, usize> {
            self.shared.all().iter().map(|(number, connection)| (*number, connection.reads.load(SeqCst))).collect()
        };
        let before = reads();
        tokio::time::sleep(time).await;
        let after = reads();
        let busiest =
            after.iter().max_by_key(|(number, count)| *count - before.get(number).unwrap_or(&0)).map(|(it, _)| *it);
        let all = self.shared.all();
        let others = all.iter().filter(|(number, _)| Some(**number) != busiest);
        others.map(|(_, connection)| connection.die(Dead::Both)).count()
    }
}

impl Shared {
    fn all(&self) -> parking_lot::MutexGuard<'_, BTreeMap<usize, Arc<Connection>>> {
        self.connections.lock()
    }
}

impl Connection {
    fn die(&self, dead: Dead) {
        self.dead[0].store(dead == Dead::Both, SeqCst);
        self.dead[1].store(true, SeqCst);
    }

    async fn relay(&self, client: TcpStream, server: TcpStream) {
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::join!(self.copy(0, from_client, to_server), self.copy(1, from_server, to_client));
    }

    /// Copies until an end closes. A dead direction reads and drops data, and does not forward the close.
    async fn copy(&self, direction: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            self.reads.fetch_add(1, SeqCst);
            if !self.dead[direction].load(SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
        if self.dead[direction].load(SeqCst) {
            // The other direction may still be read; this one remains open.
            std::future::pending::<()>().await;
        }
    }
}
