// Which screen is at which place.

import { Text } from '@mantine/core'
import type { ReactNode } from 'react'
import { Empty, To } from '../parts/Problem'
import { CreateVolume } from './CreateVolume'
import { Nodes } from './Nodes'
import { Overview } from './Overview'
import { Topology } from './Topology'
import { VolumeScreen } from './Volume'
import { Volumes } from './Volumes'

export function screenAt(path: string[]): ReactNode {
  const [place, name] = path
  switch (place) {
    case undefined:
    // Where the set-up link leads once it has been used.
    case 'setup':
      return <Overview />
    case 'volumes':
      return name === undefined ? <Volumes /> : <VolumeScreen key={name} name={name} />
    case 'create':
      return <CreateVolume />
    case 'topology':
      return <Topology />
    case 'nodes':
      return <Nodes />
    default:
      return (
        <Empty>
          There is no such screen. <To href="#/">Go to the overview</To>
          <Text span>.</Text>
        </Empty>
      )
  }
}
