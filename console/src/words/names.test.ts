// @ts-expect-error: only tests run in Node.js, whose types the page does not have
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { LUN_MAX, NAME, isName, nameProblem } from './names'

describe('names', () => {
  it.each([
    ['db', true],
    ['Mail-2.a_b', true],
    ['7', true],
    ['a'.repeat(63), true],
    ['a'.repeat(64), false],
    ['', false],
    ['-db', false],
    ['_db', false],
    ['.db', false],
    ['d b', false],
    ['d/b', false],
    ['dä', false],
    ['db\n', false],
  ])('%j is taken: %s', (name, taken) => {
    expect(isName(name)).toBe(taken)
  })

  it('show no error before anything is typed', () => {
    expect(nameProblem('')).toBeUndefined()
    expect(nameProblem('db')).toBeUndefined()
    expect(nameProblem('-')).toContain('must start with a letter or digit')
  })
})

describe('the document of the API', () => {
  const { schemas } = JSON.parse(readFileSync(new URL('../../../docs/openapi.json', import.meta.url), 'utf8')).components

  it.each(['VolumeCreate', 'PoolCreate', 'HostCreate', 'UserCreate', 'ApiTokenCreate'])('has the same names in %s', (schema) => {
    expect(schemas[schema].properties.name.pattern).toBe(NAME.source)
  })

  it.each(['VolumeCreate', 'MapCreate'])('has the same LUNs in %s', (schema) => {
    expect(schemas[schema].properties.lun).toMatchObject({ minimum: 0, maximum: LUN_MAX })
  })
})
