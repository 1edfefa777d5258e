import { Alert, Button, Checkbox, Group, NumberInput, Radio, Select, Stack, Stepper, Switch, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { useHosts, useNode, useNodes, usePools, useTargets, useVolumes } from '../api/queries'
import type { VolumeCreate } from '../api/types'
import { DeedButton, useDoing } from '../parts/deed'
import { useFocusOfStep } from '../parts/focus'
import { Paste } from '../parts/Paste'
import { Panel } from '../parts/Panel'
import { ProblemAlert, To } from '../parts/Problem'
import { Tried } from '../parts/Tried'
import { go, link } from '../route'
import { createVolume } from '../words/command'
import { type Draft, type Known, SLICES, STEPS, emptyDraft, isSingle, placedBy, poolsOf, problemsOf, requestOf, takesCopies, whereWords } from '../words/draft'
import { defaultTarget } from '../words/iscsi'
import { LUN_MAX, NAME_HINT } from '../words/names'
import { poolChoices } from '../words/pools'
import { etcdDecides, exposure, singleMeans } from '../words/record'
import { plural, size } from '../words/size'
import { kindWord } from '../words/volume'

/** Creates a volume step by step, and shows errors and the equivalent command at once. */
export function CreateVolume() {
  const nodes = useNodes()
  const volumes = useVolumes()
  const pools = usePools()
  const targets = useTargets()
  const hosts = useHosts()
  const [draft, setDraft] = useState<Draft>(emptyDraft)
  const [step, setStep] = useState(0)
  const { busy, error, run } = useDoing()
  const content = useFocusOfStep<HTMLDivElement>(step)
  const known: Known = {
    nodes: nodes.data ?? [],
    volumes: volumes.data ?? [],
    pools: pools.data ?? [],
    targets: targets.data ?? [],
  }
  const problems = problemsOf(draft, known)
  const set = (change: Partial<Draft>) => setDraft((old) => ({ ...old, ...change }))
  const request = requestOf(draft)
  const field = { draft, set, problems, known }
  const last = STEPS.length - 1
  const wrongIn = (at: number) => STEPS[at]?.fields.some((name) => problems[name] !== undefined) ?? false
  const firstWrong = STEPS.findIndex((_, at) => wrongIn(at))

  async function create() {
    if (await run(() => data(api.POST('/v1/volumes', { body: request })), `Volume ${draft.name} created.`)) go(link('volumes', draft.name))
  }

  return (
    <Stack gap="md" maw={900}>
      <div>
        <Text size="sm">
          <To href="#/volumes">Volumes</To> /
        </Text>
        <Title order={1} size="h3">
          Create volume
        </Title>
      </div>
      <Panel title={STEPS[step]?.name ?? ''} right={<Text size="xs" c="dimmed">Step {step + 1} of {STEPS.length}</Text>}>
        <form
          onSubmit={(event) => {
            event.preventDefault()
            if (step < last && !wrongIn(step)) setStep(step + 1)
          }}
        >
          <Stack gap="md">
            <Stepper active={step} onStepClick={(to) => (to <= step || firstWrong < 0 || to <= firstWrong) && setStep(to)} size="xs" visibleFrom="sm">
              {STEPS.map(({ name }) => (
                <Stepper.Step key={name} label={name} />
              ))}
            </Stepper>
            <Stack gap="md" ref={content} tabIndex={-1} style={{ outline: 'none' }}>
              {step === 0 && <What {...field} />}
              {step === 1 && <Where {...field} />}
              {step === 2 && <Who {...field} hosts={(hosts.data ?? []).map((host) => host.name)} />}
              {step === 3 && (
                <>
                  <Review request={request} known={known} />
                  <Tried path="/v1/volumes" body={request} failure="The volume cannot be created" />
                </>
              )}
            </Stack>
            {error !== undefined && <ProblemAlert error={error} change="created" />}
            <Group justify="space-between">
              <Button variant="default" disabled={step === 0 || busy} onClick={() => setStep(step - 1)}>
                Back
              </Button>
              {step < last ? (
                <Button type="submit" disabled={wrongIn(step)}>
                  Next
                </Button>
              ) : (
                <DeedButton onClick={() => void create()} loading={busy} disabled={firstWrong >= 0} because={firstWrong >= 0 ? `Correct “${STEPS[firstWrong]?.name}” first.` : undefined}>
                  Create
                </DeedButton>
              )}
            </Group>
          </Stack>
        </form>
      </Panel>
      <Panel title="Equivalent command">
        <Paste text={createVolume(request)} />
      </Panel>
    </Stack>
  )
}

interface Step {
  draft: Draft
  set: (change: Partial<Draft>) => void
  problems: Partial<Record<keyof Draft, string>>
  known: Known
}

/** The problem of a field, once the user has typed something. */
const said = (problem: string | undefined, typed: unknown) => (typed === '' ? undefined : problem)

function What({ draft, set, problems }: Step) {
  return (
    <>
      <TextInput label="Name" description={NAME_HINT} value={draft.name} onChange={(event) => set({ name: event.currentTarget.value })} error={said(problems.name, draft.name)} required data-autofocus autoFocus />
      <TextInput label="Size" description="For example 512M, 10G or 1.5T (powers of 1024). A volume can grow later, while in use, but never shrink." value={draft.size} onChange={(event) => set({ size: event.currentTarget.value })} error={said(problems.size, draft.size)} required />
      <Radio.Group label="Kind" value={draft.kind} onChange={(kind) => set({ kind: kind as Draft['kind'] })}>
        <Stack gap={6} mt={6}>
          <Radio value="thick" label="Thick" description="On the pool’s disks; all space is reserved now, so it cannot run out later" />
          <Radio value="log" label="Log" description="On the pool’s disks; thin, with a checksum for each block. Takes space only for what was written, so the pool can fill up later" />
          <Radio value="ram" label="RAM" description="Fast, and empty after each restart of its node; with copies, it resyncs from another copy. Uses the memory that each node sets aside for RAM volumes (ram-max, default 1G)" />
        </Stack>
      </Radio.Group>
      <Radio.Group label="Block size" description="512 works with every host; 4096 suits Linux and databases that write 4 KiB pages" value={String(draft.blockSize)} onChange={(bytes) => set({ blockSize: Number(bytes) as 512 | 4096 })}>
        <Group mt={6}>
          <Radio value="512" label="512 bytes" />
          <Radio value="4096" label="4096 bytes" />
        </Group>
      </Radio.Group>
      <Advanced draft={draft} set={set} />
    </>
  )
}

/** Options that are best left at their defaults, hidden until opened. */
function Advanced({ draft, set }: Pick<Step, 'draft' | 'set'>) {
  const [open, setOpen] = useState(false)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Text size="sm" fw={500} span>
          Advanced
        </Text>
      </summary>
      {open && (
        <Stack gap="md" mt="sm">
          <Select
            label="Slices"
            description="Number of parts that the volume is striped over; each is served by one core. Cannot be changed later"
            placeholder="One per core"
            data={SLICES.map(String)}
            value={draft.slices === null ? null : String(draft.slices)}
            onChange={(slices) => set({ slices: slices === null ? null : Number(slices) })}
            clearable
            w={340}
            maw="100%"
          />
          <Switch
            label="Native 512-byte blocks"
            description={draft.blockSize === 512 ? 'Report physical blocks of 512 bytes to hosts, not 4096' : 'Requires a block size of 512 bytes'}
            disabled={draft.blockSize !== 512}
            checked={draft.blockSize === 512 && draft.native512}
            onChange={(event) => set({ native512: event.currentTarget.checked })}
          />
        </Stack>
      )}
    </details>
  )
}

function Where({ draft, set, problems, known }: Step) {
  const etcd = etcdDecides(useNode().data)
  const able = known.nodes.filter((node) => !node.witness)
  const pool = (
    <Select
      label="Pool"
      description={`${draft.kind === 'ram' ? 'The pool keeps the volume’s name and settings; the data takes no space there. ' : ''}${draft.place === 'copies' || draft.place === 'nodes' ? 'Each of the nodes needs a pool of this name. ' : ''}Empty: the only pool, or the pool named default`}
      data={poolChoices(poolsOf(draft, known))}
      value={draft.pool}
      onChange={(pool) => set({ pool })}
      error={problems.pool}
      clearable
    />
  )
  if (isSingle(known.nodes)) {
    return (
      <>
        <Alert color={draft.kind === 'ram' ? 'yellow' : 'blue'}>There is only one node, so the volume has a single copy: {singleMeans(draft.kind)}. When another node has joined (see “Nodes”), the volume can get a copy there while hosts use it.</Alert>
        {pool}
      </>
    )
  }
  return (
    <>
      <Radio.Group label="Copies" value={draft.place} onChange={(place) => set(placedBy(place as Draft['place'], draft, known.nodes))} error={problems.place}>
        <Stack gap={6} mt={6}>
          <Radio value="copies" label="On nodes chosen by Ursa" description="One to four copies. All nodes with a copy serve the volume at the same time; a write is acknowledged when all copies in sync have it" />
          <Radio value="nodes" label="On nodes that I choose" description="The same, on one to four nodes; on one node the volume has a single copy" />
        </Stack>
      </Radio.Group>
      {draft.place === 'copies' && (
        <NumberInput label="Number of copies" description={exposure(draft.kind, draft.copies, known.nodes.length, etcd)} value={draft.copies} onChange={(copies) => set({ copies: Number(copies) })} min={1} max={Math.min(4, able.filter(takesCopies).length)} error={problems.copies} w={420} maw="100%" />
      )}
      {draft.place === 'nodes' && (
        <Checkbox.Group label="Nodes" description={draft.nodes.length > 0 ? exposure(draft.kind, draft.nodes.length, known.nodes.length, etcd) : undefined} value={draft.nodes.map(String)} onChange={(chosen) => set({ nodes: chosen.map(Number).sort((a, b) => a - b) })} error={problems.nodes}>
          <Stack gap={6} mt={6}>
            {able.map((node) => (
              <Checkbox key={node.id} value={String(node.id)} label={`${node.name} (node ${node.id})${node.here ? ', this node' : ''}`} description={!node.up ? 'down' : node.maintenance ? 'in maintenance: takes no new copies' : plural(node.copies, 'copy', 'copies')} disabled={!takesCopies(node) && !draft.nodes.includes(node.id)} />
            ))}
          </Stack>
        </Checkbox.Group>
      )}
      {pool}
    </>
  )
}

function Who({ draft, set, problems, hosts }: Step & { hosts: string[] }) {
  return (
    <>
      <Switch label="Map to a host group now" description="Otherwise no host can use the volume until it is mapped" checked={draft.map} onChange={(event) => set({ map: event.currentTarget.checked })} />
      {draft.map && (
        <>
          <Select label="Host group" description="The hosts that can use the volume. local is each node’s own machine. Create groups under “Hosts and access”." data={hosts} value={draft.host} onChange={(host) => set({ host: host ?? 'local' })} allowDeselect={false} />
          {draft.host === 'any' && <Alert color="yellow">“any” gives access to every host that can reach the nodes’ iSCSI ports.</Alert>}
          <TextInput label="Target" description="The iSCSI name that hosts log in to; created if it does not exist" placeholder={defaultTarget(draft.name || 'name')} value={draft.target} onChange={(event) => set({ target: event.currentTarget.value })} error={problems.target} />
          <NumberInput label="LUN" description="Empty: the lowest free LUN" value={draft.lun} onChange={(lun) => set({ lun: typeof lun === 'number' ? lun : '' })} min={0} max={LUN_MAX} allowDecimal={false} error={problems.lun} w={220} />
        </>
      )}
    </>
  )
}

function Review({ request, known }: { request: VolumeCreate; known: Known }) {
  return (
    <>
      <Text>
        <b>{request.name}</b>: {size(request.size)}, {kindWord(request.kind ?? 'thick')}, {request.block_size ?? 512}-byte blocks{request.native_512 ? ', native' : ''}, {request.slices ? `${plural(request.slices, 'slice')}, ` : ''}{whereWords(request, known.nodes)}.
      </Text>
      <Text size="sm">
        {request.map === false ? 'No host can use it until it is mapped.' : `Mapped to host group ${request.host ?? 'local'} under target ${request.target ?? defaultTarget(request.name)}, LUN ${request.lun ?? '(lowest free)'}.`}
      </Text>
    </>
  )
}
