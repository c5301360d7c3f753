//! Shapes of any bytes: they are refused, or give runs of places that there are. The first byte is the number of rows;
//! if the second is odd, the others are compressed first.

use strata_format::shapes::decoded::Shapes;

pub fn check(bytes: &[u8]) {
    let [rows, mode, rest @ ..] = bytes else { return };
    let rows = usize::from(*rows);
    let compressed = zstd::bulk::compress(rest, 1).expect("compressed");
    let Ok(shapes) = Shapes::decode(if mode % 2 == 1 { &compressed } else { rest }, rows) else { return };
    assert_eq!(shapes.rows(), rows);
    let depths = shapes.places_by(0_usize, |above, _| above + 1);
    let keys = [["a".to_owned()], ["".to_owned()]].map(|keys| shapes.places_of(&keys));
    for row in 0..rows {
        assert!(shapes.shape_of(row) < shapes.shape_count());
        for run in shapes.runs(shapes.shape_of(row)) {
            assert!(run.length > 0 && depths[run.place as usize] > 0);
            keys.iter().for_each(|counts| assert!(!counts[run.place as usize] || depths[run.place as usize] == 1));
        }
    }
    // What is not there has no runs.
    assert_eq!(shapes.runs(shapes.shape_count()).count(), 0);
}
