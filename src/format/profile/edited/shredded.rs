//! Which paths have a shredded column that may be asked after edits.

use strata_types::path::Path;

use crate::layout::Layout;
use crate::profile::builder::ProfileBuilder;
use crate::profile::limits::DISTINCT;
use crate::profile::shredding::{NotShredded, ShreddingBounds, ShreddingChoice};
use crate::profile::stored::{PathRecord, StoredProfile, Unmet};
use crate::profile::values::Values;

pub(super) fn tell_shredding(record: &mut PathRecord, keys: &[String], layout: &mut Layout) {
    if let Some(number) = layout.shredded(keys) {
        let column = &mut layout.shredded_columns[number];
        column.retired = column.dictionary && record.distinct.count > DISTINCT as u64;
        if !column.retired {
            return;
        }
    }
    let why = match record.why_not_shredded {
        _ if record.types.scalars() == 0 => NotShredded::NoScalar,
        None | Some(NotShredded::NoScalar) => NotShredded::Edited,
        Some(why) => why,
    };
    (record.shredded, record.why_not_shredded) = (false, Some(why));
}

impl StoredProfile {
    /// Lists the paths that the index asks for and that have no column in the layout.
    pub fn set_unmet(&mut self, layout: &Layout) {
        let why = |path: &str| match self.paths.iter().find(|record| record.path == path) {
            Some(record) if record.types.scalars() > 0 => NotShredded::Edited,
            None if self.paths_left_out => NotShredded::NotFollowed,
            Some(_) | None => NotShredded::NoScalar,
        };
        let asked = layout.index.always().iter().filter(|path| layout.shredded(path.keys()).is_none());
        let unmet = asked.map(Path::to_string).map(|path| Unmet { why: why(&path), path });
        self.index.unmet = unmet.collect();
    }
}

impl ProfileBuilder {
    /// The shredded columns that the file of an edited list has, for [`ProfileBuilder::describe`].
    pub fn shredded_in(&self, layout: &Layout) -> ShreddingChoice {
        let mut choice = self.choose_shredded(&ShreddingBounds::default(), &layout.index);
        for (node, _) in self.nodes() {
            let why = &mut choice.none[node as usize];
            *why = match layout.shredded(&self.tree.keys(node)) {
                Some(_) => None,
                None => Some(why.unwrap_or(NotShredded::Edited)),
            };
        }
        choice
    }

    /// Retires the columns of the layout that were to hold few distinct values, and no longer do.
    pub fn retire_dictionaries(&self, layout: &mut Layout) {
        for column in &mut layout.shredded_columns {
            let values = self.node(&column.keys).map(|node| &self.paths[node as usize].values);
            column.retired |= column.dictionary && values.is_some_and(Values::are_many);
        }
    }
}
