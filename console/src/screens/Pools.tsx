import { Autocomplete, Box, Checkbox, Group, Menu, Progress, Select, Stack, Switch, Table, TagsInput, Text, TextInput, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { useForbidden } from '../api/access'
import { api, data } from '../api/client'
import { useDisks, useFindings, useMissingPools, useNodes, usePools } from '../api/queries'
import type { Finding, Pool, PoolDisk } from '../api/types'
import { useNow } from '../parts/clock'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Icon } from '../parts/Icon'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { COLOR, State } from '../parts/State'
import { Tried } from '../parts/Tried'
import { onNode, ursa } from '../words/command'
import { type Wanted, diskChoices, diskLine } from '../words/disks'
import { findingsOf, keyOf, linkOf } from '../words/findings'
import { elsewhere } from '../words/missing'
import { isName, nameProblem } from '../words/names'
import { nameOf } from '../words/nodes'
import { isShort, lacking, logSpace } from '../words/pools'
import { poolScrubWord } from '../words/scrub'
import { lasting } from '../words/since'
import { duration, exactSize, parseSize, percent, plural, size } from '../words/size'
import type { Tone } from '../words/tone'

type Deed = 'disk' | 'grow' | 'acknowledge' | 'scrub' | 'reopen' | 'export' | 'accept' | 'forget'

export function Pools() {
  const pools = usePools()
  const nodes = useNodes()
  const missing = useMissingPools()
  const [making, setMaking] = useState<'create' | 'import'>()
  const [chosen, setChosen] = useState<{ pool: Pool; deed: Deed }>()
  const close = () => setChosen(undefined)
  const there = chosen && elsewhere(chosen.pool, nodes.data)
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Pools and disks
        </Title>
        <Group gap="xs">
          <DeedButton deed="administer" variant="default" onClick={() => setMaking('import')}>
            Import pool
          </DeedButton>
          <DeedButton deed="administer" onClick={() => setMaking('create')}>Create pool</DeedButton>
        </Group>
      </Group>
      {(nodes.data?.length ?? 0) > 1 && (
        <Text size="sm" c="dimmed">
          Pools of all nodes. Changes to a pool run on the node that has it, and paths refer to that node’s machine.
        </Text>
      )}
      {pools.error && <ProblemAlert error={pools.error} what="The pools cannot be listed" />}
      <MissingNote what="Pools" missing={missing} />
      {pools.data?.length === 0 && <Empty>No pools yet. Volumes need a pool: create one from this node’s disks, or import one that was created elsewhere.</Empty>}
      {pools.data?.map((pool) => (
        <PoolPanel key={`${pool.node} ${pool.name}`} pool={pool} at={pools.dataUpdatedAt} choose={(deed) => setChosen({ pool, deed })} />
      ))}
      <MakePool opened={making === 'create'} close={() => setMaking(undefined)} />
      <ImportPool opened={making === 'import'} close={() => setMaking(undefined)} />
      {chosen?.deed === 'disk' && <AddDisk pool={chosen.pool} there={there} close={close} />}
      {chosen?.deed === 'forget' && <Forget pool={chosen.pool} there={there} close={close} />}
      {chosen?.deed === 'grow' && (
        <Ask opened close={close} title={`Grow pool ${chosen.pool.name}`} label="Grow" command={ursa('pool', 'grow', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/grow', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`Pool ${chosen.pool.name} has grown.`}>
          <Said>Enlarge its disks first, for example with lvextend or truncate. The pool then takes their new space; volumes stay in use.</Said>
          <Tried path={tryPath(chosen.pool, 'grow', there)} failure="The pool cannot be grown" />
        </Ask>
      )}
      {chosen?.deed === 'acknowledge' && (
        <Ask opened close={close} title={`Acknowledge read errors of pool ${chosen.pool.name}`} label="Acknowledge" command={ursa('pool', 'acknowledge', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/acknowledge', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`Read errors of pool ${chosen.pool.name} are acknowledged.`}>
          <Said>Check the disk first (smartctl, dmesg), and replace it if errors continue. The read errors so far are no longer listed as a problem; new ones are.</Said>
        </Ask>
      )}
      {chosen?.deed === 'scrub' && (
        <Ask opened close={close} title={`Scrub pool ${chosen.pool.name}`} label="Scrub" command={ursa('pool', 'scrub', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/scrub', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`The volumes of pool ${chosen.pool.name} are being scrubbed: see “Jobs”.`}>
          <Said>Reads everything that the volumes of the pool use, two volumes at a time and while hosts use them, and repairs bad blocks from other copies in sync.</Said>
        </Ask>
      )}
      {chosen?.deed === 'accept' && (
        <Ask opened close={close} title={`Accept the older data of pool ${chosen.pool.name}`} label="Accept older data" danger typed={chosen.pool.name} command={ursa('pool', 'accept-older', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/accept-older', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`The older data of pool ${chosen.pool.name} is accepted. Check file systems and databases before you use them.`}>
          <Said>Do this only if the newer data is gone for good. If the node with the other copy is down, bring it back. If you still have the newer disks, put them back and restart this pool’s node.</Said>
          <Said>Everything written after that older state is lost, and all other copies are resynced from this pool. Check file systems and databases before you use them: hosts that were connected have seen newer data.</Said>
          <Tried path={tryPath(chosen.pool, 'accept-older', there)} failure="The older data cannot be accepted" />
        </Ask>
      )}
      {chosen?.deed === 'reopen' && (
        <Ask opened close={close} title={`Reopen pool ${chosen.pool.name}`} label="Reopen" command={ursa('pool', 'reopen', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/reopen', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`Pool ${chosen.pool.name} reopened.`}>
          <Said>Check its disks first (dmesg). The pool reads its metadata again, as after a power failure; initiators stay logged in and find their LUNs busy meanwhile. Writes that were not flushed before the disk failed may be lost: check file systems that were in use (fsck).</Said>
          <Tried path={tryPath(chosen.pool, 'reopen', there)} failure="The pool cannot be reopened" />
        </Ask>
      )}
      {chosen?.deed === 'export' && (
        <Ask opened close={close} title={`Export pool ${chosen.pool.name}`} label="Export" danger typed={chosen.pool.name} command={ursa('pool', 'export', chosen.pool.name, ...onNode(there))} act={() => data(api.POST('/v1/pools/{name}/export', { params: { path: { name: chosen.pool.name }, query: { node: there } } }))} done={`Pool ${chosen.pool.name} exported. Another server can import it now.`}>
          <Said>The pool is closed so that another server can import it with all its volumes. Its volumes must not be mapped.</Said>
          <Tried path={tryPath(chosen.pool, 'export', there)} failure="The pool cannot be exported" />
        </Ask>
      )}
    </Stack>
  )
}

const TONE: Record<Pool['state'], Tone> = { online: 'ok', read_only: 'critical', disk_failed: 'critical', unavailable: 'critical', exported: 'off' }
const MEANING: Record<Pool['state'], string> = {
  online: 'The pool works.',
  read_only: 'A metadata write failed. I/O continues, but volumes cannot be created or changed. Check the disk, then reopen the pool.',
  disk_failed: 'A write or flush failed; nothing more is written to that disk. Check the disk (dmesg), then reopen the pool.',
  unavailable: 'The pool could not be opened, or its disks do not answer. Restore the disks, then reopen the pool. A pool whose disks were only late opens automatically.',
  exported: 'The pool was exported. Another server can import it.',
}

function PoolPanel({ pool, at, choose }: { pool: Pool; at: number; choose: (deed: Deed) => void }) {
  const forbidden = useForbidden('change')
  const machines = useForbidden('administer')
  const { setBack, readErrors, snapshotSpace, known } = findingsOf(pool, useFindings().data)
  const works = pool.state === 'online'
  const closed = pool.state === 'unavailable' || pool.state === 'exported'
  const scrubbed = poolScrubWord(pool.scrub)
  return (
    <Panel
      title={`${pool.name} on ${pool.node_name}`}
      at={at}
      right={
        <Group gap="xs" wrap="nowrap">
          <State tone={TONE[pool.state]}>{pool.state.replace('_', ' ')}</State>
          <Menu position="bottom-end" disabled={forbidden !== undefined}>
            <Menu.Target>
              <DeedButton size="compact-sm" variant="default">
                Change
              </DeedButton>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => choose('disk')} disabled={!works || machines !== undefined}>Add disk</Menu.Item>
              <Menu.Item onClick={() => choose('grow')} disabled={!works || machines !== undefined}>Grow</Menu.Item>
              <Menu.Item onClick={() => choose('acknowledge')} disabled={closed || (known && readErrors.length === 0)}>Acknowledge read errors</Menu.Item>
              <Menu.Item onClick={() => choose('scrub')} disabled={closed}>Scrub</Menu.Item>
              <Menu.Item onClick={() => choose('reopen')} disabled={works}>Reopen</Menu.Item>
              <Menu.Item onClick={() => choose('export')} disabled={!works || machines !== undefined}>Export</Menu.Item>
              <Menu.Item onClick={() => choose('accept')} disabled={closed || (known && !setBack)} color="red">Accept older data</Menu.Item>
              <Menu.Item onClick={() => choose('forget')} disabled={works || machines !== undefined} color="red">Forget</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </Group>
      }
    >
      <Stack gap="sm">
        {!works && (
          <Text size="sm" c={TONE[pool.state] === 'critical' ? 'red' : undefined}>
            {pool.reason ? `${pool.reason}. ` : ''}
            {MEANING[pool.state]}
          </Text>
        )}
        {pool.overcommit && <Text size="sm">Overcommitted: {lacking(pool.overcommit)}</Text>}
        {[setBack, ...readErrors, snapshotSpace].filter((finding) => finding !== undefined).map((finding) => (
          <Group key={keyOf(finding)} gap="xs" wrap="nowrap" align="flex-start">
            <Text c={COLOR[finding.severity]} pt={2}>
              <Icon name={finding.severity} size={15} />
            </Text>
            <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
              {finding.cause}{finding === snapshotSpace && <> <To href={linkOf(finding)}>Show snapshots by what they free</To></>}
            </Text>
          </Group>
        ))}
        {pool.total > 0 && (
          <Box>
            <Group justify="space-between">
              <Text size="sm">
                {percent(pool.used, pool.total)} used by {plural(pool.volumes, 'volume')}
              </Text>
              <Text size="sm" className="figure">
                {size(pool.total - pool.used)} free of {size(pool.total)}
              </Text>
            </Group>
            <Progress.Root size="lg" mt={4}>
              <Progress.Section value={(100 * pool.used) / pool.total} color={isShort(pool) ? 'red' : 'cyan'} aria-label={`${percent(pool.used, pool.total)} used`} />
            </Progress.Root>
            {pool.logs && <Text size="xs" c="dimmed" mt={2}>{logSpace(pool.logs)}</Text>}
          </Box>
        )}
        <Rows width={560} head={['Disk', 'State', { right: 'Free' }, { right: 'Size' }]}>
          {pool.disks.map((disk) => (
            <DiskRow key={disk.path} disk={disk} readErrors={readErrors.find(({ subject }) => subject.name === disk.path)} open={pool.id !== undefined && pool.id !== null} />
          ))}
        </Rows>
        {scrubbed && <Text size="xs" c="dimmed">{scrubbed}.</Text>}
        {pool.disks.length > 1 && <Text size="xs" c="dimmed">The pool needs all of its disks and is lost if any one of them is lost. Keep copies of its volumes on other nodes.</Text>}
      </Stack>
    </Panel>
  )
}

function DiskRow({ disk, readErrors, open }: { disk: PoolDisk; readErrors?: Finding; open: boolean }) {
  const now = useNow()
  return (
    <Table.Tr>
      <Table.Td style={{ overflowWrap: 'anywhere' }}>{disk.path}</Table.Td>
      <Table.Td>
        {disk.failure ? (
          <>
            <State tone="critical">failed</State>
            <Text size="xs">
              {disk.failure.error}, {duration(now / 1000 - disk.failure.since)} ago
            </Text>
          </>
        ) : disk.leaving ? (
          <>
            <State tone={disk.leaving.problem ? 'warning' : 'working'}>leaving</State>
            <Text size="xs">
              {size(disk.leaving.left)} to be moved{disk.leaving.problem ? `, but no progress: ${disk.leaving.problem}` : ''}
            </Text>
          </>
        ) : readErrors ? (
          <>
            <State tone="warning">read errors</State>
            {readErrors.since && <Text size="xs">{lasting(duration(now / 1000 - readErrors.since.at), readErrors.since)}</Text>}
          </>
        ) : open ? (
          <State tone="ok">ok</State>
        ) : (
          <State tone="off">not open</State>
        )}
      </Table.Td>
      <Table.Td ta="right">{open ? size(disk.free) : '–'}</Table.Td>
      <Table.Td ta="right">{open ? size(disk.total) : '–'}</Table.Td>
    </Table.Tr>
  )
}

/** The path of the dry run of an action on a pool. */
function tryPath(pool: Pool, deed: 'accept-older' | 'disks' | 'export' | 'forget' | 'grow' | 'reopen', there: number | undefined): string {
  return ofNode(`/v1/pools/${encodeURIComponent(pool.name)}/${deed}`, there)
}

function ofNode(path: string, node: number | undefined): string {
  return node === undefined ? path : `${path}?node=${node}`
}

/** Chooses the node of the disks; null: the queried node. */
function OnNode({ chosen, choose }: { chosen: string | null; choose: (node: string | null) => void }) {
  const nodes = (useNodes().data ?? []).filter((one) => !one.witness)
  if (nodes.length < 2) return null
  const here = nodes.find((one) => one.here)
  return <Select label="Node" description="The node that has the disks" data={nodes.map((one) => ({ value: String(one.id), label: nameOf(one), disabled: !one.up }))} value={chosen ?? (here ? String(here.id) : null)} onChange={choose} allowDeselect={false} />
}

function Preallocate({ preallocate, set }: { preallocate: boolean; set: (preallocate: boolean) => void }) {
  return <Checkbox label="Preallocate" description="Takes the space now, so that the file system cannot run out of it later. Otherwise it is taken as volumes are written" checked={preallocate} onChange={(event) => set(event.currentTarget.checked)} />
}

/** The disks of a node to choose from instead of typing a path: by path, with a description. */
function useChoices(node: number | undefined, wanted: Wanted, enabled: boolean) {
  const disks = useDisks(node, enabled)
  const choices = diskChoices(disks.data ?? [], wanted)
  const label = (path: string) => {
    const disk = choices.find((one) => one.path === path)
    return disk ? diskLine(disk) : path
  }
  return {
    paths: choices.map((disk) => disk.path),
    option: ({ option }: { option: { value: string } }) => (
      <div>
        <Text size="sm" style={{ overflowWrap: 'anywhere' }}>{option.value}</Text>
        <Text size="xs" c="dimmed">{label(option.value)}</Text>
      </div>
    ),
    note: disks.error ? <ProblemAlert error={disks.error} what="Enter a path; the node’s disks cannot be listed" /> : disks.data && choices.length === 0 ? <Said>{wanted === 'unused' ? 'The node has no unused, empty disk: enter a path' : 'No disk of the node holds a pool that can be imported: enter a path'}.</Said> : null,
  }
}

const PATHS = 'Paths on the node, under /dev/disk/by-id/ (/dev/sdb may be another disk after a restart). Press Enter after each'

function MakePool({ opened, close }: { opened: boolean; close: () => void }) {
  const [name, setName] = useState('')
  const [paths, setPaths] = useState<string[]>([])
  const [file, setFile] = useState(false)
  const [text, setText] = useState('')
  const [preallocate, setPreallocate] = useState(false)
  const [wipe, setWipe] = useState(false)
  const [chosen, setChosen] = useState<string | null>(null)
  const node = chosen === null ? undefined : Number(chosen)
  const bytes = parseSize(text)
  const relative = paths.find((path) => !path.startsWith('/'))
  const ready = isName(name) && paths.length > 0 && !relative && (!file || bytes !== undefined)
  const choices = useChoices(node, 'unused', opened && !file)
  const body = { name, disks: paths.map((path) => (file ? { path, size: bytes, preallocate } : { path })), wipe }
  return (
    <Ask
      opened={opened}
      close={close}
      title="Create pool"
      label="Create"
      danger={wipe}
      ready={ready}
      command={ursa('pool', 'create', name || 'NAME', ...(paths.length ? paths : ['DISK']), ...(file ? ['--size', bytes ? exactSize(bytes) : 'SIZE', preallocate ? '--preallocate' : undefined] : []), ...(wipe ? ['--wipe'] : []), ...onNode(node))}
      act={() => data(api.POST('/v1/pools', { params: { query: { node } }, body }))}
      done={`Pool ${name} created. You can create volumes in it now.`}
    >
      <TextInput label="Name" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} data-autofocus />
      <OnNode chosen={chosen} choose={setChosen} />
      <TagsInput label="Disks" description={PATHS} data={file ? [] : choices.paths} renderOption={choices.option} value={paths} onChange={setPaths} error={relative && `${relative} is not an absolute path`} acceptValueOnBlur />
      {!file && choices.note}
      <Switch label="Create files with these names" description="For tests, in a file system. Otherwise the devices or files must exist" checked={file} onChange={(event) => setFile(event.currentTarget.checked)} />
      {file && <TextInput label="Size of each" value={text} onChange={(event) => setText(event.currentTarget.value)} error={text !== '' && bytes === undefined && 'For example 100G'} />}
      {file && <Preallocate preallocate={preallocate} set={setPreallocate} />}
      <Checkbox label="Overwrite data on the disks" description="Otherwise Ursa refuses disks that are not empty" checked={wipe} onChange={(event) => setWipe(event.currentTarget.checked)} />
      {ready && wipe && <Tried path={ofNode('/v1/pools', node)} body={body} failure="The pool cannot be created" />}
    </Ask>
  )
}

function ImportPool({ opened, close }: { opened: boolean; close: () => void }) {
  const [paths, setPaths] = useState<string[]>([])
  const [name, setName] = useState('')
  const [force, setForce] = useState(false)
  const [chosen, setChosen] = useState<string | null>(null)
  const node = chosen === null ? undefined : Number(chosen)
  const choices = useChoices(node, 'pool', opened)
  const body = { paths, force, ...(name ? { name } : {}) }
  return (
    <Ask
      opened={opened}
      close={close}
      title="Import pool"
      label="Import"
      danger={force}
      ready={paths.length > 0 && nameProblem(name) === undefined}
      command={ursa('pool', 'import', ...(paths.length ? paths : ['DISK']), ...(name ? ['--name', name] : []), ...(force ? ['--force'] : []), ...onNode(node))}
      act={() => data(api.POST('/v1/pools/import', { params: { query: { node } }, body }))}
      done="The pool is open."
    >
      <Said>A pool that another server has exported, or that was forgotten here. All of its disks are needed.</Said>
      <OnNode chosen={chosen} choose={setChosen} />
      <TagsInput label="Disks" description={PATHS} data={choices.paths} renderOption={choices.option} value={paths} onChange={setPaths} acceptValueOnBlur data-autofocus />
      {choices.note}
      <TextInput label="Name" description="Empty: keep its name" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} />
      <Checkbox label="Import even though another server has not exported it" description="Only if that server is definitely off: two servers that use one pool destroy it" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
      {paths.length > 0 && force && <Tried path={ofNode('/v1/pools/import', node)} body={body} failure="The pool cannot be imported" />}
    </Ask>
  )
}

function AddDisk({ pool, there, close }: { pool: Pool; there: number | undefined; close: () => void }) {
  const [path, setPath] = useState('')
  const [text, setText] = useState('')
  const [preallocate, setPreallocate] = useState(false)
  const [wipe, setWipe] = useState(false)
  const bytes = parseSize(text)
  const choices = useChoices(there, 'unused', text === '')
  const ready = path.startsWith('/') && (text === '' || bytes !== undefined)
  const body = { path, wipe, ...(bytes ? { size: bytes, preallocate } : {}) }
  return (
    <Ask
      opened
      close={close}
      title={`Add disk to pool ${pool.name}`}
      label="Add disk"
      danger={wipe}
      ready={ready}
      command={ursa('pool', 'add-disk', pool.name, path || 'DISK', ...(bytes ? ['--size', exactSize(bytes), preallocate ? '--preallocate' : undefined] : []), ...(wipe ? ['--wipe'] : []), ...onNode(there))}
      act={() => data(api.POST('/v1/pools/{name}/disks', { params: { path: { name: pool.name }, query: { node: there } }, body }))}
      done={`Disk added to pool ${pool.name}.`}
    >
      <Said>This works while the pool is in use; volumes stay where they are. The pool needs all of its disks from then on; a disk can be removed again.</Said>
      <Autocomplete label="Disk" description="A path under /dev/disk/by-id/" data={choices.paths} renderOption={choices.option} value={path} onChange={setPath} error={path !== '' && !path.startsWith('/') && 'Enter an absolute path'} data-autofocus />
      {choices.note}
      <TextInput label="Size" description="Creates a file of this size. Empty: use an existing disk or file" value={text} onChange={(event) => setText(event.currentTarget.value)} error={text !== '' && bytes === undefined && 'For example 100G'} />
      {bytes !== undefined && <Preallocate preallocate={preallocate} set={setPreallocate} />}
      <Checkbox label="Overwrite data on the disk" checked={wipe} onChange={(event) => setWipe(event.currentTarget.checked)} />
      {ready && wipe && <Tried path={tryPath(pool, 'disks', there)} body={body} failure="The disk cannot be added" />}
    </Ask>
  )
}

function Forget({ pool, there, close }: { pool: Pool; there: number | undefined; close: () => void }) {
  const [unmap, setUnmap] = useState(false)
  const remains = useQuery({ queryKey: ['remains', there, pool.name], queryFn: () => data(api.GET('/v1/pools/{name}/remains', { params: { path: { name: pool.name }, query: { node: there } } })) })
  return (
    <Ask
      opened
      close={close}
      title={`Forget pool ${pool.name}`}
      label="Forget"
      danger
      typed={pool.name}
      command={`${ursa('pool', 'forget', pool.name, ...onNode(there))}${unmap ? ' --unmap' : ''}`}
      act={() => data(api.POST('/v1/pools/{name}/forget', { params: { path: { name: pool.name }, query: { node: there } }, body: { unmap } }))}
      done={`Pool ${pool.name} forgotten. Its disks are unchanged.`}
    >
      <Said>Nothing on its disks changes: if they return, the pool can be imported again.</Said>
      {remains.error && <ProblemAlert error={remains.error} what="The contents of the pool cannot be read" />}
      {remains.data && (
        <Text size="sm">
          {remains.data.volumes ? `The pool has ${plural(remains.data.volumes.length, 'volume')}: ${remains.data.volumes.map((volume) => `${volume.name} (${size(volume.size)})`).join(', ') || 'none'}.` : 'Its volumes are unknown: none of its disks can be read.'}{' '}
          {plural(remains.data.maps.length, 'LUN map points', 'LUN maps point')} to it.
        </Text>
      )}
      <Checkbox label="Delete these LUN maps, too" description="Otherwise they stay and work again when the pool is imported" checked={unmap} onChange={(event) => setUnmap(event.currentTarget.checked)} />
      <Tried path={tryPath(pool, 'forget', there)} body={{ unmap }} failure="The pool cannot be forgotten" />
    </Ask>
  )
}
