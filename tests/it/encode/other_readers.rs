//! The six formats of the same request have the same contents in jq, DuckDB, Polars, PyArrow, and an XML parser
//! (`tests/tools/formats.py`, with the packages that `tests/run` installs).

use std::path::Path;
use std::process::Command;

use strata_testing::TestService;
use strata_types::read_request::ResponseFormat;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/formats.py");

/// Entities with values that confuse readers, except for two kinds of names that no response could fix: DuckDB renames
/// empty columns and columns that differ only in case, and Polars does not unescape quotes in a CSV header.
const ODD: &str = r##"
{"_source":"https://tools.test/1","id":"007","price":1.50,"big":12345678901234567890123456789,"small":1e-7,"text":"comma, \"quote\"","lines":"two\nlines","tab":"a\tb","blank":" both ends ","null":"NULL","none":"null","na":"N/A","formula":"=1+1","apostrophe":"'tis","backslash":"a\\b\\","yes":true,"nothing":null,"empty":"","list":[1.0,"x",null,{"y":1e2}],"rows":[{"a":1},{"a":2,"b":[]}],"object":{},"array":[],"deep":{"a":{"b":{"c":"x"}}}}
{"_source":"https://tools.test/2","id":"0x1F","price":"1,50","text":"cr\rlf\r\nend\n","na":"nan","Ünïcode 名":"日本語 🦀 é","a, b":"1","new\nline":"2","tab\tname":"3","1st":"4","a.b":"dotted","a":{"c":"<&>]]> \u0001\u007f\u0085\u2028"},"_":"5","matrix":[[1,[2.0]],[]]}
{"id":"2024-02-30","when":"2024-01-01T00:00:00Z","text":"#comment","list":"[\"not a list\"]","na":"-","blank":"\"","nothing":"x"}
{}
{"id":"last","text":"\ufefftext"}
"##;

/// The name and the URL of each request.
const REQUESTS: [(&str, &str); 7] = [
    ("countries", "1/world-countries/v1/?"),
    ("emoji-denull", "2/emoji/v1/?denull=true"),
    ("earthquakes-filtered", "3/earthquakes/v1/?filter_contains=properties.place:alaska"),
    ("matches-sorted", "4/football-matches/v1/?sort=home_score:desc&limit=20"),
    ("airports-none", "5/us-airports/v1/?filter=state:nowhere"),
    ("airports-no-field", "5/us-airports/v1/?keep_field=nothing&limit=3"),
    ("odd", "8/odd/v1/?"),
];

/// The output of the script if all formats agree.
const AGREED: &str = "\
countries: 250 entities, 855 columns
emoji-denull: 1949 entities, 247 columns
earthquakes-filtered: 313 entities, 30 columns
matches-sorted: 20 entities, 6 columns
airports-none: 0 entities, 7 columns
airports-no-field: 3 entities, 1 columns
odd: 5 entities, 34 columns
";

#[tokio::test]
async fn formats_agree_in_common_tools() {
    // The Python environment is next to the directory for temporary files of tests.
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python-tools").join("bin/python");
    assert!(python.exists(), "{} is missing; ./tests/run installs it", python.display());

    let service = TestService::start().await;
    service.load_fixtures().await;
    service.import("Odd", ODD).await;
    let answers = tempfile::tempdir().expect("a temporary directory");
    let mut script = Command::new(python);
    script.arg(SCRIPT);
    for (name, request) in REQUESTS {
        let directory = answers.path().join(name);
        std::fs::create_dir(&directory).expect("created");
        for format in ResponseFormat::ALL.map(ResponseFormat::name) {
            let answer = service.get(&format!("/api/{request}&format={format}")).await;
            assert_eq!((answer.status, answer.whole), (200, true), "{name} as {format}");
            std::fs::write(directory.join(format!("response.{format}")), &answer.body).expect("written");
        }
        script.arg(directory);
    }

    let output = script.output().expect("the script runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    assert_eq!(printed, AGREED);
}
