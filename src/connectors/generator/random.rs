//! Random numbers that depend on nothing but what they are for.
//!
//! A value is a hash of (seed, what it is for, number of the event), so any column of any row can be made without the ones
//! before it: batches, projections and splits change no value.

/// A stream of random numbers by event number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dice(u64);

impl Dice {
    /// Independent of every stream of another `seed` or `salt`.
    pub(super) fn new(seed: u64, salt: u64) -> Self {
        Self(mix(seed ^ mix(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// 64 random bits for `event`.
    pub(super) fn bits(self, event: u64) -> u64 {
        mix(self.0.wrapping_add(event.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn unit(self, event: u64) -> f64 {
        (self.bits(event) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..below`; 0 if `below` is 0.
    pub(super) fn below(self, event: u64, below: u64) -> u64 {
        ((u128::from(self.bits(event)) * u128::from(below)) >> 64) as u64
    }

    /// True with probability `p`.
    pub(super) fn chance(self, event: u64, p: f64) -> bool {
        p > 0.0 && self.unit(event) < p
    }
}

/// The finalizer of splitmix64: every input bit changes every output bit with probability one half.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How long late events are late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LagShape {
    /// All lags alike between the bounds.
    Uniform,
    /// Short lags most of the time, on average a quarter of the way from the lower bound to the upper.
    Exponential,
    /// A heavy tail from the lower bound on, exponent 1.5.
    Pareto,
}

/// The distribution of lags: a shape between two bounds, in µs, the upper one included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lag {
    pub(super) shape: LagShape,
    pub(super) min_us: i64,
    pub(super) max_us: i64,
}

impl Lag {
    /// The lag that `unit`, uniform in `[0, 1)`, stands for.
    pub(super) fn of(&self, unit: f64) -> i64 {
        let (min, max) = (self.min_us as f64, self.max_us as f64);
        let lag = match self.shape {
            LagShape::Uniform => min + (max - min) * unit,
            LagShape::Exponential => min - (max - min) / 4.0 * (1.0 - unit).ln(),
            LagShape::Pareto => min.max(1.0) * (1.0 - unit).powf(-1.0 / 1.5),
        };
        (lag as i64).clamp(self.min_us, self.max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let dice = Dice::new(7, 1);
        let mut counts = [0usize; 10];
        for event in 0..100_000 {
            counts[dice.below(event, 10) as usize] += 1;
        }
        assert!(counts.iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
        let hits = (0..100_000).filter(|event| dice.chance(*event, 0.005)).count();
        assert!((400..600).contains(&hits), "{hits}");
    }

    #[test]
    fn lags_keep_their_bounds_and_shapes() {
        let mean = |shape| {
            let lag = Lag { shape, min_us: 1000, max_us: 100_000 };
            let dice = Dice::new(1, 2);
            let lags: Vec<i64> = (0..10_000).map(|event| lag.of(dice.unit(event))).collect();
            assert!(lags.iter().all(|l| (1000..=100_000).contains(l)));
            lags.iter().sum::<i64>() / 10_000
        };
        assert!((49_000..52_000).contains(&mean(LagShape::Uniform)));
        assert!((23_000..27_000).contains(&mean(LagShape::Exponential)));
        assert!((2_000..4_000).contains(&mean(LagShape::Pareto)));
    }
}
