// What the loss of a node would do to a volume now, in words: the rules of `crates/ursa/src/cli/loss.rs`.

import type { ClusterNode, Volume, VolumeCopy } from '../api/types'

/** From nothing to the worst. */
export type Outcome = 'nothing' | 'goes_on' | 'risk' | 'stops' | 'lost' | 'down'

export interface Loss {
  node: number
  name: string
  outcome: Outcome
  text: string
}

/** One for each node that has a copy. */
export function losses(volume: Volume, nodes: ClusterNode[]): Loss[] {
  return (volume.copies ?? []).map((copy) => ({
    node: copy.node,
    name: copy.node_name || `node ${copy.node}`,
    ...loss(volume, copy, nodes),
  }))
}

function loss(volume: Volume, copy: VolumeCopy, nodes: ClusterNode[]): Pick<Loss, 'outcome' | 'text'> {
  const up = (id: number) => nodes.some((node) => node.id === id && node.up)
  if (!up(copy.node)) return { outcome: 'down', text: 'it is not there now' }
  const others = (volume.copies ?? []).filter(
    (other) => other.node !== copy.node && other.state === 'in_sync' && up(other.node),
  ).length
  if (copy.state === 'outside') return { outcome: 'nothing', text: 'nothing changes: its copy is not in sync' }
  if (copy.state === 'in_sync' && others === 0) {
    return volume.kind === 'ram'
      ? { outcome: 'lost', text: 'its data is lost: it is the only copy in sync, and it is in memory' }
      : { outcome: 'stops', text: 'nobody serves until it is back: it is the only copy in sync' }
  }
  if (outvoted(copy.node, nodes)) return { outcome: 'goes_on', text: 'goes on after about a second' }
  if (isOfTwo(nodes)) {
    return volume.strategy?.strategy === 'heartbeat'
      ? {
          outcome: 'risk',
          text: 'the other one goes on alone after about six seconds; but if only the link is lost, both go on, and one’s data is given up later',
        }
      : { outcome: 'stops', text: 'nobody serves until it is back: of two nodes without a witness it decides' }
  }
  return {
    outcome: 'stops',
    text: 'nobody serves until it is back: without it too few nodes are left to agree that it is gone',
  }
}

/** Whether they are two nodes, of which one alone votes. */
function isOfTwo(nodes: ClusterNode[]): boolean {
  return nodes.length === 2 && nodes.filter((node) => node.votes).length === 1
}

/** Whether the nodes that are up without this one are a majority of those that vote. */
function outvoted(lost: number, nodes: ClusterNode[]): boolean {
  const voters = nodes.filter((node) => node.votes)
  return 2 * voters.filter((node) => node.up && node.id !== lost).length > voters.length
}

const ORDER: Outcome[] = ['nothing', 'down', 'goes_on', 'risk', 'stops', 'lost']

export interface NodeLoss {
  node: ClusterNode
  outcome: Outcome
  /** Volumes that would stop until it is back, by name. */
  stops: string[]
  /** Volumes whose data would be lost, by name. */
  lost: string[]
  goesOn: number
}

/** What the loss of each node would do to all volumes: the worst outcome, and to how many. */
export function lossesByNode(volumes: Volume[], nodes: ClusterNode[]): NodeLoss[] {
  return nodes.map((node) => {
    const result: NodeLoss = { node, outcome: node.up ? 'nothing' : 'down', stops: [], lost: [], goesOn: 0 }
    for (const volume of volumes) {
      // A volume of one node alone, which no other knows, is known to that node only: the one that was asked.
      const alone = (volume.copies ?? []).length === 0
      const found = alone
        ? node.here
          ? ({ outcome: volume.kind === 'ram' ? 'lost' : 'stops' } as const)
          : undefined
        : losses(volume, nodes).find((loss) => loss.node === node.id)
      if (!found) continue
      if (ORDER.indexOf(found.outcome) > ORDER.indexOf(result.outcome)) result.outcome = found.outcome
      if (found.outcome === 'stops') result.stops.push(volume.name)
      else if (found.outcome === 'lost') result.lost.push(volume.name)
      else if (found.outcome === 'goes_on' || found.outcome === 'risk') result.goesOn += 1
    }
    return result
  })
}
