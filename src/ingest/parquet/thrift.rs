//! Parses the Thrift compact protocol without allocating, because a list of four bytes can announce two billion
//! elements. [`ThriftStructWriter`] copies the fields that the library needs. Source: the protocol's specification.

use strata_types::leb128;

/// The maximum nesting depth. Parquet's own structures need fewer than ten levels.
const MAX_NESTING_DEPTH: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedThrift;

type ThriftResult<T> = Result<T, MalformedThrift>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThriftType(u8);

impl ThriftType {
    const TRUE: ThriftType = ThriftType(1);
    const FALSE: ThriftType = ThriftType(2);
    const LIST: ThriftType = ThriftType(9);
    const STRUCT: ThriftType = ThriftType(12);
}

#[derive(Clone)]
pub(super) struct ThriftWalker<'a> {
    bytes: &'a [u8],
    pub(super) position: usize,
}

impl<'a> ThriftWalker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn read_byte(&mut self) -> ThriftResult<u8> {
        let byte = *self.bytes.get(self.position).ok_or(MalformedThrift)?;
        self.position += 1;
        Ok(byte)
    }

    pub(super) fn read_varint(&mut self) -> ThriftResult<u64> {
        let mut rest = self.bytes.get(self.position..).ok_or(MalformedThrift)?;
        let value = leb128::read_varint(&mut rest).ok_or(MalformedThrift)?;
        self.position = self.bytes.len() - rest.len();
        Ok(value)
    }

    pub(super) fn read_zigzag(&mut self) -> ThriftResult<i64> {
        let value = self.read_varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn copy_field(&mut self, id: i64, kind: ThriftType, out: &mut ThriftStructWriter) -> ThriftResult<()> {
        let start = self.position;
        self.skip_value(kind, 0)?;
        out.begin_field(id, kind);
        out.bytes.extend_from_slice(&self.bytes[start..self.position]);
        Ok(())
    }

    pub(super) fn advance(&mut self, count: u64) -> ThriftResult<()> {
        let count = usize::try_from(count).map_err(|_| MalformedThrift)?;
        let end = self.position.checked_add(count).ok_or(MalformedThrift)?;
        if end > self.bytes.len() {
            return Err(MalformedThrift);
        }
        self.position = end;
        Ok(())
    }

    /// Visits the fields of a struct and its end marker. `visit` returns `false` to skip a field.
    pub(super) fn visit_fields(
        &mut self,
        mut visit: impl FnMut(&mut Self, i64, ThriftType) -> ThriftResult<bool>,
    ) -> ThriftResult<()> {
        self.visit_fields_at_depth(0, &mut visit)
    }

    fn visit_fields_at_depth(
        &mut self,
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, i64, ThriftType) -> ThriftResult<bool>,
    ) -> ThriftResult<()> {
        let mut id = 0;
        loop {
            let head = self.read_byte()?;
            if head == 0 {
                return Ok(());
            }
            let kind = ThriftType(head & 0x0f);
            id = match head >> 4 {
                0 => self.read_zigzag()?,
                step => id.checked_add(step.into()).ok_or(MalformedThrift)?,
            };
            if !visit(self, id, kind)? {
                self.skip_value(kind, depth)?;
            }
        }
    }

    /// Returns the number of elements that a list announces, which cannot exceed the number of remaining bytes.
    pub(super) fn read_list_count(&mut self, kind: ThriftType) -> ThriftResult<u64> {
        if !matches!(kind, ThriftType(9 | 10)) {
            return Err(MalformedThrift);
        }
        Ok(self.read_list_header()?.0)
    }

    fn read_list_header(&mut self) -> ThriftResult<(u64, ThriftType)> {
        let head = self.read_byte()?;
        let count = match head >> 4 {
            15 => self.read_varint()?,
            count => u64::from(count),
        };
        if count > (self.bytes.len() - self.position) as u64 {
            return Err(MalformedThrift);
        }
        Ok((count, ThriftType(head & 0x0f)))
    }

    pub(super) fn boolean_from_type(kind: ThriftType) -> ThriftResult<bool> {
        match kind {
            ThriftType::TRUE => Ok(true),
            ThriftType::FALSE => Ok(false),
            _ => Err(MalformedThrift),
        }
    }

    fn skip_value(&mut self, kind: ThriftType, depth: usize) -> ThriftResult<()> {
        if depth >= MAX_NESTING_DEPTH {
            return Err(MalformedThrift);
        }
        match kind {
            ThriftType::TRUE | ThriftType::FALSE => Ok(()),
            ThriftType(3) => self.advance(1),
            ThriftType(4..=6) => self.read_varint().map(drop),
            ThriftType(7) => self.advance(8),
            ThriftType(8) => {
                let length = self.read_varint()?;
                self.advance(length)
            }
            ThriftType(9 | 10) => {
                let (count, kind) = self.read_list_header()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth + 1))
            }
            ThriftType(11) => {
                let count = self.read_varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.read_byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(ThriftType(kinds >> 4), depth + 1)?;
                    self.skip_element(ThriftType(kinds & 0x0f), depth + 1)
                })
            }
            ThriftType::STRUCT => self.visit_fields_at_depth(depth + 1, &mut |_, _, _| Ok(false)),
            ThriftType(13) => self.advance(16),
            _ => Err(MalformedThrift),
        }
    }

    /// Skips an element of a collection, in which a boolean takes one byte.
    fn skip_element(&mut self, kind: ThriftType, depth: usize) -> ThriftResult<()> {
        if matches!(kind, ThriftType::TRUE | ThriftType::FALSE) {
            self.advance(1)
        } else {
            self.skip_value(kind, depth)
        }
    }
}

/// Writes structs in the compact protocol. Copying a subset of the fields never produces more bytes than the original.
#[derive(Debug)]
pub(super) struct ThriftStructWriter {
    bytes: Vec<u8>,
    last_ids: Vec<i64>,
}

impl ThriftStructWriter {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), last_ids: vec![0] }
    }

    fn begin_field(&mut self, id: i64, kind: ThriftType) {
        let last_id = self.last_ids.last_mut().map(|last_id| std::mem::replace(last_id, id));
        match id.saturating_sub(last_id.unwrap_or(0)) {
            step @ 1..=15 => self.bytes.push((step as u8) << 4 | kind.0),
            _ => {
                self.bytes.push(kind.0);
                leb128::write_varint((id << 1) as u64 ^ (id >> 63) as u64, &mut self.bytes);
            }
        }
    }

    pub(super) fn begin_struct(&mut self, id: i64) {
        self.begin_field(id, ThriftType::STRUCT);
        self.begin_struct_element();
    }

    pub(super) fn begin_struct_list(&mut self, id: i64, count: u64) {
        self.begin_field(id, ThriftType::LIST);
        match u8::try_from(count) {
            Ok(count @ 0..15) => self.bytes.push(count << 4 | ThriftType::STRUCT.0),
            _ => {
                self.bytes.push(0xf0 | ThriftType::STRUCT.0);
                leb128::write_varint(count, &mut self.bytes);
            }
        }
    }

    pub(super) fn begin_struct_element(&mut self) {
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
