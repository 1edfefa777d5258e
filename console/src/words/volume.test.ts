import { expect, it } from 'vitest'
import { node, volume } from './fixtures'
import { volumeState } from './volume'

it('takes no offence at a volume whose copies are all on other nodes', () => {
  expect(node(1).here).toBe(true)
  expect(volumeState(volume('db', [[2, 'in_sync'], [3, 'in_sync']], { serving: false })).tone).toBe('ok')
  expect(volumeState(volume('db', [[2, 'in_sync'], [3, 'outside']], { serving: false })).word).toBe('degraded')
  expect(volumeState(volume('db', [[1, 'in_sync'], [3, 'in_sync']], { serving: false })).word).toBe('not here')
})
