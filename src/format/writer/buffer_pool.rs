//! Reuses the large buffers of row groups: the system clears the pages of each new one, which takes a tenth of the time
//! of an import. Measured by the processor time of imports in `benches/scale`.

use arrow::array::GenericByteArray;
use arrow::datatypes::ByteArrayType;
use parking_lot::Mutex;

/// Row groups that are read, encoded, or indexed at the same time, with two buffers each.
const MAX_POOLED_BUFFERS: usize = 8;

#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Returns an empty buffer, with a capacity if the pool has one.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Keeps the buffer of an array that is no longer used.
    pub(super) fn recycle<T: ByteArrayType>(&self, array: GenericByteArray<T>) {
        let (_, values, _) = array.into_parts();
        if let Ok(mut buffer) = values.into_vec::<u8>() {
            buffer.clear();
            let mut pooled = self.0.lock();
            if pooled.len() < MAX_POOLED_BUFFERS {
                pooled.push(buffer);
            }
        }
    }
}
