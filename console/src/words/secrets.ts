// The lengths of passwords and CHAP secrets that the API demands.

import { plural } from './size'

/** Characters of a password at least. */
export const PASSWORD_MIN = 10

/** Characters of a CHAP secret at least. */
export const CHAP_SECRET_MIN = 12

export const CHAP_SECRET_HINT = `${CHAP_SECRET_MIN} or more characters, at most 255 bytes; Windows accepts at most 16. The secret is not shown again.`

/** How many characters it still needs, counted as JSON Schema does: not in UTF-16, which has two for an emoji. */
export function charactersMissing(secret: string, least: number): number {
  return Math.max(0, least - [...secret].length)
}

/** What to say beside a field: nothing before somebody has begun to type. */
export function tooShort(secret: string, least: number): string | false {
  const missing = charactersMissing(secret, least)
  return secret !== '' && missing > 0 && plural(missing, 'more character')
}
