// The screens and their places.

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
import { Schedules } from './Schedules'
import { SnapshotScreen } from './Snapshot'
import { Snapshots } from './Snapshots'
import { Topology } from './Topology'
import { Users } from './Users'
import { VolumeScreen } from './Volume'
import { Volumes } from './Volumes'

export function screenAt({ path, query }: Route): ReactNode {
  const [place, name, part] = path
  switch (place) {
    case undefined:
    // The target of the setup link once it has been used.
    case 'setup':
      return <Overview />
    case 'volumes':
      if (name === undefined) return <Volumes />
      return part === 'copies' ? <Copies key={name} name={name} /> : <VolumeScreen key={name} name={name} />
    case 'create':
      return <CreateVolume />
    case 'snapshots':
      return name === undefined ? <Snapshots key={query.toString()} query={query} /> : <SnapshotScreen key={name} name={name} />
    case 'schedules':
      return <Schedules />
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
