//! The table of APIs in ARCHITECTURE.md is the table in the code.

use super::table::{APIS, Api};

const BEGIN: &str =
    "<!-- apis: generated from src/api/table.rs; `UPDATE=1 cargo test api_table` rewrites it -->\n";
const END: &str = "<!-- end of apis -->\n";

fn rows() -> String {
    let head = "| key | API | versions |\n|---|---|---|\n".to_owned();
    let row = |api: &Api| {
        format!(
            "| {} | {} | {} to {} |\n",
            api.key, api.name, api.min, api.max
        )
    };
    head + &APIS.iter().map(row).collect::<String>()
}

#[test]
fn the_api_table_of_the_architecture_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("ARCHITECTURE.md is there");
    let (before, rest) = text.split_once(BEGIN).expect("the marker of the beginning");
    let (section, after) = rest.split_once(END).expect("the marker of the end");
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        let whole = [before, BEGIN, &rows(), END, after].concat();
        std::fs::write(path, whole).expect("ARCHITECTURE.md can be written");
    } else {
        assert_eq!(section, rows(), "run UPDATE=1 cargo test api_table");
    }
}

#[test]
fn rows_are_in_the_order_of_their_keys_and_within_what_wire_has() {
    assert!(APIS.is_sorted_by(|a, b| a.key < b.key));
    for api in APIS {
        let schema = corelog_wire::messages::api_schema(api.key).expect("wire knows the key");
        assert_eq!(schema.name, api.name);
        assert!(
            schema.supports(api.min) && schema.supports(api.max),
            "{}",
            api.name
        );
    }
}
