// The API, the console and the command line can do the same: compares the API's document with the sources of
// the other two. Exceptions are listed here with their reasons, and the lists may contain nothing that is not
// an exception.

// @ts-expect-error: only tests run in Node.js, whose types the page does not have
import { readFileSync, readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'

const NO_CLONES = 'not yet: `ursa snapshot clone` does it (docs/use/snapshots.md)'

const NOT_IN_THE_CONSOLE: Record<string, string> = {
  clone_snapshot: NO_CLONES,
  convert_volume: 'few volumes ever change their kind, and what that means is explained where the command is (docs/use/pools.md)',
  leave_cluster: 'for a node that is no longer in its cluster, on that machine (docs/use/console.md)',
  force_new_cluster: 'for the only survivor of a disaster, on that machine (docs/use/console.md)',
  health: 'for load balancers and monitoring: the console requests the node itself',
  read_snapshot: 'for backups: it shows the command, `ursa snapshot export`',
  remove_disk: 'not yet: it shows the progress',
  show_host: 'it is in the list of host groups',
  show_job: 'it is in the list of jobs',
  show_live: 'it uses the stream',
  show_pool: 'it is in the list of pools',
  show_snapshot_schedule: 'it is in the list of schedules',
  show_target: 'it is in the list of targets',
  stream_events: 'it polls every two seconds',
}

const NOT_ON_THE_COMMAND_LINE: Record<string, string> = {
  access_state: 'whether any user exists: the command line does not log in',
  change_password: 'for one’s own password, given the old one: `ursa user set --password` sets the password of any user',
  health: 'for load balancers and monitoring: `ursa status --check` says more',
  log_in: 'it authenticates with a token',
  log_out: 'it authenticates with a token',
  set_up: '`ursa user create` creates the first user, on the node itself',
  show_host_setup: '`ursa host-setup` contains the text, and needs no node',
  show_scrub: '`ursa volume show` and `ursa job show` show it',
  show_pool_remains: '`ursa pool forget --dry-run` shows it',
  stream_events: '`ursa events --follow` polls every second',
  stream_live: '`ursa top` reads the metrics, and samples of other nodes',
}

const ANY_NODE = 'whichever node has a copy in sync may do it'
const BY_TIME = 'it pages by time, which all nodes share: numbers belong to one node'
const MANY_AT_ONCE = 'it shows many at once, and a second rarely has more'
const AS_TYPED = 'it would be requested again with each letter that is typed; the dialog says what happens'

/** Query parameters that the console never sends, of calls that it makes. */
const NO_PARAMETER_OF_THE_CONSOLE: Record<string, string> = {
  'change_host dry_run': AS_TYPED,
  'change_target dry_run': AS_TYPED,
  'change_user dry_run': AS_TYPED,
  'change_volume dry_run': AS_TYPED,
  'set_split_brain_policy dry_run': 'the panel says what each choice does',
  'list_audit before': BY_TIME,
  'list_audit skip': MANY_AT_ONCE,
  'list_events after': BY_TIME,
  'list_events skip': MANY_AT_ONCE,
  'list_snapshots label': 'it filters the list that it has',
  'scrub_volume node': ANY_NODE,
  'show_scrub node': ANY_NODE,
  'show_verification node': ANY_NODE,
  'verify_volume node': ANY_NODE,
}

const REMOVES_NOTHING = '`--dry-run` is for commands that destroy or remove something'

/** The same for the command line. */
const NO_PARAMETER_OF_THE_COMMAND_LINE: Record<string, string> = {
  'change_volume dry_run': REMOVES_NOTHING,
  'set_split_brain_policy dry_run': REMOVES_NOTHING,
}

/** Request fields that no file of the command line names. */
const NOT_SAID: Record<string, string> = {
  'prefer_node node': 'its client builds the request from a number (`client.prefer_node`)',
}

const SELDOM_CHOSEN = 'few volumes need it, and the command is documented (docs/use/pools.md)'

/** Request fields that no screen sends. */
const NOT_SENT: Record<string, string> = {
  'change_volume compression': SELDOM_CHOSEN,
  'change_volume reserve': SELDOM_CHOSEN,
  'change_volume when_full': SELDOM_CHOSEN,
  'create_volume checksums': SELDOM_CHOSEN,
  'create_volume compression': SELDOM_CHOSEN,
  'create_volume reserve': SELDOM_CHOSEN,
  'create_volume when_full': SELDOM_CHOSEN,
  'set_split_brain_policy by': 'it is the logged-in user',
}

/** Response fields that no screen reads. The command line prints whole responses as JSON or YAML. */
const NOT_SHOWN: Record<string, string> = {
  'Candidate rule': 'for programs: the text says the same',
  'CopySync copied_bytes': 'the progress is shown as what is left of the total',
  'Event revision': 'for programs that collect events of several nodes, to recognize duplicates',
  'Event subject_id': 'the page of a volume uses it in its query',
  'Event subject_node': 'for programs that collect events of several nodes, to recognize duplicates',
  'Events gap': 'for `after`, which the console never sends',
  'HistorySeries unit': 'each chart knows its unit',
  'Pool extent': 'nodes round to it',
  'SnapshotCloned clones': NO_CLONES,
  'SnapshotCloned took_us': NO_CLONES,
  'Volume checksums': SELDOM_CHOSEN,
  'Volume clone_of': NO_CLONES,
  'Volume compression': SELDOM_CHOSEN,
  'Volume compression_ratio_percent': '`ursa volume list` shows it',
  'Volume when_full': SELDOM_CHOSEN,
}

const text = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

/** The files below a directory, by name. */
function sources(directory: string, isSource: (name: string) => boolean): string[] {
  const names: string[] = readdirSync(new URL(`../../${directory}`, import.meta.url), { recursive: true })
  return names.filter(isSource).map((name) => text(`${directory}/${name}`))
}

/** `GET /v1/volumes/{}`: without names in braces and without the query. */
const call = (method: string, path: string) => `${method.toUpperCase()} ${path.replace(/\?.*/, '').replace(/(\$?\{[^}]*\})+/g, '{}')}`

/** A call, with the names of its query parameters. */
interface Made {
  call: string
  parameters: string[]
}

interface Operation extends Made {
  id: string
  /** The schema of its body: name, fields including those of nested objects, and fields by schema. */
  body?: { schema: string; fields: string[]; by: Record<string, string[]> }
}

function fieldsOf(name: string, schemas: any): string[] {
  const properties = schemas[name].properties ?? {}
  const inner = [...JSON.stringify(properties).matchAll(/"#\/components\/schemas\/(\w+)"/g)].flatMap(([, one]) => fieldsOf(one!, schemas))
  return [...new Set([...Object.keys(properties), ...inner])]
}

/** The fields of a schema, and those of each schema in it, by schema name. */
function fieldsBySchema(name: string, schemas: any, found: Record<string, string[]> = {}): Record<string, string[]> {
  if (name in found) return found
  const properties = schemas[name].properties ?? {}
  found[name] = Object.keys(properties)
  for (const [, one] of JSON.stringify(properties).matchAll(/"#\/components\/schemas\/(\w+)"/g)) fieldsBySchema(one!, schemas, found)
  return found
}

const openapi = JSON.parse(text('docs/openapi.json'))

/** The names of the schemas that a value refers to. */
const referredTo = (something: unknown): string[] => [...JSON.stringify(something).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name!)

/** Each field of each schema in responses, including errors: `Volume naa`. */
const answered: string[] = (() => {
  const { schemas, responses } = openapi.components
  const operations = Object.values<any>(openapi.paths).flatMap((item) => Object.values<any>(item))
  const names = new Set(referredTo([responses ?? {}, operations.map((operation) => operation.responses)]))
  // The set grows during the loop.
  for (const name of names) referredTo(schemas[name]).forEach((one) => names.add(one))
  const parts = (name: string): any[] => [schemas[name], ...(schemas[name].allOf ?? []), ...(schemas[name].oneOf ?? [])]
  const fields = (name: string) => parts(name).flatMap((part) => Object.keys(part.properties ?? {}))
  // `Answer_Pool` is a pool, or the result of a dry run.
  return [...new Set([...names].flatMap((name) => fields(name).map((field) => `${name.replace(/^Answer_/, '')} ${field}`)))]
})()

const operations: Operation[] = Object.entries<any>(openapi.paths).flatMap(([path, item]) =>
  Object.entries<any>(item).flatMap(([method, operation]) => {
    if (!operation.operationId) return []
    const schema: string | undefined = operation.requestBody?.content['application/json']?.schema.$ref?.split('/').at(-1)
    const { schemas } = openapi.components
    const body = schema === undefined ? undefined : { schema, fields: fieldsOf(schema, schemas), by: fieldsBySchema(schema, schemas) }
    const parameters: string[] = (operation.parameters ?? []).filter((one: any) => one.in === 'query').map((one: any) => one.name)
    return [{ id: operation.operationId as string, call: call(method, path), parameters, body }]
  }),
)

const sourcesOfConsole = sources('console/src', (name) => /\.tsx?$/.test(name) && !/\.(test|d)\.tsx?$/.test(name))

/** The text from the first parenthesis to the matching one. */
function inParentheses(source: string, from: number): string {
  const begin = source.indexOf('(', from)
  let open = 0
  for (let at = begin; at < source.length; at += 1) {
    if (source[at] === '(') open += 1
    if (source[at] === ')') open -= 1
    if (open === 0) return source.slice(begin, at + 1)
  }
  return source.slice(begin)
}

/** `force` and `node` of `?force=true&node=2`. */
const namesIn = (address: string) => [...address.matchAll(/[?&](\w+)=/g)].map(([, name]) => name!)

/** The calls that a file of the console makes: through the typed client, by `json`, and as streams. */
function callsOf(source: string): Made[] {
  const made = (method: string, path: string) => ({ call: call(method, path), parameters: namesIn(path) })
  const typed = [...source.matchAll(/\bapi\.([A-Z]+)\('([^']+)'/g)].map((found) => {
    // `{ params: { path, query: { node, force: true } }, body }`: the keys of the object, which must be a
    // literal.
    const query = inParentheses(source, found.index!).match(/\bquery: (.*?)(\bbody\b|$)/s)?.[1] ?? ''
    return { call: call(found[1]!, found[2]!), parameters: [...query.matchAll(/[{,]\s*(\w+)(?=\s*[:,}])/g)].map(([, name]) => name!) }
  })
  return [
    ...typed,
    ...[...source.matchAll(/\bjson(?:<[^(]*>)?\('([A-Z]+)', (['`])(.*?)\2/g)].map(([, method, , path]) => made(method!, path!)),
    ...[...source.matchAll(/\bnew URL\('(\/v1\/[^']+)'/g)].map(([, path]) => made('GET', path!)),
  ]
}

/** The dry runs that a file of the console requests: `<Tried>` shows their results. */
function triedOf(source: string): Made[] {
  return [...source.matchAll(/<Tried(?: method="([A-Z]+)")? path=(.*?) (?:body|failure)=/g)].map(([, method, said]) => {
    const ofPool = said!.match(/tryPath\(.*?, '([\w-]+)'/)?.[1]
    const path = ofPool === undefined ? said!.match(/\/v1\/([^"'`$]|\$\{[^}?]*\})*/)![0] : `/v1/pools/{}/${ofPool}`
    return { call: call(method ?? 'POST', path), parameters: ['dry_run'] }
  })
}

/** Query parameters of these calls that none of them sends. */
function leftOut(made: Made[]): string[] {
  return operations
    .flatMap((operation) => {
      const calls = made.filter((one) => one.call === operation.call)
      const given = new Set(calls.flatMap(({ parameters }) => parameters))
      return calls.length === 0 ? [] : operation.parameters.filter((name) => !given.has(name)).map((name) => `${operation.id} ${name}`)
    })
    .sort()
}

/** The methods of the command line's client that a source calls: `client.pools()`, `Client::leave_cluster`. */
const methodsIn = (source: string) => [...source.matchAll(/\b(?:client\s*\.|Client::)(\w+)/g)].map(([, name]) => name!)

/** Those of which it requests a dry run: what it hands to `would`, or to `done` and `show` of `Confirm`. */
function dryRunsIn(source: string): string[] {
  const closures = [...source.matchAll(/\blet (\w+) = \|client\b.*?\|(.*?);\n/gs)]
  return [...source.matchAll(/\b(?:would|confirm\s*\.(?:done|show))\(/g)].flatMap(({ index }) => {
    const handed = inParentheses(source, index)
    const named = closures.filter(([, name]) => new RegExp(`\\b${name}\\b`).test(handed))
    return methodsIn([handed, ...named.map(([, , body]) => body)].join('\n'))
  })
}

/** The call that each method of the command line's client makes, by method name. */
function callsOfClient(): Map<string, Made[]> {
  const VERBS: Record<string, string> = { list: 'GET' }
  const methods = new Map<string, Made[]>()
  for (const source of sources('crates/api/src/client', (name) => name.endsWith('.rs') && name !== 'tests.rs')) {
    for (const [, name, body] of source.matchAll(/\n {4}pub fn (\w+)(.*?)\n {4}\}\n/gs)) {
      const paths = [...body!.matchAll(/"(\/v1\/[^"]*)"/g)].map(([, path]) => path!)
      const verbs = [...body!.matchAll(/\b(?:self|agent)\s*\.(get|list|post|put|patch|delete)(?:_empty|_json|_bytes)?\(/g)].map(([, verb]) => VERBS[verb!] ?? verb!)
      // In the path, in the list for `with_query`, and by `of_node`.
      const listed = [...body!.matchAll(/^ *\("(\w+)", /gm)].map(([, name]) => name!)
      const parameters = [...namesIn(body!), ...listed, ...(body!.includes('of_node(') ? ['node'] : [])]
      methods.set(name!, paths.flatMap((path) => verbs.map((verb) => ({ call: call(verb, path), parameters }))))
    }
  }
  return methods
}

const namesOf = (list: Operation[]) => list.map(({ id }) => id).sort()

describe('the API', () => {
  it('is parsed correctly', () => {
    expect(operations.length).toBeGreaterThan(60)
    expect(operations.find(({ id }) => id === 'add_disk')).toEqual({ id: 'add_disk', call: 'POST /v1/pools/{}/disks', parameters: ['node', 'dry_run'], body: { schema: 'PoolAddDisk', fields: ['path', 'preallocate', 'size', 'wipe'], by: { PoolAddDisk: ['path', 'preallocate', 'size', 'wipe'] } } })
  })
})

describe('the console', () => {
  const made = sourcesOfConsole.flatMap(callsOf)
  const asked = new Set(made.map((one) => one.call))

  it('makes every call of the API', () => {
    expect(namesOf(operations.filter((operation) => !asked.has(operation.call)))).toEqual(Object.keys(NOT_IN_THE_CONSOLE).sort())
  })

  it('makes no call that the API lacks', () => {
    const known = new Set(operations.map((operation) => operation.call))
    expect([...asked].filter((one) => !known.has(one))).toEqual([])
  })

  // A field counts as sent if it is a key of an object, or is assigned, in a file that makes the call or
  // names the type of its body.
  it('can send every request field', () => {
    const unsent = operations.flatMap(({ id, call, body }) => {
      if (!body || id in NOT_IN_THE_CONSOLE) return []
      const files = sourcesOfConsole.filter((source) => callsOf(source).some((one) => one.call === call) || new RegExp(`\\b${body.schema}\\b`).test(source)).join('\n')
      return body.fields.filter((field) => !new RegExp(`[{,\\s]${field}\\s*[:,}]|\\.${field} = `).test(files)).map((field) => `${id} ${field}`)
    })
    expect(unsent.sort()).toEqual(Object.keys(NOT_SENT).sort())
  })

  // By its name, in any file: `volume.naa`, or destructured, as in `({ cpu, polling })`. So a field that
  // shares its name with another one counts as read, too.
  it('shows every response field', () => {
    expect(answered.length).toBeGreaterThan(250)
    const source = sourcesOfConsole.join('\n')
    const unread = answered.filter((one) => {
      const field = one.split(' ')[1]!
      return !new RegExp(`\\.${field}\\b|[{,] ?${field}(,| \\})`).test(source)
    })
    expect(unread.sort()).toEqual(Object.keys(NOT_SHOWN).sort())
  })

  // The bench's measurement is meaningful only if the console sends these requests.
  it('makes the requests that bench/control makes in its place', () => {
    const overview = text('bench/control').match(/^OVERVIEW = \{\n(.*?)^\}/ms)![1]!
    const asked = [...overview.matchAll(/"(\/v1\/[^"]+)"/g)].map(([, path]) => path!)
    expect(asked.length).toBeGreaterThan(5)
    const isMade = (path: string) => made.some((one) => one.call === call('GET', path) && namesIn(path).every((name) => one.parameters.includes(name)))
    expect(asked.filter((path) => !isMade(path))).toEqual([])
  })

  it('can send every query parameter', () => {
    expect(leftOut([...made, ...sourcesOfConsole.flatMap(triedOf)])).toEqual(Object.keys(NO_PARAMETER_OF_THE_CONSOLE).sort())
  })
})

describe('the command line', () => {
  const methods = callsOfClient()
  const withoutTests = (source: string) => source.replace(/#\[cfg\(test\)\]\nmod tests \{.*/s, '')
  const sourcesOfCommandLine = sources('crates/cli/src', (name) => name.endsWith('.rs') && !name.endsWith('tests.rs')).map(withoutTests)
  const used = new Set(sourcesOfCommandLine.flatMap(methodsIn))
  const tried = new Set(sourcesOfCommandLine.flatMap(dryRunsIn))
  const made = [...methods].flatMap(([name, calls]) => {
    if (!used.has(name)) return []
    return calls.map(({ call, parameters }) => ({ call, parameters: tried.has(name) ? [...parameters, 'dry_run'] : parameters }))
  })

  it('makes every call of the API', () => {
    const asked = new Set(made.map((one) => one.call))
    expect(namesOf(operations.filter((operation) => !asked.has(operation.call)))).toEqual(Object.keys(NOT_ON_THE_COMMAND_LINE).sort())
  })

  // A field counts as set if it is a key of a struct, or is assigned, in a file that names the type.
  it('can send every request field', () => {
    const unsaid = operations.flatMap(({ id, body }) => {
      if (!body || id in NOT_ON_THE_COMMAND_LINE) return []
      return Object.entries(body.by).flatMap(([schema, fields]) => {
        const files = sourcesOfCommandLine.filter((source) => new RegExp(`\\b${schema}\\b`).test(source)).join('\n')
        return fields.filter((field) => !new RegExp(`[{,\\s(]${field}\\s*[:,}]|\\.${field} = `).test(files)).map((field) => `${id} ${field}`)
      })
    })
    expect(unsaid.sort()).toEqual(Object.keys(NOT_SAID).sort())
  })

  it('can send every query parameter', () => {
    expect(leftOut(made)).toEqual(Object.keys(NO_PARAMETER_OF_THE_COMMAND_LINE).sort())
  })
})
