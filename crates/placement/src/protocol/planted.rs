//! A [`Site`] with a bug, so that tests and simulations can show that they would find it. Not for any other
//! use. The bugs are in what goes into or out of the site: the protocol itself has none.

use std::ops::Deref;

use hihooi_certify::certification::Timestamp;

use super::message::{Content, Effect, Event, Message, Proposal};
use super::site::Site;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Planted {
    /// None: the protocol as it is meant.
    #[default]
    Nothing,
    /// A site certifies only against writesets that it holds some of: what the paper's section 4
    /// warns of, and what its Figure 3 prints.
    HoldersOnly,
    /// `validate` with the interval that Figure 3 prints: nothing is ever in it.
    PrintedInterval,
    /// A redirected operation reads the newest snapshot instead of its transaction's.
    NewestSnapshot,
    /// A redirected operation doesn't see its transaction's earlier changes.
    WithoutChanges,
}

/// The site with the mistake.
#[derive(Clone, Debug)]
pub struct PlantedSite<C: Content> {
    site: Site<C>,
    planted: Planted,
    /// The newest snapshot that is open.
    newest: Option<Timestamp>,
}

impl<C: Content> PlantedSite<C> {
    /// A site that just started.
    #[must_use]
    pub fn new(site: Site<C>, planted: Planted) -> PlantedSite<C> {
        PlantedSite { site, planted, newest: None }
    }

    /// As [`Site::step`].
    pub fn step(&mut self, mut event: Event<C>) -> Vec<Effect<C>> {
        if let Event::Delivered { at, proposal } = &mut event {
            self.deliver(*at, proposal);
        }
        let effects = self.site.step(event);
        self.leave(effects)
    }

    /// As [`Site::tick`].
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect<C>> {
        let effects = self.site.tick(now_ms);
        self.leave(effects)
    }

    fn deliver(&self, at: Timestamp, proposal: &mut Proposal<C>) {
        let holds = || proposal.changes.iter().any(|change| self.site.holds(change.item.object));
        match self.planted {
            Planted::HoldersOnly if !holds() => proposal.changes.clear(),
            Planted::PrintedInterval => proposal.begin = Timestamp(at.0 - 1),
            _ => {}
        }
    }

    fn leave(&mut self, mut effects: Vec<Effect<C>>) -> Vec<Effect<C>> {
        for effect in &mut effects {
            match (self.planted, effect) {
                (
                    Planted::WithoutChanges,
                    Effect::Send { message: Message::Redirect { changes, .. }, .. },
                ) => changes.clear(),
                (Planted::NewestSnapshot, Effect::OpenSnapshot { at }) => self.newest = Some(*at),
                (Planted::NewestSnapshot, Effect::Begin { snapshot, .. }) => {
                    *snapshot = self.newest.expect("a site opens a snapshot before it serves any");
                }
                _ => {}
            }
        }
        effects
    }
}

impl<C: Content> Deref for PlantedSite<C> {
    type Target = Site<C>;

    fn deref(&self) -> &Site<C> {
        &self.site
    }
}
