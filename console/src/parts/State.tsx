import { Badge } from '@mantine/core'
import type { ReactNode } from 'react'
import type { ClusterNode, VolumeCopy } from '../api/types'
import { copyState } from '../words/sync'
import type { Tone } from '../words/tone'
import { Icon } from './Icon'

export const COLOR: Record<Tone, string> = {
  ok: 'green',
  info: 'gray',
  working: 'blue',
  warning: 'yellow',
  critical: 'red',
  off: 'gray',
}

/** A state as color, icon and word, so that it is readable without colors. */
export function State({ tone, children, title }: { tone: Tone; children: ReactNode; title?: string }) {
  return (
    <Badge
      color={COLOR[tone]}
      variant="light"
      autoContrast
      radius="sm"
      leftSection={<Icon name={tone} size={13} />}
      title={title}
      tt="none"
      fw={600}
      styles={{ root: { flexShrink: 0, verticalAlign: 'middle', maxWidth: 'none', overflow: 'visible' }, label: { overflow: 'visible' } }}
    >
      {children}
    </Badge>
  )
}

/** The state of a copy. */
export function CopyBadge({ copy, nodes }: { copy: VolumeCopy; nodes?: ClusterNode[] }) {
  if (nodes?.find((node) => node.id === copy.node)?.up === false) return <State tone="off">node down</State>
  const syncs = copy.state !== 'in_sync' && copy.sync && !copy.sync.waits_for
  return <State tone={copy.state === 'in_sync' ? 'ok' : copy.state === 'catching_up' || syncs ? 'working' : 'warning'}>{copy.state === 'out_of_sync' && syncs ? 'resyncing' : copyState(copy.state)}</State>
}
