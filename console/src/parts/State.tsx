import { Badge } from '@mantine/core'
import type { ReactNode } from 'react'
import type { Severity } from '../words/health'
import { Icon } from './Icon'

export type Tone = Severity | 'off'

export const COLOR: Record<Tone, string> = {
  ok: 'green',
  working: 'blue',
  warning: 'yellow',
  critical: 'red',
  off: 'gray',
}

/** A state: colour, picture and word, so that it can be read without colours. */
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
      styles={{ root: { flexShrink: 0, maxWidth: 'none', overflow: 'visible' }, label: { overflow: 'visible' } }}
    >
      {children}
    </Badge>
  )
}
