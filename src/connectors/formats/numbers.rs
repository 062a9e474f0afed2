//! Exact numbers from text, with no detour through floating point (C78).

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{ArrowNativeType, DecimalType};

use super::RowError;
use crate::connectors::RejectReason;

/// A number as written: `digits` (most significant first, no leading zeros) times ten to the `exponent`.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

/// Longest run of digits looked at. No type holds more than 76.
const DIGITS_MAX: usize = 512;

impl Written {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let (mantissa, mut exponent) = match unsigned.iter().position(|b| matches!(b, b'e' | b'E')) {
            Some(at) => (&unsigned[..at], std::str::from_utf8(&unsigned[at + 1..]).ok()?.parse::<i32>().ok()?.into()),
            None => (unsigned, 0i64),
        };
        let mut digits = Vec::with_capacity(mantissa.len());
        let mut point = false;
        let mut any = false;
        for byte in mantissa {
            match byte {
                b'0'..=b'9' => {
                    any = true;
                    exponent -= i64::from(point);
                    if !(digits.is_empty() && *byte == b'0') {
                        digits.push(byte - b'0');
                    }
                }
                b'.' if !point => point = true,
                _ => return None,
            }
        }
        (any && digits.len() <= DIGITS_MAX).then_some(Self { negative, digits, exponent })
    }

    /// The whole part of value × 10^`scale`, and whether that is all of it. None if it has more than `max` digits.
    fn scaled(mut self, scale: i64, max: usize) -> Option<(Vec<u8>, bool)> {
        let shift = self.exponent + scale;
        if self.digits.is_empty() {
            return Some((self.digits, true));
        }
        if shift >= 0 {
            if self.digits.len() as i64 + shift > max as i64 {
                return None;
            }
            self.digits.resize(self.digits.len() + shift as usize, 0);
            return Some((self.digits, true));
        }
        let cut = usize::try_from(-shift).ok()?;
        let keep = self.digits.len().saturating_sub(cut);
        let exact = self.digits[keep..].iter().all(|d| *d == 0);
        self.digits.truncate(keep);
        (self.digits.len() <= max).then_some((self.digits, exact))
    }
}

fn not_a_number(text: &str) -> RowError {
    RowError { reason: RejectReason::Type, message: format!("`{text}` is no number") }
}

fn out_of_range(text: &str, what: &str) -> RowError {
    RowError { reason: RejectReason::Range, message: format!("`{text}` is out of range for {what}") }
}

/// A whole number; `2.0` and `1e3` are whole.
pub(super) fn parse_integer(text: &str) -> Result<i128, RowError> {
    let written = Written::parse(text).ok_or_else(|| not_a_number(text))?;
    let negative = written.negative;
    let (digits, exact) = written.scaled(0, 38).ok_or_else(|| out_of_range(text, "an integer"))?;
    if !exact {
        return Err(RowError { reason: RejectReason::Type, message: format!("`{text}` is no whole number") });
    }
    let value = digits.iter().fold(0i128, |value, digit| value * 10 + i128::from(*digit));
    Ok(if negative { -value } else { value })
}

/// The µs of a number of time units, each of 10 to the `digits_below_unit` nanoseconds; what is below a µs is cut toward
/// minus infinity. None if the text is no number at all.
pub(super) fn parse_instant(text: &str, digits_below_unit: u32) -> Option<Result<i64, RowError>> {
    let written = Written::parse(text)?;
    let negative = written.negative;
    let scaled = written.scaled(i64::from(digits_below_unit), 38);
    let us = scaled.and_then(|(digits, exact)| {
        let ns = digits.iter().fold(0i128, |value, digit| value * 10 + i128::from(*digit));
        let below = if negative { -ns - i128::from(!exact) } else { ns };
        i64::try_from(below.div_euclid(1000)).ok()
    });
    Some(us.ok_or_else(|| out_of_range(text, "a time")))
}

/// A decimal of at most `scale` digits after the point, noughts at its end not counted.
pub(super) fn parse_decimal<T: DecimalType>(text: &str, precision: u8, scale: i8) -> Result<T::Native, RowError> {
    let written = Written::parse(text).ok_or_else(|| not_a_number(text))?;
    let negative = written.negative;
    let range = || out_of_range(text, &format!("DECIMAL({precision}, {scale})"));
    let (digits, exact) = written.scaled(i64::from(scale), usize::from(precision)).ok_or_else(range)?;
    if !exact {
        let message = format!("`{text}` has more digits than DECIMAL({precision}, {scale}) keeps");
        return Err(RowError { reason: RejectReason::Type, message });
    }
    let ten = T::Native::usize_as(10);
    let value = digits.iter().try_fold(T::Native::usize_as(0), |value, digit| {
        value.mul_checked(ten)?.add_checked(T::Native::usize_as(usize::from(*digit)))
    });
    let value = value.map_err(|_| range())?;
    Ok(if negative { value.neg_wrapping() } else { value })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Decimal128Type, Decimal256Type, i256};

    use super::*;

    fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, RejectReason> {
        parse_decimal::<Decimal128Type>(text, precision, scale).map_err(|e| e.reason)
    }

    #[test]
    fn c78_big_integers_are_exact() {
        assert_eq!(parse_integer("9007199254740993").unwrap(), 9_007_199_254_740_993);
        assert_eq!(parse_integer("9007199254740993.0").unwrap(), 9_007_199_254_740_993);
        assert_eq!(parse_integer("9.007199254740993e15").unwrap(), 9_007_199_254_740_993);
        assert_eq!(decimal("30886023086020860230", 38, 0), Ok(30_886_023_086_020_860_230));
        assert_eq!(parse_integer("2.5").unwrap_err().reason, RejectReason::Type);
        assert_eq!(parse_integer("1e400").unwrap_err().reason, RejectReason::Range);
        assert_eq!(parse_integer("-0").unwrap(), 0);
    }

    #[test]
    fn decimals_are_exact_and_never_wrap() {
        assert_eq!(decimal("1.01", 10, 2), Ok(101));
        assert_eq!(decimal("-1.01000", 10, 2), Ok(-101));
        assert_eq!(decimal("1.005", 10, 2), Err(RejectReason::Type));
        assert_eq!(decimal("-1.0049999", 10, 2), Err(RejectReason::Type));
        assert_eq!(decimal("9.999", 3, 2), Err(RejectReason::Type));
        assert_eq!(decimal("10.00", 3, 2), Err(RejectReason::Range));
        assert_eq!(decimal("1e-30", 10, 2), Err(RejectReason::Type));
        assert_eq!(decimal("0e-30", 10, 2), Ok(0));
        assert_eq!(decimal("1255", 4, -1), Err(RejectReason::Type));
        assert_eq!(decimal("12.5e1", 10, 2), Ok(12_500));
        assert_eq!(decimal("1250", 4, -1), Ok(125));
        assert_eq!(decimal("99999999999999999999999999999999999999", 38, 0), Ok(10i128.pow(38) - 1));
        assert_eq!(decimal("1e38", 38, 0), Err(RejectReason::Range));
        let wide = parse_decimal::<Decimal256Type>(&"9".repeat(76), 76, 0).unwrap();
        assert_eq!(wide, i256::from_string(&"9".repeat(76)).unwrap());
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "1.2.3", "abc", "1e", "0x10", "NaN", "1 2"] {
            assert_eq!(parse_integer(text).unwrap_err().reason, RejectReason::Type, "{text}");
        }
    }

    #[test]
    fn instants_scale_exactly() {
        let us = |text, digits| parse_instant(text, digits).unwrap().map_err(|e| e.reason);
        assert_eq!(us("1700000000", 9), Ok(1_700_000_000_000_000));
        assert_eq!(us("1700000000.123456", 9), Ok(1_700_000_000_123_456));
        assert_eq!(us("1700000000123", 6), Ok(1_700_000_000_123_000));
        assert_eq!(us("-1", 0), Ok(-1));
        assert_eq!(us("0.9999999999", 9), Ok(999_999), "cut, not rounded");
        assert_eq!(us("-0.0000000001", 9), Ok(-1));
        assert_eq!(us("9223372036854775807", 9), Err(RejectReason::Range));
        assert!(parse_instant("2024-01-15", 9).is_none());
    }
}
