//! From what a decoder yields to what the source declares, exactly or not at all.
//!
//! Every value either becomes the declared type without loss, or its row is noted in [`RowErrors`] with a reason. Two kinds
//! of loss stay allowed, because the types are not meant to be exact: a number may become a DOUBLE, and a DOUBLE a DECIMAL.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    PrimitiveArray, StringArray, StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, FieldRef, Fields, Int64Type,
    TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use jiff::tz::TimeZone;

use super::time_text::TimeReader;
use super::{RowError, numbers};
use crate::connectors::RejectReason;
use crate::connectors::definition::{instant, instant_field, instant_type};
use crate::error::{Error, ErrorKind, Result};
use crate::time::{DAY_US, Gap, Local, Unit, YEARS_US, to_instant};

/// The rows of a batch that could not be converted, each with its first error.
#[derive(Debug, Default)]
pub(super) struct RowErrors(BTreeMap<usize, RowError>);

impl RowErrors {
    pub(super) fn add(&mut self, row: usize, column: &str, error: RowError) {
        let message = if column.is_empty() { error.message } else { format!("column `{column}`: {}", error.message) };
        self.0.entry(row).or_insert(RowError { reason: error.reason, message });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, row: usize) -> bool {
        self.0.contains_key(&row)
    }

    pub(super) fn into_map(self) -> BTreeMap<usize, RowError> {
        self.0
    }
}

/// What a text decoder is asked for so that [`convert`] can make `declared` of it: text for times and decimals, and for
/// integers too where some are written with a point or an exponent.
pub(super) fn text_type(declared: &DataType, integers_as_text: bool) -> DataType {
    let inner = |field: &FieldRef| {
        Arc::new(
            field.as_ref().clone().with_data_type(text_type(field.data_type(), integers_as_text)).with_nullable(true),
        )
    };
    match declared {
        DataType::Timestamp(_, _) => DataType::Utf8,
        t if t.is_decimal() => DataType::Utf8,
        t if integers_as_text && t.is_integer() => DataType::Utf8,
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(inner(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect::<Fields>()),
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { return declared.clone() };
            let pair: Fields = vec![Arc::clone(&pair[0]), inner(&pair[1])].into();
            DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(pair))), *sorted)
        }
        other => other.clone(),
    }
}

/// `array` as the declared type with instants in µs UTC. Rows that cannot be converted are NULL in the result and noted.
///
/// # Errors
/// `Data` if no value of the array's type can ever become the declared one.
pub(super) fn convert(
    array: &ArrayRef,
    declared: &DataType,
    zone: &TimeZone,
    errors: &mut RowErrors,
) -> Result<ArrayRef> {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct, Timestamp, Utf8};
    let target = instant_type(declared);
    if *array.data_type() == target && !holds_instants(&target) {
        return Ok(Arc::clone(array));
    }
    match (array.data_type(), declared) {
        (from, Timestamp(unit, _)) => to_instants(array, from, *unit, zone, errors),
        (t, decimal) if t.is_string() && decimal.is_decimal() => {
            let text = cast(array, &Utf8).map_err(|e| cannot(array, declared, e))?;
            text_to_decimal(text.as_string(), decimal, errors).map_err(|e| cannot(array, declared, e))
        }
        (t, integer) if t.is_string() && integer.is_integer() => {
            let text = cast(array, &Utf8).map_err(|e| cannot(array, declared, e))?;
            text_to_integer(text.as_string(), integer, errors)
        }
        (Struct(_), Struct(fields)) => convert_struct(array.as_struct(), fields, zone, errors),
        (List(_), List(item)) => convert_list::<i32>(array.as_list(), item, zone, errors),
        (LargeList(_), LargeList(item)) => convert_list::<i64>(array.as_list(), item, zone, errors),
        (FixedSizeList(_, n), FixedSizeList(item, m)) if n == m => {
            let list = array.as_fixed_size_list();
            let mut inner = RowErrors::default();
            let values = convert(list.values(), item.data_type(), zone, &mut inner)?;
            for (at, error) in inner.into_map() {
                errors.add(at / *n as usize, "", error);
            }
            Ok(Arc::new(FixedSizeListArray::new(instant_field(item), *n, values, list.nulls().cloned())))
        }
        (Map(_, _), Map(entries, sorted)) => convert_map(array.as_map(), entries, *sorted, zone, errors),
        _ => cast_checked(array, &target, errors),
    }
}

/// Whether there is an instant in it, however deep.
pub(super) fn holds_instants(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, _) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => holds_instants(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_instants(field.data_type())),
        _ => false,
    }
}

/// A whole column that a file does not have.
pub(super) fn missing(declared: &DataType, rows: usize) -> ArrayRef {
    new_null_array(&instant_type(declared), rows)
}

fn cannot(array: &dyn Array, declared: &DataType, source: ArrowError) -> Error {
    let message = format!("values of type {} cannot become {declared}", array.data_type());
    Error::new(ErrorKind::Data, message).with_source(source)
}

fn digits_below(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 9,
        TimeUnit::Millisecond => 6,
        TimeUnit::Microsecond => 3,
        TimeUnit::Nanosecond => 0,
    }
}

fn unit_of(unit: TimeUnit) -> Unit {
    match unit {
        TimeUnit::Second => Unit::Seconds,
        TimeUnit::Millisecond => Unit::Millis,
        TimeUnit::Microsecond => Unit::Micros,
        TimeUnit::Nanosecond => Unit::Nanos,
    }
}

fn to_instants(
    array: &ArrayRef,
    from: &DataType,
    unit: TimeUnit,
    zone: &TimeZone,
    errors: &mut RowErrors,
) -> Result<ArrayRef> {
    let integers = || cast(array, &DataType::Int64).map_err(|e| cannot(array, &instant(), e));
    match from {
        t if t.is_string() => {
            let text = cast(array, &DataType::Utf8).map_err(|e| cannot(array, &instant(), e))?;
            let mut reader = TimeReader::new(zone);
            Ok(instants(text.as_string::<i32>(), errors, |text| match number_in(text) {
                false => reader.read(text),
                true => numbers::parse_instant(text, digits_below(unit)).unwrap_or_else(|| reader.read(text)),
            }))
        }
        DataType::UInt64 => {
            let text = cast(array, &DataType::Utf8).map_err(|e| cannot(array, &instant(), e))?;
            to_instants(&text, &DataType::Utf8, unit, zone, errors)
        }
        t if t.is_integer() => {
            let integers = integers()?;
            Ok(instants_of(integers.as_primitive::<Int64Type>(), errors, |v| unit_of(unit).to_us(v).ok()))
        }
        DataType::Timestamp(stored, stored_zone) => {
            let stored = *stored;
            let local = stored_zone.is_none() && *zone != TimeZone::UTC;
            if stored == TimeUnit::Microsecond && !local {
                // The same numbers under another name.
                return Ok(in_years(array.as_primitive::<TimestampMicrosecondType>().clone(), errors));
            }
            let integers = integers()?;
            Ok(instants_of(integers.as_primitive::<Int64Type>(), errors, |v| {
                let us = unit_of(stored).to_us(v).ok()?;
                if local { local_to_instant(us, zone) } else { Some(us) }
            }))
        }
        DataType::Date32 | DataType::Date64 => {
            let days = cast(array, &DataType::Date32)
                .and_then(|days| cast(&days, &DataType::Int32))
                .and_then(|days| cast(&days, &DataType::Int64))
                .map_err(|e| cannot(array, &instant(), e))?;
            Ok(instants_of(days.as_primitive::<Int64Type>(), errors, |day| {
                to_instant(zone, Local { day, time_us: 0 }, Gap::Shift)
            }))
        }
        _ => Err(cannot(array, &instant(), ArrowError::CastError("no time can be read from it".to_string()))),
    }
}

/// Whether a text can be nothing but a number. `2024-01-15` is none: its second sign is no exponent's.
fn number_in(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().skip(1).all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+'))
}

fn local_to_instant(local_us: i64, zone: &TimeZone) -> Option<i64> {
    let local = Local { day: local_us.div_euclid(DAY_US), time_us: local_us.rem_euclid(DAY_US) };
    to_instant(zone, local, Gap::Shift)
}

fn instants(
    text: &StringArray,
    errors: &mut RowErrors,
    mut read: impl FnMut(&str) -> Result<i64, RowError>,
) -> ArrayRef {
    let array: TimestampMicrosecondArray = (0..text.len())
        .map(|row| {
            if text.is_null(row) {
                return None;
            }
            let read = read(text.value(row)).and_then(|us| match YEARS_US.contains(&us) {
                true => Ok(us),
                false => Err(beyond_years(text.value(row))),
            });
            read.map_err(|e| errors.add(row, "", e)).ok()
        })
        .collect();
    Arc::new(array.with_timezone("UTC"))
}

fn beyond_years(value: impl Display) -> RowError {
    let message = format!("`{value}` is out of range for a time: years are 0001 to 9999");
    RowError { reason: RejectReason::Range, message }
}

/// Instants as they are, those beyond the years noted.
fn in_years(times: TimestampMicrosecondArray, errors: &mut RowErrors) -> ArrayRef {
    // No early end, so that the usual column, in which nothing is found, is looked through several values at a time.
    if times.values().iter().fold(false, |found, us| found | !YEARS_US.contains(us)) {
        for row in (0..times.len()).filter(|row| times.is_valid(*row) && !YEARS_US.contains(&times.value(*row))) {
            errors.add(row, "", beyond_years(times.value(row)));
        }
    }
    Arc::new(times.with_timezone("UTC"))
}

fn instants_of(
    values: &PrimitiveArray<Int64Type>,
    errors: &mut RowErrors,
    scale: impl Fn(i64) -> Option<i64>,
) -> ArrayRef {
    let scale = |value| scale(value).filter(|us| YEARS_US.contains(us));
    let array = values.unary_opt::<_, TimestampMicrosecondType>(scale);
    if array.null_count() > values.null_count() {
        for row in (0..values.len()).filter(|row| array.is_null(*row) && values.is_valid(*row)) {
            errors.add(row, "", beyond_years(values.value(row)));
        }
    }
    Arc::new(array.with_timezone("UTC"))
}

fn text_to_decimal(text: &StringArray, target: &DataType, errors: &mut RowErrors) -> Result<ArrayRef, ArrowError> {
    match *target {
        DataType::Decimal32(p, s) => decimals::<Decimal32Type>(text, p, s, errors),
        DataType::Decimal64(p, s) => decimals::<Decimal64Type>(text, p, s, errors),
        DataType::Decimal128(p, s) => decimals::<Decimal128Type>(text, p, s, errors),
        DataType::Decimal256(p, s) => decimals::<Decimal256Type>(text, p, s, errors),
        _ => Err(ArrowError::CastError(format!("{target} is no decimal"))),
    }
}

fn decimals<T: DecimalType>(
    text: &StringArray,
    precision: u8,
    scale: i8,
    errors: &mut RowErrors,
) -> Result<ArrayRef, ArrowError> {
    let array: PrimitiveArray<T> = parse_each(text, errors, |t| numbers::parse_decimal::<T>(t, precision, scale));
    Ok(Arc::new(array.with_precision_and_scale(precision, scale)?))
}

fn parse_each<T: ArrowPrimitiveType>(
    text: &StringArray,
    errors: &mut RowErrors,
    parse: impl Fn(&str) -> Result<T::Native, RowError>,
) -> PrimitiveArray<T> {
    text.iter()
        .enumerate()
        .map(|(row, value)| value.and_then(|v| parse(v).map_err(|e| errors.add(row, "", e)).ok()))
        .collect()
}

/// Whole numbers from text, checked against the target's range on the way through DECIMAL(38, 0).
fn text_to_integer(text: &StringArray, target: &DataType, errors: &mut RowErrors) -> Result<ArrayRef> {
    let wide: PrimitiveArray<Decimal128Type> = parse_each(text, errors, numbers::parse_integer);
    let wide = wide.with_precision_and_scale(38, 0).map_err(|e| cannot(text, target, e))?;
    cast_checked(&(Arc::new(wide) as ArrayRef), target, errors)
}

/// Arrow's cast, where a value it makes NULL of, or cuts the fraction off, is an error of its row.
fn cast_checked(array: &ArrayRef, target: &DataType, errors: &mut RowErrors) -> Result<ArrayRef> {
    if !can_cast_types(array.data_type(), target) {
        return Err(cannot(array, target, ArrowError::CastError("there is no such cast".to_string())));
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let result = cast_with_options(array, target, &options).map_err(|e| cannot(array, target, e))?;
    let lossy = cuts_digits(array.data_type(), target);
    if result.null_count() == array.logical_null_count() && !lossy {
        return Ok(result);
    }
    let back = if lossy { cast(&result, array.data_type()).ok() } else { None };
    if back.as_ref().is_some_and(|back| back == array) {
        return Ok(result);
    }
    let numeric = array.data_type().is_numeric() && target.is_numeric();
    let nulls = array.logical_nulls();
    for row in (0..array.len()).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row))) {
        let value = || arrow::util::display::array_value_to_string(array, row).unwrap_or_default();
        if result.is_null(row) {
            let reason = if numeric { RejectReason::Range } else { RejectReason::Type };
            errors.add(row, "", RowError { reason, message: format!("`{}` does not fit {target}", value()) });
        } else if back.as_ref().is_some_and(|back| back.slice(row, 1).as_ref() != array.slice(row, 1).as_ref()) {
            let message = match target.is_integer() {
                true => format!("`{}` is no whole number", value()),
                false => format!("`{}` has more digits than {target} keeps", value()),
            };
            errors.add(row, "", RowError { reason: RejectReason::Type, message });
        }
    }
    Ok(result)
}

fn cuts_digits(from: &DataType, to: &DataType) -> bool {
    match (decimal_scale(from), decimal_scale(to)) {
        (Some(from), Some(to)) => from > to,
        (from_decimal, None) => to.is_integer() && (from.is_floating() || from_decimal.is_some()),
        (None, Some(_)) => false,
    }
}

fn decimal_scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

fn convert_struct(array: &StructArray, fields: &Fields, zone: &TimeZone, errors: &mut RowErrors) -> Result<ArrayRef> {
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let mut inner = RowErrors::default();
        let column = match find(array.fields(), field.name()) {
            Some(at) => convert(array.column(at), field.data_type(), zone, &mut inner)?,
            None => missing(field.data_type(), array.len()),
        };
        for (row, error) in inner.into_map() {
            errors.add(row, field.name(), error);
        }
        columns.push(column);
    }
    let fields: Fields = fields.iter().map(instant_field).collect();
    Ok(Arc::new(StructArray::new(fields, columns, array.nulls().cloned())))
}

/// The field called `name`: letter for letter if there is one, else whatever the case.
pub(super) fn find(fields: &Fields, name: &str) -> Option<usize> {
    let exact = fields.iter().position(|f| f.name() == name);
    exact.or_else(|| fields.iter().position(|f| f.name().to_lowercase() == name.to_lowercase()))
}

fn convert_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    zone: &TimeZone,
    errors: &mut RowErrors,
) -> Result<ArrayRef> {
    let values = convert_items(list.values(), list.value_offsets(), item, zone, errors)?;
    Ok(Arc::new(GenericListArray::new(instant_field(item), list.offsets().clone(), values, list.nulls().cloned())))
}

fn convert_map(
    map: &MapArray,
    entries: &FieldRef,
    sorted: bool,
    zone: &TimeZone,
    errors: &mut RowErrors,
) -> Result<ArrayRef> {
    let DataType::Struct(pair) = entries.data_type() else {
        return Err(Error::internal("a MAP without key and value"));
    };
    let keys = convert_items(map.keys(), map.value_offsets(), &pair[0], zone, errors)?;
    let values = convert_items(map.values(), map.value_offsets(), &pair[1], zone, errors)?;
    let DataType::Map(entries, _) = instant_type(&DataType::Map(Arc::clone(entries), sorted)) else {
        return Err(Error::internal("a MAP whose instants make it none"));
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(Error::internal("a MAP without key and value"));
    };
    let data = StructArray::new(fields.clone(), vec![keys, values], None);
    Ok(Arc::new(MapArray::new(entries, map.offsets().clone(), data, map.nulls().cloned(), sorted)))
}

/// Converts the items of a list and notes their errors at the rows that hold them.
fn convert_items<O: OffsetSizeTrait>(
    items: &ArrayRef,
    offsets: &[O],
    field: &FieldRef,
    zone: &TimeZone,
    errors: &mut RowErrors,
) -> Result<ArrayRef> {
    let mut inner = RowErrors::default();
    let converted = convert(items, field.data_type(), zone, &mut inner)?;
    for (at, error) in inner.into_map() {
        let row = offsets.partition_point(|offset| offset.as_usize() <= at);
        // Items before the first or after the last offset belong to no row of this array.
        if let Some(row) = row.checked_sub(1).filter(|row| row + 1 < offsets.len()) {
            errors.add(row, "", error);
        }
    }
    Ok(converted)
}
