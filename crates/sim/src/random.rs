//! Random numbers of a run: one generator per purpose, all split from the run's seed, so that an additional
//! draw for the network doesn't change the workload.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// The generator that all parts use; the same on every platform and for ever.
pub type Random = Pcg64Mcg;

/// What random numbers are drawn for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Delays, losses and duplicates of messages.
    Network,
    /// How long disks take, and what a crash leaves on them.
    Disk,
    /// Which faults strike when.
    Faults,
    /// How far each clock is off.
    Clocks,
    /// A node's own choices (its number).
    Node(u16),
    /// A client's choices (its number).
    Client(u16),
    /// The set-up of a run: how many nodes, keys, clients.
    Setup,
}

/// The generator for a purpose in the run of this seed.
#[must_use]
pub fn generator(seed: u64, purpose: Purpose) -> Random {
    Random::seed_from_u64(mix(seed ^ mix(number(purpose))))
}

fn number(purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Network => 1,
        Purpose::Disk => 2,
        Purpose::Faults => 3,
        Purpose::Clocks => 4,
        Purpose::Setup => 5,
        Purpose::Node(n) => 1 << 16 | u64::from(n),
        Purpose::Client(n) => 2 << 16 | u64::from(n),
    }
}

/// The finalizer of SplitMix64: neighbouring seeds give unrelated generators.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn purposes_are_unrelated_and_repeatable() {
        let draw = |seed, purpose| generator(seed, purpose).random::<u64>();
        assert_eq!(draw(7, Purpose::Network), draw(7, Purpose::Network));
        assert_ne!(draw(7, Purpose::Network), draw(7, Purpose::Disk));
        assert_ne!(draw(7, Purpose::Network), draw(8, Purpose::Network));
        assert_ne!(draw(7, Purpose::Node(1)), draw(7, Purpose::Client(1)));
    }
}
