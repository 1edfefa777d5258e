import { Group, List, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useForbidden } from '../api/access'
import { json } from '../api/client'
import type { DryRun } from '../api/types'
import { Age } from './Age'
import { Candidates, ProblemAlert } from './Problem'

/** What a change would do, or several: the node's responses to dry runs. */
export function Tried({ method = 'POST', path, body, failure }: {
  method?: 'POST' | 'PUT' | 'DELETE'
  /** Of the change; several: they are made one after the other. */
  path: string | string[]
  body?: unknown
  /** The headline if the node refuses. */
  failure: string
}) {
  const forbidden = useForbidden('change')
  const tried = useQuery({
    queryKey: ['dry-run', method, path, body],
    queryFn: async () => {
      const all: Required<DryRun> = { would: [], candidates: [] }
      for (const one of [path].flat()) {
        const { would, candidates } = await json<DryRun>(method, `${one}${one.includes('?') ? '&' : '?'}dry_run=true`, body)
        all.would.push(...would)
        all.candidates.push(...(candidates ?? []))
      }
      return all
    },
    enabled: forbidden === undefined,
    staleTime: Infinity,
    gcTime: 0,
  })
  if (forbidden !== undefined) return null
  if (tried.error) return <ProblemAlert error={tried.error} what={failure} />
  if (!tried.data) return <Text size="sm" c="dimmed">Checking what would happen…</Text>
  return (
    <Stack gap={4}>
      <Group gap="xs">
        <Text size="sm" fw={600}>What would happen</Text>
        <Age at={tried.dataUpdatedAt} />
      </Group>
      <List size="sm">
        {tried.data.would.map((sentence) => <List.Item key={sentence}>{sentence}</List.Item>)}
      </List>
      <Candidates of={tried.data.candidates} />
    </Stack>
  )
}
