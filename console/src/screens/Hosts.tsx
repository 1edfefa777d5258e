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

/** What a group without names or addresses means. */
const whoever = (list: string[], none: string) => (list.length === 0 ? <Text span size="sm" c="dimmed">{none}</Text> : list.join(', '))

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
      right={<DeedButton size="compact-sm" onClick={() => setForm({})}>Make a host group</DeedButton>}
      note="A host group is a host, or several that are treated alike. One belongs to it if its name is listed (or no name is) and its address is listed (or no address is). Nobody sees a volume but the groups that it is mapped for."
    >
      {hosts.error && <ProblemAlert error={hosts.error} what="The host groups cannot be listed" />}
      <Rows width={720} head={['Group', 'Initiators', 'From', 'Secret', 'Sees', '']}>
        {(hosts.data ?? []).map((host) => {
          const maps = seen(host.name)
          return (
            <Table.Tr key={host.name}>
              <Table.Td fw={600}>{host.name}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{whoever(host.initiators, 'any name')}</Table.Td>
              <Table.Td>{whoever(host.addresses, 'anywhere')}</Table.Td>
              <Table.Td>{host.chap_user ? `CHAP, as ${host.chap_user}` : 'none'}</Table.Td>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>{maps.length === 0 ? 'nothing' : plural(maps.length, 'volume')}</Table.Td>
              <Table.Td>
                {host.built_in ? (
                  <Text size="xs" c="dimmed">
                    always there: {host.name === 'any' ? 'everybody' : 'each node’s own machine'}
                  </Text>
                ) : (
                  <Group gap={6} wrap="nowrap" justify="flex-end">
                    <DeedButton size="compact-sm" variant="default" onClick={() => setForm({ host })}>
                      Change
                    </DeedButton>
                    <DeedButton size="compact-sm" variant="default" because={maps.length > 0 ? 'Volumes are mapped for it: take them away before.' : undefined} onClick={() => setDoomed(host)}>
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
        <Empty>Only the two built-in groups are there. Make a group for each host that shall use volumes, by the name in its initiator (on Linux: /etc/iscsi/initiatorname.iscsi).</Empty>
      )}
      {form && <HostForm key={form.host?.name ?? ''} host={form.host} close={() => setForm(undefined)} />}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title={`Delete host group ${doomed.name}`} label="Delete it" danger command={ursa('host', 'delete', doomed.name)} act={() => data(api.DELETE('/v1/hosts/{name}', { params: { path: { name: doomed.name } } }))} done={`Host group ${doomed.name} is deleted.`}>
          <Said>Nothing is mapped for it: no host loses a volume.</Said>
          <Tried method="DELETE" path={`/v1/hosts/${encodeURIComponent(doomed.name)}`} failure="It cannot be deleted" />
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

/** `wanted`: the name or identity of the volume that a host is to use, if one was named. */
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
  const asked = volumes.data?.find((one) => one.id === wanted) ?? volumes.data?.find((one) => one.name === wanted)
  // A volume that was asked for and is not known yet is waited for: else another one's target would be shown for a moment.
  const target = targets.data && (wanted === undefined || !volumes.isPending || chosen) ? targetFor(targets.data, { target: chosen, volume: asked }) : undefined
  const seen = volumes.data?.filter((one) => one.maps.some((map) => map.target === target?.name)) ?? []
  const volume = seen.find((one) => one === asked) ?? seen[0]
  const chapUser = target?.maps.map((map) => hosts.data?.find((host) => host.name === map.host)?.chap_user).find((user) => user) ?? undefined
  // Those of nodes with a copy of the volume, and floating ones; what a node says when it listens everywhere is replaced by how this page reaches it.
  const known = useMemo(() => {
    const all = nodes.data ? portalsOf(volume, nodes.data, floating.data ?? []) : (node.data?.portals ?? [])
    return [...new Set(all.map((portal) => portal.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname)))]
  }, [nodes.data, node.data, floating.data, volume])
  const used = portals?.filter((portal) => known.includes(portal)) ?? known
  return (
    <Panel title="Set up a host" at={targets.dataUpdatedAt} note="Ready to paste on the host: the initiator, all paths to the volume, timeouts that suit. Read it, and take what you need.">
      {targets.data?.length === 0 ? (
        <Empty>There is no target yet: it is made with the first volume. <To href="#/create">Create a volume</To></Empty>
      ) : (
        <Stack gap="sm">
          <Group grow align="flex-start" preventGrowOverflow={false}>
            <Select label="Target" description="What the host logs in to" data={(targets.data ?? []).map((one) => one.name)} value={target?.name ?? null} onChange={(name) => { setChosen(name ?? undefined); setPortals(undefined) }} allowDeselect={false} searchable miw={280} />
            <MultiSelect label="By these addresses" description="One for each network and node that the host shall use" data={known} value={used} onChange={setPortals} miw={280} />
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
            <Alert color="yellow">This target has no LUNs: a host that logs in there finds nothing, until a volume is mapped to it (under the volume, “More”).</Alert>
          )}
          {asked && !target ? (
            <Empty>No host group sees volume <To href={volumeLink(asked)}>{asked.name}</To>: map it for one first, there under “More”. Or choose another target.</Empty>
          ) : !target ? (
            targets.error ? <ProblemAlert error={targets.error} what="The targets cannot be listed" /> : <Empty>The targets are being asked for.</Empty>
          ) : used.length > 0 ? (
            <Script system={system} target={target.name} portals={used} naa={volume?.naa} chapUser={chapUser} />
          ) : (
            <Empty>Choose one address at least.</Empty>
          )}
          <Text size="xs" c="dimmed">
            A volume that several hosts see at once needs a file system made for that (VMFS, GFS2, OCFS2, clustered Windows), or software that decides who writes, as Proxmox does. ext4 or XFS mounted twice is destroyed.
          </Text>
        </Stack>
      )}
    </Panel>
  )
}

/** What the node says, which is what the command line prints. */
function Script({ system, target, portals, naa, chapUser }: { system: System; target: string; portals: string[]; naa?: string; chapUser?: string }) {
  const setup = useHostSetup({ system, target, portals: portals.join(), naa, chap_user: chapUser })
  const options = [...portals.flatMap((portal) => ['--portal', portal]), ...(chapUser ? ['--chap-user', chapUser] : []), ...(system === 'proxmox' && naa ? ['--naa', naa] : [])]
  if (setup.error) return <ProblemAlert error={setup.error} what="It cannot be said how to set it up" />
  if (!setup.data) return <Empty>The node is being asked.</Empty>
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
    <Panel title="Targets" at={targets.dataUpdatedAt} right={<DeedButton size="compact-sm" onClick={() => setMaking(true)}>Make a target</DeedButton>} note="What initiators log in to. A volume gets one of its own when it is made, unless another one is named.">
      {targets.data.length === 0 && <Empty>There is no target yet: it is made with the first volume.</Empty>}
      <Rows width={640} head={['Target', 'LUNs', '']}>
        {targets.data.map((target) => (
          <Table.Tr key={target.name}>
            <Table.Td style={{ overflowWrap: 'anywhere' }}>
              {target.name}
              {target.alias && <Text size="xs" c="dimmed">{target.alias}</Text>}
              {target.chap_user && <Text size="xs" c="dimmed">proves itself as {target.chap_user}</Text>}
            </Table.Td>
            <Table.Td>
              {target.maps.length === 0
                ? 'none'
                : target.maps.map((map) => {
                    const volume = volumes.data?.find((one) => one.id === map.volume_id)
                    return (
                      <Text size="sm" key={`${map.lun} ${map.host}`}>
                        {map.lun}: {volume ? <To href={volumeLink(volume)}>{volume.name}</To> : (map.volume ?? 'a volume of another node')} for {map.host}
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
        <Ask opened close={() => setDoomed(undefined)} title={`Delete target ${doomed.name}`} label="Delete it" danger typed={doomed.maps.length > 0 ? doomed.name.replace(/^.*:/, '') : undefined} command={ursa('target', 'delete', doomed.name, doomed.maps.length > 0 ? '--force' : undefined)} act={() => data(api.DELETE('/v1/targets/{name}', { params: { path: { name: doomed.name }, query: { force: doomed.maps.length > 0 } } }))} done="The target is deleted.">
          <Said>{doomed.maps.length > 0 ? `Its sessions end, and its ${plural(doomed.maps.length, 'LUN')} cannot be seen by it any more. The volumes stay.` : 'It has no LUNs.'}</Said>
          <Tried method="DELETE" path={`/v1/targets/${encodeURIComponent(doomed.name)}?force=${doomed.maps.length > 0}`} failure="It cannot be deleted" />
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
        <Empty>No initiator is logged in. Set up a host as above.</Empty>
      ) : (
        <Rows width={860} head={['Initiator', nodes.data && 'Node', 'From', 'Target', 'Core', 'For', { right: 'Commands' }, { right: 'In, out' }, '']}>
          {(sessions.data ?? []).map((session) => (
            <Table.Tr key={`${session.node ?? ''} ${session.tsih}`}>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{session.alias || session.initiator}</Table.Td>
              {nodes.data && <Table.Td>{session.node_name ?? session.node}</Table.Td>}
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
        <Ask opened close={() => setDoomed(undefined)} title="End a session" label="End it" danger command={ursa('session', 'end', doomed.tsih, ...onNode(there))} act={() => data(api.DELETE('/v1/sessions/{tsih}', { params: { path: { tsih: doomed.tsih }, query: { node: there } } }))} done="The initiator was asked to log out.">
          <Tried method="DELETE" path={`/v1/sessions/${doomed.tsih}${there === undefined ? '' : `?node=${there}`}`} failure="It cannot be ended" />
          <Said>To keep it out, take the volume away from its host group.</Said>
        </Ask>
      )}
    </Panel>
  )
}
