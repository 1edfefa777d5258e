import { Alert, Group, MultiSelect, Select, Stack, Table, Tabs, Text, Title } from '@mantine/core'
import { useMemo, useState } from 'react'
import { api, data } from '../api/client'
import { type HostSetupWanted, useAddresses, useHostSetup, useHosts, useMissingSessions, useNode, useNodes, useSessions, useTargets, useVolumes } from '../api/queries'
import type { Host, Session, Target } from '../api/types'
import { Ask, DeedButton, Said } from '../parts/deed'
import { MissingNote } from '../parts/MissingNote'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { Tried } from '../parts/Tried'
import { useRoute } from '../route'
import { onNode, ursa } from '../words/command'
import { elsewhere } from '../words/missing'
import { targetFor } from '../words/hosttarget'
import { portalsOf } from '../words/portals'
import { duration, plural, size } from '../words/size'
import { volumeLink } from '../words/volume'
import { HostForm } from './HostForm'
import { TargetChangeForm, TargetForm } from './TargetForm'

export function Hosts() {
  const { query } = useRoute()
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Hosts and access
      </Title>
      <Groups />
      <SetupPanel wanted={query.get('volume') ?? undefined} />
      <Targets />
      <Sessions />
    </Stack>
  )
}

/** A list of a host group; `none` is the text for an empty one. */
const members = (list: string[], none: string) => (list.length === 0 ? <Text span size="sm" c="dimmed">{none}</Text> : list.join(', '))

function Groups() {
  const hosts = useHosts()
  const targets = useTargets()
  const [form, setForm] = useState<{ host?: Host }>()
  const [doomed, setDoomed] = useState<Host>()
  const seen = (host: string) => (targets.data ?? []).flatMap((target) => target.maps.filter((map) => map.host === host))
  return (
    <Panel
      title="Host groups"
      at={hosts.dataUpdatedAt}
      right={<DeedButton size="compact-sm" onClick={() => setForm({})}>Create host group</DeedButton>}
      note="A host group is one or more hosts with the same access. A host belongs to it if its initiator name and its address are listed; an empty list matches any. Only host groups with a LUN map can use a volume."
    >
      {hosts.error && <ProblemAlert error={hosts.error} what="The host groups cannot be listed" />}
      <Rows width={720} head={['Group', 'Initiators', 'Addresses', 'Secret', 'Mapped', '']}>
        {(hosts.data ?? []).map((host) => {
          const maps = seen(host.name)
          return (
            <Table.Tr key={host.name}>
              <Table.Td fw={600}>{host.name}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{members(host.initiators, 'any')}</Table.Td>
              <Table.Td>{members(host.addresses, 'any')}</Table.Td>
              <Table.Td>{host.chap_user ? `CHAP, user ${host.chap_user}` : 'none'}</Table.Td>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>{maps.length === 0 ? 'none' : plural(maps.length, 'volume')}</Table.Td>
              <Table.Td>
                {host.built_in ? (
                  <Text size="xs" c="dimmed">
                    built in: {host.name === 'any' ? 'every host' : 'each node’s own machine'}
                  </Text>
                ) : (
                  <Group gap={6} wrap="nowrap" justify="flex-end">
                    <DeedButton size="compact-sm" variant="default" onClick={() => setForm({ host })}>
                      Change
                    </DeedButton>
                    <DeedButton size="compact-sm" variant="default" because={maps.length > 0 ? 'Volumes are mapped to this group: unmap them first.' : undefined} onClick={() => setDoomed(host)}>
                      Delete
                    </DeedButton>
                  </Group>
                )}
              </Table.Td>
            </Table.Tr>
          )
        })}
      </Rows>
      {hosts.data?.every((host) => host.built_in) && (
        <Empty>Only the two built-in groups exist. Create a group for each host that needs volumes, with its initiator name (on Linux: /etc/iscsi/initiatorname.iscsi).</Empty>
      )}
      {form && <HostForm key={form.host?.name ?? ''} host={form.host} close={() => setForm(undefined)} />}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title={`Delete host group ${doomed.name}`} label="Delete host group" danger command={ursa('host', 'delete', doomed.name)} act={() => data(api.DELETE('/v1/hosts/{name}', { params: { path: { name: doomed.name } } }))} done={`Host group ${doomed.name} deleted.`}>
          <Said>No volume is mapped to this group, so no host loses a volume.</Said>
          <Tried method="DELETE" path={`/v1/hosts/${encodeURIComponent(doomed.name)}`} failure="The host group cannot be deleted" />
        </Ask>
      )}
    </Panel>
  )
}

type System = HostSetupWanted['system']

const SYSTEMS: { value: System; label: string }[] = [
  { value: 'linux', label: 'Linux' },
  { value: 'esxi', label: 'VMware ESXi' },
  { value: 'windows', label: 'Windows' },
  { value: 'proxmox', label: 'Proxmox VE' },
]

/** `wanted`: the name of the volume that a host is to use, if any. */
function SetupPanel({ wanted }: { wanted?: string }) {
  const targets = useTargets()
  const volumes = useVolumes()
  const nodes = useNodes()
  const node = useNode()
  const floating = useAddresses()
  const hosts = useHosts()
  const [chosen, setChosen] = useState<string>()
  const [system, setSystem] = useState<System>('linux')
  const [portals, setPortals] = useState<string[]>()
  const asked = volumes.data?.find((one) => one.name === wanted)
  // If a volume was requested that is not known yet, wait for it: otherwise another volume's target would be
  // shown for a moment.
  const target = targets.data && (wanted === undefined || !volumes.isPending || chosen) ? targetFor(targets.data, { target: chosen, volume: asked }) : undefined
  const seen = volumes.data?.filter((one) => one.maps.some((map) => map.target === target?.name)) ?? []
  const volume = seen.find((one) => one === asked) ?? seen[0]
  const chapUser = target?.maps.map((map) => hosts.data?.find((host) => host.name === map.host)?.chap_user).find((user) => user) ?? undefined
  // The portals of nodes with a copy of the volume, and floating ones. Where a node listens at all addresses,
  // the address of this page replaces its wildcard.
  const known = useMemo(() => {
    const listed = portalsOf(volume, nodes.data ?? [], floating.data ?? [])
    // Before others can join a node, the record does not say to which addresses its wildcard leads.
    const all = listed.length > 0 ? listed : (node.data?.portals ?? [])
    return [...new Set(all.map((portal) => portal.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname)))]
  }, [nodes.data, node.data, floating.data, volume])
  const used = portals?.filter((portal) => known.includes(portal)) ?? known
  return (
    <Panel title="Host setup" at={targets.dataUpdatedAt} note="Commands to paste on the host: initiator, all paths to the volume, suitable timeouts. Read them and use what you need.">
      {targets.data?.length === 0 ? (
        <Empty>No targets yet. The first volume creates one: <To href="#/create">create a volume</To>.</Empty>
      ) : (
        <Stack gap="sm">
          <Group grow align="flex-start" preventGrowOverflow={false}>
            <Select label="Target" description="What the host logs in to" data={(targets.data ?? []).map((one) => one.name)} value={target?.name ?? null} onChange={(name) => { setChosen(name ?? undefined); setPortals(undefined) }} allowDeselect={false} searchable miw={280} />
            <MultiSelect label="Portals" description="Choose one for each network and node that the host should use" data={known} value={used} onChange={setPortals} miw={280} />
          </Group>
          <Tabs value={system} onChange={(value) => setSystem(value as System)}>
            <Tabs.List>
              {SYSTEMS.map(({ value, label }) => (
                <Tabs.Tab key={value} value={value}>
                  {label}
                </Tabs.Tab>
              ))}
            </Tabs.List>
          </Tabs>
          {target && target.maps.length === 0 && (
            <Alert color="yellow">This target has no LUNs: a host that logs in finds no disk until a volume is mapped (open the volume, “More”).</Alert>
          )}
          {asked && !target ? (
            <Empty>Volume <To href={volumeLink(asked)}>{asked.name}</To> is not mapped to a host group. Open it and map it under “More”, or choose another target.</Empty>
          ) : !target ? (
            targets.error ? <ProblemAlert error={targets.error} what="The targets cannot be listed" /> : <Empty>Loading targets…</Empty>
          ) : used.length > 0 ? (
            <Script system={system} target={target.name} portals={used} naa={volume?.naa} chapUser={chapUser} />
          ) : (
            <Empty>Choose at least one portal.</Empty>
          )}
          <Text size="xs" c="dimmed">
            A volume used by several hosts at the same time needs a cluster file system (VMFS, GFS2, OCFS2, clustered Windows), or software that coordinates writes, such as Proxmox VE. Mounting ext4 or XFS twice destroys it.
          </Text>
        </Stack>
      )}
    </Panel>
  )
}

/** The setup commands from the node, which the command line prints, too. */
function Script({ system, target, portals, naa, chapUser }: { system: System; target: string; portals: string[]; naa?: string; chapUser?: string }) {
  const setup = useHostSetup({ system, target, portals: portals.join(), naa, chap_user: chapUser })
  const options = [...portals.flatMap((portal) => ['--portal', portal]), ...(chapUser ? ['--chap-user', chapUser] : []), ...(system === 'proxmox' && naa ? ['--naa', naa] : [])]
  if (setup.error) return <ProblemAlert error={setup.error} what="The setup commands cannot be shown" />
  if (!setup.data) return <Empty>Loading…</Empty>
  return <Paste text={setup.data.text} label={ursa('host-setup', system, '--target', target, ...options)} maxHeight={360} />
}

function Targets() {
  const targets = useTargets()
  const volumes = useVolumes()
  const [doomed, setDoomed] = useState<Target>()
  const [making, setMaking] = useState(false)
  const [changed, setChanged] = useState<Target>()
  if (!targets.data) return null
  return (
    <Panel title="Targets" at={targets.dataUpdatedAt} right={<DeedButton size="compact-sm" onClick={() => setMaking(true)}>Create target</DeedButton>} note="The names that initiators log in to. Each new volume gets its own target unless you name another one.">
      {targets.data.length === 0 && <Empty>No targets yet. The first volume creates one.</Empty>}
      <Rows width={640} head={['Target', 'LUNs', '']}>
        {targets.data.map((target) => (
          <Table.Tr key={target.name}>
            <Table.Td style={{ overflowWrap: 'anywhere' }}>
              {target.name}
              {target.alias && <Text size="xs" c="dimmed">{target.alias}</Text>}
              {target.chap_user && <Text size="xs" c="dimmed">mutual CHAP, user {target.chap_user}</Text>}
            </Table.Td>
            <Table.Td>
              {target.maps.length === 0
                ? 'none'
                : target.maps.map((map) => {
                    const volume = volumes.data?.find((one) => one.id === map.volume_id)
                    return (
                      <Text size="sm" key={`${map.lun} ${map.host}`}>
                        {map.lun}: {volume ? <To href={volumeLink(volume)}>{volume.name}</To> : (map.volume ?? 'name unknown (its pool is not open)')}, {map.host}
                      </Text>
                    )
                  })}
            </Table.Td>
            <Table.Td>
              <Group gap={6} wrap="nowrap" justify="flex-end">
                <DeedButton size="compact-sm" variant="default" onClick={() => setChanged(target)}>
                  Change
                </DeedButton>
                <DeedButton size="compact-sm" variant="default" onClick={() => setDoomed(target)}>
                  Delete
                </DeedButton>
              </Group>
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      {making && <TargetForm close={() => setMaking(false)} />}
      {changed && <TargetChangeForm key={changed.name} target={changed} close={() => setChanged(undefined)} />}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title={`Delete target ${doomed.name}`} label="Delete target" danger typed={doomed.maps.length > 0 ? doomed.name.replace(/^.*:/, '') : undefined} command={ursa('target', 'delete', doomed.name, doomed.maps.length > 0 ? '--force' : undefined)} act={() => data(api.DELETE('/v1/targets/{name}', { params: { path: { name: doomed.name }, query: { force: doomed.maps.length > 0 } } }))} done="Target deleted.">
          <Said>{doomed.maps.length > 0 ? `Its sessions end, and its ${plural(doomed.maps.length, 'LUN')} can no longer be reached through it. The volumes stay.` : 'It has no LUNs.'}</Said>
          <Tried method="DELETE" path={`/v1/targets/${encodeURIComponent(doomed.name)}?force=${doomed.maps.length > 0}`} failure="The target cannot be deleted" />
        </Ask>
      )}
    </Panel>
  )
}

function Sessions() {
  const sessions = useSessions()
  const missing = useMissingSessions()
  const nodes = useNodes()
  const [doomed, setDoomed] = useState<Session>()
  const there = doomed && elsewhere(doomed, nodes.data)
  return (
    <Panel title="Sessions" at={sessions.dataUpdatedAt} note="Initiators that are logged in.">
      <MissingNote what="Sessions" missing={missing} />
      {sessions.error ? (
        <ProblemAlert error={sessions.error} what="The sessions cannot be listed" />
      ) : sessions.data?.length === 0 ? (
        <Empty>No initiator is logged in. Set up a host with the commands above.</Empty>
      ) : (
        <Rows width={860} head={['Initiator', 'Node', 'From', 'Target', 'Core', 'Age', { right: 'Commands' }, { right: 'Received, sent' }, '']}>
          {(sessions.data ?? []).map((session) => (
            <Table.Tr key={`${session.node} ${session.tsih}`}>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{session.alias || session.initiator}</Table.Td>
              <Table.Td>{session.node_name}</Table.Td>
              <Table.Td>{session.addresses.join(', ')}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{session.target ?? 'discovery'}</Table.Td>
              <Table.Td>{session.core}</Table.Td>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>{duration(session.age)}</Table.Td>
              <Table.Td ta="right">{session.commands.toLocaleString()}</Table.Td>
              <Table.Td ta="right" style={{ whiteSpace: 'nowrap' }}>
                {size(session.bytes_received)}, {size(session.bytes_sent)}
              </Table.Td>
              <Table.Td>
                <DeedButton size="compact-sm" variant="default" onClick={() => setDoomed(session)}>
                  End
                </DeedButton>
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title="End session" label="End session" danger command={ursa('session', 'end', doomed.tsih, ...onNode(there))} act={() => data(api.DELETE('/v1/sessions/{tsih}', { params: { path: { tsih: doomed.tsih }, query: { node: there } } }))} done="The initiator was asked to log out.">
          <Tried method="DELETE" path={`/v1/sessions/${doomed.tsih}${there === undefined ? '' : `?node=${there}`}`} failure="The session cannot be ended" />
          <Said>The initiator may log in again. To keep it out, unmap the volume from its host group.</Said>
        </Ask>
      )}
    </Panel>
  )
}
