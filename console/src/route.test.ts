import { expect, it } from 'vitest'
import { link, parseRoute } from './route'

it('is parsed as it was written', () => {
  expect(parseRoute(link('volumes', 'a/b %')).path).toEqual(['volumes', 'a/b %'])
  expect(parseRoute('#/setup?token=abc%2Bd').query.get('token')).toBe('abc+d')
  expect(parseRoute('').path).toEqual([])
  expect(parseRoute('#/%zz').path).toEqual(['%zz'])
})
