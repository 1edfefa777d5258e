// What screens know of the cluster, looked at again every few seconds.

import { QueryClient, useQuery } from '@tanstack/react-query'
import { Refusal, api, data } from './client'
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
