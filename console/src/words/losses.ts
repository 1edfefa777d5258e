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
  /** The worst outcome of any volume. */
  outcome: LossOutcome
  /** What nodes report, with the names of the volumes concerned; the worst first. */
  effects: { outcome: LossOutcome; text: string; volumes: string[] }[]
}

const rank = (outcome: LossOutcome) => ORDER.indexOf(outcome)

/** The effect of losing each node on all volumes. */
export function lossesByNode(volumes: Volume[], nodes: ClusterNode[]): NodeLoss[] {
  return nodes.map((node) => {
    const effects: NodeLoss['effects'] = []
    for (const volume of volumes) {
      const loss = volume.losses?.find((one) => one.node === node.id)
      if (!loss) continue
      const same = effects.find((effect) => effect.text === loss.text)
      if (same) same.volumes.push(volume.name)
      else effects.push({ outcome: loss.outcome, text: loss.text, volumes: [volume.name] })
    }
    effects.sort((a, b) => rank(b.outcome) - rank(a.outcome))
    return { node, outcome: effects[0]?.outcome ?? (node.up ? 'nothing' : 'down'), effects }
  })
}
