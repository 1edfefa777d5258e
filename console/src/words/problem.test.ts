import { describe, expect, it } from 'vitest'
import { headline } from './problem'

describe('a refusal', () => {
  it.each([
    ['volume_exists', 'Conflict', { change: 'created' }, 'Not created: conflict'],
    ['no_space', 'Insufficient Storage', { change: 'changed' }, 'Not changed: insufficient storage'],
    // Nothing was started.
    ['node_unreachable', 'Service Unavailable', { change: 'done' }, 'Not done: service unavailable'],
    ['busy', 'Service Unavailable', { change: 'done' }, 'Not done: service unavailable'],
    ['unknown', 'Refused', { what: 'The nodes cannot be listed' }, 'The nodes cannot be listed: refused'],
    ['console', 'The console failed', {}, 'The console failed'],
  ])('%s is headed with what is not done, in red', (code, title, wanted, headed) => {
    expect(headline({ code, title }, wanted)).toEqual({ title: headed, severity: 'critical' })
  })
})

describe('a change without an answer', () => {
  it('continues if the node says so', () => {
    expect(headline({ code: 'unfinished', title: 'Gateway Timeout' }, { change: 'created' })).toEqual({ title: 'Still in progress', severity: 'working', link: '#/jobs' })
    expect(headline({ code: 'restore_unfinished', title: 'Gateway Timeout' }, { change: 'done' })).toEqual({ title: 'Still in progress', severity: 'working' })
  })

  it.each(['node_unanswered', 'member_unanswered', 'core_silent', 'timeout', 'no_answer', 'cut_off', 'gateway'])('is not reported as not made: %s', (code) => {
    const { title, severity, first } = headline({ code, title: 'Gateway Timeout' }, { change: 'created' })
    expect([title, severity]).toEqual(['Result unknown: may have been created', 'warning'])
    expect(first).toMatch(/^check /)
  })

  // A read changes nothing.
  it.each(['node_unanswered', 'timeout', 'no_answer', 'cut_off', 'gateway'])('does not apply to reads: %s', (code) => {
    expect(headline({ code, title: 'No answer' }, { what: 'The nodes cannot be listed' })).toEqual({ title: 'The nodes cannot be listed: no answer', severity: 'critical' })
  })
})
