import { expect, it } from 'vitest'
import type { Target } from '../api/types'
import { volume } from './fixtures'
import { targetFor } from './hosttarget'

const target = (name: string, ...volumes: string[]): Target => ({ name, maps: volumes.map((id, lun) => ({ lun, host: 'local', volume_id: `id-${id}` })) })
const targets = [target('empty'), target('one', 'a'), target('two', 'a', 'b')]

it('has LUNs, and belongs to the selected volume', () => {
  expect(targetFor(targets, {})?.name).toBe('one')
  expect(targetFor(targets, { volume: volume('b', []) })?.name).toBe('two')
  expect(targetFor(targets, { target: 'gone' })?.name).toBe('one')
})

it('is absent if the volume is not mapped, and empty only if chosen or the only one', () => {
  expect(targetFor(targets, { volume: volume('c', []) })).toBeUndefined()
  expect(targetFor(targets, { target: 'empty', volume: volume('c', []) })?.name).toBe('empty')
  expect(targetFor([target('empty')], {})?.name).toBe('empty')
  expect(targetFor([], {})).toBeUndefined()
})
