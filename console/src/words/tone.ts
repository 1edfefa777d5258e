// How something looks: in the colour and with the picture of its severity, or as what is well, at work or
// off.

import type { Finding } from '../api/types'

export type Tone = Finding['severity'] | 'ok' | 'working' | 'off'
