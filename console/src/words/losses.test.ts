import { describe, expect, it } from 'vitest'
import { node, volume } from './fixtures'
import { losses, lossesByNode } from './losses'

const outcomes = (v: ReturnType<typeof volume>, nodes: ReturnType<typeof node>[]) => losses(v, nodes).map((l) => l.outcome)

describe('the loss of a node', () => {
  const three = [node(1), node(2), node(3)]
  it('is outlived with two copies in sync and a majority', () => {
    expect(outcomes(volume('db', [[1, 'in_sync'], [2, 'in_sync']]), three)).toEqual(['goes_on', 'goes_on'])
  })
  it('stops the only copy in sync, and loses it in memory', () => {
    expect(outcomes(volume('db', [[1, 'in_sync'], [2, 'outside']]), three)).toEqual(['stops', 'nothing'])
    expect(outcomes(volume('db', [[1, 'in_sync']], { kind: 'ram' }), three)).toEqual(['lost'])
  })
  it('is not outlived without a majority', () => {
    const nodes = [node(1), node(2), node(3, { up: false })]
    const found = losses(volume('db', [[1, 'in_sync'], [2, 'in_sync'], [3, 'outside']]), nodes)
    expect(found.map((loss) => loss.outcome)).toEqual(['stops', 'stops', 'down'])
    expect(found[0]?.text).toContain('too few nodes')
  })
  it('of two nodes depends on which decides and on the strategy', () => {
    const two = [node(1), node(2, { votes: false })]
    const copies: [number, 'in_sync'][] = [[1, 'in_sync'], [2, 'in_sync']]
    expect(outcomes(volume('db', copies), two)).toEqual(['stops', 'goes_on'])
    const heartbeat = volume('db', copies, { strategy: { strategy: 'heartbeat', by: 'me', at: 0 } })
    expect(outcomes(heartbeat, two)).toEqual(['risk', 'goes_on'])
  })
  it('is summed up over volumes, with those of one node alone', () => {
    const volumes = [volume('a', [[1, 'in_sync'], [2, 'in_sync']]), volume('b', [])]
    const [one, two, other] = lossesByNode(volumes, three)
    expect(one).toMatchObject({ outcome: 'stops', stops: ['b'], goesOn: 1 })
    expect(two).toMatchObject({ outcome: 'goes_on', stops: [], goesOn: 1 })
    expect(other).toMatchObject({ outcome: 'nothing', stops: [], goesOn: 0 })
  })
})
