import { Button, Center, Paper, PasswordInput, Stack, Text, TextInput, Title } from '@mantine/core'
import { type FormEvent, useState } from 'react'
import { json } from '../api/client'
import { queries } from '../api/queries'
import { ProblemAlert } from '../parts/Problem'
import { useDoing } from '../parts/deed'

export function Login({ cluster }: { cluster?: string }) {
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const { busy, error, run } = useDoing()
  async function submit(event: FormEvent) {
    event.preventDefault()
    if (await run(() => json('POST', '/v1/login', { name, password }))) {
      await queries.invalidateQueries({ queryKey: ['access'] })
    } else setPassword('')
  }
  return (
    <Front title="Log in" cluster={cluster}>
      <form onSubmit={(event) => void submit(event)}>
        <Stack>
          {error !== undefined && <ProblemAlert error={error} what="Not logged in" />}
          <TextInput label="Name" value={name} onChange={(event) => setName(event.currentTarget.value)} autoComplete="username" autoFocus required />
          <PasswordInput label="Password" value={password} onChange={(event) => setPassword(event.currentTarget.value)} autoComplete="current-password" required />
          <Button type="submit" loading={busy} disabled={name === '' || password === ''}>
            Log in
          </Button>
          <Text size="xs" c="dimmed">
            No user yet, or forgot the password? Root on the node can create users and set passwords without a login: <code>ursa user --help</code>
          </Text>
        </Stack>
      </form>
    </Front>
  )
}

/** The frame of the pages before the login. */
export function Front({ title, cluster, children }: { title: string; cluster?: string; children: React.ReactNode }) {
  return (
    <Center mih="100vh" p="md" component="main">
      <Paper withBorder p="xl" w="100%" maw={420}>
        <Stack gap="xs" mb="md">
          <img src="./icon.svg" width={40} height={40} alt="Ursa" />
          <Title order={1} size="h3">
            {title}
          </Title>
          {cluster && (
            <Text size="sm" c="dimmed">
              {cluster}
            </Text>
          )}
        </Stack>
        {children}
      </Paper>
    </Center>
  )
}
