import { PasswordInput, Switch, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import { Ask, Said } from '../parts/deed'
import { ursa } from '../words/command'
import { SECRET_HINT, isIscsiName, isTooShort } from '../words/iscsi'

/** Makes a target without a volume. */
export function TargetForm({ close }: { close: () => void }) {
  const [name, setName] = useState('')
  const [alias, setAlias] = useState('')
  const [proves, setProves] = useState(false)
  const [user, setUser] = useState('')
  const [secret, setSecret] = useState('')
  const wrongName = name !== '' && !isIscsiName(name)
  const short = isTooShort(secret)
  const ready = name !== '' && !wrongName && (!proves || (user !== '' && secret !== '' && !short))
  return (
    <Ask
      opened
      close={close}
      title="Make a target"
      label="Make it"
      ready={ready}
      command={ursa('target', 'create', name || 'IQN', ...(alias ? ['--alias', alias] : []), ...(proves ? ['--chap-user', user || 'USER'] : []))}
      act={() => data(api.POST('/v1/targets', { body: { name, ...(alias ? { alias } : {}), ...(proves ? { chap: { user, secret } } : {}) } }))}
      done={`Target ${name} is made: now map volumes to it.`}
    >
      <Said>A volume gets a target of its own when it is made. Make one here for several volumes, or to have it prove itself to hosts.</Said>
      <TextInput label="Name" description="iqn.YYYY-MM.reversed.domain:name" placeholder="iqn.2026-11.io.ursa:shared" value={name} onChange={(event) => setName(event.currentTarget.value)} error={wrongName && 'An iSCSI name begins with iqn., eui. or naa.'} data-autofocus />
      <TextInput label="Alias" description="A name for people; may be empty" value={alias} onChange={(event) => setAlias(event.currentTarget.value)} />
      <Switch label="It proves itself to hosts (mutual CHAP)" description="To those that ask for it. What hosts prove themselves with is their host group’s" checked={proves} onChange={(event) => setProves(event.currentTarget.checked)} />
      {proves && (
        <>
          <TextInput label="CHAP name" value={user} onChange={(event) => setUser(event.currentTarget.value)} autoComplete="off" />
          <PasswordInput label="Secret" description={SECRET_HINT} value={secret} onChange={(event) => setSecret(event.currentTarget.value)} error={short && '12 bytes at least'} autoComplete="new-password" />
        </>
      )}
    </Ask>
  )
}
