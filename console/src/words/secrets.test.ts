import { expect, it } from 'vitest'
import { CHAP_SECRET_MIN, PASSWORD_MIN, charactersMissing, tooShort } from './secrets'

it('counts characters, not bytes, like the API', () => {
  expect(['', 'nine char', 'ten charac', 'äöüäöüäöü', '😀😀😀😀😀'].map((password) => charactersMissing(password, PASSWORD_MIN))).toEqual([10, 1, 0, 1, 5])
})

it('shows no error before anything is typed', () => {
  expect(['', 'elevenbytes', 'twelve bytes', 'äöüäöü'].map((secret) => tooShort(secret, CHAP_SECRET_MIN))).toEqual([false, '1 more character', false, '6 more characters'])
})
