// Whatever one of the API, the console and the command line can do, all can: the document of the API beside the sources of the other two.
// What is left out on purpose is listed here with its reason, and nothing may be listed that is not left out.

// @ts-expect-error: only tests run in Node.js, whose types the page does not have
import { readFileSync, readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'

const NOT_IN_THE_CONSOLE: Record<string, string> = {
  force_new_cluster: 'for one survivor of a disaster, at that machine (docs/use/console.md)',
  health: 'for load balancers and monitoring: the console asks for the node itself',
  show_host: 'it is in the list of host groups',
  show_job: 'it is in the list of jobs',
  show_live: 'it has the stream',
  show_pool: 'it is in the list of pools',
  show_target: 'it is in the list of targets',
  stream_events: 'it looks every two seconds',
}

const NOT_ON_THE_COMMAND_LINE: Record<string, string> = {
  access_state: 'whether there is anybody who can log in: it does not log in',
  change_password: 'one’s own, proved by the one before: `ursa user set --password` gives any user another one',
  health: 'for load balancers and monitoring: `ursa status --check` says more',
  log_in: 'it proves itself by a token',
  log_out: 'it proves itself by a token',
  set_up: '`ursa user create` makes the first user, on the node itself',
  show_host_setup: '`ursa host-setup` has the text in itself, and needs no node',
  show_pool_remains: '`ursa pool forget --dry-run` says it',
  stream_events: '`ursa events --follow` asks every second',
  stream_live: '`ursa top` reads the metrics, and samples of other nodes',
}

/** Fields of requests that no screen sends. */
const NOT_SENT: Record<string, string> = {
  'choose_strategy by': 'who chooses is who is logged in',
}

const text = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

/** The files below a directory, by their names. */
function sources(directory: string, isSource: (name: string) => boolean): string[] {
  const names: string[] = readdirSync(new URL(`../../${directory}`, import.meta.url), { recursive: true })
  return names.filter(isSource).map((name) => text(`${directory}/${name}`))
}

/** `GET /v1/volumes/{}`: without names in braces, and what is behind the question mark. */
const call = (method: string, path: string) => `${method.toUpperCase()} ${path.replace(/\?.*/, '').replace(/(\$?\{[^}]*\})+/g, '{}')}`

interface Operation {
  id: string
  call: string
  /** The name of the schema of its body, and that schema's fields, with those of the objects in it. */
  body?: { schema: string; fields: string[] }
}

function fieldsOf(name: string, schemas: any): string[] {
  const properties = schemas[name].properties ?? {}
  const inner = [...JSON.stringify(properties).matchAll(/"#\/components\/schemas\/(\w+)"/g)].flatMap(([, one]) => fieldsOf(one!, schemas))
  return [...new Set([...Object.keys(properties), ...inner])]
}

const operations: Operation[] = (() => {
  const document = JSON.parse(text('docs/openapi.json'))
  return Object.entries<any>(document.paths).flatMap(([path, item]) =>
    Object.entries<any>(item).flatMap(([method, operation]) => {
      if (!operation.operationId) return []
      const schema: string | undefined = operation.requestBody?.content['application/json']?.schema.$ref?.split('/').at(-1)
      const body = schema === undefined ? undefined : { schema, fields: fieldsOf(schema, document.components.schemas) }
      return [{ id: operation.operationId as string, call: call(method, path), body }]
    }),
  )
})()

const sourcesOfConsole = sources('console/src', (name) => /\.tsx?$/.test(name) && !/\.(test|d)\.tsx?$/.test(name))

/** What a file of the console asks for: through the typed client, by `json`, and as streams. */
function callsOf(source: string): string[] {
  return [
    ...[...source.matchAll(/\bapi\.([A-Z]+)\('([^']+)'/g)].map(([, method, path]) => call(method!, path!)),
    ...[...source.matchAll(/\bjson(?:<[^(]*>)?\('([A-Z]+)', (['`])(.*?)\2/g)].map(([, method, , path]) => call(method!, path!)),
    ...[...source.matchAll(/\bnew URL\('(\/v1\/[^']+)'/g)].map(([, path]) => call('GET', path!)),
  ]
}

/** What each method of the command line's client asks for, by its name. */
function callsOfClient(): Map<string, string[]> {
  const VERBS: Record<string, string> = { list: 'GET' }
  const methods = new Map<string, string[]>()
  for (const source of sources('crates/api/src/client', (name) => name.endsWith('.rs') && name !== 'tests.rs')) {
    for (const [, name, body] of source.matchAll(/\n {4}pub fn (\w+)(.*?)\n {4}\}\n/gs)) {
      const paths = [...body!.matchAll(/"(\/v1\/[^"]*)"/g)].map(([, path]) => path!)
      const verbs = [...body!.matchAll(/\b(?:self|agent)\s*\.(get|list|post|put|patch|delete)\(/g)].map(([, verb]) => VERBS[verb!] ?? verb!)
      methods.set(name!, paths.flatMap((path) => verbs.map((verb) => call(verb, path))))
    }
  }
  return methods
}

const namesOf = (list: Operation[]) => list.map(({ id }) => id).sort()

describe('the API', () => {
  it('is read as it is', () => {
    expect(operations.length).toBeGreaterThan(60)
    expect(operations.find(({ id }) => id === 'add_disk')).toEqual({ id: 'add_disk', call: 'POST /v1/pools/{}/disks', body: { schema: 'PoolAddDisk', fields: ['path', 'reserve', 'size', 'wipe'] } })
  })
})

describe('the console', () => {
  const asked = new Set(sourcesOfConsole.flatMap(callsOf))

  it('can do what the API can', () => {
    expect(namesOf(operations.filter((operation) => !asked.has(operation.call)))).toEqual(Object.keys(NOT_IN_THE_CONSOLE).sort())
  })

  it('asks for nothing that the API does not have', () => {
    const known = new Set(operations.map((operation) => operation.call))
    expect([...asked].filter((one) => !known.has(one))).toEqual([])
  })

  // A field is sent where it is a key of an object, or is set, in a file that makes the call or names the type of its body.
  it('lets people say all that a request can', () => {
    const unsent = operations.flatMap(({ id, call, body }) => {
      if (!body || id in NOT_IN_THE_CONSOLE) return []
      const files = sourcesOfConsole.filter((source) => callsOf(source).includes(call) || new RegExp(`\\b${body.schema}\\b`).test(source)).join('\n')
      return body.fields.filter((field) => !new RegExp(`[{,\\s]${field}\\s*[:,}]|\\.${field} = `).test(files)).map((field) => `${id} ${field}`)
    })
    expect(unsent.sort()).toEqual(Object.keys(NOT_SENT).sort())
  })
})

describe('the command line', () => {
  const methods = callsOfClient()
  const sourcesOfCommandLine = sources('crates/ursa/src/cli', (name) => name.endsWith('.rs') && !name.endsWith('tests.rs'))
  const used = new Set(sourcesOfCommandLine.flatMap((source) => [...source.replace(/#\[cfg\(test\)\]\nmod tests \{.*/s, '').matchAll(/\bclient\s*\.(\w+)\(/g)].map(([, name]) => name!)))

  it('can do what the API can', () => {
    const asked = new Set([...methods].filter(([name]) => used.has(name)).flatMap(([, calls]) => calls))
    expect(namesOf(operations.filter((operation) => !asked.has(operation.call)))).toEqual(Object.keys(NOT_ON_THE_COMMAND_LINE).sort())
  })
})
