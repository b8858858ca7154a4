//! What every page has.

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:#222}\
table{border-collapse:collapse;display:block;overflow-x:auto;margin:1em 0}\
td,th{border:1px solid #ccc;padding:3px 8px;text-align:left;white-space:nowrap}th{background:#f3f3f3}\
code{background:#f3f3f3;overflow-wrap:anywhere}svg{max-width:100%;height:auto;display:block;margin:1em 0}h2{margin-top:2.5em}";

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// One file that needs no other.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// A table in Markdown as one in HTML.
pub(crate) fn of_markdown(table: &str) -> String {
    let mut out = String::from("<table>");
    for (number, line) in table.lines().enumerate() {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        if line.starts_with("|---") {
            continue;
        }
        let tag = if number == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in cells {
            out.extend(["<", tag, ">", &escaped(cell), "</", tag, ">"]);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_keep_their_cells_and_nothing_becomes_markup() {
        let html = of_markdown("| a | b<c |\n|---|---|\n| 1 | x & y |\n");
        assert_eq!(
            html,
            "<table><tr><th>a</th><th>b&lt;c</th></tr>\n<tr><td>1</td><td>x &amp; y</td></tr>\n</table>\n"
        );
        assert!(document("t", "b").starts_with("<!doctype html>"));
    }
}
