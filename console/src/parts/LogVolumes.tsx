import { Alert, MultiSelect, Text } from '@mantine/core'
import type { Volume } from '../api/types'
import { ursa } from '../words/command'
import { listed } from '../words/missing'
import { VOLUMES_MAX, withoutSnapshots } from '../words/snapshot'
import { Paste } from './Paste'

/** Maximum number of volumes to choose from at once; typing finds the others. */
const CHOICES_MAX = 100

/** Chooses the volumes of a snapshot or schedule, and says which ones cannot have snapshots. */
export function LogVolumes({ volumes, ids, choose, description }: {
  volumes: Volume[]
  /** Of those that are chosen. An unknown one is a volume that was deleted. */
  ids: string[]
  choose: (ids: string[]) => void
  description: string
}) {
  const { thick, ram } = withoutSnapshots(volumes.filter(({ id }) => ids.includes(id)))
  const deleted = deletedOf(ids, volumes)
  const known = volumes.map((one) => ({ value: one.id, label: one.kind === 'log' ? one.name : `${one.name} (${one.kind})` }))
  return (
    <>
      <MultiSelect
        label="Volumes"
        description={description}
        data={[...deleted.map((name) => ({ value: name, label: `${name} (deleted)` })), ...known]}
        value={ids}
        onChange={choose}
        limit={CHOICES_MAX}
        maxValues={VOLUMES_MAX}
        nothingFoundMessage="No volume matches"
        searchable
        openOnFocus={false}
        hidePickedOptions
      />
      {deleted.length > 0 && <Alert color="yellow" title={`${listed(deleted)}: deleted`}>No snapshot can be taken with {deleted.length === 1 ? 'this volume' : 'these volumes'}. Remove {deleted.length === 1 ? 'it' : 'them'} here.</Alert>}
      {thick.length > 0 && (
        <Alert color="yellow" title={`${listed(thick)}: only log volumes have snapshots`}>
          <Text size="sm" mb="xs">Convert {thick.length === 1 ? 'this thick volume' : 'these thick volumes'} first. Hosts can use a volume meanwhile; its pool needs space for both kinds until a copy has been converted. “Jobs” shows the progress.</Text>
          <Paste text={thick.map((one) => ursa('volume', 'convert', one, '--kind', 'log')).join('\n')} label="To convert" />
        </Alert>
      )}
      {ram.length > 0 && <Alert color="yellow" title={`${listed(ram)}: RAM volumes cannot have snapshots`}>Only log volumes have snapshots, and a RAM volume cannot be converted.</Alert>}
    </>
  )
}

/** None before the volumes are known. */
const deletedOf = (ids: string[], volumes: Volume[]) => (volumes.length === 0 ? [] : ids).filter((id) => !volumes.some((one) => one.id === id))

/** Whether a snapshot can have all of these volumes. */
export const haveSnapshots = (ids: string[], volumes: Volume[]) => ids.length > 0 && ids.every((id) => volumes.some((one) => one.id === id && one.kind === 'log'))
