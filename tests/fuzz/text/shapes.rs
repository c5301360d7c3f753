//! Arbitrary bytes as a path index, which the reader must reject or decode to runs of existing paths. The first byte is
//! the number of rows. If the second byte is odd, the rest is compressed first.

use strata_format::path_index::structure_dictionary::StructureDictionary;

pub fn check(bytes: &[u8]) {
    let [rows, mode, rest @ ..] = bytes else { return };
    let rows = usize::from(*rows);
    let compressed = zstd::bulk::compress(rest, 1).expect("compressed");
    let Ok(structures) = StructureDictionary::decode(if mode % 2 == 1 { &compressed } else { rest }, rows) else {
        return;
    };
    assert_eq!(structures.rows(), rows);
    let depths = structures.map_typed_paths(0_usize, |above, _| above + 1);
    let keys = [["a".to_owned()], ["".to_owned()]].map(|keys| structures.match_typed_paths(&keys));
    for row in 0..rows {
        assert!(structures.structure_of_row(row) < structures.structure_count());
        for run in structures.scalar_runs(structures.structure_of_row(row)) {
            assert!(run.length > 0 && depths[run.typed_path as usize] > 0);
            keys.iter()
                .for_each(|matches| assert!(!matches[run.typed_path as usize] || depths[run.typed_path as usize] == 1));
        }
    }
    // A structure that does not exist has no runs.
    assert_eq!(structures.scalar_runs(structures.structure_count()).count(), 0);
}
