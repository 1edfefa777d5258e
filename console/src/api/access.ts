// The logged-in user, and what the user may do.

import { useQuery } from '@tanstack/react-query'
import { createContext, useContext } from 'react'
import { Refusal, json } from './client'

export type Role = 'admin' | 'operator' | 'viewer'

export interface Me {
  name: string
  role: Role
  by: 'session' | 'token' | 'local'
}

export type Access =
  /** The node has no login: anyone who reaches it may do everything. */
  | { kind: 'open' }
  /** No user exists yet. */
  | { kind: 'setup'; cluster?: string }
  | { kind: 'login'; cluster?: string }
  | { kind: 'in'; me: Me; cluster?: string }

interface AccessState {
  setup_needed: boolean
  cluster?: string | null
}

async function look(): Promise<Access> {
  let state: AccessState
  try {
    state = await json<AccessState>('GET', '/v1/access/state')
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return { kind: 'open' }
    throw error
  }
  const cluster = state.cluster ?? undefined
  try {
    return { kind: 'in', me: await json<Me>('GET', '/v1/whoami'), cluster }
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 401) throw error
    return { kind: state.setup_needed ? 'setup' : 'login', cluster }
  }
}

export const useAccess = () => useQuery({ queryKey: ['access'], queryFn: look, staleTime: Infinity })

const MeContext = createContext<Me | undefined>(undefined)
export const MeProvider = MeContext.Provider

/** The logged-in user; undefined if the node has no login. */
export const useMe = () => useContext(MeContext)

/**
 * The permission that an action needs: `own` for all users, `change` for operators, `administer` for admins.
 */
export type Deed = 'own' | 'change' | 'administer'

/** Why the user may not do it; undefined if the user may. */
export function useForbidden(deed: Deed): string | undefined {
  const me = useMe()
  if (!me || deed === 'own' || me.role === 'admin' || (me.role === 'operator' && deed === 'change')) return undefined
  const who = deed === 'change' ? 'an operator or an admin' : 'an admin'
  return `Not allowed: you are ${me.role === 'operator' ? 'an operator' : 'a viewer'}, and this needs ${who}.`
}
