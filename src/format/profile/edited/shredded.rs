//! Which paths have a shredded column that may be asked after edits.

use strata_types::path::Path;

use crate::layout::Layout;
use crate::profile::DISTINCT;
use crate::profile::builder::ProfileBuilder;
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

pub(super) fn tell_unmet(profile: &mut StoredProfile, layout: &Layout) {
    let has_scalars = |path: &str| {
        profile.paths.iter().find(|record| record.path == path).is_some_and(|record| record.types.scalars() > 0)
    };
    let asked = profile.index.always.iter().filter(|path| {
        let keys = Path::parse(path).map(|path| path.keys().to_vec());
        keys.is_ok_and(|keys| layout.shredded(&keys).is_none())
    });
    let unmet = asked.map(|path| {
        let why = if has_scalars(path) { NotShredded::Edited } else { NotShredded::NoScalar };
        Unmet { path: path.clone(), why }
    });
    let unmet = unmet.collect();
    profile.index.unmet = unmet;
}

impl ProfileBuilder {
    /// The shredded columns that the file of an edited list has, for [`ProfileBuilder::describe`].
    pub fn shredded_in(&self, layout: &Layout) -> ShreddingChoice {
        let mut choice = self.choose_shredded(&ShreddingBounds::default(), &layout.index);
        for (node, _) in self.nodes() {
            let why = &mut choice.none[node as usize];
            *why = match layout.shredded(&self.keys(node)) {
                Some(_) => None,
                None => Some(why.unwrap_or(NotShredded::Edited)),
            };
        }
        choice.unmet.retain(|(path, _)| layout.shredded(path.keys()).is_none());
        for path in layout.index.always() {
            let is_told = choice.unmet.iter().any(|(told, _)| told == path);
            if layout.shredded(path.keys()).is_none() && !is_told {
                choice.unmet.push((path.clone(), NotShredded::Edited));
            }
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
