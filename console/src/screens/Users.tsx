import { Group, NumberInput, PasswordInput, Select, Stack, Table, Text, TextInput, Title } from '@mantine/core'
import { useState } from 'react'
import { type Role, useMe } from '../api/access'
import { json } from '../api/client'
import { type Token, type User, useTokens, useUsers } from '../api/queries'
import { Age } from '../parts/Age'
import { useNow } from '../parts/clock'
import { Ask, DeedButton, Said } from '../parts/deed'
import { Panel } from '../parts/Panel'
import { Paste } from '../parts/Paste'
import { Empty, ProblemAlert } from '../parts/Problem'
import { Rows } from '../parts/Rows'
import { Tried } from '../parts/Tried'
import { ursa } from '../words/command'
import { isName, nameProblem } from '../words/names'
import { PASSWORD_MIN, charactersMissing, tooShort } from '../words/secrets'
import { duration } from '../words/size'

const ROLES: { value: Role; label: string }[] = [
  { value: 'viewer', label: 'viewer: sees everything except users and the audit log' },
  { value: 'operator', label: 'operator: can also change volumes, copies, targets and host groups' },
  { value: 'admin', label: 'admin: can also change pools, the cluster, users and tokens' },
]

const DAY = 86_400

export function Users() {
  const me = useMe()
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Users and tokens
      </Title>
      {me?.by === 'session' && <OwnPassword />}
      {me?.role === 'admin' ? (
        <>
          <UsersPanel me={me.name} />
          <TokensPanel />
        </>
      ) : (
        <Panel title="Users">
          <Empty>{me ? 'Only admins can see and change users and tokens.' : 'This node requires no login: anyone who can reach its console can do everything.'}</Empty>
        </Panel>
      )}
    </Stack>
  )
}

function OwnPassword() {
  const me = useMe()
  const [open, setOpen] = useState(false)
  const [old, setOld] = useState('')
  const [fresh, setFresh] = useState('')
  return (
    <Panel title="Your account" right={<DeedOwn onClick={() => setOpen(true)} />}>
      <Text size="sm">
        You are logged in as <b>{me?.name}</b>, {me?.role === 'viewer' ? 'a viewer' : me?.role === 'operator' ? 'an operator' : 'an admin'}.
      </Text>
      <Ask
        opened={open}
        close={() => {
          setOld('')
          setFresh('')
          setOpen(false)
        }}
        title="Change password"
        label="Change password"
        ready={old !== '' && charactersMissing(fresh, PASSWORD_MIN) === 0}
        act={() => json('PUT', '/v1/password', { old, new: fresh })}
        done="Password changed."
      >
        <PasswordInput label="Current password" value={old} onChange={(event) => setOld(event.currentTarget.value)} autoComplete="current-password" data-autofocus />
        <PasswordInput label="New password" description={`At least ${PASSWORD_MIN} characters`} value={fresh} onChange={(event) => setFresh(event.currentTarget.value)} error={tooShort(fresh, PASSWORD_MIN)} autoComplete="new-password" />
      </Ask>
    </Panel>
  )
}

/** All users may change their own password. */
function DeedOwn({ onClick }: { onClick: () => void }) {
  return (
    <DeedButton deed="own" size="compact-sm" variant="default" onClick={onClick}>
      Change your password
    </DeedButton>
  )
}

function UsersPanel({ me }: { me: string }) {
  const users = useUsers()
  const [form, setForm] = useState<{ user?: User }>()
  const [doomed, setDoomed] = useState<User>()
  return (
    <Panel title="Users" at={users.dataUpdatedAt} right={<DeedButton deed="administer" size="compact-sm" onClick={() => setForm({})}>Create user</DeedButton>} note="People who log in with a password. The same on all nodes.">
      {users.error && <ProblemAlert error={users.error} what="The users cannot be listed" />}
      <Rows width={480} head={['Name', 'Role', 'Created', '']}>
        {(users.data ?? []).map((user) => (
          <Table.Tr key={user.name}>
            <Table.Td fw={600}>
              {user.name}
              {user.name === me ? ' (you)' : ''}
            </Table.Td>
            <Table.Td>{user.role}</Table.Td>
            <Table.Td><Age at={user.created * 1000} /></Table.Td>
            <Table.Td>
              <Group gap={6} justify="flex-end" wrap="nowrap">
                <DeedButton deed="administer" size="compact-sm" variant="default" onClick={() => setForm({ user })}>
                  Change
                </DeedButton>
                <DeedButton deed="administer" size="compact-sm" variant="default" because={user.name === me ? 'You are logged in as this user.' : undefined} onClick={() => setDoomed(user)}>
                  Delete
                </DeedButton>
              </Group>
            </Table.Td>
          </Table.Tr>
        ))}
      </Rows>
      {form && <UserForm key={form.user?.name ?? ''} user={form.user} close={() => setForm(undefined)} />}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title={`Delete user ${doomed.name}`} label="Delete user" danger command={ursa('user', 'delete', doomed.name)} act={() => json('DELETE', `/v1/users/${encodeURIComponent(doomed.name)}`)} done={`User ${doomed.name} deleted.`}>
          <Tried method="DELETE" path={`/v1/users/${encodeURIComponent(doomed.name)}`} failure="The user cannot be deleted" />
        </Ask>
      )}
    </Panel>
  )
}

function UserForm({ user, close }: { user?: User; close: () => void }) {
  const [name, setName] = useState(user?.name ?? '')
  const [role, setRole] = useState<Role>(user?.role ?? 'viewer')
  const [password, setPassword] = useState('')
  const short = tooShort(password, PASSWORD_MIN)
  const changed = user ? role !== user.role || password !== '' : true
  const ready = isName(name) && !short && changed && (user !== undefined || password !== '')
  return (
    <Ask
      opened
      close={close}
      title={user ? `Change user ${user.name}` : 'Create user'}
      label={user ? 'Save changes' : 'Create'}
      ready={ready}
      command={user ? ursa('user', 'set', name, ...(role !== user.role ? ['--role', role] : []), password ? '--password' : undefined) : ursa('user', 'create', name || 'NAME', '--role', role)}
      act={() =>
        user
          ? json('PATCH', `/v1/users/${encodeURIComponent(user.name)}`, { ...(role !== user.role ? { role } : {}), ...(password ? { password } : {}) })
          : json('POST', '/v1/users', { name, role, password })
      }
      done={user ? `User ${name} changed and logged out on all nodes.` : `User ${name} created.`}
    >
      {!user && <TextInput label="Name" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} autoComplete="off" data-autofocus />}
      <Select label="Role" data={ROLES} value={role} onChange={(value) => setRole((value as Role | null) ?? 'viewer')} allowDeselect={false} />
      <PasswordInput label={user ? 'New password' : 'Password'} description={`At least ${PASSWORD_MIN} characters${user ? '. Empty: unchanged' : ''}`} value={password} onChange={(event) => setPassword(event.currentTarget.value)} error={short} autoComplete="new-password" />
      {user && <Said>This logs {user.name} out on all nodes.</Said>}
    </Ask>
  )
}

function TokensPanel() {
  const tokens = useTokens()
  const now = useNow()
  const [making, setMaking] = useState(false)
  const [doomed, setDoomed] = useState<Token>()
  return (
    <Panel title="Tokens" at={tokens.dataUpdatedAt} right={<DeedButton deed="administer" size="compact-sm" onClick={() => setMaking(true)}>Create token</DeedButton>} note="For scripts to authenticate with: Authorization: Bearer SECRET.">
      {tokens.error && <ProblemAlert error={tokens.error} what="The tokens cannot be listed" />}
      {tokens.data?.length === 0 ? (
        <Empty>No tokens yet. Create one for each script, so that you can revoke each separately.</Empty>
      ) : (
        <Rows width={560} head={['Name', 'Role', 'Created by', 'Valid', '']}>
          {(tokens.data ?? []).map((token) => (
            <Table.Tr key={token.id}>
              <Table.Td fw={600}>
                {token.name} <Text span size="xs" c="dimmed">{token.id}</Text>
              </Table.Td>
              <Table.Td>{token.role}</Table.Td>
              <Table.Td>
                {token.created_by}, <Age at={token.created * 1000} />
              </Table.Td>
              <Table.Td>{token.expires ? (token.expires * 1000 > now ? `for ${duration(token.expires - now / 1000)}` : 'expired') : 'until deleted'}</Table.Td>
              <Table.Td ta="right">
                <DeedButton deed="administer" size="compact-sm" variant="default" onClick={() => setDoomed(token)}>
                  Delete
                </DeedButton>
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
      {making && <MakeToken close={() => setMaking(false)} />}
      {doomed && (
        <Ask opened close={() => setDoomed(undefined)} title={`Delete token ${doomed.name}`} label="Delete token" danger command={ursa('token', 'delete', doomed.id)} act={() => json('DELETE', `/v1/tokens/${encodeURIComponent(doomed.id)}`)} done={`Token ${doomed.name} deleted. It no longer gives access.`}>
          <Tried method="DELETE" path={`/v1/tokens/${encodeURIComponent(doomed.id)}`} failure="The token cannot be deleted" />
        </Ask>
      )}
    </Panel>
  )
}

function MakeToken({ close }: { close: () => void }) {
  const [name, setName] = useState('')
  const [role, setRole] = useState<Role>('viewer')
  const [days, setDays] = useState<number | string>('')
  const [secret, setSecret] = useState<string>()
  const valid = typeof days === 'number' && days > 0 ? Math.round(days * DAY) : undefined
  return (
    <Ask
      opened
      close={close}
      title="Create token"
      label="Create"
      stays
      ready={isName(name) && secret === undefined}
      command={ursa('token', 'create', name || 'NAME', '--role', role, ...(valid ? ['--valid', `${days}d`] : []))}
      act={async () => setSecret((await json<{ secret: string }>('POST', '/v1/tokens', { name, role, ...(valid ? { valid_seconds: valid } : {}) })).secret)}
    >
      {secret === undefined ? (
        <>
          <TextInput label="Name" description="What the token is for" placeholder="backup" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} autoComplete="off" data-autofocus />
          <Select label="Role" data={ROLES} value={role} onChange={(value) => setRole((value as Role | null) ?? 'viewer')} allowDeselect={false} />
          <NumberInput label="Valid for (days)" description="Empty: until deleted" value={days} onChange={setDays} min={1} max={3650} w={240} />
        </>
      ) : (
        <Paste text={secret} label="The secret is shown only once. Copy it now." />
      )}
    </Ask>
  )
}
