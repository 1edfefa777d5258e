// What screens know about the cluster, refreshed every few seconds.

import { QueryClient, queryOptions, useQuery } from '@tanstack/react-query'
import type { Role } from './access'
import { Refusal, api, data, json } from './client'
import type { paths } from './schema'
import type { ClusterNode, Event, Missing } from './types'

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The next refresh comes soon enough.
      retry: false,
      refetchOnWindowFocus: true,
      staleTime: 500,
    },
  },
})

const SOON = 2000
const LATER = 10_000
const MINUTE = 60_000
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
        if (error instanceof Refusal && (error.code === 'no_cluster' || error.code === 'cluster_unavailable')) return null
        throw error
      }
    },
    refetchInterval: SOON,
  })

interface Listed<T> {
  items: T[]
  missing?: Missing[]
}
const itemsOf = <T>(list: Listed<T>) => list.items
const missingOf = (list: Listed<unknown>) => list.missing ?? NONE
const NONE: Missing[] = []

// Of all nodes. The list names nodes that do not answer in time, and the next refresh asks them again.
const VOLUMES = queryOptions({
  queryKey: ['volumes'],
  queryFn: () => data(api.GET('/v1/volumes')),
  refetchInterval: (query) => ((query.state.data?.items.length ?? 0) > MANY ? LATER : SOON),
})
const POOLS = queryOptions({
  queryKey: ['pools', 'all'],
  queryFn: () => data(api.GET('/v1/pools', { params: { query: { node: 'all' } } })),
  refetchInterval: SOON * 2,
})
const SESSIONS = queryOptions({
  queryKey: ['sessions', 'all'],
  queryFn: () => data(api.GET('/v1/sessions', { params: { query: { node: 'all' } } })),
  refetchInterval: SOON,
})

const LINKS = queryOptions({
  queryKey: ['links', 'all'],
  queryFn: () => data(api.GET('/v1/links', { params: { query: { node: 'all' } } })),
  refetchInterval: SOON,
})

const ADDRESSES = queryOptions({
  queryKey: ['addresses'],
  queryFn: () => data(api.GET('/v1/floating-ips')),
  refetchInterval: SOON,
})

/** For findings a node lists all volumes: less often where there are many. */
const FINDINGS = queryOptions({
  queryKey: ['findings'],
  queryFn: () => data(api.GET('/v1/findings')),
  refetchInterval: () => ((queries.getQueryData(VOLUMES.queryKey)?.items.length ?? 0) > MANY ? LATER : SOON),
})

export const useVolumes = () => useQuery({ ...VOLUMES, select: itemsOf })
export const usePools = () => useQuery({ ...POOLS, select: itemsOf })
export const useSessions = () => useQuery({ ...SESSIONS, select: itemsOf })
/** What is wrong in the cluster, the worst first. */
export const useFindings = () => useQuery({ ...FINDINGS, select: itemsOf })

/** The links between nodes, as each of them sees its own; not asked for without a cluster. */
export const useLinks = (cluster: boolean) => useQuery({ ...LINKS, select: itemsOf, enabled: cluster })

/** Floating addresses, and which node has each; only in a cluster. */
export const useAddresses = () => useQuery({ ...ADDRESSES, select: itemsOf })

/** The nodes whose volumes, pools, sessions or links are not in the list, and why. */
export const useMissingVolumes = () => useQuery({ ...VOLUMES, select: missingOf }).data ?? NONE
export const useMissingPools = () => useQuery({ ...POOLS, select: missingOf }).data ?? NONE
export const useMissingSessions = () => useQuery({ ...SESSIONS, select: missingOf }).data ?? NONE
export const useMissingLinks = (cluster: boolean) => useQuery({ ...LINKS, select: missingOf, enabled: cluster }).data ?? NONE

export const useVolume = (name: string) =>
  useQuery({
    queryKey: ['volumes', name],
    queryFn: () => data(api.GET('/v1/volumes/{name}', { params: { path: { name } } })),
    refetchInterval: SOON,
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

export const useSyncLimit = () =>
  useQuery({
    queryKey: ['resync-limit'],
    queryFn: () => data(api.GET('/v1/cluster/resync-limit')),
    refetchInterval: LATER,
  })

export const useVerifySchedule = () =>
  useQuery({
    queryKey: ['verify-schedule'],
    queryFn: () => data(api.GET('/v1/cluster/verify-schedule')),
    refetchInterval: LATER,
  })

/** Has everything looked at again, after a change. */
export const lookAgain = () => queries.invalidateQueries()

/** What has happened last, as far as one screen shows it. */
const EVENTS_MAX = 200

/** A node by its number, or all of them. */
export type OfNode = number | 'all'

/** The newest of which events. */
export interface EventsWanted {
  /** All nodes, if no other is named. */
  node?: OfNode
  /** That had happened until then, in seconds since 1970. */
  until?: number
  /** That have happened to this, by the name that it had then, or to the volume of this identity. */
  subject?: string
  /** As grave as this, or graver. */
  severity?: Event['severity']
}

const eventsOf = ({ node = 'all', until, subject, severity }: EventsWanted) =>
  queryOptions({
    queryKey: ['events', node, until, subject, severity],
    queryFn: () => data(api.GET('/v1/events', { params: { query: { limit: EVENTS_MAX, node: String(node), until, subject, severity } } })),
    refetchInterval: SOON,
  })

/** In the order in which they have happened. */
export const useEvents = (wanted: EventsWanted = {}) => useQuery({ ...eventsOf(wanted), select: itemsOf })
export const useMissingEvents = (wanted: EventsWanted = {}) => useQuery({ ...eventsOf(wanted), select: missingOf }).data ?? NONE

const JOBS = queryOptions({
  queryKey: ['jobs', 'all'],
  queryFn: () => data(api.GET('/v1/jobs', { params: { query: { node: 'all' } } })),
  refetchInterval: SOON,
})
const ENDED_JOBS = queryOptions({
  queryKey: ['jobs', 'ended'],
  queryFn: () => data(api.GET('/v1/jobs', { params: { query: { node: 'all', ended: true } } })),
  refetchInterval: SOON * 2,
})

/** What is under way: copies of the whole cluster, and comparisons and changes of all nodes. */
export const useJobs = () => useQuery({ ...JOBS, select: itemsOf })
/** What has ended in the last day, newest first. */
export const useEndedJobs = () => useQuery({ ...ENDED_JOBS, select: itemsOf })
/** The nodes whose comparisons and changes are not in the list, and why. */
export const useMissingJobs = () => useQuery({ ...JOBS, select: missingOf }).data ?? NONE

/** What nodes have kept of the last `seconds`, in at most so many points; of all nodes, or without a cluster of this one. */
export const useHistory = (series: string[], seconds: number, points: number, cluster: boolean) =>
  useQuery({
    queryKey: ['history', series, seconds, points, cluster],
    queryFn: () => {
      const to = Math.floor(Date.now() / 1000)
      return data(api.GET('/v1/history', { params: { query: { series: series.join(), from: to - seconds, to, points, ...(cluster ? { node: 'all' } : {}) } } }))
    },
    refetchInterval: LATER,
  })

/** The block devices of a node's machine; asked for when somebody is about to name one. Disks are read for it. */
export const useDisks = (node: number | undefined, enabled: boolean) =>
  useQuery({
    queryKey: ['disks', node],
    queryFn: async () => (await data(api.GET('/v1/disks', { params: { query: { node } } }))).items,
    enabled,
  })

/** When pools are full if they are filled as in the last days. Each node reads its week for it, and it changes slowly. */
export const useForecasts = () =>
  useQuery({
    queryKey: ['forecasts', 'all'],
    queryFn: async () => (await data(api.GET('/v1/forecasts', { params: { query: { node: 'all' } } }))).items,
    staleTime: 5 * MINUTE,
    refetchInterval: 5 * MINUTE,
  })

export type HostSetupWanted = paths['/v1/host-setup']['get']['parameters']['query']

/** What a host needs to use volumes of a target. */
export const useHostSetup = ({ system, target, portals, naa, chap_user }: HostSetupWanted) =>
  useQuery({
    queryKey: ['host-setup', system, target, portals, naa, chap_user],
    queryFn: () => data(api.GET('/v1/host-setup', { params: { query: { system, target, portals, naa, chap_user } } })),
    staleTime: Infinity,
  })

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
  created_by: string
}

export const useUsers = () => useQuery({ queryKey: ['users'], queryFn: async () => (await json<{ items: User[] }>('GET', '/v1/users')).items, refetchInterval: LATER })
export const useTokens = () => useQuery({ queryKey: ['tokens'], queryFn: async () => (await json<{ items: Token[] }>('GET', '/v1/tokens')).items, refetchInterval: LATER })

/** What was asked of nodes, the newest first; with a time, until then, in seconds since 1970. */
export const useAudit = (limit: number, node: OfNode, until?: number) =>
  useQuery({
    queryKey: ['audit', limit, node, until],
    queryFn: () => data(api.GET('/v1/audit', { params: { query: { limit, node: String(node), ...(until === undefined ? {} : { until }) } } })),
    refetchInterval: SOON * 2,
  })
