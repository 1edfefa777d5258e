// The lengths of passwords and CHAP secrets that the API demands.

import { plural } from './size'

/** Minimum number of characters of a password. */
export const PASSWORD_MIN = 10

/** Minimum number of characters of a CHAP secret. */
export const CHAP_SECRET_MIN = 12

export const CHAP_SECRET_HINT = `${CHAP_SECRET_MIN} or more characters, at most 255 bytes; Windows accepts at most 16. The secret is not shown again.`

/** How many characters are missing, counted as in JSON Schema: by code point, not by UTF-16 unit. */
export function charactersMissing(secret: string, least: number): number {
  return Math.max(0, least - [...secret].length)
}

/** The error beside a field; false while the field is empty. */
export function tooShort(secret: string, least: number): string | false {
  const missing = charactersMissing(secret, least)
  return secret !== '' && missing > 0 && plural(missing, 'more character')
}
