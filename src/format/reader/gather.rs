//! Copies rows of several arrays to one array.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, DictionaryArray, ListArray, MutableArrayData, make_array};
use arrow::datatypes::Int32Type;
use hashbrown::HashMap;
use strata_store::{Result, StorageError};

/// Returns the rows in `ranges`, each of which consists of the number of an array and its rows.
pub(super) fn gather_rows(
    arrays: Vec<ArrayRef>,
    ranges: impl Iterator<Item = (usize, Range<usize>)> + Clone,
) -> Result<ArrayRef> {
    let mut rows = 0;
    for (number, range) in ranges.clone() {
        if arrays.get(number).is_none_or(|array| array.len() < range.end) {
            return Err(StorageError::InvalidFile("a column has too few rows".to_owned()));
        }
        rows += range.len();
    }
    let arrays = with_shared_dictionary(arrays)?;
    let data: Vec<_> = arrays.iter().map(|array| array.to_data()).collect();
    let mut gathered = MutableArrayData::new(data.iter().collect(), false, rows);
    for (number, range) in ranges {
        gathered.try_extend(number, range.start, range.end)?;
    }
    Ok(make_array(gathered.freeze()))
}

/// Makes all dictionary arrays, or lists of such arrays, refer to the same dictionary, in which each value is once.
fn with_shared_dictionary(arrays: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
    if arrays.len() < 2 {
        return Ok(arrays);
    }
    let lists: Vec<ListArray> = arrays.iter().filter_map(|array| array.as_list_opt::<i32>().cloned()).collect();
    if lists.len() == arrays.len() {
        let parts: Vec<_> = lists.into_iter().map(ListArray::into_parts).collect();
        let values = with_shared_dictionary(parts.iter().map(|(_, _, values, _)| values.clone()).collect())?;
        let list = |((field, offsets, _, nulls), values)| {
            Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?) as ArrayRef)
        };
        return parts.into_iter().zip(values).map(list).collect();
    }
    let dictionaries: Vec<_> = arrays.iter().filter_map(|array| array.as_dictionary_opt::<Int32Type>()).collect();
    if dictionaries.len() != arrays.len() {
        return Ok(arrays);
    }
    let mut shared: Vec<&[u8]> = Vec::new();
    let mut numbers: HashMap<&[u8], i32> = HashMap::new();
    let mut keys = Vec::with_capacity(dictionaries.len());
    for dictionary in &dictionaries {
        let values = dictionary.values().as_binary_opt::<i32>().ok_or_else(StorageError::undecodable)?;
        let mut number_of = |value: usize| {
            *numbers.entry(values.value(value)).or_insert_with(|| {
                shared.push(values.value(value));
                shared.len() as i32 - 1
            })
        };
        let renumbered: Vec<i32> = (0..values.len()).map(&mut number_of).collect();
        // The key of a null can be any number.
        let number = |key: i32| renumbered.get(key as usize).copied().unwrap_or_default();
        keys.push(dictionary.keys().unary::<_, Int32Type>(number));
    }
    let shared: ArrayRef = Arc::new(BinaryArray::from_iter_values(shared));
    let array = |keys| Ok(Arc::new(DictionaryArray::try_new(keys, shared.clone())?) as ArrayRef);
    keys.into_iter().map(array).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn ranges_are_copied_in_order() {
        let arrays =
            [vec![Some(1), None, Some(3)], vec![Some(4)]].map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
        let gathered = gather_rows(arrays.to_vec(), [(0, 1..3), (1, 0..1), (0, 0..1)].into_iter());
        assert_eq!(*gathered.expect("failed to gather rows"), Int64Array::from(vec![None, Some(3), Some(4), Some(1)]));
        let missing = gather_rows(arrays.to_vec(), [(1, 0..2)].into_iter());
        missing.expect_err("accepted rows after the end");
    }

    #[test]
    fn dictionaries_are_merged() {
        let dictionary = |values: &[Option<&str>]| {
            let keys = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Binary));
            let strings = StringArray::from(values.to_vec());
            cast(&cast(&strings, &DataType::Binary).expect("failed to cast"), &keys).expect("failed to cast")
        };
        let arrays = vec![dictionary(&[Some("b"), Some("a"), None]), dictionary(&[Some("c"), Some("a")])];
        let gathered = gather_rows(arrays, [(1, 0..2), (0, 0..3)].into_iter()).expect("failed to gather rows");
        assert_eq!(gathered.as_dictionary::<Int32Type>().values().len(), 3);
        let texts = cast(&cast(&gathered, &DataType::Binary).expect("failed to cast"), &DataType::Utf8);
        let expected = StringArray::from(vec![Some("c"), Some("a"), Some("b"), Some("a"), None]);
        assert_eq!(*texts.expect("failed to cast"), expected);
    }
}
