import { PasswordInput, Radio, Stack, TagsInput, TextInput } from '@mantine/core'
import { useState } from 'react'
import { api, data } from '../api/client'
import type { Host } from '../api/types'
import { Ask, Said } from '../parts/deed'
import { ursa } from '../words/command'
import { ISCSI_NAME_HINT, isIscsiName } from '../words/iscsi'
import { CHAP_SECRET_HINT, CHAP_SECRET_MIN, charactersMissing, tooShort } from '../words/secrets'
import { isName, nameProblem } from '../words/names'

/** Creates or changes a host group. */
export function HostForm({ host, close }: { host?: Host; close: () => void }) {
  const [name, setName] = useState(host?.name ?? '')
  const [initiators, setInitiators] = useState(host?.initiators ?? [])
  const [addresses, setAddresses] = useState(host?.addresses ?? [])
  const [chap, setChap] = useState<'none' | 'keep' | 'new'>(host?.chap_user ? 'keep' : 'none')
  const [user, setUser] = useState(host?.chap_user ?? '')
  const [secret, setSecret] = useState('')
  const wrongInitiator = initiators.find((one) => !isIscsiName(one))
  const ready = (host !== undefined || isName(name)) && !wrongInitiator && (chap !== 'new' || (user !== '' && charactersMissing(secret, CHAP_SECRET_MIN) === 0))
  const sent = chap === 'new' ? { user, secret } : undefined
  const options = [
    ...(host && initiators.length === 0 && host.initiators.length > 0 ? ['--any-initiator'] : initiators.flatMap((one) => ['--initiator', one])),
    ...(host && addresses.length === 0 && host.addresses.length > 0 ? ['--any-address'] : addresses.flatMap((one) => ['--address', one])),
    ...(chap === 'new' ? ['--chap-user', user || 'USER'] : host?.chap_user && chap === 'none' ? ['--no-chap'] : []),
  ]
  return (
    <Ask
      opened
      close={close}
      title={host ? `Change host group ${host.name}` : 'Create host group'}
      label={host ? 'Save changes' : 'Create'}
      ready={ready}
      command={ursa('host', host ? 'set' : 'create', name || 'NAME', ...options)}
      act={() =>
        host
          ? data(api.PUT('/v1/hosts/{name}', { params: { path: { name: host.name } }, body: { initiators, addresses, ...(chap === 'keep' ? {} : { chap: sent ?? null }) } }))
          : data(api.POST('/v1/hosts', { body: { name, initiators, addresses, ...(sent ? { chap: sent } : {}) } }))
      }
      done={host ? `Host group ${name} changed.` : `Host group ${name} created. Now map volumes to it.`}
    >
      {!host && <TextInput label="Name" description="For your reference, for example the name of the host" value={name} onChange={(event) => setName(event.currentTarget.value)} error={nameProblem(name)} data-autofocus />}
      <TagsInput label="Initiators" description="iSCSI names of its initiators; press Enter after each. None: any name" placeholder={initiators.length === 0 ? 'iqn.1993-08.org.debian:01:5ad4e2f0c1' : ''} value={initiators} onChange={setInitiators} error={wrongInitiator && `${wrongInitiator} is not a valid iSCSI name. Use ${ISCSI_NAME_HINT}`} acceptValueOnBlur />
      <TagsInput label="Addresses" description="Addresses or networks that logins are accepted from, for example 10.1.0.0/16; press Enter after each. None: any address" placeholder={addresses.length === 0 ? '10.1.0.0/16' : ''} value={addresses} onChange={setAddresses} acceptValueOnBlur />
      {initiators.length === 0 && addresses.length === 0 && <Said>Without names and addresses, every initiator that knows the secret belongs to the group; without a secret, every initiator does.</Said>}
      <Radio.Group label="CHAP secret" description="Names and addresses can be forged by any machine on the network; a secret cannot" value={chap} onChange={(value) => setChap(value as typeof chap)}>
        <Stack gap={4} mt={6}>
          <Radio value="none" label="None" />
          {host?.chap_user && <Radio value="keep" label={`Keep the current one (user ${host.chap_user})`} />}
          <Radio value="new" label="Set a new one" />
        </Stack>
      </Radio.Group>
      {chap === 'new' && (
        <>
          <TextInput label="CHAP user" value={user} onChange={(event) => setUser(event.currentTarget.value)} autoComplete="off" />
          <PasswordInput label="Secret" description={CHAP_SECRET_HINT} value={secret} onChange={(event) => setSecret(event.currentTarget.value)} error={tooShort(secret, CHAP_SECRET_MIN)} autoComplete="new-password" />
        </>
      )}
    </Ask>
  )
}
