// What the loss of a node would cause now: a summary of what nodes report of each volume.

import type { ClusterNode, LossOutcome, Volume } from '../api/types'

/** From best to worst. */
const ORDER: LossOutcome[] = ['nothing', 'down', 'continues', 'split_brain_risk', 'unavailable', 'data_lost']

export const LOSS_TONE: Record<LossOutcome, 'ok' | 'warning' | 'critical' | 'off'> = {
  nothing: 'ok',
  continues: 'ok',
  split_brain_risk: 'warning',
  unavailable: 'warning',
  data_lost: 'critical',
  down: 'off',
}

export interface NodeLoss {
  node: ClusterNode
  outcome: LossOutcome
  /** Names of volumes that would be unavailable until it returns. */
  stops: string[]
  /** Names of volumes whose data would be lost. */
  lost: string[]
  goesOn: number
}

/** The effect of losing each node on all volumes: the worst outcome, and how many volumes it affects. */
export function lossesByNode(volumes: Volume[], nodes: ClusterNode[]): NodeLoss[] {
  return nodes.map((node) => {
    const result: NodeLoss = { node, outcome: node.up ? 'nothing' : 'down', stops: [], lost: [], goesOn: 0 }
    for (const volume of volumes) {
      const found = volume.losses?.find((loss) => loss.node === node.id)
      if (!found) continue
      if (ORDER.indexOf(found.outcome) > ORDER.indexOf(result.outcome)) result.outcome = found.outcome
      if (found.outcome === 'unavailable') result.stops.push(volume.name)
      else if (found.outcome === 'data_lost') result.lost.push(volume.name)
      else if (found.outcome === 'continues' || found.outcome === 'split_brain_risk') result.goesOn += 1
    }
    return result
  })
}
