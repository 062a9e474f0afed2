//! The scalar function that finds a row's calendar windows in a batch plan: local days and months are no arithmetic.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, ListArray, StructArray, TimestampMicrosecondBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, TimestampMicrosecondType};
use datafusion::common::{Result as DfResult, exec_datafusion_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::window_node::instant_type;
use crate::window::{Slice, Window, WindowSpec};

/// `highwater_windows(ts)`: the windows of `spec` that hold `ts`, as a list of structs `start`, `end`, ascending by end.
pub(super) fn windows_function(spec: &WindowSpec) -> ScalarUDF {
    ScalarUDF::from(WindowsFunction {
        spec: spec.clone(),
        signature: Signature::exact(vec![instant_type()], Volatility::Immutable),
    })
}

#[derive(Debug)]
struct WindowsFunction {
    spec: WindowSpec,
    signature: Signature,
}

impl PartialEq for WindowsFunction {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for WindowsFunction {}

impl Hash for WindowsFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.kind().hash(state);
    }
}

fn bounds() -> Fields {
    Fields::from(vec![Field::new("start", instant_type(), false), Field::new("end", instant_type(), false)])
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Struct(bounds()), true))
}

impl ScalarUDFImpl for WindowsFunction {
    fn name(&self) -> &str {
        "highwater_windows"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::List(item()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let times = arrays
            .first()
            .and_then(|array| array.as_primitive_opt::<TimestampMicrosecondType>())
            .ok_or_else(|| exec_datafusion_err!("highwater_windows takes a timestamp"))?;
        let builder = || TimestampMicrosecondBuilder::new().with_data_type(instant_type());
        let (mut starts, mut ends) = (builder(), builder());
        let mut lengths = Vec::with_capacity(times.len());
        // Neighbouring rows mostly share a slice, and with it their windows.
        let mut cached: Option<(Slice, Vec<Window>)> = None;
        for row in 0..times.len() {
            if times.is_null(row) {
                lengths.push(0);
                continue;
            }
            let ts = times.value(row);
            let hit = cached.as_ref().is_some_and(|(slice, _)| slice.start <= ts && ts < slice.end);
            if !hit {
                cached = self.spec.slice_of(ts).map(|slice| (slice, self.spec.windows_of_slice(slice)));
            }
            let windows = cached.as_ref().map(|(_, windows)| windows.as_slice()).unwrap_or_default();
            for window in windows {
                starts.append_value(window.start);
                ends.append_value(window.end);
            }
            lengths.push(windows.len());
        }
        let values = StructArray::new(bounds(), vec![Arc::new(starts.finish()), Arc::new(ends.finish())], None);
        let list = ListArray::new(item(), OffsetBuffer::from_lengths(lengths), Arc::new(values), None);
        Ok(ColumnarValue::Array(Arc::new(list)))
    }
}
