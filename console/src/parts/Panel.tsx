import { Box, Group, Paper, Text, Title } from '@mantine/core'
import type { ReactNode } from 'react'
import { Age } from './Age'

/** A part of a screen with a heading and the age of its data. */
export function Panel({
  title,
  at,
  right,
  note,
  children,
}: {
  title: string
  /** When its data was read, in milliseconds since 1970. */
  at?: number
  right?: ReactNode
  /** An explanation below the heading. */
  note?: ReactNode
  children: ReactNode
}) {
  return (
    <Paper withBorder p="md" component="section" aria-label={title}>
      <Group justify="space-between" mb={note ? 4 : 'sm'} gap="xs" align="flex-start" wrap={right ? 'wrap' : 'nowrap'}>
        <Title order={2} size="h5">
          {title}
        </Title>
        <Group gap="sm">
          {right}
          {at !== undefined && <Age at={at} live />}
        </Group>
      </Group>
      {note && (
        <Text size="sm" c="dimmed" mb="sm">
          {note}
        </Text>
      )}
      {children}
    </Paper>
  )
}

/** A list of names and values. */
export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <Box component="dl" className="facts">
      {of.map(([name, value]) => (
        <Box key={name} className="fact">
          <Text component="dt" size="sm" c="dimmed">
            {name}
          </Text>
          <Text component="dd" size="sm" m={0} style={{ overflowWrap: 'anywhere' }}>
            {value}
          </Text>
        </Box>
      ))}
    </Box>
  )
}

/** A number with its name. */
export function Figure({ name, value, note }: { name: string; value: ReactNode; note?: ReactNode }) {
  return (
    <Box miw={90}>
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text fw={650} size="lg" className="figure">
        {value}
      </Text>
      {note && (
        <Text size="xs" c="dimmed">
          {note}
        </Text>
      )}
    </Box>
  )
}
