import { PasswordInput, Radio, Stack, Switch, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import type { Target } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { ursa } from '../words/command'
import { ISCSI_NAME_HINT, isIscsiName } from '../words/iscsi'
import { CHAP_SECRET_HINT, CHAP_SECRET_MIN, charactersMissing, tooShort } from '../words/secrets'

/** Creates a target without a volume. */
export function TargetForm({ close }: { close: () => void }) {
  const [name, setName] = useState('')
  const [alias, setAlias] = useState('')
  const [proves, setProves] = useState(false)
  const [user, setUser] = useState('')
  const [secret, setSecret] = useState('')
  const wrongName = name !== '' && !isIscsiName(name)
  const ready = name !== '' && !wrongName && (!proves || isWhole(user, secret))
  return (
    <Ask
      opened
      close={close}
      title="Create target"
      label="Create"
      ready={ready}
      command={ursa('target', 'create', name || 'IQN', ...(alias ? ['--alias', alias] : []), ...(proves ? ['--chap-user', user || 'USER'] : []))}
      act={() => data(api.POST('/v1/targets', { body: { name, ...(alias ? { alias } : {}), ...(proves ? { chap: { user, secret } } : {}) } }))}
      done={`Target ${name} created. Now map volumes to it.`}
    >
      <Said>Each new volume gets a target of its own. Create one here for several volumes, or for mutual CHAP.</Said>
      <TextInput label="Name" description="iqn.YYYY-MM.reversed.domain:name" placeholder="iqn.2026-11.io.ursa:shared" value={name} onChange={(event) => setName(event.currentTarget.value)} error={wrongName && `Not a valid iSCSI name. Use ${ISCSI_NAME_HINT}`} data-autofocus />
      <TextInput label="Alias" description="A name for your reference; may be empty" value={alias} onChange={(event) => setAlias(event.currentTarget.value)} />
      <Switch label="Mutual CHAP" description="The target authenticates itself to hosts that request it. The secrets of hosts belong to their host groups" checked={proves} onChange={(event) => setProves(event.currentTarget.checked)} />
      {proves && <Proof user={user} setUser={setUser} secret={secret} setSecret={setSecret} />}
    </Ask>
  )
}

/** Changes the alias or the secret of a target. */
export function TargetChangeForm({ target, close }: { target: Target; close: () => void }) {
  const [alias, setAlias] = useState(target.alias ?? '')
  const [chap, setChap] = useState<'none' | 'keep' | 'new'>(target.chap_user ? 'keep' : 'none')
  const [user, setUser] = useState(target.chap_user ?? '')
  const [secret, setSecret] = useState('')
  const otherAlias = alias !== (target.alias ?? '')
  const otherSecret = chap === 'new' || (chap === 'none' && Boolean(target.chap_user))
  const options = [
    ...(!otherAlias ? [] : alias ? ['--alias', alias] : ['--no-alias']),
    ...(!otherSecret ? [] : chap === 'new' ? ['--chap-user', user || 'USER'] : ['--no-chap']),
  ]
  return (
    <Ask
      opened
      close={close}
      title={`Change target ${target.name}`}
      label="Save changes"
      ready={(otherAlias || otherSecret) && (chap !== 'new' || isWhole(user, secret))}
      command={ursa('target', 'set', target.name, ...options)}
      act={() =>
        data(
          api.PATCH('/v1/targets/{name}', {
            params: { path: { name: target.name } },
            body: { ...(otherAlias ? { alias: alias || null } : {}), ...(otherSecret ? { chap: chap === 'new' ? { user, secret } : null } : {}) },
          }),
        )
      }
      done="Target changed."
    >
      <TextInput label="Alias" description="A name for your reference; may be empty" value={alias} onChange={(event) => setAlias(event.currentTarget.value)} data-autofocus />
      <Radio.Group label="Mutual CHAP secret" description="The target authenticates itself with it to hosts that request it. The secrets of hosts belong to their host groups" value={chap} onChange={(value) => setChap(value as typeof chap)}>
        <Stack gap={4} mt={6}>
          <Radio value="none" label="None" />
          {target.chap_user && <Radio value="keep" label={`Keep the current one (user ${target.chap_user})`} />}
          <Radio value="new" label="Set a new one" />
        </Stack>
      </Radio.Group>
      {chap === 'new' && <Proof user={user} setUser={setUser} secret={secret} setSecret={setSecret} />}
      {otherSecret && (
        <Said>
          {chap === 'new'
            ? 'Sessions continue. Hosts that use mutual CHAP need the new secret at their next login: set it there first.'
            : 'Sessions continue. Hosts that use mutual CHAP cannot log in again until it is turned off there.'}
        </Said>
      )}
    </Ask>
  )
}

function isWhole(user: string, secret: string): boolean {
  return user !== '' && charactersMissing(secret, CHAP_SECRET_MIN) === 0
}

function Proof({ user, setUser, secret, setSecret }: { user: string; setUser: (user: string) => void; secret: string; setSecret: (secret: string) => void }) {
  return (
    <>
      <TextInput label="CHAP user" value={user} onChange={(event) => setUser(event.currentTarget.value)} autoComplete="off" />
      <PasswordInput label="Secret" description={CHAP_SECRET_HINT} value={secret} onChange={(event) => setSecret(event.currentTarget.value)} error={tooShort(secret, CHAP_SECRET_MIN)} autoComplete="new-password" />
    </>
  )
}
