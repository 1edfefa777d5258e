import { describe, expect, it } from 'vitest'
import type { LossOutcome } from '../api/types'
import { node, volume } from './fixtures'
import { lossesByNode } from './losses'

const losses = (...outcomes: LossOutcome[]) => outcomes.map((outcome, at) => ({ node: at + 1, outcome, text: `${outcome}, as text` }))

describe('the loss of a node', () => {
  it('is summed up over volumes: those with the same outcome are listed together', () => {
    const a = volume('a', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('continues', 'continues') })
    const b = volume('b', [[1, 'in_sync']], { losses: losses('unavailable') })
    const c = volume('c', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('continues', 'continues') })
    const [one, two, other] = lossesByNode([a, b, c], [node(1), node(2), node(3)])
    const continues = { outcome: 'continues', text: 'continues, as text', volumes: ['a', 'c'] }
    expect(one).toMatchObject({ outcome: 'unavailable', effects: [{ outcome: 'unavailable', volumes: ['b'] }, continues] })
    expect(two).toMatchObject({ outcome: 'continues', effects: [continues] })
    expect(other).toMatchObject({ outcome: 'nothing', effects: [] })
  })
  it('is as bad as the worst outcome, which comes first', () => {
    const stops = volume('a', [[1, 'in_sync'], [2, 'out_of_sync']], { losses: losses('unavailable', 'nothing') })
    const lost = volume('b', [[1, 'in_sync']], { kind: 'ram', losses: losses('data_lost') })
    const alone = volume('c', [[1, 'in_sync'], [2, 'in_sync']], { losses: losses('split_brain_risk', 'continues') })
    const [one, two] = lossesByNode([stops, lost, alone], [node(1), node(2)])
    expect(one?.outcome).toBe('data_lost')
    expect(one?.effects.map((effect) => effect.outcome)).toEqual(['data_lost', 'unavailable', 'split_brain_risk'])
    expect(two).toMatchObject({ outcome: 'continues', effects: [{ volumes: ['c'] }, { outcome: 'nothing', volumes: ['a'] }] })
  })
  it('is unknown if a volume does not report it', () => {
    const unknown = volume('b', [[1, 'in_sync']])
    const [one, two] = lossesByNode([unknown], [node(1), node(2, { up: false })])
    expect(one).toMatchObject({ outcome: 'nothing', effects: [] })
    expect(two).toMatchObject({ outcome: 'down', effects: [] })
  })
})
