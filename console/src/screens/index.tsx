// Which screen is at which place.

import { Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { Empty, To } from '../parts/Problem'
import type { Route } from '../route'
import { Copies } from './Copies'
import { CreateVolume } from './CreateVolume'
import { Events } from './Events'
import { Hosts } from './Hosts'
import { Jobs } from './Jobs'
import { Nodes } from './Nodes'
import { Overview } from './Overview'
import { Pools } from './Pools'
import { Topology } from './Topology'
import { Users } from './Users'
import { VolumeScreen } from './Volume'
import { Volumes } from './Volumes'

export function screenAt({ path, query }: Route): ReactNode {
  const [place, name, part] = path
  switch (place) {
    case undefined:
    // Where the set-up link leads once it has been used.
    case 'setup':
      return <Overview />
    case 'volumes':
      if (name === undefined) return <Volumes />
      return part === 'copies' ? <Copies key={name} name={name} /> : <VolumeScreen key={`${name} ${query.get('node')}`} name={name} node={numberOf(query.get('node'))} />
    case 'create':
      return <CreateVolume />
    case 'topology':
      return <Topology />
    case 'nodes':
      return <Nodes />
    case 'pools':
      return <Pools />
    case 'hosts':
      return <Hosts />
    case 'jobs':
      return <Jobs />
    case 'events':
      return <Events />
    case 'users':
      return <Users />
    default:
      return (
        <Empty>
          Page not found. <To href="#/">Go to the overview</To>
          <Text span>.</Text>
        </Empty>
      )
  }
}

/** The number of a node in a link; undefined if there is none. */
function numberOf(text: string | null): number | undefined {
  return text !== null && /^\d{1,5}$/.test(text) ? Number(text) : undefined
}
