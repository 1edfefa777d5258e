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
/** With more volumes or snapshots than this, their list is refreshed less often. */
const MANY = 200

export const useNode = () =>
  useQuery({ queryKey: ['node'], queryFn: () => data(api.GET('/v1/node')), refetchInterval: SOON })

/** The nodes of the cluster; empty if the queried node takes no part in it, which its findings explain. */
export const useNodes = () =>
  useQuery({
    queryKey: ['nodes'],
    queryFn: async (): Promise<ClusterNode[]> => {
      try {
        return (await data(api.GET('/v1/nodes'))).items
      } catch (error) {
        if (error instanceof Refusal && error.code === 'cluster_unavailable') return []
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

/** To find findings, a node lists all volumes: refresh less often if there are many. */
const FINDINGS = queryOptions({
  queryKey: ['findings'],
  queryFn: () => data(api.GET('/v1/findings')),
  refetchInterval: () => ((queries.getQueryData(VOLUMES.queryKey)?.items.length ?? 0) > MANY ? LATER : SOON),
})

export const useVolumes = () => useQuery({ ...VOLUMES, select: itemsOf })
export const usePools = () => useQuery({ ...POOLS, select: itemsOf })
export const useSessions = () => useQuery({ ...SESSIONS, select: itemsOf })
/** The findings of the cluster, worst first. */
export const useFindings = () => useQuery({ ...FINDINGS, select: itemsOf })

/** The links between nodes, as each node sees its own. */
export const useLinks = () => useQuery({ ...LINKS, select: itemsOf })

/** Floating IPs and their holders. */
export const useAddresses = () => useQuery({ ...ADDRESSES, select: itemsOf })

/** The nodes whose volumes, pools, sessions or links are missing from the list, and why. */
export const useMissingVolumes = () => useQuery({ ...VOLUMES, select: missingOf }).data ?? NONE
export const useMissingPools = () => useQuery({ ...POOLS, select: missingOf }).data ?? NONE
export const useMissingSessions = () => useQuery({ ...SESSIONS, select: missingOf }).data ?? NONE
export const useMissingLinks = () => useQuery({ ...LINKS, select: missingOf }).data ?? NONE

export const useVolume = (name: string) =>
  useQuery({
    queryKey: ['volumes', name],
    queryFn: () => data(api.GET('/v1/volumes/{name}', { params: { path: { name } } })),
    refetchInterval: SOON,
  })

/** The snapshots of a volume, or of all: each node with a copy says what its pool has. */
const snapshotsOf = (volume?: string) =>
  queryOptions({
    queryKey: ['snapshots', 'of', volume],
    queryFn: () => data(api.GET('/v1/snapshots', { params: { query: { volume } } })),
    refetchInterval: (query) => ((query.state.data?.items.length ?? 0) > MANY ? LATER : SOON * 2),
  })

/** Oldest first; `volume` by name or ID. */
export const useSnapshots = (volume?: string) => useQuery({ ...snapshotsOf(volume), select: itemsOf })
/** The nodes that did not say what their copies have, and why. */
export const useMissingSnapshots = (volume?: string) => useQuery({ ...snapshotsOf(volume), select: missingOf }).data ?? NONE

/** A snapshot by name or number. */
export const useSnapshot = (snapshot: string) =>
  useQuery({
    queryKey: ['snapshots', 'one', snapshot],
    queryFn: () => data(api.GET('/v1/snapshots/{snapshot}', { params: { path: { snapshot } } })),
    refetchInterval: SOON,
  })

/** Schedules of snapshots, by name. */
export const useSchedules = () =>
  useQuery({
    queryKey: ['snapshot-schedules'],
    queryFn: async () => (await data(api.GET('/v1/snapshot-schedules'))).items,
    refetchInterval: SOON * 2,
  })

/**
 * Whether a restore needs `force`: hosts that see the volumes are logged in, or a node does not say which
 * are. `ids`: of the volumes; empty: all of the snapshot.
 */
export const useRestoreNeedsForce = (snapshot: string, ids: string[], enabled: boolean) =>
  useQuery({
    queryKey: ['restore-needs-force', snapshot, ids],
    queryFn: async (): Promise<boolean> => {
      try {
        await data(api.POST('/v1/snapshots/{snapshot}/restore', { params: { path: { snapshot }, query: { dry_run: true } }, body: { volumes: ids } }))
        return false
      } catch (error) {
        if (error instanceof Refusal && error.code === 'volumes_in_use') return true
        throw error
      }
    },
    enabled,
    gcTime: 0,
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

/** Refreshes everything after a change. */
export const lookAgain = () => queries.invalidateQueries()

/** Maximum number of latest events on one screen. */
const EVENTS_MAX = 200

/** A node by number, or all nodes. */
export type OfNode = number | 'all'

/** Which events to list, newest first. */
export interface EventsWanted {
  /** Default: all nodes. */
  node?: OfNode
  /** Only events up to this time, in seconds since 1970. */
  until?: number
  /** Only events about this subject, by its name at the time; or about the volume with this ID. */
  subject?: string
  /** Minimum severity. */
  severity?: Event['severity']
}

const eventsOf = ({ node = 'all', until, subject, severity }: EventsWanted) =>
  queryOptions({
    queryKey: ['events', node, until, subject, severity],
    queryFn: () => data(api.GET('/v1/events', { params: { query: { limit: EVENTS_MAX, node: String(node), until, subject, severity } } })),
    refetchInterval: SOON,
  })

/** Oldest first. */
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

/** Jobs in progress: copies of the whole cluster, verify jobs and changes of all nodes. */
export const useJobs = () => useQuery({ ...JOBS, select: itemsOf })
/** Jobs that ended in the last day, newest first. */
export const useEndedJobs = () => useQuery({ ...ENDED_JOBS, select: itemsOf })
/** The nodes whose verify jobs and changes are missing from the list, and why. */
export const useMissingJobs = () => useQuery({ ...JOBS, select: missingOf }).data ?? NONE

/** Recorded values of all nodes in the last `seconds`, in at most `points` points. */
export const useHistory = (series: string[], seconds: number, points: number) =>
  useQuery({
    queryKey: ['history', series, seconds, points],
    queryFn: () => {
      const to = Math.floor(Date.now() / 1000)
      return data(api.GET('/v1/history', { params: { query: { series: series.join(), from: to - seconds, to, points, node: 'all' } } }))
    },
    refetchInterval: LATER,
  })

/**
 * The block devices of a node's machine. Requested only when the user is about to choose one: it reads all
 * disks.
 */
export const useDisks = (node: number | undefined, enabled: boolean) =>
  useQuery({
    queryKey: ['disks', node],
    queryFn: async () => (await data(api.GET('/v1/disks', { params: { query: { node } } }))).items,
    enabled,
  })

/**
 * When pools will be full at the growth of the last days. Changes slowly, and each node reads a week of
 * history for it.
 */
export const useForecasts = () =>
  useQuery({
    queryKey: ['forecasts', 'all'],
    queryFn: async () => (await data(api.GET('/v1/forecasts', { params: { query: { node: 'all' } } }))).items,
    staleTime: 5 * MINUTE,
    refetchInterval: 5 * MINUTE,
  })

export type HostSetupWanted = paths['/v1/host-setup']['get']['parameters']['query']

/** The commands with which a host attaches the volumes of a target. */
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

/** Audit log entries, newest first; with `until`, up to that time in seconds since 1970. */
export const useAudit = (limit: number, node: OfNode, until?: number) =>
  useQuery({
    queryKey: ['audit', limit, node, until],
    queryFn: () => data(api.GET('/v1/audit', { params: { query: { limit, node: String(node), ...(until === undefined ? {} : { until }) } } })),
    refetchInterval: SOON * 2,
  })
