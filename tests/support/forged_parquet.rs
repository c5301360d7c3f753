//! Hand-written Parquet files that no writer creates, with metadata in Thrift.

/// A Thrift struct in the compact protocol, field by field.
#[derive(Clone, Default)]
pub struct Struct {
    bytes: Vec<u8>,
    last: i16,
}

impl Struct {
    fn head(mut self, id: i16, kind: u8) -> Self {
        let step = id - self.last;
        self.last = id;
        if (1..=15).contains(&step) {
            self.bytes.push((step as u8) << 4 | kind);
        } else {
            self.bytes.push(kind);
            self.bytes.extend(zigzag(id.into()));
        }
        self
    }

    pub fn i32(self, id: i16, value: i32) -> Self {
        let mut new = self.head(id, 5);
        new.bytes.extend(zigzag(value.into()));
        new
    }

    pub fn i64(self, id: i16, value: i64) -> Self {
        let mut new = self.head(id, 6);
        new.bytes.extend(zigzag(value));
        new
    }

    pub fn text(self, id: i16, value: &str) -> Self {
        let mut new = self.head(id, 8);
        new.bytes.extend(varint(value.len() as u64));
        new.bytes.extend(value.as_bytes());
        new
    }

    pub fn nested(self, id: i16, inner: Struct) -> Self {
        let mut new = self.head(id, 12);
        new.bytes.extend(inner.end());
        new
    }

    /// Appends a list that declares `count` structs but contains `items`.
    pub fn list(self, id: i16, count: u64, items: Vec<Struct>) -> Self {
        let mut new = self.head(id, 9);
        new.bytes.push(0xf0 | 12);
        new.bytes.extend(varint(count));
        items.into_iter().for_each(|item| new.bytes.extend(item.end()));
        new
    }

    /// Appends an empty list without an element type, as fastparquet writes it.
    pub fn untyped_list(self, id: i16) -> Self {
        let mut new = self.head(id, 9);
        new.bytes.push(0);
        new
    }

    /// Appends a list of numbers.
    pub fn numbers(self, id: i16, numbers: &[i32]) -> Self {
        let mut new = self.head(id, 9);
        new.bytes.push((numbers.len() as u8) << 4 | 5);
        numbers.iter().for_each(|number| new.bytes.extend(zigzag((*number).into())));
        new
    }

    /// Appends a list of texts.
    pub fn texts(self, id: i16, texts: &[&str]) -> Self {
        let mut new = self.head(id, 9);
        new.bytes.push((texts.len() as u8) << 4 | 8);
        for text in texts {
            new.bytes.extend(varint(text.len() as u64));
            new.bytes.extend(text.as_bytes());
        }
        new
    }

    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub fn zigzag(value: i64) -> Vec<u8> {
    varint(((value << 1) ^ (value >> 63)) as u64)
}

/// Physical types, encodings, codecs and page types of the forged files.
pub const INT64: i32 = 2;
pub const BYTE_ARRAY: i32 = 6;
pub const PLAIN: i32 = 0;
pub const RLE: i32 = 3;
pub const DELTA_LENGTH: i32 = 6;
pub const DELTA: i32 = 7;
pub const RLE_DICTIONARY: i32 = 8;
pub const UNCOMPRESSED: i32 = 0;
pub const GZIP: i32 = 2;
pub const LZO: i32 = 3;
pub const BROTLI: i32 = 4;
pub const LZ4: i32 = 5;
pub const LZ4_RAW: i32 = 7;

/// A page with the values of its header, and its bytes.
#[derive(Clone)]
pub struct ForgedPage {
    pub is_dictionary: bool,
    pub values: i32,
    pub encoding: i32,
    /// `None` for the real number.
    pub uncompressed: Option<i32>,
    pub bytes: Vec<u8>,
}

impl ForgedPage {
    pub fn data(values: i32, encoding: i32, bytes: Vec<u8>) -> ForgedPage {
        ForgedPage { is_dictionary: false, values, encoding, uncompressed: None, bytes }
    }

    pub fn dictionary(values: i32, bytes: Vec<u8>) -> ForgedPage {
        ForgedPage { is_dictionary: true, values, encoding: PLAIN, uncompressed: None, bytes }
    }

    fn header(&self) -> Vec<u8> {
        let length = self.bytes.len() as i32;
        let head = Struct::default().i32(1, if self.is_dictionary { 2 } else { 0 });
        let head = head.i32(2, self.uncompressed.unwrap_or(length)).i32(3, length);
        let inner = Struct::default().i32(1, self.values).i32(2, self.encoding);
        match self.is_dictionary {
            true => head.nested(7, inner).end(),
            false => head.nested(5, inner.i32(3, RLE).i32(4, RLE)).end(),
        }
    }
}

/// Only column of a forged file.
#[derive(Clone)]
pub struct Column {
    pub physical: i32,
    pub codec: i32,
    /// 0 means required, 2 repeated.
    pub repetition: i32,
    pub rows: i64,
    pub pages: Vec<ForgedPage>,
}

impl Column {
    /// Returns the file.
    pub fn file(&self) -> Vec<u8> {
        self.file_with(|metadata| metadata, |chunk| chunk)
    }

    /// Returns the file with additional fields in the column metadata and in the column chunk.
    pub fn file_with(&self, metadata_with: fn(Struct) -> Struct, chunk_with: fn(Struct) -> Struct) -> Vec<u8> {
        let mut file = b"PAR1".to_vec();
        let start = file.len() as i64;
        let mut data = None;
        for page in &self.pages {
            if !page.is_dictionary {
                data.get_or_insert(file.len() as i64);
            }
            file.extend(page.header());
            file.extend(&page.bytes);
        }
        let length = file.len() as i64 - start;
        let values = self.pages.iter().filter(|page| !page.is_dictionary).map(|page| i64::from(page.values)).sum();
        let mut metadata = Struct::default().i32(1, self.physical).numbers(2, &[PLAIN, RLE]).texts(3, &["a"]);
        metadata =
            metadata.i32(4, self.codec).i64(5, values).i64(6, length).i64(7, length).i64(9, data.unwrap_or(start));
        if self.pages.first().is_some_and(|page| page.is_dictionary) {
            metadata = metadata.i64(11, start);
        }
        let chunk = chunk_with(Struct::default().i64(2, 0).nested(3, metadata_with(metadata)));
        let group = Struct::default().list(1, 1, vec![chunk]).i64(2, length).i64(3, self.rows);
        let root = Struct::default().text(4, "root").i32(5, 1);
        let leaf = Struct::default().i32(1, self.physical).i32(3, self.repetition).text(4, "a");
        let footer = Struct::default().i32(1, 1).list(2, 2, vec![root, leaf]).i64(3, self.rows).list(4, 1, vec![group]);
        end(file, footer.end())
    }
}

/// Appends a footer to a file.
pub fn end(mut file: Vec<u8>, footer: Vec<u8>) -> Vec<u8> {
    let length = footer.len() as u32;
    file.extend(footer);
    file.extend(length.to_le_bytes());
    file.extend(b"PAR1");
    file
}
