// Which names objects may have, and the range of LUNs, as in the API.

/** `pattern` of the names in docs/openapi.json. */
export const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/

/** The highest LUN: `maximum` in docs/openapi.json. */
export const LUN_MAX = 255

/** The hint beside an empty field. */
export const NAME_HINT = 'Letters, digits, -, _ and .; must start with a letter or digit; at most 63 characters'

/** Whether this is a valid name of a volume, pool, host group, user or token. */
export function isName(name: string): boolean {
  return NAME.test(name)
}

/** What is wrong with a name; undefined if it is empty. */
export function nameProblem(name: string): string | undefined {
  return name === '' || isName(name) ? undefined : 'Only letters, digits, -, _ and .; must start with a letter or digit; at most 63 characters'
}
