// Intervals in one unit, as on the command line: `90s`, `30m`, `12h`, `7d`.

const UNITS = { d: 86_400, h: 3600, m: 60, s: 1 } as const

/** The seconds of `30m`, `12h` or `7d`; undefined for any other text. */
export function parseInterval(text: string): number | undefined {
  const match = /^\s*(\d{1,9})\s*([dhms])\s*$/.exec(text)
  return match ? Number(match[1]) * UNITS[match[2] as keyof typeof UNITS] : undefined
}

/** `12h`, `7d`: in the largest unit of which it is a multiple. */
export function interval(seconds: number): string {
  const [unit, length] = Object.entries(UNITS).find(([, length]) => seconds >= length && seconds % length === 0) ?? ['s', 1]
  return `${seconds / length}${unit}`
}
