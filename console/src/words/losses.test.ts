import { describe, expect, it } from 'vitest'
import type { LossOutcome } from '../api/types'
import { node, volume } from './fixtures'
import { lossesByNode } from './losses'

const losses = (...outcomes: LossOutcome[]) => outcomes.map((outcome, at) => ({ node: at + 1, outcome, text: `if node ${at + 1} is lost: ...` }))

describe('the loss of a node', () => {
  it('is summed up over volumes, with those of a single copy', () => {
    const a = volume('a', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('continues', 'continues') })
    const b = volume('b', [[1, 'in_sync']], { losses: losses('unavailable') })
    const [one, two, other] = lossesByNode([a, b], [node(1), node(2), node(3)])
    expect(one).toMatchObject({ outcome: 'unavailable', stops: ['b'], goesOn: 1 })
    expect(two).toMatchObject({ outcome: 'continues', stops: [], goesOn: 1 })
    expect(other).toMatchObject({ outcome: 'nothing', stops: [], goesOn: 0 })
  })
  it('is as bad as the worst outcome, and names the volumes', () => {
    const stops = volume('a', [[1, 'in_sync'], [2, 'out_of_sync']], { losses: losses('unavailable', 'nothing') })
    const lost = volume('b', [[1, 'in_sync']], { kind: 'ram', losses: losses('data_lost') })
    const alone = volume('c', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('split_brain_risk', 'continues') })
    const [one, two] = lossesByNode([stops, lost, alone], [node(1), node(2)])
    expect(one).toMatchObject({ outcome: 'data_lost', stops: ['a'], lost: ['b'], goesOn: 1 })
    expect(two).toMatchObject({ outcome: 'continues', stops: [], lost: [], goesOn: 1 })
  })
  it('is not shown for a node that is down, or if a volume does not report it', () => {
    const a = volume('a', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('unavailable', 'down') })
    const unknown = volume('b', [[1, 'in_sync']])
    const [one, two] = lossesByNode([a, unknown], [node(1), node(2, { up: false })])
    expect(one).toMatchObject({ outcome: 'unavailable', stops: ['a'] })
    expect(two).toMatchObject({ outcome: 'down', stops: [], goesOn: 0 })
  })
})
