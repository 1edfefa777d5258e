// What screens know of the cluster, looked at again every few seconds.

import { QueryClient, useQuery } from '@tanstack/react-query'
import type { Role } from './access'
import { Refusal, api, data, json } from './client'
import type { ClusterNode } from './types'

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The next look comes soon enough.
      retry: false,
      refetchOnWindowFocus: true,
      staleTime: 500,
    },
  },
})

const SOON = 2000
const LATER = 10_000
/** From so many volumes on the list is asked for less often. */
const MANY = 200

export const useNode = () =>
  useQuery({ queryKey: ['node'], queryFn: () => data(api.GET('/v1/node')), refetchInterval: SOON })

/** The nodes of the cluster; null without one. */
export const useNodes = () =>
  useQuery({
    queryKey: ['nodes'],
    queryFn: async (): Promise<ClusterNode[] | null> => {
      try {
        return (await data(api.GET('/v1/nodes'))).items
      } catch (error) {
        if (error instanceof Refusal && error.code === 'no_cluster') return null
        throw error
      }
    },
    refetchInterval: SOON,
  })

export const useVolumes = () =>
  useQuery({
    queryKey: ['volumes'],
    queryFn: async () => (await data(api.GET('/v1/volumes'))).items,
    refetchInterval: (query) => ((query.state.data?.length ?? 0) > MANY ? LATER : SOON),
  })

export const useVolume = (name: string) =>
  useQuery({
    queryKey: ['volumes', name],
    queryFn: () => data(api.GET('/v1/volumes/{name}', { params: { path: { name } } })),
    refetchInterval: SOON,
  })

export const usePools = () =>
  useQuery({
    queryKey: ['pools'],
    queryFn: async () => (await data(api.GET('/v1/pools'))).items,
    refetchInterval: SOON * 2,
  })

export const useTargets = () =>
  useQuery({
    queryKey: ['targets'],
    queryFn: async () => (await data(api.GET('/v1/targets'))).items,
    refetchInterval: SOON * 2,
  })

export const useHosts = () =>
  useQuery({
    queryKey: ['hosts'],
    queryFn: async () => (await data(api.GET('/v1/hosts'))).items,
    refetchInterval: SOON * 2,
  })

export const useSessions = () =>
  useQuery({
    queryKey: ['sessions'],
    queryFn: async () => (await data(api.GET('/v1/sessions'))).items,
    refetchInterval: SOON,
  })

export const useSyncLimit = () =>
  useQuery({
    queryKey: ['sync-limit'],
    queryFn: () => data(api.GET('/v1/cluster/sync-limit')),
    refetchInterval: LATER,
  })

/** Has everything looked at again, after a change. */
export const lookAgain = () => queries.invalidateQueries()

/** What a node may not have yet: null where it does not know the path. */
async function ifThere<T>(path: string): Promise<T[] | null> {
  try {
    return (await json<{ items: T[] }>('GET', path)).items
  } catch (error) {
    if (error instanceof Refusal && error.status === 404 && error.code === 'no_such_path') return null
    throw error
  }
}

/** Something that has happened. */
export interface Event {
  id: number | string
  /** Seconds since 1970. */
  at: number
  severity: string
  code: string
  cause?: string | null
  subject?: string | null
  text: string
  /** What to do about it. */
  action?: string | null
  node?: number | string | null
}

export const useEvents = () =>
  useQuery({ queryKey: ['events'], queryFn: () => ifThere<Event>('/v1/events?limit=200'), refetchInterval: (query) => (query.state.data === null ? false : SOON) })

export interface User {
  name: string
  role: Role
  created: number
}

export interface Token {
  id: string
  name: string
  role: Role
  created: number
  expires?: number | null
  made_by: string
}

export interface AuditEntry {
  id: number
  at: number
  who: string
  by?: string | null
  address: string
  action: string
  status: number
  code?: string | null
}

export const useUsers = () => useQuery({ queryKey: ['users'], queryFn: async () => (await json<{ items: User[] }>('GET', '/v1/users')).items, refetchInterval: LATER })
export const useTokens = () => useQuery({ queryKey: ['tokens'], queryFn: async () => (await json<{ items: Token[] }>('GET', '/v1/tokens')).items, refetchInterval: LATER })

/** What was asked of this node, the newest first. */
export const useAudit = (limit: number) =>
  useQuery({ queryKey: ['audit', limit], queryFn: async () => (await json<{ items: AuditEntry[] }>('GET', `/v1/audit?limit=${limit}`)).items, refetchInterval: SOON * 2 })
