import { Button, PasswordInput, Stack, Text, TextInput } from '@mantine/core'
import { type FormEvent, useState } from 'react'
import { json } from '../api/client'
import { queries } from '../api/queries'
import { ProblemAlert } from '../parts/Problem'
import { useDoing } from '../parts/deed'
import { go } from '../route'
import { isName, nameProblem } from '../words/names'
import { PASSWORD_MIN, charactersMissing, tooShort } from '../words/secrets'
import { Front } from './Login'

export function Setup({ cluster, token: given }: { cluster?: string; token: string }) {
  const [token, setToken] = useState(given)
  const [name, setName] = useState('admin')
  const [password, setPassword] = useState('')
  const [again, setAgain] = useState('')
  const { busy, error, run } = useDoing()
  const differs = again !== '' && again !== password
  const ready = token !== '' && isName(name) && charactersMissing(password, PASSWORD_MIN) === 0 && again === password
  async function submit(event: FormEvent) {
    event.preventDefault()
    // The response sets the session's cookie.
    if (await run(() => json('POST', '/v1/setup', { token, name, password }))) {
      go('#/')
      await queries.invalidateQueries({ queryKey: ['access'] })
    }
  }
  return (
    <Front title="Set up Ursa" cluster={cluster}>
      <form onSubmit={(event) => void submit(event)}>
        <Stack>
          <Text size="sm">No user exists yet. Create the first one, an admin, who can then create others.</Text>
          {error !== undefined && <ProblemAlert error={error} change="set up" />}
          {given === '' && (
            <TextInput label="Setup token" description="From the link that the node printed at its first start (journalctl -u ursa)" value={token} onChange={(event) => setToken(event.currentTarget.value.trim())} autoComplete="off" required />
          )}
          <TextInput label="Name" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} autoComplete="username" required />
          <PasswordInput label="Password" description={`At least ${PASSWORD_MIN} characters; several words are better than one word with special characters`} value={password} onChange={(event) => setPassword(event.currentTarget.value)} autoComplete="new-password" error={tooShort(password, PASSWORD_MIN)} autoFocus required />
          <PasswordInput label="Password again" value={again} onChange={(event) => setAgain(event.currentTarget.value)} autoComplete="new-password" error={differs && 'The passwords differ'} required />
          <Button type="submit" loading={busy} disabled={!ready}>
            Create admin and log in
          </Button>
        </Stack>
      </form>
    </Front>
  )
}
