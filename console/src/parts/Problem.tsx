import { Alert, Anchor, List, Stack, Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { problemOf } from '../api/client'
import type { Candidate } from '../api/types'
import { type Wanted, headline } from '../words/problem'
import { Icon } from './Icon'
import { COLOR } from './State'

/** A refused or failed request, or one whose result is unknown or pending: what, why, and what to do. */
export function ProblemAlert({ error, ...wanted }: { error: unknown } & Wanted) {
  const problem = problemOf(error)
  const { title, severity, link, first } = headline(problem, wanted)
  return (
    <Alert color={COLOR[severity]} icon={<Icon name={severity} />} title={title} role="alert">
      <Text size="sm">{sentence(problem.detail)}</Text>
      {first && (
        <Text size="sm" mt={4}>
          <b>Before you try again:</b> {sentence(first)}
        </Text>
      )}
      {problem.hint && (
        <Text size="sm" mt={4}>
          <b>What to do:</b> {sentence(problem.hint)}
        </Text>
      )}
      {link && (
        <Text size="sm" mt={4}>
          Follow it under <To href={link}>Jobs</To>.
        </Text>
      )}
      {(problem.candidates?.length ?? 0) > 0 && <Candidates of={problem.candidates ?? []} />}
      <Text size="xs" c="dimmed" mt={4}>
        {problem.code}
        {problem.field ? ` (${problem.field})` : ''}
        {problem.status ? `, status ${problem.status}` : ''}
      </Text>
    </Alert>
  )
}

/** Places that the node considered, and why each one is suitable or not. */
export function Candidates({ of }: { of: Candidate[] }) {
  if (of.length === 0) return null
  return (
    <List size="sm" mt={4}>
      {of.map((one) => (
        <List.Item key={`${one.node ?? ''} ${one.pool ?? ''}`}>
          <b>{one.node_name}{one.pool ? `, pool ${one.pool}` : ''}</b>: {one.text}
        </List.Item>
      ))}
    </List>
  )
}

/** Adds a capital letter and a full stop. */
function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1)
  return /[.!?]$/.test(first) ? first : `${first}.`
}

/** Says that there is nothing here yet, and what to do. */
export function Empty({ children, action }: { children: ReactNode; action?: ReactNode }) {
  return (
    <Stack align="center" gap="sm" py="lg">
      <Text c="dimmed" ta="center" size="sm" maw={520}>
        {children}
      </Text>
      {action}
    </Stack>
  )
}

export function To({ href, children, small = false }: { href: string; children: ReactNode; small?: boolean }) {
  return (
    <Anchor href={href} {...(small ? { size: 'sm', style: { whiteSpace: 'nowrap' } } : { inherit: true })}>
      {children}
    </Anchor>
  )
}
