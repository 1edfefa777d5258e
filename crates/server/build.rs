//! Puts the files of the console (`console/dist`, built by Vite and kept in the repository) into the program,
//! compressed as browsers take them. So a build needs Rust alone, and a node no file beside its binary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    println!("cargo:rerun-if-changed={}", dist.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut files = BTreeMap::new();
    collect(&dist, "", &mut files)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dist.display())))?;
    let mut table = String::from("&[\n");
    for (number, (path, content)) in files.iter().enumerate() {
        let packed = out.join(format!("console-{number}.gz"));
        fs::write(&packed, gzip(content)?)?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        writeln!(table, "    File {{ path: {path:?}, tag: {tag:?}, gzip: include_bytes!({packed:?}) }},")
            .expect("a string takes it");
    }
    table.push(']');
    fs::write(out.join("console.rs"), table)
}

/// All files below a folder, by their path there.
fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}
