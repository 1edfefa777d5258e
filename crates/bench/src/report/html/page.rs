//! The page around the measurements.

use super::{copies, escape, fleet, mail, run, series};
use crate::record::{Analysis, Document};

/// A whole record, as one page.
pub fn page(document: &Document) -> String {
    let title = title(document);
    let mut body = format!("<h1>{}</h1>", escape(&title));
    body.push_str(&format!("<p class=\"faint\">{}</p>", escape(&subtitle(document))));
    for one in &document.runs {
        body.push_str(&run::alarm(&one.ending));
    }
    body.push_str(&match &document.analysis {
        None => document.runs.iter().map(run::section).collect(),
        Some(Analysis::Sweep(sweep)) => series::sweep(sweep, &document.runs),
        Some(Analysis::Pack(pack)) => series::pack(pack, &document.runs),
        Some(Analysis::Compare(compare)) => series::compare(compare, &document.runs),
        Some(Analysis::Fleet(of)) => fleet::fleet(of, &document.runs),
        Some(Analysis::Copies(of)) => copies::copies(of, &document.runs),
        Some(Analysis::Mail(of)) => document.runs.iter().map(|run| mail::mail(of, run)).collect(),
    });
    body.push_str(&origin(document));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head><body><main>{body}</main></body></html>\n",
        escape(&title),
        include_str!("style.css"),
    )
}

fn title(document: &Document) -> String {
    let first = document.runs.first().map(|run| run.name.as_str()).unwrap_or_default();
    match &document.analysis {
        None => {}
        Some(Analysis::Mail(_)) => return first.to_owned(),
        Some(Analysis::Sweep(_)) => return format!("{first}: threads and depths"),
        Some(Analysis::Pack(pack)) => return format!("Pack {}", pack.name),
        Some(Analysis::Copies(_)) => {
            let pattern = document.runs.first().map(|run| run.workload.to_string());
            return format!("Copies: {}", pattern.unwrap_or_default());
        }
        Some(Analysis::Compare(_)) => return "B compared with A".to_owned(),
        Some(Analysis::Fleet(_)) => return format!("A fleet of clients: {first} each"),
    }
    match document.runs.as_slice() {
        [one] => format!("{}, {} x {}", one.name, one.workload.threads, one.workload.depth),
        runs => format!("{} runs", runs.len()),
    }
}

fn subtitle(document: &Document) -> String {
    let mut targets: Vec<String> = Vec::new();
    for subject in document.runs.iter().flat_map(|run| &run.subjects) {
        let target = subject.target.to_string();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    format!("{} · {}", targets.join(", "), document.started)
}

/// How to repeat the measurement, and on which machine it was made.
fn origin(document: &Document) -> String {
    let machine = &document.machine;
    let mut facts = vec![
        ("Started", document.started.clone()),
        ("Version", format!("ursa {}", document.version)),
        ("Kernel", machine.kernel.clone()),
        ("CPUs", format!("{} x {}", machine.processors, machine.processor)),
        ("Memory", format!("{:.1} GiB", machine.memory_bytes as f64 / (1u64 << 30) as f64)),
    ];
    let mut seen = Vec::new();
    for subject in document.runs.iter().flat_map(|run| &run.subjects) {
        if !seen.contains(&&subject.target) {
            seen.push(&subject.target);
            let (size, block) = (subject.size as f64 / (1u64 << 30) as f64, subject.block);
            let what =
                format!("{}: {}, {size:.2} GiB in blocks of {block} bytes", subject.target, subject.identity);
            facts.push(("Target", what));
        }
    }
    let facts = super::run::facts(&facts);
    let command = escape(&document.command);
    format!("<h2>How it was measured</h2><div class=\"card\"><pre>{command}</pre>{facts}</div>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_page_needs_nothing_else() {
        let page = page(&sample::document(vec![sample::run()]));
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 4);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("prefers-color-scheme: dark"));
        assert!(page.contains("ursa bench run &#39;&lt;target&gt;&#39;") && page.contains("ursa 1.2.3"));
        assert!(page.contains("4K &lt;random&gt; read") && !page.contains("<random>"));
        assert!(!page.contains("NaN") && !page.contains("class=\"card alarm\""));
    }

    #[test]
    fn lost_requests_come_first() {
        let page = page(&sample::document(vec![sample::run(), sample::lost()]));
        let alarm = page.find("LOST: iscsi://10.0.0.7:3260/").unwrap();
        assert!(alarm < page.find("<svg").unwrap());
        assert!(
            page.contains(
                "Unanswered: 3 reads and 2 writes; it is unknown whether these writes took effect."
            )
        );
    }
}
