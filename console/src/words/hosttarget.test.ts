import { expect, it } from 'vitest'
import type { Target } from '../api/types'
import { volume } from './fixtures'
import { targetFor } from './hosttarget'

const target = (name: string, ...volumes: string[]): Target => ({ name, maps: volumes.map((id, lun) => ({ lun, host: 'local', volume_id: `id-${id}` })) })
const targets = [target('empty'), target('one', 'a'), target('two', 'a', 'b')]

it('is one that has LUNs, and of the volume that was asked for', () => {
  expect(targetFor(targets, {})?.name).toBe('one')
  expect(targetFor(targets, { volume: volume('b', []) })?.name).toBe('two')
  expect(targetFor(targets, { target: 'gone' })?.name).toBe('one')
})

it('is none where the volume cannot be seen, and an empty one only if it was chosen or is all there is', () => {
  expect(targetFor(targets, { volume: volume('c', []) })).toBeUndefined()
  expect(targetFor(targets, { target: 'empty', volume: volume('c', []) })?.name).toBe('empty')
  expect(targetFor([target('empty')], {})?.name).toBe('empty')
  expect(targetFor([], {})).toBeUndefined()
})
