//! The sessions of a shard, by key and in order of time: which ones a row meets, and which must be remembered.
//!
//! Sessions of a key never overlap; they hang on a list from the newest to the oldest. One that expired leaves its bounds
//! on the list, so that no row joins it to an open one (T4). The bounds are forgotten when both hold:
//!
//! - the session after it, if any, has expired too: a row between them can then reach no live session;
//! - `W` has passed its end by two gaps and L: a session opened from now on begins more than a gap after it.
//!
//! Both only ever become true as W rises, and nothing else changes between two rows of a key, so it makes no difference
//! whether bounds are forgotten when a watermark comes or when the next row does.

use std::collections::HashMap;

use super::partials::Chain;
use crate::operators::graph::Policy;
use crate::operators::lifecycle::expires_at;
use crate::window::{Fate, Window, fate};

/// No session.
pub(super) const NIL: u32 = u32::MAX;

/// A session, or the bounds of an expired one. With many keys every look at one is a wait for memory: it takes one line
/// of the processor's cache, and what few sessions have is an [`Extra`].
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Session {
    /// Its bounds as they are now.
    pub window: Window,
    /// Number of its key.
    pub key: u32,
    /// The session of this key before it in time.
    pub older: u32,
    /// The session of this key after it in time.
    pub newer: u32,
    /// Where its partial states are.
    pub chain: Chain,
    /// Rows taken, on time and late.
    pub rows: u64,
    /// How far it has come.
    pub stage: Stage,
    /// Whether its present bounds have been published.
    pub published: bool,
    /// Whether late rows came since it was published.
    pub dirty: bool,
    /// Whether its last part belongs to a value that is about to be published, so that no row may be added to it.
    pub frozen: bool,
    /// Whether it is on the list of sessions to look at when the epoch ends.
    pub listed: bool,
    /// Whether a timer is set for it.
    pub timed: bool,
    /// Whether it has an [`Extra`].
    extra: bool,
    /// Whether it is among those changed since the last export.
    changed: bool,
}

const _: () = assert!(size_of::<Session>() == 64, "a session takes one line of the processor's cache");

/// What only sessions have that late rows or mergers touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extra {
    /// Those of its rows that were late.
    pub late: u64,
    /// Published identities that its bounds replace.
    pub supersedes: Vec<Window>,
}

/// What a session leaves to the one it merges into.
#[derive(Debug)]
pub(super) struct Remains {
    pub chain: Chain,
    pub rows: u64,
    pub late: u64,
    pub frozen: bool,
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// `W < end`, as far as it was looked at.
    Open,
    /// It was closed; late rows may still come.
    Closed,
    /// Only its bounds are left.
    Expired,
    /// It was merged into another, or forgotten. Not on any list.
    Dead,
}

/// The sessions whose rows a row's interval meets: at most two, since none is shorter than the gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meeting {
    /// The newer one, or the only one.
    pub last: u32,
    /// The older of two.
    pub first: u32,
    /// The session after the row's interval.
    pub newer: u32,
    /// The first session that begins before the row's interval ends; equal to `last` if they meet.
    pub older: u32,
}

/// All sessions of a shard.
#[derive(Debug)]
pub(super) struct Book {
    gap_us: i64,
    policy: Policy,
    sessions: Vec<Session>,
    free: Vec<u32>,
    extras: HashMap<u32, Extra>,
    /// The newest session of each key.
    newest: Vec<u32>,
    keys_alive: usize,
    /// Places whose session changed since the last export; some twice. `None` while there was no export.
    changed: Option<Vec<u32>>,
}

/// What changed since the last export.
#[derive(Debug)]
pub(super) struct Changed {
    /// Whether `held` is all there is.
    pub whole: bool,
    /// Places with a session or bounds, ascending.
    pub held: Vec<u32>,
    /// Places that are empty now, ascending.
    pub removed: Vec<u32>,
}

impl Book {
    /// No sessions.
    pub(super) fn new(gap_us: i64, policy: Policy) -> Self {
        Self {
            gap_us,
            policy,
            sessions: vec![],
            free: vec![],
            extras: HashMap::new(),
            newest: vec![],
            keys_alive: 0,
            changed: None,
        }
    }

    /// Makes room for keys numbered below `len`.
    pub(super) fn set_keys(&mut self, len: usize) {
        self.newest.resize(len, NIL);
    }

    /// How many sessions and bounds there are.
    pub(super) fn len(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    /// How many keys have a session or bounds.
    pub(super) fn keys_alive(&self) -> usize {
        self.keys_alive
    }

    pub(super) fn get(&self, session: u32) -> &Session {
        &self.sessions[session as usize]
    }

    /// The session, to be changed.
    pub(super) fn get_mut(&mut self, session: u32) -> &mut Session {
        let s = &mut self.sessions[session as usize];
        note(s, session, &mut self.changed);
        s
    }

    /// Says whether a timer is set for a session.
    pub(super) fn set_timed(&mut self, session: u32, timed: bool) {
        self.sessions[session as usize].timed = timed;
    }

    /// Says where a session's partial states are from now on. They are worth the same.
    pub(super) fn set_chain(&mut self, session: u32, chain: Chain) {
        self.sessions[session as usize].chain = chain;
    }

    /// Places with a session or bounds.
    pub(super) fn held(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.sessions).filter(|(_, s)| s.stage != Stage::Dead).map(|(place, _)| place)
    }

    /// What changed since the last call, or with `whole` all there is. The first call says all.
    pub(super) fn take_changed(&mut self, whole: bool) -> Changed {
        let before = self.changed.replace(Vec::new());
        let whole = whole || before.is_none();
        let mut places = match whole {
            true => (0..self.sessions.len() as u32).collect(),
            false => before.unwrap_or_default(),
        };
        places.sort_unstable();
        places.dedup();
        let is_held = |place: &u32| match self.sessions.get_mut(*place as usize) {
            Some(s) => {
                s.changed = false;
                s.stage != Stage::Dead
            }
            None => false,
        };
        let (held, removed) = places.into_iter().partition(is_held);
        Changed { whole, held, removed: if whole { Vec::new() } else { removed } }
    }

    /// What late rows and mergers left on a session.
    pub(super) fn extra(&self, session: u32) -> Option<&Extra> {
        if self.get(session).extra { self.extras.get(&session) } else { None }
    }

    /// As [`Book::extra`], made if there is none.
    pub(super) fn extra_mut(&mut self, session: u32) -> &mut Extra {
        self.get_mut(session).extra = true;
        self.extras.entry(session).or_default()
    }

    /// Takes the extra away.
    pub(super) fn take_extra(&mut self, session: u32) -> Extra {
        match std::mem::take(&mut self.get_mut(session).extra) {
            true => self.extras.remove(&session).unwrap_or_default(),
            false => Extra::default(),
        }
    }

    /// Reads the newest session of each of `keys` ahead of its use, so that the processor waits for all of them at once
    /// and not for one after the other.
    pub(super) fn fetch_newest(&self, keys: &[usize]) {
        self.fetch(keys.iter().map(|key| self.newest[*key]));
    }

    /// As [`Book::fetch_newest`], for these sessions.
    pub(super) fn fetch(&self, sessions: impl Iterator<Item = u32>) {
        let ends = sessions.filter_map(|session| self.sessions.get(session as usize)).map(|s| s.window.end);
        std::hint::black_box(ends.fold(0, |all, end| all ^ end));
    }

    /// The session after `session` in time, or [`NIL`].
    pub(super) fn newer(&self, session: u32) -> u32 {
        self.get(session).newer
    }

    /// The newest session of `key`, if a row at `ts` lies in it and its bounds may grow without further ado.
    pub(super) fn growing(&mut self, key: usize, ts: i64, w: i64) -> Option<(u32, &mut Session)> {
        let newest = self.newest[key];
        let session = self.sessions.get_mut(newest as usize)?;
        let Window { start, end } = session.window;
        if !(start <= ts && ts < end && w < end && !session.published) {
            return None;
        }
        note(session, newest, &mut self.changed);
        Some((newest, session))
    }

    /// The first session of `key` that begins before `end`, and the one after it in time.
    pub(super) fn before(&self, key: u32, end: i64) -> (u32, u32) {
        let (mut newer, mut at) = (NIL, self.newest[key as usize]);
        while at != NIL && self.get(at).window.start >= end {
            (newer, at) = (at, self.get(at).older);
        }
        (at, newer)
    }

    /// The sessions `row` meets, given what [`Book::before`] says of its end.
    pub(super) fn meet(&self, row: Window, (older, newer): (u32, u32)) -> Meeting {
        let overlaps = |session: u32| session != NIL && self.get(session).window.end > row.start;
        let last = if overlaps(older) { older } else { NIL };
        let before = if last == NIL { NIL } else { self.get(last).older };
        let first = if overlaps(before) { before } else { NIL };
        Meeting { last, first, newer, older }
    }

    /// Fate of a row whose session would be `session`.
    pub(super) fn fate(&self, session: u32, w: i64) -> Fate {
        fate(self.get(session).window.end, w, self.policy.allowed_lateness_us)
    }

    /// The smallest watermark at which a session that ends at `end` is expired.
    pub(super) fn expired_at(&self, end: i64) -> i64 {
        expires_at(&self.policy, end)
    }

    /// The smallest watermark at which even the bounds of a session are forgotten, as things are now.
    pub(super) fn forgotten_at(&self, session: u32) -> i64 {
        let Session { window, newer, .. } = *self.get(session);
        let reach = self.expired_at(window.end.saturating_add(self.gap_us).saturating_add(self.gap_us));
        let next = if newer == NIL { i64::MIN } else { self.expired_at(self.get(newer).window.end) };
        reach.max(next)
    }

    /// Puts a new open session on the list of `key`, after `older` and before `newer`.
    pub(super) fn insert(&mut self, key: u32, window: Window, older: u32, newer: u32) -> u32 {
        let session = Session {
            window,
            key,
            older,
            newer,
            chain: Chain::EMPTY,
            rows: 0,
            stage: Stage::Open,
            published: false,
            dirty: false,
            frozen: false,
            listed: false,
            timed: false,
            extra: false,
            changed: false,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.sessions[at as usize] = session;
                at
            }
            None => {
                self.sessions.push(session);
                self.sessions.len() as u32 - 1
            }
        };
        note(&mut self.sessions[at as usize], at, &mut self.changed);
        self.keys_alive += usize::from(self.newest[key as usize] == NIL);
        self.link(key, older, at);
        self.link(key, at, newer);
        at
    }

    /// Takes a session off its list. Its place is used again once nothing else points to it.
    pub(super) fn kill(&mut self, session: u32) -> Remains {
        let Session { key, older, newer, chain, rows, frozen, .. } = *self.get(session);
        self.link(key, older, newer);
        self.keys_alive -= usize::from(self.newest[key as usize] == NIL);
        let late = self.take_extra(session).late;
        self.get_mut(session).stage = Stage::Dead;
        self.reuse(session);
        Remains { chain, rows, late, frozen }
    }

    /// Gives a dead session's place free, unless a timer or the epoch's list still points to it.
    pub(super) fn reuse(&mut self, session: u32) {
        let Session { stage, listed, timed, .. } = *self.get(session);
        if stage == Stage::Dead && !listed && !timed {
            self.free.push(session);
            if self.free.len() == self.sessions.len() {
                (self.sessions, self.free, self.extras) = (Vec::new(), Vec::new(), HashMap::new());
            }
        }
    }

    /// Chains of all sessions that have partial states.
    pub(super) fn chains(&mut self) -> Vec<&mut Chain> {
        let live = |s: &&mut Session| matches!(s.stage, Stage::Open | Stage::Closed);
        self.sessions.iter_mut().filter(live).map(|s| &mut s.chain).collect()
    }

    /// Renumbers keys: those that have a session or bounds get the numbers from 0 on. Says their old numbers, in order.
    pub(super) fn renumber(&mut self) -> Vec<u32> {
        let alive: Vec<u32> = (0..self.newest.len() as u32).filter(|key| self.newest[*key as usize] != NIL).collect();
        let mut numbers = vec![0; self.newest.len()];
        for (number, old) in alive.iter().enumerate() {
            numbers[*old as usize] = number as u32;
        }
        for session in &mut self.sessions {
            session.key = numbers.get(session.key as usize).copied().unwrap_or_default();
        }
        self.newest = alive.iter().map(|old| self.newest[*old as usize]).collect();
        alive
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sessions.capacity() * size_of::<Session>()
            + self.extras.capacity() * size_of::<(u32, Extra)>()
            + (self.free.capacity() + self.newest.capacity()) * size_of::<u32>()
    }

    fn link(&mut self, key: u32, older: u32, newer: u32) {
        if older != NIL {
            self.sessions[older as usize].newer = newer;
        }
        match newer {
            NIL => self.newest[key as usize] = older,
            newer => self.sessions[newer as usize].older = older,
        }
    }
}

/// Puts a session among the changed ones, if these are asked for.
fn note(s: &mut Session, session: u32, changed: &mut Option<Vec<u32>>) {
    if !s.changed
        && let Some(changed) = changed
    {
        s.changed = true;
        changed.push(session);
    }
}
