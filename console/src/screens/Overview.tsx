import { Alert, Anchor, Box, Group, Progress, SimpleGrid, Stack, Text, Title } from '@mantine/core'
import { useEvents, useForecasts, useJobs, useMissingEvents, useMissingPools, useMissingSessions, useMissingVolumes, useNode, useNodes, usePools, useSessions, useVolumes } from '../api/queries'
import type { ClusterNode, Finding, Pool, Volume } from '../api/types'
import { Age } from '../parts/Age'
import { useNow } from '../parts/clock'
import { EventLine, newestFirst } from '../parts/events'
import { Icon } from '../parts/Icon'
import { JobRow } from '../parts/JobRow'
import { MissingNote } from '../parts/MissingNote'
import { Figure, Panel } from '../parts/Panel'
import { Empty, ProblemAlert, To } from '../parts/Problem'
import { COLOR, State } from '../parts/State'
import { keyOf } from '../words/events'
import { allWell, isAdvice, keyOf as keyOfFinding, linkOf, toneOf, worstTone } from '../words/findings'
import { LOSS_TONE, type NodeLoss, lossesByNode } from '../words/losses'
import { isShort } from '../words/pools'
import { lasting } from '../words/since'
import { duration, percent, plural, size } from '../words/size'
import { LoadPanel } from './Load'
import { sinceOf, useHealth } from './useHealth'

export function Overview() {
  const node = useNode()
  const nodes = useNodes()
  const volumes = useVolumes()
  const pools = usePools()
  const missing = useMissingVolumes()
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Overview
      </Title>
      {node.error && <ProblemAlert error={node.error} what="The data below is out of date" />}
      <MissingNote what="Volumes" missing={missing} />
      <HealthPanel nodes={nodes.data} volumes={volumes.data ?? []} pools={pools.data ?? []} />
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <LossPanel volumes={volumes.data} nodes={nodes.data} at={volumes.dataUpdatedAt} />
        <CapacityPanel pools={pools.data} at={pools.dataUpdatedAt} />
      </SimpleGrid>
      <LoadPanel />
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <WorkPanel nodes={nodes.data ?? []} />
        <EventsPanel />
      </SimpleGrid>
      <CountsPanel volumes={volumes.data} nodes={nodes.data} />
    </Stack>
  )
}

const HEADLINE = {
  ok: 'Healthy',
  working: 'Resync in progress',
  warning: 'Warning',
  critical: 'Critical',
} as const

/** Maximum number of lines for further findings, and for advice. */
const LINES_MAX = 5

function HealthPanel({ nodes, volumes, pools }: { nodes?: ClusterNode[]; volumes: Volume[]; pools: Pool[] }) {
  const { found, at } = useHealth()
  if (!found) {
    return (
      <Panel title="Health" at={at}>
        <Empty>Loading…</Empty>
      </Panel>
    )
  }
  const tone = worstTone(found)
  const advice = found.filter(isAdvice)
  const [first, ...others] = found.filter((finding) => !isAdvice(finding))
  return (
    <Panel title="Health" at={at} right={<State tone={tone}>{HEADLINE[tone]}</State>}>
      <Stack gap="sm">
        {first ? <FindingAlert finding={first} /> : <Text size="sm">{allWell(nodes, volumes, pools)}</Text>}
        {others.length > 0 && <Lines head={`${others.length} more:`} findings={others} />}
        {advice.length > 0 && <Lines head="Advice:" findings={advice} />}
      </Stack>
    </Panel>
  )
}

/** One line per finding. Advice shows what to do instead of its age. */
function Lines({ head, findings }: { head: string; findings: Finding[] }) {
  return (
    <Stack gap={6}>
      <Text size="sm" c="dimmed">
        {head}
      </Text>
      {findings.slice(0, LINES_MAX).map((finding) => (
        <Group key={keyOfFinding(finding)} gap="xs" wrap="nowrap" align="flex-start">
          <Text c={COLOR[toneOf(finding)]} pt={2}>
            <Icon name={toneOf(finding)} size={15} />
          </Text>
          <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
            <To href={linkOf(finding)}>{finding.cause}</To> {isAdvice(finding) ? `${finding.action}.` : <Since finding={finding} />}
          </Text>
        </Group>
      ))}
      {findings.length > LINES_MAX && <Text size="sm" c="dimmed">and {findings.length - LINES_MAX} more.</Text>}
    </Stack>
  )
}

function FindingAlert({ finding }: { finding: Finding }) {
  return (
    <Alert color={COLOR[toneOf(finding)]} icon={<Icon name={toneOf(finding)} />} title={finding.cause}>
      <Text size="sm">
        {finding.action ? <><b>What to do:</b> {finding.action}: <code>{finding.command}</code></> : 'No action needed.'}{' '}
        <Anchor href={linkOf(finding)} inherit c="inherit" td="underline">Show</Anchor>
      </Text>
      <Since finding={finding} inherit />
    </Alert>
  )
}

function Since({ finding, inherit = false }: { finding: Finding; inherit?: boolean }) {
  const now = useNow()
  const at = sinceOf(finding)
  const age = duration(Math.max(0, now - at) / 1000)
  const title = !finding.since
    ? 'Since this page first saw it; it may have started earlier.'
    : finding.since.or_earlier
      ? `Since ${new Date(at).toLocaleString()} (node start) or earlier`
      : `Since ${new Date(at).toLocaleString()}`
  return (
    <Text span size="xs" c={inherit ? 'inherit' : 'dimmed'} style={{ whiteSpace: 'nowrap' }} title={title}>
      {lasting(age, finding.since)}
    </Text>
  )
}

/** The most volumes that an outcome names. */
const NAMED_MAX = 3

function lossWords({ node, effects }: NodeLoss): string {
  if (!node.up) return 'down now'
  const named = (names: string[]) => (names.length > NAMED_MAX ? `${names.slice(0, NAMED_MAX).join(', ')} and ${names.length - NAMED_MAX} more` : names.join(', '))
  return effects.map(({ text, volumes }) => `${named(volumes)}: ${text}`).join('; ') || 'no volume affected'
}

function LossPanel({ volumes, nodes, at }: { volumes?: Volume[]; nodes?: ClusterNode[]; at: number }) {
  return (
    <Panel title="Failure tolerance" at={at} note={nodes && nodes.length > 1 ? 'If one of these nodes is lost now:' : 'If this node is lost now:'}>
      {!volumes || !nodes ? (
        <Empty>Loading…</Empty>
      ) : nodes.length === 0 ? (
        <Empty>Unknown: this node does not take part in its cluster.</Empty>
      ) : (
        <Stack gap={8}>
          {lossesByNode(volumes, nodes).map((loss) => (
            <Group key={loss.node.id} gap="xs" wrap="nowrap" align="flex-start">
              <State tone={LOSS_TONE[loss.outcome]}>{loss.node.name || `node ${loss.node.id}`}</State>
              <Text size="sm">{lossWords(loss)}</Text>
            </Group>
          ))}
          {nodes.length === 1 && (
            <Text size="sm" c="dimmed">
              With two more nodes, volumes with copies survive the loss of any one of them: see <To href="#/nodes">Nodes</To>.
            </Text>
          )}
        </Stack>
      )}
    </Panel>
  )
}

function CapacityPanel({ pools, at }: { pools?: Pool[]; at: number }) {
  const forecasts = useForecasts()
  const forecastOf = (pool: Pool) => forecasts.data?.find((one) => one.pool === pool.name && one.node === pool.node)
  const missing = useMissingPools()
  return (
    <Panel title="Capacity" at={at}>
      <MissingNote what="Pools" missing={missing} />
      {!pools ? (
        <Empty>Loading…</Empty>
      ) : pools.length === 0 ? (
        <Empty>
          No pools. Volumes need a pool: <code>ursa pool create NAME /dev/disk/by-id/...</code>
        </Empty>
      ) : (
        <Stack gap="sm">
          {pools.map((pool) => ({ pool, filling: forecastOf(pool) })).map(({ pool, filling }) => (
            <Box key={`${pool.node} ${pool.name}`}>
              <Group justify="space-between" gap="xs">
                <Text size="sm">
                  <b>{pool.name}</b>
                  {` on ${pool.node_name} `}
                  {pool.state !== 'online' && <State tone="critical">{pool.state.replace('_', ' ')}</State>}
                </Text>
                {pool.total > 0 && (
                  <Text size="sm" className="figure">
                    {size(pool.total - pool.used)} free of {size(pool.total)}
                  </Text>
                )}
              </Group>
              {pool.total > 0 ? (
                <>
                  <Progress.Root size="lg" mt={4}>
                    <Progress.Section
                      value={(100 * pool.used) / pool.total}
                      color={isShort(pool) ? 'red' : 'cyan'}
                      aria-label={`${pool.name}: ${percent(pool.used, pool.total)} used`}
                    />
                  </Progress.Root>
                  <Text size="xs" c="dimmed" mt={2}>
                    {percent(pool.used, pool.total)} used by {plural(pool.volumes, 'volume')}. {forecasts.data && (filling?.text ?? 'No forecast yet.')}
                  </Text>
                </>
              ) : (
                <Text size="xs" c="dimmed" mt={2}>
                  Size unknown: the pool is not open.
                </Text>
              )}
              {pool.total > 0 && filling?.soon && <State tone="warning">full within a month at this rate</State>}
            </Box>
          ))}
        </Stack>
      )}
    </Panel>
  )
}

/** Maximum number of jobs shown here; the Jobs screen has all. */
const JOBS_MAX = 6

function WorkPanel({ nodes }: { nodes: ClusterNode[] }) {
  const jobs = useJobs()
  const all = jobs.data ?? []
  return (
    <Panel title="Jobs" at={jobs.dataUpdatedAt} right={<To href="#/jobs" small>All</To>}>
      {jobs.error ? (
        <ProblemAlert error={jobs.error} what="The jobs cannot be read" />
      ) : !jobs.data ? (
        <Empty>Loading…</Empty>
      ) : all.length === 0 ? (
        <Empty>No jobs in progress: no resync is running, and no change is waiting.</Empty>
      ) : (
        <Stack gap="sm">
          {all.slice(0, JOBS_MAX).map((job) => (
            <JobRow key={job.id} job={job} nodes={nodes} at={jobs.dataUpdatedAt} />
          ))}
          {all.length > JOBS_MAX && <Text size="sm" c="dimmed">and {all.length - JOBS_MAX} more.</Text>}
        </Stack>
      )}
    </Panel>
  )
}

function EventsPanel() {
  const events = useEvents()
  const missing = useMissingEvents()
  const last = newestFirst(events.data ?? []).slice(0, 6)
  return (
    <Panel title="Latest events" at={events.dataUpdatedAt} right={<To href="#/events" small>All</To>}>
      <MissingNote what="Events" missing={missing} />
      {events.error ? (
        <ProblemAlert error={events.error} what="The events cannot be read" />
      ) : !events.data ? (
        <Empty>Loading…</Empty>
      ) : last.length === 0 ? (
        <Empty>No events yet.</Empty>
      ) : (
        <Stack gap={8}>
          {last.map((event) => (
            <EventLine key={keyOf(event)} event={event} />
          ))}
        </Stack>
      )}
    </Panel>
  )
}

function CountsPanel({ volumes, nodes = [] }: { volumes?: Volume[]; nodes?: ClusterNode[] }) {
  const node = useNode()
  const sessions = useSessions()
  const missing = useMissingSessions()
  const several = nodes.length > 1
  const copies = volumes?.flatMap((volume) => volume.copies ?? []) ?? []
  return (
    <Panel title="Summary" at={node.dataUpdatedAt}>
      <Group gap="xl" align="flex-start">
        <Figure name="Volumes" value={<To href="#/volumes">{volumes?.length ?? '–'}</To>} />
        {several && <Figure name="Nodes up" value={`${nodes.filter((one) => one.up).length} of ${nodes.length}`} />}
        {several && copies.length > 0 && <Figure name="Copies in sync" value={`${copies.filter((copy) => copy.state === 'in_sync').length} of ${copies.length}`} />}
        <Figure name="Host sessions" value={sessions.data?.length ?? '–'} note={missing.length > 0 ? `${plural(missing.length, 'node does', 'nodes do')} not answer` : undefined} />
        {node.data && <Figure name="Cores" value={node.data.cores} note={several ? `on ${node.data.name}` : undefined} />}
        {node.data && <Figure name="Uptime" value={duration(node.data.uptime)} note={<Age at={node.dataUpdatedAt} live />} />}
      </Group>
    </Panel>
  )
}
