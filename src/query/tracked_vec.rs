//! Vectors that reserve memory from the engine's pool before they grow.

use std::ops::Deref;

use datafusion::execution::memory_pool::MemoryReservation;

use crate::QueryError;

#[derive(Debug)]
pub struct TrackedVec<T> {
    items: Vec<T>,
    reservation: MemoryReservation,
}

impl<T> TrackedVec<T> {
    /// Creates an empty vector that reserves memory as the consumer of `reservation`.
    pub fn new(reservation: &MemoryReservation) -> TrackedVec<T> {
        TrackedVec { items: Vec::new(), reservation: reservation.new_empty() }
    }

    pub fn from_elem(item: T, count: usize, reservation: &MemoryReservation) -> Result<TrackedVec<T>, QueryError>
    where
        T: Clone,
    {
        let mut vec = TrackedVec::new(reservation);
        vec.try_reserve(count)?;
        vec.items.resize(count, item);
        Ok(vec)
    }

    /// Reserves capacity for more items. The capacity grows by doubling.
    pub(crate) fn try_reserve(&mut self, more: usize) -> Result<(), QueryError> {
        let missing = (self.items.len() + more).saturating_sub(self.items.capacity());
        if missing > 0 {
            let capacity = self.items.capacity() + missing.max(self.items.capacity());
            self.reservation.try_resize(capacity * size_of::<T>())?;
            self.items.reserve_exact(capacity - self.items.len());
        }
        Ok(())
    }

    #[inline]
    pub fn try_push(&mut self, item: T) -> Result<(), QueryError> {
        if self.items.len() == self.items.capacity() {
            self.try_reserve(1)?;
        }
        self.items.push(item);
        Ok(())
    }

    pub fn try_extend(&mut self, items: impl ExactSizeIterator<Item = T>) -> Result<(), QueryError> {
        self.try_reserve(items.len())?;
        self.items.extend(items);
        Ok(())
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }

    pub fn into_parts(mut self) -> (Vec<T>, MemoryReservation) {
        self.items.shrink_to_fit();
        // If the memory pool refuses to shrink the reservation, it stays larger than the vector.
        let _ = self.reservation.try_resize(self.items.capacity() * size_of::<T>());
        (self.items, self.reservation)
    }
}

impl<T> Deref for TrackedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}
