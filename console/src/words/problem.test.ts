import { expect, it } from 'vitest'
import { headline } from './problem'

it('heads what a node refuses with what is not done', () => {
  expect(headline({ code: 'volume_exists', title: 'Conflict' }, 'Not made')).toEqual({ title: 'Not made: conflict', severity: 'critical' })
  expect(headline({ code: 'console', title: 'The console failed' })).toEqual({ title: 'The console failed', severity: 'critical' })
  expect(headline({ code: 'timeout', title: 'Gateway Timeout' }, 'Not made').severity).toBe('critical')
})

it('does not say of a change that goes on that it is not made', () => {
  expect(headline({ code: 'unfinished', title: 'Gateway Timeout' }, 'Not made')).toEqual({ title: 'It goes on', severity: 'working', link: '#/jobs' })
})
