// The appearance of a state: the color and icon of its severity, or those of healthy, busy or off.

import type { Finding } from '../api/types'

export type Tone = Finding['severity'] | 'ok' | 'working' | 'off'
