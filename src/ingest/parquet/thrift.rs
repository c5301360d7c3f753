//! Walks Thrift's compact protocol without building anything, because a list of four bytes can announce two thousand
//! million elements. [`StructWriter`] writes the fields that a reader needs. Source: the Thrift compact protocol
//! specification.

use strata_types::leb128;

/// The deepest nesting that is walked; Parquet's own structures need less than ten levels.
const DEPTH_MAX: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

type Walked<T> = Result<T, Malformed>;

/// The type of a value, by its number in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueType(u8);

impl ValueType {
    const TRUE: ValueType = ValueType(1);
    const FALSE: ValueType = ValueType(2);
    const LIST: ValueType = ValueType(9);
    const STRUCT: ValueType = ValueType(12);
}

#[derive(Clone)]
pub(super) struct Walker<'a> {
    bytes: &'a [u8],
    pub(super) position: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn byte(&mut self) -> Walked<u8> {
        let byte = *self.bytes.get(self.position).ok_or(Malformed)?;
        self.position += 1;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Walked<u64> {
        let mut rest = self.bytes.get(self.position..).ok_or(Malformed)?;
        let value = leb128::read(&mut rest).ok_or(Malformed)?;
        self.position = self.bytes.len() - rest.len();
        Ok(value)
    }

    /// A signed number in zigzag.
    pub(super) fn number(&mut self) -> Walked<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn copy_field(&mut self, id: i64, kind: ValueType, out: &mut StructWriter) -> Walked<()> {
        let start = self.position;
        self.skip(kind, 0)?;
        out.begin_field(id, kind);
        out.bytes.extend_from_slice(&self.bytes[start..self.position]);
        Ok(())
    }

    pub(super) fn advance(&mut self, count: u64) -> Walked<()> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let end = self.position.checked_add(count).ok_or(Malformed)?;
        if end > self.bytes.len() {
            return Err(Malformed);
        }
        self.position = end;
        Ok(())
    }

    /// Walks over the fields of a struct, its end included. `visit` takes a field, or leaves it with false.
    pub(super) fn fields(&mut self, mut visit: impl FnMut(&mut Self, i64, ValueType) -> Walked<bool>) -> Walked<()> {
        self.fields_at(0, &mut visit)
    }

    fn fields_at(
        &mut self,
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, i64, ValueType) -> Walked<bool>,
    ) -> Walked<()> {
        let mut id = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            let kind = ValueType(head & 0x0f);
            id = match head >> 4 {
                0 => self.number()?,
                step => id.checked_add(step.into()).ok_or(Malformed)?,
            };
            if !visit(self, id, kind)? {
                self.skip(kind, depth)?;
            }
        }
    }

    /// The elements of a list: how many are announced. Each takes a byte at least, so walking over them ends.
    pub(super) fn list(&mut self, kind: ValueType) -> Walked<u64> {
        if !matches!(kind, ValueType(9 | 10)) {
            return Err(Malformed);
        }
        Ok(self.list_head()?.0)
    }

    fn list_head(&mut self) -> Walked<(u64, ValueType)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        if count > (self.bytes.len() - self.position) as u64 {
            return Err(Malformed);
        }
        Ok((count, ValueType(head & 0x0f)))
    }

    pub(super) fn boolean(kind: ValueType) -> Walked<bool> {
        match kind {
            ValueType::TRUE => Ok(true),
            ValueType::FALSE => Ok(false),
            _ => Err(Malformed),
        }
    }

    fn skip(&mut self, kind: ValueType, depth: usize) -> Walked<()> {
        if depth >= DEPTH_MAX {
            return Err(Malformed);
        }
        match kind {
            ValueType::TRUE | ValueType::FALSE => Ok(()),
            ValueType(3) => self.advance(1),
            ValueType(4..=6) => self.varint().map(drop),
            ValueType(7) => self.advance(8),
            ValueType(8) => {
                let length = self.varint()?;
                self.advance(length)
            }
            ValueType(9 | 10) => {
                let (count, kind) = self.list_head()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth + 1))
            }
            ValueType(11) => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(ValueType(kinds >> 4), depth + 1)?;
                    self.skip_element(ValueType(kinds & 0x0f), depth + 1)
                })
            }
            ValueType::STRUCT => self.fields_at(depth + 1, &mut |_, _, _| Ok(false)),
            ValueType(13) => self.advance(16),
            _ => Err(Malformed),
        }
    }

    /// In a collection a boolean takes a byte.
    fn skip_element(&mut self, kind: ValueType, depth: usize) -> Walked<()> {
        if matches!(kind, ValueType::TRUE | ValueType::FALSE) { self.advance(1) } else { self.skip(kind, depth) }
    }
}

/// Writes structs in the compact protocol. A copy without some of the fields is never longer than the original.
#[derive(Debug)]
pub(super) struct StructWriter {
    bytes: Vec<u8>,
    last_ids: Vec<i64>,
}

impl StructWriter {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), last_ids: vec![0] }
    }

    fn begin_field(&mut self, id: i64, kind: ValueType) {
        let last_id = self.last_ids.last_mut().map(|last_id| std::mem::replace(last_id, id));
        match id.saturating_sub(last_id.unwrap_or(0)) {
            step @ 1..=15 => self.bytes.push((step as u8) << 4 | kind.0),
            _ => {
                self.bytes.push(kind.0);
                leb128::write((id << 1) as u64 ^ (id >> 63) as u64, &mut self.bytes);
            }
        }
    }

    pub(super) fn begin_struct(&mut self, id: i64) {
        self.begin_field(id, ValueType::STRUCT);
        self.begin_element();
    }

    /// Begins a field whose value is a list of `count` structs.
    pub(super) fn begin_structs(&mut self, id: i64, count: u64) {
        self.begin_field(id, ValueType::LIST);
        match u8::try_from(count) {
            Ok(count @ 0..15) => self.bytes.push(count << 4 | ValueType::STRUCT.0),
            _ => {
                self.bytes.push(0xf0 | ValueType::STRUCT.0);
                leb128::write(count, &mut self.bytes);
            }
        }
    }

    pub(super) fn begin_element(&mut self) {
        self.last_ids.push(0);
    }

    pub(super) fn end_struct(&mut self) {
        self.last_ids.pop();
        self.bytes.push(0);
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.end_struct();
        self.bytes
    }
}
