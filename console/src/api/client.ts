// Requests to the node that served this page. A refused request becomes a `Refusal` with the problem
// document.

import createClient from 'openapi-fetch'
import type { paths } from './schema'
import type { Problem } from './types'

/** Response timeout. The node itself answers a change after 45 seconds at the latest, finished or not. */
const ANSWER_DEADLINE_MS = 60_000

/** A node's refusal with its problem document, or a missing response (`status` 0). */
export class Refusal extends Error {
  readonly problem: Problem
  constructor(problem: Problem) {
    super(problem.detail)
    this.name = 'Refusal'
    this.problem = problem
  }
  get status(): number {
    return this.problem.status
  }
  get code(): string {
    return this.problem.code
  }
}

/** The problem document of any error. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Refusal) return error.problem
  return { type: 'about:blank', title: 'The console failed', status: 0, code: 'console', detail: String(error) }
}

const NO_ANSWER: Problem = {
  type: 'about:blank',
  title: 'No answer',
  status: 0,
  code: 'no_answer',
  detail: 'the node that serves this console does not answer',
  hint: 'check that its process runs (`systemctl status ursa`) and that this machine can reach it, or open the console of another node of the cluster',
}

async function answered(request: Request): Promise<Response> {
  try {
    return await fetch(request, { signal: AbortSignal.timeout(ANSWER_DEADLINE_MS) })
  } catch {
    throw new Refusal(NO_ANSWER)
  }
}

/** The response was cut short. */
const cutOff = (error: unknown): Problem => ({
  type: 'about:blank',
  title: 'Incomplete response',
  status: 0,
  code: 'cut_off',
  detail: `the response of the node is incomplete or invalid (${String(error)})`,
})

/** Reads a response. A refusal in it stays one; other errors become `cut_off`. */
async function whole<T>(read: Promise<T>): Promise<T> {
  try {
    return await read
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal(cutOff(error))
  }
}

const client = createClient<paths>({
  baseUrl: location.origin,
  // Shows that our page sends the request, not a form of another site: browsers do not let other sites send
  // it.
  headers: { 'X-Ursa-Request': '1' },
  fetch: answered,
})

/** Called when the node requires a login and there is none, or it has expired. */
let onLoginNeeded: () => void = () => undefined
export function whenLoginIsNeeded(callback: () => void) {
  onLoginNeeded = callback
}

/** Bad Gateway, Gateway Timeout. */
const GATEWAY_STATUS = [502, 504]

async function refusalOf(response: Response, body: unknown): Promise<Refusal> {
  if (response.status === 401) onLoginNeeded()
  if (body && typeof body === 'object' && 'detail' in body) return new Refusal(body as Problem)
  return new Refusal({
    type: 'about:blank',
    title: response.statusText || 'Refused',
    status: response.status,
    // A gateway between this page and the node answered, and does not know what the node has done.
    code: GATEWAY_STATUS.includes(response.status) ? 'gateway' : 'unknown',
    detail: `the node answered with status ${response.status}`,
  })
}

/** The data of a response of the typed client; throws a `Refusal` if there is none. */
export async function data<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await whole(answer)
  if (!response.ok) throw await refusalOf(response, error)
  return data as T
}

/** For paths that are not in docs/openapi.json: text, and calls that an older node may lack. */
export async function raw(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  headers.set('X-Ursa-Request', '1')
  if (init.body) headers.set('Content-Type', 'application/json')
  const response = await answered(new Request(new URL(path, location.origin), { ...init, headers }))
  if (!response.ok) throw await refusalOf(response, await response.json().catch(() => undefined))
  return response
}

export async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method }
  if (body !== undefined) init.body = JSON.stringify(body)
  const response = await raw(path, init)
  return (response.status === 204 ? undefined : await whole(response.json())) as T
}

export const api = client
