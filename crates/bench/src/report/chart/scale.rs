//! Maps values to positions, and chooses round values for grid lines.

/// The range of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal differences are equal distances.
    Linear { min: f64, max: f64 },
    /// Equal ratios are equal distances; both ends are above zero.
    Log { min: f64, max: f64 },
}

/// The approximate number of grid lines.
const TICKS: f64 = 5.0;

impl Scale {
    /// From zero to a round value at or above all of `values`.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let max = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        if max <= 0.0 {
            return Scale::Linear { min: 0.0, max: 1.0 };
        }
        let step = round_step(max / TICKS);
        Scale::Linear { min: 0.0, max: (max / step - 1e-9).ceil() * step }
    }

    /// Between round values around all of `values` that are above zero.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let (mut min, mut max) = (f64::INFINITY, 0.0);
        for value in values.into_iter().filter(|value| value.is_finite() && *value > 0.0) {
            (min, max) = (value.min(min), value.max(max));
        }
        if max <= 0.0 {
            return Scale::Log { min: 1.0, max: 10.0 };
        }
        let (min, mut max) = (round_below(min), round_above(max));
        if max / min < 2.0 {
            max = min * 10.0;
        }
        Scale::Log { min, max }
    }

    /// The position of a value: 0 is the start, 1 the end; values outside are at the nearest end.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear { min, max } => (value - min) / (max - min),
            Scale::Log { min, max } => (value.max(min) / min).ln() / (max / min).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// The round values that get a grid line.
    pub(crate) fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { min, max } => {
                let step = round_step((max - min) / TICKS);
                let first = (min / step - 1e-9).ceil();
                let values = (0..).map(|at| (first + f64::from(at)) * step);
                values.take_while(|value| *value <= max + step * 1e-6).collect()
            }
            Scale::Log { min, max } => {
                let decades = (max / min).log10();
                let all: Vec<f64> =
                    rounds_from(min).take_while(|value| *value <= max * (1.0 + 1e-9)).collect();
                // Powers of ten if there are enough of them.
                let powers: Vec<f64> = all.iter().copied().filter(|value| is_power(*value)).collect();
                if decades >= 2.0 { powers } else { all }
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at or above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let found = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    found.unwrap_or(10.0) * power
}

fn round_above(value: f64) -> f64 {
    round_step(value)
}

fn round_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let found = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power <= value * (1.0 + 1e-9));
    found.unwrap_or(1.0) * power
}

/// 1, 2, 5, 10, 20 … times a power of ten, from a round value on.
fn rounds_from(min: f64) -> impl Iterator<Item = f64> {
    let exponent = (min * (1.0 + 1e-9)).log10().floor() as i32;
    (exponent..)
        .flat_map(|exponent| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(exponent)))
        .skip_while(move |value| *value < min * (1.0 - 1e-9))
}

fn is_power(value: f64) -> bool {
    let exponent = value.log10();
    (exponent - exponent.round()).abs() < 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_scales_begin_at_zero_and_end_round() {
        for (value, max, ticks) in [(97.0, 100.0, 6), (121_306.0, 150_000.0, 4), (0.3, 0.3, 4), (1.0, 1.0, 6)]
        {
            let scale = Scale::from_zero([value, 0.0, f64::NAN]);
            let Scale::Linear { max: found, .. } = scale else { panic!() };
            assert!((found - max).abs() < max * 1e-9, "{value}: {found}");
            assert_eq!(scale.ticks().len(), ticks, "{value}: {:?}", scale.ticks());
        }
        assert_eq!(Scale::from_zero([]).ticks().len(), 6);
        assert_eq!(Scale::from_zero([8.0]).place(4.0), 0.5);
    }

    #[test]
    fn logarithmic_scales_have_round_ends() {
        let scale = Scale::log([44.0, 49_611.0, 0.0]);
        assert_eq!(scale, Scale::Log { min: 20.0, max: 50_000.0 });
        assert_eq!(scale.ticks(), [100.0, 1000.0, 10_000.0]);
        assert_eq!(Scale::log([230.0, 480.0]).ticks(), [200.0, 500.0]);
        assert_eq!(Scale::log([7.0]).ticks(), [5.0, 10.0]);
        assert_eq!(Scale::log([]).ticks(), [1.0, 2.0, 5.0, 10.0]);
        assert!((Scale::Log { min: 1.0, max: 100.0 }.place(10.0) - 0.5).abs() < 1e-12);
    }
}
