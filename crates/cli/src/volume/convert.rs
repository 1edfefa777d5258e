//! `ursa volume convert`.

use api::{Client, JobKind, Volume, VolumeConvert, VolumeKind};

use crate::confirm::show_would;
use crate::error::CliError;
use crate::output::Output;

/// Converts a volume to a kind, or cancels its conversion.
pub(super) fn run(
    client: &Client,
    output: &Output,
    name: &str,
    to: Option<VolumeKind>,
    dry_run: bool,
) -> Result<(), CliError> {
    let volume = client.volume(name)?;
    let Some(to) = to else { return cancel(client, output, &volume, dry_run) };
    let convert = VolumeConvert { kind: to };
    if dry_run {
        let what = format!("Convert volume {} to {to}", volume.name);
        let would = client.would(|client| client.convert_volume(&volume.id, &convert))?;
        return show_would(output, &what, &would);
    }
    output.show(&client.convert_volume(&volume.id, &convert)?, |volume| begun(volume, to))
}

/// Cancels the conversion: one of its jobs stands for all of them.
fn cancel(client: &Client, output: &Output, volume: &Volume, dry_run: bool) -> Result<(), CliError> {
    let jobs = client.jobs_of("all", false)?.items;
    let prefix = format!("convert.{}", volume.id);
    let is_its =
        |id: &str| id.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let job = jobs.into_iter().find(|job| job.kind == JobKind::Convert && is_its(&job.id));
    let Some(job) = job else { return Err(CliError::NotConverted(volume.name.clone())) };
    if dry_run {
        let what = format!("Cancel the conversion of volume {}", volume.name);
        return show_would(output, &what, &client.would(|client| client.cancel_job(&job.id))?);
    }
    client.cancel_job(&job.id)?;
    output.done(&format!("Conversion of volume {} cancelled.", volume.name))
}

fn begun(volume: &Volume, to: VolumeKind) -> String {
    format!(
        "Volume {} is being converted to {to}. It stays in use; `ursa job list --node all` shows the progress.\n",
        volume.name
    )
}
