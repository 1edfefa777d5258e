import { Button, Checkbox, Group, List, Menu, NumberInput, Select, Text, TextInput } from '@mantine/core'
import { useEffect, useState } from 'react'
import { useForbidden } from '../api/access'
import { api, data } from '../api/client'
import { useHosts, useNodes } from '../api/queries'
import type { Scrub, Verification, Volume } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { ProblemAlert } from '../parts/Problem'
import { Tried } from '../parts/Tried'
import { go, link } from '../route'
import { ursa } from '../words/command'
import { ISCSI_NAME_HINT, defaultTarget, isIscsiName } from '../words/iscsi'
import { LUN_MAX, isName, nameProblem } from '../words/names'
import { scrubVerdict } from '../words/scrub'
import { exactSize, parseSize, size } from '../words/size'

type Open = 'grow' | 'rename' | 'map' | 'unmap' | 'verify' | 'scrub' | 'fork' | 'delete'

export function VolumeActions({ volume }: { volume: Volume }) {
  const [open, setOpen] = useState<Open>()
  const close = () => setOpen(undefined)
  const forbidden = useForbidden('change')
  const copies = volume.copies ?? []
  return (
    <Group gap="xs">
      <DeedButton variant="default" onClick={() => setOpen('grow')}>
        Grow
      </DeedButton>
      <DeedButton variant="default" href={`${link('volumes', volume.name)}/copies`} because={copies.length === 0 ? 'The cluster’s record does not list this volume, or this node does not take part in its cluster.' : undefined}>
        Copies
      </DeedButton>
      <Menu position="bottom-end" disabled={forbidden !== undefined}>
        <Menu.Target>
          <Button variant="default" title={forbidden} data-disabled={forbidden !== undefined || undefined}>
            More
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => setOpen('map')}>Map to host group</Menu.Item>
          {volume.maps.length > 0 && <Menu.Item onClick={() => setOpen('unmap')}>Unmap from host group</Menu.Item>}
          <Menu.Item onClick={() => setOpen('rename')}>Rename</Menu.Item>
          {copies.length > 0 && <Menu.Item onClick={() => setOpen('verify')}>Verify copies</Menu.Item>}
          {volume.kind !== 'ram' && <Menu.Item onClick={() => setOpen('scrub')}>Scrub</Menu.Item>}
          {volume.fork && <Menu.Item color="red" onClick={() => setOpen('fork')}>Choose side to keep</Menu.Item>}
          <Menu.Divider />
          <Menu.Item color="red" onClick={() => setOpen('delete')}>Delete</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Grow volume={volume} opened={open === 'grow'} close={close} />
      <Rename volume={volume} opened={open === 'rename'} close={close} />
      <MapIt volume={volume} opened={open === 'map'} close={close} />
      <Unmap volume={volume} opened={open === 'unmap'} close={close} />
      <Verify volume={volume} opened={open === 'verify'} close={close} />
      <ScrubIt volume={volume} opened={open === 'scrub'} close={close} />
      {volume.fork && <Fork volume={volume} opened={open === 'fork'} close={close} />}
      <Delete volume={volume} opened={open === 'delete'} close={close} />
    </Group>
  )
}

interface Dialogue {
  volume: Volume
  opened: boolean
  close: () => void
}

// By its identity, because the volume may be renamed meanwhile.
const path = (volume: Volume) => ({ params: { path: { name: volume.id } } })

function Grow({ volume, opened, close }: Dialogue) {
  const [text, setText] = useState('')
  const bytes = parseSize(text)
  const wrong = text !== '' && (bytes === undefined ? 'Enter a number with K, M, G or T, for example 20G' : bytes <= volume.size ? `Must be larger than now: ${size(volume.size)}` : undefined)
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Grow ${volume.name}`}
      label="Grow volume"
      ready={bytes !== undefined && !wrong}
      command={ursa('volume', 'resize', volume.name, bytes ? exactSize(bytes) : 'SIZE')}
      act={() => data(api.PATCH('/v1/volumes/{name}', { ...path(volume), body: { size: bytes } }))}
      done={`Volume ${volume.name} resized to ${text}. Hosts see the new size after a rescan.`}
    >
      <Said>Current size: {size(volume.size)}. The volume can grow while in use; then rescan on the hosts and grow the file system. A volume cannot shrink.</Said>
      <TextInput label="New size" placeholder="20G" value={text} onChange={(event) => setText(event.currentTarget.value)} error={wrong} data-autofocus />
    </Ask>
  )
}

function Rename({ volume, opened, close }: Dialogue) {
  const [name, setName] = useState('')
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Rename ${volume.name}`}
      label="Rename"
      ready={isName(name) && name !== volume.name}
      command={ursa('volume', 'rename', volume.name, name || 'NEW-NAME')}
      act={async () => {
        await data(api.PATCH('/v1/volumes/{name}', { ...path(volume), body: { name } }))
        go(link('volumes', name))
      }}
      done={`Volume ${volume.name} renamed to ${name}.`}
    >
      <Said>Hosts are not affected: their device names stay the same. The target keeps its name, too.</Said>
      <TextInput label="New name" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} data-autofocus />
    </Ask>
  )
}

function MapIt({ volume, opened, close }: Dialogue) {
  const hosts = useHosts()
  const [host, setHost] = useState<string | null>(null)
  const [target, setTarget] = useState(volume.maps[0]?.target ?? defaultTarget(volume.name))
  const [lun, setLun] = useState<number | string>('')
  const number = typeof lun === 'number' ? lun : undefined
  const known = volume.maps.some((map) => map.target === target)
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Map ${volume.name} to a host group`}
      label="Map"
      ready={host !== null && isIscsiName(target) && (number === undefined || number <= LUN_MAX)}
      command={[
        ...(known ? [] : [`# if this target does not exist yet:\n${ursa('target', 'create', target)}`]),
        ursa('map', 'create', target, volume.name, '--host', host ?? 'HOST', ...(number === undefined ? [] : ['--lun', number])),
      ].join('\n')}
      act={async () => {
        if (!known) {
          const targets = (await data(api.GET('/v1/targets'))).items
          if (!targets.some((one) => one.name === target)) await data(api.POST('/v1/targets', { body: { name: target } }))
        }
        await data(api.POST('/v1/targets/{name}/maps', { params: { path: { name: target } }, body: { volume: volume.id, host, lun: number ?? null } }))
      }}
      done={`${volume.name} mapped to host group ${host ?? ''}.`}
    >
      <Said>A host group is one or more hosts with the same access. A volume used by several hosts at the same time needs a cluster file system (VMFS, GFS2, OCFS2); mounting ext4 or XFS twice destroys it.</Said>
      <Select label="Host group" placeholder="Choose one" data={(hosts.data ?? []).map((one) => one.name)} value={host} onChange={setHost} description="Create groups under “Hosts and access”." />
      <TextInput label="Target" value={target} onChange={(event) => setTarget(event.currentTarget.value)} description="The iSCSI name that initiators log in to; created if it does not exist." error={target !== '' && !isIscsiName(target) && `Not a valid iSCSI name. Use ${ISCSI_NAME_HINT}`} />
      <NumberInput label="LUN" placeholder="lowest free" value={lun} onChange={setLun} min={0} max={LUN_MAX} allowDecimal={false} />
    </Ask>
  )
}

function Unmap({ volume, opened, close }: Dialogue) {
  const [chosen, setChosen] = useState<string | null>(null)
  const key = (at: number) => String(at)
  const map = chosen === null ? undefined : volume.maps[Number(chosen)]
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Unmap ${volume.name} from a host group`}
      label="Unmap"
      danger
      ready={map !== undefined}
      command={ursa('map', 'delete', map?.target ?? 'TARGET', map?.lun ?? 'LUN', '--host', map?.host ?? 'HOST')}
      act={() => data(api.DELETE('/v1/targets/{name}/maps/{lun}', { params: { path: { name: map!.target, lun: map!.lun }, query: { host: map!.host } } }))}
      done={`${volume.name} unmapped from host group ${map?.host ?? ''}.`}
    >
      <Said>Hosts of this group lose the disk at once, even if it is in use. The data stays.</Said>
      <Select label="LUN map" data={volume.maps.map((one, at) => ({ value: key(at), label: `${one.host}: LUN ${one.lun} of ${one.target}` }))} value={chosen} onChange={setChosen} />
      {map && <Tried method="DELETE" path={`/v1/targets/${encodeURIComponent(map.target)}/maps/${map.lun}?host=${encodeURIComponent(map.host)}`} failure="The volume cannot be unmapped" />}
    </Ask>
  )
}

const verification = (volume: Volume) => data(api.GET('/v1/volumes/{name}/verify', path(volume)))
const lastScrub = (volume: Volume) => data(api.GET('/v1/volumes/{name}/scrub', path(volume)))

/** The state of a job of a volume, asked for with `now` each second while it runs; `problem`: why it cannot be read. */
function useProgress<T extends { state: string }>(volume: Volume, now: (volume: Volume) => Promise<T>) {
  const [found, setFound] = useState<T>()
  const [problem, setProblem] = useState<unknown>()
  const running = found?.state === 'running'
  useEffect(() => {
    if (!running) return
    const timer = setInterval(() => {
      now(volume).then((found) => {
        setFound(found)
        setProblem(undefined)
      }, setProblem)
    }, 1000)
    return () => clearInterval(timer)
  }, [running, volume, now])
  const forget = () => {
    setFound(undefined)
    setProblem(undefined)
  }
  return { found, setFound, problem: running ? problem : undefined, forget }
}

function Verify({ volume, opened, close }: Dialogue) {
  const { found, setFound, problem, forget } = useProgress<Verification>(volume, verification)
  return (
    <Ask
      opened={opened}
      close={() => {
        forget()
        close()
      }}
      title={`Verify ${volume.name}`}
      label="Verify"
      command={ursa('volume', 'verify', volume.name)}
      act={async () => {
        setFound(await data(api.POST('/v1/volumes/{name}/verify', path(volume))))
      }}
      stays
    >
      <Said>Reads and compares all copies in sync, a megabyte at a time, while hosts use the volume; a host that needs that megabyte waits a few milliseconds. The job continues if you close this.</Said>
      {problem !== undefined && <ProblemAlert error={problem} what="Progress cannot be read" />}
      {found && (
        <>
          <Text fw={600} c={verdict(found).colour} role="status">
            {verdict(found).text}
          </Text>
          <List size="sm">
            {found.differences.map((place) => (
              <List.Item key={place.offset}>
                {size(place.bytes)} at byte {place.offset}: {place.nodes.map((node) => `node ${node}`).join(', ')}
              </List.Item>
            ))}
          </List>
        </>
      )}
    </Ask>
  )
}

function ScrubIt({ volume, opened, close }: Dialogue) {
  const { found, setFound, problem, forget } = useProgress<Scrub>(volume, lastScrub)
  return (
    <Ask
      opened={opened}
      close={() => {
        forget()
        close()
      }}
      title={`Scrub ${volume.name}`}
      label="Scrub"
      command={ursa('volume', 'scrub', volume.name)}
      act={async () => {
        setFound(await data(api.POST('/v1/volumes/{name}/scrub', path(volume))))
      }}
      stays
    >
      <Said>Reads everything in use from the disks of one node while hosts use the volume, and repairs bad blocks from other copies in sync. The job continues if you close this, even if the node restarts.</Said>
      {problem !== undefined && <ProblemAlert error={problem} what="Progress cannot be read" />}
      {found && (
        <Text fw={600} c={scrubVerdict(found).colour} role="status">
          {scrubVerdict(found).text}
        </Text>
      )}
    </Ask>
  )
}

function verdict(found: Verification): { text: string; colour?: string } {
  if (found.state === 'running') return { text: `${size(found.checked_bytes)} of ${size(found.total_bytes)} compared.` }
  if (found.different_bytes > 0) return { text: `Mismatch: the copies differ in ${size(found.different_bytes)}. Rebuild the wrong copy under “Copies”.`, colour: 'red' }
  if (found.state === 'stopped') return { text: `Verify stopped after ${size(found.checked_bytes)}.`, colour: 'red' }
  if (found.unchecked_bytes > 0) return { text: `${size(found.unchecked_bytes)} could not be compared: ${found.problem ?? 'reason unknown'}. The rest is identical.`, colour: 'red' }
  return { text: 'No mismatch: all copies in sync are identical.', colour: 'green' }
}

function Fork({ volume, opened, close }: Dialogue) {
  const nodes = useNodes()
  const [keep, setKeep] = useState<string | null>(null)
  const [agreed, setAgreed] = useState(false)
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Choose which side of ${volume.name} to keep`}
      label="Keep this side, discard the other"
      danger
      typed={volume.name}
      ready={keep !== null && agreed}
      command={ursa('volume', 'resolve-split-brain', volume.name, '--keep', keep ?? 'NODE', '--discard-other')}
      act={() => data(api.PUT('/v1/volumes/{name}/split-brain', { ...path(volume), body: { keep: Number(keep), discard_other: true } }))}
      done="Side chosen; the other side is discarded."
    >
      <Said>Both nodes have written to this volume independently. The two sides cannot be merged: writes made only on the other node are discarded permanently. Before you choose, copy what you need from the node that serves the volume.</Said>
      <Select label="Keep the data of node" data={(volume.copies ?? []).map((copy) => ({ value: String(copy.node), label: nodes.data?.find((node) => node.id === copy.node)?.name ?? `node ${copy.node}` }))} value={keep} onChange={setKeep} />
      <Checkbox label="Discard writes made only on the other node" checked={agreed} onChange={(event) => setAgreed(event.currentTarget.checked)} />
      {keep !== null && <Tried method="PUT" path={`/v1/volumes/${volume.id}/split-brain`} body={{ keep: Number(keep), discard_other: true }} failure="This side cannot be kept" />}
    </Ask>
  )
}

function Delete({ volume, opened, close }: Dialogue) {
  const mapped = volume.maps.length > 0
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Delete ${volume.name}`}
      label="Delete volume and data"
      danger
      typed={volume.name}
      command={ursa('volume', 'delete', volume.name, mapped ? '--force' : '')}
      act={async () => {
        await data(api.DELETE('/v1/volumes/{name}', { params: { path: { name: volume.id }, query: { force: mapped } } }))
        go('#/volumes')
      }}
      done={`Volume ${volume.name} deleted.`}
    >
      <Said>
        {(volume.copies ?? []).length > 1 ? `All ${volume.copies?.length} copies of ` : ''}{size(volume.size)} of data are deleted permanently.{' '}
        {mapped ? `It is unmapped from ${[...new Set(volume.maps.map((map) => map.host))].join(', ')}.` : 'It is not mapped to any host group.'}
      </Said>
      <Tried method="DELETE" path={`/v1/volumes/${volume.id}?force=${mapped}`} failure="The volume cannot be deleted" />
    </Ask>
  )
}
