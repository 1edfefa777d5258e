import { Button, Checkbox, Group, List, Menu, NumberInput, Select, Text, TextInput } from '@mantine/core'
import { useEffect, useState } from 'react'
import { useForbidden } from '../api/access'
import { api, data } from '../api/client'
import { useHosts, useNodes } from '../api/queries'
import type { Verification, Volume } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { ProblemAlert } from '../parts/Problem'
import { Tried } from '../parts/Tried'
import { go, link } from '../route'
import { onNode, ursa } from '../words/command'
import { ISCSI_NAME_HINT, defaultTarget, isIscsiName } from '../words/iscsi'
import { LUN_MAX, isName, nameProblem } from '../words/names'
import { exactSize, parseSize, size } from '../words/size'
import { aloneAt, aloneOn, volumeLink } from '../words/volume'

type Open = 'grow' | 'rename' | 'map' | 'unmap' | 'verify' | 'fork' | 'delete'

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
      <DeedButton variant="default" href={`${link('volumes', volume.name)}/copies`} because={copies.length === 0 ? `It is on ${aloneOn(volume)} alone; a volume that has copies is made so.` : undefined}>
        Copies
      </DeedButton>
      <Menu position="bottom-end" disabled={forbidden !== undefined}>
        <Menu.Target>
          <Button variant="default" title={forbidden} data-disabled={forbidden !== undefined || undefined}>
            More
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => setOpen('map')}>Map it for a host group</Menu.Item>
          {volume.maps.length > 0 && <Menu.Item onClick={() => setOpen('unmap')}>Take it away from a host group</Menu.Item>}
          <Menu.Item onClick={() => setOpen('rename')}>Rename</Menu.Item>
          {copies.length > 0 && <Menu.Item onClick={() => setOpen('verify')}>Compare its copies</Menu.Item>}
          {volume.fork && <Menu.Item color="red" onClick={() => setOpen('fork')}>Decide whose data is kept</Menu.Item>}
          <Menu.Divider />
          <Menu.Item color="red" onClick={() => setOpen('delete')}>Delete</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Grow volume={volume} opened={open === 'grow'} close={close} />
      <Rename volume={volume} opened={open === 'rename'} close={close} />
      <MapIt volume={volume} opened={open === 'map'} close={close} />
      <Unmap volume={volume} opened={open === 'unmap'} close={close} />
      <Verify volume={volume} opened={open === 'verify'} close={close} />
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

// By its identity: another node may have one of the same name.
const path = (volume: Volume) => ({ params: { path: { name: volume.id } } })

function Grow({ volume, opened, close }: Dialogue) {
  const [text, setText] = useState('')
  const bytes = parseSize(text)
  const wrong = text !== '' && (bytes === undefined ? 'A size is a number with K, M, G or T: 20G' : bytes <= volume.size ? `More than it has: ${size(volume.size)}` : undefined)
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Grow ${volume.name}`}
      label="Grow it"
      ready={bytes !== undefined && !wrong}
      command={ursa('volume', 'resize', volume.name, bytes ? exactSize(bytes) : 'SIZE', ...onNode(aloneAt(volume)))}
      act={() => data(api.PATCH('/v1/volumes/{name}', { ...path(volume), body: { size: bytes } }))}
      done={`${volume.name} has ${text} now. Hosts see it after a rescan.`}
    >
      <Said>It has {size(volume.size)}. It grows while it is in use; then let hosts rescan, and the file system grow. A volume cannot be made smaller.</Said>
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
      label="Rename it"
      ready={isName(name) && name !== volume.name}
      command={ursa('volume', 'rename', volume.name, name || 'NEW-NAME', ...onNode(aloneAt(volume)))}
      act={async () => {
        await data(api.PATCH('/v1/volumes/{name}', { ...path(volume), body: { name } }))
        go(volumeLink({ ...volume, name }))
      }}
      done={`It is called ${name} now.`}
    >
      <Said>Hosts do not notice: their names for it stay. Its target keeps its name, too.</Said>
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
      title={`Map ${volume.name} for a host group`}
      label="Map it"
      ready={host !== null && isIscsiName(target) && (number === undefined || number <= LUN_MAX)}
      command={[
        ...(known ? [] : [`# if there is no such target yet:\n${ursa('target', 'create', target)}`]),
        ursa('map', 'create', target, volume.name, '--host', host ?? 'HOST', ...(number === undefined ? [] : ['--lun', number]), ...onNode(aloneAt(volume))),
      ].join('\n')}
      act={async () => {
        if (!known) {
          const targets = (await data(api.GET('/v1/targets'))).items
          if (!targets.some((one) => one.name === target)) await data(api.POST('/v1/targets', { body: { name: target } }))
        }
        await data(api.POST('/v1/targets/{name}/maps', { params: { path: { name: target } }, body: { volume: volume.id, host, lun: number ?? null } }))
      }}
      done={`${host ?? ''} sees ${volume.name} now.`}
    >
      <Said>A host group is a host, or several that are treated alike. A volume that several hosts use at once needs a file system made for that (VMFS, GFS2, OCFS2): ext4 or XFS mounted twice is destroyed.</Said>
      <Select label="Host group" placeholder="Choose one" data={(hosts.data ?? []).map((one) => one.name)} value={host} onChange={setHost} description="Make groups under “Hosts and access”." />
      <TextInput label="Target" value={target} onChange={(event) => setTarget(event.currentTarget.value)} description="The iSCSI name that initiators log in to; made if it does not exist." error={target !== '' && !isIscsiName(target) && `An iSCSI name is ${ISCSI_NAME_HINT}`} />
      <NumberInput label="LUN" placeholder="the lowest that is free" value={lun} onChange={setLun} min={0} max={LUN_MAX} allowDecimal={false} />
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
      title={`Take ${volume.name} away from a host group`}
      label="Take it away"
      danger
      ready={map !== undefined}
      command={ursa('map', 'delete', map?.target ?? 'TARGET', map?.lun ?? 'LUN', '--host', map?.host ?? 'HOST')}
      act={() => data(api.DELETE('/v1/targets/{name}/maps/{lun}', { params: { path: { name: map!.target, lun: map!.lun }, query: { host: map!.host } } }))}
      done={`${map?.host ?? ''} does not see ${volume.name} any more.`}
    >
      <Said>Hosts of that group lose the disk at once, whether they use it or not. Its data stays.</Said>
      <Select label="Map" data={volume.maps.map((one, at) => ({ value: key(at), label: `${one.host}: LUN ${one.lun} of ${one.target}` }))} value={chosen} onChange={setChosen} />
      {map && <Tried method="DELETE" path={`/v1/targets/${encodeURIComponent(map.target)}/maps/${map.lun}?host=${encodeURIComponent(map.host)}`} failure="It cannot be taken away" />}
    </Ask>
  )
}

function Verify({ volume, opened, close }: Dialogue) {
  const [found, setFound] = useState<Verification>()
  const [problem, setProblem] = useState<unknown>()
  const running = found?.state === 'running'
  useEffect(() => {
    if (!running) return
    const timer = setInterval(() => {
      data(api.GET('/v1/volumes/{name}/verify', path(volume))).then((now) => {
        setFound(now)
        setProblem(undefined)
      }, setProblem)
    }, 1000)
    return () => clearInterval(timer)
  }, [running, volume])
  return (
    <Ask
      opened={opened}
      close={() => {
        setFound(undefined)
        setProblem(undefined)
        close()
      }}
      title={`Compare the copies of ${volume.name}`}
      label="Read and compare"
      command={ursa('volume', 'verify', volume.name)}
      act={async () => {
        setFound(await data(api.POST('/v1/volumes/{name}/verify', path(volume))))
      }}
      stays
    >
      <Said>The copies in sync are read and compared, a megabyte at a time, while hosts use the volume: who wants that megabyte waits for some milliseconds. It goes on as a job when this is closed.</Said>
      {running && problem !== undefined && <ProblemAlert error={problem} what="How far it is cannot be read" />}
      {found && (
        <>
          <Text fw={600} c={verdict(found).colour} role="status">
            {verdict(found).text}
          </Text>
          <List size="sm">
            {found.differences.map((place) => (
              <List.Item key={place.offset}>
                {size(place.bytes)} from byte {place.offset} on: {place.nodes.map((node) => `node ${node}`).join(', ')}
              </List.Item>
            ))}
          </List>
        </>
      )}
    </Ask>
  )
}

function verdict(found: Verification): { text: string; colour?: string } {
  if (found.state === 'running') return { text: `${size(found.checked_bytes)} of ${size(found.total_bytes)} are compared.` }
  if (found.different_bytes > 0) return { text: `The copies differ in ${size(found.different_bytes)}. Take a wrong one away and add it anew.`, colour: 'red' }
  if (found.state === 'stopped') return { text: `It was stopped when ${size(found.checked_bytes)} were compared.`, colour: 'red' }
  if (found.unchecked_bytes > 0) return { text: `${size(found.unchecked_bytes)} could not be compared: ${found.problem ?? 'nobody knows why'}. The rest is equal.`, colour: 'red' }
  return { text: 'The copies in sync are equal.', colour: 'green' }
}

function Fork({ volume, opened, close }: Dialogue) {
  const nodes = useNodes()
  const [keep, setKeep] = useState<string | null>(null)
  const [agreed, setAgreed] = useState(false)
  return (
    <Ask
      opened={opened}
      close={close}
      title={`Decide whose data of ${volume.name} is kept`}
      label="Keep it, and give the other up"
      danger
      typed={volume.name}
      ready={keep !== null && agreed}
      command={ursa('volume', 'resolve-fork', volume.name, '--keep', keep ?? 'NODE', '--discard-other')}
      act={() => data(api.PUT('/v1/volumes/{name}/fork', { ...path(volume), body: { keep: Number(keep), discard_other: true } }))}
      done="It is decided."
    >
      <Said>Both nodes have written to this volume without each other. Nothing merges that: what one of them alone has written is given up for good. Copy what you need from the node that serves before you decide.</Said>
      <Select label="Keep what this node has" data={(volume.copies ?? []).map((copy) => ({ value: String(copy.node), label: nodes.data?.find((node) => node.id === copy.node)?.name ?? `node ${copy.node}` }))} value={keep} onChange={setKeep} />
      <Checkbox label="What the other node alone has written is given up" checked={agreed} onChange={(event) => setAgreed(event.currentTarget.checked)} />
      {keep !== null && <Tried method="PUT" path={`/v1/volumes/${volume.id}/fork`} body={{ keep: Number(keep), discard_other: true }} failure="It cannot be decided so" />}
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
      label="Delete it with all its data"
      danger
      typed={volume.name}
      command={ursa('volume', 'delete', volume.name, mapped ? '--force' : '', ...onNode(aloneAt(volume)))}
      act={async () => {
        await data(api.DELETE('/v1/volumes/{name}', { params: { path: { name: volume.id }, query: { force: mapped } } }))
        go('#/volumes')
      }}
      done={`${volume.name} is deleted.`}
    >
      <Said>
        {size(volume.size)} of data {(volume.copies ?? []).length > 1 ? `and all ${volume.copies?.length} copies of it ` : ''}are gone for good.{' '}
        {typeof volume.node === 'number' && `${aloneOn(volume)} alone has it. `}
        {mapped ? `It is taken away from ${[...new Set(volume.maps.map((map) => map.host))].join(', ')}.` : 'Nobody sees it now.'}
      </Said>
      <Tried method="DELETE" path={`/v1/volumes/${volume.id}?force=${mapped}`} failure="It cannot be deleted" />
    </Ask>
  )
}
